"""Find the highest of the many maxima that the likelihood of normal picks has.

A start climbs at a label noise as wide as the labels, where the likelihood has a single maximum,
and narrows it in small steps. The climb is scoring with the outer product of the bags' scores. At
wide noise one such step from zero is least squares on centroids, the aggregate fit; EM would need
some ``bag_size`` times as many steps, because it credits itself with knowing the row. Several
starts are made until some meet.

References
----------
Ray and Page (2001), Multiple instance regression; Wang et al. (2008), for the mixture and its EM.
"""

from dataclasses import replace

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.families import find_family
from bagwise.glm.solver import solve_symmetric
from bagwise.learn.mixture.densities import density_of
from bagwise.learn.mixture.likelihood import Maximum, PickedBags
from bagwise.learn.mixture.scoring import (
    Picks,
    Point,
    climb,
    maximum_at,
    phi_of_squares,
    scores_of,
    widest_dispersion,
)
from bagwise.learn.mixture.whitening import Whitening

_LADDER = 0.95 ** np.arange(59)  # label noise from all of the labels' spread down to a twentieth
_STEPS = 2  # at each rung
_DAMPING = 0.5  # of a scoring step; full ones overshoot while the rows are still undecided
_JITTER = 0.3  # standard errors of noise on each step, so that later starts take other ways
_STARTS = 8
_MET, _MET_BY_CHANCE = 2, 4  # starts that have to meet before no more are made
_TRIAL = 50  # steps of each start before starts are compared
_MOST = 500  # polishing steps of the winner
_SAME = 0.01  # maxima whose log-likelihoods differ by less are one
# Gain in log-likelihood for each coefficient. On shuffled labels the search reached 2.9 at most, in
# 120 runs with 2 to 100 rows in a bag and 9 to 75 bags for each coefficient.
_CHANCE = 3.0
_SEED = 0  # the same data give the same fit
_LEAST = 1e-6  # smallest phi, of labels of variance 1


def fit_normal_picks(bags: PickedBags, whitening: Whitening, *, ridge: float) -> Maximum:
    """Return the most likely linear model of normal labels that were picked from bags.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, ends, ones = rng.normal(size=(600, 2)), np.arange(0, 601, 3), np.ones(200)
    >>> picked = ends[:-1] + rng.integers(3, size=200)
    >>> labels = 1.0 + X[picked] @ [2.0, -1.0] + rng.normal(0, 0.1, 200)
    >>> bags = PickedBags(X, ends, labels, 0 * ones, ones)
    >>> found = fit_normal_picks(bags, Whitening.of(bags, fit_intercept=True), ridge=0.0)
    >>> found.estimates.round(1), round(found.phi**0.5, 1)
    (array([ 2., -1.,  1.]), 0.1)
    """
    level = float(bags.weight @ bags.labels) / bags.total if whitening.fit_intercept else 0.0
    scale = float(np.sqrt(bags.weight @ (bags.labels - level) ** 2 / bags.total)) or 1.0
    standard = replace(bags, labels=(bags.labels - level) / scale, noise_sd=bags.noise_sd / scale)
    family = find_family("gaussian")
    rows = Picks(
        standard,
        family,
        density_of(family, standard),
        whitening.design(bags.X),
        whitening.penalty(ridge),
    )
    met = bags.total <= whitening.width and not bags.noise_sd.all()
    if met:  # by means of rows already: there is nothing to search for
        found = replace(
            maximum_at(rows, aggregate_fit(rows), whitening, converged=True), collapsed=True
        )
    else:
        best, alone = best_of_starts(rows)
        point, converged = climb(rows, best, most=_MOST)
        by_chance = not alone and is_by_chance(rows, point)
        found = maximum_at(rows, point, whitening, converged=converged, by_chance=by_chance)
    # Back from labels of spread 1.
    scores = found.scores.copy()
    scores[:, :-1] /= scale
    estimates = scale * found.estimates
    estimates[-1] += level
    return replace(found, estimates=estimates, phi=scale**2 * found.phi, scores=scores)


def best_of_starts(rows: Picks) -> tuple[Point, bool]:
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


def is_by_chance(rows: Picks, point: Point) -> bool:
    """Whether a search on shuffled labels might gain as much in likelihood."""
    zero = np.zeros_like(point.theta)
    plain = Point.at(rows, zero, max(_LEAST, widest_dispersion(rows, zero)))
    return point.log_likelihood - plain.log_likelihood < _CHANCE * point.theta.size


def aggregate_fit(rows: Picks) -> Point:
    """Return least squares on centroids; whatever wins is at least as likely as this."""
    bags = rows.bags
    centroids = bags.weighted_sum(bags.repeat(1 / bags.sizes), rows.design)
    weighted = centroids * bags.weight[:, None]
    gram = weighted.T @ centroids + np.diag(rows.penalty * bags.total)
    theta, _ = solve_symmetric(gram, weighted.T @ bags.labels)
    squares = (bags.labels - centroids @ theta) ** 2 + float(rows.penalty @ theta**2)
    return Point.at(rows, theta, max(_LEAST, phi_of_squares(rows, squares)))


def anneal(rows: Picks, *, jitter: float, rng: np.random.Generator) -> Point:
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
