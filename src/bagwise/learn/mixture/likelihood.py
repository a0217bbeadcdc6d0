"""Rows in the order of their bags, and the likelihood of labels picked from them.

The label of a bag is that of one of its rows, chosen uniformly: a mixture with one component for
each row. Which row it was is known only by its probability, the responsibility of the row.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy import sparse

from bagwise._types import FloatArray, IntArray
from bagwise.learn.bag_data import BagData


def e_step(log_density: FloatArray, ends: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return each row's probability to be the pick, (n,), and each bag's log-likelihood, (m,).

    Examples
    --------
    >>> e_step(np.log([0.1, 0.3, 0.5]), np.array([0, 2, 3]))[0]
    array([0.25, 0.75, 1.  ])
    """
    first, sizes = ends[:-1], np.diff(ends)
    peak = np.maximum.reduceat(log_density, first)
    weight = np.exp(log_density - np.repeat(peak, sizes))
    total = np.add.reduceat(weight, first)
    return weight / np.repeat(total, sizes), peak + np.log(total / sizes)


@dataclass(frozen=True)
class PickedBags:
    """Bags that count, and their rows one bag after the other: sums over a bag are over a slice.

    Attributes
    ----------
    X : (n, d)
    ends : (m + 1,)
        Bag l is ``X[ends[l]:ends[l + 1]]``.
    labels, noise_sd, weight : (m,)
        A bag of weight 2 counts as two bags.
    """

    X: FloatArray
    ends: IntArray
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, data: BagData) -> Self:
        """Order the rows, and leave out bags of weight zero."""
        used = data.weight > 0
        order = np.argsort(data.bags.index, kind="stable")
        index = data.bags.index[order]
        rows = order[(index >= 0) & used[index]]
        ends = np.concatenate([[0], np.cumsum(data.bags.sizes[used])])
        return cls(data.X[rows], ends, data.labels[used], data.noise_sd[used], data.weight[used])

    @cached_property
    def sizes(self) -> IntArray:
        """Rows in each bag."""
        return np.diff(self.ends)

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return float(self.weight.sum())

    @cached_property
    def row_weight(self) -> FloatArray:
        """The weight of each row's bag."""
        return self.repeat(self.weight)

    @cached_property
    def chance(self) -> FloatArray:
        """How likely each row is, before the labels are seen, to be a pick; adds up to 1."""
        return self.repeat(self.weight / (self.sizes * self.total))

    def repeat(self, bag_values: FloatArray) -> FloatArray:
        """Give each row its bag's value."""
        return np.repeat(bag_values, self.sizes)

    def sum(self, values: FloatArray) -> FloatArray:
        """Add up the values of the rows of each bag, (m,)."""
        return np.asarray(np.add.reduceat(values, self.ends[:-1]))

    def weighted_sum(self, weight: FloatArray, rows: FloatArray) -> FloatArray:
        """Add up the weighted rows of each bag, (m, p)."""
        n = weight.size
        chosen = sparse.csr_array((weight, np.arange(n), self.ends), shape=(len(self.labels), n))
        return np.asarray(chosen @ rows)


@dataclass(frozen=True)
class Maximum:
    """Where a climb ended, and what is needed to say how sure it is.

    Attributes
    ----------
    estimates : (d + 1,)
        Coefficients and, last, the intercept.
    phi : float
    scores : (m, p) or (m, p + 1)
        Gradient of each bag's log-likelihood in theta (see `Whitening`) and, where it is unknown,
        in the logarithm of the scale.
    gradient : float
        Length of the gradient of the mean log-likelihood.
    converged : bool
    collapsed : bool
        Whether the labels are met without error, so that the likelihood has no bound.
    by_chance : bool
        Whether this is one of several maxima, and no higher than shuffled labels would give.
    """

    estimates: FloatArray
    phi: float
    scores: FloatArray
    gradient: float
    converged: bool
    collapsed: bool
    by_chance: bool = False
