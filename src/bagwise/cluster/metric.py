"""What "near" means: rows become points whose Euclidean distance is the one that counts.

Any metric is a linear map, so one engine serves all: the points are ``(X - middle) @ W``.
"""

from typing import Any, Literal

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray

Scale = Literal["whiten", "std", "none"]

CHUNK = 65_536
# Of the largest eigenvalue of the correlation matrix: what is added to all of them, so that nearly
# collinear columns do not rule the distance, and what counts as none at all.
RIDGE, NOTHING = 1e-6, 1e-10
SPARSE_DIMENSIONS = 128  # wider sparse data are projected
# Of the squared mean: a variance up to this is rounding, and the column is constant.
FLAT, FLAT_SPARSE = 1e-24, 1e-12
# Float32 carries seven digits. Rows this much farther out than usual would use them up.
FAR_OUT = 1e3


def make_points(
    X: Any, scale: Scale, rng: np.random.Generator, *, order: IntArray | None = None
) -> AnyArray:
    """Return the points of the rows of X, dense or scipy sparse, as a new array.

    With `order`, of the rows in that order, and even rounding does not depend on how X was ordered.
    Points are float32, or float64 where outliers or a single dimension would need the digits, and
    of usual size one, so that squares neither overflow nor vanish.
    Sparse X with many columns is projected at random to `SPARSE_DIMENSIONS`, which keeps squared
    distances to about ``sqrt(2 / SPARSE_DIMENSIONS)``, 12 % (Johnson and Lindenstrauss 1984); it is
    never made dense.
    """
    rows = _Rows(X, np.arange(X.shape[0]) if order is None else order)
    mean = rows.mean()
    W = rows.linear_map(mean, scale)
    if rows.is_sparse and (mean.size if W is None else W.shape[1]) > SPARSE_DIMENSIONS:
        W = _projected(W, mean.size, rng)
    origin = rows.middle()
    norms = np.concatenate(
        [np.linalg.norm(_map_rows(rows.take(part), origin, W), axis=1) for part in rows.parts()]
    )
    width = mean.size if W is None else W.shape[1]
    points = np.empty((X.shape[0], width), dtype=_digits(norms, width))
    usual = float(np.median(norms)) or float(norms.max()) or 1.0
    for part in rows.parts():
        points[part] = _map_rows(rows.take(part), origin, W) / usual
    return points


def standardise(X: FloatArray) -> FloatArray:
    """Return X in standard deviations of each column; constant columns become zero."""
    rows = _Rows(X, np.arange(X.shape[0]))
    mean = rows.mean()
    return np.asarray((X - mean) * rows.units(mean))


def covariance(X: FloatArray) -> FloatArray:
    """Return the population covariance matrix of the rows of X, (d, d)."""
    rows = _Rows(X, np.arange(X.shape[0]))
    return rows.covariance(rows.mean())


class _Rows:
    """The rows of X in some order, looked at in parts: no copy of X is made."""

    def __init__(self, X: Any, order: IntArray) -> None:
        self.is_sparse = sparse.issparse(X)
        self._X = sparse.csr_array(X)[order] if self.is_sparse else X
        self._order = order

    def parts(self) -> list[slice]:
        """Where each part begins and ends."""
        return [slice(first, first + CHUNK) for first in range(0, self._order.size, CHUNK)]

    def take(self, part: slice) -> Any:
        """Return some of the rows."""
        return self._X[part] if self.is_sparse else self._X[self._order[part]]

    def mean(self) -> FloatArray:
        """Return the mean of each column."""
        total = sum(np.asarray(self.take(part).sum(axis=0)).ravel() for part in self.parts())
        return np.asarray(total / self._order.size, dtype=np.float64)

    def middle(self) -> FloatArray:
        """Return a point that is central whatever the outliers: medians over some of the rows."""
        if self.is_sparse:  # mostly zeros, which an outlier's mean would not change
            return self.mean()
        return np.asarray(np.median(self.take(slice(0, CHUNK)), axis=0))

    def units(self, mean: FloatArray) -> FloatArray:
        """Return one over the standard deviation of each column, and zero for constant ones."""
        if self.is_sparse:
            variances = np.asarray(self._X.multiply(self._X).mean(axis=0)).ravel() - mean**2
        else:
            squares = sum(((self.take(part) - mean) ** 2).sum(axis=0) for part in self.parts())
            variances = squares / self._order.size
        varies = variances > (FLAT_SPARSE if self.is_sparse else FLAT) * mean**2
        return np.where(varies, 1.0 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)

    def covariance(self, mean: FloatArray) -> FloatArray:
        """Return the population covariance matrix, (d, d)."""
        if self.is_sparse:
            moments = (self._X.T @ self._X).toarray() / self._order.size
            return np.asarray(moments - np.outer(mean, mean))
        total = np.zeros((mean.size, mean.size))
        for part in self.parts():
            centred = self.take(part) - mean
            total += centred.T @ centred
        return total / self._order.size

    def linear_map(self, mean: FloatArray, scale: Scale) -> Any:
        """Return the map from centred rows to points, (d, r); None for the identity."""
        if scale == "none":
            return None
        if scale == "std":
            return sparse.diags_array(self.units(mean)).tocsr()
        return whitening_map(self.covariance(mean), self.units(mean))


def whitening_map(covariance: FloatArray, units: FloatArray) -> FloatArray:
    """Return W, (d, r), such that rows with this covariance have the unit one after ``@ W``.

    Columns are brought to unit size first, so that units do not matter; r is the rank.
    """
    values, vectors = np.linalg.eigh(units[:, None] * covariance * units)
    kept = values > NOTHING * max(values[-1], 0.0)
    if not kept.any():
        return np.zeros((units.size, 1))
    spread = np.sqrt(values[kept] + RIDGE * values[-1])
    return np.asarray(units[:, None] * vectors[:, kept] / spread)


def _projected(W: Any, features: int, rng: np.random.Generator) -> FloatArray:
    wide = features if W is None else W.shape[1]
    directions = rng.normal(size=(wide, SPARSE_DIMENSIONS)) / np.sqrt(SPARSE_DIMENSIONS)
    return directions if W is None else np.asarray(W @ directions)


def _digits(norms: FloatArray, width: int) -> type[np.floating[Any]]:
    far_out = norms.max() > FAR_OUT * np.median(norms)
    return np.float64 if width == 1 or far_out else np.float32


def _map_rows(X: Any, origin: FloatArray, W: Any) -> FloatArray:
    if sparse.issparse(X):
        return np.asarray(X.toarray() - origin if W is None else _dense(X @ W) - origin @ W)
    centred = X - origin
    return np.asarray(centred if W is None else centred @ W)


def _dense(X: Any) -> FloatArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)
