"""Picked labels by their exact likelihood, without knowing which row it was.

Bag loss compares a picked label with the mean of its rows' expected labels; the spread inside the
bag is noise to it. The likelihood also asks which rows the label can have come from. On random bags
that is where nearly all of the information is.

**The climb** to the nearest maximum is scoring with the outer product of the bags' scores. Where
that does not climb, the step is that of EM: the same gradient, and the information that known picks
would have. Between steps phi is what the residuals of rows, counted by their responsibility, say;
as for least squares, over as many bags as are left beside the coefficients (the adjusted profile
likelihood of Cox and Reid).

**The search.** For most families the climb begins at the solution of bag loss, which is consistent.
The likelihood of normal picks has many maxima. There a start climbs at a label noise as wide as the
labels, where the likelihood has a single maximum, and narrows it in small steps. At wide noise one
scoring step from zero is least squares on centroids, the aggregate fit; EM would need some
``bag_size`` times as many steps, because it credits itself with knowing the row. Several starts are
made until some meet.

References
----------
Berndt, Hall, Hall and Hausman (1974) for scoring; Cox and Reid (1987) for phi. Ray and Page (2001),
Multiple instance regression; Wang et al. (2008), for the mixture and its EM.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy import linalg
from scipy.optimize import minimize_scalar

from bagwise._types import FloatArray
from bagwise.errors import SeparationWarning
from bagwise.families import Family
from bagwise.glm.solver import inverse_symmetric, solve_symmetric
from bagwise.learn.fitting import Fitted, solve_loss
from bagwise.learn.losses import Setting, problem_of
from bagwise.learn.picks import Density, PickCoordinates, PickedBags, density_of, e_step, moves
from bagwise.learn.remarks import warn_of_separation

_ENOUGH = 30  # bags for each coefficient, for intervals that hold what they say
_MOST = 500
_HALVINGS = 4, 20  # of a step of scoring, and of EM, which is tried where the first is too long
_TOLERANCE = 1e-8  # of twice the gain that one more step promises: 1e-4 standard errors
_SETTLED = 1e-6  # change of log(phi) in a step
_RUN_AWAY = 100.0  # a chance of 4e-44, a rate of 3e43: no labels ask for that
_SMALL = 1e-300
_NARROWEST = 1e-6  # smallest phi, as a share of what the bags' labels have around all their rows
_LADDER = 0.95 ** np.arange(59)  # label noise from all of the labels' spread down to a twentieth
_STEPS = 2  # at each rung
_DAMPING = 0.5  # of a scoring step; full ones overshoot while the rows are still undecided
_JITTER = 0.3  # standard errors of noise on each step, so that later starts take other ways
_STARTS = 8
_MET, _MET_BY_CHANCE = 2, 4  # starts that have to meet before no more are made
_TRIAL = 50  # steps of each start before starts are compared
_SAME = 0.01  # maxima whose log-likelihoods differ by less are one
# Gain in log-likelihood for each coefficient. On shuffled labels the search reached 2.9 at most, in
# 120 runs with 2 to 100 rows in a bag and 9 to 75 bags for each coefficient.
_CHANCE = 3.0
_SEED = 0  # the same data give the same fit
_LEAST = 1e-6  # smallest phi, of labels of variance 1
_DOUBTS = (
    "No intervals: the labels are separated, and no coefficients are best.",
    "No intervals: the labels are met without error, which leaves nothing to judge by.",
    "No intervals: the search ended in one of many maxima, and it explains the labels no better "
    "than shuffled ones can be explained. Use smaller bags, more bags, fewer columns, or "
    "loss='bag'.",
    "No intervals: the fit did not converge.",
)


def fit_mixture(setting: Setting) -> Fitted:
    """Fit a model to the labels of rows that were picked from bags, one each.

    The likelihood of normal labels has many maxima, and the search may end in a worse one where
    bags are large and few. Where that shows, the fit counts as not converged. For other families
    the search begins at the solution of bag loss, which is consistent. A bag of weight 2 counts as
    two bags.

    Examples
    --------
    >>> from bagwise.families import find_family
    >>> from bagwise.learn.bag_data import read_bags
    >>> rng = np.random.default_rng(0)
    >>> X, bags = rng.normal(size=(900, 2)), np.repeat(np.arange(300), 3)
    >>> picked = 3 * np.arange(300) + rng.integers(3, size=300)
    >>> labels = 1.0 + X[picked] @ [2.0, -1.0] + rng.normal(0, 0.1, 300)
    >>> data = read_bags(X, labels[bags], bags=bags)
    >>> setting = Setting(data, find_family("gaussian"), "pick", "known-noise", True, ridge=0.0)
    >>> fit_mixture(setting).estimates.round(1)
    array([[ 2., -1.,  1.]])
    """
    # 1. Rows in white coordinates, bag by bag; normal labels in units of their own spread.
    family, bags = setting.family, PickedBags.of(setting.data)
    normal = family.name == "gaussian"
    whitening = PickCoordinates.of(bags, fit_intercept=setting.fit_intercept)
    level, scale = 0.0, 1.0
    if normal:
        level = float(bags.weight @ bags.labels) / bags.total if whitening.fit_intercept else 0.0
        off = bags.labels - level
        scale = float(np.sqrt(bags.weight @ off**2 / bags.total)) or 1.0
        bags = replace(bags, labels=off / scale, noise_sd=bags.noise_sd / scale)
    rows = PickedRows.of(bags, whitening, family, setting.fixed_ridge)

    # 2. Climb: from the best of many starts, or from the solution of bag loss.
    separated = by_chance = False
    met = normal and bags.total <= whitening.width and not bags.noise_sd.all()
    if met:  # by means of rows already: there is nothing to search for
        point, converged = aggregate_fit(rows), True
    elif normal:
        point, alone = best_of_starts(rows)
        point, converged = climb(rows, point)
        by_chance = not alone and is_by_chance(rows, point)
    else:
        solution = solve_loss(setting, problem_of(setting, "bag"))
        separated = warn_of_separation(solution, setting.names)
        start = solution.problem.to_own_units() @ solution.beta
        theta = whitening.theta(start[:-1], float(start[-1]))
        phi = 1.0 if family.knows_dispersion else widest_dispersion(rows, theta)
        point, converged = climb(rows, Point.at(rows, theta, phi))
    converged = converged and not runs_away(rows, point)
    least = 2 * _NARROWEST * widest_dispersion(rows, point.theta)
    known = family.knows_dispersion
    collapsed = met or (not known and point.phi <= least and not (rows.noise > 0).all())

    # 3. Judge how sure it is.
    if collapsed:
        warnings.warn(
            f"{whitening.width} coefficients and a free choice of rows fit the labels of "
            f"{setting.n_used} bags without error, so the fit may be meaningless. Set ridge > 0, "
            "drop columns, or use loss='bag'.",
            SeparationWarning,
            stacklevel=4,
        )
    freedom = max(1.0, bags.total - whitening.width)
    doubts = (separated, collapsed, by_chance, not converged)
    matrix, note = (
        None,
        next((why for why, holds in zip(_DOUBTS, doubts, strict=True) if holds), ""),
    )
    if not note:
        scores = scores_of(rows, point) / scale
        if not known:
            scores = np.column_stack([scores, scores_by_scale(rows, point)])
        matrix = covariance_of_scores(scores, bags.weight, whitening)
        matrix *= bags.total / freedom
        note = _note(setting, whitening.width, bags.total)
    estimates = scale * (whitening.to_own_units() @ point.theta)
    estimates[-1] += level
    gradient, _ = gradient_and_outer(rows, point)
    return Fitted(
        estimates=estimates[None, :],
        rank=min(whitening.kept, max(0, setting.n_used - setting.fit_intercept)),
        phi=scale**2 * point.phi,
        converged=converged and not by_chance,
        gradient=float(np.linalg.norm(gradient)) * point.phi / bags.total,
        covariance=matrix,
        freedom=freedom,
        note=note,
        separated=separated,
        remedy=note if by_chance else "",
    )


@dataclass(frozen=True)
class PickedRows:
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

    @classmethod
    def of(cls, bags: PickedBags, whitening: PickCoordinates, family: Family, ridge: float) -> Self:
        """Bring rows into white coordinates."""
        density = density_of(family, bags)
        return cls(bags, family, density, whitening.design(bags.X), whitening.penalty(ridge))

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
    def at(cls, rows: PickedRows, theta: FloatArray, phi: float) -> Self:
        """Do the E-step at theta and phi; the objective is minus infinity where there is none."""
        eta = rows.design @ theta
        if not rows.family.allows(eta):
            return cls(theta, phi, eta, eta, eta, -np.inf, -np.inf)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_density, expected = rows.density(eta, phi)
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


def scores_of(rows: PickedRows, point: Point) -> FloatArray:
    """Return the gradient of each bag's log-likelihood in theta, (m, p)."""
    return rows.bags.weighted_sum(point.responsibilities * point.slope, rows.design)


