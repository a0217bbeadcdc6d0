"""Run a strategy on a checked request, with groups or within strata."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from bagwise._types import IntArray
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.bagging.strategy import BaggingStrategy, Scores, measures_by_scores
from bagwise.errors import BagTooSmallError, StrategyError


@dataclass(frozen=True, eq=False)
class Given:
    """Groups and strata of rows.

    Attributes
    ----------
    groups : (n,) integers or None
        Rows with the same number share a bag.
    strata : (n,) integers or None
        Rows with different numbers never do. They come first: a group that is in two strata is
        taken for two groups.
    """

    groups: IntArray | None = None
    strata: IntArray | None = None

    def take(self, rows: IntArray) -> Self:
        """Reorder or select rows."""
        groups, strata = self.groups, self.strata
        return type(self)(
            None if groups is None else groups[rows], None if strata is None else strata[rows]
        )

    @property
    def smallest_stratum(self) -> int | None:
        """Rows of the stratum with the fewest; None without strata."""
        if self.strata is None:
            return None
        return int(np.unique(self.strata, return_counts=True)[1].min())


def check_strata(smallest: int | None, bag_size: int) -> None:
    """Refuse bags that are larger than the smallest stratum, if there are strata."""
    if smallest is not None and smallest < bag_size:
        raise BagTooSmallError(
            f"the smallest stratum has {smallest} rows and cannot fill one bag of {bag_size}. "
            "Use a smaller bag_size, join strata that are alike, or leave those rows out."
        )


NOTHING_GIVEN = Given()


def assign_bags(
    strategy: BaggingStrategy, X: Any, scores: Scores, *, bag_size: int, rng: Generator,
    given: Given = NOTHING_GIVEN,
) -> Bags:  # fmt: skip
    """Check the request, run the strategy in each stratum, and verify its result."""
    n_rows = X.shape[0]
    # 1. Check what is asked for.
    check_bag_size(bag_size, n_rows=n_rows)
    check_strata(given.smallest_stratum, bag_size)
    if strategy.uses_scores:
        scores = _check_scores(strategy, scores, n_rows)
    # 2. Run the strategy, in one stratum after the other.
    if given.strata is None:
        bags = _assign(strategy, X, scores, given.groups, bag_size, rng)
    else:
        index, n_bags = np.full(n_rows, LEFT_OUT, dtype=np.int64), 0
        for rows in rows_by_number(given.strata):
            some = X[rows] if strategy.needs_features else np.empty((rows.size, 0))
            part_scores = None if scores is None else scores[rows]
            groups = None if given.groups is None else given.groups[rows]
            part = _assign(strategy, some, part_scores, groups, bag_size, rng)
            index[rows] = np.where(part.in_bag, part.index + n_bags, LEFT_OUT)
            n_bags += part.n_bags
        bags = Bags(index)
    # 3. Bags that are too small would reveal more than was promised.
    if bags.n_rows != n_rows or bags.sizes.min() < bag_size:
        raise StrategyError(
            f"strategy {strategy.name!r} broke its contract: {bags} for {n_rows} rows and "
            f"bag_size {bag_size}. This is a fault of the strategy, not of your data."
        )
    return bags


def _assign(
    strategy: BaggingStrategy, X: Any, scores: Scores, groups: IntArray | None, bag_size: int,
    rng: Generator,
) -> Bags:  # fmt: skip
    if groups is None:
        return strategy.assign(X, scores, bag_size=bag_size, rng=rng)
    return strategy.assign_groups(X, groups, bag_size=bag_size, rng=rng)


def _check_scores(strategy: BaggingStrategy, scores: Scores, n_rows: int) -> Scores:
    """Return finite scores, one per row, or report what is wrong with them."""
    if scores is None:
        setting = " with scale='model'" if measures_by_scores(strategy) else ""
        raise StrategyError(
            f"strategy {strategy.name!r}{setting} needs scores. Pass scores, one per row, or use a "
            "strategy that reads only features, such as 'random'."
        )
    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape != (n_rows,):
        raise StrategyError(f"scores must be one per row ({n_rows}), got shape {scores.shape}.")
    if not np.isfinite(scores).all():
        raise StrategyError("scores hold NaN or infinite values.")
    return scores


def rows_by_number(numbers: IntArray) -> list[IntArray]:
    """Return the rows that have each number, in their order.

    >>> [rows.tolist() for rows in rows_by_number(np.array([7, 2, 7]))]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order])) + 1
    return np.split(order, starts)


def check_bag_size(bag_size: int, *, n_rows: int) -> None:
    """Refuse a bag size that is not a whole number between 1 and the number of rows."""
    if isinstance(bag_size, bool) or not isinstance(bag_size, int | np.integer):
        raise BagTooSmallError(f"bag_size must be a whole number, got {bag_size!r}.")
    if bag_size < 1:
        raise BagTooSmallError(f"bag_size must be at least 1, got {bag_size}.")
    if n_rows < bag_size:
        raise BagTooSmallError(
            f"{n_rows} rows cannot fill one bag of {bag_size}. Use a smaller bag_size or more rows."
        )
