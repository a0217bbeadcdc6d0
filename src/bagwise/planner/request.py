"""The checked request and prior of a plan, and the bag sizes to try.

There is no place in it for a label. What cannot be known from features is a stated prior: the
signal, the noise of labels, and the misfit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np

from bagwise.bagging import STRATEGIES, BaggingStrategy, find_strategy
from bagwise.cluster.state import EffortName
from bagwise.errors import BagTooSmallError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.noise import LabelKind
from bagwise.requests.budget import Budget
from bagwise.requests.provenance import prior_text
from bagwise.requests.verbs import SMALLEST, Learner, check_learner
from bagwise.rows.labels import Bounds
from bagwise.theory.beliefs import DEFAULT_MISFIT

AUTO: Literal["auto"] = "auto"
LABEL_KINDS: tuple[LabelKind, ...] = ("mean", "pick")

BAGS_PER_COEFFICIENT = 3
"""Fewer bags than so many per coefficient leave hardly anything to tell the errors of a fit by."""

FEWEST_BAGS = 10
"""So many are left to learn anything from, where intervals are given up."""


FEW_BAGS = 0.05
"""What few bags cost beyond the exact errors, a share of the signal's variance for each coefficient
per bag. The errors suppose that the fit knows how strong slopes and noise are, and that a misfit is
the same everywhere. Real fits have to find out, and real misfits are often in a few bags that lie
far out. Neighbouring bag sizes of 88 public tables differ in what a model keeps as if it were 0.05
at epsilon 0.5, 0.09 at 1 and more at 4, and sizes chosen with 0.02 to 0.1 keep about as much as
those with 0.05."""
_SPREAD = 8.0  # ranges in standard deviations of a label: its bounds are rarely reached


@dataclass(frozen=True)
class Prior:
    """A stated belief about the labels, in their units; never taken from them.

    Attributes
    ----------
    signal_sd : float
        Standard deviation of the expected labels over the rows, as far as they are linear.
    label_noise_sd : float
        Standard deviation of a label around its expectation.
    factor : float
        How far each may be off: plans are judged at these ends too.
    misfit : float
        Variance of the part of the expected labels that is not linear in the features, as a share
        of that of the linear part.
    few_bags : float
        What few bags cost besides, as a share of the signal's variance for each coefficient per
        bag; 0 where a private model has told what labels are like.

    Examples
    --------
    >>> Prior(signal_sd=2.0, label_noise_sd=1.0).scenarios()["weak signal"]
    Prior(signal_sd=0.6666666666666666, label_noise_sd=1.0, factor=3.0, misfit=0.05)
    """

    signal_sd: float
    label_noise_sd: float
    factor: float = 3.0
    misfit: float = DEFAULT_MISFIT
    few_bags: float = field(default=FEW_BAGS, repr=False)

    def __post_init__(self) -> None:
        for name in ("signal_sd", "label_noise_sd", "misfit", "few_bags"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise StrategyError(f"{name} of a prior must be finite and not negative.")
        if self.signal_sd == 0 and self.label_noise_sd == 0:
            raise StrategyError("a prior without signal and without noise leaves nothing to plan.")
        if not 1 <= self.factor < math.inf:
            raise StrategyError(f"factor of a prior must be at least 1, got {self.factor!r}.")

    def scenarios(self) -> dict[str, "Prior"]:
        """Return the belief and its ends.

        A signal is weak or strong beside the noise of labels. Labels have bounds, so neither may
        grow: a weak signal is less of a signal, and a strong one has less noise beside it.
        """
        by = self.factor
        return {
            "as stated": self,
            "weak signal": replace(self, signal_sd=self.signal_sd / by),
            "strong signal": replace(self, label_noise_sd=self.label_noise_sd / by),
            "no misfit": replace(self, misfit=0.0),
            "large misfit": replace(self, misfit=self.misfit * by),
        }

    def text(self) -> str:
        """Return the belief in words."""
        return prior_text(self.signal_sd, self.label_noise_sd, self.factor, self.misfit)


def read_prior(
    prior: Any, bounds: Bounds | None, family: Family, *, classes: int | None = None
) -> Prior:
    """Return a prior as given, or one that the bounds and the family suggest.

    A label's standard deviation is taken to be an eighth of its range, half of its variance being
    signal. Without bounds everything is in units of a label's standard deviation. Families without
    a free dispersion know their noise from the mean, taken to be in the middle of the bounds. For
    classes it is the belief about the indicator of each, all being equally frequent; the signal is
    as strong beside the noise as with two of them.
    """
    if isinstance(prior, Prior):
        return prior
    if prior is not None:
        if isinstance(prior, str) or not hasattr(prior, "__len__") or len(prior) not in (2, 3):
            raise StrategyError(
                "prior is a Prior, or (signal_sd, label_noise_sd), or these and the misfit."
            )
        misfit = float(prior[2]) if len(prior) == 3 else DEFAULT_MISFIT
        return Prior(float(prior[0]), float(prior[1]), misfit=misfit)
    if classes is not None:
        noise = math.sqrt(1 / classes * (1 - 1 / classes))
        return Prior(noise * 2 / _SPREAD / math.sqrt(2), noise)
    label_sd = 1.0 if bounds is None else (bounds[1] - bounds[0]) / _SPREAD
    noise = label_sd / math.sqrt(2)
    if family.knows_dispersion and bounds is not None:
        middle = family.interior((bounds[0] + bounds[1]) / 2)
        eta = family.predictor(np.array(middle))
        noise = math.sqrt(float(family.variance(eta)))
    return Prior(label_sd / math.sqrt(2), noise)


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
        Those to consider.
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
        label_kinds: tuple[LabelKind, ...] = LABEL_KINDS,
        effort: str = "fast",
        max_bag_size: int | None = None,
        single_labels: bool = False,
        learner: str = "linear",
    ) -> Self:
        """Check what a user asks for, as far as it can be told without the features."""
        fitted, rule = resolve_family(family, classes), budget.calibration
        check_name("effort", effort, get_args(EffortName))
        limits = None if classes is not None else budget.bounds
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        if single_labels and (rule is None or classes is not None):
            raise StrategyError("single labels are planned for numbers under an epsilon only.")
        modelled = rule is not None and classes is None
        reader = check_learner(learner)
        if reader == "flexible" and (strategies is not None or single_labels):
            raise StrategyError(
                "strategies and single labels are ranked for linear learners: leave them out "
                "with learner='flexible'."
            )
        chosen: tuple[BaggingStrategy, ...] = ()  # for flexible learners the features say which
        if strategies is not None:
            chosen = _check_named(strategies, modelled=modelled)
        elif reader == "linear":
            chosen = tuple(find_strategy(name) for name, kind in STRATEGIES.items() if kind.planned)
        sizes, least = {int(size) for size in bag_sizes or ()}, min_bag_size
        if min(sizes, default=1) < 1 or (least is not None and least < 1):
            raise BagTooSmallError("bag sizes are whole numbers of at least 1.")
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
            bag_sizes=tuple(sorted({max(size, int(least or 1)) for size in sizes})),
            min_bag_size=SMALLEST if least is None else int(least),
            strategies=chosen,
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
        if strategy.uses_scores and not strategy.compact:
            raise StrategyError(
                f"strategy {strategy.name!r} sorts rows by what is found out about their labels, "
                "and the planner ranks bags that follow features: name a bag size (bag_size, "
                "--bag-size), hundreds of rows under an epsilon, or other strategies."
            )
        if strategy.uses_scores and not modelled:
            raise StrategyError(
                f"strategy {strategy.name!r} takes what matters from a private model: give an "
                "epsilon and a label that is a number, or name other strategies."
            )
    return wanted


def grid(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return sizes from `least` on, each about twice the one before, as far as intervals allow.

    The best size falls as epsilon grows, over two orders of magnitude; between neighbours on this
    grid the error hardly differs.

    >>> grid(n_rows=50_000, coefficients=33, least=10)
    [10, 20, 50, 100, 200, 500]
    >>> grid(n_rows=50_000, coefficients=33, least=60)
    [60, 100, 200, 500]
    """
    return powers(n_rows // (BAGS_PER_COEFFICIENT * coefficients), least)


def without_intervals(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return the sizes beyond that grid, as far as any bags are left.

    >>> without_intervals(n_rows=50_000, coefficients=33, least=10)
    [1000, 2000, 5000]
    """
    sizes = grid(n_rows=n_rows, coefficients=coefficients, least=least)
    return [size for size in powers(n_rows // FEWEST_BAGS, least) if size > sizes[-1]]


def powers(most: int, least: int) -> list[int]:
    """Return `least`, and 10, 20, 50, 100 and so on between it and `most`."""
    sizes, decade = {least}, 10
    while decade <= most:
        sizes |= {size for size in (decade, 2 * decade, 5 * decade) if least < size <= most}
        decade *= 10
    return sorted(sizes)


def usable(sizes: Sequence[int], *, n_rows: int, most: int | None = None) -> list[int]:
    """Return the sizes that leave two bags, up to `most`."""
    limit = n_rows // 2 if most is None else min(most, n_rows // 2)
    kept = [size for size in sizes if size <= limit]
    if not kept:
        raise BagTooSmallError(
            f"{n_rows} rows do not fill two bags of {min(sizes)}, or a stratum none. Name a "
            "smaller bag size."
        )
    return kept
