"""The exact likelihood of picked labels when the picked row is unknown.

The label of a bag is that of one of its rows, chosen uniformly: a mixture with one component for
each row. Which row it was is known only by its probability, the responsibility of the row.

Bag loss compares a picked label with the mean of its rows' expected labels; the spread inside the
bag is noise to it. The likelihood also asks which rows the label can have come from. On random bags
that is where nearly all of the information is.

It is for normal labels, with or without normal noise. The likelihood of a picked class is that of
bag loss; and for others it would trust the family in all respects, which real counts do not follow.

**The climb** to the nearest maximum is scoring with the outer product of the bags' scores, phi
being climbed with the coefficients. Where that does not climb, the step is that of EM: the same
gradient, and the information that known picks would have. As for least squares, phi is taken over
as many bags as are left beside the coefficients (the adjusted profile likelihood of Cox and Reid).

**The search.** The likelihood has many maxima. A start climbs at a label noise as wide as the
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
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import minimize_scalar

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import NotConvergedWarning, SeparationWarning, StrategyError
from bagwise.glm.solver import inverse_symmetric, solve_symmetric
from bagwise.learn.fitting import Setting, estimates_of, warn_of_gradient, warn_of_rank
from bagwise.models.row_model import Estimates
from bagwise.rows.whitening import FLAT, principal_axes, rounding

_ENOUGH = 30  # bags for each coefficient, for intervals that hold what they say
_MOST = 500
_HALVINGS = 4, 20  # of a step of scoring, and of EM, which is tried where the first is too long
_TOLERANCE = 1e-8  # of twice the gain that one more step promises: 1e-4 standard errors
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
    "No intervals: the labels are met without error, which leaves nothing to judge by.",
    "No intervals: the search ended in one of many maxima, and it explains the labels no better "
    "than shuffled ones can be explained. Use smaller bags, more bags, fewer columns, or "
    "loss='bag'.",
    "No intervals: the fit did not converge.",
)


@dataclass(frozen=True)
class PickedRows:
    """Bags that count, and their rows one bag after the other: sums over a bag are over a slice.

    Columns are uncorrelated directions of spread 1. Directions without spread drop out, so that
    constant and duplicate columns do no harm and their coefficients are those of least norm. theta
    has one entry for each direction and, last, the intercept at the centre.

    Attributes
    ----------
    design : (n, p)
    ends : (m + 1,)
        Bag l is ``design[ends[l]:ends[l + 1]]``.
    labels, noise_sd, weight : (m,)
        A bag of weight 2 counts as two bags.
    own : (d + 1, p)
        Maps theta to coefficients and, last, the intercept.
    open : (d + 1,)
        Which of these change along directions that dropped out.
    ridge : float
        Penalty on the coefficients, for one bag whose label has variance 1.
    scale, level : float
        Labels are given in units of `scale`, as they are off `level`.
    """

    design: FloatArray
    ends: IntArray
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray
    own: FloatArray
    open: AnyArray
    ridge: float = 0.0
    scale: float = 1.0
    level: float = 0.0

    @classmethod
    def of(cls, setting: Setting) -> Self:
        """Order the rows of bags that count, and find the directions in which they differ."""
        data, fit_intercept = setting.data, setting.fit_intercept
        if "mixture" not in setting.family.losses:
            raise StrategyError(
                f"loss='mixture' is for the gaussian family, not for {setting.family.name}: the "
                "likelihood of a picked class is that of bag loss, and other labels seldom follow "
                "their family in all respects. Set loss='bag'."
            )
        # 1. Bags one after the other. How likely is each row, before any label, to be a pick?
        used = data.weight > 0
        order = np.argsort(data.bags.index, kind="stable")
        order = order[used[data.bags.index[order]]]
        X = data.X[order]
        sizes, weight = data.bags.sizes[used], data.weight[used]
        chance = np.repeat(weight / (sizes * weight.sum()), sizes)
        # 2. Whiten. A constant column has the spread of its rounding.
        center = chance @ X if fit_intercept else np.zeros(X.shape[1])
        gram = (X - center).T @ ((X - center) * chance[:, None])
        flat = np.diag(gram) <= FLAT * (chance @ X**2)
        # As in the other learners (`solver`), all that can be told from rounding is learnt.
        axes = principal_axes(gram, constant=flat, tolerance=rounding(len(gram)))
        # Turned once more, so that |coef|^2 has no cross terms.
        basis = axes.basis @ linalg.eigh(axes.basis.T @ axes.basis)[1]
        design, own = (X - center) @ basis, np.vstack([basis, -center @ basis])
        if fit_intercept:
            design = np.column_stack([design, np.ones(len(X))])
            own = np.column_stack([own, np.eye(len(own))[-1]])
        standard = np.vstack([np.diag(1 / axes.spread), -center / axes.spread])
        # 3. Labels in units of their own spread.
        labels = data.labels[used]
        level = float(np.average(labels, weights=weight)) if fit_intercept else 0.0
        scale = float(np.sqrt(np.average((labels - level) ** 2, weights=weight))) or 1.0
        return cls(
            design=design,
            ends=np.concatenate([[0], np.cumsum(sizes)]),
            labels=(labels - level) / scale,
            noise_sd=data.noise_sd[used] / scale,
            weight=weight,
            own=own,
            open=moves(standard, axes.lost),
            ridge=setting.fixed_ridge,
            scale=scale,
            level=level,
        )

    @cached_property
    def row_labels(self) -> FloatArray:
        """The label of each row's bag."""
        return self.repeat(self.labels)

    @cached_property
    def sizes(self) -> IntArray:
        """Rows in each bag."""
        return np.diff(self.ends)

    @property
    def width(self) -> int:
        """Number of entries of theta."""
        return int(self.design.shape[1])

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return float(self.weight.sum())

    @cached_property
    def noise(self) -> FloatArray:
        """Variance of the noise that adds to phi, (m,)."""
        return self.noise_sd**2

    @property
    def fitted(self) -> float:
        """Number of coefficients that the estimate of phi has to allow for."""
        return float(np.clip(self.total - 1, 0, self.width))

    @cached_property
    def penalty(self) -> FloatArray:
        """The ridge penalty of each entry of theta; the intercept has none."""
        return np.asarray(self.ridge * np.sum(self.own[:-1] ** 2, axis=0))

    def penalty_at(self, phi: float) -> FloatArray:
        """Return the penalty on the log-likelihood: more certain labels outweigh it more."""
        return self.penalty * float(np.sum(self.weight / (phi + self.noise)))

    def repeat(self, bag_values: FloatArray) -> FloatArray:
        """Give each row its bag's value."""
        return np.repeat(bag_values, self.sizes)

    def sum(self, values: FloatArray) -> FloatArray:
        """Add up the values of the rows of each bag, (m,)."""
        return np.asarray(np.add.reduceat(values, self.ends[:-1]))

    def weighted_sum(self, values: FloatArray) -> FloatArray:
        """Add up the rows of each bag, multiplied by values, (m, p)."""
        n = values.size
        chosen = sparse.csr_array((values, np.arange(n), self.ends), shape=(len(self.labels), n))
        return np.asarray(chosen @ self.design)


