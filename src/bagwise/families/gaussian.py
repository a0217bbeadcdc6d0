"""Real-valued labels with constant variance: linear regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.families.family import Family


@dataclass(frozen=True)
class Gaussian(Family):
    """``b(t) = t**2 / 2``; phi is the label noise variance."""

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "any number, with the same spread for all"
    links: ClassVar[Mapping[str, str]] = {"canonical": "none: the expected label itself"}
    label_range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return eta**2 / 2."""
        return eta * eta / 2

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return eta."""
        return eta

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return 1."""
        return np.ones_like(eta)

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return 1."""
        return np.ones_like(eta)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the mean."""
        return mean

    def interior(self, mean: float) -> float:
        """Return the mean: every mean is possible."""
        return mean

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return that of N(eta, phi)."""
        return np.asarray(-((y - eta) ** 2) / (2 * phi) - np.log(2 * np.pi * phi) / 2)

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from N(eta, phi)."""
        return rng.normal(eta, np.sqrt(phi))
