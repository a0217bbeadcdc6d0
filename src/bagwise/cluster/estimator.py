"""k-means with a minimum (and maximum) size, as a scikit-learn clusterer."""

import warnings
from collections.abc import Iterable
from itertools import chain
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.cluster.assignment import assign_in_range
from bagwise.cluster.centre_graph import exact_lists
from bagwise.cluster.kernels import load_kernels
from bagwise.cluster.metric import make_points
from bagwise.cluster.search import EffortName, find_clusters, time_limit
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.state import CHUNK, sums_of_clusters
from bagwise.cluster.workers import Workers

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
        Least number of rows in a cluster.
    size_max : int or None
        Most rows in a cluster; None is no limit.
    n_clusters : int or None
        Number of clusters. None makes about as many as `size_min` allows, with sizes below
        ``2 * size_min``: a larger cluster could be split into two more compact ones.
    effort : {"fast", "default", "best"}
        How long to search.
    init : "auto", "k-means++", "random", (n_clusters, d) floats or callable
        Where the search starts from, besides a start of its own: from ordinary k-means, as
        scikit-learn's ``KMeans`` has it, whose centres are then filled to size. "auto" does so with
        "k-means++" up to 300 clusters, where the start matters. Others need `n_clusters` or
        `size_max`.
    n_init : "auto" or int
        How many such starts are tried, the best result counting; "auto" is 3, and 1 for centres
        that are given.
    max_iter : int
        Most iterations of ordinary k-means in each start.
    time_budget : float or None
        Seconds after which the search ends with what it has; sizes are as asked all the same.
    random_state : int, RandomState or None
        The same number gives the same clusters on the same machine, whatever `n_jobs`.
    n_jobs : int or None
        Threads; None uses all cores, one below 30,000 rows.

    Attributes
    ----------
    labels_ : (n,) ints
    cluster_centers_ : (m, d) floats
    cluster_sizes_ : (m,) ints
    inertia_ : float
        Sum of squared distances of the rows to their centres.
    n_iter_ : int
        Most iterations that ordinary k-means took in one start; 1 without such starts.

    Notes
    -----
    Distances are Euclidean in the units given: scale the columns first if these differ. X may be
    scipy sparse; with more than 128 columns distances are then those of a random projection, and
    centres are returned dense. Ctrl-C ends the search early, with a warning. Needs
    ``bagwise[fast]``.

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
        "init": [StrOptions({"auto", "k-means++", "random"}), callable, "array-like"],
        "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
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
        init: Any = "auto",
        n_init: int | str = "auto",
        max_iter: int = 300,
        time_budget: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.size_min = size_min
        self.size_max = size_max
        self.n_clusters = n_clusters
        self.effort = effort
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.time_budget = time_budget
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 (there is nothing to predict)
        """Find the clusters of X, (n, d), dense or sparse."""
        self._validate_params()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        sizes = self._sizes(X.shape[0])
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        points = make_points(X, "none", np.random.default_rng(seed))
        self.n_iter_ = 1
        with time_limit(self.time_budget) as waiting:
            labels = find_clusters(
                points,
                sizes,
                least=self.size_min,
                effort=self.effort,
                seed=seed,
                waiting=waiting,
                threads=self.n_jobs,
                starts=self._kmeans_starts(X, points, sizes, seed),
            )
        _, self.labels_ = np.unique(labels, return_inverse=True)
        self.cluster_sizes_ = np.bincount(self.labels_)
        self.cluster_centers_ = _centres(X, self.labels_, self.cluster_sizes_)
        self.inertia_ = _inertia(X, self.labels_, self.cluster_centers_)
        return self

    def predict(self, X: Any) -> IntArray:
        """Return the cluster with the nearest centre for each row of X, (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        load_kernels()
        nearest = []
        with Workers(self.n_jobs, n_rows=X.shape[0]) as workers:
            for first in range(0, X.shape[0], CHUNK):
                points, centres = self._about_centre(X[first : first + CHUNK])
                lists = np.full((points.shape[0], 1), -1, dtype=np.int32)
                exact_lists(points, centres, lists, workers)
                nearest.append(lists[:, 0])
        return np.concatenate(nearest).astype(np.int64)

    def predict_sized(
        self, X: Any, *, size_min: int | None = None, size_max: int | None = None
    ) -> IntArray:
        """Assign rows to the fitted centres so that each gets size_min to size_max of *these* rows.

        By default the limits of the clusterer. The total squared distance is the least possible up
        to 300 clusters and 20 million distances; beyond, rows are handed on between neighbours.
        """
        nearest = self.predict(X)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        limits = self._limits(X.shape[0], self.cluster_sizes_.size, size_min, size_max)
        points, centres = self._about_centre(X)
        with Workers(self.n_jobs, n_rows=X.shape[0]) as workers:
            return assign_in_range(points, centres, nearest, limits, workers)

    def _sizes(self, n: int) -> SizeRange | None:
        if n < self.size_min:
            raise ValueError(
                f"n_samples={n} should be >= size_min={self.size_min}: no cluster can be filled."
            )
        if self.n_clusters is not None:
            return self._limits(n, self.n_clusters, None, None)
        if self.size_max is None:
            return None
        if self.size_max < self.size_min:
            raise ValueError(f"size_max={self.size_max} is below size_min={self.size_min}.")
        clusters = max(n // self.size_min, 1)
        return self._limits(n, clusters, None, None)

    def _limits(
        self, n: int, clusters: int, size_min: int | None, size_max: int | None
    ) -> SizeRange:
        least = self.size_min if size_min is None else size_min
        most = self.size_max if size_max is None else size_max
        most = n if most is None else most
        if not clusters * least <= n <= clusters * most:
            raise ValueError(
                f"{clusters} clusters of {least} to {most} rows hold {clusters * least} to "
                f"{clusters * most} rows, and n_samples={n}. Change n_clusters, size_min or "
                "size_max."
            )
        return SizeRange(clusters, least, min(most, n - (clusters - 1) * least))

    def _kmeans_starts(
        self, X: Any, points: AnyArray, sizes: SizeRange | None, seed: int
    ) -> Iterable[IntArray]:
        auto = isinstance(self.init, str) and self.init == "auto"
        if auto and (sizes is None or not 1 < sizes.clusters <= FEW_CLUSTERS):
            return ()
        if auto and self.effort == "fast" and self.n_init == "auto":
            return ()
        if sizes is None:
            raise ValueError(
                "init starts from a number of clusters that is known: give n_clusters or size_max, "
                "or leave init at 'auto'."
            )
        named = isinstance(self.init, str)
        # Centres that are given, or made by a function, are in the units of X.
        space, init = (points, "k-means++" if auto else self.init) if named else (X, self.init)
        count = (KMEANS_STARTS if named else 1) if self.n_init == "auto" else int(self.n_init)
        if not count:
            return ()
        options = {"init": init, "max_iter": self.max_iter}
        # Made now, so that centres of a wrong shape are refused here.
        first = self._kmeans(space, sizes.clusters, seed, options)
        others = (self._kmeans(space, sizes.clusters, seed + i, options) for i in range(1, count))
        return chain([first], others)

    def _kmeans(self, points: Any, clusters: int, seed: int, options: dict[str, Any]) -> IntArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # equal rows; it is only a start
            model = KMeans(clusters, n_init=1, random_state=seed, **options).fit(points)
        self.n_iter_ = max(self.n_iter_, int(model.n_iter_))
        return np.asarray(model.labels_, dtype=np.int64)

    def _about_centre(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Return rows and centres around a common origin, so that no digits are lost."""
        origin = np.median(self.cluster_centers_, axis=0)  # central whatever the outliers
        dense = X.toarray() if sparse.issparse(X) else X
        return (
            np.ascontiguousarray(dense - origin, dtype=np.float64),
            np.ascontiguousarray(self.cluster_centers_ - origin, dtype=np.float64),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _centres(X: Any, labels: IntArray, sizes: IntArray) -> FloatArray:
    """Return the means of clusters, added up in double precision, in the precision of X."""
    sums = sums_of_clusters(X.astype(np.float64, copy=False), labels, sizes.size)
    return np.asarray((sums / sizes[:, None]).astype(X.dtype, copy=False))


def _inertia(X: Any, labels: IntArray, centres: FloatArray) -> float:
    total = 0.0
    for first in range(0, labels.size, CHUNK):
        part = slice(first, first + CHUNK)
        rows = X[part].toarray() if sparse.issparse(X) else X[part]
        total += float(np.sum((rows - centres[labels[part]]) ** 2))
    return total
