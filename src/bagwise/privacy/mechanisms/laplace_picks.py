"""One label of each bag, drawn in secret, plus Laplace noise that depends on the bag's size.

A label with Laplace noise of cost e is e-private without a delta. Picking its row in secret among k
brings that down to ``log(1 + (exp(e) - 1) / k)`` (LP on the theory page), and the other way round a
pick costs epsilon if its noise has ``e = log(1 + k (exp(epsilon) - 1))``.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.dispersion import (
    ClaimedNoise,
    discrete_laplace_beyond,
    discrete_laplace_within,
)
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import Curve, LaplaceCurve, PickCurve
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.privacy.mechanisms.picks import NoisyPicks
from bagwise.privacy.mechanisms.randomised_response import exported_coin
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_laplace
from bagwise.rng import NoiseSource

_UPWARDS = 1 + 2.0**-48
"""The logarithms of a cost are right to a few units in the last place; this is more than those."""


class LaplacePicks(NoisyPicks, frozen=True, tag="laplace-picks"):
    """One label of each bag with Laplace noise. It needs no delta.

    Curve: L at ``log(1 + k (e^epsilon - 1))``, divided by k; attained when all other labels of the
    bag are at one end of the bounds. Several rows of a unit are covered by the bound for groups.
    """

    hides: ClassVar[Hides] = "bag picks"
    noise: ClassVar[str] = "laplace"

    @classmethod
    def calibrated(
        cls, *, epsilon: float, sizes: Sequence[int], step: float, rows: int, alike: bool
    ) -> Self:
        """Return noise that costs `epsilon` for each row of a unit, for bags of each size.

        Where bags may depend on scores (`alike`), every size gets the noise of the first one.
        """
        scales = [
            (size, _least_scale(epsilon, size) * step) for size in (sizes[:1] if alike else sizes)
        ]
        if alike:
            scales = [(size, scales[0][1]) for size in sizes]
        return cls(LABEL_STEPS * step, tuple(scales), step, rows)

    @cached_property
    def row_epsilon(self) -> float:
        """What one row costs, without a delta; rounded up."""
        return max(
            _pick_epsilon(self.shift, round(scale / self.grid_step), size)
            for size, scale in self.scales
        )

    @property
    def pure_epsilon(self) -> Fraction:
        """What all rows of a unit cost together, without a delta."""
        return self.rows * Fraction(self.row_epsilon)

    def size_curve(self, size: int, scale: int) -> Curve:
        """P1 with L in the place of G."""
        return PickCurve(LaplaceCurve(self.shift, scale), size)

    def draw_noise(self, count: int, scale: int, source: NoiseSource) -> IntArray:
        """Draw noise of this scale, in grid steps."""
        return discrete_laplace(count, scale=scale, source=source)

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on a bag of each size; NaN if it has none."""
        return math.sqrt(2) * self.scales_of(sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each label, for a test of its absence."""
        scales = self.scales_of(sizes) / self.grid_step
        steps_per_unit = np.full(sizes.size, 1 / self.grid_step)
        return ClaimedNoise(
            steps_per_unit,
            lambda steps: discrete_laplace_within(steps, scales),
            lambda steps: discrete_laplace_beyond(steps, scales),
        )

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting, which has no such mixture: as the worst."""
        return [exported_coin(float(self.pure_epsilon), google)]


def _least_scale(epsilon: float, size: int) -> int:
    """Return the least whole scale, in grid steps, at which a pick costs `epsilon` at most."""
    inner = math.log1p(size * math.expm1(epsilon))
    if not inner > 0:
        raise BudgetError("so little epsilon leaves nothing of a picked label.")
    scale = whole_scale(LABEL_STEPS / inner, largest=LARGEST_SCALE)
    while _pick_epsilon(LABEL_STEPS, scale, size) > epsilon:
        scale += 1
    return scale


def _pick_epsilon(shift: int, scale: int, size: int) -> float:
    return math.log1p(math.expm1(shift / scale) / size) * _UPWARDS
