"""How much information bag means keep, measured on the features alone.

With ``xbar`` the mean of the rows in bags and ``c_B`` that of bag B,

    S = sum_i (x_i - xbar)(x_i - xbar)',      N = sum_B |B| (c_B - xbar)(c_B - xbar)',

S - N is the scatter within bags. Let labels be linear in the features, with an intercept and noise
of equal variance s^2. Least squares on the rows' own labels has covariance s^2 S^-1. The mean label
of a bag has noise s^2 / |B|, so least squares on exact means, weighted by size, has covariance
s^2 N^-1. All figures follow from one factorisation, ``S = A A'`` and ``N = A K A'``: K lies between
0 and the identity, and says what bags keep in units in which the rows spread equally everywhere.

Features and membership are public in a release, so these figures are too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError
from bagwise.rows.whitening import RANK_TOLERANCE, principal_axes
from bagwise.show import charts, html

_EPS = float(np.finfo(np.float64).eps)
_BLOCK = 2**21  # entries of X at a time: 65,536 rows of 32 columns, 16 MB
_LARGEST = 1e100  # as in the encoder: larger values cannot be squared and summed


@dataclass(frozen=True, eq=False)
class BagQuality:
    """How much of the features' variance bags keep; the result of `Bags.quality`.

    Rows in no bag are ignored.

    Attributes
    ----------
    sse_ratio : float
        Squared distance of rows to the mean of their bag, divided by that to the overall mean: the
        variance lost within bags, 0 to 1. It depends on the units of the columns.
    kept : (r,) floats
        For each principal direction of X, the largest variance first, the share of the variance
        that remains between bag means. r is the numerical rank of the centred X.
    error_ratio : float
        Expected squared error of the coefficients, fitted by least squares to exact mean labels
        with bags weighted by size, over that of least squares on the rows' own labels:
        ``tr N^-1 / tr S^-1`` on the span of X. 1 is the ideal; random bags of k rows give about k.
        Infinite where bag means do not span what the rows span. It depends on the units of the
        columns: those with little spread have the largest errors, and rule it.
    prediction_ratio : float
        The same for the predictions of the rows' labels, ``tr(N^-1 S) / r``. No units matter.

    Guarantee
    ---------
    The ratios are exact for a linear model with label noise of equal variance, for bags that were
    formed without the labels. Privacy noise and picks come on top; they are not in these figures.
    Where the rows do not differ at all nothing can be lost: `sse_ratio` is 0 and the others are 1.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> quality = Bags(np.array([0, 0, 1, 1])).quality(X)
    >>> quality.kept.round(4), round(quality.error_ratio, 4)
    (array([0.9615]), 1.04)
    >>> print(quality)
    feature variance lost by averaging  0.0385
    error against row labels            1.04 times, with exact bag means
    error of predictions                1.04 times
    least variance kept                 0.962, of 1 direction(s)
    """

    sse_ratio: float
    kept: FloatArray
    error_ratio: float
    prediction_ratio: float

    @property
    def directions(self) -> int:
        """Number of directions in which the rows differ."""
        return int(self.kept.size)

    @property
    def least_kept(self) -> float:
        """The smallest share of variance kept in any principal direction."""
        return float(self.kept.min(initial=1.0))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite ratio is None."""
        plain = {**vars(self), "kept": self.kept.tolist()}
        return {
            name: None if isinstance(value, float) and math.isinf(value) else value
            for name, value in plain.items()
        }

    def headlines(self, *, label_free: bool = True) -> dict[str, str]:
        """Return the two most important results in words.

        The second holds only for bags that were formed without the labels.
        """
        error = _in_words(self.error_ratio)
        if math.isfinite(self.error_ratio):
            error += ", with exact bag means"
        return {
            "feature variance lost by averaging": f"{self.sse_ratio:.3g}",
            "error against row labels": error if label_free else "not known: bags follow scores",
        }

    def _pairs(self) -> list[tuple[str, str]]:
        least = f"{self.least_kept:.3g}, of {self.directions} direction(s)"
        return [
            *self.headlines().items(),
            ("error of predictions", _in_words(self.prediction_ratio)),
            ("least variance kept", least if self.directions else "the rows do not differ"),
        ]

    def __str__(self) -> str:
        pairs = self._pairs()
        width = max(len(name) for name, _ in pairs)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in pairs)

    def plot(self) -> charts.Chart:
        """Draw the share kept in each direction; needs the extra ``bagwise[plot]``."""
        return charts.kept_shares(self.kept)

    def _repr_html_(self) -> str:
        return html.table("Bag quality", self._pairs())


