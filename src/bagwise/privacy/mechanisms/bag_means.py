"""What mechanisms for the label sums of bags share, and what they are chosen by."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.mechanisms.mechanism import DrawsNoise, HidesBagLabels, Mechanism
from bagwise.privacy.noise_laws import NoiseLaw


@dataclass(frozen=True)
class MeansBudget:
    """What noise on bag sums may cost, and how far a protected unit moves them.

    Attributes
    ----------
    epsilon : Fraction
        What a mechanism that needs no delta may cost.
    mu : float or None
        What is left for Gaussian noise; None where there is no delta for it, or nothing left.
    step : float
        The grid.
    square : int
        Sum over bags of the squared number of a unit's rows in each, at most.
    rows : int
        Rows of a unit, at most; a class that changes counts for two.
    numbers : int
        Bag sums that the labels of one unit move at once, at most.
    """

    epsilon: Fraction
    mu: float | None
    step: float
    square: int
    rows: int
    numbers: int


@runtime_checkable
class HidesBagMeans(Mechanism, HidesBagLabels, DrawsNoise, Protocol):
    """Noise of one scale on the label sum of every bag, which is then divided by its size."""

    noise: ClassVar[str]
    needs_delta: ClassVar[bool]

    @property
    def sensitivity(self) -> float:
        """How far a protected unit moves the sums."""

    @property
    def noise_scale(self) -> float:
        """The scale of the noise on a sum."""

    @property
    def shift(self) -> int:
        """The sensitivity in grid steps."""

    @property
    def grid_step(self) -> float:
        """The grid that sums and noise are on."""

    @property
    def sum_sd(self) -> float:
        """The standard deviation of the noise on the sum of a bag."""

    @property
    def law(self) -> NoiseLaw:
        """The distribution of the noise, for whoever learns from the means."""

    def on_grid(self, step: float) -> Self:
        """Return the same noise in the same number of steps, of another width."""

    @classmethod
    def for_budget(cls, budget: MeansBudget) -> Self | None:
        """Return the least noise that the budget allows; None if it allows none of this kind."""


def mean_noise_sd(mechanism: HidesBagMeans, sizes: IntArray) -> FloatArray:
    """Return the standard deviation of the noise on the mean of a bag of each size."""
    return mechanism.sum_sd / np.asarray(sizes)
