"""Staircase noise of one shape on the label sum of every bag, then divided by its size.

The noise of least variance that needs no delta, for one number that moves by at most D (Geng and
Viswanath 2016, Theorem 7). Its chances do not fall from step to step as those of Laplace noise do,
but once in every D steps, by the whole factor ``b = exp(-epsilon)`` that one move may cost. On
whole numbers z, with ``|z| = j D + r`` and ``0 <= r < D``,

    P(z) proportional to  b^j      where r < inner,
                          b^(j+1)  elsewhere.

**Why one move costs epsilon.** Write P(z) as a constant times b^l(z). The level l is
``floor((|z| + D - inner) / D)``: for ``r < inner`` the fraction is below j + 1, else from j + 1 on.
A move by ``d <= D`` changes |z| by at most D, hence the fraction by at most 1, and its floor by at
most 1. So the chance of anything changes by a factor of at most ``1 / b = exp(epsilon)``.

**Several numbers that move.** Levels do not add up. If two sums move by half of D each, each of
them may cross a step, and the chance changes by ``1 / b^2``: the whole cost for each, where Laplace
noise would ask for half of it. So where the labels of a unit move several sums, or a row changes
its class and moves two counts, D is one label and the cost is divided by the number of labels: r
labels are replaced one after the other, wherever they are, and each changes one level by at most 1.
That is Laplace noise of the same scale with a staircase of ``epsilon / r``, worth it if epsilon is
large. Where all of a unit's labels are in one bag, D is all of them and nothing is divided.

**The curve** is exact. The loss of a move is -epsilon, 0 or epsilon. With a the chance of the
latter,

    delta(t) = a (1 - exp(t - epsilon))    for 0 <= t < epsilon, and 0 from there on.

At t = 0 that is the distance in total variation between the noise and the noise moved by d. The
chances are even, and never rise with |z|, so that ``P(z) >= P(z - d)`` exactly where
``z <= d / 2``, or both are equal: the distance is the mass of d whole numbers around 0. It grows
with d, so the largest move is the worst one, and ``a (1 - b)`` is the mass of the D numbers around
0. Randomised response has ``a = 1 / (1 + b)``, the most that anything can have.

References
----------
Geng and Viswanath (2016), The optimal noise-adding mechanism in differential privacy, IEEE
Transactions on Information Theory 62(2): the staircase, its optimality, and the continuous optimum
of its inner width, Theorem 7. Sums over whole numbers in place of their integrals are ours.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.dispersion import ClaimedNoise
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import Curve, GroupCurve
from bagwise.privacy.mechanisms.bag_means import MeansBudget, mean_noise_sd
from bagwise.privacy.mechanisms.mechanism import LARGEST_COUNT, Hides, OneScale, impossible
from bagwise.privacy.mechanisms.randomised_response import exported_coin
from bagwise.privacy.mechanisms.scales import whole_scale
from bagwise.privacy.noise_laws import StaircaseLaw
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_staircase
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


@dataclass(frozen=True)
class Staircase:
    """The distribution on whole numbers, by what can be summed in closed form.

    Attributes
    ----------
    shift : int
        D, the largest move, and the width of a step.
    scale : int
        ``exp(-shift / scale)`` is what a step falls by.
    inner : int
        The numbers 0, 1, …, inner - 1 are on the highest step, and their negatives.
    """

    shift: int
    scale: int
    inner: int

    @cached_property
    def fall(self) -> float:
        """What a step falls by: b."""
        return math.exp(-self.shift / self.scale)

    @cached_property
    def _drop(self) -> float:
        """1 - b."""
        return -math.expm1(-self.shift / self.scale)

    @cached_property
    def top(self) -> float:
        """The chance of 0, and of everything else on the highest step."""
        # Periods of D numbers from 0 on are a geometric series; both sides have 0 in common.
        side = (self.inner + (self.shift - self.inner) * self.fall) / self._drop
        return 1 / (2 * side - 1)

    @property
    def variance(self) -> float:
        """The sum of ``z^2 P(z)``, exactly, as moments of j and of r.

        >>> laplace = 2 * math.exp(-1 / 1000) / math.expm1(-1 / 1000) ** 2
        >>> round(Staircase(4000, 1000, best_inner(4000, 1000)).variance / laplace, 3)
        0.52
        """
        b, drop = self.fall, self._drop
        zeroth = self.inner + (self.shift - self.inner) * b
        first = _sum_below(self.inner) * (1 - b) + b * _sum_below(self.shift)
        second = _squares_below(self.inner) * (1 - b) + b * _squares_below(self.shift)
        # Sums over j of b^j, j b^j and j^2 b^j.
        by_square = self.shift**2 * b * (1 + b) / drop**3
        side = by_square * zeroth + 2 * self.shift * b / drop**2 * first + second / drop
        return 2 * self.top * side

    @cached_property
    def exceeding(self) -> float:
        """The chance that a move by D costs the whole epsilon: a."""
        highest = min(self.shift, 2 * self.inner - 1)
        middle = highest + (self.shift - highest) * self.fall  # D numbers are on two steps at most
        return self.top * middle / self._drop

    def within(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is at most so many steps, exactly.

        >>> stairs = Staircase(5, 4, 2)
        >>> bool(np.isclose(stairs.within(np.array([0.0]))[0], stairs.top))
        True
        """
        chance: FloatArray = 1 - 2 * self.beyond(np.floor(steps) + 1)
        return chance

    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is so many whole steps up, from 1 on, or more."""
        periods, rest = np.divmod(steps, float(self.shift))
        higher = np.maximum(0.0, self.inner - rest)
        lower = self.shift - np.maximum(rest, float(self.inner))
        whole = (self.inner + (self.shift - self.inner) * self.fall) * self.fall / self._drop
        chance: FloatArray = (
            self.top
            * np.exp(-periods * (self.shift / self.scale))
            * (higher + lower * self.fall + whole)
        )
        return chance


@dataclass(frozen=True)
class StaircaseCurve:
    """Staircase noise on a number that moves by `shift` at most; the module has the proof."""

    shift: int
    scale: int
    inner: int

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        exceeding = Staircase(self.shift, self.scale, self.inner).exceeding
        return exceeding * np.maximum(0.0, -np.expm1(epsilon - self.shift / self.scale))


def best_inner(shift: int, scale: int) -> int:
    """Return the width of the highest step that makes the variance least.

    Theorem 7 of Geng and Viswanath has the optimum for real numbers,
    ``((b (1 + b) / 2)^(1/3) - b) / (1 - b)`` of the shift; whole numbers have theirs next to it.

    >>> round(best_inner(2**18, 2**18) / 2**18, 3)
    0.417
    """

    def variance(inner: int) -> float:
        return Staircase(shift, scale, inner).variance

    b = math.exp(-shift / scale)
    share = (math.cbrt(b * (1 + b) / 2) - b) / -math.expm1(-shift / scale)
    inner = min(shift, max(1, round(shift * share + 0.5)))
    for step in (-1, 1):
        while 1 <= inner + step <= shift and variance(inner + step) < variance(inner):
            inner += step
    return inner


class StaircaseBagMeans(OneScale, frozen=True, tag="staircase-bag-means", kw_only=False):
    """Staircase noise on bag sums.

    Sensitivity: what moves one sum by `sensitivity` at most costs ``sensitivity / noise_scale``,
    and no delta. If the labels of a unit are all in one bag, that is their number times the width
    of the bounds; else it is the width, and the labels count one by one, as `units`.

    Attributes
    ----------
    inner : int
        Width of the highest step on either side, in grid steps.
    units : int
        Moves by `sensitivity` that are allowed for together, each in a bag of its own or not.
    """

    hides: ClassVar[Hides] = "bag means"
    noise: ClassVar[str] = "staircase"
    needs_delta: ClassVar[bool] = False

    inner: int
    units: int = 1

    @classmethod
    def for_budget(cls, budget: MeansBudget) -> Self | None:
        """Return the noise that what is left of epsilon allows."""
        together = budget.numbers == 1
        shift, units = (
            LABEL_STEPS * (budget.rows if together else 1),
            1 if together else budget.rows,
        )
        if shift > LARGEST_SCALE:
            return None
        # In fractions, as for Laplace noise.
        scale = whole_scale(units * shift / budget.epsilon, largest=LARGEST_SCALE)
        inner = best_inner(shift, scale)
        return cls(shift * budget.step, scale * budget.step, budget.step, inner, units)

    @property
    def distribution(self) -> Staircase:
        """What is drawn, in grid steps."""
        return Staircase(self.shift, self.scale, self.inner)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs, without a delta."""
        return Fraction(self.units * self.shift, self.scale)

    @property
    def curve(self) -> Curve:
        """The exact curve; for several units together the general bound for groups."""
        one = StaircaseCurve(self.shift, self.scale, self.inner)
        return one if self.units == 1 else GroupCurve(one, self.units)

    @property
    def sum_sd(self) -> float:
        """The standard deviation of the noise on the sum of a bag."""
        return math.sqrt(self.distribution.variance) * self.grid_step

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, in grid steps."""
        return discrete_staircase(
            count, shift=self.shift, scale=self.scale, inner=self.inner, source=source
        )

    @property
    def law(self) -> StaircaseLaw:
        """The distribution of the noise, for whoever learns from the means."""
        return StaircaseLaw(self.shift / self.scale, self.inner / self.shift)

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the mean of a bag of each size."""
        return mean_noise_sd(self, sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise:
        """Return the noise on each mean, for a test of its absence."""
        stairs = self.distribution
        return ClaimedNoise(sizes / self.grid_step, stairs.within, stairs.beyond)

    def suits_classes(self, classes: int | None) -> bool:
        """Shares of classes need noise for two counts that change, each a move of its own."""
        return classes is None or self.units >= 2

    def widened(self, rows: int) -> Self:
        """Return what it amounts to for `rows` units.

        A larger shift would be another staircase; and units may be in different bags.
        """
        return msgspec.structs.replace(self, units=self.units * rows)

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no release within these bounds could have."""
        super().check(bounds)
        counted = 1 <= self.units <= LARGEST_COUNT
        if not counted or not 1 <= self.inner <= self.shift <= LARGEST_SCALE:
            raise impossible(self.kind)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Each row of a unit counts in full. That all are in one bag is for the release to know."""
        if bounds is None:
            return False
        allowed = self.units * self.sensitivity
        return allowed >= rows * (bounds[1] - bounds[0]) * (1 - 1e-9)

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting, which has no staircase: as the worst of its cost.

        Its delta is larger by ``1 / (a (1 + b))``, and 0 from the same epsilon on.
        """
        return [exported_coin(float(self.pure_epsilon), google)]


def _sum_below(count: int) -> int:
    """Return 0 + 1 + … + (count - 1)."""
    return count * (count - 1) // 2


def _squares_below(count: int) -> int:
    """Return the sum of the squares of 0, 1, …, count - 1."""
    return (count - 1) * count * (2 * count - 1) // 6
