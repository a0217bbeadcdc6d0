"""Discrete Laplace noise: a move of D steps in L1 costs ``D / scale``, without a delta.

Curve: exact, from the two geometric tails (Ghosh, Roughgarden and Sundararajan 2009). The chance of
a vector falls with its length in L1, so that a move of any number of coordinates costs no more than
one coordinate that moves as far.
"""

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.curves import LaplaceCurve
from bagwise.privacy.laws.law import Move, Norm, Scaled
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_laplace
from bagwise.rng import NoiseSource


class Laplace(Scaled, frozen=True, tag="laplace"):
    """Integers y with probability proportional to ``exp(-|y| / scale)``."""

    norm: ClassVar[Norm] = "L1"

    largest: ClassVar[int] = LARGEST_SCALE
    google_event: ClassVar[str] = "LaplaceDpEvent"

    def curve(self, move: Move) -> LaplaceCurve:
        """L."""
        return LaplaceCurve(move.steps * move.times, self.scale)

    def pure_epsilon(self, move: Move) -> Fraction:
        """Return the cost of a move; several moves cost as much as one of their total length."""
        return Fraction(move.steps * move.times, self.scale)

    @property
    def sd(self) -> float:
        """That of continuous noise; rounded to whole numbers it is less by 1 / (24 scale^2)."""
        return math.sqrt(2) * self.scale

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score. The sum is log-concave, as both of its parts are.

        With b the scale, ``z = r / s`` and ``a = s / b`` the density is the sum of
        ``exp(a^2 / 2 -+ z a) Phi(+-z - a) / (2 b)``, and the normal densities cancel in its
        derivative (Reed 2006).
        """
        scale = math.sqrt(0.5)
        z, a = residual / spread, spread / scale
        right = a**2 / 2 - z * a + log_ndtr(z - a)
        left = a**2 / 2 + z * a + log_ndtr(-z - a)
        top = np.maximum(right, left)
        up, down = np.exp(right - top), np.exp(left - top)
        log_density = top + np.log(up + down) - math.log(2 * scale)
        return log_density, (up - down) / (up + down) / scale

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise, in grid steps."""
        return discrete_laplace(count, scale=self.scale, source=source)

    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return the chance of so many steps up, from 1 on, or more, exactly.

        A geometric series: ``q^steps / (1 + q)`` with ``q = exp(-1 / scale)``.
        """
        q = np.exp(-1 / self.scale)
        return np.asarray(q**steps / (1 + q))