def climb(rows: PickedRows, point: Point, *, most: int | None = None) -> tuple[Point, bool]:
    """Climb to the nearest maximum in `most` steps; say whether it was reached."""
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


def runs_away(rows: PickedRows, point: Point) -> bool:
    """Tell whether chances are certain: there the gradient vanishes as well, without a maximum."""
    return rows.family.knows_dispersion and float(np.abs(point.eta).max()) > _RUN_AWAY


def gradient_and_outer(rows: PickedRows, point: Point) -> tuple[FloatArray, FloatArray]:
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


def em_step(rows: PickedRows, point: Point, gradient: FloatArray) -> FloatArray:
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
    rows: PickedRows, point: Point, step: FloatArray, floor: float, *, halvings: int
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


def dispersion(rows: PickedRows, point: Point) -> float:
    """Return the phi that squared residuals ask for, each row counted by its responsibility."""
    return _from_squares(rows, point.theta, point.eta, point.responsibilities)


def widest_dispersion(rows: PickedRows, theta: FloatArray) -> float:
    """Return the same before any row is preferred: too large, so that a climb begins smoothly."""
    # Without any residual there is nothing to go by; one is what a family begins with.
    alike = rows.bags.repeat(1 / rows.bags.sizes)
    return _from_squares(rows, theta, rows.design @ theta, alike) or 1.0


