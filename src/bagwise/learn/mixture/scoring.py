"""Climb the likelihood of picks of any family to the nearest maximum.

The climb is scoring with the outer product of the bags' scores. Where that does not climb, the step
is that of EM: the same gradient, and the information that known picks would have. Between steps phi
is what the residuals of rows, counted by their responsibility, say; as for least squares, over as
many bags as are left beside the coefficients (the adjusted profile likelihood of Cox and Reid).

References
----------
Berndt, Hall, Hall and Hausman (1974) for scoring; Cox and Reid (1987) for phi.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar

from bagwise._types import FloatArray
from bagwise.families import Family
from bagwise.glm.solver import solve_symmetric
from bagwise.learn.mixture.densities import Density
from bagwise.learn.mixture.likelihood import Maximum, PickedBags, e_step
from bagwise.learn.mixture.whitening import Whitening

_MOST = 500
_HALVINGS = 4, 20  # of a step of scoring, and of EM, which is tried where the first is too long
_TOLERANCE = 1e-8  # of twice the gain that one more step promises: 1e-4 standard errors
_SETTLED = 1e-6  # change of log(phi) in a step
_RUN_AWAY = 100.0  # a chance of 4e-44, a rate of 3e43: no labels ask for that
_SMALL = 1e-300
_NARROWEST = 1e-6  # smallest phi, as a share of what the bags' labels have around all their rows


@dataclass(frozen=True)
class Picks:
    """Rows in standard units, with the density of their bags' labels.

    Attributes
    ----------
    design : (n, p)
    penalty : (p,)
        Ridge penalty of each entry of theta for one bag whose label has variance 1.
    """

    bags: PickedBags
    family: Family
    density: Density
    design: FloatArray
    penalty: FloatArray

    @cached_property
    def noise(self) -> FloatArray:
        """Variance of the noise that adds to phi, (m,): for normal labels alone it does."""
        return self.bags.noise_sd**2 * (self.family.name == "gaussian")

    @property
    def climbs_phi(self) -> bool:
        """Whether phi is climbed with theta: for normal labels the likelihood says what it is."""
        return self.family.name == "gaussian"

    @property
    def steps_aside(self) -> bool:
        """Whether phi is what residuals say between steps: for other families that is safer."""
        return not self.family.knows_dispersion and not self.climbs_phi

    @property
    def fitted(self) -> float:
        """Coefficients that the estimate of phi has to make up for."""
        return float(np.clip(self.bags.total - 1, 0, self.design.shape[1]))

    def penalty_at(self, phi: float) -> FloatArray:
        """Return the penalty on the log-likelihood: labels that are surer outweigh it more."""
        return self.penalty * float(np.sum(self.bags.weight / (phi + self.noise)))


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
    log_likelihood: float
    objective: float

    @classmethod
    def at(cls, rows: Picks, theta: FloatArray, phi: float) -> Self:
        """Do the E-step at theta and phi; the objective is minus infinity where there is none."""
        eta = rows.design @ theta
        if not rows.family.allows(eta):
            return cls(theta, phi, eta, eta, eta, -np.inf, -np.inf)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_density, expected = rows.density.evaluate(eta, phi)
            responsibilities, per_bag = e_step(log_density, rows.bags.ends)
            off = expected - rows.family.mean(eta)
            slope = off * rows.family.natural_slope(eta) / phi
        total = float(rows.bags.weight @ per_bag)
        # Maximum likelihood fits the noise of p labels and takes phi too small by it; this term
        # turns RSS / m into RSS / (m - p), as for least squares (Cox and Reid).
        spread = float(rows.bags.weight @ np.log(phi + rows.noise)) / rows.bags.total
        value = total + rows.fitted * spread / 2 - float(rows.penalty_at(phi) @ theta**2) / 2
        if not np.isfinite(value):
            total = value = -np.inf
        return cls(theta, phi, eta, responsibilities, slope, total, value)


def scores_of(rows: Picks, point: Point) -> FloatArray:
    """Return the gradient of each bag's log-likelihood in theta, (m, p)."""
    return rows.bags.weighted_sum(point.responsibilities * point.slope, rows.design)


