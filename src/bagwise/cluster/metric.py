"""What "near" means: rows become points whose Euclidean distance is the one that counts.

Any metric is a linear map, so one engine serves all: the points are ``(X - mean) @ W``.
"""

from typing import Any, Literal

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, FloatArray

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


def make_points(X: Any, scale: Scale, rng: np.random.Generator) -> AnyArray:
    """Return the points of the rows of X, dense or scipy sparse, as a new array.

    They are float32, or float64 where outliers or a single dimension would need the digits. Sparse
    X with many columns is projected at random to `SPARSE_DIMENSIONS`, which keeps squared distances
    to about ``sqrt(2 / SPARSE_DIMENSIONS)``, 12 % (Johnson and Lindenstrauss 1984); it is never
    made dense.
    """
    is_sparse = sparse.issparse(X)
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    W = None if scale == "none" and not is_sparse else _linear_map(X, mean, scale)
    if W is not None and is_sparse and W.shape[1] > SPARSE_DIMENSIONS:
        W = W @ rng.normal(size=(W.shape[1], SPARSE_DIMENSIONS)) / np.sqrt(SPARSE_DIMENSIONS)
    dtype = _digits(X, mean, W)
    points = np.empty((X.shape[0], mean.size if W is None else W.shape[1]), dtype=dtype)
    for part in _chunks(X.shape[0]):
        points[part] = _map_rows(X[part], mean, W)
    return points


def standardise(X: FloatArray) -> FloatArray:
    """Return X in standard deviations of each column; constant columns become zero."""
    mean = X.mean(axis=0)
    return np.asarray((X - mean) * _units(X, mean))


def covariance(X: Any, mean: FloatArray) -> FloatArray:
    """Return the population covariance matrix of the rows of X, dense or sparse, (d, d)."""
    total = np.zeros((mean.size, mean.size))
    if sparse.issparse(X):
        total += (X.T @ X).toarray() - X.shape[0] * np.outer(mean, mean)
    else:
        for part in _chunks(X.shape[0]):
            centred = X[part] - mean
            total += centred.T @ centred
    result: FloatArray = total / X.shape[0]
    return result


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


def _linear_map(X: Any, mean: FloatArray, scale: Scale) -> FloatArray:
    if scale == "none":
        return np.eye(mean.size)
    if scale == "std":
        return np.diag(_units(X, mean))
    return whitening_map(covariance(X, mean), _units(X, mean))


def _units(X: Any, mean: FloatArray) -> FloatArray:
    """Return one over the standard deviation of each column, and zero for constant ones."""
    if sparse.issparse(X):
        variances = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
    else:
        chunks = _chunks(X.shape[0])
        variances = sum(((X[part] - mean) ** 2).sum(axis=0) for part in chunks) / X.shape[0]
    varies = variances > (FLAT_SPARSE if sparse.issparse(X) else FLAT) * mean**2
    return np.where(varies, 1.0 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)


def _digits(X: Any, mean: FloatArray, W: FloatArray | None) -> type[np.floating]:
    if (mean.size if W is None else W.shape[1]) == 1:
        return np.float64
    norms = np.concatenate(
        [np.linalg.norm(_map_rows(X[part], mean, W), axis=1) for part in _chunks(X.shape[0])]
    )
    return np.float64 if norms.max() > FAR_OUT * np.median(norms) else np.float32


def _map_rows(X: Any, mean: FloatArray, W: FloatArray | None) -> FloatArray:
    if W is None:
        return np.asarray(X - mean)
    if sparse.issparse(X):
        return np.asarray(X @ W - mean @ W)
    return np.asarray((X - mean) @ W)


def _chunks(n_rows: int) -> list[slice]:
    return [slice(first, first + CHUNK) for first in range(0, n_rows, CHUNK)]
