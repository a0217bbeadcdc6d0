"""A model of any family from noisy statistics of its labels: post-processing, so it costs nothing.

The labels enter ``sum_i b_i (y_i - mean(z_i'theta)) = 0`` by their sums alone, and for these the
columns b_i make unbiased equations whatever the family. They are the weighted equations of the
maximum of the likelihood if the link is canonical and b_i points where z_i does. Close to theta the
noisy sums u are a linear model,

    u - m + J theta = J theta' + e,     Cov e = s^2 I + phi sum_i b_i b_i' V_i

with ``m = sum_i b_i (mean_i - middle)``, ``J = sum_i b_i slope_i z_i'``, s the noise and V_i the
variance of a label. The first coordinate of z is constant and the others are white, so that the
belief that slopes are N(0, tau^2) and the choice of tau are those of fits to bags
(`theory.restricted`), here with errors that are correlated. As many sums as coefficients say
nothing of phi, but the sum of squared labels does:

    E sum_i (y_i - middle)^2 = sum_i (mean_i - middle)^2 + phi sum_i V_i

The theory page has the derivation. Everything here is a function of features, bounds and noisy
statistics; no label enters.
"""

import math
import operator
from dataclasses import dataclass, fields
from functools import cached_property, partial, reduce
from typing import Final

import numpy as np
import scipy
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.errors import BoundsError, StrategyError
from bagwise.families import Family, find_family
from bagwise.privacy.private_model import ModelDesign, NoisyStatistics, unit_columns
from bagwise.rows.blocks import over_blocks
from bagwise.rows.labels import Bounds
from bagwise.theory.restricted import Spectrum

_ROUNDS = 30  # of choosing tau and phi, and fitting again
_STEPS = 50
_HALVINGS = 30
_AGREED = 0.01  # change of log tau^2 from which on nothing changes for a reader
_TOLERANCE = 1e-5  # of a standard error
_ATTEMPTS = 16
_ROOM = 4.0  # how much larger tau^2 may become than it looks without slopes
_INTERCEPT_SD = 3.0  # on the scale of a logarithm, as for fits to bags
_UNDETERMINED = 1e-6
_LINE = find_family("gaussian").name  # expected labels are linear in theta

RELEASED_NOTE: Final = (
    "Released directly. Estimates are shrunk by the known noise. Standard errors hold the privacy "
    "noise and the noise of the labels, and intervals, t and p are those of the unshrunk values, "
    "so that they hold whatever the coefficients are: exactly for the gaussian family, to first "
    "order for others. Labels that were clipped to the bounds are not in them."
)
"""What the error bars of a released model are."""


def family_to_release(name: str, link: str = "auto") -> Family:
    """Return a family whose model can be released.

    The link "auto" is the canonical one, or the logarithm where that needs positive predictors:
    noise carries those below zero.

    >>> family_to_release("gamma").link
    'log'
    """
    family = find_family("gaussian" if name == "auto" else name)
    if family.has_classes:
        raise StrategyError(
            f"a model of the family {family.name} cannot be released directly. Release bags with "
            "classes= (--classes) and fit those, or release one class as a label of 0 and 1 by "
            "family='bernoulli'."
        )
    if link != "auto":
        family = family.with_link(link)
    elif not _takes_any_predictor(family):
        family = family.with_link("log")
    if not _takes_any_predictor(family):
        raise StrategyError(
            f"the {family.link} link of the family {family.name} needs a positive predictor for "
            "every row, which privacy noise does not leave. Use link='log' (--link log)."
        )
    return family


def check_bounds_of(family: Family, bounds: Bounds) -> None:
    """Refuse bounds beyond what labels of a family can be."""
    (low, high), (least, most) = bounds, family.label_range
    if low < least or high > most:
        raise BoundsError(
            f"labels of the family {family.name} are {family.range_text}, the bounds are {low:g} "
            f"and {high:g}. {family.advice}"
        )


def _takes_any_predictor(family: Family) -> bool:
    return bool(np.isinf(family.eta_range).all())


@dataclass(frozen=True)
class StatisticsFit:
    """A model made of noisy statistics, in the units of the features; the intercept comes last.

    Attributes
    ----------
    estimate : (d + 1,)
        Shrunk as far as the noise suggests.
    unshrunk : (d + 1,)
    standard_errors : (d + 1,)
        Of the unshrunk values; NaN where the features do not determine a coefficient.
    dispersion : float
        Phi, as far as the squared labels tell.
    variance : float
        tau^2, of slopes in white columns.
    converged : bool
        If not, the model predicts the mean for every row.
    """

    estimate: FloatArray
    unshrunk: FloatArray
    standard_errors: FloatArray
    dispersion: float
    variance: float
    converged: bool

    @property
    def coef(self) -> FloatArray:
        """Coefficients of the features."""
        return self.estimate[:-1]

    @property
    def intercept(self) -> float:
        """The last of the estimates."""
        return float(self.estimate[-1])


