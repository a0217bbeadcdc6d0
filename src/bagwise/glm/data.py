"""Rows in bags with the labels of the bags: all of them, or one part of the bags."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from scipy import sparse

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.rows.whitening import Axes, Moments


@dataclass(frozen=True)
class Members:
    """Which rows the label of each unit is the mean of: a public map, row by row adding up to 1.

    Bags are a partition; in general units may share rows, and rows count differently.

    Attributes
    ----------
    average : sparse (m, n)
        ``average @ values`` are the means of the units.
    """

    average: sparse.csr_array

    @classmethod
    def of(cls, bags: Bags, counts: FloatArray | None = None) -> Self:
        """Average over the rows of each bag, each as often as it counts."""
        order = np.argsort(bags.index, kind="stable")
        starts = np.concatenate([[0], np.cumsum(bags.sizes)])
        share = np.repeat(1 / bags.sizes, bags.sizes)
        if counts is not None:
            share = (counts / bags.repeat(bags.sum(counts)))[order]
        return cls(sparse.csr_array((share, order, starts), shape=(bags.n_bags, order.size)))

    @cached_property
    def unit(self) -> IntArray:
        """The unit of each entry of the map."""
        counts = np.diff(self.average.indptr)
        return np.repeat(np.arange(counts.size, dtype=np.int64), counts)

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean of values, (n, …), over the rows of each unit."""
        flat = self.average @ values.reshape(len(values), -1)
        return np.asarray(flat).reshape(-1, *values.shape[1:])

    def variance(self, values: FloatArray) -> FloatArray:
        """Return the variance of values, (n,), inside each unit."""
        off = values[self.average.indices] - self.mean(values)[self.unit]
        added = np.bincount(self.unit, self.average.data * off**2, self.average.shape[0])
        return np.asarray(added, dtype=np.float64)

    def repeat(self, values: FloatArray) -> FloatArray:
        """Return the value of each row's unit; of several units that of the last."""
        out = np.zeros((self.average.shape[1], *values.shape[1:]))
        out[self.average.indices] = values[self.unit]
        return out


@dataclass(frozen=True)
class BagData:
    """The data that every loss is computed from.

    Attributes
    ----------
    X : (n, d)
    bags : Bags over the n rows
    labels : (m,) or (m, classes)
    noise_sd : (m,)
        Known standard deviation of the privacy noise on each bag's label; 0 where there is none.
    weight : (m,)
        Sample weight of each bag: the mean of its rows' weights.
    row_weight : (n,) or None
        Sample weights of single rows, where they may differ inside a bag.
    offset : (n,) or None
        What is known of each row's linear predictor.
    counts : (n,) or None
        How many rows each row stands for; None where that is one.
    axes : Axes or None
        The directions in which rows differ, where X is not all of them.
    first : int
        The number of the first bag, where these are some of many.
    parts, moments : OverParts, Moments or None
        The rows, where they are on many machines and X has none, and their moments.
    """

    X: FloatArray
    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray
    row_weight: FloatArray | None = None
    offset: FloatArray | None = None
    counts: FloatArray | None = None
    axes: Axes | None = None
    first: int = 0
    parts: "OverParts | None" = None
    moments: Moments | None = None

    @property
    def single_rows(self) -> bool:
        """Whether every bag is one row, in the order of the rows."""
        return self.bags.n_bags == self.bags.n_rows

    @property
    def sizes(self) -> FloatArray:
        """How many rows each bag stands for."""
        if self.counts is None:
            return self.bags.sizes.astype(np.float64)
        return np.asarray(self.bags.sum(self.counts))

    @property
    def row_weights(self) -> FloatArray:
        """Weight of each row: that of its bag times the number of rows it stands for."""
        weight = np.asarray(self.bags.repeat(self.weight), dtype=np.float64)
        return weight if self.counts is None else weight * self.counts

    @property
    def exposure(self) -> FloatArray:
        """The factor of each row's rate, under a logarithmic link."""
        return np.ones(len(self.X)) if self.offset is None else np.exp(self.offset)

    @property
    def members(self) -> Members:
        """The map from rows to the means of bags."""
        return Members.of(self.bags, self.counts)

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of values, (n, …), in each bag."""
        return self.bags.mean(values) if self.counts is None else self.members.mean(values)

    def over(self, work: Callable[["BagData"], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """Return the result of `work` on the rows, part by part; rows in memory are one part."""
        return work(self) if self.parts is None else self.parts(work, merge)


OverParts = Callable[[Callable[[BagData], Any], Callable[[Any, Any], Any]], Any]
"""A map over parts of whole bags; what it makes of them is merged. Work is pickled on its way."""


def held_here(over: OverParts) -> OverParts:
    """Bring all parts to this process, for many steps over little data."""
    parts: list[BagData] = over(lambda part: [part], lambda one, other: one + other)
    return lambda work, merge: reduce(merge, map(work, parts))
