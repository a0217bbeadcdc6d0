"""What public columns say about bags: which rows stay together, and which never meet."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.bagging.strategy import BaggingStrategy
from bagwise.errors import BagTooSmallError


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

    def check_size(self, bag_size: int) -> None:
        """Refuse bags that would have to cross a stratum; numbers of rows are public."""
        check_strata(self.smallest_stratum, bag_size)


def check_strata(smallest: int | None, bag_size: int) -> None:
    """Refuse bags that are larger than the smallest stratum, if there are strata."""
    if smallest is not None and smallest < bag_size:
        raise BagTooSmallError(
            f"the smallest stratum has {smallest} rows and cannot fill one bag of {bag_size}. "
            "Use a smaller bag_size, join strata that are alike, or leave those rows out."
        )


NOTHING_GIVEN = Given()


def assign_given(
    strategy: BaggingStrategy,
    X: Any,
    scores: FloatArray | None,
    given: Given,
    *,
    bag_size: int,
    rng: np.random.Generator,
) -> Bags:
    """Run a strategy in each stratum, with the groups if it takes some."""
    if given.strata is None:
        return _assign(strategy, X, scores, given.groups, bag_size, rng)
    given.check_size(bag_size)
    index, bags = np.full(X.shape[0], LEFT_OUT, dtype=np.int64), 0
    for rows in rows_by_number(given.strata):
        part = _assign(
            strategy,
            X[rows] if strategy.needs_features else np.empty((rows.size, 0)),
            None if scores is None else scores[rows],
            None if given.groups is None else given.groups[rows],
            bag_size,
            rng,
        )
        index[rows] = np.where(part.in_bag, part.index + bags, LEFT_OUT)
        bags += part.n_bags
    return Bags(index)


def rows_by_number(numbers: IntArray) -> list[IntArray]:
    """Return the rows of each number, in their order.

    >>> [rows.tolist() for rows in rows_by_number(np.array([7, 2, 7]))]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order])) + 1
    return np.split(order, starts)


def _assign(
    strategy: BaggingStrategy,
    X: Any,
    scores: FloatArray | None,
    groups: IntArray | None,
    bag_size: int,
    rng: np.random.Generator,
) -> Bags:
    if groups is None:
        return strategy.assign(X, scores, bag_size=bag_size, rng=rng)
    return strategy.assign_groups(X, groups, bag_size=bag_size, rng=rng)
