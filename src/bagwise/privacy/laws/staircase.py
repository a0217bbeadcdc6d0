"""Staircase noise: the smallest variance without a delta for one number that moves by at most D.

Its chances do not fall from step to step as those of Laplace noise do, but once in every D steps,
by the whole factor ``b = exp(-epsilon)`` that one move may cost (Geng and Viswanath 2016, Theorem
7). On whole numbers z, with ``|z| = j D + r`` and ``0 <= r < D``,

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
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtr

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import Curve, StepCurve, grouped
from bagwise.privacy.laws.law import Move, Noise, Norm, whole_scale
from bagwise.privacy.samplers import LARGEST_SCALE, discrete_staircase
from bagwise.rng import NoiseSource


class Staircase(Noise, frozen=True, dict=True, tag="staircase"):
    """The distribution on whole numbers, by what can be summed in closed form."""

    norm: ClassVar[Norm] = "number"

    shift: int  # D, the largest move, and the width of a step
    scale: int  # ``exp(-shift / scale)`` is what a step falls by
    inner: int  # the numbers 0, 1, …, inner - 1 are on the highest step, and their negatives

    @classmethod
    def least(cls, move: Move, cost: Fraction | float) -> Self:
        """Return the least noise with which a move costs this epsilon."""
        if move.steps > LARGEST_SCALE:
            raise BudgetError(
                "staircase noise cannot be drawn for so large a unit. Leave noise at 'auto'."
            )
        # In fractions, as for Laplace noise.
        scale = whole_scale(move.times * move.steps / cost, largest=LARGEST_SCALE)
        return cls(move.steps, scale, best_inner(move.steps, scale))

    def moves(self, move: Move) -> int:
        """Return how many moves by the width of a step a move is."""
        return move.times * -(-move.steps // self.shift)

    def curve(self, move: Move) -> Curve:
        """Return the exact curve; for several moves the general bound for groups."""
        return grouped(StepCurve(self.exceeding, self.shift / self.scale), self.moves(move))

    def pure_epsilon(self, move: Move) -> Fraction:
        """Return what a move costs."""
        return Fraction(self.moves(move) * self.shift, self.scale)

    def is_possible(self, move: Move) -> bool:
        """Tell whether it can be drawn, and was set for such moves."""
        fits = 1 <= self.inner <= self.shift <= LARGEST_SCALE and self.shift == move.steps
        return fits and 1 <= self.scale <= LARGEST_SCALE

    @property
    def sd(self) -> float:
        """The standard deviation, exactly."""
        return math.sqrt(self.variance)

    @cached_property
    def _shape(self) -> tuple[float, float, float]:
        """What a step costs, the share of the inner part, and a step's width, in deviations."""
        epsilon, inner = self.shift / self.scale, self.inner / self.shift
        levels = np.arange(max(3, math.ceil(40 / epsilon)))
        begin = np.concatenate([1.0 * levels, levels + inner])
        end = np.concatenate([levels + inner, levels + 1.0])
        height = np.exp(-epsilon * np.concatenate([levels, levels + 1.0]))
        mass = float((height * (end - begin)).sum())
        width = 1 / math.sqrt(float((height * (end**3 - begin**3)).sum()) / 3 / mass)
        return epsilon, inner, width

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log density and score, from the normal's integral over each step in reach.

        Steps are counted from the one that a residual lies on, and their heights are in units of
        its height, so that nothing vanishes far out.
        """
        epsilon, inner, width = self._shape
        fall, r = self.fall, np.abs(residual)
        here = np.floor(r / width)
        reach = _reach(epsilon, float(spread.max(initial=0.0)) / width)
        density, slope = np.zeros_like(r), np.zeros_like(r)
        edge = _Edge.at((r - (here - reach) * width) / spread)
        for away in range(-reach, reach + 1):
            level = here + away
            middle = level + np.where(level < 0, 1 - inner, inner)
            # Left of 0 steps rise: they are those of the other side, seen in a mirror.
            rising = np.exp(epsilon * np.where(level < 0, level + here, 0.0))
            first = np.where(level < 0, rising, fall**away)
            second = np.where(level < 0, rising / fall, fall ** (away + 1))
            for end, height in ((middle, first), (level + 1, second)):
                last, edge = edge, _Edge.at((r - end * width) / spread)
                density += height * last.between(edge)
                slope += height * (last.peak - edge.peak)
        density = np.maximum(density, 1e-300)
        score = -slope / (spread * math.sqrt(2 * np.pi) * density)
        # What all steps add up to where the highest has height 1, in widths.
        mass = 2 * (inner + (1 - inner) * fall) / (1 - fall)
        value = np.log(density) - epsilon * here - math.log(mass * width)
        return value, np.sign(residual) * score

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise, in grid steps."""
        return discrete_staircase(
            count, shift=self.shift, scale=self.scale, inner=self.inner, source=source
        )

    @cached_property
    def fall(self) -> float:
        """The factor by which each step is lower than the last: b."""
        return math.exp(-self.shift / self.scale)

    @cached_property
    def _drop(self) -> float:
        """The relative fall of each step: 1 - b."""
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
        """The probability that a move by D costs the whole epsilon: a."""
        highest = min(self.shift, 2 * self.inner - 1)
        middle = highest + (self.shift - highest) * self.fall  # D numbers are on two steps at most
        return self.top * middle / self._drop

    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is so many whole steps up, from 1 on, or more, exactly.

        >>> stairs = Staircase(5, 4, 2)
        >>> bool(np.isclose(stairs.within(np.array([0.0]))[0], stairs.top))
        True
        """
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


def _sum_below(count: int) -> int:
    """Return 0 + 1 + … + (count - 1)."""
    return count * (count - 1) // 2


def _squares_below(count: int) -> int:
    """Return the sum of the squares of 0, 1, …, count - 1."""
    return (count - 1) * count * (2 * count - 1) // 6


def _reach(epsilon: float, spread: float) -> int:
    """Return how many steps away matter to a normal of this spread, in widths of a step.

    A step that is D nearer to 0 is ``exp(epsilon D)`` times as high, and the normal there less than
    ``exp(-(D / spread)**2 / 2)`` of what it is: together less than 1e-17.
    """
    loss, rise = 40.0, epsilon * spread
    return math.ceil(spread * (rise + math.sqrt(rise**2 + 2 * loss))) + 1


class _Edge(NamedTuple):
    """The end of a step as seen by normals around residuals: the tail beyond it, and a peak."""

    right: AnyArray
    tail: FloatArray
    peak: FloatArray

    @classmethod
    def at(cls, z: FloatArray) -> "_Edge":
        return cls(z < 0, ndtr(-np.abs(z)), np.exp(-(z**2) / 2))

    def between(self, other: "_Edge") -> FloatArray:
        """Return the mass of the normals between this edge and one farther to the right."""
        apart = self.right != other.right
        return np.asarray(np.where(apart, 1 - self.tail - other.tail, abs(self.tail - other.tail)))
