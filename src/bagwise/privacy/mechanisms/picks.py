"""What mechanisms share that show one label of each bag, with noise by the bag's size."""

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, Protocol, Self

import msgspec
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.loss_distributions import Curve, GroupCurve, WorstCurve
from bagwise.privacy.mechanisms.mechanism import (
    HidesBagLabels,
    Mechanism,
    Tagged,
    are_sizes,
    check_on_grid,
    impossible,
)
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


class HidesPicks(Mechanism, HidesBagLabels, Protocol):
    """Noise on one label of each bag, by the size of the bag."""

    noise: ClassVar[str]

    @property
    def sensitivity(self) -> float:
        """How far one label moves what is hidden."""

    @property
    def scales(self) -> tuple[tuple[int, float], ...]:
        """The scale of the noise for each size of bag."""

    @property
    def grid_step(self) -> float:
        """The grid that labels and noise are on."""

    def draw(self, sizes: IntArray, source: NoiseSource) -> IntArray:
        """Draw noise for bags of these sizes, in grid steps."""


class NoisyPicks(Tagged, frozen=True, kw_only=False, dict=True):
    """One noisy label of each bag.

    A label is in one bag only, so all bags together cost what the worst one costs.

    Attributes
    ----------
    scales : tuple of (size, noise_scale)
        The noise of a bag of each size that occurs.
    rows : int
        Rows of a protected unit.
    """

    sensitivity: float
    scales: tuple[tuple[int, float], ...]
    grid_step: float
    rows: int = 1

    @property
    def shift(self) -> int:
        """The sensitivity in grid steps."""
        return round(self.sensitivity / self.grid_step)

    @abstractmethod
    def size_curve(self, size: int, scale: int) -> Curve:
        """Return the curve of one row in a bag of this size, with noise of so many steps."""

    @abstractmethod
    def draw_noise(self, count: int, scale: int, source: NoiseSource) -> IntArray:
        """Draw noise of this scale, in grid steps."""

    @property
    def bag_sizes(self) -> list[int]:
        """The sizes of bags that it lists."""
        return [size for size, _ in self.scales]

    @cached_property
    def curve(self) -> Curve:
        """The curve of the worst size, for all rows of a unit."""
        one = self.row_curve
        return one if self.rows == 1 else GroupCurve(one, self.rows)

    @cached_property
    def row_curve(self) -> Curve:
        """The curve of the worst size, for one row."""
        each = [self.size_curve(k, round(s / self.grid_step)) for k, s in self.scales]
        return each[0] if len(each) == 1 else WorstCurve(tuple(each))

    def draw(self, sizes: IntArray, source: NoiseSource) -> IntArray:
        """Draw noise for bags of these sizes, in grid steps."""
        noise = np.zeros(sizes.size, dtype=np.int64)
        for size, noise_scale in self.scales:
            here = np.flatnonzero(sizes == size)
            noise[here] = self.draw_noise(here.size, round(noise_scale / self.grid_step), source)
        return noise

    def scales_of(self, sizes: IntArray) -> FloatArray:
        """Return the noise scale of a bag of each size; NaN for a size that has none."""
        scales = dict(self.scales)
        return np.array([scales.get(size, np.nan) for size in sizes.tolist()])

    def suits_classes(self, classes: int | None) -> bool:
        """Classes are no numbers."""
        return classes is None

    def widened(self, rows: int) -> Self:
        """Return what it amounts to for `rows` units, by the bound for groups."""
        return msgspec.structs.replace(self, rows=self.rows * rows)

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no release within these bounds could have."""
        if not are_sizes(self.bag_sizes, self.rows):
            raise impossible(self.kind)
        scales = [scale for _, scale in self.scales]
        check_on_grid(self.kind, bounds, self.grid_step, self.sensitivity, scales)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the rows that it names."""
        return self.rows >= rows
