"""Where the signal is thought to lie among the directions of the features.

"As much in every white direction" would give the indicator of a level that one row in a thousand
has as much of the labels' variance as a column that half of the rows differ in: a thousandfold
effect on those few rows. Labels have bounds, and real effects are of one order. So the effect of a
column is thought to have the same size *on the rows that it moves*: the mean of ``(theta u)^2``,
with rows weighed by how far the column u moves them (``u^2``, u of variance 1), is
``theta^2 E u^4``. The slopes in standard units are then drawn with variances in proportion to one
over the kurtosis ``E u^4`` of their column. For the indicator of a share p of the rows that is
about p, as if all levels had effects of one size; columns without a tail are hardly told apart.

In white coordinates ``V`` the belief is ``V' diag(1 / kurtosis) V``, scaled so that the whole
signal has variance 1. Where all columns have the same kurtosis, all directions are alike.
"""

import numpy as np

from bagwise._types import FloatArray
from bagwise.rows.whitening import Columns


def signal_root(X: FloatArray) -> FloatArray:
    """Return R, (r, r): white slopes are R z, z standard normal, for a signal of variance 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=4000), rng.random(4000) < 0.01])
    >>> root = signal_root(X)
    >>> shares = np.sort(np.linalg.eigvalsh(root @ root.T))
    >>> bool(shares[0] < 0.1), round(float(shares.sum()), 9)
    (True, 1.0)
    """
    columns = Columns(X)
    tail = np.zeros(X.shape[1])
    for part in columns.parts():
        standard = (X[part] - columns.mean) * columns.units
        tail += np.sum(standard**4, axis=0)
    kurtosis = np.maximum(tail / max(1, columns.n_rows), 1.0)  # never below 1 but by rounding
    vectors = columns.axes.vectors
    if not vectors.shape[1]:
        return np.zeros((0, 0))
    belief = vectors.T @ (vectors / kurtosis[:, None])
    return np.linalg.cholesky(belief / np.trace(belief))