@dataclass(frozen=True)
class Point:
    """Parameters, and the E-step at them.

    Attributes
    ----------
    responsibilities : (n,)
        Each row's probability to be the pick.
    slope : (n,)
        Derivative of each row's log density in its predictor.
    """

    theta: FloatArray
    phi: float
    responsibilities: FloatArray
    slope: FloatArray
    log_likelihood: float
    objective: float

    @classmethod
    def at(cls, rows: PickedRows, theta: FloatArray, phi: float) -> Self:
        """Do the E-step at theta and phi; the objective is minus infinity where it has no value."""
        eta, first = rows.design @ theta, rows.ends[:-1]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            variance, off = rows.repeat(phi + rows.noise), rows.row_labels - eta
            log_density = -np.log(2 * np.pi) / 2 - np.log(variance) / 2 - off**2 / variance / 2
            peak = np.maximum.reduceat(log_density, first)
            likely = np.exp(log_density - rows.repeat(peak))
            added = np.add.reduceat(likely, first)
            total = float(rows.weight @ (peak + np.log(added / rows.sizes)))
            responsibilities, slope = likely / rows.repeat(added), off / variance
        # Maximum likelihood fits the noise of p labels and takes phi too small by it; this term
        # turns RSS / m into RSS / (m - p), as for least squares (Cox and Reid).
        spread = float(rows.weight @ np.log(phi + rows.noise)) / rows.total
        value = total + rows.fitted * spread / 2 - float(rows.penalty_at(phi) @ theta**2) / 2
        if not np.isfinite(value):
            total = value = -np.inf
        return cls(theta, phi, responsibilities, slope, total, value)