def measure_quality(bags: Bags, X: Any) -> BagQuality:
    """Measure what bag means keep of the rows of X, (n, d), an array or a scipy sparse matrix.

    It takes O(n d^2) time and O(d^3) for the eigenvalues, and beyond X the memory of a few blocks
    of rows, which are dense, of the sums of bags, and of d x d matrices. Left-out rows are not
    looked at.
    """
    X = X if sparse.issparse(X) else np.asarray(X)
    if len(X.shape) != 2 or X.shape[0] != bags.n_rows:
        raise BagsError(f"X must have one row per row of the bags ({bags.n_rows}), got {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise BagsError(f"X must hold numbers, got an array of type {X.dtype}.")
    if sparse.issparse(X):
        rows_of = sparse.csr_array(X)
        return measure_blocks(bags, lambda rows: rows_of[rows].toarray(), X.shape[1])
    return measure_blocks(bags, lambda rows: X[rows], X.shape[1])


def measure_blocks(bags: Bags, take: Callable[[IntArray], AnyArray], width: int) -> BagQuality:
    """Measure an X that need not exist as a whole: ``take(rows)`` makes a new array of some rows.

    `width` is the number of its columns.

    >>> measure_blocks(Bags(np.array([0, 0, 1, 1])), lambda rows: rows[:, None] % 4, 1).error_ratio
    1.25
    """
    S, N, origin = _add_up(bags, take, width)
    rounding = 64 * max(width, 1) * _EPS  # relative error that the sums may have
    # A column that differs by its last digits only is constant.
    varies = np.diag(S) > bags.sizes.sum() * (4 * _EPS * origin) ** 2
    lost, kept, error_ratio, prediction_ratio = 0.0, np.ones(0), 1.0, 1.0
    if varies.any():
        S, N = S[np.ix_(varies, varies)], N[np.ix_(varies, varies)]
        lost = 1 - float(np.trace(N) / np.trace(S))
        kept, error_ratio, prediction_ratio = _compare_directions(S, N, rounding)
    kept.flags.writeable = False
    lost = min(lost, 1.0) if lost > rounding else 0.0
    return BagQuality(lost, kept, error_ratio, prediction_ratio)


def _in_words(ratio: float) -> str:
    if math.isinf(ratio):
        return "not determined by these bags"
    return f"{ratio:#.3g}".rstrip(".") + " times"


def _check_finite(values: AnyArray) -> AnyArray:
    # The smallest and the largest value say it without a mask of the size of X; NaN is either.
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if not (low >= -_LARGEST and high <= _LARGEST):
        raise BagsError("X holds missing, infinite or huge values. Replace or rescale them.")
    return values


def _add_up(
    bags: Bags, take: Callable[[IntArray], AnyArray], d: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return S and N of the module's header, and the mean of the rows, in one pass over blocks."""
    rows = np.flatnonzero(bags.in_bag)
    step = max(_BLOCK // max(d, 1), d, 1)
    # Near the mean, so that squares keep the digits of columns that are far from zero.
    origin = _check_finite(np.asarray(take(rows[:step]), dtype=np.float64)).mean(axis=0)
    scatter, sums = np.zeros((d, d)), np.zeros((bags.n_bags, d))
    for start in range(0, rows.size, step):
        part = rows[start : start + step]
        x = _check_finite(np.asarray(take(part), dtype=np.float64)) - origin
        scatter += x.T @ x
        order = np.argsort(bags.index[part])
        ids = bags.index[part[order]]
        firsts = np.flatnonzero(np.diff(ids, prepend=-1))
        sums[ids[firsts]] += np.add.reduceat(x[order], firsts, axis=0)
    total, scaled = sums.sum(axis=0), sums / np.sqrt(bags.sizes)[:, None]
    drift = np.outer(total, total) / rows.size
    return scatter - drift, scaled.T @ scaled - drift, origin


def _compare_directions(
    S: FloatArray, N: FloatArray, rounding: float
) -> tuple[FloatArray, float, float]:
    """Return what is kept in each principal direction, and the two error ratios."""
    span = principal_axes(S, tolerance=max(RANK_TOLERANCE, 4 * rounding))
    K = span.basis.T @ N @ span.basis
    root = np.sqrt(span.values)
    # S = A A' in the units of X, so the left vectors of A are the principal directions v, and
    # A'v = sigma w: then v'N v = sigma^2 w'K w, and v'S v = sigma^2.
    A = span.spread[:, None] * span.vectors * root
    _, sigma, right = linalg.svd(A, full_matrices=False)
    kept = np.clip(np.einsum("ij,jk,ik->i", right, K, right, optimize=True), 0.0, 1.0)
    shares, axes = linalg.eigh(K)
    means = K * np.outer(root, root)
    if shares[0] <= 0 or linalg.eigvalsh(means)[0] <= rounding * span.values[-1]:
        return kept, math.inf, math.inf
    growth = 1 / np.minimum(shares, 1.0)
    # tr N^-1 = sum of w'K^-1 w / sigma^2 over the directions, and tr S^-1 = sum of 1 / sigma^2.
    along = (right @ axes) ** 2 @ growth
    sigma = np.maximum(sigma, _EPS * sigma[0])  # units far apart may leave nothing of the smallest
    weight = (sigma[-1] / sigma) ** 2
    return kept, float(np.average(along, weights=weight)), float(np.mean(growth))
