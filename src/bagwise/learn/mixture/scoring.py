"""Climb the likelihood of picks of any family, from the solution of bag loss.

Bag loss is consistent, so the maximum next to its solution is the right one once there are enough
bags. The climb is scoring with the outer product of the bags' scores. Where that does not climb,
the step is that of EM: the same gradient, and the information that known picks would have.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.families import Family
from bagwise.learn.mixture.densities import Density
from bagwise.learn.mixture.likelihood import Maximum, PickedBags, e_step
from bagwise.learn.mixture.whitening import Whitening
from bagwise.learn.solver import solve_symmetric

_MOST = 500
_HALVINGS = 20
_TOLERANCE = 1e-8  # of twice the gain that one more step promises: 1e-4 standard errors
_SETTLED = 1e-6  # change of log(phi) in a step
_RUN_AWAY = 100.0  # a chance of 4e-44, a rate of 3e43: no labels ask for that
_NARROWEST = 1e-6  # smallest phi, as a share of what the bags' labels have around all their rows


@dataclass(frozen=True)
class Picks:
    """Rows in standard units, with the density of their bags' labels.

    Attributes
    ----------
    design : (n, p)
    penalty : (p,)
        Ridge penalty of each entry of theta for one bag with phi = 1.
    """

    bags: PickedBags
    family: Family
    density: Density
    design: FloatArray
    penalty: FloatArray


@dataclass(frozen=True)
class Point:
    """Parameters, and the E-step at them.

    Attributes
    ----------
    slope : (n,)
        Derivative of each row's log density in its predictor.
    """

    theta: FloatArray
    phi: float
    eta: FloatArray
    responsibilities: FloatArray
    slope: FloatArray
    objective: float

    @classmethod
    def at(cls, rows: Picks, theta: FloatArray, phi: float) -> Self:
        """Do the E-step at theta and phi; the objective is minus infinity where there is none."""
        eta = rows.design @ theta
        if not rows.family.allows(eta):
            return cls(theta, phi, eta, eta, eta, -np.inf)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_density, expected = rows.density.evaluate(eta, phi)
            responsibilities, per_bag = e_step(log_density, rows.bags.ends)
            off = expected - rows.family.mean(eta)
            slope = off * rows.family.natural_slope(eta) / phi
        ridge = rows.bags.total * float(rows.penalty @ theta**2) / (2 * phi)
        value = float(rows.bags.weight @ per_bag) - ridge
        return cls(
            theta, phi, eta, responsibilities, slope, value if np.isfinite(value) else -np.inf
        )


def scores_of(rows: Picks, point: Point) -> FloatArray:
    """Return the gradient of each bag's log-likelihood in theta, (m, p)."""
    return rows.bags.weighted_sum(point.responsibilities * point.slope, rows.design)


def climb(rows: Picks, theta: FloatArray) -> tuple[Point, bool]:
    """Climb from theta to the nearest maximum; say whether it was reached."""
    estimates_phi = not rows.family.knows_dispersion
    point = Point.at(rows, theta, widest_dispersion(rows, theta) if estimates_phi else 1.0)
    floor = _NARROWEST * point.phi
    for _ in range(_MOST):
        settled = True
        if estimates_phi:
            phi = max(floor, dispersion(rows, point))
            settled = abs(np.log(phi / point.phi)) < _SETTLED
            point = Point.at(rows, point.theta, phi)
        gradient, promised, step = _scoring_step(rows, point)
        if promised < _TOLERANCE and settled:
            return point, True
        better = _search(rows, point, step)
        if better is None or better.objective - point.objective < _TOLERANCE:
            step = em_step(rows, point, gradient)
            other = _search(rows, point, step)
            if other is not None and (better is None or other.objective > better.objective):
                better = other
        if better is None or better.objective - point.objective < 1e-10 * rows.bags.total:
            if settled:  # nothing climbs: at a maximum, or where rounding hides it
                return point, float(gradient @ step) < 1e-4
            continue
        point = better
    return point, False


