"""Shrinkage of slopes: the noisy labels themselves determine how much.

The noise of each bag label is known, so that a penalty need not be guessed. Close to a fit, the
labels are a linear model (`FitProblem.working`),

    response = intercept + H a + error,     a ~ N(0, tau^2 I),    error ~ N(0, omega)

with a the slopes in white columns (`SlopePrior`) and ``omega = phi * share + known`` for each bag.
With nothing believed of the intercept, twice the negative logarithm of how likely the labels are
is, up to a constant,

    log|V| + log|c' V^-1 c| + r' V^-1 r,     V = omega + tau^2 H H'

where r are the residuals of the best intercept, and c its column (restricted likelihood;
`theory.restricted`). The least of it chooses tau and, where it is not known, phi. Where labels say
nothing, tau is so small that every row is predicted by about the mean.

For the Gaussian family that is exact. For others the linear model moves with beta, and the choice
is made again after each fit until both agree (penalised quasi-likelihood; Breslow and Clayton
1993).

References
----------
Breslow and Clayton (1993), JASA 88.
"""

from dataclasses import dataclass, replace
from typing import Generic, Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.families import Family
from bagwise.glm.linear import LinearModel
from bagwise.glm.problem import BagProblem, FitProblem
from bagwise.glm.solver import P, P_co, Penalty, Solution, solve
from bagwise.rows.whitening import Axes, Columns
from bagwise.theory.restricted import (
    ANY,
    Size,
    mean_square,
    minimum,
    root_of,
    weigh_features,
    without_free,
)

ROUNDS = 12  # of choosing a variance and fitting again
AGREED = 0.01  # change of log tau^2 and log phi from which on nothing changes for a reader
TOLERANCE = 1e-5  # of a standard error: the penalty moves with the fit by more than that
_ROUGH = 0.01  # of a standard error, while the penalty is still being chosen
TRIES = 12  # of halving the variance of slopes, where a fit does not converge
_SPAN = 14.0  # how far phi is sought below what would explain all labels, in logarithms
_POINTS = 8
_SEVERAL = 2  # slopes, one of which may be stronger than others
_ENOUGH = 4  # labels for each slope; with fewer, one odd label looks like a strong feature
_ENOUGH_WITHIN_BOUNDS = 1  # where both ends are the family's own, no label can be odd
_USUAL_LOG_RATE_SD = 0.5  # one row in twenty has a rate 2.7 times the usual, or below 1 / 2.7
_USUAL_LOG_ODDS_SD = 1.5
_LOG_SD = 3.0  # a factor of twenty for a rate or for odds, from what is usual or from row to row


