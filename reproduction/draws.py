"""Features as the paper draws them, and the random streams of an experiment.

Each stream is named by what it is for. So a cell comes out the same when it is run alone or among
others, in any order and on any number of processes; and cells that share features, coefficients or
bags see the same ones, so that they can be compared run by run.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.bagging.random_bags import RandomBags, SuperBags
from bagwise.bagging.sorted_bags import SortedBags
from reproduction.cells import Cell


def _isotropic(d: int, _rng: np.random.Generator) -> FloatArray:
    return np.eye(d)


def _independent(d: int, rng: np.random.Generator) -> FloatArray:
    return np.diag(np.sqrt(rng.uniform(0.1, 10, d)))


def _dependent(d: int, rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((d, d))


MIXINGS: dict[str, Callable[[int, np.random.Generator], FloatArray]] = {
    "iso": _isotropic,
    "ind": _independent,
    "dep": _dependent,
}
"""By name, how the paper draws the matrix M in ``x = M'z`` with standard Gaussian z: none; a
diagonal one, with variances uniform in 0.1 to 10; and one with standard Gaussian entries."""


@dataclass(frozen=True)
class GaussianFeatures:
    """Rows ``X`` drawn from a centred Gaussian distribution with this covariance."""

    X: FloatArray
    covariance: FloatArray

    def whitened(self) -> FloatArray:
        """Return the rows with unit covariance, by the true one and not the sample's.

        Examples
        --------
        >>> features = draw_features("dep", n=20_000, d=3, rng=np.random.default_rng(0))
        >>> np.cov(features.whitened().T).round(1) + 0.0
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])
        """
        # As the paper does it: by the true covariance, and without turning the axes.
        values, vectors = np.linalg.eigh(self.covariance)
        return np.asarray(self.X @ (vectors / np.sqrt(values)) @ vectors.T)


def draw_features(kind: str, *, n: int, d: int, rng: np.random.Generator) -> GaussianFeatures:
    """Draw features of one of the kinds in `MIXINGS`.

    Examples
    --------
    >>> draw_features("ind", n=4, d=2, rng=np.random.default_rng(0)).X.shape
    (4, 2)
    """
    mixing = MIXINGS[kind](d, rng)
    return GaussianFeatures(rng.standard_normal((n, d)) @ mixing, mixing.T @ mixing)


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
