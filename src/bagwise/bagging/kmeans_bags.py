"""Bags of rows with similar features: the paper's instance k-means, with a minimum size."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging._cut import equal_sizes, group_index, optimal_sizes
from bagwise.bags import Bags
from bagwise.cluster.metric import Scale, make_points
from bagwise.cluster.run import EffortName, find_clusters
from bagwise.cluster.sizes import SizeRange
from bagwise.errors import StrategyError

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
        "near-equal" gives bags of `bag_size`, or one more where that does not divide the rows;
        "free" gives ``bag_size .. 2*bag_size-1``, more compact in few dimensions.

    Every bag has at least `bag_size` rows whenever the search ends, also by Ctrl-C. The same seed
    gives the same bags on the same machine, whatever the number of threads. Needs
    ``bagwise[fast]``.

    Guarantee: never less compact than recursive balanced bisection; in one dimension, and if
    `bag_size` divides the number of rows or sizes are free, as compact as can be.

    References
    ----------
    Thm 4 (instance k-means for bag loss) and its scaled form; the paper's own bags come from
    unconstrained k-means. Exact gains of moves and swaps: Hartigan (1975).
    """

    name: ClassVar[str] = "kmeans"
    uses_scores: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = True

    scale: Scale = "whiten"
    effort: EffortName = "default"
    time_budget: float | None = None
    sizes: Sizes = "near-equal"

    def __post_init__(self) -> None:
        for name, kind in (("scale", Scale), ("effort", EffortName), ("sizes", Sizes)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise StrategyError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")
        if self.time_budget is not None and not self.time_budget > 0:
            raise StrategyError(f"time_budget must be positive seconds, got {self.time_budget!r}.")

    def assign(
        self,
        X: AnyArray,
        scores: FloatArray | None,  # noqa: ARG002 (features alone)
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Put rows that are near each other together."""
        n = X.shape[0]
        if bag_size == 1 or X.shape[1] == 0 or n < 2 * bag_size:
            return Bags(group_index(equal_sizes(n, bag_size)))
        points = make_points(X, self.scale, rng)
        near_equal = SizeRange.near_equal(n, bag_size)
        free = self.sizes == "free"
        if points.shape[1] == 1 and (free or near_equal.least == near_equal.most):
            return Bags(_cut_line(points[:, 0], bag_size, optimal=free))
        return Bags(
            find_clusters(
                points,
                None if free else near_equal,
                least=bag_size,
                effort=self.effort,
                seed=int(rng.integers(2**31)),
                time_budget=self.time_budget,
            )
        )


def _cut_line(points: FloatArray, bag_size: int, *, optimal: bool) -> IntArray:
    """Solve one dimension exactly: sort and cut."""
    order = np.argsort(points, kind="stable")
    cut = optimal_sizes(points[order], bag_size) if optimal else equal_sizes(points.size, bag_size)
    index = np.empty(points.size, dtype=np.int64)
    index[order] = group_index(cut)
    return index
