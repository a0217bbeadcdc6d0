"""Covariances of a fit that account for aggregation, label noise and privacy noise.

For equations ``sum_u Z_u (label_u - mean_u(beta)) = 0`` with independent labels, beta varies around
its target with covariance

    A^-1 (sum_u Z_u Z_u' v_u) A^-T,     A = sum_u Z_u J_u' + penalty

to first order, exactly for linear means. What v is makes the kind: "model" takes the variance
``phi * share + known`` of each bag label, "robust" its squared residual, divided by the square of
one minus its leverage so that few bags do not look too sure of themselves (HC3). "cautious" takes
for each coefficient the larger of two standard errors, that of the model and that of residuals
divided by one minus their leverage just once, which is right on average (HC2). Residuals know of
what the family gets wrong; but where a column differs in a few bags only, they are few, and often
small by chance.

References
----------
F2, F4 of the theory page for the Gaussian family; Huber 1967, White 1982; MacKinnon and White 1985.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from bagwise._types import FloatArray
from bagwise.glm.linear import Block
from bagwise.glm.problem import BagProblem
from bagwise.glm.shrinkage import Shrunk
from bagwise.glm.solver import Solution, inverse_symmetric
from bagwise.glm.units import Units

COVARIANCES = ("auto", "model", "robust", "cautious")
_MOST_LEVERAGE = 0.99  # a bag that decides a direction alone has no residual to judge by


def covariance_of(solution: Solution[BagProblem], *, kind: str, ridge: float) -> FloatArray:
    """Return the covariance of coefficients and intercept, (d + 1, d + 1), in their own units.

    Coefficients that the data do not determine get NaN.
    """
    problem, beta = solution.problem, solution.beta
    information = solution.information * problem.total
    # With the best weights the two are the same.
    best = problem.trust.rule == "known-noise" and ridge == 0

    def model_meat(units: Units) -> FloatArray:
        variance, done = units.true_variance(beta), 0
        meat = np.zeros((units.width, units.width))
        for block in units.blocks(beta):
            here = variance[done : done + len(block.residuals)]
            meat += (block.instruments * here[:, None]).T @ block.instruments
            done += len(block.residuals)
        return meat

    return _sandwich(
        problem,
        information,
        kind,
        by_model=lambda: information if best else problem.over_units(model_meat),
        by_residuals=lambda meat: problem.over_units(lambda units: meat(units.blocks(beta))),
    )


def _sandwich(
    problem: BagProblem,
    information: FloatArray,
    kind: str,
    *,
    by_model: Callable[[], FloatArray],
    by_residuals: Callable[[Callable[[Iterable[Block]], FloatArray]], FloatArray],
) -> FloatArray:
    """Return the covariance of a kind in the coefficients' own units, NaN where undetermined.

    `by_model` returns the covariance of the score under the model, and `by_residuals` what a meat
    makes of all units.
    """
    change, outputs = problem.to_own_units(), problem.outputs
    inverse, _ = inverse_symmetric(information)

    def meat_of(blocks: Iterable[Block], *, fair: bool) -> FloatArray:
        """Return the covariance of the score by residuals: on the safe side (HC3), or fair (HC2).

        A unit's residuals are taken as if it had been left out of the fit.
        """
        meat, shape = np.zeros_like(inverse), (-1, outputs, len(inverse))
        for block in blocks:
            instruments = block.instruments.reshape(shape)
            turned = (block.jacobian @ inverse).reshape(shape)
            pull = np.einsum("uip,ujp->uij", turned, instruments)
            own = np.trace(pull, axis1=1, axis2=2)[:, None, None]
            room = np.eye(outputs) - pull * np.minimum(1, _MOST_LEVERAGE / np.maximum(own, 1e-300))
            residuals = block.residuals.reshape(-1, outputs, 1)
            alone = np.linalg.solve(room, residuals)
            scores = np.einsum("uip,ui->up", instruments, alone[:, :, 0])
            other = np.einsum("uip,ui->up", instruments, residuals[:, :, 0]) if fair else scores
            meat += scores.T @ other
        return (meat + meat.T) / 2

    def covariance_by(kind: str) -> FloatArray:
        fair = kind == "fair"
        meat = by_model() if kind == "model" else by_residuals(partial(meat_of, fair=fair))
        return np.asarray(change @ inverse @ meat @ inverse.T @ change.T)

    covariance = covariance_by("fair" if kind == "cautious" else kind)
    if kind == "cautious":
        model, fair = np.diag(covariance_by("model")), np.diag(covariance)
        ratio = np.divide(model, fair, out=np.ones_like(model), where=fair > 0)
        stretch = np.sqrt(np.maximum(ratio, 1.0))
        covariance = covariance * np.outer(stretch, stretch)
    # Coefficients that change along directions that the data say nothing about have no error.
    free = np.eye(len(inverse)) - inverse @ information
    size = np.linalg.norm(change, axis=1)
    lost = np.linalg.norm(change @ free, axis=1) > 1e-6 * np.where(size > 0, size, 1.0)
    covariance[lost, :] = covariance[:, lost] = np.nan
    return np.asarray(covariance)


def uncertainty_of(
    shrunk: Shrunk[BagProblem], *, kind: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what a shrunken fit would be without the penalty, its covariance, and the posterior.

    All are in the columns' own units. Whatever the slopes are, estimates without the penalty, to
    first order, vary around the truth by the covariance, (p, p), with NaN for coefficients that the
    bags do not determine. The posterior covariance is that of slopes given the labels, if they were
    drawn as the penalty takes them to be.
    """
    problem, beta, model = shrunk.solution.problem, shrunk.solution.beta, shrunk.working
    information, score = model.normal_equations(beta)
    moved = inverse_symmetric(information)[0] @ score
    covariance = _sandwich(
        problem,
        information,
        kind,
        by_model=lambda: information,
        by_residuals=lambda meat: model.over_blocks(beta + moved, meat),
    )
    change, believed = problem.to_own_units(), shrunk.prior.even.form
    posterior = change @ inverse_symmetric(information + believed)[0] @ change.T
    return change @ (beta + moved), covariance, posterior
