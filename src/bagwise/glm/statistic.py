"""A model of any family from noisy statistics of labels, which is post-processing.

The labels enter ``sum_i b_i (y_i - mean(z_i'theta)) = 0`` by their sums alone, and for these the
columns b_i make unbiased equations whatever the family. They are the weighted equations of the
maximum of the likelihood if the link is canonical and b_i points where z_i does. Close to theta the
noisy sums u are a linear model,

    u - m + J theta = J theta' + e,     Cov e = s^2 I + phi sum_i b_i b_i' V_i

with ``m = sum_i b_i (mean_i - middle)``, ``J = sum_i b_i slope_i z_i'``, s the noise and V_i the
variance of a label. Divided by a root of the covariance the errors are independent, and from there
on it is a `FitProblem` as bag labels are one: the first coordinate of z is constant and the others
are white, so that the solver, the belief that slopes are N(0, tau^2) and the choice of tau are the
same (`solver`, `shrinkage`). As many sums as coefficients say nothing of phi, but the sum of
squared labels does:

    E sum_i (y_i - middle)^2 = sum_i (mean_i - middle)^2 + phi sum_i V_i

The theory page has the derivation. Everything here is a function of features, bounds and noisy
statistics; no label enters.
"""

import math
import operator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Final, NamedTuple, Self

import numpy as np
import scipy
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.errors import BoundsError, StrategyError
from bagwise.families import Family, find_family
from bagwise.glm.design import remember
from bagwise.glm.linear import LinearModel, Working, all_added
from bagwise.glm.problem import Equations, FitProblem
from bagwise.glm.shrinkage import SlopePrior, has_ends, solve_shrunk
from bagwise.glm.weights import LabelVariance
from bagwise.models.row_model import Estimates
from bagwise.privacy.private_model import ModelDesign, NoisyStatistics, unit_columns
from bagwise.rows.labels import Bounds
from bagwise.rows.whitening import over_blocks
from bagwise.theory.restricted import Size

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


