"""Positive labels with a long tail: times until something happens for the first time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.families.family import PositiveFamily


@dataclass(frozen=True)
class InverseGaussian(PositiveFamily):
    """``b(t) = -sqrt(-2 t)`` with ``t = -1 / (2 mean**2)``; the variance is phi * mean**3.

    The canonical link is written as eta = 1/mean**2, as other software has it, so that t = -eta/2.
    It needs a positive eta for every row; ``link="log"`` does not.
    """

    name: ClassVar[str] = "inverse_gaussian"
    summary: ClassVar[str] = "positive, with a long tail"
    links: ClassVar[Mapping[str, str]] = {"canonical": "1 / mean²", "log": "logarithm"}

    def natural(self, eta: FloatArray) -> FloatArray:
        """Return -1 / (2 mean**2)."""
        return np.asarray(-np.exp(-2 * eta) / 2 if self.link == "log" else -eta / 2)

    def natural_slope(self, eta: FloatArray) -> FloatArray:
        """Return 1 / mean**2, or -1/2."""
        return np.asarray(np.exp(-2 * eta) if self.link == "log" else -np.ones_like(eta) / 2)

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return -1 / mean."""
        return np.asarray(-np.exp(-eta) if self.link == "log" else -np.sqrt(eta))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta), or 1 / sqrt(eta), which is infinite where eta is not positive."""
        if self.link == "log":
            return np.asarray(np.exp(eta))
        positive = np.real(eta) > 0
        return np.divide(
            1.0, np.sqrt(np.where(positive, eta, 1)), out=np.full_like(eta, np.inf), where=positive
        )

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the mean, or minus half its cube."""
        mean = self.mean(eta)
        return np.asarray(mean if self.link == "log" else -(mean**3) / 2)

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return the cube of the mean."""
        return np.asarray(self.mean(eta) ** 3)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return log(mean) or 1 / mean**2."""
        return np.asarray(np.log(mean) if self.link == "log" else 1 / mean**2)

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return that of an inverse Gaussian distribution of shape 1/phi."""
        off = (y / self.mean(eta) - 1) ** 2 / (2 * phi * y)
        return np.asarray(-off - np.log(2 * np.pi * phi * y**3) / 2)

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from the inverse Gaussian distribution of shape 1/phi."""
        return rng.wald(self.mean(eta), 1 / phi)
