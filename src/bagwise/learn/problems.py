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
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from scipy import sparse, stats

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.families import Family
from bagwise.learn.design import Design, chunks
from bagwise.learn.offset import centroids_of
from bagwise.learn.weights import LabelVariance, Trust
from bagwise.theory.restricted import Spectrum

T = TypeVar("T")

BAGS_AT_A_TIME = 8192
FAR = 20.0  # a chance of 2e-9, a rate of 5e8: few estimates get there by themselves


@dataclass(frozen=True)
class Members:
    """Which rows are in which bag, in a form that adds up rows where they lie.

    Attributes
    ----------
    bags : Bags
    member : sparse (m, n)
    """

    bags: Bags
    member: sparse.csr_array

    @classmethod
    def of(cls, bags: Bags) -> Self:
        """Order the rows by bag."""
        order = np.argsort(bags.index, kind="stable")
        starts = np.concatenate([[0], np.cumsum(bags.sizes)])
        shape = (bags.n_bags, order.size)
        return cls(bags, sparse.csr_array((np.ones(order.size), order, starts), shape=shape))

    def sums(self, design: Design, values: FloatArray, part: slice) -> FloatArray:
        """Add up standardised rows times values in some of the bags; X is never copied."""
        member = self.member[part]
        member.data = values[member.indices]
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

    def spectrum(self, basis: FloatArray, free: FloatArray, phi: float) -> Spectrum:
        """Return the likelihood for slopes along the columns of basis (`theory.restricted`)."""

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

    def spectrum(self, basis: FloatArray, free: FloatArray, phi: float) -> Spectrum:
        """Return the likelihood for slopes along the columns of basis."""
        omega = self.variance.total(phi)
        root = 1 / np.sqrt(omega)
        return Spectrum.of(
            (self.jacobian @ basis) * root[:, None],
            (self.jacobian @ free) * root[:, None],
            self.response * root,
            log_determinant=float(np.sum(np.log(omega))),
        )

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


