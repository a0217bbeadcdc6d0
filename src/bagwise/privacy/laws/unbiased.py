"""Optimal unbiased randomizers of single labels.

A label between 0 and 1 is rounded, at random and without bias, to one of k points that divide the
interval evenly. Each point has a row of chances over the numbers that may be reported. The chances
M(x, o) with the least mean variance are the solution of a linear programme:

    minimise    sum_x w_x sum_o M(x, o) (o - x)^2
    such that   sum_o M(x, o) = 1,   sum_o M(x, o) o = x          (without a bias)
    and         z_o <= M(x, o) <= e^epsilon z_o                   (epsilon label privacy)

with weights w of labels that are all as likely between the bounds. Outputs that the solution does
not use are dropped, the programme is solved again, and chances are rounded to whole multiples of
``1 / CHANCES``, after which the largest ratio of two chances of one output is at most e^epsilon
*exactly*, as whole numbers; the bias that rounding leaves is below ``1e-11`` of the bounds. Laplace
noise of the same epsilon has about twice the variance at epsilon 1, and more above.

**Curve.** A label between two points has a mixture of their rows, and mixtures of rows are no
further apart than the rows. So delta is the largest over all pairs of points of ``sum max(0, p_o -
e^epsilon q_o)``, added up over all o that can be reported: an exact number, by enumeration. Several
labels of a unit are reported one by one, so that the bound for groups covers them.

References
----------
Badanidiyuru, Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan and Zhang (2023), Optimal
unbiased randomizers for regression with label differential privacy, NeurIPS: the programme, and
that a solution uses at most 2k outputs.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import Curve, grouped
from bagwise.privacy.laws.law import Move, Norm, Randomiser, below
from bagwise.rng import NoiseSource

CHANCES = 2**48
"""Chances are whole multiples of one in this many: doubles and JSON keep them exactly."""

MOST_POINTS, MOST_OUTPUTS = 64, 128
"""Rows and columns of a table of chances that a certificate may hold."""

POINTS = 17
_FRACTION_STEPS = 2**32  # of the chance to be rounded up
_ROUNDING = 2.0**-50  # relative; more than a quotient and its logarithm are off
_SIDE = 40  # numbers on either side of the bounds that may be reported
_UNUSED = 1e-7  # chances below are those of outputs that are not needed
_LESS = (1e-9, 1e-8, 1e-7, 1e-6)  # of epsilon: what rounding may take
_SMALLEST = 1e-3  # below, what is reported lies a thousand times the width away
_LARGEST = 8.0  # above, the rounding to points is most of the error: more epsilon is not spent


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
    """Return the points that lie above all lines between others, from the left on."""
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


class Unbiased(Randomiser, frozen=True, dict=True, tag="unbiased"):
    """A label between 0 and 1, reported by a table of chances."""

    norm: ClassVar[Norm] = "label"

    # What may be reported, where 0 stands for the lower bound and 1 for the upper.
    outputs: tuple[float, ...]
    # For each of the points, from 0 to 1, how often out of `CHANCES` each of the outputs is
    # reported.
    chances: tuple[tuple[int, ...], ...]

    @classmethod
    def least(cls, move: Move, cost: Fraction | float) -> Self:
        """Return the chances of the least variance with which so many labels cost this epsilon."""
        return cls(*_solved(min(below(Fraction(cost) / move.times), _LARGEST)))

    @cached_property
    def epsilon(self) -> float:
        """What one label costs, without a delta: the largest log-likelihood ratio there is.

        Rounded up: a division and a logarithm in doubles are off by a few units in the last place.
        """
        table = np.array(self.chances, dtype=np.float64)
        ratio = float(np.log(table.max(axis=0) / table.min(axis=0)).max())
        return ratio + _ROUNDING * (1 + ratio)

    def curve(self, move: Move) -> Curve:
        """Return the curve of the worst pair of labels, for so many of them."""
        return grouped(ChannelCurve(self.chances), move.times)

    def pure_epsilon(self, move: Move) -> Fraction:
        """Return what so many labels cost, one after the other."""
        return move.times * Fraction(self.epsilon)

    def is_possible(self, move: Move) -> bool:
        """Tell whether it is a table of chances, each above 0."""
        del move
        columns = len(self.outputs)
        if not (2 <= len(self.chances) <= MOST_POINTS and 2 <= columns <= MOST_OUTPUTS):
            return False
        rising = all(a < b for a, b in zip(self.outputs, self.outputs[1:], strict=False))
        if not rising or not all(map(math.isfinite, self.outputs)):
            return False
        return all(
            len(row) == columns and min(row) >= 1 and sum(row) == CHANCES for row in self.chances
        )

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """Those of the points, since labels between them have mixtures of their chances."""
        chances = np.array(self.chances) / CHANCES
        return chances.min(axis=0), chances.max(axis=0)

    def randomise(self, labels: AnyArray, source: NoiseSource) -> IntArray:
        """Return which output is reported for each label."""
        place, below = self._places(labels)
        up = np.rint((place - below) * _FRACTION_STEPS)
        drawn = source.index_below(np.full(labels.size, _FRACTION_STEPS))
        return self.report(below + (drawn < up), source)

    def report(self, points: IntArray, source: NoiseSource) -> IntArray:
        """Return which output is reported for each point."""
        drawn = source.index_below(np.full(points.size, CHANCES))
        upto = np.cumsum(np.array(self.chances, dtype=np.int64), axis=1)
        outputs = np.empty(points.size, dtype=np.int64)
        for point, steps in enumerate(upto):
            here = points == point
            outputs[here] = np.searchsorted(steps, drawn[here], side="right")
        return outputs

    def _places(self, labels: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the place of each label among the points, and the point below it."""
        last = len(self.chances) - 1
        place = labels * last
        return place, np.minimum(np.floor(place), last - 1).astype(np.int64)

    def shares_of(self, labels: FloatArray) -> FloatArray:
        """Return the chance of every output for each label, (n, outputs)."""
        place, below = self._places(labels)
        up = (place - below)[:, None]
        shares = np.array(self.chances) / CHANCES
        return np.asarray((1 - up) * shares[below] + up * shares[below + 1])

    def shown(self, outcomes: IntArray) -> FloatArray:
        """Return the outputs."""
        return np.array(self.outputs)[outcomes]

    def outcomes(self, shown: FloatArray) -> IntArray:
        """Return which outputs are nearest."""
        outputs = np.array(self.outputs)
        return np.searchsorted((outputs[1:] + outputs[:-1]) / 2, shown)

    def chances_of(self, outcomes: IntArray, exact: FloatArray) -> FloatArray:
        """Return the chance of each output, given the labels, which are clipped to the bounds."""
        shares = self.shares_of(np.clip(exact, 0.0, 1.0))
        return np.asarray(np.take_along_axis(shares, outcomes[:, None], axis=1)[:, 0])

    @property
    def sd(self) -> float:
        """The root mean square of what is reported minus the label, if any label is as likely.

        How much there is depends on the label, which nobody knows. Between two points the mean
        square is a polynomial of third degree in the label, for which Simpson's rule is exact.
        """
        points = np.linspace(0.0, 1.0, len(self.chances))
        shares = np.array(self.chances) / CHANCES
        outputs = np.array(self.outputs)

        def error(share: float) -> FloatArray:
            label = (1 - share) * points[:-1] + share * points[1:]
            off = (outputs[None, :] - label[:, None]) ** 2
            left, right = (shares[:-1] * off).sum(axis=1), (shares[1:] * off).sum(axis=1)
            return np.asarray((1 - share) * left + share * right)

        return math.sqrt(float(np.mean(error(0.0) + 4 * error(0.5) + error(1.0)) / 6))

    def scores(self, move: Move, count: int, source: NoiseSource, *, moved: bool) -> FloatArray:
        """Draw scores for the two labels easiest to tell apart: how much better each one fits."""
        del move
        logs = np.log(np.array(self.chances, dtype=np.float64))
        column = int(np.argmax(np.ptp(logs, axis=0)))
        first, second = int(np.argmax(logs[:, column])), int(np.argmin(logs[:, column]))
        point = np.full(count, first if moved else second)
        return np.asarray((logs[first] - logs[second])[self.report(point, source)])


