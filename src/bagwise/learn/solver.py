"""Weighted least squares from sufficient statistics, in one pass over the rows."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.learn.losses import LeastSquares

_CHUNK = 65_536  # rows centred at a time: the extra memory does not grow with n


@dataclass(frozen=True)
class Solution:
    """Coefficients, and the rank of the design that determined them."""

    coef: FloatArray
    intercept: float
    rank: int


def solve(problem: LeastSquares, *, fit_intercept: bool, ridge: float) -> Solution:
    """Minimise the weighted mean of squares / 2, plus ``ridge / 2 * |coef|^2`` (not the intercept).

    A design that does not determine every coefficient gets the one of least norm among the
    minimisers, measured with each column in units of its own spread.
    """
    total = float(problem.weight.sum())
    width = problem.design.shape[1]
    if fit_intercept:
        center = problem.weight @ problem.design / total
        target_center = float(problem.weight @ problem.target) / total
    else:
        center, target_center = np.zeros(width), 0.0
    gram, moment = _centred_moments(problem, center, target_center)
    coef, rank = _solve_normal_equations(gram / total, moment / total, ridge)
    return Solution(coef, target_center - float(center @ coef), rank)


def _centred_moments(
    problem: LeastSquares, center: FloatArray, target_center: float
) -> tuple[FloatArray, FloatArray]:
    """Return ``D' W D`` and ``D' W t`` for the centred design D and target t."""
    width = problem.design.shape[1]
    gram, moment = np.zeros((width, width)), np.zeros(width)
    for start in range(0, problem.target.size, _CHUNK):
        rows = slice(start, start + _CHUNK)
        # Centring before squaring keeps the digits of columns that are far from zero.
        centred = problem.design[rows] - center
        weighted = centred * problem.weight[rows, None]
        gram += weighted.T @ centred
        moment += weighted.T @ (problem.target[rows] - target_center)
    return gram, moment


def _solve_normal_equations(
    gram: FloatArray, moment: FloatArray, ridge: float
) -> tuple[FloatArray, int]:
    spread = np.sqrt(np.diag(gram))
    spread = np.where(spread > 0, spread, 1.0)
    # In units of their own spread, so that the rank does not depend on the units of the columns.
    scaled = gram / np.outer(spread, spread)
    tolerance = 64 * max(1, gram.shape[0]) * np.finfo(float).eps
    if ridge > 0:
        penalised = gram + ridge * np.eye(gram.shape[0])
        return np.asarray(linalg.solve(penalised, moment, assume_a="pos")), gram.shape[0]
    values, vectors = linalg.eigh(scaled)
    keep = values > tolerance * max(values[-1], 0.0) if values.size else values > 0
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=keep)
    solution = vectors @ (inverse * (vectors.T @ (moment / spread)))
    return solution / spread, int(keep.sum())
