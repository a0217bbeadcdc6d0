"""Bags that are existing groups: the rows of a campaign, a hospital, a census block."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging._cut import cut_apart
from bagwise.bagging.bags import Bags
from bagwise.bagging.strategy import BaggingStrategy, Scores
from bagwise.cluster.metric import Scale, make_points

CELL = 1024
"""Groups that are compared with each other; more are divided first, since pairs grow as squares."""

_SAME = 1e-9  # relative: costs that differ by less are equal, and the smaller group is taken


@dataclass(frozen=True)
class GroupBags(BaggingStrategy):
    """Take groups of rows as they are, and merge those that are too small with their neighbours.

    Parameters
    ----------
    scale : {"whiten", "std", "none"}
        What "near" means for the mean features of two groups; see `KMeansBags`.

    Notes
    -----
    A group is never split, however large it is, and two groups of at least `bag_size` rows are
    never merged. Without groups every row is one by itself.

    Guarantee
    ---------
    Membership depends on the groups and the features, which are public, and on nothing
    else.

    References
    ----------
    Mergers by the criterion of Ward (1963). Bags by group are those of the literature on learning
    from label proportions; others drop groups that are small (Brahmbhatt et al. 2023, LLP-Bench).
    """

    name: ClassVar[str] = "groups"
    summary: ClassVar[str] = "existing groups, small ones merged"
    planned: ClassVar[bool] = False  # the planner has no groups
    free_sizes: ClassVar[bool] = True
    accepts_sparse: ClassVar[bool] = True

    scale: Scale = "whiten"

    def __post_init__(self) -> None:
        self.check_choices(scale=Scale)

    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Merge single rows with their neighbours."""
        del scores  # features alone
        return self.assign_groups(X, np.arange(X.shape[0]), bag_size=bag_size, rng=rng)

    def assign_groups(
        self, X: AnyArray, groups: IntArray, *, bag_size: int, rng: Generator
    ) -> Bags:
        """Make a bag of each group that is large enough, and merge the others."""
        index = np.unique(groups, return_inverse=True)[1]
        sizes = np.bincount(index)
        if sizes.min() < bag_size:
            centres = np.zeros((sizes.size, 1))
            if X.shape[1] > 0:
                order = rng.permutation(index.size)  # places must not show, not even in rounding
                points = make_points(X, self.scale, rng, order=order)
                centres = Bags(index[order]).mean(points)
            index = merge_small(centres, sizes, bag_size, rng)[index]
        return Bags.from_labels(index)


def merge_small(centres: FloatArray, sizes: IntArray, bag_size: int, rng: Generator) -> IntArray:
    """Return the bag of each group, so that every bag has `bag_size` rows or is the only one.

    The smallest group is merged with the one that makes the bags least less compact: by Ward's
    criterion, the squared distance of their centres times ``a b / (a + b)`` for sizes a and b. Each
    merger has a part that is too small, so no two groups that are large enough come together.

    References
    ----------
    Ward (1963), Hierarchical grouping to optimize an objective function.

    >>> centres = np.array([[0.0], [1.0], [9.0], [8.0]])
    >>> merge_small(centres, np.array([2, 2, 3, 7]), 4, np.random.default_rng(0)).tolist()
    [0, 0, 1, 1]
    """
    bag = np.arange(sizes.size)
    while sizes.size > 1 and sizes.min() < bag_size:
        # Merge within cells of neighbours; a cell with too few rows becomes one group. Ties go to
        # whoever comes first, and the first groups may be those of the first rows.
        joined = np.empty(sizes.size, dtype=np.int64)
        groups = rng.permutation(sizes.size)
        starts = np.linspace(0, sizes.size, 1 + -(-sizes.size // CELL)).astype(np.int64)
        groups = groups[cut_apart(centres[groups], starts)]
        for cell in np.split(groups, starts[1:-1]):
            joined[cell] = cell[_merge_cell(centres[cell].copy(), sizes[cell].copy(), bag_size)]
        merged = np.unique(joined, return_inverse=True)[1].astype(np.int64)
        total = np.bincount(merged, weights=sizes)
        sums = np.zeros((total.size, centres.shape[1]))
        np.add.at(sums, merged, centres * sizes[:, None])
        centres, sizes = sums / total[:, None], np.rint(total).astype(np.int64)
        bag = merged[bag]
    return bag


def _merge_cell(centres: FloatArray, sizes: IntArray, bag_size: int) -> IntArray:
    """Return, for each group of a cell, the group into which it was merged."""
    into, left = np.arange(sizes.size), np.ones(sizes.size, dtype=bool)
    while left.sum() > 1 and np.any(small := left & (sizes < bag_size)):
        one = int(np.flatnonzero(small)[np.argmin(sizes[small])])
        gaps = np.sum((centres - centres[one]) ** 2, axis=1)
        cost = np.where(left, gaps * (sizes * sizes[one] / (sizes + sizes[one])), np.inf)
        cost[one] = np.inf
        near = np.flatnonzero(cost <= cost.min() * (1 + _SAME))
        other = int(near[np.argmin(sizes[near])])
        both = sizes[one] + sizes[other]
        centres[one] += (centres[other] - centres[one]) * (sizes[other] / both)
        sizes[one], left[other] = both, False
        into[into == other] = one
    return into
