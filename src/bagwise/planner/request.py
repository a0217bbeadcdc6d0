"""What a plan is asked for, checked once; there is no place in it for a label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    find_strategy,
    measures_by_scores,
)
from bagwise.cluster.search import EffortName
from bagwise.errors import StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.planner.candidates import LABEL_KINDS
from bagwise.planner.prior import Prior, read_prior
from bagwise.planner.sizes import check_sizes
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.requests.budget import Budget
from bagwise.requests.verbs import Learner, check_learner

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class PlanRequest:
    """What to rank, and what is believed of the labels.

    Attributes
    ----------
    rule : ExactCalibration or None
        For the noise; None when not private.
    classes : int or None
        How many classes a label has, if it is no number.
    bag_sizes : tuple of int
        Sizes to consider, the smallest first; none: those that are worth it.
    min_bag_size : int
        The smallest that may be published.
    strategies : tuple of BaggingStrategy
        Those to consider; one that sorts does so by a private model.
    are_named : bool
        Whether somebody asked for these strategies: then few large bags may come first.
    label_kinds : tuple of str
        Kinds of labels to consider.
    max_bag_size : int or None
        The largest that can be: the rows of the smallest stratum.
    single_labels : bool
        Whether single labels are ranked beside bags; for flexible learners, whether they may be.
    learner : {"linear", "flexible"}
        Who bags are for. For flexible learners the features decide on a strategy, and sizes are
        ranked.
    """

    budget: Budget
    rule: ExactCalibration | None
    family: Family
    classes: int | None
    prior: Prior
    bag_sizes: tuple[int, ...]
    min_bag_size: int
    strategies: tuple[BaggingStrategy, ...]
    are_named: bool
    label_kinds: tuple[LabelKind, ...]
    effort: str
    max_bag_size: int | None = None
    single_labels: bool = False
    learner: Learner = "linear"

    @classmethod
    def of(
        cls,
        budget: Budget,
        *,
        family: str = AUTO,
        classes: int | None = None,
        prior: Any = None,
        bag_sizes: Sequence[int] | None = None,
        min_bag_size: int | None = None,
        strategies: Sequence[str | BaggingStrategy] | None = None,
        scored: bool = True,
        label_kinds: tuple[LabelKind, ...] = LABEL_KINDS,
        effort: str = "fast",
        max_bag_size: int | None = None,
        single_labels: bool = False,
        learner: str = "linear",
    ) -> Self:
        """Check what a user asks for, as far as it can be told without the features.

        Where nobody names strategies, `scored` says whether those are tried that sort.
        """
        fitted, rule = resolve_family(family, classes), budget.calibration
        check_name("effort", effort, get_args(EffortName))
        limits = None if classes is not None else budget.bounds
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        if rule is not None and not isinstance(rule, ExactCalibration):
            raise StrategyError("plans are for the exact rule for noise only.")
        if single_labels and (rule is None or classes is not None):
            raise StrategyError("single labels are planned for numbers under an epsilon only.")
        modelled = rule is not None and classes is None
        reader = check_learner(learner)
        if reader == "flexible" and (strategies is not None or single_labels):
            raise StrategyError(
                "strategies and single labels are ranked for linear learners: leave them out "
                "with learner='flexible'."
            )
        sizes, least = check_sizes(bag_sizes, min_bag_size)
        if reader == "flexible":  # where nothing is said of bags, there may be none
            unsaid = bag_sizes is None and min_bag_size is None and "mean" in label_kinds
            single_labels = modelled and unsaid and fitted.name == "gaussian"
        return cls(
            budget=budget,
            # What finding the bounds has spent is gone before the release begins.
            rule=None if rule is None else replace(rule, epsilon=rule.left, prior=()),
            family=fitted,
            classes=classes,
            prior=read_prior(prior, limits, fitted, classes=classes),
            bag_sizes=sizes,
            min_bag_size=least,
            strategies=(
                _planned_for(reader, scored=scored and modelled)
                if strategies is None
                else _check_named(strategies, modelled=modelled)
            ),
            are_named=strategies is not None,
            label_kinds=label_kinds,
            effort=effort,
            max_bag_size=max_bag_size,
            single_labels=single_labels,
            learner=reader,
        )


def resolve_family(family: str, classes: int | None) -> Family:
    """Return the family of that name; "auto" is the plainest that the labels allow."""
    if family == AUTO:
        return find_family("gaussian" if classes is None else "multinomial")
    fitted = find_family(family)
    if fitted.has_classes and classes is None:
        raise StrategyError(f"the family {family} is for labels with classes: name the classes.")
    if classes is not None and not (fitted.has_classes or fitted.name == "bernoulli"):
        raise StrategyError(f"labels with classes are not of the family {family}.")
    return fitted


def _planned_for(learner: Learner, *, scored: bool) -> tuple[BaggingStrategy, ...]:
    """Return what is tried unasked; for flexible learners that is found with the features."""
    if learner == "flexible":
        return ()
    return tuple(planned(scored=scored))


def planned(*, scored: bool = True) -> list[BaggingStrategy]:
    """Return the registered strategies that are tried unasked.

    `scored` says whether those that read scores belong to them.
    """
    chosen = [find_strategy(name) for name, kind in STRATEGIES.items() if kind.planned]
    return [strategy for strategy in chosen if (scored or not strategy.uses_scores)]


def _check_named(
    strategies: Sequence[str | BaggingStrategy], *, modelled: bool
) -> tuple[BaggingStrategy, ...]:
    """Return the strategies that were named, if all are possible.

    `modelled` says whether there can be a private model for those that need one.
    """
    named = [strategies] if isinstance(strategies, str) else list(strategies)
    if not named:
        raise StrategyError("name at least one strategy, or leave strategies out for all.")
    wanted = tuple(find_strategy(strategy) for strategy in named)
    for strategy in wanted:
        if strategy.keeps_groups:
            raise StrategyError(
                f"strategy {strategy.name!r} takes bags that are given, and the planner has none: "
                "release with by= (--by), or name other strategies."
            )
        if strategy.uses_scores and not modelled:
            need = "takes what matters from" if measures_by_scores(strategy) else "sorts rows by"
            raise StrategyError(
                f"strategy {strategy.name!r} {need} a private model: give an epsilon and a label "
                "that is a number, or name other strategies."
            )
    return wanted