def moves(change: FloatArray, directions: FloatArray) -> AnyArray:
    """Return which rows of a linear map change along some directions, beyond rounding."""
    moved = np.linalg.norm(change @ directions, axis=1)
    size = np.linalg.norm(change, axis=1)
    return np.asarray(moved > 1e-6 * np.where(size > 0, size, 1.0))


def fit_mixture(setting: Setting) -> Estimates:
    """Fit a model to the labels of rows that were picked from bags, one each.

    The likelihood has many maxima, and the search may end in a worse one where bags are large and
    few. Where that shows, the fit counts as not converged. A bag of weight 2 counts as two bags.

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
    >>> fit_mixture(setting).table.round(1)
    array([[ 2., -1.,  1.]])
    """
    # 1. Rows in white coordinates, bag by bag; labels in units of their own spread.
    rows = PickedRows.of(setting)
    total, noisy = rows.total, bool(rows.noise.all())

    # 2. Climb from the best of many starts.
    by_chance, met = False, total <= rows.width and not noisy
    if met:  # by means of rows already: there is nothing to search for
        point, converged = aggregate_fit(rows), True
    else:
        point, alone = best_of_starts(rows)
        point, converged = climb(rows, point)
        by_chance = not alone and is_by_chance(rows, point)
    least = 2 * _NARROWEST * widest_dispersion(rows, point.theta)
    collapsed = met or (point.phi <= least and not noisy)

    # 3. Judge how sure it is.
    if collapsed:
        warnings.warn(
            f"{rows.width} coefficients and a free choice of rows fit the labels of "
            f"{setting.n_used} bags without error, so the fit may be meaningless. Set ridge > 0, "
            "drop columns, or use loss='bag'.",
            SeparationWarning,
            stacklevel=4,
        )
    freedom, matrix = max(1.0, total - rows.width), None
    doubts = (collapsed, by_chance, not converged)
    note = next((why for why, holds in zip(_DOUBTS, doubts, strict=True) if holds), "")
    if not note:
        matrix = covariance_of_scores(rows, point) * (total / freedom)
        note = f"Standard errors: outer product of the scores, over {setting.n_used} bags."
        if total < _ENOUGH * rows.width:
            note += f" With fewer than {_ENOUGH} bags for each coefficient they are too short."
        if setting.fixed_ridge > 0:
            note += " They leave out the bias of the ridge penalty."
    estimates = rows.scale * (rows.own @ point.theta)
    estimates[-1] += rows.level
    gradient, _ = gradient_and_outer(rows, point)
    directions = rows.width - setting.fit_intercept
    rank = min(directions, max(0, setting.n_used - setting.fit_intercept))
    if by_chance:
        warnings.warn(note, NotConvergedWarning, stacklevel=4)
    elif converged:
        warn_of_rank(setting, rank)
    else:
        warn_of_gradient(float(np.linalg.norm(gradient)) * point.phi / total)
    return estimates_of(
        estimates[None, :],
        matrix,
        rank=rank,
        dispersion=rows.scale**2 * point.phi,
        converged=converged and not by_chance,
        freedom=freedom,
        note=note,
    )


