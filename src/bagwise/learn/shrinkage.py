"""How far to trust noisy labels: slopes are shrunk as much as the labels themselves suggest.

The noise of each bag label is known, so that a penalty need not be guessed. Close to a fit, the
labels are a linear model (`Problem.working`),

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

from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.learn.penalty import SlopePrior
from bagwise.learn.problems import LinearModel, Problem
from bagwise.learn.solver import Solution, solve
from bagwise.rows.whitening import Axes
from bagwise.theory.importance import weigh_features
from bagwise.theory.restricted import Spectrum, minimum, without_free

ROUNDS = 12  # of choosing a variance and fitting again
AGREED = 0.01  # change of log tau^2 and log phi from which on nothing changes for a reader
TOLERANCE = 1e-5  # of a standard error: the penalty moves with the fit by more than that
_ROUGH = 0.01  # of a standard error, while the penalty is still being chosen
TRIES = 12  # of halving the variance of slopes, where a fit does not converge
_SPAN = 14.0  # how far phi is sought below what would explain all labels, in logarithms
_POINTS = 8


def spectrum_of(model: LinearModel, prior: SlopePrior, phi: float) -> Spectrum:
    """Return the likelihood of labels with this dispersion, as a function of tau^2."""
    return model.spectrum(prior.basis, prior.free, phi)


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
    >>> from bagwise.learn.problems import Working
    >>> from bagwise.learn.weights import LabelVariance
    >>> rng = np.random.default_rng(0)
    >>> H = rng.normal(size=(9000, 200))
    >>> z = H @ (0.3 * rng.normal(size=200)) + 2.0 * rng.normal(size=9000)
    >>> model = Working(H, z, LabelVariance(np.ones(9000), np.full(9000, 3.0)))
    >>> zero, one = np.zeros((200, 200)), np.eye(200)
    >>> phi, prior = choose(model, SlopePrior(one, one, zero[:, :0], zero[0], zero))
    >>> bool(0.8 < phi < 1.2), round(prior.variance ** 0.5, 1)     # 4 = phi + 3, and 0.3
    (True, 0.3)
    """
    phi = _best_dispersion(model, prior, least)
    even = prior.even
    log_variance, _ = spectrum_of(model, even, phi).best(even.size)
    even = even.scaled(float(np.exp(log_variance)))
    if even.white is None:
        return phi, even
    # At the center slopes are zero, and the response is small.
    equations = model.with_dispersion(phi).normal_equations(even.center)
    information, score, _ = without_free(*equations, basis=even.basis, free=even.free)
    importance, variance = weigh_features(information, score, even.white.features, size=even.size)
    return phi, even.weighed(importance).scaled(variance)


def _best_dispersion(model: LinearModel, prior: SlopePrior, least: float) -> float:
    most = model.most_dispersion()
    if most is None:  # nothing of the variance is unknown
        return 1.0
    if most <= least:
        return least

    def objective(log_excess: FloatArray) -> FloatArray:
        tried = [spectrum_of(model, prior, least + float(np.exp(p))) for p in np.ravel(log_excess)]
        return np.reshape(
            [spectrum.best(prior.size)[1] for spectrum in tried], np.shape(log_excess)
        )

    high = float(np.log(most - least)) + 0.5
    return least + float(np.exp(minimum(objective, np.linspace(high - _SPAN, high, _POINTS))[0]))


@dataclass(frozen=True)
class Shrunk:
    """A fit with the belief about slopes that the labels suggest.

    Attributes
    ----------
    solution : Solution
    prior : SlopePrior
    working : LinearModel
        The linear model that the labels are close to the fit, its variances known.
    """

    solution: Solution
    prior: SlopePrior
    working: LinearModel

    @property
    def is_sound(self) -> bool:
        """Whether the fit ended where it can be believed."""
        return self.solution.is_sound(penalised=True)

    @property
    def effective(self) -> float:
        """How many coefficients the labels decide, as far as the belief leaves them."""
        values = spectrum_of(self.working, self.prior, 1.0).values * self.prior.variance
        return float(np.sum(values / (1 + values)) + self.prior.free.shape[1])


def solve_shrunk(
    problem: Problem, start: FloatArray, X: FloatArray | Axes, *, width_of_labels: float = np.inf
) -> Shrunk:
    """Fit with as much shrinkage as the labels suggest, and as their bounds do.

    Of the rows X only the directions matter in which they differ.
    """
    prior = SlopePrior.of(problem, X, start, width_of_labels=width_of_labels)
    least = least_dispersion(problem)
    problem, beta = problem.reweighted(start), start
    last = (np.inf, np.inf)
    for _ in range(ROUNDS):
        phi, chosen = choose(problem.working(beta), prior, least=least)
        # Halfway in logarithms: a fit that goes too far is followed by one that goes too short.
        middle = chosen.variance if np.isinf(last[1]) else np.sqrt(chosen.variance * prior.variance)
        prior = chosen.scaled(float(middle))
        solution = solve(problem.with_dispersion(phi), beta, penalty=prior, tolerance=_ROUGH)
        now = (float(np.log(max(phi, 1e-300))), float(np.log(prior.variance)))
        beta, problem = solution.beta, solution.problem
        if max(abs(now[0] - last[0]), abs(now[1] - last[1])) < AGREED:
            break
        last = now
    solution = solve(problem.with_dispersion(phi), beta, penalty=prior, tolerance=TOLERANCE)
    working = solution.problem.working(solution.beta).with_dispersion(phi)
    return Shrunk(solution, prior, working)


def shrink_further(problem: Problem, start: FloatArray, shrunk: Shrunk) -> Shrunk | None:
    """Return a fit that converged, with slopes believed to be as small as that takes, or None.

    The linear model that a penalty was chosen by may be far from the fit that it led to: then the
    choice and the fit chase each other. Less belief in large slopes ends that, and still says more
    than the mean label does.
    """
    phi = max(problem.reweighted(start).phi, least_dispersion(problem))
    for weaker in range(1, TRIES + 1):
        prior = shrunk.prior.scaled(shrunk.prior.variance / 2**weaker)
        fixed = problem.reweighted(start).with_dispersion(phi)
        solution = solve(fixed, start, penalty=prior, tolerance=TOLERANCE)
        found = solution.problem
        if solution.is_sound(penalised=True):
            working = found.working(solution.beta).with_dispersion(found.phi)
            return Shrunk(solution, prior, working)
    return None


def least_dispersion(problem: Problem) -> float:
    """Return the least that phi can be.

    Counts and chances have phi = 1 by their nature. What a model of them misses makes labels vary
    more, and real counts mostly do; a fit that took this for noise of a known kind would follow the
    medians of its labels and not their means.
    """
    return float(problem.family.knows_dispersion)