def family_to_release(name: str) -> Family:
    """Return a family whose model can be released.

    >>> family_to_release("auto").name
    'gaussian'
    """
    family = find_family("gaussian" if name == "auto" else name)
    if family.has_classes:
        raise StrategyError(
            f"a model of the family {family.name} cannot be released directly. Release bags with "
            "classes= (--classes) and fit those, or release one class as a label of 0 and 1 by "
            "family='bernoulli'."
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


def fit_statistics(
    X: FloatArray,
    statistics: NoisyStatistics,
    *,
    design: ModelDesign,
    family: Family,
    bounds: Bounds,
) -> Estimates:
    """Fit a model of the rows X, (n, d), to statistics that were released with this design.

    X is read in blocks of rows only. A fit that did not converge predicts the mean everywhere.
    """
    squares = None
    if family.name == _LINE:  # one pass is enough

        def squared(block: FloatArray) -> FloatArray:
            columns = unit_columns(block, design)[1]
            return np.asarray(columns.T @ columns)

        squares = reduce(operator.add, over_blocks(X, squared))
    problem = StatisticProblem(X, statistics, design, family, bounds, squares=squares)
    start = problem.constant_start()

    # 1. Fit with as much shrinkage as the noise suggests. With a logarithm as link, noise can turn
    #    into expected labels far beyond the bounds, which no label is. Such a fit, or one that does
    #    not converge, is made again with less belief in large slopes; in the end the mean is left.
    most, theta, variance, converged = problem.largest_variance(start), start, 0.0, False
    for _ in range(_ATTEMPTS):
        shrunk = solve_shrunk(problem, start, problem.prior(start, most))
        solution, tried = shrunk.solution, shrunk.prior.variance
        if solution.converged and not problem.runs_away(solution.beta):
            theta, variance, converged = solution.beta, tried, True
            break
        most = min(most, tried) / _ROOM

    # 2. Judge how sure it is, without the shrinking: both sides of a linear equation with as many
    #    unknowns, in which weights do not matter.
    near = problem.near(theta)
    inverse = np.linalg.pinv(near.jacobian)
    change, known = _to_own_units(design)
    spread = change @ inverse
    errors = np.sqrt(np.einsum("ij,jk,ik->i", spread, problem.covariance(near), spread))
    return Estimates(
        table=(change @ theta)[None, :],
        standard_errors=np.where(known, errors, np.nan),
        unshrunk=change @ (theta + inverse @ near.residual),
        note=RELEASED_NOTE,
        dispersion=near.dispersion,
        converged=converged,
        slope_variance=variance,
    )


class _Near(NamedTuple):
    """The linear model that the noisy sums are close to one theta.

    Attributes
    ----------
    residual : (r,)
        Noisy sums minus what theta lets expect.
    jacobian : (r, r)
    label_covariance : (r, r)
        That of the sums by chance of the labels, phi being 1.
    dispersion : float
    within, beyond : float
        How much expected labels vary within the bounds, and lie beyond them: sums of squares.
    """

    residual: FloatArray
    jacobian: FloatArray
    label_covariance: FloatArray
    dispersion: float
    within: float
    beyond: float


@dataclass(frozen=True)
class StatisticProblem(FitProblem):
    """Noisy sums over labels as a problem: features, how rows are weighed, and the sums.

    Attributes
    ----------
    root : (r, r) or None
        A root of the covariance of the sums, as it is at the last reweighting.
    squares : (r, r) or None
        Where expected labels are linear: how the sums vary by chance of labels of variance 1.
    """

    X: FloatArray
    statistics: NoisyStatistics
    design: ModelDesign
    family: Family
    bounds: Bounds
    root: FloatArray | None = None
    phi: float = 1.0  # of sums divided by the root
    squares: FloatArray | None = None
    _seen: dict[bytes, _Near] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_units(self) -> int:
        """One: the loss is a sum, and not a mean."""
        return 1

    @property
    def total(self) -> float:
        """One, for the same reason as `n_units`."""
        return 1.0

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with the covariance of the sums at beta."""
        covariance = self.covariance(self.near(beta))
        if not np.isfinite(covariance).all():
            return replace(self, phi=np.nan)
        return replace(self, root=linalg.cholesky(covariance, lower=True))

    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem; its dispersion follows from squared labels (`near`)."""
        return replace(self, phi=phi)

    def working(self, beta: FloatArray) -> LinearModel:
        """Return the sums over a root of their covariance, as a linear model close to beta."""
        jacobian, residual = self._divided(beta)
        ones = np.ones(residual.size)
        units = Working(jacobian, residual, LabelVariance(0 * ones, ones))
        return LinearModel.of(units.over, beta)

    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information of half the squares."""
        jacobian, residual = self._divided(beta)
        return Equations(jacobian.T @ residual, jacobian.T @ jacobian)

    def loss(self, beta: FloatArray) -> float:
        """Return half the squares of the residuals."""
        with np.errstate(over="ignore", invalid="ignore"):
            residual = self._divided(beta)[1]
            value = float(residual @ residual) / 2
        return value if np.isfinite(value) else np.inf

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether expected labels exceed the bounds by more than they vary within them.

        A line may leave the bounds in a few odd rows, and does so by no more than they are odd. An
        exponential leaves them by any amount: no row counts as farther off than the bounds are
        wide, since whoever predicts stays within them.
        """
        near = self.near(beta)
        return has_ends(self.family) and not near.beyond <= near.within

    def covariance(self, near: _Near) -> FloatArray:
        """Return the covariance of the noisy sums: privacy noise and label noise."""
        noise = self.statistics.noise_sd**2 * np.eye(self.design.rank)
        return np.asarray(noise + near.dispersion * near.label_covariance)

    def _divided(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return Jacobian and residuals at beta, divided by the root."""
        if self.root is None:
            raise AssertionError("weights come from a beta")
        near = self.near(beta)
        both = np.column_stack([near.jacobian, near.residual])
        if not np.isfinite(both).all():
            return both[:, :-1], both[:, -1]
        both = linalg.solve_triangular(self.root, both, lower=True)
        return both[:, :-1], both[:, -1]

    def constant_start(self) -> FloatArray:
        """Return the theta that predicts the mean label, as far as it can be told, for every row.

        All that is believed of the mean is that it lies between the bounds: its posterior mean is
        that of a normal distribution which is cut there, so that no noise carries it to an end.
        """
        known, (low, high) = self.statistics, self.bounds
        # The sum of the columns, since the first coordinate of every row is 1.
        columns = self.design.jacobian[:, 0]
        length = float(np.linalg.norm(columns))
        mean = known.middle + float(columns @ known.sums) / length**2
        sd = known.noise_sd / length
        if not low + 8 * sd < mean < high - 8 * sd:
            inside = min(max(mean, low - 30 * sd), high + 30 * sd)  # farther off nothing changes
            limits = (low - inside) / sd, (high - inside) / sd
            mean = float(scipy.stats.truncnorm.mean(*limits, inside, sd))
        theta = np.zeros(self.design.rank)
        theta[0] = float(self.family.predictor(np.array(self.family.interior(mean))))
        return theta

    def prior(self, start: FloatArray, most: float) -> SlopePrior:
        """Return the belief that slopes are N(0, tau^2), tau^2 being `most` at most."""
        one, slopes = np.eye(start.size), np.ones(start.size)
        slopes[0] = 0.0
        # Nothing is believed of the intercept, unless its link takes an end of the labels' range
        # to infinity, where noise could carry it.
        loose = has_ends(self.family) / _INTERCEPT_SD**2 * np.diag(1 - slopes)
        return SlopePrior(one[:, 1:], np.diag(slopes), one[:, :1], start, loose, size=Size(most))

    def largest_variance(self, start: FloatArray) -> float:
        """Return an upper limit for tau^2, judged from a model without slopes.

        Expected labels lie within the bounds, so they vary by ``(high - mean)(mean - low)`` at most
        (Bhatia and Davis 2000), and by tau^2 for each slope to first order. And what the sums
        suggest before any slope has moved is about right, whereas a predictor that noise has
        carried to where means hardly change would suggest any size.
        """
        (low, high), slopes = self.bounds, max(1, start.size - 1)
        mean = float(self.family.mean(start[:1])[0])
        slope = float(self.family.slope(start[:1])[0])
        possible = (high - mean) * (mean - low) / (slope**2 * slopes)
        one = np.eye(start.size)
        spectrum = self.reweighted(start).working(start).spectrum(one[:, 1:], one[:, :1], 1.0)
        return min(max(possible, 1e-300), _ROOM * math.exp(spectrum.best()[0]))

    def near(self, theta: FloatArray) -> _Near:
        """Return the linear model at theta, by one pass over the rows."""
        # Loss, weights and equations ask for the same theta one after the other.
        make = self._curve if self.squares is None else self._line
        return remember(self._seen, theta.tobytes(), partial(make, theta), most=2)

    def _curve(self, theta: FloatArray) -> _Near:
        known, n_rows = self.statistics, self.X.shape[0]
        known_of_rows = (known.middle, self.design, self.family, self.bounds)
        work = partial(_expected_of_block, theta=theta, known_of_rows=known_of_rows)
        with np.errstate(over="ignore", invalid="ignore"):
            added = reduce(all_added, over_blocks(self.X, work, all_added))
            matrices, square, total, beyond, variances = added
            expected, jacobian, spread = matrices[:, 0], *np.hsplit(matrices[:, 1:], 2)
            return _Near(
                known.sums - expected,
                jacobian,
                spread,
                self._dispersion(known.square - square, variances),
                square - total**2 / n_rows,
                beyond,
            )

    def _line(self, theta: FloatArray) -> _Near:
        """Return the same where expected labels are linear: sums follow from J, without columns."""
        known, jacobian, n_rows = self.statistics, self.design.jacobian, self.X.shape[0]
        off = theta.copy()
        off[0] -= known.middle  # the first coordinate of every row is 1
        own = _to_own_units(self.design)[0] @ off
        work = partial(_within_of_block, own=own, middle=known.middle, bounds=self.bounds)
        square, total, beyond = reduce(operator.add, over_blocks(self.X, work))
        return _Near(
            known.sums - jacobian @ off,
            jacobian,
            np.asarray(self.squares),
            self._dispersion(known.square - float(square), float(n_rows)),
            float(square - total**2 / n_rows),
            float(beyond),
        )

    def _dispersion(self, excess: float, variances: float) -> float:
        """Return phi, estimated from the squared labels, but no larger than bounds allow."""
        low, high = self.bounds
        least = 1.0 if self.family.knows_dispersion else 0.0
        if not (math.isfinite(excess) and 0 < variances < math.inf):
            return max(least, 1.0)
        most = self.X.shape[0] * ((high - low) / 2) ** 2 / variances
        return float(max(least, min(excess / variances, most)))


def _expected_of_block(
    block: FloatArray,
    *,
    theta: FloatArray,
    known_of_rows: tuple[float, ModelDesign, Family, Bounds],
) -> tuple[FloatArray, float, float, float, float]:
    """Return what the rows of a block add to `_Near`: expected sums, J and spread side by side."""
    middle, design, family, (low, high) = known_of_rows
    with np.errstate(over="ignore", invalid="ignore"):
        Z, columns = unit_columns(block, design)
        eta = Z @ theta
        off = family.mean(eta) - middle
        variance = family.variance(eta)
        # An expected label lies within the bounds, whatever a line says of odd rows.
        possible = np.clip(off, low - middle, high - middle)
        by_row = [off[:, None], family.slope(eta)[:, None] * Z, variance[:, None] * columns]
        return (
            np.hstack([columns.T @ values for values in by_row]),
            float(possible @ possible),
            float(possible.sum()),
            float(np.sum(np.minimum(np.abs(off - possible), high - low) ** 2)),
            float(variance.sum()),
        )


def _within_of_block(
    block: FloatArray, *, own: FloatArray, middle: float, bounds: Bounds
) -> FloatArray:
    """Return `square`, `total` and `beyond` of rows whose expected labels lie on a line."""
    off = block @ own[:-1] + own[-1]
    possible = np.clip(off, bounds[0] - middle, bounds[1] - middle)
    return np.array([possible @ possible, possible.sum(), np.sum((off - possible) ** 2)])


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
