"""One label of each bag, drawn in secret, plus Gaussian noise that depends on the bag's size."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.data.labels import Bounds
from bagwise.errors import BudgetError
from bagwise.privacy.curves import composed_pick_mu
from bagwise.privacy.dispersion import ClaimedNoise, discrete_gaussian_within
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import (
    Curve,
    GaussianCurve,
    GroupCurve,
    PickCurve,
    WorstCurve,
)
from bagwise.privacy.mechanisms.mechanism import (
    Hides,
    Tagged,
    are_sizes,
    check_on_grid,
    impossible,
)
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.samplers import discrete_gaussian
from bagwise.rng import NoiseSource

_DELTA_SHARE = 0.01  # of 1/size; near 1/size the noise vanishes and delta shows a label


class PickedLabels(Tagged, frozen=True, tag="picked-labels", kw_only=False):
    """One noisy label of each bag.

    Curve: a label that is shown with probability 1/k costs ``G(log(1 + k (e^epsilon - 1))) / k``
    (P1 on the theory page). A label is in one bag only, so all bags together cost what the worst
    one costs. Several rows of a unit are covered by the general bound for groups.

    Attributes
    ----------
    scales : tuple of (size, noise_scale)
        The noise of a bag of each size that occurs.
    rows : int
        Rows of a protected unit.
    """

    hides: ClassVar[Hides] = "bag picks"

    sensitivity: float
    scales: tuple[tuple[int, float], ...]
    grid_step: float
    rows: int = 1

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

    @property
    def curve(self) -> Curve:
        """P1 of the worst size, for all rows of a unit."""
        one = self.row_curve
        return one if self.rows == 1 else GroupCurve(one, self.rows)

    @property
    def row_curve(self) -> Curve:
        """P1 of the worst size, for one row."""
        picks = [PickCurve(GaussianCurve(self.sensitivity / s), k) for k, s in self.scales]
        return picks[0] if len(picks) == 1 else WorstCurve(tuple(picks))

    @property
    def extremes(self) -> tuple[float, int]:
        """The largest mu and the smallest size: bounds of the curve of every size at once."""
        mu = max(self.sensitivity / scale for _, scale in self.scales)
        return mu, min(size for size, _ in self.scales)

    def draw(self, sizes: IntArray, source: NoiseSource) -> IntArray:
        """Draw noise for bags of these sizes, in grid steps."""
        noise = np.zeros(sizes.size, dtype=np.int64)
        for size, noise_scale in self.scales:
            here = np.flatnonzero(sizes == size)
            scale = round(noise_scale / self.grid_step)
            noise[here] = discrete_gaussian(here.size, scale=scale, source=source)
        return noise

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on a bag of each size; NaN if it has none."""
        scales = dict(self.scales)
        return np.array([scales.get(size, np.nan) for size in sizes.tolist()])

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each label, for a test of its absence."""
        scales = self.noise_sd(sizes) / self.grid_step
        steps_per_unit = np.full(sizes.size, 1 / self.grid_step)
        return ClaimedNoise(steps_per_unit, lambda steps: discrete_gaussian_within(steps, scales))

    def suits_classes(self, classes: int | None) -> bool:
        """Classes are no numbers."""
        return classes is None

    def widened(self, rows: int) -> "PickedLabels":
        """Return what it amounts to for `rows` units, by the bound for groups."""
        return msgspec.structs.replace(self, rows=self.rows * rows)

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no release within these bounds could have."""
        if not are_sizes([size for size, _ in self.scales], self.rows):
            raise impossible(self.kind)
        scales = [scale for _, scale in self.scales]
        check_on_grid(self.kind, bounds, self.grid_step, self.sensitivity, scales)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the rows that it names."""
        return self.rows >= rows

    def exported(self, google: Any) -> list[Any]:
        """Return it as events of dp-accounting, one for each size."""
        return [
            google.MixtureOfGaussiansDpEvent(
                scale / self.sensitivity, [0.0, 1.0], [1 - 1 / size, 1 / size]
            )
            for size, scale in self.scales
        ]
