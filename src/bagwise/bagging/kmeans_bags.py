"""Bags of rows with similar features: the paper's instance k-means, with a minimum size."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from bagwise._types import AnyArray, FloatArray
from bagwise.bagging._cut import equal_sizes, rows_in_groups
from bagwise.bagging._recognise import far_apart
from bagwise.bagging.bags import Bags
from bagwise.bagging.strategy import BaggingStrategy, PublishedBags, Scores
from bagwise.cluster.metric import ScaleOrModel, linear_map, make_points
from bagwise.cluster.state import EffortName, SizeRange
from bagwise.errors import StrategyError
from bagwise.rows.whitening import Columns


@dataclass(frozen=True)
class KMeansBags(BaggingStrategy):
    """Put rows with similar features together, so that bag means keep the spread of the rows.

    Parameters
    ----------
    scale : {"whiten", "std", "none", "model"}
        What "similar" means: after whitening with the sample covariance (so that units and
        correlations do not matter; best for the error of a linear model), in standard deviations
        of each column, or in the columns' own units. "model" is in standard deviations times what
        scores owe to each column: those of a private model, in a release. It is for learners that
        are not linear, such as boosted trees (``learner="flexible"``).
    effort : {"fast", "default", "best"}
        How long to search. At 50,000 rows and 32 columns: about one, two and five seconds.

    Notes
    -----
    There are as many bags as there can be, with sizes that differ by one at most. The same seed
    gives the same bags on the same machine, whatever the number of threads.

    Guarantee
    ---------
    Never less compact than recursive balanced bisection; in one dimension, and if `bag_size`
    divides the number of rows, as compact as can be.

    References
    ----------
    Thm 2 (thm:LLP-bag-UB1) and Thm 3 (thm:MIR-agg-UB1), for which the paper advises instance
    k-means, and Lemmas 18 and 19 on its scaled form. Status: corrected, E4. Exact gains of moves
    and swaps: Hartigan (1975). What a column counts by a model: CAR scores, Zuber and Strimmer
    (2011), "High-dimensional regression and variable selection using CAR scores".
    """

    name: ClassVar[str] = "kmeans"
    summary: ClassVar[str] = "rows with similar features"
    compact: ClassVar[bool] = True
    accepts_sparse: ClassVar[bool] = True

    scale: ScaleOrModel = "whiten"
    effort: EffortName = "default"

    def __post_init__(self) -> None:
        self.check_choices(scale=ScaleOrModel, effort=EffortName)

    @property
    def uses_scores(self) -> bool:
        """Only the metric of a model reads scores."""
        return self.scale == "model"

    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Put rows that are near each other together."""
        from bagwise.cluster.search import find_clusters  # the search imports numba: a second

        self._check_scores(scores)
        n = X.shape[0]
        # Ties are broken by place, and the place in a table may tell a label: shuffle first.
        order = rng.permutation(n)
        sizes = SizeRange.near_equal(n, bag_size)
        if bag_size == 1 or sizes.clusters == 1 or X.shape[1] == 0:
            return Bags.owning(rows_in_groups(order, equal_sizes(n, bag_size)))
        points = make_points(X, self.scale, rng, order=order, scores=scores)
        if points.shape[1] == 1 and sizes.least == sizes.most:
            # One dimension is solved exactly: sort and cut.
            ranks = np.argsort(points[:, 0], kind="stable")
            return Bags.owning(rows_in_groups(order[ranks], equal_sizes(n, bag_size)))
        index = np.empty(n, dtype=np.int64)
        seed = int(rng.integers(2**31))
        index[order] = find_clusters(points, sizes, effort=self.effort, seed=seed)
        return Bags.owning(index)

    def shared_metric(
        self, columns: Columns, scores: Scores = None
    ) -> tuple[FloatArray, "KMeansBags"]:
        """Return the map from centred rows to points, (d, r), and the strategy for points."""
        self._check_scores(scores)
        return linear_map(columns, self.scale, scores), replace(self, scale="none")

    def contradiction(self, bags: PublishedBags) -> str | None:
        """Return the evidence against bags of rows that are near each other."""
        X, scores = bags.X, bags.scores
        if X is None or X.shape[1] == 0 or (self.uses_scores and scores is None):
            return None
        rng = np.random.default_rng(0)  # of a projection, if X is sparse
        return far_apart(bags.index, make_points(X, self.scale, rng, scores=scores))

    def _check_scores(self, scores: Scores) -> None:
        if self.uses_scores and scores is None:
            raise StrategyError("the metric of a model needs its scores.")
