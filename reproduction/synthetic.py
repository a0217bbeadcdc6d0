"""Features as the paper's experiments draw them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray


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
