"""k-means with a minimum (and maximum) size, as a scikit-learn clusterer."""

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.metric import make_points
from bagwise.cluster.state import CHUNK, EffortName, SizeRange, inertia_of, sums_of_clusters

# Up to this many clusters a start from ordinary k-means is tried too: with few and large clusters
# the start decides, with many and small ones the search does.
FEW_CLUSTERS = 300
KMEANS_STARTS = 3


class SizeConstrainedKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Partition rows into compact clusters of at least `size_min` and at most `size_max` rows.

    Made for very many small clusters: a million rows in clusters of ten take about a minute.

    Parameters
    ----------
    size_min : int
        Minimum number of rows in a cluster.
    size_max : int or None
        Maximum number of rows in a cluster; None for no limit.
    n_clusters : int or None
        Number of clusters. None makes as many as `size_min` allows.
    effort : {"fast", "default", "best"}
        How long to search.
    random_state : int, RandomState or None
        The same number gives the same clusters on the same machine, for any `n_jobs`.
    n_jobs : int or None
        Threads of `fit`; None uses all cores, one below 30,000 rows.

    Attributes
    ----------
    labels_ : (n,) ints
    cluster_centers_ : (m, d) floats
    cluster_sizes_ : (m,) ints
    inertia_ : float
        Sum of squared distances of the rows to their centres.

    Notes
    -----
    Distances are Euclidean in the units given: scale the columns first if these differ. X may be
    scipy sparse; with more than 128 columns distances are then those of a random projection, and
    centres are returned dense.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(104, 2))
    >>> model = SizeConstrainedKMeans(size_min=5, size_max=6, random_state=0).fit(X)
    >>> sorted(set(model.cluster_sizes_.tolist()))
    [5, 6]
    >>> model.predict([[0.0, 0.0]]).shape
    (1,)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "size_min": [Interval(Integral, 1, None, closed="left")],
        "size_max": [Interval(Integral, 1, None, closed="left"), None],
        "n_clusters": [Interval(Integral, 1, None, closed="left"), None],
        "effort": [StrOptions({"fast", "default", "best"})],
        "random_state": ["random_state"],
        "n_jobs": [Interval(Integral, 1, None, closed="left"), None],
    }

    def __init__(
        self,
        size_min: int = 5,
        size_max: int | None = None,
        n_clusters: int | None = None,
        *,
        effort: EffortName = "default",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.size_min = size_min
        self.size_max = size_max
        self.n_clusters = n_clusters
        self.effort = effort
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 (there is nothing to predict)
        """Find the clusters of X, (n, d), dense or sparse."""
        from bagwise.cluster.search import find_clusters  # numba takes a second

        self._validate_params()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        sizes = self._size_range(X.shape[0])
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        points = make_points(X, "none", np.random.default_rng(seed))
        starts: Iterable[IntArray] = ()
        if 1 < sizes.clusters <= FEW_CLUSTERS and self.effort != "fast":
            # Ordinary k-means of the rows, whose centres are then filled to size.
            starts = (_kmeans(points, sizes.clusters, seed + i) for i in range(KMEANS_STARTS))
        labels = find_clusters(
            points, sizes, effort=self.effort, seed=seed, threads=self.n_jobs, starts=starts
        )
        _, self.labels_ = np.unique(labels, return_inverse=True)
        self.cluster_sizes_ = np.bincount(self.labels_)
        # Added up in double precision, whatever that of X.
        clusters = self.cluster_sizes_.size
        sums = sums_of_clusters(X.astype(np.float64, copy=False), self.labels_, clusters)
        self.cluster_centers_ = (sums / self.cluster_sizes_[:, None]).astype(X.dtype, copy=False)
        self.inertia_ = inertia_of(X, self.labels_, self.cluster_centers_)
        return self

    def predict(self, X: Any) -> IntArray:
        """Return the cluster with the nearest centre for each row of X, (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        # Around a common origin, central whatever the outliers, no digits are lost.
        origin = np.median(self.cluster_centers_, axis=0).astype(np.float64)
        centres, nearest = self.cluster_centers_ - origin, []
        for first in range(0, X.shape[0], CHUNK):
            part = X[first : first + CHUNK]
            dense = part.toarray() if sparse.issparse(part) else part
            nearest.append(pairwise_distances_argmin(dense - origin, centres))
        return np.concatenate(nearest).astype(np.int64)

    def _size_range(self, n: int) -> SizeRange:
        """Return the sizes that were asked for."""
        least, most = self.size_min, n if self.size_max is None else self.size_max
        if n < least:
            raise ValueError(f"n_samples={n} should be >= size_min={least}: no cluster is filled.")
        if self.n_clusters is None and most < least:
            raise ValueError(f"size_max={most} is below size_min={least}.")
        clusters = max(n // least, 1) if self.n_clusters is None else self.n_clusters
        if not clusters * least <= n <= clusters * most:
            raise ValueError(
                f"{clusters} clusters of {least} to {most} rows hold {clusters * least} to "
                f"{clusters * most} rows, and n_samples={n}. Change n_clusters, size_min or "
                "size_max."
            )
        return SizeRange(clusters, least, min(most, n - (clusters - 1) * least))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _kmeans(points: AnyArray, clusters: int, seed: int) -> IntArray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal rows; it is only a start
        model = KMeans(clusters, n_init=1, random_state=seed).fit(points)
    return np.asarray(model.labels_, dtype=np.int64)
