"""The class of one row of each bag, drawn in secret, kept by chance or replaced by another."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.grid import one_hot
from bagwise.privacy.loss_distributions import (
    Curve,
    GroupCurve,
    KeptClassCurve,
    PickCurve,
    WorstCurve,
)
from bagwise.privacy.mechanisms.mechanism import (
    LARGEST_COUNT,
    Hides,
    Tagged,
    are_sizes,
    impossible,
)
from bagwise.privacy.mechanisms.randomised_response import exported_coin
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

CHANCES = 2**32
"""Chances of randomised response are whole multiples of one in this many."""


class RandomisedPicks(Tagged, frozen=True, tag="randomised-picks", kw_only=False, dict=True):
    """One class of each bag, by randomised response.

    Curve: a class kept with probability p, or else any of the c - 1 others, has the epsilon
    ``log(p (c - 1) / (1 - p))``. Picking its row in secret among k brings that down to
    ``log(1 + (e^epsilon - 1) / k)``: attained when all other rows of the bag agree. It needs no
    delta.

    Attributes
    ----------
    classes : int
        Number of classes; a class that is not kept becomes each of the others alike.
    keeps : tuple of (size, probability)
        The chance of keeping the class, for each size of bag that occurs.
    rows : int
        Rows of a protected unit.
    """

    hides: ClassVar[Hides] = "class picks"

    classes: int
    keeps: tuple[tuple[int, float], ...]
    rows: int = 1

    @classmethod
    def calibrated(cls, *, epsilon: float, classes: int, sizes: Sequence[int], rows: int) -> Self:
        """Return the chances that cost `epsilon` for each row of a unit, for bags of each size."""
        keeps = []
        for size in sizes:
            odds = 1 + size * math.expm1(epsilon)  # of the kept class against each other one
            # A whole number of 2**-32, rounded down: less truth, more privacy.
            keep = math.floor(odds / (odds + classes - 1) * CHANCES) / CHANCES
            keep = min(keep, 1 - 1 / CHANCES)
            if _pick_epsilon(classes, size, keep) > epsilon:  # by rounding, an ulp
                keep -= 1 / CHANCES
            if keep * classes <= 1:
                raise BudgetError("so little epsilon leaves nothing of a picked class.")
            keeps.append((size, keep))
        return cls(classes, tuple(keeps), rows)

    @cached_property
    def epsilon(self) -> float:
        """What all rows of a unit cost together, without a delta."""
        return self.rows * max(_pick_epsilon(self.classes, k, p) for k, p in self.keeps)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs, without a delta."""
        return Fraction(self.epsilon)

    @property
    def bag_sizes(self) -> list[int]:
        """The sizes of bags that it lists."""
        return [size for size, _ in self.keeps]

    @cached_property
    def curve(self) -> Curve:
        """The curve of the worst size, for all rows of a unit."""
        picks = [PickCurve(KeptClassCurve(self.classes, p), k) for k, p in self.keeps]
        one = picks[0] if len(picks) == 1 else WorstCurve(tuple(picks))
        return one if self.rows == 1 else GroupCurve(one, self.rows)

    def keep_chances(self, sizes: IntArray) -> FloatArray:
        """Return the chance of keeping the class for each bag; NaN for a size that has none."""
        chances = dict(self.keeps)
        return np.array([chances.get(size, np.nan) for size in sizes.tolist()])

    def randomise(self, codes: IntArray, sizes: IntArray, source: NoiseSource) -> IntArray:
        """Return each picked class, kept or replaced."""
        whole = np.rint(self.keep_chances(sizes) * CHANCES)
        kept = source.index_below(np.full(sizes.size, CHANCES)) < whole
        step = 1 + source.index_below(np.full(sizes.size, self.classes - 1))
        return np.where(kept, codes, (codes + step) % self.classes)

    def estimates(self, reported: IntArray, sizes: IntArray) -> FloatArray:
        """Return an unbiased estimate of each class's share in each bag, (m, classes).

        The reported class has the largest entry of its row, so that nothing of it is lost; entries
        below 0 and above 1 undo the chance of a replaced class.
        """
        keep = self.keep_chances(sizes)
        other = (1 - keep) / (self.classes - 1)
        return (one_hot(reported, self.classes) - other[:, None]) / (keep - other)[:, None]

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the estimated share of a class, for bags of each size.

        It depends on the class; the larger of the two is the safe one to weigh by.
        """
        keep = self.keep_chances(sizes)
        other = (1 - keep) / (self.classes - 1)
        variance = np.maximum(keep * (1 - keep), other * (1 - other))
        sd: FloatArray = np.sqrt(variance) / (keep - other)
        return sd

    def claimed_noise(self, sizes: IntArray) -> None:
        """Classes are replaced, not moved; `verify` counts how often each is reported instead."""

    def suits_classes(self, classes: int | None) -> bool:
        """Tell by the classes that it names."""
        return classes == self.classes

    def widened(self, rows: int) -> "RandomisedPicks":
        """Return what it amounts to for `rows` units."""
        return msgspec.structs.replace(self, rows=self.rows * rows)

    def check(self, bounds: Bounds | None) -> None:  # noqa: ARG002 (classes have none)
        """Refuse parameters that nothing can have."""
        usual = 2 <= self.classes <= LARGEST_COUNT
        usual = usual and are_sizes(self.bag_sizes, self.rows)
        if not usual or not all(1 / self.classes <= p < 1 for _, p in self.keeps):
            raise impossible(self.kind)

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the rows that it names."""
        return self.rows >= rows

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting."""
        return [exported_coin(self.epsilon, google)]


def _pick_epsilon(classes: int, size: int, keep: float) -> float:
    return math.log1p((keep * (classes - 1) / (1 - keep) - 1) / size)
