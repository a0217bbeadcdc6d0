"""Positive labels whose spread grows with their mean: amounts, durations, costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from bagwise._types import FloatArray
from bagwise.families.family import PositiveFamily


@dataclass(frozen=True)
class Gamma(PositiveFamily):
    """``b(t) = -log(-t)`` with ``t = -1/mean``; phi is the squared coefficient of variation.

    The canonical link is written as eta = 1/mean, as other software has it, so that t = -eta. It
    needs a positive eta for every row; ``link="log"`` does not.
    """

    name: ClassVar[str] = "gamma"
    summary: ClassVar[str] = "positive, with a spread that grows with the mean"
    links: ClassVar[Mapping[str, str]] = {"canonical": "1 / mean", "log": "logarithm"}

    def natural(self, eta: FloatArray) -> FloatArray:
        """Return -1 / mean."""
        return np.asarray(-np.exp(-eta) if self.link == "log" else -eta)

    def natural_slope(self, eta: FloatArray) -> FloatArray:
        """Return 1 / mean, or -1."""
        return np.asarray(np.exp(-eta) if self.link == "log" else -np.ones_like(eta))

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return log(mean)."""
        return np.asarray(eta if self.link == "log" else -np.log(eta))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta), or 1 / eta, which is infinite where eta is not positive."""
        return np.asarray(np.exp(eta)) if self.link == "log" else _inverse(eta)

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the mean, or minus its square."""
        mean = self.mean(eta)
        return np.asarray(mean if self.link == "log" else -(mean**2))

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return the square of the mean."""
        return np.asarray(self.mean(eta) ** 2)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return log(mean) or 1 / mean."""
        return np.asarray(np.log(mean) if self.link == "log" else 1 / mean)

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return that of a gamma distribution of shape 1/phi."""
        shape = 1 / phi
        rate = shape / self.mean(eta)
        return np.asarray(
            shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(y) - rate * y
        )

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from the gamma distribution of shape 1/phi."""
        return rng.gamma(1 / phi, phi * self.mean(eta))


def _inverse(eta: FloatArray) -> FloatArray:
    return np.divide(1.0, eta, out=np.full_like(eta, np.inf), where=np.real(eta) > 0)
