"""Metrics: rows are mapped to points with Euclidean distances.

Any metric is a linear map, so one engine serves all: the points are ``(X - middle) @ W``.

The metric "model" takes columns in standard deviations, times what scores of the rows, such as the
predictions of a model, owe to each of them. Columns that hardly matter to the scores may then
differ within a bag, and those that matter may not. What is owed is told by CAR scores,

    w = R^(-1/2) r

with R the correlations of the columns and r those with the scores (Zuber and Strimmer 2011). Their
squares add up to the share of the scores that is linear, columns that are alike share what they
bring, and none of them grows without limit where columns are nearly collinear, as coefficients do.
"""

from typing import Any, Literal

import numpy as np
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.rows.whitening import Columns, RowValues

Scale = Literal["whiten", "std", "none"]
ScaleOrModel = Literal["whiten", "std", "none", "model"]

FLOOR = 0.1
"""What a column counts at least, as a share of the mean square of all: a linear model does not see
all that matters, and a noisy one is not to be believed that something does not matter at all."""

RIDGE = 1e-6  # of the largest variance along a direction: what is added to all of them
SPARSE_DIMENSIONS = 128  # wider sparse data are projected
# Float32 carries seven digits. Rows this much farther out than usual would use them up.
FAR_OUT = 1e3


def make_points(
    X: Any,
    scale: ScaleOrModel,
    rng: np.random.Generator,
    *,
    order: IntArray | None = None,
    scores: FloatArray | None = None,
) -> AnyArray:
    """Return the points of the rows of X, dense or scipy sparse, as a new array.

    The scale "model" needs scores, one for each row of X.

    With `order`, of the rows in that order, and even rounding does not depend on how X was ordered.
    Points are float32, or float64 where outliers or a single dimension would need the digits, and
    of usual size one, so that squares neither overflow nor vanish.
    Sparse X with many columns is projected at random to `SPARSE_DIMENSIONS`, which keeps squared
    distances to about ``sqrt(2 / SPARSE_DIMENSIONS)``, 12 % (Johnson and Lindenstrauss 1984); it is
    never made dense.
    """
    rows = Columns(X, order)
    W = _linear_map(rows, scale, scores)
    width = X.shape[1] if W is None else W.shape[1]
    if rows.is_sparse and width > SPARSE_DIMENSIONS:
        directions = rng.normal(size=(width, SPARSE_DIMENSIONS)) / np.sqrt(SPARSE_DIMENSIONS)
        W, width = directions if W is None else np.asarray(W @ directions), SPARSE_DIMENSIONS
    # The origin is central whatever the outliers. Sparse columns are mostly zeros, so that an
    # outlier hardly moves their mean; of others it is the median over some of the rows.
    origin = rows.mean if rows.is_sparse else np.median(next(rows.blocks())[1], axis=0)
    norms = np.concatenate(
        [np.linalg.norm(_map_rows(block, origin, W), axis=1) for _, block in rows.blocks()]
    )
    exact = width == 1 or norms.max() > FAR_OUT * np.median(norms)
    points = np.empty((X.shape[0], width), dtype=np.float64 if exact else np.float32)
    usual = float(np.median(norms)) or float(norms.max()) or 1.0
    for place, block in rows.blocks():
        points[place] = _map_rows(block, origin, W) / usual
    return points


def linear_map(
    columns: Columns, scale: ScaleOrModel, scores: FloatArray | None = None
) -> FloatArray:
    """Return the map from centred dense rows to points, (d, r)."""
    W = _linear_map(columns, scale, scores)
    return np.eye(columns.mean.size) if W is None else _dense(W)


def importance(columns: Columns, scores: RowValues) -> FloatArray:
    """Return each column's contribution to scores, (d,), for columns in standard deviations.

    It is the absolute CAR score, with a floor; 1 for all columns if they tell nothing of the
    scores.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> importance(Columns(X), X[:, 0] - 0.5 * X[:, 1]).round(1)
    array([0.9, 0.5, 0.2])
    """
    axes, spread = columns.axes, columns.spread_of(scores)
    if spread == 0 or axes.rank == 0:
        return np.ones(axes.units.size)
    correlations = axes.units * columns.covariance_with(scores) / spread
    owed = (axes.vectors / np.sqrt(axes.values)) @ (axes.vectors.T @ correlations)
    mean_square = float(np.mean(owed**2))
    if mean_square == 0:
        return np.ones_like(owed)
    return np.asarray(np.sqrt(owed**2 + FLOOR * mean_square))


def _linear_map(columns: Columns, scale: ScaleOrModel, scores: FloatArray | None) -> Any:
    """Return the map from centred rows to points, (d, r); None for the identity."""
    if scale == "none":
        return None
    if scale == "std":
        return sparse.diags_array(columns.units).tocsr()
    if scale == "model":
        if scores is None:
            raise AssertionError("the metric of a model needs its scores")
        return sparse.diags_array(columns.units * importance(columns, scores)).tocsr()
    axes = columns.axes
    if not axes.rank:
        return np.zeros((axes.units.size, 1))
    # Nearly white, so that columns that are almost collinear do not rule the distance.
    ridge = RIDGE * axes.values.max()
    return axes.units[:, None] * (axes.vectors / np.sqrt(axes.values + ridge))


def _map_rows(X: Any, origin: FloatArray, W: Any) -> FloatArray:
    if sparse.issparse(X):
        return np.asarray(X.toarray() - origin if W is None else _dense(X @ W) - origin @ W)
    centred = X - origin
    return np.asarray(centred if W is None else centred @ W)


def _dense(X: Any) -> FloatArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)
