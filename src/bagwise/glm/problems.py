"""The estimating equations of each loss, in one form that one solver can solve.

Each loss compares labels with expected values, unit by unit, and asks for the beta at which

    sum_u  Z_u (label_u - mean_u(beta))  =  0

with instruments Z that depend on the loss:

============  =====================  ============================  ============================
loss          unit                   mean                          Z
============  =====================  ============================  ============================
instance      row (its bag's label)  mean(eta of the row)          x * slope / variance
aggregate     bag                    mean(eta of the centroid)     c * slope / omega
bag           bag                    average of its rows' means    average of slope * x, / omega
============  =====================  ============================  ============================

For the Gaussian family bag and aggregate loss coincide, and for bags of one row all three do.

`Problem` is what the solver knows. `BagLabels` has labels of bags, whose rows may be anywhere;
`UnitsAtHand` has them here, as `NumberProblem` for labels that are numbers and as
`classes.ClassProblem` for shares of classes.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import scipy
from scipy import sparse

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.families import Family
from bagwise.glm.design import Design, centroids_of, chunks
from bagwise.glm.weights import LabelVariance, Trust
from bagwise.theory.restricted import Spectrum

T = TypeVar("T")

BAGS_AT_A_TIME = 8192
_REMEMBERED = 2**25  # numbers of a Jacobian that is kept: 256 MB
FAR = 20.0  # a chance of 2e-9, a rate of 5e8: few estimates get there by themselves


@dataclass(frozen=True)
class Members:
    """Which rows the label of each unit is the mean of: a public map, row by row adding up to 1.

    Bags are a partition; in general units may share rows, and rows count differently.

    Attributes
    ----------
    average : sparse (m, n)
        ``average @ values`` are the means of the units.
    """

    average: sparse.csr_array

    @classmethod
    def of(cls, bags: Bags, counts: FloatArray | None = None) -> Self:
        """Average over the rows of each bag, each as often as it counts."""
        order = np.argsort(bags.index, kind="stable")
        starts = np.concatenate([[0], np.cumsum(bags.sizes)])
        share = np.repeat(1 / bags.sizes, bags.sizes)
        if counts is not None:
            share = (counts / bags.repeat(bags.sum(counts)))[order]
        return cls(sparse.csr_array((share, order, starts), shape=(bags.n_bags, order.size)))

    @functools.cached_property
    def unit(self) -> IntArray:
        """The unit of each entry of the map."""
        counts = np.diff(self.average.indptr)
        return np.repeat(np.arange(counts.size, dtype=np.int64), counts)

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean of values, (n, …), over the rows of each unit."""
        flat = self.average @ values.reshape(len(values), -1)
        return np.asarray(flat).reshape(-1, *values.shape[1:])

    def variance(self, values: FloatArray) -> FloatArray:
        """Return the variance of values, (n,), inside each unit."""
        off = values[self.average.indices] - self.mean(values)[self.unit]
        added = np.bincount(self.unit, self.average.data * off**2, self.average.shape[0])
        return np.asarray(added, dtype=np.float64)

    def repeat(self, values: FloatArray) -> FloatArray:
        """Return the value of each row's unit; of several units that of the last."""
        out = np.zeros((self.average.shape[1], *values.shape[1:]))
        out[self.average.indices] = values[self.unit]
        return out

    def mean_rows(self, design: Design, values: FloatArray, part: slice) -> FloatArray:
        """Average standardised rows times values over some of the units; X is never copied."""
        member = self.average[part]
        member.data = member.data * values[member.indices]
        count = np.asarray(member.sum(axis=1)).ravel()
        return design.standardise_sums(member @ design.rows, count)


class Block(NamedTuple):
    """Some units, each with q values (1 but for classes): instruments and Jacobian (u * q, p).

    Residuals are (u * q,); those of one unit are uncorrelated as the weights see it.
    """

    instruments: FloatArray
    jacobian: FloatArray
    residuals: FloatArray


