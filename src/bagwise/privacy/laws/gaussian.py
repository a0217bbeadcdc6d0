"""Gaussian noise: a move of D steps in L2 costs ``mu = D / scale``, with a delta.

Curve: the exact one, G, of mu (Balle and Wang 2018, Theorem 8). The noise is a discrete Gaussian.
With at least hundreds of steps in its scale its curve agrees with the continuous one's to about
seven digits; the tests measure the gap. Several compose exactly: ``mu = hypot(mu_1, mu_2, …)``
(Dong, Roth and Su 2022, Corollary 3.3).
"""

from typing import ClassVar

import numpy as np
from scipy import special

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.curves import GaussianCurve
from bagwise.privacy.laws.law import Move, Norm, Scaled
from bagwise.privacy.samplers import discrete_gaussian
from bagwise.rng import NoiseSource

LARGEST_SCALE = 2**31
"""Scales, in grid steps, whose square still fits 64 bits."""


class Gaussian(Scaled, frozen=True, tag="gaussian"):
    """Integers y with probability proportional to ``exp(-y**2 / (2 scale**2))``."""

    norm: ClassVar[Norm] = "L2"
    needs_delta: ClassVar[bool] = True
    is_normal: ClassVar[bool] = True

    largest: ClassVar[int] = LARGEST_SCALE
    google_event: ClassVar[str] = "GaussianDpEvent"

    def curve(self, move: Move) -> GaussianCurve:
        """G."""
        return GaussianCurve(move.steps * move.times / self.scale)

    def pure_epsilon(self, move: Move) -> None:
        """Return None: without a delta it promises nothing."""
        del move

    @property
    def sd(self) -> float:
        """The scale, or less by two parts in 10**7 at most."""
        return float(self.scale)

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score: the sum is normal."""
        variance = 1 + spread**2
        log_density = -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))
        return log_density, residual / variance

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise, in grid steps."""
        return discrete_gaussian(count, scale=self.scale, source=source)

    def within(self, steps: FloatArray) -> FloatArray:
        """Return an upper bound of the probability of at most so many steps.

        Its weights fall on both sides of 0, so that their sum over whole numbers is at most the
        largest one plus their integral; and the sum of all is at least their integral (Canonne,
        Kamath and Steinke 2020, Fact 18).
        """
        integral = special.erf(steps / (self.scale * np.sqrt(2)))
        return np.asarray(np.minimum(1.0, integral + 1 / (self.scale * np.sqrt(2 * np.pi))))

    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return an upper bound of the probability of so many steps up, or more.

        The mean of exp(t Z) is at most that of Gaussian noise of the same scale, since Gaussian
        weights on whole numbers add up to most where the peak is on one of them (Canonne, Kamath
        and Steinke 2020); so the bound of Chernoff holds for it, too.
        """
        return np.asarray(np.exp(-((steps / self.scale) ** 2) / 2))