@dataclass(frozen=True)
class Problem(ABC):
    """A loss on given data.

    Attributes
    ----------
    design : Design
        Whose rows are what eta is computed for.
    family : Family
    labels : (u,)
    trust : Trust or None
        None where weights are fixed.
    omega : (u,)
        What the weights take the variance of a label to be; see `reweighted`.
    phi : float
        The dispersion at the last reweighting.
    """

    design: Design
    family: Family
    labels: FloatArray
    trust: Trust | None = None
    omega: FloatArray = field(default_factory=lambda: np.ones(1))
    phi: float = 1.0

    @abstractmethod
    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss at fixed weights; infinite outside the family's range."""

    @abstractmethod
    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return the equations' parts, some units at a time."""

    @abstractmethod
    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each unit's mean, mean variance function, and variance of the choice."""

    @abstractmethod
    def weight(self) -> FloatArray:
        """Return the weight of each unit's loss."""

    @property
    def outputs(self) -> int:
        """Number of values that a unit's label has."""
        return 1

    @property
    def is_at_hand(self) -> bool:
        """Whether the rows are here, and not on many machines."""
        return True

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

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictor of every row, (rows,) or (rows, q)."""
        return self.design.eta(beta)

    def base(self) -> FloatArray:
        """Return the prior weight of each unit."""
        return np.ones(len(self.labels)) if self.trust is None else self.trust.base

    @property
    def n_units(self) -> int:
        """How many labels are compared with expected values."""
        return len(self.labels)

    @property
    def total(self) -> float:
        """The weight of all units together."""
        return float(self.weight().sum())

    def allows(self, beta: FloatArray) -> bool:
        """Whether every linear predictor is in the family's range."""
        return self.family.allows(self.eta(beta))

    @property
    def is_finite(self) -> bool:
        """Whether the weights are numbers that can be computed with."""
        return bool(np.isfinite(self.total) and self.total > 0 and np.isfinite(self.phi))

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta is on its way to infinity, as far as one can see from eta."""
        return self.family.knows_dispersion and bool(np.abs(self.eta(beta)).max() > FAR)

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""
        mean, variance, choice = self.moments(beta)
        if self.trust is None:
            pearson = (self.labels - mean) ** 2 / np.maximum(variance, 1e-12 * variance.max())
            return replace(self, phi=float(self.weight() @ pearson) / self.total)
        variance = never_zero(variance)
        label = self.trust.variances(variance, choice)
        phi = self.trust.dispersion(self.labels - mean, label, self.width)
        return self._with_weights(self.trust.omega(label, phi), phi, variance)

    def weighted(
        self, beta: FloatArray, phi: float, *, least_variance: float = 0.0, least_omega: float = 0.0
    ) -> "Problem":
        """Return some of the units with the weights that all have by the variances at beta.

        What is least is so because of other units, which are elsewhere.
        """
        if self.trust is None:
            return self
        _, variance, choice = self.moments(beta)
        variance = np.maximum(never_zero(variance), least_variance)
        omega = self.trust.omega(self.trust.variances(variance, choice), phi)
        return self._with_weights(np.maximum(omega, least_omega), phi, variance)

    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model that the problem is close to beta, without bags of no weight."""
        return self.units(beta)

    def units(self, beta: FloatArray) -> Working:
        """Return the linear model with all of its units."""
        blocks = list(self.blocks(beta))
        jacobian = np.concatenate([block.jacobian for block in blocks])
        residuals = np.concatenate([block.residuals for block in blocks])
        variance = self.label_variance(beta)
        used = np.repeat(self.base() > 0, self.outputs)
        return Working(jacobian[used], (residuals + jacobian @ beta)[used], variance.of(used))

    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return the variance of each residual as far as it is known, (u * q,) both parts."""
        if self.trust is None:
            raise TypeError("weights are fixed: nothing is known of the labels' variance")
        _, variance, choice = self.moments(beta)
        return self.trust.variances(never_zero(variance), choice)

    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""
        return self if self.trust is None else replace(self, trust=replace(self.trust, phi=phi))

    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the variance of each residual, whatever the weights take it to be, (u * q,)."""
        if self.trust is None:
            raise TypeError("weights are fixed: nothing is known of the labels' variance")
        _, variance, choice = self.moments(beta)
        return self.trust.variances(variance, choice).total(self.phi)

    def equations(self, beta: FloatArray) -> Equations:
        """Add up the blocks."""
        score, information = np.zeros(self.width), np.zeros((self.width, self.width))
        for block in self.blocks(beta):
            score += block.instruments.T @ block.residuals
            information += block.instruments.T @ block.jacobian
        return Equations(score / self.total, information / self.total)

    def over_units(
        self, work: Callable[["Problem"], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return what work makes of the units; where they are in parts, merged."""
        del merge
        return work(self)

    def at_centroids(self) -> "Problem | None":
        """Return an easier problem in the same coordinates to start from, if there is one."""
        return None

    def constant_start(self) -> FloatArray:
        """Return the beta that predicts about the mean label everywhere."""
        mean = self.family.interior(self._mean_label())
        eta = float(self.family.predictor(np.array(mean))) - self._usual_offset()
        start = np.zeros(self.width)
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
        rows = self.design.rows / self.design.scale
        return np.asarray(np.linalg.lstsq(rows, np.full(len(rows), eta))[0])

    def _usual_offset(self) -> float:
        """Return the offset of a row with the mean exposure."""
        if self.design.offset is None:
            return 0.0
        usual = np.average(self._mean_exposure(self.design.offset), weights=self.base())
        return float(self.family.predictor(np.asarray(usual)))

    def _mean_exposure(self, offset: FloatArray) -> FloatArray:
        """Return the mean exposure of each unit, (u,)."""
        return self.family.mean(offset)

    def _mean_label(self) -> float:
        """Return the mean label: with known noise, what it is expected to be within the family."""
        base = self.base() if self.trust is not None else self.weight()
        mean = float(base @ self.labels) / float(base.sum())
        limits = np.array(self.family.label_range)
        if self.trust is None or not self.noisy or np.isinf(limits).all():
            return mean
        # Noise may have carried it out of the range, or next to its end.
        error = float(np.linalg.norm(base * self.trust.noise_sd)) / float(base.sum())
        return float(stats.truncnorm.mean(*((limits - mean) / error), loc=mean, scale=error))

    def labels_of_rows(self) -> FloatArray:
        """Return the label that goes with each linear predictor."""
        return self.labels

    @abstractmethod
    def _with_weights(self, omega: FloatArray, phi: float, variance: FloatArray) -> Self:
        """Return the same problem with these weights, keeping the variances behind them."""


def never_zero(variance: FloatArray) -> FloatArray:
    """Where a chance is as good as certain its variance vanishes; ratios of variances must not."""
    return np.maximum(variance, max(1e-12 * float(variance.max()), 1e-200))


@dataclass(frozen=True)
class RowProblem(Problem):
    """Units with one linear predictor each: rows, or centroids of bags.

    Attributes
    ----------
    fixed_weight : (u,)
        The weights without `trust`; and the mean variance functions behind omega with it.
    inside : (Design, Bags) or None
        The rows inside the units, where their spread matters.
    """

    fixed_weight: FloatArray = field(default_factory=lambda: np.ones(1))
    inside: tuple[Design, Bags] | None = None

    def weight(self) -> FloatArray:
        """Return the fixed weight, or variance / omega."""
        return self.fixed_weight if self.trust is None else self.fixed_weight / self.omega

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean of ``b(eta) - label * eta``."""
        eta = self.eta(beta)
        if not self.family.allows(eta):
            return np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self.weight() @ self.family.loss(self.labels, eta)) / self.total
        return value if np.isfinite(value) else np.inf

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return means and variance functions at eta, and the spread of means inside bags."""
        eta = self.eta(beta)
        choice = np.zeros(1)
        picked = self.trust is not None and self.trust.label_kind == "pick"
        if picked and self.inside is not None:
            rows, bags = self.inside
            choice = bags.variance(self.family.mean(rows.eta(beta)))
        return self.family.mean(eta), self.family.variance(eta), choice

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return blocks of rows."""
        eta, weight = self.eta(beta), self.weight()
        residuals = self.labels - self.family.mean(eta)
        slope = self.family.slope(eta)
        lever = weight * self.family.natural_slope(eta)
        for part in chunks(len(self.labels)):
            rows = self.design.standardise(self.design.rows[part])
            yield Block(rows * lever[part, None], rows * slope[part, None], residuals[part])

    def _with_weights(self, omega: FloatArray, phi: float, variance: FloatArray) -> Self:
        return replace(self, omega=omega, phi=phi, fixed_weight=variance)


@dataclass(frozen=True)
class BagProblem(Problem):
    """Bags whose expected label is the average of their rows' means."""

    members: Members = field(default_factory=lambda: Members.of(Bags.singletons(1)))
    mean_variance: FloatArray = field(default_factory=lambda: np.ones(1))

    @property
    def bags(self) -> Bags:
        """The rows of each unit."""
        return self.members.bags

    def weight(self) -> FloatArray:
        """Return variance / omega."""
        return self.mean_variance / self.omega

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean of squares over omega, halved."""
        eta = self.eta(beta)
        if not self.family.allows(eta):
            return np.inf
        with np.errstate(over="ignore", invalid="ignore"):
            off = self.labels - self.bags.mean(self.family.mean(eta))
            value = float(np.sum(off**2 / self.omega)) / 2 / self.total
        return value if np.isfinite(value) else np.inf

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return averages over the rows of each bag."""
        eta = self.eta(beta)
        means = self.family.mean(eta)
        variance = self.bags.mean(self.family.variance(eta))
        picked = self.trust is not None and self.trust.label_kind == "pick"
        choice = self.bags.variance(means) if picked else np.zeros(1)
        return self.bags.mean(means), variance, choice

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return blocks of bags."""
        eta = self.eta(beta)
        residuals = self.labels - self.bags.mean(self.family.mean(eta))
        slope = self.family.slope(eta) / self.bags.sizes[self.bags.index]
        for part in chunks(self.bags.n_bags, BAGS_AT_A_TIME):
            jacobian = self.members.sums(self.design, slope, part)
            yield Block(jacobian / self.omega[part, None], jacobian, residuals[part])

    def at_centroids(self) -> Problem | None:
        """Return the aggregate loss: convex, and on fewer rows.

        Not where eta has a range: centroids may be inside it and rows beyond.
        """
        if np.isfinite(self.family.eta_range[0]):
            return None
        centroids = self.design.about(
            *centroids_of(self.design.rows, self.design.offset, self.bags, self.family)
        )
        picked = self.trust is not None and self.trust.label_kind == "pick"
        inside = (self.design, self.bags) if picked else None
        return RowProblem(centroids, self.family, self.labels, self.trust, inside=inside)

    def _mean_exposure(self, offset: FloatArray) -> FloatArray:
        return self.bags.mean(self.family.mean(offset))

    def labels_of_rows(self) -> FloatArray:
        """Return the label of each row's bag."""
        return np.asarray(self.bags.repeat(self.labels))

    def _with_weights(self, omega: FloatArray, phi: float, variance: FloatArray) -> Self:
        return replace(self, omega=omega, phi=phi, mean_variance=variance)