def _from_squares(rows: PickedRows, theta: FloatArray, eta: FloatArray, share: FloatArray) -> float:
    bags, family = rows.bags, rows.family
    with np.errstate(divide="ignore", invalid="ignore"):  # where chances are certain
        off = (bags.repeat(bags.labels) - family.mean(eta)) ** 2 / family.variance(eta)
    squares = bags.sum(share * off)
    if rows.climbs_phi:
        squares = squares + float(rows.penalty @ theta**2)
    return phi_of_squares(rows, squares)


def phi_of_squares(rows: PickedRows, squares: FloatArray) -> float:
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
    best = minimize_scalar(minus_log_likelihood, bounds=(low, high), method="bounded")
    return float(np.exp(best.x))


def scores_by_scale(rows: PickedRows, point: Point) -> FloatArray:
    """Return the derivative of each bag's log-likelihood in log(phi), by central differences."""
    step = 1e-5
    up, _ = rows.density(point.eta, point.phi * np.exp(step))
    down, _ = rows.density(point.eta, point.phi * np.exp(-step))
    return rows.bags.sum(point.responsibilities * (up - down) / (2 * step))


def best_of_starts(rows: PickedRows) -> tuple[Point, bool]:
    """Return the best maximum, and whether all starts met in it."""
    rng = np.random.default_rng(_SEED)
    best, found_by, apart = climb(rows, aggregate_fit(rows), most=_TRIAL)[0], 1, False
    for number in range(_STARTS):
        # Starts that meet are as good a sign as there is, save in a maximum that chance explains.
        if found_by >= (_MET_BY_CHANCE if is_by_chance(rows, best) else _MET):
            break
        start = anneal(rows, jitter=_JITTER if number > 0 else 0.0, rng=rng)
        end, _ = climb(rows, start, most=_TRIAL)
        if abs(end.objective - best.objective) <= _SAME:
            found_by += 1
            continue
        apart = True
        if end.objective > best.objective:
            best, found_by = end, 1
    return best, not apart