class LinearModel(Protocol):
    """A loss close to some beta as a linear model: ``response = jacobian @ beta + error``.

    The errors of the u units that count are independent, with the variance of a `LabelVariance`.
    Whoever asks gets sums over the units, which may be on many machines.
    """

    def spectra(self, basis: FloatArray, free: FloatArray) -> Callable[[float], Spectrum]:
        """Return the likelihood for slopes along the columns of basis, by phi (`restricted`)."""

    def most_dispersion(self) -> float | None:
        """Return the phi that would explain all labels; None where no variance is unknown."""

    def with_dispersion(self, phi: float) -> "LinearModel":
        """Return the same model with variances that are known."""

    def normal_equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information, (p, p), and the score at beta, (p,); variances are known."""

    def over_blocks(
        self, beta: FloatArray, work: Callable[[Iterable["Block"]], FloatArray]
    ) -> FloatArray:
        """Add up what work makes of units with their residuals at beta; variances are known."""


class Working(NamedTuple):
    """A linear model (`LinearModel`) whose units are all at hand."""

    jacobian: FloatArray
    response: FloatArray
    variance: LabelVariance

    def spectra(self, basis: FloatArray, free: FloatArray) -> Callable[[float], Spectrum]:
        """Return the likelihood for slopes along the columns of basis, as a function of phi."""
        along, beside = self.jacobian @ basis, self.jacobian @ free

        def at(phi: float) -> Spectrum:
            omega = self.variance.total(phi)
            root = 1 / np.sqrt(omega)
            return Spectrum.of(
                along * root[:, None],
                beside * root[:, None],
                self.response * root,
                log_determinant=float(np.sum(np.log(omega))),
            )

        return at

    def most_dispersion(self) -> float | None:
        """Return the phi that would explain all labels; None where no variance is unknown."""
        if not self.variance.share.any():
            return None
        center = np.average(self.response, weights=1 / self.variance.total(1.0))
        squares = np.mean((self.response - center) ** 2 / self.variance.share)
        return float(squares) + self.variance.least

    def with_dispersion(self, phi: float) -> "Working":
        """Return the same model with variances that are known."""
        omega = self.variance.total(phi)
        return self._replace(variance=LabelVariance(np.zeros_like(omega), omega))

    def normal_equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information and the score at beta."""
        block = self._block(beta)
        return (
            block.instruments.T @ self.jacobian,
            block.instruments.T @ block.residuals,
        )

    def over_blocks(
        self, beta: FloatArray, work: Callable[[Iterable["Block"]], FloatArray]
    ) -> FloatArray:
        """Return what work makes of all units."""
        return work([self._block(beta)])

    def _block(self, beta: FloatArray) -> "Block":
        weight = 1 / self.variance.known
        instruments = self.jacobian * weight[:, None]
        return Block(instruments, self.jacobian, self.response - self.jacobian @ beta)


class Equations(NamedTuple):
    """Score (p,) and information (p, p), per unit of weight, without penalty."""

    score: FloatArray
    information: FloatArray


