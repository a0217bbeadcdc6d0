"""Rows whose labels tell most about a linear model: A- and V-optimal design, chosen one by one.

With labels of rows S, of noise variance s, and slopes drawn with precision P, the coefficients are
known up to the covariance ``s (X_S'X_S + s P)^-1 = s M^-1``. A design is good if ``tr(Q M^-1)`` is
small: Q the metric of slopes in standard units is A-optimality, Q the second moments of all rows
(the identity in white columns) is V-optimality, the mean variance of predictions. The next row is
always the one that lowers it most: with ``w = M^-1 x`` the label of x lowers it by

    ``w'Qw / (1 + x'w)``          (Sherman and Morrison 1950)

For all rows at once that takes two products with X at each step.

References
----------
Chaloner and Verdinelli (1995), Statistical Science 10, for Bayesian A-optimality. Chamon and
Ribeiro (2017), NeurIPS, for how near the greedy choice is to the best one.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray

_REFRESH = 128  # steps after which sums that were updated are computed anew


def greedy_rows(
    Z: FloatArray,
    metric: FloatArray,
    *,
    budget: int,
    precision: FloatArray,
    known: FloatArray | None = None,
) -> IntArray:
    """Return `budget` rows of Z, (n, p), none twice, the most telling first.

    Parameters
    ----------
    metric : (p, p)
        Q, in the coordinates of Z.
    precision : (p, p)
        What is known of the coefficients before, as so many rows' worth of information.
    known : (l, p), optional
        Rows that have labels already.

    Examples
    --------
    >>> Z = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    >>> greedy_rows(Z, np.eye(2), budget=2, precision=0.1 * np.eye(2))
    array([1, 2])
    """
    information = precision if known is None else precision + known.T @ known
    chosen = np.empty(budget, dtype=np.int64)
    open_rows = np.ones(len(Z), dtype=bool)
    inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
    for step in range(budget):
        if step % _REFRESH == 0:
            inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
            leverage, worth = _all_rows(Z, inverse, metric)
        gain = np.where(open_rows, worth / (1 + leverage), -np.inf)
        best = int(np.argmax(gain))
        chosen[step], open_rows[best] = best, False
        row = Z[best]
        information = information + np.outer(row, row)
        moved = inverse @ row
        share = 1 / (1 + float(row @ moved))
        along = Z @ moved
        across = Z @ (inverse @ (metric @ moved))
        # (M^-1 - c ww') Q (M^-1 - c ww'), row by row.
        worth = worth - 2 * share * along * across
        worth += share**2 * float(moved @ metric @ moved) * along**2
        leverage = leverage - share * along**2
        inverse = inverse - share * np.outer(moved, moved)
    return chosen


def _all_rows(
    Z: FloatArray, inverse: FloatArray, metric: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return x'M^-1 x and x'M^-1 Q M^-1 x of all rows."""
    moved = Z @ inverse
    return np.einsum("ij,ij->i", Z, moved), np.einsum("ij,ij->i", moved @ metric, moved)
