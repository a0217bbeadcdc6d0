"""Real-valued labels with constant variance: linear regression."""

from typing import ClassVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.families.family import Family


class Gaussian(Family):
    """``b(eta) = eta**2 / 2``; phi is the label noise variance."""

    name: ClassVar[str] = "gaussian"
    label_range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return eta**2 / 2."""
        return eta * eta / 2

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return eta."""
        return eta

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return 1."""
        return np.ones_like(eta)

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from N(eta, phi)."""
        return rng.normal(eta, np.sqrt(phi))