class Problem(ABC):
    """What a solver knows of noisy answers about labels: sums at a beta, under weights of its own.

    Attributes
    ----------
    family : Family
    phi : float
        The dispersion at the last reweighting: in units of ``phi / n_units``, the information of
        the mean loss is one over the square of a standard error.
    """

    family: Family
    phi: float

    @property
    @abstractmethod
    def n_units(self) -> int:
        """How many labels are compared with expected values."""

    @property
    @abstractmethod
    def total(self) -> float:
        """The weight of all units together."""

    @abstractmethod
    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss at fixed weights; infinite outside the family's range."""

    @abstractmethod
    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information of the mean loss."""

    @abstractmethod
    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""

    @abstractmethod
    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""

    @abstractmethod
    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model that the problem is close to beta, without bags of no weight."""

    @abstractmethod
    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta leads to expected labels that cannot be believed."""

    @property
    def is_finite(self) -> bool:
        """Whether the weights are numbers that can be computed with."""
        return bool(np.isfinite(self.total) and self.total > 0 and np.isfinite(self.phi))


@dataclass(frozen=True)
class BagLabels(Problem):
    """A loss on labels of bags.

    Attributes
    ----------
    design : Design
        Whose rows are what eta is computed for.
    family : Family
    labels : (u,), or (u, classes)
    trust : Trust or None
        None where weights are fixed.
    phi : float
        The dispersion at the last reweighting.
    """

    design: Design
    family: Family
    labels: FloatArray
    trust: Trust | None = None
    phi: float = 1.0

    @property
    @abstractmethod
    def has_offset(self) -> bool:
        """Whether something is known of the rows' linear predictors."""

    @abstractmethod
    def range_of_eta(self, beta: FloatArray) -> FloatArray:
        """Return the least and the most of all linear predictors."""

    @abstractmethod
    def over_units(
        self, work: Callable[["UnitsAtHand"], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return what work makes of the units with their weights, merged over parts of them."""

    @abstractmethod
    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each unit's mean, mean variance function, and variance of the choice."""

    @abstractmethod
    def units(self, beta: FloatArray) -> Working:
        """Return `working` with all units at hand; there must be few if they are elsewhere."""

    @property
    def outputs(self) -> int:
        """Number of values that a unit's label has: contrasts of classes."""
        return 1 if self.labels.ndim == 1 else int(self.labels.shape[1]) - 1

    @property
    def width(self) -> int:
        """Number of entries of beta."""
        return self.design.width * self.outputs

    def penalty(self, ridge: float) -> FloatArray:
        """Return the ridge penalty of each entry of beta."""
        return np.asarray(np.tile(self.design.penalty(ridge), self.outputs))

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps beta to coefficients, then intercept, of each value."""
        return np.asarray(
            np.kron(np.eye(self.outputs), self.design.to_own_units()), dtype=np.float64
        )

    @property
    def noisy(self) -> bool:
        """Whether labels are known to carry noise."""
        return self.trust is not None and bool(self.trust.noise_sd.any())

    @property
    def rule(self) -> Trust:
        """How bags get their weights, where these are not fixed."""
        if self.trust is None:
            raise TypeError("weights are fixed: nothing is known of the labels' variance")
        return self.trust

    def base(self) -> FloatArray:
        """Return the prior weight of each unit."""
        return np.ones(len(self.labels)) if self.trust is None else self.trust.base

    @property
    def n_units(self) -> int:
        """How many labels are compared with expected values."""
        return len(self.labels)

    def allows(self, beta: FloatArray) -> bool:
        """Whether every linear predictor is in the family's range."""
        if np.isinf(self.family.eta_range).all():
            return bool(np.isfinite(beta).all())
        return self.family.allows(self.range_of_eta(beta))

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta is on its way to infinity, as far as one can see from eta."""
        return self.family.knows_dispersion and bool(np.abs(self.range_of_eta(beta)).max() > FAR)

    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""
        return self if self.trust is None else replace(self, trust=replace(self.trust, phi=phi))

    @abstractmethod
    def at_centroids(self) -> "BagLabels | None":
        """Return an easier problem in the same coordinates to start from, if there is one."""

    def constant_start(self) -> FloatArray:
        """Return the beta that predicts about the mean label everywhere."""
        start = np.zeros((self.outputs, self.design.width))
        if self.family.has_classes:
            if self.design.fit_intercept:
                shares = np.clip(self.base() @ self.labels / self.base().sum(), 0.01, 0.99)
                start[:, -1] = self.family.predictor(shares)
            return start.ravel()
        mean = self.family.interior(self._mean_label())
        eta = float(self.family.predictor(np.array(mean))) - self._usual_offset()
        start = start[0]
        if self.design.fit_intercept:
            start[-1] = eta
        elif not self.allows(start):
            start = self._closest_to(eta)
        if not self.allows(start):
            raise StrategyError(
                f"the canonical link of {self.family.name} needs a positive predictor for every "
                "row, and without an intercept there is none. Set link='log' (--link log) or fit "
                "an intercept."
            )
        return start

    def _closest_to(self, eta: float) -> FloatArray:
        """Return the beta, without an intercept, whose predictors are closest to one number."""
        gram = self.over_units(_gram_of)
        return np.asarray(np.linalg.lstsq(gram[:, :-1], eta * gram[:, -1])[0])

    def _usual_offset(self) -> float:
        """Return the offset of a row with the mean exposure."""
        if not self.has_offset:
            return 0.0
        known, units = self.over_units(_exposure_of)
        return float(self.family.predictor(np.asarray(known / units)))

    def _mean_label(self) -> float:
        """Return the mean label: with known noise, what it is expected to be within the family."""
        if self.trust is None:
            weight, labels = self.over_units(_weight_and_labels)
            return float(labels / weight)
        base, limits = self.trust.base, np.array(self.family.label_range)
        mean = float(base @ self.labels) / float(base.sum())
        if not self.noisy or np.isinf(limits).all():
            return mean
        # Noise may have carried it out of the range, or next to its end.
        error = float(np.linalg.norm(base * self.trust.noise_sd)) / float(base.sum())
        return float(scipy.stats.truncnorm.mean(*((limits - mean) / error), loc=mean, scale=error))


def _gram_of(units: "UnitsAtHand") -> FloatArray:
    """Return the products of rows with each other and, last, with ones."""
    rows = units.design.rows / units.design.scale
    return np.column_stack([rows.T @ rows, rows.sum(axis=0)])


def _exposure_of(units: "UnitsAtHand") -> FloatArray:
    """Return the mean exposures of the units and their weights, added up."""
    offset = units.design.offset
    known = np.zeros(len(units.design.rows)) if offset is None else offset
    exposure = units.average(units.family.mean(known))
    return np.array([units.base() @ exposure, units.base().sum()])


def _weight_and_labels(units: "UnitsAtHand") -> FloatArray:
    """Return the weights of the units, and their labels times these, added up."""
    return np.array([units.total, units.weight() @ units.labels])


@dataclass(frozen=True)
class UnitsAtHand(BagLabels):
    """A loss on labels of bags whose rows are at hand.

    Attributes
    ----------
    members : Members or None
        The rows behind each unit, for bag loss; None where a unit has one linear predictor.
    omega : (u,)
        What the weights take the variance of a label to be; see `reweighted`.
    """

    members: Members | None = None
    omega: FloatArray = field(default_factory=lambda: np.ones(1))

    @abstractmethod
    def at_centroids(self) -> "UnitsAtHand | None":
        """Return an easier problem in the same coordinates to start from, if there is one."""

    @abstractmethod
    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return the equations' parts, some units at a time."""

    @abstractmethod
    def weight(self) -> FloatArray:
        """Return the weight of each unit's loss."""

    @abstractmethod
    def weighted(
        self, beta: FloatArray, phi: float, least: tuple[float, float] = (0.0, 0.0)
    ) -> "UnitsAtHand":
        """Return some of the units with the weights that all have by the variances at beta.

        What is least, of mean variance functions and of omega, is so because of other units.
        """

    @abstractmethod
    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return the variance of each residual at beta as far as it is known, (u * q,) both."""

    @abstractmethod
    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the variance of each residual, whatever the weights take it to be, (u * q,)."""

    @property
    def has_offset(self) -> bool:
        """Whether something is known of the rows' linear predictors."""
        return self.design.offset is not None

    @property
    def total(self) -> float:
        """The weight of all units together."""
        return float(self.weight().sum())

    def average(self, values: FloatArray) -> FloatArray:
        """Return the mean of values of the rows over each unit."""
        return values if self.members is None else self.members.mean(values)

    def labels_of_rows(self) -> FloatArray:
        """Return the label that goes with each linear predictor."""
        return self.labels if self.members is None else self.members.repeat(self.labels)

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictor of every row, (rows,) or (rows, q)."""
        return self.design.eta(beta)

    def range_of_eta(self, beta: FloatArray) -> FloatArray:
        """Return the least and the most of all linear predictors."""
        eta = self.eta(beta)
        return np.array([eta.min(), eta.max()])

    def over_units(
        self, work: Callable[["UnitsAtHand"], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return what work makes of the units, which are one part."""
        return functools.reduce(merge, [work(self)])

    def equations(self, beta: FloatArray) -> Equations:
        """Add up the blocks."""
        score, information = np.zeros(self.width), np.zeros((self.width, self.width))
        for block in self.blocks(beta):
            score += block.instruments.T @ block.residuals
            information += block.instruments.T @ block.jacobian
        return Equations(score / self.total, information / self.total)

    def working(self, beta: FloatArray) -> Working:
        """Return the linear model that the problem is close to beta, without bags of no weight."""
        return self.units(beta)

    def units(self, beta: FloatArray) -> Working:
        """Return it with its units."""
        blocks = list(self.blocks(beta))
        jacobian = np.concatenate([block.jacobian for block in blocks])
        residuals = np.concatenate([block.residuals for block in blocks])
        variance = self.label_variance(beta)
        used = np.repeat(self.base() > 0, self.outputs)
        return Working(jacobian[used], (residuals + jacobian @ beta)[used], variance.of(used))


def never_zero(variance: FloatArray) -> FloatArray:
    """Where a chance is as good as certain its variance vanishes; ratios of variances must not."""
    return np.maximum(variance, max(1e-12 * float(variance.max()), 1e-200))


@dataclass(frozen=True)
class NumberProblem(UnitsAtHand):
    """Units whose labels are numbers: rows, centroids of bags, or bags with all of their rows.

    Attributes
    ----------
    mean_variance : (u,)
        The mean variance functions behind omega; without `trust` the weights.
    inside : (Design, Members) or None
        The rows inside units that are centroids, where their spread matters.
    """

    mean_variance: FloatArray = field(default_factory=lambda: np.ones(1))
    inside: tuple[Design, Members] | None = None
    _last: dict[bytes, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    def weight(self) -> FloatArray:
        """Return variance / omega."""
        return self.mean_variance / self.omega

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean of ``b(eta) - label * eta``; for bags of squares, halved."""
        eta = self.eta(beta)
        if not self.family.allows(eta):
            return np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            if self.members is None:
                value = float(self.weight() @ self.family.loss(self.labels, eta)) / self.total
            else:
                off = self.labels - self.members.mean(self.family.mean(eta))
                value = float(np.sum(off**2 / self.omega)) / 2 / self.total
        return value if np.isfinite(value) else np.inf

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return means and variance functions, averaged, and the spread of means inside bags."""
        eta = self.eta(beta)
        means, choice = self.family.mean(eta), np.zeros(1)
        if self.trust is not None and self.trust.label_kind == "pick":
            if self.members is not None:
                choice = self.members.variance(means)
            elif self.inside is not None:
                rows, members = self.inside
                choice = members.variance(self.family.mean(rows.eta(beta)))
        return self.average(means), self.average(self.family.variance(eta)), choice

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return blocks of rows, or of bags."""
        eta = self.eta(beta)
        residuals = self.labels - self.average(self.family.mean(eta))
        slope = self.family.slope(eta)
        if self.members is None:
            lever = self.weight() * self.family.natural_slope(eta)
            for part in chunks(len(self.labels)):
                rows = self.design.standardise(self.design.rows[part])
                yield Block(rows * lever[part, None], rows * slope[part, None], residuals[part])
            return
        # The choice of a penalty and the next step of the solver ask for the same beta.
        key, parts = beta.tobytes(), chunks(len(self.labels), BAGS_AT_A_TIME)
        if key not in self._last and len(self.labels) * self.width <= _REMEMBERED:
            self._last.clear()
            kept = [self.members.mean_rows(self.design, slope, part) for part in parts]
            self._last[key] = np.concatenate(kept)
        for part in parts:
            if key in self._last:
                jacobian = self._last[key][part]
            else:
                jacobian = self.members.mean_rows(self.design, slope, part)
            yield Block(jacobian / self.omega[part, None], jacobian, residuals[part])

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""
        mean, variance, choice = self.moments(beta)
        if self.trust is None:
            pearson = (self.labels - mean) ** 2 / np.maximum(variance, 1e-12 * variance.max())
            return replace(self, phi=float(self.weight() @ pearson) / self.total)
        variance = never_zero(variance)
        label = self.trust.variances(variance, choice)
        phi = self.trust.dispersion(self.labels - mean, label, self.width)
        return replace(self, omega=self.trust.omega(label, phi), phi=phi, mean_variance=variance)

    def weighted(
        self, beta: FloatArray, phi: float, least: tuple[float, float] = (0.0, 0.0)
    ) -> Self:
        """Return some of the units with the weights that all have by the variances at beta."""
        if self.trust is None:
            return self
        _, variance, choice = self.moments(beta)
        variance = np.maximum(never_zero(variance), least[0])
        omega = self.trust.omega(self.trust.variances(variance, choice), phi)
        return replace(self, omega=np.maximum(omega, least[1]), phi=phi, mean_variance=variance)

    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return the variance of each residual as far as it is known."""
        _, variance, choice = self.moments(beta)
        return self.rule.variances(never_zero(variance), choice)

    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the variance of each residual, whatever the weights take it to be."""
        _, variance, choice = self.moments(beta)
        return self.rule.variances(variance, choice).total(self.phi)

    def at_centroids(self) -> "NumberProblem | None":
        """Return the aggregate loss: convex, and on fewer rows.

        Not where eta has a range: centroids may be inside it and rows beyond.
        """
        if self.members is None or np.isfinite(self.family.eta_range[0]):
            return None
        centroids = self.design.about(
            *centroids_of(self.design.rows, self.design.offset, self.members.mean, self.family)
        )
        picked = self.trust is not None and self.trust.label_kind == "pick"
        inside = (self.design, self.members) if picked else None
        return NumberProblem(centroids, self.family, self.labels, self.trust, inside=inside)
