"""Whether a fit says more than the mean of the labels.

Three ways in which it may not:

- **The labels say nothing.** Slopes that the noise has made up do little harm to chances and to
  linear models, but rates of rows far out grow with their exponential. So slopes of log rates need
  evidence: labels that are more likely with them than without, slopes being integrated out
  (Laplace's approximation; Kass and Raftery 1995).
- **The fit says nothing of what the labels say.** Labels that vary by more than their noise can
  make them, by a chi-square, and a fit that has next to none of it: then other fits are tried, and
  the one is taken that predicts left-out bags best (Allen 1974).
- **Not even the mean is known.** The most likely rate may be next to 0, where a loss is largest,
  and slopes that noise has made up carry rates away together. Then the level is the rate to expect
  of bags that are all alike, whatever the slopes are (`level`).

References
----------
Allen (1974), Technometrics 16. Kass and Raftery (1995), JASA 90.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.glm.problem import BagProblem
from bagwise.glm.shrinkage import TOLERANCE, Shrunk, least_dispersion, shrink_further, spectrum_of
from bagwise.glm.solver import inverse_symmetric, solve
from bagwise.learn.exact_noise import NoisyLabels
from bagwise.privacy.noise_laws import NoiseLaw, log_density

_BEYOND_CHANCE = 4.0  # standard errors by which labels vary more than their noise
_NEXT_TO_NOTHING = 0.1  # of what is left to explain
_REACH = 6.0  # standard errors from the mean of the bags, beyond which no level is sought
_LEVELS = 120
_RESTS = np.array([0.0, 0.1, 0.3, 1.0])  # of the variance besides the noise, as it looks
_UNSHRUNK = 1e4  # times the variance of slopes: as good as no belief about them


def evidence(shrunk: Shrunk[BagProblem], law: NoiseLaw) -> float:
    """Return twice the log of how much more likely labels are with slopes than without."""
    problem = shrunk.solution.problem
    here = NoisyLabels(problem, law, shrunk.prior, problem.phi)
    flat = replace(here, prior=shrunk.prior.scaled(shrunk.prior.variance / 1e12))
    level, _ = flat.climb(problem.constant_start())

    *_, variance = here.linear(shrunk.solution.beta)
    label_sd = np.sqrt(variance.total(problem.phi))
    gain = here.objective(level, label_sd) - here.objective(shrunk.solution.beta, label_sd)
    values = spectrum_of(shrunk.working, shrunk.prior, 1.0).values * shrunk.prior.variance
    return float(2 * gain - np.log1p(values).sum())


def level(
    labels: FloatArray,
    expected: FloatArray,
    noise_sd: FloatArray,
    law: NoiseLaw,
    *,
    unsure: float,
    most: float = np.inf,
) -> float | None:
    """Return by what to multiply expectations of bags that are all alike: the posterior mean.

    Before the labels no factor from 0 to `most` is likelier than another. Around it labels vary by
    their noise, and by what else they do, which is nearly normal and no more than that. None where
    bags know the factor better than by `unsure`, a share of it, or vary more by what else they do:
    that may be far from normal, as shares of a rare class are, and then a law of noise misleads.

    >>> from bagwise.privacy.noise_laws import LAWS
    >>> labels, ones = np.array([2.9, 1.1] * 50), np.ones(100)
    >>> level(labels, ones, ones, LAWS["gaussian"], unsure=0.1)
    >>> round(level(labels, ones, ones, LAWS["gaussian"], unsure=0.01), 6)
    2.0
    """
    # 1. By least squares, which also says what labels vary by besides the noise.
    weights = expected / noise_sd**2
    around = weights @ labels / (weights @ expected)
    noise = np.mean(noise_sd**2)
    beyond = max(0.0, float(np.mean((labels - around * expected) ** 2) - noise))
    error = np.sqrt(1 / np.sum(expected**2 / (beyond + noise_sd**2)))
    if error < unsure * around or beyond > noise:
        return None
    # 2. The posterior mean, by the law of the noise. Long tails hide how large the rest is.
    nearest = min(max(around, 0.0), most)
    ends = max(nearest - _REACH * error, 0.0), min(nearest + _REACH * error, most)
    factors = np.linspace(*ends, 2 * _LEVELS + 1)[1::2]
    values = np.empty((len(_RESTS), _LEVELS))
    for row, rest in enumerate(np.sqrt(_RESTS * beyond)):
        for column, factor in enumerate(factors):
            off, label_sd = labels - factor * expected, np.full_like(labels, rest)
            values[row, column] = log_density(law, off, label_sd, noise_sd)[0].sum()
    likely = np.exp(values - values.max()).sum(axis=0)
    return float(likely @ factors / likely.sum())


@dataclass(frozen=True)
class Variation:
    """How much labels vary around their mean, in units of what their noise and nature explain.

    Attributes
    ----------
    labels, usual : (u,)
        Labels of bags, and the variance that each has if all rows are alike.
    """

    labels: FloatArray
    usual: FloatArray

    @classmethod
    def of(cls, problem: BagProblem, start: FloatArray) -> Self:
        """Take variances from the fit that predicts the mean for every row."""
        flat = problem.with_dispersion(least_dispersion(problem)).reweighted(start)
        used = problem.base() > 0
        return cls(problem.labels[used], flat.true_variance(start)[used])

    def around(self, expected: FloatArray | float) -> FloatArray:
        """Return the squares of what is left, over their variances."""
        return np.asarray((self.labels - expected) ** 2 / self.usual)

    @property
    def around_mean(self) -> FloatArray:
        """What is left by the mean of all labels."""
        return self.around(float(np.average(self.labels, weights=1 / self.usual)))

    @property
    def is_beyond_chance(self) -> bool:
        """Whether labels vary by more than noise of any law can make them."""
        squares = self.around_mean
        error = squares.std() / np.sqrt(squares.size)
        return bool(squares.mean() - 1 > _BEYOND_CHANCE * error)

    def misses(self, expected: FloatArray) -> bool:
        """Tell whether expectations leave nearly all of what there is to explain."""
        explained = self.around_mean.mean() - self.around(expected).mean()
        return bool(explained < _NEXT_TO_NOTHING * (self.around_mean.mean() - 1))


def best_of_others(
    problem: BagProblem, start: FloatArray, shrunk: Shrunk[BagProblem]
) -> tuple[Shrunk[BagProblem], bool]:
    """Return the fit that predicts left-out bags best, and whether it says what there is to say.

    Tried are less shrinkage and none, the least dispersion, and more shrinkage.
    """
    variation = Variation.of(problem, start)
    if not variation.usual.all():  # labels without noise, such as the learner's own, need no doubt
        return shrunk, True
    if not variation.is_beyond_chance or not variation.misses(_expected(shrunk)):
        return shrunk, True
    tried = [shrunk, shrink_further(problem, start, shrunk)]
    least = problem.with_dispersion(least_dispersion(problem))
    for variance in (shrunk.prior.variance, _UNSHRUNK * shrunk.prior.variance):
        prior = shrunk.prior.scaled(variance)
        solution = solve(least, start, penalty=prior.penalty, tolerance=TOLERANCE)
        working = solution.problem.working(solution.beta).with_dispersion(solution.problem.phi)
        tried.append(Shrunk(solution, prior, working))
    sound = [one for one in tried if one is not None and one.is_sound]
    best = min(sound, key=lambda one: float(np.mean(_left_out(one) ** 2 / variation.usual)))
    return best, not variation.misses(_expected(best))


def _expected(shrunk: Shrunk[BagProblem]) -> FloatArray:
    problem = shrunk.solution.problem
    return problem.moments(shrunk.solution.beta)[0][problem.base() > 0]


def _left_out(shrunk: Shrunk[BagProblem]) -> FloatArray:
    """Return each label less what bags without it predict, to first order."""
    model = shrunk.solution.problem.units(shrunk.solution.beta)
    weights = 1 / model.variance.total(shrunk.solution.problem.phi)
    information = model.jacobian.T @ (model.jacobian * weights[:, None]) + shrunk.prior.form
    pull = model.jacobian @ inverse_symmetric(information)[0]
    leverage = np.minimum(weights * np.einsum("ij,ij->i", pull, model.jacobian), 0.99)
    return np.asarray(model.residuals / (1 - leverage))
