"""Fisher scoring: solve the equations of a loss by iterated weighted least squares."""

from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.glm.problem import BagProblem, FitProblem
from bagwise.rows.whitening import principal_axes, rounding

P = TypeVar("P", bound=FitProblem)
P_co = TypeVar("P_co", bound=FitProblem, covariant=True)

STEPS = 100
HALVINGS = 40
SETTLED = 30  # steps after which weights stay: they may go round in circles with beta
TOLERANCE = 1e-8  # in standard errors of the estimate


@dataclass(frozen=True)
class Penalty:
    """A penalty on large coefficients: a quadratic form in beta, around a center.

    Attributes
    ----------
    form : (p, p)
    center : (p,) or 0
    of_sum : bool
        Whether it stands beside the sum of all losses, as a belief does, or beside their mean.
    """

    form: FloatArray
    center: FloatArray | float = 0.0
    of_sum: bool = True

    @classmethod
    def ridge(cls, problem: BagProblem, ridge: float) -> Self:
        """Return ``ridge / 2 * |coef|^2`` beside the mean loss, in the columns' own units."""
        form = np.diag(np.tile(problem.design.penalty(ridge), problem.outputs))
        return cls(form, of_sum=False)

    def beside(self, problem: FitProblem) -> FloatArray:
        """Return the form in units of the mean loss as the problem weighs it."""
        return np.asarray(self.form / problem.total) if self.of_sum else self.form


@dataclass(frozen=True)
class Solution(Generic[P_co]):
    """Where the search ended.

    Attributes
    ----------
    beta : (p,)
    problem : FitProblem
        With the weights that belong to beta.
    rank : int
        Directions of beta that the data determine.
    converged : bool
    information : (p, p)
        Of the mean loss, penalty included.
    gradient : float
        Length of the gradient of the mean loss at beta.
    step : (p,)
        The last step: where beta still wanted to go.
    """

    beta: FloatArray
    problem: P_co
    rank: int
    converged: bool
    information: FloatArray
    gradient: float
    step: FloatArray

    def is_sound(self, *, penalised: bool = False) -> bool:
        """Return whether the search ended at a plausible solution.

        A penalty keeps slopes finite. Then a row far out has a chance next to 0 or 1, which does no
        harm, while its rate would be absurd.
        """
        harmless = penalised and bool(np.isfinite(self.problem.family.label_range[1]))
        return bool(self.converged) and (harmless or not self.problem.runs_away(self.beta))


def solve(
    problem: P, start: FloatArray, *, penalty: Penalty, tolerance: float = TOLERANCE
) -> Solution[P]:
    """Minimise the mean loss plus half the penalty, weights following beta.

    Each step is Newton's for families with their canonical link, and Gauss-Newton's for bag loss;
    it is halved until the loss falls. Where the data leave directions undetermined, beta stays
    shortest in them, measured in units of each column's spread. `tolerance` is in standard errors
    of the estimate.
    """
    beta, problem = start, problem.reweighted(start)
    form = penalty.beside(problem)
    converged, rank, step = False, 0, np.zeros_like(start)
    gradient, information = step, form
    for number in range(STEPS):
        # 1. Linearise: score and information at beta, under the weights that belong to it.
        score, inner = problem.equations(beta)
        if not (np.isfinite(score).all() and np.isfinite(inner).all()):
            break
        gradient, information = score - form @ (beta - penalty.center), inner + form
        # 2. Take the Newton step, and ask how much it promises. Steps below `negligible` are lost
        #    in standard errors, or in rounding: phi / units is the square of a standard error in
        #    the metric of the information.
        step, rank = solve_symmetric(information, gradient)
        decrement = float(gradient @ step)
        noise = max(problem.phi, 0.0) * tolerance**2 / problem.n_units
        signal = float(beta @ information @ beta)
        negligible = max(noise, (16 * np.finfo(float).eps) ** 2 * signal, np.finfo(float).tiny)
        # 3. Halve it while the objective rises.
        share = 1.0 if decrement <= negligible else _halve(problem, penalty, beta, step, decrement)
        # 4. Done, or nothing lowers the loss and what is left is a matter of rounding.
        converged = decrement <= (1e8 * negligible if share == 0.0 else negligible)
        if converged or share == 0.0:
            beta = beta + share * step
            break
        # 5. Weights follow beta, unless they go round in circles with it.
        reweighted = problem
        if number < SETTLED:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                reweighted = problem.reweighted(beta + share * step)
        if not (0 < reweighted.total < np.inf and np.isfinite(reweighted.phi)):
            # Predictions of single rows have run away.
            break
        beta, problem = beta + share * step, reweighted
        form = penalty.beside(problem)
    length = float(np.linalg.norm(gradient))
    return Solution(beta, problem, rank, converged, information, length, step)


def _halve(
    problem: FitProblem, penalty: Penalty, beta: FloatArray, step: FloatArray, decrement: float
) -> float:
    """Return the largest of 1, 1/2, 1/4, … that lowers the loss, or 0."""
    form = penalty.beside(problem)

    def objective(at: FloatArray) -> float:
        off = at - penalty.center
        return float(problem.loss(at)) + float(off @ form @ off) / 2

    now = objective(beta)
    # Losses are known to rounding only: a step too short to show must not be halved away.
    slack = 64 * np.finfo(float).eps * (abs(now) + 1e-3 * decrement)
    share = 1.0
    for _ in range(HALVINGS):
        if objective(beta + share * step) <= now - 1e-4 * share * decrement + slack:
            return share
        share /= 2
    return 0.0


def solve_symmetric(matrix: FloatArray, right: FloatArray) -> tuple[FloatArray, int]:
    """Solve ``matrix @ x = right`` for a positive matrix, shortest where it is singular.

    Returns x and the rank. Rank and length are measured after scaling the diagonal to 1.
    """
    inverse, rank = inverse_symmetric(matrix)
    return inverse @ right, rank


def inverse_symmetric(matrix: FloatArray) -> tuple[FloatArray, int]:
    """Return the inverse of a positive matrix, or its pseudo-inverse, and the rank."""
    axes = principal_axes((matrix + matrix.T) / 2, tolerance=rounding(len(matrix)))
    return axes.inverse, axes.rank
