"""The restricted likelihood of a linear model with random slopes, as a function of their scale.

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

**Which features matter.** The belief that all slopes in white columns have one size holds back a
strong feature as much as thirty weak ones beside it, and labels of real tables often follow a few
features. So every white coordinate may get a size of its own. The coordinates are those closest to
the features (ZCA-cor; Kessy, Lewin and Strimmer 2018):

    b_j ~ N(0, tau^2 l_j),     1 / l_j ~ Gamma(nu / 2, rate nu / 2)

so that a slope has a Student t distribution with nu degrees of freedom and scale tau. Sizes and tau
are the most likely ones given the labels, slopes being integrated out: they minimise, up to a
constant,

    J = restricted likelihood(tau, l)  +  nu sum_j [ 1 / l_j - 1 + log l_j ]

minus twice the logarithms of both; the second is the belief about log l_j. The steps are those of
expectation and maximisation (Dempster, Laird and Rubin 1977), which never raise J:

    l_j = (nu + E b_j^2 / tau^2) / (nu + 1)

Where labels say nothing of a feature, its l_j is 1. Classes share the importance of a feature: with
q slopes for each, it is ``(nu + sum E b_j^2 / tau^2) / (nu + q)``.

With l = 1 the belief is that of one size, and noise alone lets J fall a little from there. So
sizes are told apart only if J falls by more than ``sum_j log(1 + w_j / nu)``, where w_j is the
share of what is known of b_j that comes from the labels. That is by how much log l_j becomes
narrower with the labels: Laplace's approximation of the two beliefs' odds (Kass and Raftery 1995).

References
----------
Patterson and Thompson (1971), Biometrika 58. Chung, Rabe-Hesketh, Dorie, Gelman and Liu (2013),
Psychometrika 78. Dempster, Laird and Rubin (1977), JRSS B 39. Kass and Raftery (1995), JASA 90.
Kessy, Lewin and Strimmer (2018), The American Statistician 72.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from bagwise._types import FloatArray


@dataclass(frozen=True)
class Size:
    """The belief about tau^2 before the labels: never above `most`, seldom far above `usual`."""

    most: float = np.inf
    usual: float = np.inf

    def over(self, factor: float) -> Self:
        """Return the belief about tau^2 divided by a factor."""
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
        """Project out the free coefficients, and rotate the slopes into independent directions.

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
        """Return the log tau^2 with the least objective under a belief, and that objective."""
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
    """Return information and score of the slopes, with the free coefficients at their optimum.

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
    """Return the minimiser of a function of one number, and its minimum."""
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


FREEDOM = 1.0
"""Nu. One is the heaviest tail that is in common use (Cauchy)."""

_TURNS = 20
_AGREED = 0.05  # change of log l_j from which on nothing changes for a reader


def weigh_features(
    information: FloatArray,
    score: FloatArray,
    features: FloatArray,
    *,
    size: Size = ANY,
) -> tuple[FloatArray, float]:
    """Return how much each feature matters, (d,), and tau^2; all matter alike unless labels differ.

    Parameters
    ----------
    information, score : (q * r, q * r), (q * r,)
        Of the slopes in white columns, class by class, at zero; whatever is free is taken out.
    features : (d, r)
        ``b = features @ a`` are the coordinates closest to the features.
    size : Size
        What is believed of the variance of slopes, on average.

    Examples
    --------
    Of ten slopes one is 5 and nine are 0, and each is told with an error of 1.

    >>> rng = np.random.default_rng(0)
    >>> told = 5.0 * (np.arange(10) == 4) + rng.normal(size=10)
    >>> importance, variance = weigh_features(np.eye(10), told, np.eye(10))
    >>> int(importance.argmax()), bool(importance[4] > 10 * np.median(importance))
    (4, True)
    >>> weigh_features(np.eye(10), rng.normal(size=10), np.eye(10))[0].tolist() == [1.0] * 10
    True
    """
    told = _Told(information, score, features, size)
    even = now = told.at(np.ones(features.shape[0]))
    for _ in range(_TURNS):
        importance = told.likely_importance(now)
        change = np.abs(np.log(importance / now.importance)).max(initial=0.0)
        now = told.at(importance)
        if change < _AGREED:
            break
    narrower = float(np.log1p(told.known(now) / FREEDOM).sum())
    best = now if now.objective < even.objective - narrower else even
    return best.importance, best.variance


def root_of(importance: FloatArray, features: FloatArray, classes: int = 1) -> FloatArray:
    """Return the map from slopes of one size to those of features that matter so, (q * r, q * r).

    >>> root_of(np.array([4.0, 9.0]), np.eye(2)).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    shape = features.T @ (importance[:, None] * features)
    return np.kron(np.eye(classes), np.linalg.cholesky(shape))