def scores_of(rows: PickedRows, point: Point) -> FloatArray:
    """Return the gradient of each bag's log-likelihood in theta, (m, p)."""
    return rows.weighted_sum(point.responsibilities * point.slope)


def climb(rows: PickedRows, point: Point, *, most: int | None = None) -> tuple[Point, bool]:
    """Climb to the nearest maximum in `most` steps; say whether it was reached."""
    floor = _NARROWEST * widest_dispersion(rows, point.theta)
    for number in range(_MOST if most is None else most):
        # 1. Scoring: the outer product of the scores is positive wherever one is.
        gradient, outer = gradient_and_outer(rows, point)
        step, _ = solve_symmetric(outer, gradient)
        promised = float(gradient @ step)
        if promised < _TOLERANCE:
            return point, True
        better = _search(rows, point, step, floor, halvings=_HALVINGS[0])
        # 2. EM, where that does not climb, and at first, when scores may be far from normal.
        if number == 0 or better is None or better.objective - point.objective < _TOLERANCE:
            step = em_step(rows, point, gradient)
            other = _search(rows, point, step, floor, halvings=_HALVINGS[1])
            if other is not None and (better is None or other.objective > better.objective):
                better = other
        if better is None or better.objective - point.objective < 1e-10 * rows.total:
            # Nothing climbs: at a maximum, or where rounding hides it.
            return point, float(gradient @ step) < 1e-4
        point = better
    return point, False


def gradient_and_outer(rows: PickedRows, point: Point) -> tuple[FloatArray, FloatArray]:
    """Return the gradient of the objective, and the outer product of the scores; phi is last."""
    theta = point.theta
    scores, penalty = scores_of(rows, point), rows.penalty_at(point.phi)
    scores = np.column_stack([scores, scores_by_scale(rows, point)])
    share = point.phi / (point.phi + rows.noise)
    ridge = float(rows.penalty @ theta**2)
    more = rows.fitted / rows.total + ridge / (point.phi + rows.noise)
    pull = np.append(-penalty * theta, float(rows.weight @ (share * more)) / 2)
    penalty = np.append(penalty, 0.0)
    outer = (scores * rows.weight[:, None]).T @ scores + np.diag(penalty)
    return rows.weight @ scores + pull, outer


def em_step(rows: PickedRows, point: Point, gradient: FloatArray) -> FloatArray:
    """Return one step of the weighted fit, with responsibilities as weights."""
    weight = point.responsibilities * rows.repeat(rows.weight / (point.phi + rows.noise))
    information = rows.design.T @ (rows.design * weight[:, None])
    information += np.diag(rows.penalty_at(point.phi))
    step, _ = solve_symmetric(information, gradient[: rows.width])
    phi = max(_SMALL, dispersion(rows, Point.at(rows, point.theta + step, point.phi)))
    return np.append(step, np.log(phi / point.phi))


def _search(
    rows: PickedRows, point: Point, step: FloatArray, floor: float, *, halvings: int
) -> Point | None:
    """Return the first of the points at 1, 1/2, 1/4, … of the step that is better."""
    for times in range(halvings):
        part = step / 2**times
        phi = max(floor, point.phi * float(np.exp(np.clip(part[-1], -2.0, 2.0))))
        there = Point.at(rows, point.theta + part[: rows.width], phi)
        if there.objective > point.objective:
            return there
    return None


def dispersion(rows: PickedRows, point: Point) -> float:
    """Return the phi that squared residuals imply, with rows weighted by responsibility."""
    return _from_squares(rows, point.theta, point.responsibilities)


def widest_dispersion(rows: PickedRows, theta: FloatArray) -> float:
    """Return the phi for equally weighted rows: too large, so that a climb begins smoothly."""
    # Without any residual there is nothing to go by.
    return _from_squares(rows, theta, rows.repeat(1 / rows.sizes)) or 1.0


