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
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.glm.linear import Block, LinearModel
from bagwise.glm.problem import BagProblem
from bagwise.glm.solver import Solution, inverse_symmetric

COVARIANCES = ("auto", "model", "robust", "cautious")
_MOST_LEVERAGE = 0.99  # a bag that decides a direction alone has no residual to judge by


def covariance_of(solution: Solution[BagProblem], *, kind: str, ridge: float) -> FloatArray:
    """Return the covariance of coefficients and intercept, (d + 1, d + 1), in their own units.

    Coefficients that the data do not determine get NaN.
    """
    problem, beta = solution.problem, solution.beta
    information = solution.information * problem.total
    # With the best weights the two are the same.
    best = problem.trust is not None and problem.trust.rule == "known-noise" and ridge == 0
    return _sandwich(
        problem,
        information,
        inverse_symmetric(information)[0],
        kind,
        by_model=lambda: (
            information if best else problem.over_units(lambda units: _model_meat(units, beta))
        ),
        by_residuals=lambda meat: problem.over_units(lambda units: meat(units.blocks(beta))),
    )


def _sandwich(
    problem: BagProblem,
    information: FloatArray,
    inverse: FloatArray,
    kind: str,
    *,
    by_model: Callable[[], FloatArray],
    by_residuals: Callable[[Callable[[Iterable[Block]], FloatArray]], FloatArray],
) -> FloatArray:
    """Return the covariance of a kind in the coefficients' own units, NaN where undetermined.

    `by_model` returns the covariance of the score under the model, and `by_residuals` what a meat
    makes of all units.
    """
    change = problem.to_own_units()

    def covariance_by(kind: str) -> FloatArray:
        if kind == "model":
            meat = by_model()
        else:
            outputs, fair = problem.outputs, kind == "fair"
            meat = by_residuals(lambda blocks: _meat(blocks, inverse, outputs, fair=fair))
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


def _model_meat(problem: BagProblem, beta: FloatArray) -> FloatArray:
    """Return the covariance of the score under the model."""
    variance = problem.true_variance(beta)
    meat, done = np.zeros((problem.width, problem.width)), 0
    for block in problem.blocks(beta):
        here = variance[done : done + len(block.residuals)]
        meat += (block.instruments * here[:, None]).T @ block.instruments
        done += len(block.residuals)
    return meat


def _meat(blocks: Iterable[Block], inverse: FloatArray, outputs: int, *, fair: bool) -> FloatArray:
    """Return the covariance of the score, estimated from the residuals.

    On the safe side (HC3), or right on average (HC2) if it is to be fair.
    """
    meat = np.zeros_like(inverse)
    for block in blocks:
        scores = other = _scores_without_pull(block, inverse, outputs)
        if fair:
            pulled = block.instruments * block.residuals[:, None]
            other = pulled.reshape(-1, outputs, len(inverse)).sum(axis=1)
        meat += scores.T @ other
    return (meat + meat.T) / 2


def _scores_without_pull(block: Block, inverse: FloatArray, outputs: int) -> FloatArray:
    """Return each unit's score with its residuals as if the unit had been left out of the fit."""
    shape = (-1, outputs, inverse.shape[0])
    instruments, jacobian = block.instruments.reshape(shape), block.jacobian.reshape(shape)
    pull = np.matmul(jacobian @ inverse, instruments.transpose(0, 2, 1))
    own = np.trace(pull, axis1=1, axis2=2)[:, None, None]
    room = np.eye(outputs) - pull * np.minimum(1.0, _MOST_LEVERAGE / np.maximum(own, 1e-300))
    residuals = np.linalg.solve(room, block.residuals.reshape(-1, outputs, 1))
    return np.asarray(np.sum(instruments * residuals, axis=1))


@dataclass(frozen=True)
class Uncertainty:
    """The uncertainty of a shrunken fit in two versions, in the columns' own units.

    Attributes
    ----------
    unpenalised : (p,)
        What the estimates would be without the penalty, to first order.
    covariance : (p, p)
        Of these: whatever the slopes are, they vary around the truth so. NaN for coefficients that
        the bags do not determine.
    posterior : (p, p)
        Of the slopes given the labels, if they were drawn as the penalty takes them to be.
    """

    unpenalised: FloatArray
    covariance: FloatArray
    posterior: FloatArray


def uncertainty_of(
    model: LinearModel, solution: Solution[BagProblem], precision: FloatArray, *, kind: str
) -> Uncertainty:
    """Return both from the linear model that the labels are close to the fit.

    Parameters
    ----------
    model : LinearModel
        With variances that are known.
    precision : (p, p)
        Inverse covariance of beta before any label was seen.
    """
    problem, beta = solution.problem, solution.beta
    information, score = model.normal_equations(beta)
    inverse, _ = inverse_symmetric(information)
    moved = inverse @ score
    covariance = _sandwich(
        problem,
        information,
        inverse,
        kind,
        by_model=lambda: information,
        by_residuals=lambda meat: model.over_blocks(beta + moved, meat),
    )
    change = problem.to_own_units()
    posterior = change @ inverse_symmetric(information + precision)[0] @ change.T
    return Uncertainty(change @ (beta + moved), covariance, posterior)
