"""What a plan is asked for, checked once; there is no place in it for a label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from bagwise.bagging import BaggingStrategy, find_strategy
from bagwise.cluster.search import EffortName
from bagwise.errors import BagTooSmallError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.planner.candidates import planned
from bagwise.planner.prior import Prior, read_prior
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.release.request import Budget

BAG_SIZES = (10, 50, 200, 500)


@dataclass(frozen=True)
class PlanRequest:
    """What to rank, and what is believed of the labels.

    Attributes
    ----------
    rule : ExactCalibration or None
        For the noise; None when not private.
    bag_sizes : tuple of int
        Sizes to consider, the smallest first.
    strategies : tuple of BaggingStrategy
        Those to consider; one that sorts does so by a private model.
    """

    budget: Budget
    rule: ExactCalibration | None
    family: Family
    prior: Prior
    bag_sizes: tuple[int, ...]
    strategies: tuple[BaggingStrategy, ...]
    effort: str

    @classmethod
    def of(
        cls,
        budget: Budget,
        *,
        family: str = "gaussian",
        prior: Any = None,
        bag_sizes: Sequence[int] | None = None,
        min_bag_size: int | None = None,
        strategies: Sequence[str | BaggingStrategy] | None = None,
        effort: str = "default",
    ) -> Self:
        """Check what a user asks for, as far as it can be told without the features."""
        fitted, limits, rule = find_family(family), budget.bounds, budget.calibration
        check_name("effort", effort, get_args(EffortName))
        if fitted.has_classes:
            raise StrategyError("classes are planned one at a time: family='bernoulli'.")
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {family} do not have these bounds.")
        if rule is not None and not isinstance(rule, ExactCalibration):
            raise StrategyError("plans are for the exact rule for noise only.")
        return cls(
            budget=budget,
            # What finding the bounds has spent is gone before the release begins.
            rule=None if rule is None else replace(rule, epsilon=rule.left, prior=()),
            family=fitted,
            prior=read_prior(prior, limits, fitted),
            bag_sizes=_check_sizes(bag_sizes, min_bag_size),
            strategies=_wanted(strategies, scored=rule is not None and rule.delta > 0),
            effort=effort,
        )

    def sizes_for(self, n_rows: int) -> list[int]:
        """Return the sizes that leave two bags."""
        usable = [size for size in self.bag_sizes if size <= n_rows // 2]
        if not usable:
            raise BagTooSmallError(
                f"{n_rows} rows do not fill two bags of {self.bag_sizes[0]}. "
                "Name a smaller bag size."
            )
        return usable


def _wanted(
    strategies: Sequence[str | BaggingStrategy] | None, *, scored: bool
) -> tuple[BaggingStrategy, ...]:
    """Return the strategies to try; what was named must be possible."""
    if strategies is None:
        return tuple(planned(scored=scored))
    named = [strategies] if isinstance(strategies, str) else list(strategies)
    if not named:
        raise StrategyError("name at least one strategy, or leave strategies out for all.")
    wanted = tuple(find_strategy(strategy) for strategy in named)
    for strategy in wanted:
        if strategy.uses_scores and not scored:
            raise StrategyError(
                f"strategy {strategy.name!r} sorts rows, and the planner knows of no scores but a "
                "private model's: give epsilon and a positive delta, or name other strategies."
            )
    return wanted


def _check_sizes(sizes: Sequence[int] | None, least: int | None) -> tuple[int, ...]:
    chosen = {int(size) for size in (sizes or BAG_SIZES)}
    if min(chosen) < 1 or (least is not None and least < 1):
        raise BagTooSmallError("bag sizes are whole numbers of at least 1.")
    return tuple(sorted({max(size, int(least or 1)) for size in chosen}))
