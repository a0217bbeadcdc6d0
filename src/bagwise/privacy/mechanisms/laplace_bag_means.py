"""Laplace noise of one scale on the label sum of every bag, then divided by its size."""

from typing import ClassVar, Self

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.dispersion import (
    ClaimedNoise,
    discrete_laplace_beyond,
    discrete_laplace_within,
)
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.mechanisms.bag_means import MeansBudget, mean_noise_sd
from bagwise.privacy.mechanisms.laplace import LaplaceNoise, allows_rows
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.privacy.noise_laws import LaplaceLaw
from bagwise.rows.labels import Bounds


class LaplaceBagMeans(LaplaceNoise, frozen=True, tag="laplace-bag-means"):
    """Laplace noise on bag sums.

    Sensitivity: in L1 the r labels of a unit move the sums by r times the width of the bounds,
    however they are spread over bags; a row that changes its class moves two counts by one.
    """

    hides: ClassVar[Hides] = "bag means"
    noise: ClassVar[str] = "laplace"
    needs_delta: ClassVar[bool] = False

    @classmethod
    def for_budget(cls, budget: MeansBudget) -> Self:
        """Return the noise that what is left of epsilon allows; it needs no delta."""
        return cls.calibrated(
            shift=LABEL_STEPS * budget.rows, epsilon=budget.epsilon, step=budget.step
        )

    @property
    def sum_sd(self) -> float:
        """The standard deviation of the noise on the sum of a bag."""
        return self.number_sd

    @property
    def law(self) -> LaplaceLaw:
        """The distribution of the noise, for whoever learns from the means."""
        return LaplaceLaw()

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the mean of a bag of each size."""
        return mean_noise_sd(self, sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each mean, for a test of its absence."""
        return ClaimedNoise(
            sizes / self.grid_step,
            lambda steps: discrete_laplace_within(steps, self.scale),
            lambda steps: discrete_laplace_beyond(steps, self.scale),
        )

    def suits_classes(self, classes: int | None) -> bool:
        """Shares of classes need noise for two counts that change."""
        return classes is None or self.sensitivity >= 2.0

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Each row of a unit counts in full."""
        return allows_rows(self, rows, bounds)
