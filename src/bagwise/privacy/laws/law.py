"""The base class of noise distributions, so that no code depends on which one it is.

A law is a frozen record in whole grid steps, and means the same forever: a certificate that is
written today must be read the same way in years, so other noise is another law with another name.
What a unit's labels do to a hidden answer is a `Move`, in the norm that the law is proved for. A
query that does not know its sensitivity in that norm cannot have the law (`Mechanism`).
"""

import math
from abc import abstractmethod
from fractions import Fraction
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.files.records import Record
from bagwise.privacy.curves import Curve
from bagwise.rng import NoiseSource

Norm = Literal["L1", "L2", "number", "class", "label", "choice"]
"""What a law is proved for: a vector that moves so far in L1 or in L2, one number that moves so
far, a class or a label that becomes any other, a choice among candidates."""

LARGEST_COUNT = 2**48
"""Rows, classes or bag sizes that a certificate may name."""


class Move(NamedTuple):
    """How far the labels of a unit move a hidden answer: `times` moves of at most `steps` each."""

    steps: int = 1
    times: int = 1


class Law(Record, frozen=True, kw_only=False, tag_field="kind"):
    """A noise distribution, the cost of a move under it, and its sampler."""

    norm: ClassVar[Norm]
    needs_delta: ClassVar[bool] = False
    is_normal: ClassVar[bool] = False
    """Whether noise is so nearly normal that least squares are all there is to learn by."""

    @classmethod
    def called(cls) -> str:
        """Return its name in certificates and ``noise=``."""
        return str(attrgetter("__struct_config__.tag")(cls))

    @property
    def kind(self) -> str:
        """Its name in certificates and ``noise=``."""
        return self.called()

    @classmethod
    def least(cls, move: Move, cost: Fraction | float) -> Self | None:
        """Return the least noise with which a move costs this much; None if it cannot be drawn.

        The cost is an epsilon, or mu for a law that needs a delta.
        """
        del move, cost
        return None

    @abstractmethod
    def curve(self, move: Move) -> Curve:
        """Return delta at any epsilon >= 0 for a move.

        Guarantee: an upper bound for every two answers so far apart, also if the query was chosen
        after earlier releases; the law may not be.
        """

    @abstractmethod
    def pure_epsilon(self, move: Move) -> Fraction | None:
        """Return the cost of a move without a delta; None if it needs one."""

    def growth(self, move: Move) -> float:
        """Return ``exp(epsilon) - 1`` for the pure epsilon of a move."""
        return math.expm1(float(self.pure_epsilon(move) or 0))

    @abstractmethod
    def is_possible(self, move: Move) -> bool:
        """Return whether noise with these parameters could have been drawn for such a move."""

    @property
    def sd(self) -> float:
        """The standard deviation of what it adds, in grid steps."""
        raise AssertionError(f"{self.kind} adds no noise")

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log density of noise plus a normal, and its derivative, the sign turned.

        Both in units of the noise's standard deviation: `privacy.noise_laws` has what it is for.
        """
        del residual, spread
        raise AssertionError(f"{self.kind} adds no noise")

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, exactly, in grid steps."""
        del count, source
        raise AssertionError(f"{self.kind} adds no noise")

    def within(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is at most so many whole steps, or a bit more."""
        del steps
        raise AssertionError(f"{self.kind} adds no noise")

    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is so many steps up, from 1 on, or a bit more."""
        del steps
        raise AssertionError(f"{self.kind} adds no noise")

    def scores(self, move: Move, count: int, source: NoiseSource, *, moved: bool) -> FloatArray:
        """Draw what an attacker sees after the worst move, or before it; larger scores say after.

        For noise that falls with its size it is the noisy number itself.
        """
        shift = move.steps * move.times if moved else 0
        return (shift + self.draw(count, source)).astype(np.float64)

    def exported(self, move: Move, google: Any) -> Any:
        """Return it as an event of Google's dp-accounting, given its module of events."""
        return exported_coin(float(self.pure_epsilon(move) or 0), google)


class Noise(Law, frozen=True):
    """A law of noise that is added to whole numbers: symmetric, with one peak at 0.

    It has a standard deviation, a density (`terms`), draws and tails.
    """


class Scaled(Noise, frozen=True):
    """Noise proportional to a whole scale; the cost of a move is its length over the scale."""

    largest: ClassVar[int]

    scale: int

    @classmethod
    def least(cls, move: Move, cost: Fraction | float) -> Self:
        """Return the least noise with which a move costs this epsilon, or this mu."""
        # In fractions: a quotient of doubles that should be whole may end just below it.
        return cls(whole_scale(move.steps * move.times / cost, largest=cls.largest))

    def is_possible(self, move: Move) -> bool:
        """Tell whether it can be drawn."""
        del move
        return 1 <= self.scale <= self.largest


def exported_coin(epsilon: float, google: Any) -> Any:
    """Return a pure epsilon as an event of dp-accounting: the worst that can have this cost.

    That is a coin that lies with probability ``1 / (1 + exp(epsilon))`` (Kairouz, Oh and Viswanath
    2015).
    """
    return google.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)


def whole_scale(scale: float | Fraction, *, largest: int) -> int:
    """Return a scale rounded up to whole steps; refuse one that is too large to be drawn."""
    if not scale <= largest:
        raise BudgetError(
            "so little epsilon and delta asks for more noise than can be drawn safely."
        )
    return max(1, math.ceil(scale))


def below(value: Fraction) -> float:
    """Return the largest double that is not above a fraction, or the one just below it."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)
