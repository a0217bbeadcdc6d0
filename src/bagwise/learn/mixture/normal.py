"""The likelihood of normal picks: its value, its derivatives, and the climb to a maximum.

The climb is Newton's method on the likelihood itself, label noise included; a scoring step where
it is not concave; and an EM step, which never falls, where neither climbs.

References
----------
Berndt, Hall, Hall and Hausman (1974) for scoring; Louis (1982) for the observed information; Cox
and Reid (1987) for the correction of sigma.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy import linalg
from scipy.optimize import minimize_scalar

from bagwise._types import FloatArray
from bagwise.learn.mixture.likelihood import PickedBags, e_step

NARROWEST = 1e-3  # smallest label noise, as a share of the labels' spread
_TOLERANCE = 1e-8  # of twice the gain that one more step promises: 1e-4 standard errors


@dataclass(frozen=True)
class NormalPicks:
    """Rows and labels in units in which both have spread 1.

    Attributes
    ----------
    bags : PickedBags
        With labels and noise in those units.
    design : (n, p)
    penalty : (p,)
        Ridge penalty of each entry of theta for one bag whose label has variance 1.
    """

    bags: PickedBags
    design: FloatArray
    penalty: FloatArray

    @cached_property
    def labels(self) -> FloatArray:
        """The label of each row's bag."""
        return self.bags.repeat(self.bags.labels)

    @cached_property
    def noise_variance(self) -> FloatArray:
        """The variance of the privacy noise on it."""
        return self.bags.repeat(self.bags.noise_sd**2)

    @property
    def fitted(self) -> float:
        """Coefficients that the estimate of sigma has to make up for; see `Point.at`."""
        return float(np.clip(self.bags.total - 1, 0, self.design.shape[1]))

    def variance(self, sigma: float) -> FloatArray:
        """Return the variance of each bag's label around its row's expected one."""
        return np.asarray(sigma**2 + self.bags.noise_sd**2)

    def penalty_at(self, sigma: float) -> FloatArray:
        """Return the penalty on the log-likelihood: labels that are surer outweigh it more."""
        return self.penalty * float(np.sum(self.bags.weight / self.variance(sigma)))

    def scores(self, point: "Point") -> FloatArray:
        """Return the gradient of each bag's log-likelihood in theta, (m, p)."""
        slope = (self.labels - point.eta) / (point.sigma**2 + self.noise_variance)
        return self.bags.weighted_sum(point.responsibilities * slope, self.design)

    def outer(self, scores: FloatArray) -> FloatArray:
        """Return the products of the scores, added up over the bags."""
        return np.asarray((scores * self.bags.weight[:, None]).T @ scores)


@dataclass(frozen=True)
class Point:
    """Parameters, and the E-step at them."""

    theta: FloatArray
    sigma: float
    eta: FloatArray
    responsibilities: FloatArray
    log_likelihood: float
    objective: float

    @classmethod
    def at(cls, rows: NormalPicks, theta: FloatArray, sigma: float) -> Self:
        """Do the E-step at theta and sigma."""
        bags, eta = rows.bags, rows.design @ theta
        variance = sigma**2 + rows.noise_variance
        log_density = -0.5 * (np.log(2 * np.pi * variance) + (rows.labels - eta) ** 2 / variance)
        responsibilities, per_bag = e_step(log_density, bags.ends)
        total = float(bags.weight @ per_bag)
        # Maximum likelihood fits the noise of `fitted` labels and takes sigma too small by it,
        # which in turn makes responsibilities too sure. This term turns RSS / m into
        # RSS / (m - p), as for least squares (the adjusted profile likelihood of Cox and Reid).
        spread = np.log(rows.variance(sigma))
        correction = 0.5 * rows.fitted * float(bags.weight @ spread) / bags.total
        ridge = 0.5 * float(rows.penalty_at(sigma) @ theta**2)
        return cls(theta, sigma, eta, responsibilities, total, total + correction - ridge)


def objective(point: Point) -> float:
    """Return what is climbed."""
    return point.objective


def m_step(rows: NormalPicks, point: Point) -> Point:
    """Maximise the expected log-likelihood of picks known by their responsibilities."""
    bags = rows.bags
    share = point.responsibilities * bags.row_weight
    weight = share / (point.sigma**2 + rows.noise_variance)
    gram = rows.design.T @ (rows.design * weight[:, None]) + np.diag(rows.penalty_at(point.sigma))
    theta = least_norm(gram, rows.design.T @ (weight * rows.labels))
    off = bags.sum(point.responsibilities * (rows.labels - rows.design @ theta) ** 2)
    return Point.at(rows, theta, label_noise(rows, off, theta))


def least_norm(gram: FloatArray, moment: FloatArray) -> FloatArray:
    """Solve normal equations, shortest where they leave something open."""
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-12)[0], dtype=np.float64)


