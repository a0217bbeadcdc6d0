"""One label of each bag, drawn in secret, plus Gaussian noise that depends on the bag's size."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import composed_pick_mu
from bagwise.privacy.dispersion import (
    ClaimedNoise,
    discrete_gaussian_beyond,
    discrete_gaussian_within,
)
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import Curve, GaussianCurve, PickCurve
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.privacy.mechanisms.picks import NoisyPicks
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.samplers import discrete_gaussian
from bagwise.rng import NoiseSource

_DELTA_SHARE = 0.01  # of 1/size; near 1/size the noise vanishes and delta shows a label


class PickedLabels(NoisyPicks, frozen=True, tag="picked-labels"):
    """One label of each bag with Gaussian noise.

    Curve: a label that is shown with probability 1/k costs ``G(log(1 + k (e^epsilon - 1))) / k``
    (P1 on the theory page). Several rows of a unit are covered by the general bound for groups.
    """

    hides: ClassVar[Hides] = "bag picks"
    noise: ClassVar[str] = "gaussian"

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,
        mu_scores: float,
        sizes: Sequence[int],
        step: float,
        rows: int,
        alike: bool,
    ) -> Self:
        """Return noise for bags of each size, by row, after scores that cost `mu_scores`.

        Where bags may depend on scores (`alike`), every size gets the noise of the first one.
        """
        scales = []
        for size in sizes[:1] if alike else sizes:
            if delta > _DELTA_SHARE / size:
                raise BudgetError(
                    f"delta = {delta:g} is too large for picked labels from bags of {size}: such "
                    f"noise would lean on delta instead of epsilon. Choose delta <= "
                    f"{_DELTA_SHARE / size:g}, or label_kind='mean'."
                )
            mu = composed_pick_mu(epsilon, delta, mu_scores, size)
            scales.append((size, whole_scale(LABEL_STEPS / mu) * step))
        if alike:
            scales = [(size, scales[0][1]) for size in sizes]
        return cls(LABEL_STEPS * step, tuple(scales), step, rows)

    @property
    def pure_epsilon(self) -> None:
        """None: without a delta it promises nothing."""
        return None

    def size_curve(self, size: int, scale: int) -> Curve:
        """P1."""
        return PickCurve(GaussianCurve(self.shift / scale), size)

    @cached_property
    def extremes(self) -> tuple[float, int]:
        """The largest mu and the smallest size: bounds of the curve of every size at once."""
        mu = max(self.sensitivity / scale for _, scale in self.scales)
        return mu, min(size for size, _ in self.scales)

    def draw_noise(self, count: int, scale: int, source: NoiseSource) -> IntArray:
        """Draw noise of this scale, in grid steps."""
        return discrete_gaussian(count, scale=scale, source=source)

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on a bag of each size; NaN if it has none."""
        return self.scales_of(sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each label, for a test of its absence."""
        scales = self.scales_of(sizes) / self.grid_step
        steps_per_unit = np.full(sizes.size, 1 / self.grid_step)
        return ClaimedNoise(
            steps_per_unit,
            lambda steps: discrete_gaussian_within(steps, scales),
            lambda steps: discrete_gaussian_beyond(steps, scales),
        )

    def exported(self, google: Any) -> list[Any]:
        """Return it as events of dp-accounting, one for each size."""
        return [
            google.MixtureOfGaussiansDpEvent(
                scale / self.sensitivity, [0.0, 1.0], [1 - 1 / size, 1 / size]
            )
            for size, scale in self.scales
        ]