def climb(rows: Picks, point: Point, *, most: int | None = None) -> tuple[Point, bool]:
    """Climb to the nearest maximum; say whether it was reached."""
    floor = _NARROWEST * widest_dispersion(rows, point.theta)
    for number in range(_MOST if most is None else most):
        settled = True
        if rows.steps_aside:
            phi = max(floor, dispersion(rows, point))
            settled = abs(np.log(phi / point.phi)) < _SETTLED
            point = Point.at(rows, point.theta, phi)
        # 1. Scoring: the outer product of the scores is positive wherever one is.
        gradient, outer = gradient_and_outer(rows, point)
        step, _ = solve_symmetric(outer, gradient)
        promised = float(gradient @ step)
        if promised < _TOLERANCE and settled:
            return point, True
        better = _search(rows, point, step, floor, halvings=_HALVINGS[0])
        # 2. EM, where that does not climb, and at first, when scores may be far from normal.
        if number == 0 or better is None or better.objective - point.objective < _TOLERANCE:
            step = em_step(rows, point, gradient)
            other = _search(rows, point, step, floor, halvings=_HALVINGS[1])
            if other is not None and (better is None or other.objective > better.objective):
                better = other
        if better is None or better.objective - point.objective < 1e-10 * rows.bags.total:
            if settled:  # nothing climbs: at a maximum, or where rounding hides it
                return point, float(gradient @ step) < 1e-4
            continue
        point = better
    return point, False


def gradient_and_outer(rows: Picks, point: Point) -> tuple[FloatArray, FloatArray]:
    """Return the gradient of the objective, and the outer product of the scores; phi is last."""
    bags, theta = rows.bags, point.theta
    scores, penalty = scores_of(rows, point), rows.penalty_at(point.phi)
    pull = -penalty * theta
    if rows.climbs_phi:
        scores = np.column_stack([scores, scores_by_scale(rows, point)])
        share = point.phi / (point.phi + rows.noise)
        ridge = float(rows.penalty @ theta**2)
        more = rows.fitted / bags.total + ridge / (point.phi + rows.noise)
        pull = np.append(pull, float(bags.weight @ (share * more)) / 2)
        penalty = np.append(penalty, 0.0)
    outer = (scores * bags.weight[:, None]).T @ scores + np.diag(penalty)
    return bags.weight @ scores + pull, outer


def em_step(rows: Picks, point: Point, gradient: FloatArray) -> FloatArray:
    """Return one step of the weighted fit that takes responsibilities for weights."""
    family, width = rows.family, rows.design.shape[1]
    known = family.slope(point.eta) * family.natural_slope(point.eta)
    per_bag = rows.bags.weight / (point.phi + rows.noise)
    weight = point.responsibilities * known * rows.bags.repeat(per_bag)
    information = rows.design.T @ (rows.design * weight[:, None])
    information += np.diag(rows.penalty_at(point.phi))
    step, _ = solve_symmetric(information, gradient[:width])
    if not rows.climbs_phi:
        return step
    phi = max(_SMALL, dispersion(rows, Point.at(rows, point.theta + step, point.phi)))
    return np.append(step, np.log(phi / point.phi))


def _search(
    rows: Picks, point: Point, step: FloatArray, floor: float, *, halvings: int
) -> Point | None:
    """Return the first of the points at 1, 1/2, 1/4, … of the step that is better."""
    width = rows.design.shape[1]
    for times in range(halvings):
        part, phi = step / 2**times, point.phi
        if rows.climbs_phi:
            phi = max(floor, phi * float(np.exp(np.clip(part[-1], -2.0, 2.0))))
        there = Point.at(rows, point.theta + part[:width], phi)
        if there.objective > point.objective:
            return there
    return None


def dispersion(rows: Picks, point: Point) -> float:
    """Return the phi that squared residuals ask for, each row counted by its responsibility."""
    return _from_squares(rows, point.theta, point.eta, point.responsibilities)