@lru_cache(maxsize=64)
def _solved(epsilon: float) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """Return outputs and whole chances; solving takes about a second."""
    if epsilon < _SMALLEST:
        raise BudgetError("so little epsilon leaves nothing of a single label.")
    for less in _LESS:
        aimed = epsilon * (1 - less)
        # What may be reported: numbers within the bounds, and some way beyond them.
        steps = np.linspace(0, 1, _SIDE + 1)[1:]
        beyond = (2 / math.expm1(aimed) + 2 / (POINTS - 1)) * steps
        inside = np.linspace(0.0, 1.0, 2 * POINTS - 1)
        outputs = np.concatenate([-beyond[::-1], inside, 1 + beyond])
        used = _solve(outputs, aimed).max(axis=0) > _UNUSED
        whole = _whole(_solve(outputs[used], aimed))
        pairs = zip(whole.max(axis=0).tolist(), whole.min(axis=0).tolist(), strict=True)
        most = Fraction(math.exp(epsilon)) * (1 - Fraction(2**-50))
        if whole.min() >= 1 and max(Fraction(*pair) for pair in pairs) <= most:
            return tuple(outputs[used].tolist()), tuple(tuple(row) for row in whole.tolist())
    raise BudgetError(
        "the linear programme for this epsilon has no solution in whole numbers. Use another "
        "epsilon."
    )


