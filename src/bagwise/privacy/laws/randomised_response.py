"""Randomised response: a class is randomly kept or replaced by one of the others.

A class kept with probability p, or else any of the c - 1 others, costs
``log(p (c - 1) / (1 - p))``, and no delta (Warner 1965; Kairouz, Oh and Viswanath 2015).
"""

import math
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import Curve, StepCurve, grouped
from bagwise.privacy.grid import one_hot
from bagwise.privacy.laws.law import LARGEST_COUNT, Move, Norm, Randomiser
from bagwise.rng import NoiseSource

CHANCES = 2**32
"""Chances are whole multiples of one in this many."""

_UPWARDS = 1 + 2.0**-48  # more than a logarithm is off


class RandomisedResponse(Randomiser, frozen=True, tag="randomised-response"):
    """One class, kept or replaced."""

    norm: ClassVar[Norm] = "class"

    classes: int
    keep: float  # the chance of keeping the class

    @classmethod
    def least(cls, move: Move, cost: Fraction | float) -> Self:
        """Return the largest chance of keeping a class that costs this epsilon, or less."""
        odds = math.exp(cost)  # of the kept class against each other one
        # A whole number of 2**-32, rounded down: less truth, more privacy.
        keep = math.floor(odds / (odds + move.classes - 1) * CHANCES) / CHANCES
        keep = min(keep, 1 - 1 / CHANCES)
        if keep * move.classes <= 1:
            raise BudgetError("so little epsilon leaves nothing of a picked class.")
        return cls(move.classes, keep)

    @property
    def other(self) -> float:
        """The chance of each class that was not there."""
        return (1 - self.keep) / (self.classes - 1)

    def curve(self, move: Move) -> Curve:
        """Return the curve of a class that becomes another.

        Under two different classes only these two have different chances, so that delta is
        ``often - exp(epsilon) rarely``: a class is rather kept than not, or the other way round.
        """
        often, rarely = max(self.keep, self.other), min(self.keep, self.other)
        return grouped(StepCurve(often, math.log(often) - math.log(rarely)), move.times)

    def pure_epsilon(self, move: Move) -> Fraction:
        """Return what so many classes cost, one after the other."""
        return move.times * Fraction(math.log(1 + self.growth(move)) * _UPWARDS)

    def growth(self, move: Move) -> float:
        """Return the odds of the class that was there, less one."""
        del move
        return self.keep * (self.classes - 1) / (1 - self.keep) - 1

    def is_possible(self, move: Move) -> bool:
        """Tell whether these are chances, of a class rather kept than not."""
        del move
        return 2 <= self.classes <= LARGEST_COUNT and 1 / self.classes <= self.keep < 1

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """Every class is kept, or comes in place of another."""
        return np.full(self.classes, self.other), np.full(self.classes, self.keep)

    def randomise(self, labels: AnyArray, source: NoiseSource) -> IntArray:
        """Return each class, kept or replaced."""
        kept = source.index_below(np.full(labels.size, CHANCES)) < round(self.keep * CHANCES)
        step = 1 + source.index_below(np.full(labels.size, self.classes - 1))
        return np.where(kept, labels, (labels + step) % self.classes)

    def shown(self, outcomes: IntArray) -> FloatArray:
        """Return an unbiased estimate of each class's share, (m, classes).

        The reported class has the largest entry of its row, so that nothing of it is lost; entries
        below 0 and above 1 undo the chance of a replaced class.
        """
        return np.asarray(one_hot(outcomes, self.classes) - self.other) / (self.keep - self.other)

    def outcomes(self, shown: FloatArray) -> IntArray:
        """Return the class with the largest entry of each row."""
        return np.asarray(shown.argmax(axis=1))

    def chances_of(self, outcomes: IntArray, exact: FloatArray) -> FloatArray:
        """Return the chance of each class, given marks of those that were there."""
        return np.where(outcomes == exact.argmax(axis=1), self.keep, self.other)

    @property
    def sd(self) -> float:
        """The standard deviation of an estimated share.

        It depends on the class; the larger of the two is the safe one to weigh by.
        """
        variance = max(self.keep * (1 - self.keep), self.other * (1 - self.other))
        return math.sqrt(variance) / (self.keep - self.other)

    def scores(self, move: Move, count: int, source: NoiseSource, *, moved: bool) -> FloatArray:
        """Draw whether class 1 is reported, where it was there and where it was not."""
        del move
        codes = np.full(count, int(moved))
        return np.asarray(self.randomise(codes, source) == 1, dtype=np.float64)
