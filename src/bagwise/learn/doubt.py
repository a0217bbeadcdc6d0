"""Check whether a fit predicts better than the mean of the labels.

Three ways in which it may not:

- **The labels say nothing.** Slopes that the noise has made up do little harm to chances and to
  linear models, but rates of rows far out grow with their exponential. So slopes of log rates need
  evidence: labels that are more likely with them than without, slopes being integrated out
  (Laplace's approximation; Kass and Raftery 1995).
- **The fit says nothing of what the labels say.** Labels that vary by more than their noise can
  make them, by a chi-square, and a fit that has next to none of it: then other fits are tried, and
  the one is taken that predicts left-out bags best (Allen 1974).
- **Not even the mean is known.** The most likely rate may be next to 0, where a loss is largest,
  and slopes that noise has made up carry rates away together. Then the level is the rate to expect
  of bags that are all alike, whatever the slopes are (`level`).

Further remarks are warnings that name the remedy.

**Separation.** There is no finite estimate if, along some direction of the coefficients, no label
becomes less likely and some become more so (Albert and Anderson 1984). Whether there is such a
direction is a linear programme (Konis 2007); it is asked only after a fit has run away.

**The gap of aggregate loss.** At the true beta, labels differ from the expected values of aggregate
loss by Jensen's gap, the average of ``mean(eta_i)`` over a bag minus ``mean(average eta_i)``. To
first order this moves beta by ``A^-1 sum_l Z_l gap_l``. For the Gaussian family there is no gap,
nor for bags of one row.

References
----------
Albert and Anderson (1984), Biometrika 71. Allen (1974), Technometrics 16. Kass and Raftery (1995),
JASA 90. Konis (2007), thesis, Oxford.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import linprog

from bagwise._types import FloatArray
from bagwise.errors import BiasWarning, SeparationWarning
from bagwise.glm.data import BagData
from bagwise.glm.linear import wider
from bagwise.glm.problem import BagProblem
from bagwise.glm.shrinkage import TOLERANCE, Shrunk, least_dispersion, shrink_further
from bagwise.glm.solver import Solution, inverse_symmetric, solve
from bagwise.glm.units import Units
from bagwise.learn.exact_noise import NoisyLabels
from bagwise.models.coefficients import INTERCEPT
from bagwise.privacy.laws import Law
from bagwise.privacy.noise_laws import log_density

_BEYOND_CHANCE = 4.0  # standard errors by which labels vary more than their noise
_NEXT_TO_NOTHING = 0.1  # of what is left to explain
_REACH = 6.0  # standard errors from the mean of the bags, beyond which no level is sought
_LEVELS = 120
_RESTS = np.array([0.0, 0.1, 0.3, 1.0])  # of the variance besides the noise, as it looks
_UNSHRUNK = 1e4  # times the variance of slopes: as good as no belief about them
_SHRINKS = 0.6  # below this share of kept spread, instance loss is worth a warning
_CALLER = 4  # warnings point at the line that called fit
_TOLERATED = 0.5  # of a standard error: an interval then covers 92 instead of 95 percent
_SHOWN = 3
_SLACK = 1e-3
_LARGEST_PROGRAMME = 4_000_000  # numbers in its matrix: some seconds


def evidence(shrunk: Shrunk[BagProblem], law: Law) -> float:
    """Return twice the log likelihood ratio of labels with slopes against labels without."""
    problem = shrunk.solution.problem
    here = NoisyLabels(problem, law, shrunk.prior, problem.phi)
    flat = replace(here, prior=shrunk.prior.scaled(shrunk.prior.variance / 1e12))
    level, _ = flat.climb(problem.constant_start())

    *_, variance = here.linear(shrunk.solution.beta)
    label_sd = np.sqrt(variance.total(problem.phi))
    gain = here.objective(level, label_sd) - here.objective(shrunk.solution.beta, label_sd)
    return float(2 * gain - np.log1p(shrunk.strengths).sum())


def level(
    labels: FloatArray,
    expected: FloatArray,
    noise_sd: FloatArray,
    law: Law,
    *,
    unsure: float,
    most: float = np.inf,
) -> tuple[float, float] | None:
    """Return the factor for expectations of bags that are all alike: posterior mean and deviation.

    Before the labels no factor from 0 to `most` is likelier than another. Around it labels vary by
    their noise, and by what else they do, which is nearly normal and no more than that. None where
    bags know the factor better than by `unsure`, a share of it, or vary more by what else they do:
    that may be far from normal, as shares of a rare class are, and then a law of noise misleads.

    >>> from bagwise.privacy.noise_laws import LAWS
    >>> labels, ones = np.array([2.9, 1.1] * 50), np.ones(100)
    >>> level(labels, ones, ones, LAWS["gaussian"], unsure=0.1)
    >>> np.round(level(labels, ones, ones, LAWS["gaussian"], unsure=0.01), 2).tolist()
    [2.0, 0.1]
    """
    # 1. By least squares, which also says what labels vary by besides the noise.
    weights = expected / noise_sd**2
    around = weights @ labels / (weights @ expected)
    noise = np.mean(noise_sd**2)
    beyond = max(0.0, float(np.mean((labels - around * expected) ** 2) - noise))
    error = np.sqrt(1 / np.sum(expected**2 / (beyond + noise_sd**2)))
    if error < unsure * around or beyond > noise:
        return None
    # 2. The posterior mean, by the law of the noise. Long tails hide how large the rest is.
    nearest = min(max(around, 0.0), most)
    ends = max(nearest - _REACH * error, 0.0), min(nearest + _REACH * error, most)
    factors = np.linspace(*ends, 2 * _LEVELS + 1)[1::2]
    values = np.empty((len(_RESTS), _LEVELS))
    for row, rest in enumerate(np.sqrt(_RESTS * beyond)):
        for column, factor in enumerate(factors):
            off, label_sd = labels - factor * expected, np.full_like(labels, rest)
            values[row, column] = log_density(law, off, label_sd, noise_sd)[0].sum()
    likely = np.exp(values - values.max()).sum(axis=0)
    likely /= likely.sum()
    mean = float(likely @ factors)
    return mean, float(np.sqrt(likely @ (factors - mean) ** 2))


def best_of_others(
    problem: BagProblem, start: FloatArray, shrunk: Shrunk[BagProblem]
) -> tuple[Shrunk[BagProblem], bool]:
    """Return the fit that predicts left-out bags best, and whether it explains enough.

    Tried are less shrinkage and none, the least dispersion, and more shrinkage.
    """
    # 1. The variance that each label has if all rows are alike, as noise and nature explain it.
    least = problem.with_dispersion(least_dispersion(problem))
    used = problem.trust.base > 0
    (usual,) = least.reweighted(start).gathered("true_variance", start)
    usual, labels = usual[used], problem.labels[used]
    if not usual.all():  # labels without noise, such as the learner's own, need no doubt
        return shrunk, True
    # 2. Do labels vary by more than noise of any law can make them, and does the fit miss it?
    squares = (labels - np.average(labels, weights=1 / usual)) ** 2 / usual
    beyond, error = float(squares.mean()) - 1, squares.std() / np.sqrt(squares.size)

    def misses(one: Shrunk[BagProblem]) -> bool:
        """Return whether a fit explains next to nothing of what could be explained."""
        solution = one.solution
        expected = solution.problem.gathered("moments", solution.beta)[0][used]
        left = float(np.mean((labels - expected) ** 2 / usual))
        return bool(squares.mean() - left < _NEXT_TO_NOTHING * beyond)

    if beyond <= _BEYOND_CHANCE * error or not misses(shrunk):
        return shrunk, True
    # 3. Try others.
    tried = [shrunk, shrink_further(problem, start, shrunk)]
    for variance in (shrunk.prior.variance, _UNSHRUNK * shrunk.prior.variance):
        prior = shrunk.prior.scaled(variance)
        solution = solve(least, start, penalty=prior.penalty, tolerance=TOLERANCE)
        tried.append(Shrunk.of(solution, prior))
    sound = [one for one in tried if one is not None and one.is_sound]
    best = min(sound, key=lambda one: float(np.mean(_left_out(one) ** 2 / usual)))
    return best, not misses(best)


def _left_out(shrunk: Shrunk[BagProblem]) -> FloatArray:
    """Return each label minus its prediction from the bags without it, to first order."""
    model = shrunk.solution.problem.near(shrunk.solution.beta)
    weights = 1 / model.variance.total(shrunk.solution.problem.phi)
    information = model.jacobian.T @ (model.jacobian * weights[:, None]) + shrunk.prior.form
    pull = model.jacobian @ inverse_symmetric(information)[0]
    leverage = np.minimum(weights * np.einsum("ij,ij->i", pull, model.jacobian), 0.99)
    return np.asarray(model.residuals / (1 - leverage))


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
    problem, beta = solution.problem, solution.beta
    units = problem.here
    if units is None or units.inside is None or problem.is_line:
        return False
    rows, members = units.inside
    gap = members.mean(problem.family.mean(rows.eta(beta))) - problem.family.mean(units.eta(beta))
    moved, done = np.zeros(problem.width), 0
    for block in units.weighed(problem.weights).blocks(beta):
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
    """Name the columns that separate the labels without error, if that made a fit diverge.

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
    slopes = {
        name: float(value)
        for name, value in zip(names, direction, strict=False)
        if not name.endswith(INTERCEPT) and abs(value) > 0.1 * np.abs(direction).max()
    }
    largest = sorted(slopes, key=lambda name: -abs(slopes[name]))[:_SHOWN]
    columns = ", ".join(f"{name} ({'+' if slopes[name] > 0 else '-'})" for name in largest)
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
    if solution.problem.here is not None:
        gains = _gains(solution.problem.here)
        if gains.size <= _LARGEST_PROGRAMME:
            # The direction, each entry between -1 and 1, with the largest gain and no loss.
            cost, limits = -gains.sum(axis=0), np.zeros(len(gains))
            best = linprog(cost, A_ub=-gains, b_ub=limits, bounds=(-1, 1), method="highs")
            tried.append(np.zeros_like(cost) if best.x is None else np.asarray(best.x))

    def gained(units: Units, direction: FloatArray) -> FloatArray:
        """Return the least and the most that some row gains along a direction."""
        gained = _gains(units) @ direction
        return np.array([gained.min(), gained.max(initial=0.0)])

    for direction in tried:
        least, most = solution.problem.over_units(partial(gained, direction=direction), wider)
        if most > 1e-9 * np.abs(direction).max() and least >= -_SLACK * most:
            return direction
    return None


def _gains(units: Units) -> FloatArray:
    """Return a matrix whose product with a direction must not be negative for separation.

    A class that has a share must not lose to any other. A count of zero must not get a higher
    rate, and a positive one must keep its own.
    """
    rows, labels = units.design.standardise(units.design.rows), units.labels
    if units.members is not None:
        labels = units.members.repeat(labels)
    if np.isinf(units.family.label_range[1]):
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
