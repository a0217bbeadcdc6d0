"""How sure a fit can be: covariances that hold aggregation, label noise and privacy noise.

For equations ``sum_u Z_u (label_u - mean_u(beta)) = 0`` with independent labels, beta varies around
its target with covariance

    A^-1 (sum_u Z_u Z_u' v_u) A^-T,     A = sum_u Z_u J_u' + penalty

to first order, exactly for linear means. What v is makes the kind: "model" takes the variance
``phi * share + known`` of each bag label, "robust" its squared residual, divided by the square of
one minus its leverage so that few bags do not look too sure of themselves (HC3).

References
----------
F2, F4 of the theory page for the Gaussian family; Huber 1967, White 1982; MacKinnon and White 1985.
"""

import numpy as np

from bagwise._types import FloatArray
from bagwise.learn.problems import Block, Problem
from bagwise.learn.solver import Solution, inverse_symmetric

COVARIANCES = ("auto", "model", "robust")
_MOST_LEVERAGE = 0.99  # a bag that decides a direction alone has no residual to judge by


def covariance_of(solution: Solution, *, kind: str, ridge: float) -> FloatArray:
    """Return the covariance of coefficients and intercept, (d + 1, d + 1), in their own units.

    Coefficients that the data do not determine get NaN.
    """
    problem = solution.problem
    information = solution.information * problem.total
    inverse, _ = inverse_symmetric(information)
    if kind == "robust":
        meat = _robust_meat(problem, solution.beta, inverse)
    elif problem.trust is not None and problem.trust.rule == "known-noise" and ridge == 0:
        meat = information  # with the best weights the two are the same
    else:
        meat = _model_meat(problem, solution.beta)
    change = problem.to_own_units()
    covariance = change @ inverse @ meat @ inverse.T @ change.T
    lost = _undetermined(inverse @ information, change)
    covariance[lost, :] = covariance[:, lost] = np.nan
    return np.asarray(covariance)


def _model_meat(problem: Problem, beta: FloatArray) -> FloatArray:
    """Return the covariance of the score under the model."""
    variance = problem.true_variance(beta)
    meat, done = np.zeros((problem.width, problem.width)), 0
    for block in problem.blocks(beta):
        here = variance[done : done + len(block.residuals)]
        meat += (block.instruments * here[:, None]).T @ block.instruments
        done += len(block.residuals)
    return meat


def _robust_meat(problem: Problem, beta: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return the covariance of the score as the residuals show it."""
    meat = np.zeros((problem.width, problem.width))
    for block in problem.blocks(beta):
        scores = _scores_without_pull(block, inverse, problem.outputs)
        meat += scores.T @ scores
    return meat


def _scores_without_pull(block: Block, inverse: FloatArray, outputs: int) -> FloatArray:
    """Return each unit's score, its residuals as if the unit had not been in the fit."""
    shape = (-1, outputs, inverse.shape[0])
    instruments, jacobian = block.instruments.reshape(shape), block.jacobian.reshape(shape)
    pull = np.matmul(jacobian @ inverse, instruments.transpose(0, 2, 1))
    own = np.trace(pull, axis1=1, axis2=2)[:, None, None]
    room = np.eye(outputs) - pull * np.minimum(1.0, _MOST_LEVERAGE / np.maximum(own, 1e-300))
    residuals = np.linalg.solve(room, block.residuals.reshape(-1, outputs, 1))
    return np.asarray(np.sum(instruments * residuals, axis=1))


def _undetermined(projector: FloatArray, change: FloatArray) -> FloatArray:
    """Return which coefficients change along directions that the data say nothing about."""
    free = np.eye(len(projector)) - projector
    moved = np.linalg.norm(change @ free, axis=1)
    size = np.linalg.norm(change, axis=1)
    return np.asarray(moved > 1e-6 * np.where(size > 0, size, 1.0))