def fit_statistics(
    X: FloatArray,
    statistics: NoisyStatistics,
    *,
    design: ModelDesign,
    family: Family,
    bounds: Bounds,
) -> StatisticsFit:
    """Fit a model of the rows X, (n, d), to statistics that were released with this design.

    X is read in blocks of rows only.
    """
    equations = _Equations(X, statistics, design, family, bounds)
    start = equations.at(_constant_start(equations))
    near, variance, converged = _fit_within_reason(equations, start)
    # Both sides of a linear equation with as many unknowns; weights do not matter.
    inverse = np.linalg.pinv(near.jacobian)
    unshrunk = near.theta + inverse @ near.residual
    change, known = _to_own_units(design)
    spread = change @ inverse
    errors = np.sqrt(np.einsum("ij,jk,ik->i", spread, near.covariance, spread))
    return StatisticsFit(
        estimate=change @ near.theta,
        unshrunk=change @ unshrunk,
        standard_errors=np.where(known, errors, np.nan),
        dispersion=near.dispersion,
        variance=variance,
        converged=converged,
    )


@dataclass(frozen=True)
class _Near:
    """The linear model that the noisy sums are close to one theta.

    Attributes
    ----------
    theta : (r,)
    residual : (r,)
        Noisy sums minus what theta lets expect.
    jacobian : (r, r)
    label_covariance : (r, r)
        That of the sums by chance of the labels, phi being 1.
    dispersion : float
    noise_sd : float
    within, beyond : float
        How much expected labels vary within the bounds, and lie beyond them: sums of squares.
    """

    theta: FloatArray
    residual: FloatArray
    jacobian: FloatArray
    label_covariance: FloatArray
    dispersion: float
    noise_sd: float
    within: float
    beyond: float

    @property
    def covariance(self) -> FloatArray:
        """That of the noisy sums: privacy noise and label noise."""
        noise = self.noise_sd**2 * np.eye(self.theta.size)
        return np.asarray(noise + self.dispersion * self.label_covariance)

    @property
    def is_finite(self) -> bool:
        """Whether nothing has overflowed."""
        parts = (self.residual, self.jacobian, self.label_covariance)
        return all(bool(np.isfinite(part).all()) for part in parts)