def _solve(outputs: FloatArray, epsilon: float) -> FloatArray:
    """Solve the programme for these outputs; (points, outputs)."""
    from scipy.optimize import linprog  # slow to import, and mostly not needed

    points, m = np.linspace(0.0, 1.0, POINTS), outputs.size
    weights = np.full(POINTS, 1.0)
    weights[[0, -1]] = 0.5  # a point stands for the labels around it
    cost = (weights / weights.sum())[:, None] * (outputs - points[:, None]) ** 2
    each: Any = sparse.eye_array(POINTS * m)
    least: Any = sparse.vstack([sparse.eye_array(m)] * POINTS)
    private = sparse.vstack(
        [sparse.hstack([each, -math.exp(epsilon) * least]), sparse.hstack([-each, least])]
    )
    by_row: Any = sparse.eye_array(POINTS)
    sums = sparse.vstack(
        [sparse.kron(by_row, np.ones((1, m))), sparse.kron(by_row, outputs[None, :])]
    )
    found = linprog(
        np.concatenate([cost.ravel(), np.zeros(m)]),
        A_ub=sparse.csr_array(private),
        b_ub=np.zeros(2 * POINTS * m),
        A_eq=sparse.csr_array(sparse.hstack([sums, sparse.csr_array((2 * POINTS, m))])),
        b_eq=np.concatenate([np.ones(POINTS), points]),
        bounds=(0, None),
        method="highs",
    )
    if found.x is None:
        raise BudgetError("the linear programme for this epsilon has no solution.")
    table: FloatArray = found.x[: POINTS * m].reshape(POINTS, m)
    return table


def _whole(table: AnyArray) -> IntArray:
    """Return chances out of `CHANCES` that add up to it in each row; the largest takes the rest."""
    shares = np.clip(table, 0.0, None) / table.sum(axis=1, keepdims=True)
    whole: IntArray = np.rint(shares * CHANCES).astype(np.int64)
    rest = CHANCES - whole.sum(axis=1)
    whole[np.arange(len(whole)), whole.argmax(axis=1)] += rest
    return whole
