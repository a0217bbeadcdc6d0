"""Labels that are 0 or 1, and shares of them: logistic regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import xlog1py, xlogy

from bagwise._types import FloatArray
from bagwise.families.family import Family


@dataclass(frozen=True)
class Bernoulli(Family):
    """``b(t) = log(1 + exp(t))``; phi is 1."""

    name: ClassVar[str] = "bernoulli"
    summary: ClassVar[str] = "0 or 1"
    links: ClassVar[Mapping[str, str]] = {"canonical": "log odds"}
    label_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    knows_dispersion: ClassVar[bool] = True
    advice: ClassVar[str] = "Code the label as 0 and 1, or choose gaussian, or poisson for counts."

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return log(1 + exp(eta)), without overflow."""
        far = np.where(np.real(eta) > 0, eta, 0.0)
        return np.asarray(far + np.log1p(np.exp(np.where(np.real(eta) > 0, -eta, eta))))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return 1 / (1 + exp(-eta))."""
        small = np.exp(np.where(np.real(eta) > 0, -eta, eta))
        return np.asarray(np.where(np.real(eta) > 0, 1.0, small) / (1.0 + small))

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return mean * (1 - mean)."""
        small = np.exp(np.where(np.real(eta) > 0, -eta, eta))
        return np.asarray(small / (1.0 + small) ** 2)

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return mean * (1 - mean)."""
        return self.slope(eta)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the logarithm of the odds."""
        return np.asarray(np.log(mean) - np.log1p(-mean))

    def interior(self, mean: float) -> float:
        """Return a chance between 1 and 99 percent."""
        return float(np.clip(mean, 0.01, 0.99))

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return y log(mean) + (1 - y) log(1 - mean)."""
        del phi
        chance = self.mean(eta)
        return np.asarray(xlogy(y, chance) + xlog1py(1 - y, -chance))

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw 0 or 1."""
        del phi
        return (rng.random(np.shape(eta)) < self.mean(eta)).astype(np.float64)
