"""Bags of rows with similar features: the paper's instance k-means, with a minimum size."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging._cut import equal_sizes, group_index, optimal_sizes
from bagwise.bagging._parameters import check_choices, check_time_budget
from bagwise.bagging.bags import Bags
from bagwise.cluster.metric import Scale, make_points
from bagwise.cluster.search import EffortName, find_clusters, time_limit
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Patience

Sizes = Literal["near-equal", "free"]


@dataclass(frozen=True)
class KMeansBags:
    """Put rows with similar features together, so that bag means keep the spread of the rows.

    Parameters
    ----------
    scale : {"whiten", "std", "none"}
        What "similar" means: after whitening with the sample covariance (so that units and
        correlations do not matter; best for the error of a linear model), in standard deviations
        of each column, or in the columns' own units.
    effort : {"fast", "default", "best"}
        How long to search. At 50,000 rows and 32 columns: about one, two and five seconds.
    time_budget : float or None
        Seconds after which the search ends with what it has. Bags then depend on the speed of the
        machine, not only on the seed.
    sizes : {"near-equal", "free"}
        "near-equal" gives as many bags as there can be, with sizes that differ by one at most:
        `bag_size`, or one more, unless there are too few rows for that. "free" gives
        ``bag_size .. 2*bag_size-1``, more compact in few dimensions.

    Every bag has at least `bag_size` rows whenever the search ends, also by Ctrl-C. The same seed
    gives the same bags on the same machine, whatever the number of threads. Needs
    ``bagwise[fast]``.

    Guarantee: never less compact than recursive balanced bisection; in one dimension, and if
    `bag_size` divides the number of rows or sizes are free, as compact as can be.

    References
    ----------
    Thm 2 (thm:LLP-bag-UB1) and Thm 3 (thm:MIR-agg-UB1), for which the paper advises instance
    k-means, and Lemmas 18 and 19 on its scaled form. Status: corrected, E4. Exact gains of moves
    and swaps: Hartigan (1975).
    """

    name: ClassVar[str] = "kmeans"
    summary: ClassVar[str] = "rows with similar features"
    compact: ClassVar[bool] = True
    extra: ClassVar[str] = "fast"
    uses_scores: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = True

    scale: Scale = "whiten"
    effort: EffortName = "default"
    time_budget: float | None = None
    sizes: Sizes = "near-equal"

    def __post_init__(self) -> None:
        check_choices(self, scale=Scale, effort=EffortName, sizes=Sizes)
        check_time_budget(self.time_budget)

    def assign(
        self,
        X: AnyArray,
        scores: FloatArray | None,  # noqa: ARG002 (features alone)
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Put rows that are near each other together."""
        with time_limit(self.time_budget) as waiting:
            return self.assign_until(waiting, X, bag_size=bag_size, rng=rng)

    def assign_until(
        self, waiting: Patience, X: AnyArray, *, bag_size: int, rng: np.random.Generator
    ) -> Bags:
        """Do what `assign` does, as long as there is time."""
        # Ties are broken by place, and the place in a table may tell a label: shuffle first.
        order = rng.permutation(X.shape[0])
        index = np.empty(order.size, dtype=np.int64)
        index[order] = self._group(waiting, X, order, bag_size, rng)
        return Bags(index)

    def _group(
        self,
        waiting: Patience,
        X: AnyArray,
        order: IntArray,
        bag_size: int,
        rng: np.random.Generator,
    ) -> IntArray:
        """Return the bag of each row of ``X[order]``."""
        n = order.size
        near_equal, free = SizeRange.near_equal(n, bag_size), self.sizes == "free"
        if bag_size == 1 or near_equal.clusters == 1 or X.shape[1] == 0:
            return group_index(equal_sizes(n, bag_size))
        points = make_points(X, self.scale, rng, order=order)
        if points.shape[1] == 1 and (free or near_equal.least == near_equal.most):
            return _cut_line(points[:, 0], bag_size, optimal=free)
        return find_clusters(
            points,
            None if free else near_equal,
            least=bag_size,
            effort=self.effort,
            seed=int(rng.integers(2**31)),
            waiting=waiting,
        )


def _cut_line(points: FloatArray, bag_size: int, *, optimal: bool) -> IntArray:
    """Solve one dimension exactly: sort and cut."""
    order = np.argsort(points, kind="stable")
    cut = optimal_sizes(points[order], bag_size) if optimal else equal_sizes(points.size, bag_size)
    index = np.empty(points.size, dtype=np.int64)
    index[order] = group_index(cut)
    return index
