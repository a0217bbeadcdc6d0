"""The random streams of an experiment.

Each stream is named by what it is for. So a cell comes out the same when it is run alone or among
others, in any order and on any number of processes; and cells that share features, coefficients or
bags see the same ones, so that they can be compared run by run.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.bagging.random_bags import RandomBags, SuperBags
from bagwise.bagging.sorted_bags import SortedBags
from reproduction.cells import Cell
from reproduction.synthetic import GaussianFeatures, draw_features


@dataclass(frozen=True)
class Draw:
    """One run of one kind of data: features, coefficients, label noise and bags.

    Examples
    --------
    >>> draw = Draw("iso", n=100, d=2, run=0, seed=0)
    >>> draw.X.shape, draw.theta.shape
    ((100, 2), (2,))
    >>> bool(np.all(draw.stream("a").random(3) == draw.stream("a").random(3)))
    True
    """

    data: str
    n: int
    d: int
    run: int
    seed: int

    def stream(self, *purpose: object) -> np.random.Generator:
        """Return the generator for one purpose, always from its beginning."""
        name = "/".join(map(str, (self.data, self.n, self.d, self.run, *purpose)))
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    @cached_property
    def features(self) -> GaussianFeatures:
        """The rows and their true covariance."""
        return draw_features(self.data, n=self.n, d=self.d, rng=self.stream("features"))

    @property
    def X(self) -> FloatArray:  # noqa: N802 (its name everywhere)
        """The rows as the paper describes them."""
        return self.features.X

    @cached_property
    def theta(self) -> FloatArray:
        """The true coefficients, standard Gaussian."""
        return self.stream("theta").standard_normal(self.d)

    @cached_property
    def unit_noise(self) -> FloatArray:
        """The noise of the labels, before it is scaled."""
        return self.stream("noise").standard_normal(self.n)

    def labels(self, label_noise_sd: float) -> FloatArray:
        """Return a label for each row."""
        return np.asarray(self.X @ self.theta + label_noise_sd * self.unit_noise)

    @cached_property
    def _partitions(self) -> dict[tuple[str, int], Bags]:
        return {}

    def bags(self, cell: Cell, scores: FloatArray | None = None) -> Bags:
        """Return the bags of a cell: by scores if there are any, else by features or by chance.

        Those without scores are found once: clustering is what takes time.
        """
        if scores is not None:
            return self.bags_by(scores, cell)
        name, size = cell.strategy, cell.bag_size
        if (name, size) not in self._partitions:
            self._partitions[name, size] = self.bags_without_labels(name, size)
        return self._partitions[name, size]

    def bags_without_labels(self, strategy: str, bag_size: int) -> Bags:
        """Return bags that the features decide, or chance."""
        rng = self.stream("bags", strategy, bag_size)
        if strategy == "random":
            return RandomBags().assign(self.X, None, bag_size=bag_size, rng=rng)
        points = self.features.whitened() if strategy == "whitened" else self.X
        return KMeansBags(scale="none").assign(points, None, bag_size=bag_size, rng=rng)

    def bags_by(self, scores: FloatArray, cell: Cell) -> Bags:
        """Return bags of rows with similar scores, all of one size where the rows allow it."""
        half = SuperBags(order="sorted", half=True)
        strategy = half if cell.strategy == "super" else SortedBags(cut="equal")
        rng = self.stream("bags", cell.strategy, cell.bag_size, cell.label_noise_sd, cell.epsilon)
        return strategy.assign(self.X, scores, bag_size=cell.bag_size, rng=rng)