def is_by_chance(rows: PickedRows, point: Point) -> bool:
    """Whether a search on shuffled labels might gain as much in likelihood."""
    zero = np.zeros_like(point.theta)
    plain = Point.at(rows, zero, max(_LEAST, widest_dispersion(rows, zero)))
    return point.log_likelihood - plain.log_likelihood < _CHANCE * point.theta.size


def aggregate_fit(rows: PickedRows) -> Point:
    """Return least squares on centroids; whatever wins is at least as likely as this."""
    bags = rows.bags
    centroids = bags.weighted_sum(bags.repeat(1 / bags.sizes), rows.design)
    weighted = centroids * bags.weight[:, None]
    gram = weighted.T @ centroids + np.diag(rows.penalty * bags.total)
    theta, _ = solve_symmetric(gram, weighted.T @ bags.labels)
    squares = (bags.labels - centroids @ theta) ** 2 + float(rows.penalty @ theta**2)
    return Point.at(rows, theta, max(_LEAST, phi_of_squares(rows, squares)))


def anneal(rows: PickedRows, *, jitter: float, rng: np.random.Generator) -> Point:
    """Follow the maximum from wide label noise to narrow; return the likeliest point on the way."""
    width = rows.design.shape[1]
    # All columns together explain the labels' spread. This holds the first, uncertain steps, and
    # is gone when the polishing starts.
    prior = width * float(rows.bags.weight.mean())
    theta = np.zeros(width)
    best = Point.at(rows, theta, 1.0)
    for sigma in np.repeat(_LADDER, _STEPS):
        point = Point.at(rows, theta, float(sigma) ** 2)
        best = max(best, point, key=lambda one: one.objective)
        scores = scores_of(rows, point)
        hold: FloatArray = prior + rows.penalty_at(point.phi)
        outer = (scores * rows.bags.weight[:, None]).T @ scores
        factor = linalg.cho_factor(outer + np.diag(hold))
        theta = theta + _DAMPING * linalg.cho_solve(
            factor, rows.bags.weight @ scores - hold * theta
        )
        if jitter:
            noise = rng.standard_normal(width)
            theta = theta + jitter * linalg.solve_triangular(factor[0], noise)
    return best


def covariance_of_scores(
    scores: FloatArray, weight: FloatArray, whitening: PickCoordinates
) -> FloatArray:
    """Return the inverse of the scores' outer product, for coefficients and intercept.

    The scale counts as a parameter and is left out at the end. Coefficients that the data do not
    determine get NaN.

    References
    ----------
    Berndt, Hall, Hall and Hausman (1974).
    """
    outer = (scores * weight[:, None]).T @ scores
    inverse, _ = inverse_symmetric(outer)
    own = whitening.to_own_units()
    change = np.zeros((len(own), len(outer)))
    change[:, : whitening.width] = own
    covariance = change @ inverse @ change.T
    lost = whitening.open | moves(change, np.eye(len(outer)) - inverse @ outer)
    covariance[lost, :] = covariance[:, lost] = np.nan
    return np.asarray(covariance)


def _note(setting: Setting, width: int, total: float) -> str:
    note = f"Standard errors: outer product of the scores, over {setting.n_used} bags."
    if total < _ENOUGH * width:
        note += f" With fewer than {_ENOUGH} bags for each coefficient they are too short."
    if setting.family.name != "gaussian":
        note += " They believe the distribution: labels that vary more make them too short."
    if setting.fixed_ridge > 0:
        note += " They leave out the bias of the ridge penalty."
    return note
