"""How far aggregate loss is off: the mean at a bag's centre is not the mean of its rows' means.

At the true beta, labels differ from the expected values of aggregate loss by Jensen's gap, the
average of ``mean(eta_i)`` over a bag minus ``mean(average eta_i)``. To first order this moves beta
by ``A^-1 sum_l Z_l gap_l``. For the Gaussian family there is no gap, and for bags of one row.
"""

import warnings

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import BiasWarning
from bagwise.glm.problems import BagLabels, NumberProblem
from bagwise.glm.solver import Solution, inverse_symmetric

_TOLERATED = 0.5  # of a standard error: an interval then covers 92 instead of 95 percent


def warn_of_gap(solution: Solution[BagLabels], covariance: FloatArray) -> bool:
    """Warn if the gap moves some coefficient by a good part of its standard error."""
    problem = solution.problem
    if not isinstance(problem, NumberProblem) or problem.inside is None:
        return False
    if problem.family.name == "gaussian":
        return False
    rows, members = problem.inside
    gap = members.mean(problem.family.mean(rows.eta(solution.beta)))
    gap -= problem.family.mean(problem.eta(solution.beta))
    moved, done = np.zeros(problem.width), 0
    for block in problem.blocks(solution.beta):
        moved += block.instruments.T @ gap[done : done + len(block.residuals)]
        done += len(block.residuals)
    inverse, _ = inverse_symmetric(solution.information * problem.total)
    shift = problem.to_own_units() @ (inverse @ moved)
    errors = np.sqrt(np.diag(covariance))
    known = errors > 0  # neither undetermined, nor an intercept that was not fitted
    worst = float(np.max(np.abs(shift[known]) / errors[known], initial=0.0))
    if worst <= _TOLERATED:
        return False
    warnings.warn(
        f"aggregate loss is off by about {worst:.1g} standard errors here: what it predicts at the "
        "centre of a bag is not the mean over its rows. Use loss='bag' (--loss bag).",
        BiasWarning,
        stacklevel=5,
    )
    return True
