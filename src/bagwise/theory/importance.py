"""Which features matter: the slopes of a few are large, and those of most are small.

The belief that all slopes in white columns have one size holds back a strong feature as much as
thirty weak ones beside it, and labels of real tables often follow a few features. So every white
coordinate may get a size of its own. The coordinates are those closest to the features (ZCA-cor;
Kessy, Lewin and Strimmer 2018):

    b_j ~ N(0, tau^2 l_j),     1 / l_j ~ Gamma(nu / 2, rate nu / 2)

so that a slope has a Student t distribution with nu degrees of freedom and scale tau. Sizes and tau
are the most likely ones given the labels, slopes being integrated out: they minimise, up to a
constant,

    J = restricted likelihood(tau, l)  +  nu sum_j [ 1 / l_j - 1 + log l_j ]

minus twice the logarithms of both (`restricted`; the second is the belief about log l_j). The steps
are those of expectation and maximisation (Dempster, Laird and Rubin 1977), which never raise J:

    l_j = (nu + E b_j^2 / tau^2) / (nu + 1)

Where labels say nothing of a feature, its l_j is 1. Classes share the importance of a feature: with
q slopes for each, it is ``(nu + sum E b_j^2 / tau^2) / (nu + q)``.

With l = 1 the belief is that of one size, and noise alone lets J fall a little from there. So
sizes are told apart only if J falls by more than ``sum_j log(1 + w_j / nu)``, where w_j is the
share of what is known of b_j that comes from the labels. That is by how much log l_j becomes
narrower with the labels: Laplace's approximation of the two beliefs' odds (Kass and Raftery 1995).

References
----------
Dempster, Laird and Rubin (1977), JRSS B 39. Kass and Raftery (1995), JASA 90. Kessy, Lewin and
Strimmer (2018), The American Statistician 72.
"""

import math
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.theory.restricted import ANY, Size, Spectrum

FREEDOM = 1.0
"""Nu. One is the heaviest tail that is in common use (Cauchy)."""

TURNS = 20
AGREED = 0.05  # change of log l_j from which on nothing changes for a reader


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
    for _ in range(TURNS):
        importance = told.likely_importance(now)
        change = np.abs(np.log(importance / now.importance)).max(initial=0.0)
        now = told.at(importance)
        if change < AGREED:
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
    """Return by how much slopes vary on average, tau being 1."""
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
    """What the labels tell of the slopes; see `weigh_features`."""

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
        """Return the l_j that go with slopes as they are believed to be after the labels."""
        means, covariance = self._posterior(belief)
        squares = np.sum(means**2, axis=0) + covariance
        return np.asarray((FREEDOM + squares / belief.variance) / (FREEDOM + self.classes))

    def known(self, belief: _Belief) -> FloatArray:
        """Return the share of what is known of each feature's slopes that labels told, (d,)."""
        before = self.classes * belief.variance * belief.importance
        return np.asarray(1 - self._posterior(belief)[1] / before)

    def _posterior(self, belief: _Belief) -> tuple[FloatArray, FloatArray]:
        """Return what labels tell of the b_j: means, (q, d), and variances added up, (d,).

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
