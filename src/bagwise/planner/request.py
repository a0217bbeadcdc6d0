"""What a plan is asked for, checked once; there is no place in it for a label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from bagwise.bagging import STRATEGIES, BaggingStrategy, assign_bags, find_strategy, traits_of
from bagwise.cluster.search import EffortName
from bagwise.errors import MissingExtraError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.planner.candidates import LABEL_KINDS
from bagwise.planner.prior import Prior, read_prior
from bagwise.planner.sizes import check_sizes
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.release.request import Budget

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
        free_sizes: bool = True,
        label_kinds: tuple[LabelKind, ...] = LABEL_KINDS,
        effort: str = "fast",
    ) -> Self:
        """Check what a user asks for, as far as it can be told without the features.

        Where nobody names strategies, `scored` and `free_sizes` say whether those are tried that
        sort, and those that make bags as large as they like.
        """
        fitted, rule = resolve_family(family, classes), budget.calibration
        check_name("effort", effort, get_args(EffortName))
        limits = None if classes is not None else budget.bounds
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        if rule is not None and not isinstance(rule, ExactCalibration):
            raise StrategyError("plans are for the exact rule for noise only.")
        sortable = rule is not None and rule.delta > 0 and classes is None
        sizes, least = check_sizes(bag_sizes, min_bag_size)
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
                tuple(planned(scored=scored and sortable, free_sizes=free_sizes))
                if strategies is None
                else _check_named(strategies, sortable=sortable)
            ),
            are_named=strategies is not None,
            label_kinds=label_kinds,
            effort=effort,
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


def planned(*, scored: bool = True, free_sizes: bool = True) -> list[BaggingStrategy]:
    """Return the registered strategies that are tried unasked and have what they need here.

    `scored` says whether those that read scores belong to them, `free_sizes` whether those whose
    bags are as large as they like.
    """
    chosen = [find_strategy(name) for name, kind in STRATEGIES.items() if traits_of(kind).planned]
    return [
        strategy
        for strategy in chosen
        if (scored or not strategy.uses_scores)
        and (free_sizes or not traits_of(strategy).free_sizes)
        and _runs_here(strategy)
    ]


def _runs_here(strategy: BaggingStrategy) -> bool:
    """Try it: an optional part may be missing."""
    rows = np.arange(8.0)[:, None]
    try:
        assign_bags(strategy, rows, rows[:, 0], bag_size=2, rng=np.random.default_rng(0))
    except MissingExtraError:
        return False
    return True


def _check_named(
    strategies: Sequence[str | BaggingStrategy], *, sortable: bool
) -> tuple[BaggingStrategy, ...]:
    """Return the strategies that were named, if all are possible."""
    named = [strategies] if isinstance(strategies, str) else list(strategies)
    if not named:
        raise StrategyError("name at least one strategy, or leave strategies out for all.")
    wanted = tuple(find_strategy(strategy) for strategy in named)
    for strategy in wanted:
        if strategy.uses_scores and not sortable:
            raise StrategyError(
                f"strategy {strategy.name!r} sorts rows, and the planner knows of no scores but a "
                "private model's: give epsilon and a positive delta, or name other strategies."
            )
    return wanted
