"""The restricted likelihood of a linear model whose slopes are drawn, as a function of their size.

With errors of variance 1, slopes ``a ~ N(0, tau^2 I)`` and nothing believed of what is free,

    response = free c + slopes a + error

has minus twice the logarithm of its restricted likelihood, up to a constant,

    log|V| + log|free' V^-1 free| + r' V^-1 r,     V = I + tau^2 slopes slopes'

where r are the residuals of the best c (Patterson and Thompson 1971). With what is free taken out,
the eigenvalues l of slopes'slopes and the scores s along its eigenvectors, it is

    rest + sum_i [ log(1 + tau^2 l_i) - tau^2 s_i^2 / (1 + tau^2 l_i) ]

so that one decomposition serves for every tau. Beside it stands ``-log(tau^2)``: a chance of zero
that there is no signal at all, so that no interval has length zero (Chung et al. 2013). Where sizes
are believed to be usual, ``tau^2 / usual`` stands there as well, so that tau has a Rayleigh
distribution before the labels (`Size`).

References
----------
Patterson and Thompson (1971), Biometrika 58. Chung, Rabe-Hesketh, Dorie, Gelman and Liu (2013),
Psychometrika 78.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from bagwise._types import FloatArray


@dataclass(frozen=True)
class Size:
    """What is believed of tau^2 before the labels: never above `most`, seldom far above `usual`."""

    most: float = np.inf
    usual: float = np.inf

    def over(self, factor: float) -> Self:
        """Return the belief about tau^2 over a factor."""
        return replace(self, most=self.most / factor, usual=self.usual / factor)


ANY = Size()


@dataclass(frozen=True)
class Spectrum:
    """The restricted likelihood of a linear model with given weights, as a function of tau^2.

    Attributes
    ----------
    values : (r,)
        Eigenvalues of the information about the slopes.
    squares : (r,)
        Squared score of each direction.
    rest : float
        What does not depend on tau.
    """

    values: FloatArray
    squares: FloatArray
    rest: float

    @classmethod
    def of(
        cls,
        gram: FloatArray,
        score: FloatArray,
        square: float,
        *,
        basis: FloatArray,
        free: FloatArray,
        log_determinant: float = 0.0,
    ) -> Self:
        """Take out what is free, and turn the slopes into independent directions.

        Parameters
        ----------
        gram, score, square : (p, p), (p,), float
            Products of columns with each other and with the response, and its squares.
        basis, free : (p, r), (p, q)
            Which combinations of the columns are slopes, and which are free.

        Examples
        --------
        >>> columns, response = np.eye(3), np.array([1.0, 2.0, 9.0])
        >>> sums = columns.T @ columns, columns.T @ response, response @ response
        >>> spectrum = Spectrum.of(*sums, basis=np.eye(3)[:, :2], free=np.eye(3)[:, 2:])
        >>> spectrum.values.tolist(), sorted(spectrum.squares.tolist()), spectrum.rest
        ([1.0, 1.0], [1.0, 4.0], 5.0)
        """
        inner, scores, lost = without_free(gram, score, basis=basis, free=free)
        values, vectors = np.linalg.eigh(inner)
        rest = square + log_determinant + lost
        return cls(np.maximum(values, 0.0), (vectors.T @ scores) ** 2, float(rest))

    def objective(self, log_variance: FloatArray) -> FloatArray:
        """Return minus twice the restricted log likelihood, for each of some log tau^2."""
        tau = np.exp(log_variance)[..., None]
        inner = tau * self.values
        fitted = np.sum(tau * self.squares / (1 + inner), axis=-1)
        return np.asarray(self.rest - fitted + np.sum(np.log1p(inner), axis=-1) - log_variance)

    def best(self, size: Size = ANY) -> tuple[float, float]:
        """Return the log tau^2 with the least objective under a belief about it, and that."""
        seen = self.values > 1e-12 * self.values.max(initial=0.0)
        if not seen.any():  # nothing is said about any slope
            return 0.0, float(self.objective(np.zeros(())))
        # Far below, labels say nothing of any direction; far above, each is taken as it is.
        low = -np.log(self.values[seen].max()) - 9.0
        largest = np.max(self.squares[seen] / self.values[seen] ** 2)
        high = max(low + 1.0, float(np.log(max(largest, 1e-300))) + 3.0)
        high = min(high, float(np.log(size.most)))
        low = min(low, high - 1.0)
        grid = np.linspace(low, high, 64)
        return minimum(lambda at: self.objective(at) + np.exp(at) / size.usual, grid)


def without_free(
    gram: FloatArray, score: FloatArray, *, basis: FloatArray, free: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return information and score of the slopes, what is free being at its best.

    And by how much that changes minus twice the restricted log likelihood without slopes.

    >>> gram, score = np.array([[2.0, 1.0], [1.0, 1.0]]), np.array([3.0, 1.0])
    >>> inner, scores, _ = without_free(gram, score, basis=np.eye(2)[:, :1], free=np.eye(2)[:, 1:])
    >>> inner.tolist(), scores.tolist()
    ([[1.0]], [2.0])
    """
    inner, scores = basis.T @ gram @ basis, basis.T @ score
    if not free.shape[1]:
        return inner, scores, 0.0
    root = np.linalg.cholesky(free.T @ gram @ free)
    taken = scipy.linalg.solve_triangular(root, free.T @ gram @ basis, lower=True)
    told = scipy.linalg.solve_triangular(root, free.T @ score, lower=True)
    lost = 2 * float(np.sum(np.log(np.diag(root)))) - float(told @ told)
    return inner - taken.T @ taken, scores - taken.T @ told, lost


def minimum(objective: Callable[[FloatArray], FloatArray], grid: FloatArray) -> tuple[float, float]:
    """Return where a function of one number is least, and its value there."""
    values = objective(grid)
    at = int(np.argmin(values))
    around = grid[max(0, at - 1)], grid[min(grid.size - 1, at + 1)]
    best = scipy.optimize.minimize_scalar(
        lambda x: float(objective(np.asarray(x))),
        bounds=around,
        method="bounded",
        options={"xatol": 1e-3},
    )
    if best.fun <= values[at]:
        return float(best.x), float(best.fun)
    return float(grid[at]), float(values[at])
