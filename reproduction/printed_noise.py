"""The paper's privacy noise as it is printed, for experiments that show what it is worth.

A release made with `PrintedCalibration` says NOT PRIVATE and carries its true epsilon. Tests and
benchmarks of the package use it too: as noise that is known to be too small.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bagwise.errors import BudgetError
from bagwise.privacy.calibrate import ScoreNoise
from bagwise.privacy.grid import grid_step
from bagwise.privacy.laws import Gaussian
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import BagMeans, BagPicks, Labels
from bagwise.rows.labels import Bounds


def printed_label_noise(*, R: float, epsilon: float, delta: float) -> float:
    """Return the noise on every label in the private algorithms, claimed (epsilon/2, delta/2).

    References
    ----------
    Thm 4 (thm:instance-mir-loss-priv): ``alpha^2 = 16 R^2 log(2.5 / delta) / epsilon^2``. Status:
    false, E1: the range of a label is 2R, so that the variance is short by a factor of 2.
    """
    return 4 * R * math.sqrt(math.log(2.5 / delta)) / epsilon


def printed_sum_noise(*, R: float, epsilon: float, delta: float) -> float:
    """Return the noise on the sum of a bag's labels, claimed (epsilon, delta).

    References
    ----------
    Thm 5 (thm:bag-llp-loss-priv): ``alpha^2 = 4 R^2 log(1.25 / delta) / epsilon^2``. Status: false,
    E1.
    """
    return 2 * R * math.sqrt(math.log(1.25 / delta)) / epsilon


@dataclass(frozen=True)
class PrintedCalibration:
    """Noise by the printed constants: `printed_label_noise` on labels, divided by size on picks.

    References
    ----------
    Thms 4 and 5. Status: false, E1 and E2.
    """

    is_exact: ClassVar[bool] = False

    epsilon: float
    delta: float
    bounds: Bounds
    prior: tuple[Mechanism, ...] = ()

    @property
    def _radius(self) -> float:
        return (self.bounds[1] - self.bounds[0]) / 2

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """Return Gaussian: the paper has no other."""
        return ("gaussian",)

    def labels(self, *, share: float = 0.5, square: int = 1) -> Mechanism:
        """Return the printed noise on labels; the paper knows no other split than half."""
        del share
        step = grid_step(self.bounds)
        return Mechanism(Labels(step, square), (_on_grid(self._label_noise(), step),))

    def model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Refuse: the paper has no private model."""
        del share, sensitivity_steps
        raise BudgetError("the paper prints no noise for a private model.")

    def laplace_model(self, *, share: float, sensitivity_steps: int) -> Mechanism:
        """Refuse: the paper has no private model."""
        del share, sensitivity_steps
        raise BudgetError("the paper prints no noise for a private model.")

    def bag_means(
        self,
        *,
        square: int = 1,
        rows: int = 1,
        numbers: int | None = None,
        spent: Sequence[Mechanism] = (),
    ) -> Mechanism:
        """Return the printed noise on bag sums."""
        del spent
        noise = printed_sum_noise(R=self._radius, epsilon=self.epsilon, delta=self.delta)
        step, together = grid_step(self.bounds), (rows if numbers is None else numbers) == 1
        query = BagMeans(step, rows, max(square, rows), together)
        return Mechanism(query, (_on_grid(noise, step),))

    def shares(self, *, square: int = 1, rows: int = 1) -> Mechanism:
        """Refuse: the paper has no classes."""
        del square, rows
        raise BudgetError("the paper prints no noise for classes.")

    def picks(
        self,
        *,
        sizes: Iterable[int],
        rows: int = 1,
        spent: Sequence[Mechanism] = (),
        smallest: int | None = None,
    ) -> Mechanism:
        """Return the printed noise on picks: that on labels, divided by the size of the bag."""
        del spent, smallest
        step, alpha, every = grid_step(self.bounds), self._label_noise(), sorted(set(sizes))
        laws = tuple(_on_grid(alpha / size, step) for size in every)
        return Mechanism(BagPicks(tuple(every), rows, step), laws)

    def class_picks(self, *, classes: int, sizes: Iterable[int], rows: int = 1) -> Mechanism:
        """Refuse: the paper has no classes."""
        del classes, sizes, rows
        raise BudgetError("the paper prints no noise for classes.")

    def per_row(self, rows: int) -> "PrintedCalibration":
        """Return itself: the paper does not consider groups."""
        del rows
        return self

    def _label_noise(self) -> float:
        return printed_label_noise(R=self._radius, epsilon=self.epsilon, delta=self.delta)


def _on_grid(noise: float, step: float) -> Gaussian:
    return Gaussian(max(1, round(noise / step)))