def mean_square(root: FloatArray) -> float:
    """Return the mean variance of slopes for tau = 1."""
    return float(np.mean(np.sum(root**2, axis=1)))


@dataclass(frozen=True)
class _Belief:
    """Sizes of features, the tau^2 that goes with them, and J."""

    importance: FloatArray
    root: FloatArray
    variance: float
    objective: float


@dataclass(frozen=True)
class _Told:
    """The information of the labels about the slopes; see `weigh_features`."""

    information: FloatArray
    score: FloatArray
    features: FloatArray
    size: Size

    @property
    def classes(self) -> int:
        """How many slopes each feature has."""
        return int(self.score.size) // int(self.features.shape[1])

    def at(self, importance: FloatArray) -> _Belief:
        """Return the belief with these sizes and the tau that is most likely."""
        root = root_of(importance, self.features, self.classes)
        values, vectors = np.linalg.eigh(root.T @ self.information @ root)
        squares = (vectors.T @ (root.T @ self.score)) ** 2
        spectrum = Spectrum(np.maximum(values, 0.0), squares, 0.0)
        log_variance, unlikely = spectrum.best(self.size.over(mean_square(root)))
        surprise = FREEDOM * float(np.sum(1 / importance - 1 + np.log(importance)))
        return _Belief(importance, root, float(np.exp(log_variance)), unlikely + surprise)

    def likely_importance(self, belief: _Belief) -> FloatArray:
        """Return the l_j implied by the posterior belief about the slopes."""
        means, covariance = self._posterior(belief)
        squares = np.sum(means**2, axis=0) + covariance
        return np.asarray((FREEDOM + squares / belief.variance) / (FREEDOM + self.classes))

    def known(self, belief: _Belief) -> FloatArray:
        """Return the share of what is known of each feature's slopes that labels told, (d,)."""
        before = self.classes * belief.variance * belief.importance
        return np.asarray(1 - self._posterior(belief)[1] / before)

    def _posterior(self, belief: _Belief) -> tuple[FloatArray, FloatArray]:
        """Return the posterior of the b_j: means, (q, d), and summed variances, (d,).

        With ``a = features'b`` and L L' the covariance of a, tau being 1, x = L^-1 a is N(0, I)
        before the labels, and ``E b = l features L^-T x``. Where there are more features than
        directions, some of the variance of b_j is left whatever a is.
        """
        whole = belief.root * math.sqrt(belief.variance)
        posterior = np.linalg.inv(np.eye(len(whole)) + whole.T @ self.information @ whole)
        x = np.split(posterior @ (whole.T @ self.score), self.classes)
        width = self.features.shape[1]
        of_class = np.linalg.inv(belief.root[:width, :width])
        spread = belief.importance[:, None] * (self.features @ of_class.T)
        left = belief.importance - np.sum(spread**2, axis=1)
        means = math.sqrt(belief.variance) * np.asarray(x) @ spread.T
        blocks = sum(
            posterior[at : at + width, at : at + width] for at in range(0, len(whole), width)
        )
        variances = np.sum((spread @ blocks) * spread, axis=1) + self.classes * left
        return means, belief.variance * variances
