"""The likelihood of labels with privacy noise that is not normal, instead of least squares.

A bag label is its expectation plus label noise, nearly normal, plus privacy noise of a known kind
(`privacy.noise_laws`). Starting at the least-squares fit, beta climbs the penalised likelihood by
Fisher scoring: each label counts by its information I, and its residual r is replaced by
``score(r) / I``, which has variance ``1 / I``. So a step is least squares on these, with the same
penalty, and the same restricted likelihood chooses the penalty (`shrinkage.choose`). A step that
lowers the likelihood is halved, and if that does not help it is not taken: normal plus Laplace
noise is log-concave, normal plus staircase is not, and may have several peaks.

The dispersion maximises the likelihood of the residuals, each divided by the root of one minus its
leverage, since a fit comes closer to the labels than the truth.

Noise with long tails makes this likelihood forgiving: labels that are far off count for little.
That goes wrong where the labels of rows are skewed. A bag with one enormous label is then taken for
a bag with much noise, and the fit is about what is usual instead of about means. Least squares is
about means, whatever the shape of the labels. So the two are compared at the end: where least
squares would move the predictions by more than its own error, the likelihood is misled, and the
least-squares fit is kept (`NoisyLabels.correction`).

References
----------
Hausman (1978), Econometrica 46: an estimator that is good under one law against one that is sound
under all of them.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from bagwise._types import FloatArray, IntArray
from bagwise.glm.linear import LinearModel, Working
from bagwise.glm.problem import BagProblem
from bagwise.glm.shrinkage import AGREED, Shrunk, SlopePrior, choose, least_dispersion
from bagwise.glm.solver import inverse_symmetric, solve_symmetric
from bagwise.glm.weights import LabelVariance
from bagwise.privacy.laws import Law
from bagwise.privacy.noise_laws import information, log_density

ROUNDS = 6
STEPS = 30
_SETTLED = 1e-8  # decrement, in units of a squared standard error
_CLOSE = 1e-4  # a hundredth of a standard error: as good as there when the steps are used up
_BEYOND_CHANCE = 3.0  # times the mean: of two slopes, one pair in twenty differs by more
_NEVER_CERTAIN = 1e-12  # of the largest variance: a label that has none would count infinitely

OUTLYING = 0.01
"""Share of the bags that may be far off for reasons of their own, such as labels that were clipped.
It is to the credit of the likelihood that it hardly listens to these."""


@dataclass(frozen=True)
class NoisyLabels:
    """Bag labels with their noise, and a loss that models their expected values.

    Attributes
    ----------
    problem : BagProblem
        Whose labels are single numbers, means over their bags.
    law : Law
    prior : SlopePrior
    phi : float
        Dispersion of the rows' labels.
    """

    problem: BagProblem
    law: Law
    prior: SlopePrior
    phi: float

    @property
    def noise_sd(self) -> FloatArray:
        """The deviation of the privacy noise on each label."""
        trust = self.problem.trust
        return trust.noise_sd[trust.base > 0]

    def linear(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, LabelVariance]:
        """Return Jacobian, residuals, and each label's variance without its noise, at beta."""
        model = self.problem.near(beta)
        variance = model.variance
        without = replace(variance, known=np.maximum(variance.known - self.noise_sd**2, 0.0))
        return model.jacobian, model.residuals, without

    def objective(self, beta: FloatArray, label_sd: FloatArray) -> float:
        """Return minus the penalised log likelihood."""
        off = self.problem.gathered("residuals", beta)[0]
        value, _ = log_density(self.law, off, label_sd, self.noise_sd)
        away = beta - self.prior.center
        return float(-value.sum() + away @ self.prior.form @ away / 2)

    def pseudo(self, beta: FloatArray) -> Working:
        """Return the least-squares problem of one step of Fisher scoring."""
        jacobian, score, told, _ = self._scoring(beta)
        return Working(jacobian, score / told, LabelVariance(np.zeros_like(told), 1 / told))

    def _scoring(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return Jacobian, score, information and deviation without noise of each label."""
        jacobian, residuals, variance = self.linear(beta)
        label_sd = np.sqrt(variance.total(self.phi))
        told = information(self.law, label_sd, self.noise_sd)
        _, score = log_density(self.law, residuals, label_sd, self.noise_sd)
        return jacobian, score, told, label_sd

    def climb(self, beta: FloatArray) -> tuple[FloatArray, bool]:
        """Climb to a maximum of the penalised likelihood; return it, and whether it is one."""
        form, center, decrement = self.prior.form, self.prior.center, np.inf
        for _ in range(STEPS):
            jacobian, score, told, label_sd = self._scoring(beta)
            gradient = jacobian.T @ score - form @ (beta - center)
            matrix = jacobian.T @ (jacobian * told[:, None]) + form
            step, _ = solve_symmetric(matrix, gradient)
            decrement = float(gradient @ step)
            if decrement < _SETTLED:
                return beta, True
            now = self.objective(beta, label_sd)
            for _ in range(20):
                if self.objective(beta + step, label_sd) <= now:
                    break
                step = step / 2
            else:
                break  # nothing raises the likelihood
            beta = beta + step
        return beta, decrement < _CLOSE

    def best_dispersion(self, beta: FloatArray) -> float:
        """Return the phi with which the residuals are most likely."""
        jacobian, residuals, variance = self.linear(beta)
        told = information(self.law, np.sqrt(variance.total(self.phi)), self.noise_sd)
        matrix = jacobian.T @ (jacobian * told[:, None]) + self.prior.form
        inverse_root, _ = solve_symmetric(matrix, jacobian.T)
        leverage = np.clip(told * np.einsum("ij,ji->i", jacobian, inverse_root), 0.0, 0.9)
        honest = residuals / np.sqrt(1 - leverage)

        def cost(log_excess: float) -> float:
            label_sd = np.sqrt(variance.total(variance.least + np.exp(log_excess)))
            return -float(log_density(self.law, honest, label_sd, self.noise_sd)[0].sum())

        usual = float(np.mean(honest**2 / variance.share))
        high = np.log(max(usual, 1e-300)) + 0.5
        best = minimize_scalar(cost, bounds=(high - 12, high), method="bounded")
        return variance.least + float(np.exp(best.x))

    def correction(self, beta: FloatArray) -> tuple[float, float, float]:
        """Return how far least squares would move predictions, its own error, and its variation.

        It has the same belief about slopes, and takes its step from beta. The bags that pull it
        farthest are left out (`OUTLYING`). All are mean squares over the rows, as far as they are
        between bags. By chance predictions are moved if the likelihood is right: the difference of
        a good estimator and the best has the difference of their covariances (Hausman 1978).
        """
        jacobian, residuals, variance = self.linear(beta)
        label = variance.total(self.phi)
        omega = label + self.noise_sd**2
        weights = 1 / np.maximum(omega, _NEVER_CERTAIN * omega.max())
        told = information(self.law, np.sqrt(label), self.noise_sd)
        pulls = self._covariance(jacobian, weights) @ (jacobian * (weights * residuals)[:, None]).T
        far = np.argsort(np.einsum("ij,ij->j", pulls, self._metric(jacobian) @ pulls))
        kept = far[: residuals.size - math.ceil(OUTLYING * residuals.size)]

        near, metric = jacobian[kept], self._metric(jacobian, kept)
        covariance = self._covariance(near, weights[kept])
        score = near.T @ (weights * residuals)[kept]
        step = covariance @ (score - self.prior.form @ (beta - self.prior.center))
        error = float(np.sum(metric * covariance))
        best = float(np.sum(metric * self._covariance(near, told[kept])))
        return float(step @ metric @ step), error, max(0.0, error - best)

    def _covariance(self, jacobian: FloatArray, weights: FloatArray) -> FloatArray:
        """Return that of beta, given labels that count by these weights."""
        matrix = jacobian.T @ (jacobian * weights[:, None]) + self.prior.form
        return inverse_symmetric(matrix)[0]

    def _metric(self, jacobian: FloatArray, bags: IntArray | slice = slice(None)) -> FloatArray:
        """Return the mean square of what is expected of the rows of these bags, as a form."""
        trust = self.problem.trust
        rows = trust.counts[trust.base > 0][bags]
        return np.asarray(jacobian[bags].T @ (jacobian[bags] * (rows / rows.sum())[:, None]))


def follow_the_noise(shrunk: Shrunk[BagProblem], law: Law) -> Shrunk[BagProblem]:
    """Climb from a least-squares fit, choosing penalty and dispersion again on the way.

    The least-squares fit itself is returned where the likelihood is misled by skewed labels.
    """
    problem, beta = shrunk.solution.problem, shrunk.solution.beta
    here = NoisyLabels(problem, law, shrunk.prior, problem.phi)
    last, converged = (np.inf, np.inf), False
    for _ in range(ROUNDS):
        phi = max(least_dispersion(problem), here.best_dispersion(beta))
        here = replace(here, phi=phi)
        _, chosen = choose(LinearModel.of(here.pseudo(beta).over, beta), here.prior)
        here = replace(here, prior=chosen)
        beta, converged = here.climb(beta)
        now = (float(np.log(max(here.phi, 1e-300))), float(np.log(chosen.variance)))
        if max(abs(now[0] - last[0]), abs(now[1] - last[1])) < AGREED:
            break
        last = now
    moved, error, by_chance = here.correction(beta)
    if moved > max(error, _BEYOND_CHANCE * by_chance):
        return shrunk
    solution = replace(
        shrunk.solution,
        beta=beta,
        problem=problem.counted_with(here.phi),
        converged=shrunk.solution.converged and converged,
    )
    pseudo = here.pseudo(beta)
    fit = Shrunk(solution, here.prior, LinearModel.of(pseudo.over, beta))
    # The information is that of infinitely many labels for each coefficient. With few, the score
    # is taken at residuals that the fit has made smaller (Huber 1973), so that variances are those
    # of as many labels as are not spent on coefficients.
    share = max(1 - fit.effective / pseudo.residuals.size, 0.5)
    less_sure = replace(pseudo.variance, known=pseudo.variance.known / share)
    pseudo = pseudo._replace(variance=less_sure)
    return replace(fit, working=LinearModel.of(pseudo.over, beta))
