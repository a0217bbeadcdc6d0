"""What mechanisms share that report every single label by chance: a table of chances.

A label is clipped to its bounds and rounded, at random and without bias, to one of k points that
divide them evenly. Each point has a row of chances over the numbers that may be reported. What is
reported depends on one label alone.

**Curve.** A label between two points has a mixture of their rows, and mixtures of rows are no
further apart than the rows. So delta is the largest over all pairs of points of ``sum max(0, p_o -
e^epsilon q_o)``, added up over all o that can be reported: an exact number, by enumeration. Chances
are whole multiples of ``1 / CHANCES`` and are drawn as such. Several labels of a unit are reported
one by one, so that the bound for groups covers them.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import CertificateError
from bagwise.privacy.loss_distributions import Curve, GroupCurve
from bagwise.privacy.mechanisms.mechanism import LARGEST_COUNT, Hides, Tagged, impossible
from bagwise.privacy.mechanisms.randomised_response import exported_coin
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

CHANCES = 2**48
"""Chances are whole multiples of one in this many: doubles and JSON keep them exactly."""

MOST_POINTS, MOST_OUTPUTS = 64, 128
"""Rows and columns of a table of chances that a certificate may hold."""

_FRACTION_STEPS = 2**32  # of the chance to be rounded up
_ROUNDING = 2.0**-50  # relative; more than a quotient and its logarithm are off


@dataclass(frozen=True)
class ChannelCurve:
    """The worst pair of rows of a table of whole chances, out of `CHANCES`.

    Delta is the largest ``P(S) - exp(epsilon) Q(S)`` over pairs of rows P, Q and sets S. So all
    that matters are the corners of the convex hull of the points (Q(S), P(S)), whole numbers.
    """

    chances: tuple[tuple[int, ...], ...]

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        q, p = self._corners
        with np.errstate(over="ignore", invalid="ignore"):
            losses = np.log(np.diff(p) / np.diff(q))  # they fall from corner to corner
            at = np.searchsorted(-losses, -np.asarray(epsilon, dtype=np.float64), side="left")
            found = (p[at] - np.exp(epsilon) * q[at]) / CHANCES
        return np.where(at > 0, np.maximum(found, 0.0), 0.0)

    @cached_property
    def _corners(self) -> tuple[IntArray, IntArray]:
        """Return Q(S) and P(S) where some epsilon has its largest, from (0, 0) on."""
        rows = np.unique(np.array(self.chances, dtype=np.int64), axis=0)
        q, p = np.array([0, CHANCES]), np.array([0, CHANCES])
        for row in rows:
            order = np.argsort(row / rows, axis=1)  # the best sets have the largest ratios
            others = np.take_along_axis(rows, order, axis=1)
            q = np.append(q, np.cumsum(row[order], axis=1))
            p = np.append(p, np.cumsum(others, axis=1))
            q, p = _upper_hull(q, p)
        return q, p


def _upper_hull(x: IntArray, y: IntArray) -> tuple[IntArray, IntArray]:
    """Return those of some points that are above all lines between others, from the left on."""
    order = np.lexsort([-y, x])
    x, y = x[order], y[order]
    rises = np.flatnonzero(np.diff(np.maximum.accumulate(y), prepend=-1) > 0)
    corners: list[tuple[int, int]] = []
    for c, d in zip(x[rises].tolist(), y[rises].tolist(), strict=True):  # as exact integers
        while len(corners) > 1:
            (a, b), (u, v) = corners[-2:]
            if (v - b) * (c - u) > (d - v) * (u - a):
                break
            corners.pop()
        corners.append((c, d))
    found = np.array(corners)
    return found[:, 0], found[:, 1]


class LabelChannel(Tagged, frozen=True, kw_only=False, dict=True):
    """Every label by itself, reported by a table of chances.

    Attributes
    ----------
    low, high : float
        What labels are clipped to.
    outputs : tuple of float
        What may be reported, where 0 stands for `low` and 1 for `high`.
    chances : tuple of tuples of int
        For each of the points, from `low` to `high`, how often out of `CHANCES` each of the outputs
        is reported.
    rows : int
        Rows of a protected unit.
    """

    hides: ClassVar[Hides] = "single labels"
    noise: ClassVar[str]

    @classmethod
    def calibrated(cls, *, epsilon: float, bounds: Bounds, rows: int = 1) -> Self:
        """Return the chances that cost `epsilon` for each row of a unit at most."""
        raise NotImplementedError

    low: float
    high: float
    outputs: tuple[float, ...]
    chances: tuple[tuple[int, ...], ...]
    rows: int = 1

    @cached_property
    def row_epsilon(self) -> float:
        """What one label costs, without a delta: the largest log-likelihood ratio there is.

        Rounded up: a division and a logarithm in doubles are off by a few units in the last place.
        """
        table = np.array(self.chances, dtype=np.float64)
        ratio = float(np.log(table.max(axis=0) / table.min(axis=0)).max())
        return ratio + _ROUNDING * (1 + ratio)

    @property
    def pure_epsilon(self) -> Fraction:
        """What all rows of a unit cost together, without a delta."""
        return self.rows * Fraction(self.row_epsilon)

    @cached_property
    def curve(self) -> Curve:
        """The curve of the worst pair of labels, for all rows of a unit."""
        one = ChannelCurve(self.chances)
        return one if self.rows == 1 else GroupCurve(one, self.rows)

    def reported(self) -> FloatArray:
        """Return the numbers that may be reported, in units of the label."""
        return self.low + (self.high - self.low) * np.array(self.outputs)

    def round(self, labels: FloatArray, source: NoiseSource) -> IntArray:
        """Return a point for each label: one of its two neighbours, on average the label."""
        last = len(self.chances) - 1
        place = (np.clip(labels, self.low, self.high) - self.low) / (self.high - self.low) * last
        below = np.minimum(np.floor(place), last - 1)
        up = np.rint((place - below) * _FRACTION_STEPS)
        drawn = source.index_below(np.full(labels.size, _FRACTION_STEPS))
        return np.asarray(below.astype(np.int64) + (drawn < up))

    def randomise(self, points: IntArray, source: NoiseSource) -> IntArray:
        """Return which output is reported for each point."""
        drawn = source.index_below(np.full(points.size, CHANCES))
        upto = np.cumsum(np.array(self.chances, dtype=np.int64), axis=1)
        found = np.empty(points.size, dtype=np.int64)
        for point, steps in enumerate(upto):
            here = points == point
            found[here] = np.searchsorted(steps, drawn[here], side="right")
        return found

    def report(self, labels: FloatArray, source: NoiseSource) -> FloatArray:
        """Return what is reported for each label."""
        return self.reported()[self.randomise(self.round(labels, source), source)]

    def shares_of(self, labels: FloatArray) -> FloatArray:
        """Return the chance of every output for each label, (n, outputs)."""
        last = len(self.chances) - 1
        place = (np.clip(labels, self.low, self.high) - self.low) / (self.high - self.low) * last
        below = np.minimum(np.floor(place), last - 1).astype(np.int64)
        up = (place - below)[:, None]
        shares = np.array(self.chances) / CHANCES
        return np.asarray((1 - up) * shares[below] + up * shares[below + 1])

    @property
    def mean_square(self) -> float:
        """Expected square of what is reported minus the label, if any label is as likely.

        Relative to the width of the bounds. Between two points it is a polynomial of third degree
        in the place of the label, for which Simpson's rule is exact.
        """
        points = np.linspace(0.0, 1.0, len(self.chances))
        shares = np.array(self.chances) / CHANCES
        outputs = np.array(self.outputs)

        def error(share: float) -> FloatArray:
            label = (1 - share) * points[:-1] + share * points[1:]
            off = (outputs[None, :] - label[:, None]) ** 2
            left, right = (shares[:-1] * off).sum(axis=1), (shares[1:] * off).sum(axis=1)
            return np.asarray((1 - share) * left + share * right)

        return float(np.mean(error(0.0) + 4 * error(0.5) + error(1.0)) / 6)

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the root mean square of the noise, over all labels alike.

        How much there is depends on the label, which nobody knows.
        """
        one = (self.high - self.low) * math.sqrt(self.mean_square)
        return np.where(np.asarray(sizes) == 1, one, np.nan)

    def claimed_noise(self, sizes: IntArray) -> None:
        """Labels are replaced, not moved; `verify` counts how often each is reported instead."""

    def suits_classes(self, classes: int | None) -> bool:
        """Classes are no numbers."""
        return classes is None

    def within(self, bounds: Bounds) -> Self:
        """Return the same chances for labels in another range: they cost the same."""
        return msgspec.structs.replace(self, low=float(bounds[0]), high=float(bounds[1]))

    def widened(self, rows: int) -> Self:
        """Return what it amounts to for `rows` units, by the bound for groups."""
        return msgspec.structs.replace(self, rows=self.rows * rows)

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no release within these bounds could have."""
        columns = len(self.outputs)
        if not len(self.chances) >= 2 or not 1 <= self.rows <= LARGEST_COUNT:
            raise impossible(self.kind)
        if not 2 <= columns <= MOST_OUTPUTS or len(self.chances) > MOST_POINTS:
            raise impossible(self.kind)
        rising = all(a < b for a, b in zip(self.outputs, self.outputs[1:], strict=False))
        if not rising or not all(
            math.isfinite(one) for one in (*self.outputs, self.low, self.high)
        ):
            raise impossible(self.kind)
        for row in self.chances:
            if len(row) != columns or min(row) < 1 or sum(row) != CHANCES:
                raise impossible(self.kind)
        if bounds is None:
            raise CertificateError("the certificate has an event and no bounds.")
        if (self.low, self.high) != (float(bounds[0]), float(bounds[1])):
            raise CertificateError(f"event {self.kind!r} does not fit the bounds.")

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the rows that it names."""
        return self.rows >= rows

    def exported(self, google: Any) -> list[Any]:
        """Return it as an event of dp-accounting."""
        return [exported_coin(float(self.pure_epsilon), google)]