@dataclass(frozen=True)
class SlopePrior:
    """Slopes drawn from a normal distribution whose size is the only thing that is not known.

    In columns that were made uncorrelated with variance 1 every slope is N(0, variance). So the
    linear predictor ``x'theta`` of a row has variance ``d * variance`` over the rows, whichever way
    theta points, and the penalty is its mean square: neither the units of the columns nor their
    correlations matter. For classes the coefficients of all of them are drawn, and those of the
    first are subtracted, so that no class is special. What the labels tell of single features may
    make some slopes larger than others (`weighed`, `importance`).

    Of the intercept nothing is believed, but for one case: a chance or a rate that noise has
    carried out of its range has no finite logarithm. Where the link is such a one, the intercept is
    N(start, 3^2), which moves an estimate by less than a hundredth of its standard error unless
    that is above 0.1.

    Attributes
    ----------
    basis : (p, r)
        ``beta = basis @ a`` for slopes a in white columns.
    precision : (p, p)
        Inverse covariance of beta for variance 1; zero for the intercept.
    free : (p, q)
        The directions of beta about which nothing is believed: the intercepts.
    center : (p,)
    loose : (p, p)
        Inverse covariance of the intercepts.
    size : Size
        What is believed of the variance of slopes.
    variance : float
    features : (d, r) or None
        ``b = features @ a`` are the coordinates closest to the features, for slopes a of one class;
        columns are orthonormal. None where features are not told apart.
    back : (q * r, p) or None
        ``a = back @ beta``.
    importance : (d,) or None
        How much larger the variance is for each feature; None where it is the same for all.
    """

    basis: FloatArray
    precision: FloatArray
    free: FloatArray
    center: FloatArray
    loose: FloatArray
    size: Size = ANY
    variance: float = 1.0
    features: FloatArray | None = None
    back: FloatArray | None = None
    importance: FloatArray | None = None
    _even: "SlopePrior | None" = None

    @classmethod
    def of(
        cls,
        problem: BagProblem,
        X: FloatArray | Axes,
        start: FloatArray,
        *,
        width_of_labels: float = np.inf,
    ) -> Self:
        """Take the directions from the rows X, (n, d), whose coefficients are sought.

        `start` is the beta that predicts the mean label for every row. Labels in bounds have a
        standard deviation of half their width at most (Popoviciu 1935), and so have expected ones.
        """
        design, axes = problem.design, X if isinstance(X, Axes) else Columns(X).axes
        width, outputs = axes.units.size, problem.outputs
        slopes = np.zeros((design.width, axes.rank))
        varies = axes.units > 0  # rounding must not give constant columns a belief of their own
        slopes[:width] = (varies * design.scale)[:, None] * axes.basis
        inverse = np.zeros((design.width, design.width))
        # The pseudo-inverse of basis basis'. Along directions without spread, such as a level that
        # no row has, rounding would be all that decides: there slopes are believed to be 0 as well.
        apart = varies * axes.spread / design.scale
        back = np.sqrt(axes.values)[:, None] * axes.vectors.T * apart
        lost = axes.lost.T * axes.spread / design.scale
        inverse[:width, :width] = back.T @ back + lost.T @ lost
        free = np.eye(design.width)[:, width:].astype(np.float64)
        among = np.eye(outputs) + (1.0 if outputs > 1 else 0.0)
        root = np.linalg.cholesky(among)
        to_white = np.zeros((axes.rank, design.width))
        to_white[:, :width] = back
        features = None
        bounded = np.isfinite(problem.family.label_range).all()
        enough = _ENOUGH_WITHIN_BOUNDS if bounded else _ENOUGH
        if axes.rank >= _SEVERAL and problem.n_units >= enough * axes.rank:
            features = axes.vectors
        free = np.asarray(np.kron(np.eye(outputs), free), dtype=np.float64)
        return cls(
            basis=np.kron(root, slopes),
            precision=np.kron(np.linalg.inv(among), inverse),
            free=free,
            center=free @ (free.T @ start),
            loose=free @ free.T / _LOG_SD**2 * has_ends(problem.family),
            size=_size_of_predictors(problem.family, width_of_labels).over(max(1, axes.rank)),
            features=features,
            back=np.asarray(np.kron(np.linalg.inv(root), to_white), dtype=np.float64),
        )

    @property
    def even(self) -> "SlopePrior":
        """The belief that no feature matters more than another."""
        return self if self._even is None else self._even

    def weighed(self, importance: FloatArray) -> Self:
        """Return the belief that slopes have this many times the variance, feature by feature."""
        even = self.even
        if even.features is None or even.back is None:
            raise AssertionError("features are not told apart")
        root = root_of(importance, even.features, even.basis.shape[1] // even.features.shape[1])
        inverse = np.linalg.inv(root)
        more = inverse.T @ inverse - np.eye(len(root))
        return replace(
            self,
            basis=even.basis @ root,
            precision=even.precision + even.back.T @ more @ even.back,
            size=even.size.over(mean_square(root)),
            importance=importance,
            _even=even,
        )

    def scaled(self, variance: float) -> Self:
        """Return the belief that slopes have this variance."""
        return replace(self, variance=variance)

    @property
    def form(self) -> FloatArray:
        """The inverse covariance of beta."""
        return np.asarray(self.precision / self.variance + self.loose)

    @property
    def penalty(self) -> Penalty:
        """The belief as a penalty on beta."""
        return Penalty(self.form, self.center)


def _size_of_predictors(family: Family, width_of_labels: float) -> Size:
    """Return the believed variation of linear predictors over the rows.

    Rates of rows far out grow with the exponential of noise that is taken for a signal, and so do
    small chances. So log rates and log odds that vary much take more evidence than those that vary
    as they mostly do.
    """
    if family.name == "gaussian":
        return Size((width_of_labels / 2) ** 2)
    usual = _USUAL_LOG_RATE_SD if family.has_log_link else _USUAL_LOG_ODDS_SD
    if has_ends(family):
        return Size(_LOG_SD**2, usual**2)
    return Size(usual=usual**2 if family.has_log_link else np.inf)


def has_ends(family: Family) -> bool:
    """Return whether the link maps an end of the range of labels to infinity."""
    return bool(np.isfinite(family.label_range).any())


def choose(
    model: LinearModel, prior: SlopePrior, *, least: float = 0.0
) -> tuple[float, SlopePrior]:
    """Return the dispersion and the belief about slopes that make the labels most likely.

    Parameters
    ----------
    least : float
        The least that the dispersion can be.

    Examples
    --------
    >>> from bagwise.glm.linear import Working
    >>> from bagwise.glm.weights import LabelVariance
    >>> rng = np.random.default_rng(0)
    >>> H = rng.normal(size=(9000, 200))
    >>> z = H @ (0.3 * rng.normal(size=200)) + 2.0 * rng.normal(size=9000)
    >>> units = Working(H, z, LabelVariance(np.ones(9000), np.full(9000, 3.0)))
    >>> model = LinearModel.of(units.over, np.zeros(200))
    >>> zero, one = np.zeros((200, 200)), np.eye(200)
    >>> phi, prior = choose(model, SlopePrior(one, one, zero[:, :0], zero[0], zero))
    >>> bool(0.8 < phi < 1.2), round(prior.variance ** 0.5, 1)     # 4 = phi + 3, and 0.3
    (True, 0.3)
    """
    phi = _best_dispersion(model, prior, least)
    even = prior.even
    log_variance, _ = model.spectrum(even.basis, even.free, phi).best(even.size)
    even = even.scaled(float(np.exp(log_variance)))
    if even.features is None:
        return phi, even
    # At the center slopes are zero, and the response is small.
    equations = model.with_dispersion(phi).normal_equations(even.center)
    information, score, _ = without_free(*equations, basis=even.basis, free=even.free)
    importance, variance = weigh_features(information, score, even.features, size=even.size)
    return phi, even.weighed(importance).scaled(variance)


def _best_dispersion(model: LinearModel, prior: SlopePrior, least: float) -> float:
    most = model.most_dispersion()
    if most is None:  # nothing of the variance is unknown
        return 1.0
    if most <= least:
        return least

    def objective(log_excess: FloatArray) -> FloatArray:
        phis = least + np.exp(np.ravel(log_excess))
        tried = [model.spectrum(prior.basis, prior.free, phi) for phi in phis]
        return np.reshape([one.best(prior.size)[1] for one in tried], np.shape(log_excess))

    high = float(np.log(most - least)) + 0.5
    return least + float(np.exp(minimum(objective, np.linspace(high - _SPAN, high, _POINTS))[0]))


@dataclass(frozen=True)
class Shrunk(Generic[P_co]):
    """A fit with the belief about slopes that the labels suggest.

    Attributes
    ----------
    solution : Solution
    prior : SlopePrior
    working : LinearModel
        The linear model that the labels are close to the fit, its variances known.
    """

    solution: Solution[P_co]
    prior: SlopePrior
    working: LinearModel

    @classmethod
    def of(cls, solution: Solution[P_co], prior: SlopePrior) -> Self:
        """Keep the linear model at a solution, with the dispersion that it has."""
        problem = solution.problem
        working = problem.working(solution.beta).with_dispersion(problem.phi)
        return cls(solution, prior, working)

    @property
    def is_sound(self) -> bool:
        """Whether the fit ended at a plausible solution."""
        return self.solution.is_sound(penalised=True)

    @property
    def effective(self) -> float:
        """The effective number of coefficients, given how strongly the belief shrinks them."""
        values = self.strengths
        return float(np.sum(values / (1 + values)) + self.prior.free.shape[1])

    @property
    def strengths(self) -> FloatArray:
        """The information of labels on each direction of the slopes, relative to the belief."""
        spectrum = self.working.spectrum(self.prior.basis, self.prior.free, 1.0)
        return np.asarray(spectrum.values * self.prior.variance)


def solve_shrunk(problem: P, start: FloatArray, prior: SlopePrior) -> Shrunk[P]:
    """Fit with the shrinkage that labels suggest, alternating until fit and belief agree."""
    least = least_dispersion(problem)
    problem, beta = problem.reweighted(start), start
    last = (np.inf, np.inf)
    for _ in range(ROUNDS):
        # 1. Choose dispersion and size of slopes by the linear model that the labels are here.
        phi, chosen = choose(problem.working(beta), prior, least=least)
        # 2. Halfway in logarithms: a fit that goes too far is followed by one that goes too short.
        middle = chosen.variance if np.isinf(last[1]) else np.sqrt(chosen.variance * prior.variance)
        prior = chosen.scaled(float(middle))
        # 3. Fit again, until neither changes for a reader.
        solution = solve(
            problem.with_dispersion(phi), beta, penalty=prior.penalty, tolerance=_ROUGH
        )
        now = (float(np.log(max(phi, 1e-300))), float(np.log(prior.variance)))
        beta, problem = solution.beta, solution.problem
        if max(abs(now[0] - last[0]), abs(now[1] - last[1])) < AGREED:
            break
        last = now
    # 4. The last fit is exact.
    solution = solve(problem.with_dispersion(phi), beta, penalty=prior.penalty, tolerance=TOLERANCE)
    return Shrunk.of(solution, prior)


def shrink_further(problem: P, start: FloatArray, shrunk: Shrunk[P]) -> Shrunk[P] | None:
    """Return a fit that converged, with slopes believed to be small enough for that, or None.

    The linear model that a penalty was chosen by may be far from the fit that it led to: then the
    choice and the fit chase each other. Less belief in large slopes ends that, and still says more
    than the mean label does.
    """
    phi = max(problem.reweighted(start).phi, least_dispersion(problem))
    for weaker in range(1, TRIES + 1):
        prior = shrunk.prior.scaled(shrunk.prior.variance / 2**weaker)
        fixed = problem.reweighted(start).with_dispersion(phi)
        solution = solve(fixed, start, penalty=prior.penalty, tolerance=TOLERANCE)
        if solution.is_sound(penalised=True):
            return Shrunk.of(solution, prior)
    return None


def least_dispersion(problem: FitProblem) -> float:
    """Return the smallest possible phi.

    Counts and chances have phi = 1 by their nature. What a model of them misses makes labels vary
    more, and real counts mostly do; a fit that took this for noise of a known kind would follow the
    medians of its labels and not their means.
    """
    return float(problem.family.knows_dispersion)
