"""Complete separation: when labels at the edge of their range drive coefficients to infinity."""

from collections.abc import Sequence

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import SeparationError
from bagwise.learn.problems import Problem
from bagwise.learn.solver import Solution

_BOUNDED = ("bernoulli", "poisson")
_SHOWN = 3
_FAR = 20.0  # a chance of 2e-9: no estimate from data gets there by itself


def refuse_separation(solution: Solution, names: Sequence[str]) -> None:
    """Name the columns by which labels are told apart without error, if a fit ran away for that.

    A direction is tried along which the loss still falls. If along it every label at the lower edge
    of the range goes down, every one at the upper edge goes up, and all others stay, the loss falls
    for ever and there is no estimate (Albert and Anderson 1984).
    """
    problem = solution.problem
    if problem.family.name not in _BOUNDED or (problem.trust and problem.trust.noise_sd.any()):
        return
    if solution.converged and np.abs(problem.design.eta(solution.beta)).max() < _FAR:
        return
    for direction in (solution.step, solution.beta):  # where it still goes, and where it went
        if _separates(direction, problem):
            raise SeparationError(
                "the labels are separated: they are told apart without error by "
                f"{_columns(direction, names)}, so that the best coefficients are infinite. "
                "Set ridge > 0, drop the column(s), or use larger bags."
            )


def _separates(direction: FloatArray, problem: Problem) -> bool:
    moved, labels = problem.design.eta(direction), problem.labels_of_rows()
    low, high = problem.family.label_range
    slack = 1e-3 * float(np.abs(moved).max())
    upper = np.where(labels >= high, moved >= -slack, np.abs(moved) <= slack)
    right_way = np.where(labels <= low, moved <= slack, upper)
    return slack > 0 and bool(right_way.all())


def _columns(direction: FloatArray, names: Sequence[str]) -> str:
    slopes = direction[: len(names) - 1]
    largest = np.argsort(-np.abs(slopes))[:_SHOWN]
    shown = [
        f"{names[i]} ({'+' if slopes[i] > 0 else '-'})"
        for i in largest
        if abs(slopes[i]) > 0.1 * abs(slopes[largest[0]])
    ]
    return ", ".join(shown)