def _from_squares(rows: PickedRows, theta: FloatArray, share: FloatArray) -> float:
    squares = rows.sum(share * (rows.row_labels - rows.design @ theta) ** 2)
    return phi_of_squares(rows, squares + float(rows.penalty @ theta**2))


def phi_of_squares(rows: PickedRows, squares: FloatArray) -> float:
    """Return the best phi for squared residuals of bags, given the known noise."""
    noise, squares = rows.noise, squares * (rows.total / (rows.total - rows.fitted))
    if np.ptp(noise) == 0:
        return max(0.0, float(rows.weight @ squares) / rows.total - float(noise[0]))

    def minus_log_likelihood(log_phi: float) -> float:
        variance = np.exp(log_phi) + noise
        return float(rows.weight @ (np.log(variance) + squares / variance))

    high = float(np.log(squares.max() + _SMALL))
    low = high + float(np.log(_NARROWEST))
    best = minimize_scalar(minus_log_likelihood, bounds=(low, high), method="bounded")
    return float(np.exp(best.x))


def scores_by_scale(rows: PickedRows, point: Point) -> FloatArray:
    """Return the derivative of each bag's log-likelihood in log(phi), (m,)."""
    of_rows = point.slope**2 - rows.repeat(1 / (point.phi + rows.noise))
    return rows.sum(point.responsibilities * of_rows) * point.phi / 2


def best_of_starts(rows: PickedRows) -> tuple[Point, bool]:
    """Return the best maximum, and whether all starts converged to it."""
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
    """Return least squares on centroids; the winner is at least as likely as this."""
    centroids = rows.weighted_sum(rows.repeat(1 / rows.sizes))
    weighted = centroids * rows.weight[:, None]
    gram = weighted.T @ centroids + np.diag(rows.penalty * rows.total)
    theta, _ = solve_symmetric(gram, weighted.T @ rows.labels)
    squares = (rows.labels - centroids @ theta) ** 2 + float(rows.penalty @ theta**2)
    return Point.at(rows, theta, max(_LEAST, phi_of_squares(rows, squares)))


def anneal(rows: PickedRows, *, jitter: float, rng: np.random.Generator) -> Point:
    """Follow the maximum from wide label noise to narrow; return the likeliest point on the way."""
    width = rows.width
    # All columns together explain the labels' spread. This holds the first, uncertain steps, and
    # is gone when the polishing starts.
    prior = width * float(rows.weight.mean())
    theta = np.zeros(width)
    best = Point.at(rows, theta, 1.0)
    for sigma in np.repeat(_LADDER, _STEPS):
        point = Point.at(rows, theta, float(sigma) ** 2)
        best = max(best, point, key=lambda one: one.objective)
        scores = scores_of(rows, point)
        hold: FloatArray = prior + rows.penalty_at(point.phi)
        outer = (scores * rows.weight[:, None]).T @ scores
        factor = linalg.cho_factor(outer + np.diag(hold))
        theta = theta + _DAMPING * linalg.cho_solve(factor, rows.weight @ scores - hold * theta)
        if jitter:
            noise = rng.standard_normal(width)
            theta = theta + jitter * linalg.solve_triangular(factor[0], noise)
    return best


def covariance_of_scores(rows: PickedRows, point: Point) -> FloatArray:
    """Return the inverse of the scores' outer product, for coefficients and intercept.

    The scale counts as a parameter and is left out at the end. Coefficients that the data do not
    determine get NaN.

    References
    ----------
    Berndt, Hall, Hall and Hausman (1974).
    """
    scores = np.column_stack([scores_of(rows, point) / rows.scale, scores_by_scale(rows, point)])
    outer = (scores * rows.weight[:, None]).T @ scores
    inverse, _ = inverse_symmetric(outer)
    change = np.zeros((len(rows.own), len(outer)))
    change[:, : rows.width] = rows.own
    covariance = change @ inverse @ change.T
    lost = rows.open | moves(change, np.eye(len(outer)) - inverse @ outer)
    covariance[lost, :] = covariance[:, lost] = np.nan
    return np.asarray(covariance)
