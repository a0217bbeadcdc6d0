"""Gaussian noise, whatever it hides.

Curve: the exact one, G, of mu = sensitivity / scale (Balle and Wang 2018, Theorem 8), in L2. The
noise is a discrete Gaussian. With at least hundreds of steps in its scale its curve agrees with the
continuous one's to about seven digits; the tests measure the gap. Several compose exactly:
``mu = hypot(mu_1, mu_2, …)`` (Dong, Roth and Su 2022, Corollary 3.3).
"""

import math
from typing import Any, Self

from bagwise._types import IntArray
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import GaussianCurve
from bagwise.privacy.mechanisms.mechanism import OneScale
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.samplers import discrete_gaussian
from bagwise.rng import NoiseSource


class GaussianNoise(OneScale, frozen=True):
    """Discrete Gaussian noise; `noise_scale` is its standard deviation."""

    @classmethod
    def calibrated(cls, *, shift: int, mu: float, step: float) -> Self:
        """Return the least noise that makes a move by `shift` steps cost `mu`."""
        return cls(shift * step, whole_scale(shift / mu) * step, step)

    @property
    def pure_epsilon(self) -> None:
        """None: without a delta it promises nothing."""
        return None

    @property
    def number_sd(self) -> float:
        """The standard deviation of the noise on each number that is hidden."""
        return self.noise_scale

    @property
    def curve(self) -> GaussianCurve:
        """G."""
        return GaussianCurve(self.sensitivity / self.noise_scale)

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, in grid steps."""
        return discrete_gaussian(count, scale=self.scale, source=source)

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting."""
        return [google.GaussianDpEvent(self.noise_scale / self.sensitivity)]


def root_steps(square: int) -> int:
    """Return the root of a square, in label steps, rounded up in integers: no float ends below."""
    return math.isqrt(LABEL_STEPS**2 * square - 1) + 1
