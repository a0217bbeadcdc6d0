"""What a linear model leaves of the expected labels: random functions that no column explains.

Real labels do not follow a linear model exactly. How far bags are led astray by that can be told
from the features: write what the model leaves as a random function g of the features, and see what
an estimator on these bags makes of the bag means of g. Here are draws of g: waves of two lengths
(random Fourier features, draws from a smooth Gaussian process), squares of random directions, and
products of two. Labels have bounds, so functions do: beyond three standard deviations a direction
counts as three. Each is made orthogonal to the columns and the constant over the rows, since what a
linear model could explain is no misfit, and scaled to variance 1.

References
----------
Rahimi and Recht (2007) for the random waves. Orthogonal to the columns: the best linear prediction
of the labels over these rows is then the truth that errors are measured from.
"""

import numpy as np

from bagwise._types import FloatArray

FUNCTIONS_OF_A_KIND = 24
WAVE_LENGTHS = (1.0, 3.0)  # in units of a typical distance of two white rows, up to sqrt(2)
FAR_OUT = 3.0  # standard deviations of a direction
DEFAULT_MISFIT = 0.05
"""Variance of what a linear model leaves of the expected labels, a share of the variance of what it
explains. Real tables leave about 0.02 to 0.5; plans are judged at 0, at this and at 0.15."""
_EXPLAINED = 1e-3  # of its spread: what is left of a function that the columns explain is rounding


def draw_misfit(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return draws of what a linear model leaves, (n, functions), for white rows (n, r).

    Functions that the columns explain are left out, and none may be left: of rows that are all 0
    or 1 in one column, a linear model explains whatever there is.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(500, 2))
    >>> found = draw_misfit(rows, np.random.default_rng(1))
    >>> found.shape, bool(np.allclose(found.var(axis=0), 1))
    ((500, 96), True)
    >>> bool(np.abs(rows.T @ found / 500).max() < 1e-9)
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
