"""Gaussian noise of one scale on the label sum of every bag, then divided by its size."""

import math
from typing import ClassVar, Self

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.dispersion import (
    ClaimedNoise,
    discrete_gaussian_beyond,
    discrete_gaussian_within,
)
from bagwise.privacy.mechanisms.bag_means import MeansBudget, mean_noise_sd
from bagwise.privacy.mechanisms.gaussian import GaussianNoise, root_steps
from bagwise.privacy.mechanisms.gaussian_labels import allows_root
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.privacy.noise_laws import GaussianLaw
from bagwise.rows.labels import Bounds


class GaussianBagMeans(GaussianNoise, frozen=True, tag="gaussian-bag-means"):
    """Gaussian noise on bag sums.

    Sensitivity: bags are disjoint, so the labels of a unit move the vector of all sums by the width
    of the bounds times the root of the sum over bags of its squared rows there; a row that changes
    its class moves two counts, root 2 in length.
    """

    hides: ClassVar[Hides] = "bag means"
    noise: ClassVar[str] = "gaussian"
    needs_delta: ClassVar[bool] = True

    @classmethod
    def for_budget(cls, budget: MeansBudget) -> Self | None:
        """Return the noise that what is left of mu allows."""
        if budget.mu is None:
            return None
        return cls.calibrated(shift=root_steps(budget.square), mu=budget.mu, step=budget.step)

    @property
    def sum_sd(self) -> float:
        """The standard deviation of the noise on the sum of a bag."""
        return self.noise_scale

    @property
    def law(self) -> GaussianLaw:
        """The distribution of the noise, for whoever learns from the means."""
        return GaussianLaw()

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the mean of a bag of each size."""
        return mean_noise_sd(self, sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each mean, for a test of its absence."""
        return ClaimedNoise(
            sizes / self.grid_step,
            lambda steps: discrete_gaussian_within(steps, self.scale),
            lambda steps: discrete_gaussian_beyond(steps, self.scale),
        )

    def suits_classes(self, classes: int | None) -> bool:
        """Shares of classes need noise for two counts that change."""
        return classes is None or self.sensitivity >= math.sqrt(2)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Rows of a unit in different bags move the sums by the root of their number."""
        return allows_root(self, rows, bounds)