def widest_dispersion(rows: Picks, theta: FloatArray) -> float:
    """Return the same before any row is preferred: too large, so that a climb begins smoothly."""
    # Without any residual there is nothing to go by; one is what a family begins with.
    alike = rows.bags.repeat(1 / rows.bags.sizes)
    return _from_squares(rows, theta, rows.design @ theta, alike) or 1.0


def _from_squares(rows: Picks, theta: FloatArray, eta: FloatArray, share: FloatArray) -> float:
    bags, family = rows.bags, rows.family
    with np.errstate(divide="ignore", invalid="ignore"):  # where chances are certain
        off = (bags.repeat(bags.labels) - family.mean(eta)) ** 2 / family.variance(eta)
    squares = bags.sum(share * off)
    if rows.climbs_phi:
        squares = squares + float(rows.penalty @ theta**2)
    return phi_of_squares(rows, squares)


def phi_of_squares(rows: Picks, squares: FloatArray) -> float:
    """Return the phi that is best for squared residuals of bags, beside noise that is known."""
    bags, noise = rows.bags, rows.noise
    squares = squares * (bags.total / (bags.total - rows.fitted))
    if np.ptp(noise) == 0:
        return max(0.0, float(bags.weight @ squares) / bags.total - float(noise[0]))

    def minus_log_likelihood(log_phi: float) -> float:
        variance = np.exp(log_phi) + noise
        return float(bags.weight @ (np.log(variance) + squares / variance))

    high = float(np.log(squares.max() + _SMALL))
    low = high + float(np.log(_NARROWEST))
    found = minimize_scalar(minus_log_likelihood, bounds=(low, high), method="bounded")
    return float(np.exp(found.x))


def maximum_at(
    rows: Picks, point: Point, whitening: Whitening, *, converged: bool, by_chance: bool = False
) -> Maximum:
    """Return where a climb ended, with what is needed to say how sure it is."""
    scores, (gradient, _) = scores_of(rows, point), gradient_and_outer(rows, point)
    known = rows.family.knows_dispersion
    widest = widest_dispersion(rows, point.theta)
    return Maximum(
        estimates=whitening.to_own_units() @ point.theta,
        phi=point.phi,
        scores=scores if known else np.column_stack([scores, scores_by_scale(rows, point)]),
        gradient=float(np.linalg.norm(gradient)) * point.phi / rows.bags.total,
        # Where chances are certain the gradient vanishes as well, without a maximum.
        converged=converged and not (known and float(np.abs(point.eta).max()) > _RUN_AWAY),
        collapsed=not known and point.phi <= 2 * _NARROWEST * widest and not (rows.noise > 0).all(),
        by_chance=by_chance,
    )


def fit_picks(
    bags: PickedBags,
    whitening: Whitening,
    family: Family,
    density: Density,
    *,
    start: FloatArray,
    ridge: float,
) -> Maximum:
    """Return the maximum of the likelihood next to a start, which is coefficients and intercept.

    The solution of bag loss is a good one: it is consistent, so that the maximum next to it is the
    right one once there are enough bags.
    """
    rows = Picks(bags, family, density, whitening.design(bags.X), whitening.penalty(ridge))
    theta = whitening.theta(start[:-1], float(start[-1]))
    phi = 1.0 if family.knows_dispersion else widest_dispersion(rows, theta)
    point, converged = climb(rows, Point.at(rows, theta, phi))
    return maximum_at(rows, point, whitening, converged=converged)


def scores_by_scale(rows: Picks, point: Point) -> FloatArray:
    """Return the derivative of each bag's log-likelihood in log(phi), by central differences."""
    step = 1e-5
    up, _ = rows.density.evaluate(point.eta, point.phi * np.exp(step))
    down, _ = rows.density.evaluate(point.eta, point.phi * np.exp(-step))
    return rows.bags.sum(point.responsibilities * (up - down) / (2 * step))
