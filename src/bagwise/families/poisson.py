"""Counts: log-linear regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from bagwise._types import FloatArray
from bagwise.families.family import Family


@dataclass(frozen=True)
class Poisson(Family):
    """``b(t) = exp(t)``; phi is 1."""

    name: ClassVar[str] = "poisson"
    summary: ClassVar[str] = "a count"
    links: ClassVar[Mapping[str, str]] = {"canonical": "logarithm"}
    label_range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    knows_dispersion: ClassVar[bool] = True
    advice: ClassVar[str] = "Choose gaussian for labels that can be negative."

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return log(mean)."""
        return np.asarray(np.log(mean))

    def interior(self, mean: float) -> float:
        """Return a positive rate."""
        return max(mean, 1e-3)

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return the logarithm of the chance of a count."""
        del phi
        return np.asarray(y * eta - np.exp(eta) - gammaln(y + 1))

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw counts."""
        del phi
        return rng.poisson(self.mean(eta)).astype(np.float64)
