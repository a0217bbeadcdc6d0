"""Optimal unbiased randomizers: every label reported without a bias, with the least variance.

For labels at k points and numbers o that may be reported, the chances M(x, o) with the least mean
variance are the solution of a linear programme:

    minimise    sum_x w_x sum_o M(x, o) (o - x)^2
    such that   sum_o M(x, o) = 1,   sum_o M(x, o) o = x          (without a bias)
    and         z_o <= M(x, o) <= e^epsilon z_o                   (epsilon label privacy)

with weights w of labels that are all as likely between the bounds. Outputs that the solution does
not use are dropped, the programme is solved again, and chances are rounded to whole multiples of
``1 / CHANCES``, after which the largest ratio of two chances of one output is at most e^epsilon
*exactly*, as whole numbers; the bias that rounding leaves is below ``1e-11`` of the bounds.

Laplace noise of the same epsilon has about twice the variance at epsilon 1, and more above.

References
----------
Badanidiyuru, Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan and Zhang (2023), Optimal
unbiased randomizers for regression with label differential privacy, NeurIPS: the programme, and
that a solution uses at most 2k outputs.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.mechanisms.label_channel import CHANCES, LabelChannel
from bagwise.rows.labels import Bounds

POINTS = 17
_SIDE = 40  # numbers on either side of the bounds that may be reported
_UNUSED = 1e-7  # chances below are those of outputs that are not needed
_LESS = (1e-9, 1e-8, 1e-7, 1e-6)  # of epsilon: what rounding may take
_SMALLEST = 1e-3  # below, what is reported lies a thousand times the width away
_LARGEST = 8.0  # above, the rounding to points is most of the error: more epsilon is not spent


class UnbiasedLabels(LabelChannel, frozen=True, tag="unbiased-labels", kw_only=False):
    """The unbiased randomizer of the least variance."""

    noise: ClassVar[str] = "unbiased"

    @classmethod
    def calibrated(cls, *, epsilon: float, bounds: Bounds, rows: int = 1) -> Self:
        """Return the chances that cost `epsilon` for each row of a unit at most."""
        outputs, chances = _solved(min(float(epsilon), _LARGEST))
        return cls(float(bounds[0]), float(bounds[1]), outputs, chances, rows)


@lru_cache(maxsize=64)
def _solved(epsilon: float) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """Return outputs and whole chances; solving takes about a second."""
    if epsilon < _SMALLEST:
        raise BudgetError("so little epsilon leaves nothing of a single label.")
    for less in _LESS:
        aimed = epsilon * (1 - less)
        outputs = _candidates(aimed)
        table = _solve(outputs, aimed)
        used = table.max(axis=0) > _UNUSED
        table = _solve(outputs[used], aimed)
        whole = _whole(table)
        if whole.min() >= 1 and _ratio(whole) <= Fraction(math.exp(epsilon)) * (
            1 - Fraction(2**-50)
        ):
            return tuple(outputs[used].tolist()), tuple(tuple(row) for row in whole.tolist())
    raise BudgetError(
        "the linear programme for this epsilon has no solution in whole numbers. Use another "
        "epsilon."
    )


def _candidates(epsilon: float) -> FloatArray:
    """Return numbers that may be reported: between the bounds, and as far out as the best go."""
    inside = np.linspace(0.0, 1.0, 2 * POINTS - 1)
    beyond = (2 / math.expm1(epsilon) + 2 / (POINTS - 1)) * np.linspace(0, 1, _SIDE + 1)[1:]
    return np.concatenate([-beyond[::-1], inside, 1 + beyond])


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


def _ratio(whole: IntArray) -> Fraction:
    """Return the largest ratio of two chances of one output, exactly."""
    pairs = zip(whole.max(axis=0).tolist(), whole.min(axis=0).tolist(), strict=True)
    return max(Fraction(most, least) for most, least in pairs)
