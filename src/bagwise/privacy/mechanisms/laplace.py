"""Discrete Laplace noise, whatever it hides.

Curve: exact, from the two geometric tails; nothing is lost to delta from epsilon = sensitivity /
scale on, in L1 (Ghosh, Roughgarden and Sundararajan 2009).
"""

import math
from fractions import Fraction
from typing import Any, Self

from bagwise._types import IntArray
from bagwise.privacy.loss_distributions import LaplaceCurve
from bagwise.privacy.mechanisms.mechanism import OneScale
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_laplace
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


class LaplaceNoise(OneScale, frozen=True):
    """Discrete Laplace noise; `noise_scale` is the mean of its absolute value, or nearly."""

    @classmethod
    def calibrated(cls, *, shift: int, epsilon: Fraction, step: float) -> Self:
        """Return the least noise that makes a move by `shift` steps cost `epsilon`, no delta."""
        # In fractions: a quotient of doubles that should be whole may end just below it.
        scale = whole_scale(shift / epsilon, largest=LARGEST_SCALE)
        return cls(shift * step, scale * step, step)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs, without a delta."""
        return Fraction(self.shift, self.scale)

    @property
    def number_sd(self) -> float:
        """The standard deviation of the noise on each number that is hidden."""
        return math.sqrt(2) * self.noise_scale

    @property
    def curve(self) -> LaplaceCurve:
        """L."""
        return LaplaceCurve(self.shift, self.scale)

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, in grid steps."""
        return discrete_laplace(count, scale=self.scale, source=source)

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting."""
        return [google.LaplaceDpEvent(self.noise_scale / self.sensitivity)]


def allows_rows(mechanism: LaplaceNoise, rows: int, bounds: Bounds | None) -> bool:
    """Tell whether noise allows for `rows` labels that each move by the width of the bounds."""
    if bounds is None:
        return False
    return mechanism.sensitivity >= rows * (bounds[1] - bounds[0]) * (1 - 1e-9)
