"""Bags that are given: rows of a campaign, a hospital, a census block."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging._merge import merge_small
from bagwise.bagging._parameters import check_choices
from bagwise.bagging.bags import Bags
from bagwise.cluster.metric import Scale, make_points


@dataclass(frozen=True)
class GroupBags:
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
    summary: ClassVar[str] = "given groups, small ones merged"
    planned: ClassVar[bool] = False  # the planner has no groups
    free_sizes: ClassVar[bool] = True
    accepts_sparse: ClassVar[bool] = True
    uses_scores: ClassVar[bool] = False

    scale: Scale = "whiten"

    def __post_init__(self) -> None:
        check_choices(self, scale=Scale)

    def assign(
        self,
        X: AnyArray,
        scores: FloatArray | None,  # noqa: ARG002 (features alone)
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Merge single rows with their neighbours."""
        return self.assign_groups(X, np.arange(X.shape[0]), bag_size=bag_size, rng=rng)

    def assign_groups(
        self, X: AnyArray, groups: IntArray, *, bag_size: int, rng: np.random.Generator
    ) -> Bags:
        """Make a bag of each group that is large enough, and merge the others."""
        index = np.unique(groups, return_inverse=True)[1]
        sizes = np.bincount(index)
        if sizes.min() < bag_size:
            centres = _centres(X, index, self.scale, rng)
            index = merge_small(centres, sizes, bag_size, rng)[index]
        return Bags.from_labels(index)


def _centres(X: AnyArray, index: IntArray, scale: Scale, rng: np.random.Generator) -> FloatArray:
    """Return the mean of each group's rows, in units in which distances count."""
    if X.shape[1] == 0:
        return np.zeros((index.max() + 1, 1))
    order = rng.permutation(index.size)  # places must not show, not even in rounding
    return Bags(index[order]).mean(make_points(X, scale, rng, order=order))
