"""Labels that were bought: of which rows, from which bags, for how many rows each stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.data.whitening import Columns
from bagwise.families import Family

NO_BAG = -1


@dataclass(frozen=True)
class Bought:
    """All rows, and the labels of some.

    Attributes
    ----------
    X : (n, d)
        All rows of the table.
    rows : (m,) integers
        Those with a label.
    labels : (m,) floats, or (m,) numbers of classes
    family : Family
    n_classes : int
        0 for labels that are numbers.
    rounds : (m,) integers
        In which round each label was bought, from 0.
    bags : sequence of Bags or None
        The bags of each round; None where rows were chosen one by one.
    weights : (m,)
        Rows of the table that each label stands for.
    """

    X: FloatArray
    rows: IntArray
    labels: AnyArray
    family: Family
    rounds: IntArray
    bags: Sequence[Bags | None]
    weights: FloatArray
    n_classes: int = 0

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return self.rows.size

    @property
    def has_bags(self) -> bool:
        """Whether every label was bought for a bag."""
        return bool(np.all(self.bag_of != NO_BAG))

    @cached_property
    def bag_of(self) -> IntArray:
        """The bag of each label, counted through all rounds; -1 for those without one."""
        found = np.full(self.rows.size, NO_BAG, dtype=np.int64)
        first = 0
        for number, bags in enumerate(self.bags):
            if bags is not None:
                here = self.rounds == number
                found[here] = first + bags.index[self.rows[here]]
                first += bags.n_bags
        return found

    @cached_property
    def columns(self) -> Columns:
        """The columns of all rows: their means and their covariance are known exactly."""
        return Columns(self.X)

    @cached_property
    def white(self) -> FloatArray:
        """All rows in white coordinates."""
        return self.columns.white_rows()

    @cached_property
    def _centroids(self) -> FloatArray:
        parts = [bags.mean(self.X) for bags in self.bags if bags is not None]
        return np.concatenate(parts)

    def centroids(self, which: IntArray) -> FloatArray:
        """Return the mean row of the bag of some of the labels, (len(which), d)."""
        return np.asarray(self._centroids[self.bag_of[which]])

    def members(self, bags: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows of some bags, one after the other, and which of these each is in."""
        order, starts = self._members
        sizes = starts[bags + 1] - starts[bags]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return order[np.repeat(starts[bags], sizes) + inside], np.repeat(
            np.arange(bags.size), sizes
        )

    @cached_property
    def _members(self) -> tuple[IntArray, IntArray]:
        orders, sizes = [], []
        for bags in self.bags:
            if bags is not None:
                inside = np.flatnonzero(bags.in_bag)
                orders.append(inside[np.argsort(bags.index[inside], kind="stable")])
                sizes.append(bags.sizes)
        starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return np.concatenate(orders), starts

    def outcomes(self, which: IntArray) -> FloatArray:
        """Return labels as families take them: numbers, or (m, classes) marks."""
        if not self.n_classes:
            return np.asarray(self.labels[which], dtype=np.float64)
        return np.eye(self.n_classes)[self.labels[which]]

    def mean_label(self, which: IntArray) -> Any:
        """Return the mean label, each counting for the rows that it stands for."""
        return np.average(self.outcomes(which), axis=0, weights=self.weights[which])
