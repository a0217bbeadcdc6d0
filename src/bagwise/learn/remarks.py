"""What a fit has to say for itself beyond its numbers, as warnings that name the remedy.

**Separation.** There is no finite estimate if, along some direction of the coefficients, no label
becomes less likely and some become more so (Albert and Anderson 1984). Whether there is such a
direction is a linear programme (Konis 2007); it is asked only after a fit has run away.

**The gap of aggregate loss.** At the true beta, labels differ from the expected values of aggregate
loss by Jensen's gap, the average of ``mean(eta_i)`` over a bag minus ``mean(average eta_i)``. To
first order this moves beta by ``A^-1 sum_l Z_l gap_l``. For the Gaussian family there is no gap,
nor for bags of one row.
"""

import warnings
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.optimize import linprog

from bagwise._types import FloatArray
from bagwise.errors import BiasWarning, SeparationWarning
from bagwise.glm.linear import wider
from bagwise.glm.parts import PartsProblem
from bagwise.glm.problem import BagProblem
from bagwise.glm.solver import Solution, inverse_symmetric
from bagwise.learn.bag_data import BagData
from bagwise.models.coefficients import INTERCEPT

_SHRINKS = 0.6  # below this share of kept spread, instance loss is worth a warning
_CALLER = 4  # warnings point at the line that called fit
_TOLERATED = 0.5  # of a standard error: an interval then covers 92 instead of 95 percent
_SHOWN = 3
_SLACK = 1e-3
_LARGEST_PROGRAMME = 4_000_000  # numbers in its matrix: some seconds


def warn_of_shrinkage(data: BagData, coef: FloatArray) -> None:
    """Warn if bags mix rows whose predictions differ: instance loss then shrinks slopes (E9)."""
    eta = data.X @ np.atleast_2d(coef).T
    eta -= eta.mean(axis=0)
    spread = float(np.sum(eta**2))
    if spread == 0.0:
        return
    kept = float(data.bags.sizes @ np.sum(data.bags.mean(eta) ** 2, axis=1)) / spread
    if kept < _SHRINKS:
        warnings.warn(
            "instance loss shrinks the slopes towards zero, unless rows were grouped by their "
            f"labels: the bags keep {kept:.0%} of the variance of predictions (about 1/bag_size "
            "for random bags). Use loss='bag' (--loss bag), or debias=True (--debias).",
            BiasWarning,
            stacklevel=_CALLER,
        )


def warn_of_gap(solution: Solution[BagProblem], covariance: FloatArray) -> bool:
    """Warn if the gap moves some coefficient by a good part of its standard error."""
    problem = solution.problem
    if problem.inside is None or problem.family.name == "gaussian":
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
        f"aggregate loss is off by about {worst:.1g} standard errors here: the prediction at the "
        "centre of a bag is not the mean prediction of its rows. Use loss='bag' (--loss bag).",
        BiasWarning,
        stacklevel=5,
    )
    return True


def warn_of_separation(solution: Solution[BagProblem], names: Sequence[str]) -> bool:
    """Name the columns by which labels are told apart without error, if a fit ran away for that.

    Returns whether it did. With noise on the labels there is no separation.
    """
    problem = solution.problem
    if problem.noisy or not problem.family.knows_dispersion:
        return False
    if solution.converged and not problem.runs_away(solution.beta):
        return False
    direction = _separating_direction(solution)
    if direction is None:
        return False
    columns = _columns(direction, names)
    how = f"they are told apart without error by {columns}" if columns else "they are all alike"
    warnings.warn(
        f"the labels are separated: {how}, so the best coefficients are infinite and those found "
        "are meaningless. Set ridge > 0, drop the column(s), or use larger bags.",
        SeparationWarning,
        stacklevel=4,
    )
    return True


def _separating_direction(solution: Solution[BagProblem]) -> FloatArray | None:
    tried = [solution.step, solution.beta]  # where it still goes, and where it went
    if not isinstance(solution.problem, PartsProblem):
        gains = _gains(solution.problem)
        if gains.size <= _LARGEST_PROGRAMME:
            tried.append(_by_programme(gains))
    for direction in tried:
        least, most = solution.problem.over_units(partial(_gained, direction=direction), wider)
        if most > 1e-9 * np.abs(direction).max() and least >= -_SLACK * most:
            return direction
    return None


def _gained(problem: BagProblem, direction: FloatArray) -> FloatArray:
    """Return the least and the most that some row gains along a direction."""
    gained = _gains(problem) @ direction
    return np.array([gained.min(), gained.max(initial=0.0)])


def _gains(problem: BagProblem) -> FloatArray:
    """Return a matrix whose product with a direction must not be negative for separation.

    A class that has a share must not lose to any other. A count of zero must not get a higher
    rate, and a positive one must keep its own.
    """
    rows, labels = problem.design.standardise(problem.design.rows), problem.labels
    if problem.members is not None:
        labels = problem.members.repeat(labels)
    if np.isinf(problem.family.label_range[1]):
        return np.concatenate([-rows, rows[labels > 0]])
    if labels.ndim == 1:
        labels = np.column_stack([1 - labels, labels])
    classes, width = labels.shape[1], rows.shape[1]
    parts = []
    for lead in range(classes):
        here = rows[labels[:, lead] > 0]
        for other in set(range(classes)) - {lead}:
            part = np.zeros((len(here), classes, width))
            part[:, lead], part[:, other] = here, -here
            # The first class stays where it is.
            parts.append(part[:, 1:].reshape(len(here), (classes - 1) * width))
    return np.concatenate(parts)


def _by_programme(gains: FloatArray) -> FloatArray:
    """Return the direction, each entry between -1 and 1, with the largest gain and no loss."""
    limits = np.zeros(len(gains))
    best = linprog(-gains.sum(axis=0), A_ub=-gains, b_ub=limits, bounds=(-1, 1), method="highs")
    return np.asarray(best.x) if best.x is not None else np.zeros(gains.shape[1])


def _columns(direction: FloatArray, names: Sequence[str]) -> str:
    slopes = {
        name: float(value)
        for name, value in zip(names, direction, strict=False)
        if not name.endswith(INTERCEPT)
    }
    largest = sorted(slopes, key=lambda name: -abs(slopes[name]))[:_SHOWN]
    shown = [
        f"{name} ({'+' if slopes[name] > 0 else '-'})"
        for name in largest
        if abs(slopes[name]) > 0.1 * np.abs(direction).max()
    ]
    return ", ".join(shown)