def label_noise(rows: NormalPicks, squares: FloatArray, theta: FloatArray) -> float:
    """Return the sigma that is best for the bags' squared residuals."""
    bags = rows.bags
    squares = squares + float(rows.penalty @ theta**2)
    squares = squares * (bags.total / max(bags.total - rows.fitted, 1e-9))
    noise = bags.noise_sd**2
    if np.ptp(noise) == 0:
        excess = float(bags.weight @ squares) / bags.total - float(noise[0])
        return max(NARROWEST, float(np.sqrt(max(0.0, excess))))

    def minus_log_likelihood(log_sigma: float) -> float:
        variance = np.exp(2 * log_sigma) + noise
        return float(bags.weight @ (np.log(variance) + squares / variance))

    low = np.log(NARROWEST)
    high = max(low, 0.5 * np.log(squares.max() + NARROWEST**2))
    found = minimize_scalar(minus_log_likelihood, bounds=(low, high), method="bounded")
    return float(np.exp(found.x))


def derivatives(rows: NormalPicks, point: Point) -> tuple[FloatArray, FloatArray]:
    """Return the bags' scores, (m, p + 1), and the observed information, (p + 1, p + 1).

    The last parameter is log(sigma). The information is that of known picks minus what not knowing
    them costs.
    """
    bags, design = rows.bags, rows.design
    variance = point.sigma**2 + rows.noise_variance
    share = point.sigma**2 / variance
    slope = (rows.labels - point.eta) / variance
    square = slope**2 * variance
    first = share * (square - 1)  # in log(sigma)
    second = 2 * share * (square - 1) + 2 * share**2 * (1 - 2 * square)
    own = rows.scores(point)
    scores = np.column_stack([own, bags.sum(point.responsibilities * first)])
    information = rows.outer(scores)
    weight = point.responsibilities * bags.row_weight
    information[:-1, :-1] += design.T @ (design * (weight * (1 / variance - slope**2))[:, None])
    cross = design.T @ (weight * slope * (first - 2 * share))
    information[:-1, -1] -= cross
    information[-1, :-1] -= cross
    information[-1, -1] -= float(weight @ (second + first**2))
    return scores, information


def objective_derivatives(
    rows: NormalPicks, point: Point
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the gradient of the objective, and its observed and outer-product information."""
    scores, observed = derivatives(rows, point)
    bags, theta = rows.bags, point.theta
    gradient, outer = bags.weight @ scores, rows.outer(scores)
    variance = rows.variance(point.sigma)
    share = point.sigma**2 / variance
    # What the correction of sigma and the penalty add in log(sigma).
    correction = rows.fitted * bags.weight / bags.total
    fall = bags.weight * float(rows.penalty @ theta**2) / variance
    gradient[-1] += float(share @ (correction + fall))
    observed[-1, -1] -= float((share - share**2) @ (2 * correction))
    observed[-1, -1] -= float((share - 2 * share**2) @ (2 * fall))
    cross = 2 * rows.penalty * theta * float(share @ (bags.weight / variance))
    observed[:-1, -1] -= cross
    observed[-1, :-1] -= cross
    penalty = rows.penalty_at(point.sigma)
    gradient[:-1] -= penalty * theta
    for information in (observed, outer):
        information[:-1, :-1] += np.diag(penalty)
    return gradient, observed, outer


def polish(rows: NormalPicks, point: Point, *, most: int) -> tuple[Point, bool]:
    """Climb to the nearest maximum; say whether it was reached."""
    for _ in range(most):
        gradient, observed, outer = objective_derivatives(rows, point)
        newton = _solve(observed, gradient)
        if newton is not None and float(gradient @ newton) < _TOLERANCE:
            return point, True
        # Between maxima the observed information is not positive; the outer product always is.
        direction = _solve(outer, gradient) if newton is None else newton
        better = None if direction is None else _search(rows, point, direction)
        if better is None:
            better = m_step(rows, point)
            # EM cannot fall, save for rounding and the floor of sigma.
            if better.objective - point.objective < 1e-10 * rows.bags.total:
                return max(point, better, key=objective), True
        point = better
    return point, False


def _solve(information: FloatArray, gradient: FloatArray) -> FloatArray | None:
    """Return the step that climbs, or None if the information is not positive definite."""
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(information), gradient))
    except linalg.LinAlgError:
        return None


def _search(rows: NormalPicks, point: Point, direction: FloatArray) -> Point | None:
    """Return a point along `direction` that is better, if a short search finds one."""
    for length in (1.0, 0.5, 0.25, 0.125):
        log_change = float(np.clip(length * direction[-1], -1.0, 1.0))
        sigma = max(NARROWEST, point.sigma * float(np.exp(log_change)))
        there = Point.at(rows, point.theta + length * direction[:-1], sigma)
        if there.objective > point.objective:
            return there
    return None
