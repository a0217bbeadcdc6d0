"""Prior assumptions about labels: the directions of the signal, and the misfit of a linear model.

**Where the signal lies among the directions of the features.** "As much in every white direction"
would give the indicator of a level that one row in a thousand has as much of the labels' variance
as a column that half of the rows differ in: a thousandfold effect on those few rows. Labels have
bounds, and real effects are of one order. So the effect of a column is thought to have the same
size *on the rows that it moves*: the mean of ``(theta u)^2``, with rows weighed by how far the
column u moves them (``u^2``, u of variance 1), is ``theta^2 E u^4``. The slopes in standard units
are then drawn with variances in proportion to one over the kurtosis ``E u^4`` of their column. For
the indicator of a share p of the rows that is about p, as if all levels had effects of one size;
columns without a tail are hardly told apart.

In white coordinates ``V`` the belief is ``V' diag(1 / kurtosis) V``, scaled so that the whole
signal has variance 1. Where all columns have the same kurtosis, all directions are alike.

**The misfit of a linear model.** Real labels do not follow a linear model exactly. How much this
misleads bags can be seen from the features: write the misfit as a random function g of the
features, and see what an estimator on these bags makes of the bag means of g. Here are draws
of g: waves of two lengths (random Fourier features, draws from a smooth Gaussian process), squares
of random directions, and products of two. Labels have bounds, so functions do: beyond three
standard deviations a direction counts as three. Each is made orthogonal to the columns and the
constant over the rows, since what a linear model could explain is no misfit, and scaled to variance
1.

References
----------
Rahimi and Recht (2007) for the random waves. Orthogonal to the columns: the best linear prediction
of the labels over these rows is then the truth that errors are measured from.
"""

import numpy as np

from bagwise._types import FloatArray
from bagwise.rows.whitening import Columns

FUNCTIONS_OF_A_KIND = 24
WAVE_LENGTHS = (1.0, 3.0)  # in units of a typical distance of two white rows, up to sqrt(2)
FAR_OUT = 3.0  # standard deviations of a direction
DEFAULT_MISFIT = 0.05
"""Variance of what a linear model leaves of the expected labels, a share of the variance of what it
explains. Real tables leave about 0.02 to 0.5; plans are judged at 0, at this and at 0.15."""
_EXPLAINED = 1e-3  # of its spread: what is left of a function that the columns explain is rounding


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
    for _, block in columns.blocks():
        standard = (block - columns.mean) * columns.units
        tail += np.sum(standard**4, axis=0)
    kurtosis = np.maximum(tail / max(1, columns.n_rows), 1.0)  # never below 1 but by rounding
    vectors = columns.axes.vectors
    if not vectors.shape[1]:
        return np.zeros((0, 0))
    belief = vectors.T @ (vectors / kurtosis[:, None])
    return np.linalg.cholesky(belief / np.trace(belief))


def draw_misfit(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return draws of the misfit of a linear model, (n, functions), for white rows (n, r).

    Functions that the columns explain are left out, and none may be left: of rows that are all 0
    or 1 in one column, a linear model explains whatever there is.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(500, 2))
    >>> drawn = draw_misfit(rows, np.random.default_rng(1))
    >>> drawn.shape, bool(np.allclose(drawn.var(axis=0), 1))
    ((500, 96), True)
    >>> bool(np.abs(rows.T @ drawn / 500).max() < 1e-9)
    True
    """
    n, directions = rows.shape
    if directions == 0:
        return np.empty((n, 0))

    def project() -> FloatArray:
        axes = rng.standard_normal((directions, FUNCTIONS_OF_A_KIND)) / np.sqrt(directions)
        return np.asarray(rows @ axes)

    waves = [
        np.cos(project() / length + rng.uniform(0, 2 * np.pi, FUNCTIONS_OF_A_KIND))
        for length in WAVE_LENGTHS
    ]
    one, other, square = (np.clip(project(), -FAR_OUT, FAR_OUT) for _ in range(3))
    drawn = np.column_stack([*waves, square**2, one * other])
    drawn -= drawn.mean(axis=0)
    before = drawn.std(axis=0)
    columns = rows - rows.mean(axis=0)
    left = drawn - columns @ np.linalg.lstsq(columns.T @ columns, columns.T @ drawn)[0]
    spread = left.std(axis=0)
    unexplained = spread > _EXPLAINED * before
    return np.asarray(left[:, unexplained] / spread[unexplained])
