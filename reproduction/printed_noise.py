"""The paper's privacy noise as it is printed, for experiments that show what it is worth.

No release of bagwise can be made with `PrintedCalibration`. Tests and benchmarks of the package use
it too: as noise that is known to be too small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bagwise.errors import BudgetError
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.laws import Gaussian
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import BagMeans, BagPicks, ClassShares, Labels, Query


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
class PrintedCalibration(ExactCalibration):
    """Noise by the printed constants: `printed_label_noise` on labels, divided by size on picks.

    References
    ----------
    Thms 4 and 5. Status: false, E1 and E2.
    """

    @property
    def _radius(self) -> float:
        return (self.bounds[1] - self.bounds[0]) / 2

    @property
    def score_noises(self) -> tuple[ScoreNoise, ...]:
        """Return Gaussian: the paper has no other."""
        return ("gaussian",)

    def part(self, query: Query, noise: ScoreNoise, share: float) -> Mechanism:
        """Return the printed noise on labels; the paper knows no other split than half."""
        del noise, share
        if not isinstance(query, Labels):
            raise BudgetError("the paper prints no noise for a private model.")
        return Mechanism(query, (_on_grid(self._label_noise(), query.grid_step),))

    def least(
        self,
        query: Query,
        spent: Sequence[Mechanism] = (),
        *,
        counts: Mapping[int, int] | None = None,
        classes: int = 0,
    ) -> Mechanism:
        """Return the printed noise on bag sums; on picks that on labels, divided by the size."""
        del spent, counts, classes
        if isinstance(query, BagPicks):
            alpha = self._label_noise()
            laws = tuple(_on_grid(alpha / size, query.grid_step) for size in query.sizes)
            return Mechanism(query, laws)
        if isinstance(query, ClassShares) or not isinstance(query, BagMeans):
            raise BudgetError(f"the paper prints no noise for {query.hides}.")
        noise = printed_sum_noise(R=self._radius, epsilon=self.epsilon, delta=self.delta)
        return Mechanism(query, (_on_grid(noise, query.grid_step),))

    def per_row(self, rows: int) -> "PrintedCalibration":
        """Return itself: the paper does not consider groups."""
        del rows
        return self

    def _label_noise(self) -> float:
        return printed_label_noise(R=self._radius, epsilon=self.epsilon, delta=self.delta)


def _on_grid(noise: float, step: float) -> Gaussian:
    return Gaussian(max(1, round(noise / step)))