@dataclass(frozen=True)
class _Equations:
    """What is known: features, how rows are weighed, and noisy sums over their labels."""

    X: FloatArray
    statistics: NoisyStatistics
    design: ModelDesign
    family: Family
    bounds: Bounds

    def at(self, theta: FloatArray) -> _Near:
        """Return the linear model at theta, by one pass over the rows."""
        if self.family.name == _LINE:
            return self._on_a_line(theta)
        known, rank = self.statistics, self.design.rank
        expected, jacobian, spread = np.zeros(rank), np.zeros((rank, rank)), np.zeros((rank, rank))
        square = total = variances = beyond = 0.0
        work = partial(
            _expected_of_block,
            theta=theta,
            middle=known.middle,
            design=self.design,
            family=self.family,
            bounds=self.bounds,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            for part in over_blocks(self.X, work):
                expected += part.expected
                jacobian += part.jacobian
                spread += part.spread
                square += part.square
                total += part.total
                beyond += part.beyond
                variances += part.variances
            dispersion = self._dispersion(known.square - square, variances)
        within = square - total**2 / self.X.shape[0]
        return _Near(
            theta,
            known.sums - expected,
            jacobian,
            spread,
            dispersion,
            known.noise_sd,
            within,
            beyond,
        )

    def _on_a_line(self, theta: FloatArray) -> _Near:
        """Return the same where expected labels are linear: sums follow from J, without columns."""
        known, jacobian, n_rows = self.statistics, self.design.jacobian, self.X.shape[0]
        off = theta.copy()
        off[0] -= known.middle  # the first coordinate of every row is 1
        own = _to_own_units(self.design)[0] @ off
        look = partial(_within_of_block, own=own, middle=known.middle, bounds=self.bounds)
        square, total, beyond = reduce(operator.add, over_blocks(self.X, look))
        return _Near(
            theta,
            known.sums - jacobian @ off,
            jacobian,
            self._squared_columns,
            self._dispersion(known.square - float(square), float(n_rows)),
            known.noise_sd,
            float(square - total**2 / n_rows),
            float(beyond),
        )

    @cached_property
    def _squared_columns(self) -> FloatArray:
        """How the sums vary by chance of labels whose variance is 1."""
        square = partial(_squared_columns_of, design=self.design)
        return reduce(operator.add, over_blocks(self.X, square))

    def _dispersion(self, excess: float, variances: float) -> float:
        """Return phi by what is left of the squared labels; never more than bounds allow."""
        low, high = self.bounds
        least = 1.0 if self.family.knows_dispersion else 0.0
        if not (math.isfinite(excess) and 0 < variances < math.inf):
            return max(least, 1.0)
        most = self.X.shape[0] * ((high - low) / 2) ** 2 / variances
        return float(max(least, min(excess / variances, most)))


@dataclass(frozen=True)
class _Expected:
    """What the rows of a block add to `_Near`."""

    expected: FloatArray
    jacobian: FloatArray
    spread: FloatArray
    square: float
    total: float
    beyond: float
    variances: float

    def __add__(self, other: "_Expected") -> "_Expected":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return _Expected(*(one + more for one, more in pairs))


def _expected_of_block(
    block: FloatArray,
    *,
    theta: FloatArray,
    middle: float,
    design: ModelDesign,
    family: Family,
    bounds: Bounds,
) -> _Expected:
    low, high = bounds
    with np.errstate(over="ignore", invalid="ignore"):
        Z, columns = unit_columns(block, design)
        eta = Z @ theta
        off = family.mean(eta) - middle
        variance = family.variance(eta)
        # An expected label lies within the bounds, whatever a line says of odd rows.
        possible = np.clip(off, low - middle, high - middle)
        return _Expected(
            expected=columns.T @ off,
            jacobian=columns.T @ (family.slope(eta)[:, None] * Z),
            spread=columns.T @ (variance[:, None] * columns),
            square=float(possible @ possible),
            total=float(possible.sum()),
            beyond=float(np.sum((off - possible) ** 2)),
            variances=float(variance.sum()),
        )


def _squared_columns_of(block: FloatArray, *, design: ModelDesign) -> FloatArray:
    columns = unit_columns(block, design)[1]
    return np.asarray(columns.T @ columns)


def _within_of_block(
    block: FloatArray, *, own: FloatArray, middle: float, bounds: Bounds
) -> FloatArray:
    """Return `square`, `total` and `beyond` of `_Expected` for a line."""
    off = block @ own[:-1] + own[-1]
    possible = np.clip(off, bounds[0] - middle, bounds[1] - middle)
    return np.array([possible @ possible, possible.sum(), np.sum((off - possible) ** 2)])


def _constant_start(equations: _Equations) -> FloatArray:
    """Return the theta that predicts the mean label, as far as it can be told, for every row.

    All that is believed of the mean is that it lies between the bounds: its posterior mean is that
    of a normal distribution which is cut there, so that no noise carries it to an end.
    """
    known, design, (low, high) = equations.statistics, equations.design, equations.bounds
    columns = design.jacobian[:, 0]  # their sum, since the first coordinate of every row is 1
    length = float(np.linalg.norm(columns))
    seen = known.middle + float(columns @ known.sums) / length**2
    sd = known.noise_sd / length
    mean = seen
    if not low + 8 * sd < seen < high - 8 * sd:
        inside = min(max(seen, low - 30 * sd), high + 30 * sd)  # farther off nothing changes
        limits = (low - inside) / sd, (high - inside) / sd
        mean = float(scipy.stats.truncnorm.mean(*limits, inside, sd))
    theta = np.zeros(design.rank)
    theta[0] = float(equations.family.predictor(np.array(equations.family.interior(mean))))
    return theta


def _fit_within_reason(equations: _Equations, start: _Near) -> tuple[_Near, float, bool]:
    """Return a fit whose expected labels are possible, its tau^2, and whether there is one.

    With a logarithm as link, noise can turn into expected labels far beyond the bounds, which no
    label is. A fit whose expected labels lie beyond the bounds by more than they vary within, or
    that does not converge, is made again with less belief in large slopes; in the end the mean is
    left. A line may leave the bounds in a few odd rows, and does so by no more than they are odd.
    """
    most = _largest_variance(equations, start)
    for _ in range(_ATTEMPTS):
        near, variance, solved = _solve_shrunk(equations, start, most)
        if solved and (near.beyond <= near.within or not _has_ends(equations.family)):
            return near, variance, True
        most = min(most, variance) / _ROOM
    return start, 0.0, False


def _solve_shrunk(equations: _Equations, start: _Near, most: float) -> tuple[_Near, float, bool]:
    """Fit and choose tau in turns until both agree; return the fit, tau^2 and whether they did.

    tau^2 is `most` at most.
    """
    near, last = start, math.nan
    for _ in range(_ROUNDS):
        variance = min(most, _likely_variance(near))
        if math.isfinite(last):
            # Halfway in logarithms: a fit that goes too far is followed by one too short.
            variance = math.sqrt(variance * last)
        # Nothing is believed of the intercept, unless its link takes an end of the labels' range
        # to infinity, where noise could carry it.
        loose = _has_ends(equations.family) / _INTERCEPT_SD**2
        precision = np.concatenate([[loose], np.full(near.theta.size - 1, 1 / variance)])
        near, solved = _solve(equations, near, precision, start.theta)
        if not solved:
            return near, variance, False
        if math.isfinite(last) and abs(math.log(variance / last)) < _AGREED:
            return near, variance, True
        last = variance
    return near, last, True


def _largest_variance(equations: _Equations, start: _Near) -> float:
    """Return how large tau^2 may become, by what is seen from a model without slopes.

    Expected labels lie within the bounds, so they vary by ``(high - mean)(mean - low)`` at most
    (Bhatia and Davis 2000), and by tau^2 for each slope to first order. And what the sums suggest
    before any slope has moved is about right, whereas a predictor that noise has carried to where
    means hardly change would suggest any size.
    """
    family, (low, high), slopes = equations.family, equations.bounds, start.theta.size - 1
    mean = float(family.mean(start.theta[:1])[0])
    slope = float(family.slope(start.theta[:1])[0])
    possible = (high - mean) * (mean - low) / (slope**2 * max(1, slopes))
    return min(max(possible, 1e-300), _ROOM * _likely_variance(start))


def _likely_variance(near: _Near) -> float:
    """Return the tau^2 that makes the noisy sums most likely, close to a theta."""
    if near.theta.size == 1:
        return 1.0
    root = linalg.cholesky(near.covariance, lower=True)
    jacobian = linalg.solve_triangular(root, near.jacobian, lower=True)
    response = linalg.solve_triangular(root, near.residual, lower=True) + jacobian @ near.theta
    return math.exp(Spectrum.of(jacobian[:, 1:], jacobian[:, :1], response).best()[0])


def _has_ends(family: Family) -> bool:
    """Tell whether the link takes an end of the range of labels to infinity."""
    return bool(np.isfinite(family.label_range).any())


def _solve(
    equations: _Equations, near: _Near, precision: FloatArray, center: FloatArray
) -> tuple[_Near, bool]:
    """Minimise the squared residuals, weighted by their covariance, and the penalty.

    Gauss-Newton steps; one that does not lower the sum is halved until it does. Covariance and phi
    stay as they were at the beginning, so that there is one sum to be lowered.
    """
    factor = linalg.cho_factor(near.covariance)

    def cost(at: _Near) -> float:
        if not at.is_finite:
            return math.inf
        off = at.theta - center
        with np.errstate(over="ignore"):
            misfit = at.residual @ linalg.cho_solve(factor, at.residual)
        return float(misfit + off @ (precision * off))

    now = cost(near)
    for _ in range(_STEPS):
        weighted = linalg.cho_solve(factor, near.jacobian)
        information = near.jacobian.T @ weighted + np.diag(precision)
        gradient = weighted.T @ near.residual - precision * (near.theta - center)
        step = linalg.solve(information, gradient, assume_a="pos")
        # Its squared length in standard errors; it falls with the square of the distance.
        if float(step @ gradient) < _TOLERANCE**2:
            return near, True
        for _ in range(_HALVINGS):
            tried = equations.at(near.theta + step)
            then = cost(tried)
            if then < now:
                break
            step = step / 2
        else:
            return near, float(step @ gradient) < _TOLERANCE
        near, now = tried, then
    return near, False


def _to_own_units(design: ModelDesign) -> tuple[FloatArray, FloatArray]:
    """Return the map from theta to coefficients and intercept, (d + 1, r), and which are known."""
    change = design.basis[1:] / design.spread[:, None]
    intercept = design.basis[0] - design.center @ change
    # Directions along which no two rows differ leave coefficients open.
    span = linalg.orth(design.basis[1:, 1:]) if design.rank > 1 else np.zeros((change.shape[0], 0))
    lost = np.eye(change.shape[0]) - span @ span.T
    offset = design.center / design.spread
    known = np.append(
        np.linalg.norm(lost, axis=1) < _UNDETERMINED,
        np.linalg.norm(lost @ offset) <= _UNDETERMINED * max(1.0, float(np.linalg.norm(offset))),
    )
    return np.vstack([change, intercept]), known
