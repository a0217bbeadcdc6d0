"""Randomised response: a class is randomly kept or replaced by one of the others.

A class kept with probability p, or else any of the c - 1 others, costs
``log(p (c - 1) / (1 - p))``, and no delta (Warner 1965; Kairouz, Oh and Viswanath 2015).
"""

import math
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import Curve, GroupCurve, StepCurve
from bagwise.privacy.grid import one_hot
from bagwise.privacy.laws.law import LARGEST_COUNT, Law, Move, Norm
from bagwise.rng import NoiseSource

CHANCES = 2**32
"""Chances are whole multiples of one in this many."""

_UPWARDS = 1 + 2.0**-48  # more than a logarithm is off


class RandomisedResponse(Law, frozen=True, tag="randomised-response"):
    """One class, kept or replaced.

    Attributes
    ----------
    classes : int
    keep : float
        The chance of keeping the class.
    """

    norm: ClassVar[Norm] = "class"

    classes: int
    keep: float

    @classmethod
    def keeping(cls, classes: int, epsilon: float) -> Self:
        """Return the largest chance that costs `epsilon`, or a rounding more."""
        odds = math.exp(epsilon)  # of the kept class against each other one
        # A whole number of 2**-32, rounded down: less truth, more privacy.
        keep = math.floor(odds / (odds + classes - 1) * CHANCES) / CHANCES
        keep = min(keep, 1 - 1 / CHANCES)
        if keep * classes <= 1:
            raise BudgetError("so little epsilon leaves nothing of a picked class.")
        return cls(classes, keep)

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
        one = StepCurve(often, math.log(often) - math.log(rarely))
        return one if move.times == 1 else GroupCurve(one, move.times)

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

    def randomise(self, codes: IntArray, source: NoiseSource) -> IntArray:
        """Return each class, kept or replaced."""
        return keep_or_replace(codes, self.keep, self.classes, source)

    def estimates(self, reported: IntArray) -> FloatArray:
        """Return an unbiased estimate of each class's share, (m, classes).

        The reported class has the largest entry of its row, so that nothing of it is lost; entries
        below 0 and above 1 undo the chance of a replaced class.
        """
        return np.asarray(one_hot(reported, self.classes) - self.other) / (self.keep - self.other)

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


def keep_or_replace(
    codes: IntArray, keep: float | FloatArray, classes: int, source: NoiseSource
) -> IntArray:
    """Return each class, kept with its chance or replaced."""
    kept = source.index_below(np.full(codes.size, CHANCES)) < np.rint(keep * np.float64(CHANCES))
    step = 1 + source.index_below(np.full(codes.size, classes - 1))
    return np.where(kept, codes, (codes + step) % classes)
