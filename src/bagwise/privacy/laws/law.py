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

from bagwise._types import AnyArray, FloatArray, IntArray
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
    """How far the labels of a unit move a hidden answer: `times` moves of at most `steps` each.

    What moves may be one of so many `classes`.
    """

    steps: int = 1
    times: int = 1
    classes: int = 0


class Law(Record, frozen=True, kw_only=False, tag_field="kind"):
    """A distribution that hides answers, the cost of a move under it, and its sampler."""

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
    def least(cls, move: Move, cost: Fraction | float) -> Self:
        """Return the least noise with which a move costs this much; BudgetError if there is none.

        The cost is an epsilon, or mu for a law that needs a delta.
        """
        raise NotImplementedError

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
        """The standard deviation of what is shown of a number, in grid steps."""
        raise NotImplementedError

    def terms(self, residual: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log density of noise plus a normal, and its derivative, the sign turned.

        Both in units of the noise's standard deviation: `privacy.noise_laws` has what it is for.
        """
        raise NotImplementedError

    def hide(self, told: AnyArray, source: NoiseSource) -> AnyArray:
        """Return what is shown of exact answers, each hidden by itself."""
        raise NotImplementedError

    def scores(self, move: Move, count: int, source: NoiseSource, *, moved: bool) -> FloatArray:
        """Draw what an attacker sees before or after the worst move; larger scores say after."""
        raise NotImplementedError

    def exported(self, move: Move, google: Any) -> Any:
        """Return it as an event of Google's dp-accounting, given its module of events."""
        return exported_coin(float(self.pure_epsilon(move) or 0), google)


class Noise(Law, frozen=True):
    """A law of noise that is added to whole numbers: symmetric, with one peak at 0."""

    @abstractmethod
    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, exactly, in grid steps."""

    def within(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is at most so many whole steps, or a bit more.

        It is exact where `beyond` is; a law that has but a bound of that needs one of this, too.
        """
        return np.asarray(1 - 2 * self.beyond(np.floor(steps) + 1))

    @abstractmethod
    def beyond(self, steps: FloatArray) -> FloatArray:
        """Return the chance that the noise is so many steps up, from 1 on, or a bit more."""

    def hide(self, told: AnyArray, source: NoiseSource) -> AnyArray:
        """Return whole numbers with noise."""
        return told + self.draw(told.size, source).reshape(told.shape)

    def scores(self, move: Move, count: int, source: NoiseSource, *, moved: bool) -> FloatArray:
        """Draw the noisy number itself, since the chances of noise fall with its size."""
        shift = move.steps * move.times if moved else 0
        return (shift + self.draw(count, source)).astype(np.float64)


class Randomiser(Law, frozen=True):
    """A law that replaces a label by one of finitely many outcomes, by chance."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest chance of every outcome, whatever a label is."""

    @abstractmethod
    def randomise(self, labels: AnyArray, source: NoiseSource) -> IntArray:
        """Return the outcome for each label."""

    @abstractmethod
    def shown(self, outcomes: IntArray) -> FloatArray:
        """Return what is shown for each outcome."""

    @abstractmethod
    def outcomes(self, shown: FloatArray) -> IntArray:
        """Return the outcomes that are nearest to what is shown."""

    @abstractmethod
    def chances_of(self, outcomes: IntArray, exact: FloatArray) -> FloatArray:
        """Return the chance of each outcome, given what would be shown of an exact answer."""

    def hide(self, told: AnyArray, source: NoiseSource) -> AnyArray:
        """Return what is shown of labels that are randomly replaced."""
        return self.shown(self.randomise(told, source))


class Scaled(Noise, frozen=True):
    """Noise proportional to a whole scale; the cost of a move is its length over the scale."""

    largest: ClassVar[int]
    google_event: ClassVar[str]
    """The name of its event in dp-accounting."""

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

    def exported(self, move: Move, google: Any) -> Any:
        """Return it as an event of dp-accounting."""
        return getattr(google, self.google_event)(self.scale / (move.steps * move.times))


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