def penalised_gradient(rows: Picks, point: Point, scores: FloatArray) -> FloatArray:
    """Return the gradient of the objective."""
    penalty = rows.bags.total * rows.penalty / point.phi
    return np.asarray(rows.bags.weight @ scores - penalty * point.theta)


def _scoring_step(rows: Picks, point: Point) -> tuple[FloatArray, float, FloatArray]:
    """Return the gradient, twice the gain that the step promises, and the step."""
    scores = scores_of(rows, point)
    gradient = penalised_gradient(rows, point, scores)
    outer = (scores * rows.bags.weight[:, None]).T @ scores
    outer += np.diag(rows.bags.total * rows.penalty / point.phi)
    step, _ = solve_symmetric(outer, gradient)
    return gradient, float(gradient @ step), step


def em_step(rows: Picks, point: Point, gradient: FloatArray) -> FloatArray:
    """Return one step of the weighted fit that takes responsibilities for weights."""
    family = rows.family
    known = family.slope(point.eta) * family.natural_slope(point.eta) / point.phi
    weight = point.responsibilities * rows.bags.row_weight * known
    information = rows.design.T @ (rows.design * weight[:, None])
    information += np.diag(rows.bags.total * rows.penalty / point.phi)
    return solve_symmetric(information, gradient)[0]


def _search(rows: Picks, point: Point, step: FloatArray) -> Point | None:
    """Return the first of the points at 1, 1/2, 1/4, … of the step that is better."""
    for halvings in range(_HALVINGS):
        there = Point.at(rows, point.theta + step / 2**halvings, point.phi)
        if there.objective > point.objective:
            return there
    return None


def dispersion(rows: Picks, point: Point) -> float:
    """Return Pearson's estimate of phi, each row counted by its responsibility."""
    return _pearson(rows, point.eta, point.responsibilities * rows.bags.row_weight)


def widest_dispersion(rows: Picks, theta: FloatArray) -> float:
    """Return the same before any row is preferred: too large, so that a climb begins smoothly."""
    # Without any residual there is nothing to go by; one is what a family begins with.
    return _pearson(rows, rows.design @ theta, rows.bags.chance * rows.bags.total) or 1.0


def _pearson(rows: Picks, eta: FloatArray, weight: FloatArray) -> float:
    bags, family = rows.bags, rows.family
    off = bags.repeat(bags.labels) - family.mean(eta)
    freedom = max(1.0, bags.total - int(rows.design.shape[1]))
    return float(np.sum(weight * off**2 / family.variance(eta))) / freedom


def fit_picks(
    bags: PickedBags,
    whitening: Whitening,
    family: Family,
    density: Density,
    *,
    start: FloatArray,
    ridge: float,
) -> Maximum:
    """Return the maximum of the likelihood next to a start, which is coefficients and intercept."""
    rows = Picks(bags, family, density, whitening.design(bags.X), whitening.penalty(ridge))
    point, converged = climb(rows, whitening.theta(start[:-1], float(start[-1])))
    scores = scores_of(rows, point)
    gradient = penalised_gradient(rows, point, scores)
    known = family.knows_dispersion
    return Maximum(
        estimates=whitening.to_own_units() @ point.theta,
        phi=point.phi,
        scores=scores if known else np.column_stack([scores, _scores_by_scale(rows, point)]),
        gradient=float(np.linalg.norm(gradient)) * point.phi / bags.total,
        # Where chances are certain the gradient vanishes as well, without a maximum.
        converged=converged and not (known and float(np.abs(point.eta).max()) > _RUN_AWAY),
        collapsed=not known and point.phi <= 2 * _NARROWEST * widest_dispersion(rows, point.theta),
    )


def _scores_by_scale(rows: Picks, point: Point) -> FloatArray:
    """Return the derivative of each bag's log-likelihood in log(phi), by central differences."""
    step = 1e-5
    up, _ = rows.density.evaluate(point.eta, point.phi * np.exp(step))
    down, _ = rows.density.evaluate(point.eta, point.phi * np.exp(-step))
    return rows.bags.sum(point.responsibilities * (up - down) / (2 * step))
