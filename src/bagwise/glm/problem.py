"""The estimating equations of all losses, in one form for one solver.

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

`FitProblem` is what the solver knows. `BagProblem` has labels of bags and their rows; in
`classes.ClassProblem` labels are shares of classes, and in `parts.PartsProblem` the rows are in
parts, each of them a problem of its own.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import scipy
from scipy import sparse

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.glm.design import Design, centroids_of, chunks
from bagwise.glm.linear import Block, LinearModel, Working
from bagwise.glm.weights import LabelVariance, Trust

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


class Equations(NamedTuple):
    """Score (p,) and information (p, p), per unit of weight, without penalty."""

    score: FloatArray
    information: FloatArray


class FitProblem(ABC):
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
        """Whether beta leads to implausible expected labels."""


@dataclass(frozen=True)
class BagProblem(FitProblem):
    """A loss on labels that are numbers: of rows, of centroids, or of bags with all their rows.

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
    members : Members or None
        The rows behind each unit, for bag loss; None where a unit has one linear predictor.
    inside : (Design, Members) or None
        The rows inside units that are centroids, where their spread matters.
    mean_variance, omega : (u,)
        Mean variance functions, and what the weights take the variance of a label to be, at the
        last reweighting; without `trust` the first are the weights.
    """

    design: Design
    family: Family
    labels: FloatArray
    trust: Trust | None = None
    phi: float = 1.0
    members: Members | None = None
    inside: tuple[Design, Members] | None = None
    mean_variance: FloatArray = field(default_factory=lambda: np.ones(1))
    omega: FloatArray = field(default_factory=lambda: np.ones(1))
    _last: dict[bytes, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def outputs(self) -> int:
        """Number of values that a unit's label has: contrasts of classes."""
        return 1 if self.labels.ndim == 1 else int(self.labels.shape[1]) - 1

    @property
    def width(self) -> int:
        """Number of entries of beta."""
        return self.design.width * self.outputs

    @property
    def n_units(self) -> int:
        """How many labels are compared with expected values."""
        return len(self.labels)

    @property
    def total(self) -> float:
        """The weight of all units together."""
        return float(self.weight().sum())

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

    def weight(self) -> FloatArray:
        """Return the weight of each unit's loss."""
        return self.mean_variance / self.omega

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps beta to coefficients, then intercept, of each value."""
        return np.asarray(np.kron(np.eye(self.outputs), self.design.to_own_units()))

    def over_units(
        self, work: Callable[["BagProblem"], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return the result of `work` on the units with their weights, merged over their parts."""
        return functools.reduce(merge, [work(self)])

    def average(self, values: FloatArray) -> FloatArray:
        """Return the mean of values of the rows over each unit."""
        return values if self.members is None else self.members.mean(values)

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictor of every row, (rows,) or (rows, q)."""
        return self.design.eta(beta)

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta is diverging, as far as eta shows it."""
        if not self.family.knows_dispersion:
            return False
        return self.over_units(lambda units: float(np.abs(units.eta(beta)).max()), max) > FAR

    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""
        return self if self.trust is None else replace(self, trust=replace(self.trust, phi=phi))

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean of ``b(eta) - label * eta``; for bags of squares, halved."""
        eta = self.eta(beta)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.members is None:
                value = float(self.weight() @ self.family.loss(self.labels, eta)) / self.total
            else:
                off = self.labels - self.members.mean(self.family.mean(eta))
                value = float(np.sum(off**2 / self.omega)) / 2 / self.total
        return value if np.isfinite(value) else np.inf

    def equations(self, beta: FloatArray) -> Equations:
        """Add up the blocks."""
        score, information = np.zeros(self.width), np.zeros((self.width, self.width))
        for block in self.blocks(beta):
            score += block.instruments.T @ block.residuals
            information += block.instruments.T @ block.jacobian
        return Equations(score / self.total, information / self.total)

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return the equations' parts, some units at a time."""
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

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each unit's mean, mean variance function, and variance of the choice."""
        eta = self.eta(beta)
        means, choice = self.family.mean(eta), np.zeros(1)
        if self.trust is not None and self.trust.label_kind == "pick":
            if self.members is not None:
                choice = self.members.variance(means)
            elif self.inside is not None:
                rows, members = self.inside
                choice = members.variance(self.family.mean(rows.eta(beta)))
        return self.average(means), self.average(self.family.variance(eta)), choice

    def reweighted(self, beta: FloatArray, phi: float | None = None) -> Self:
        """Return the same problem with weights from the variances at beta; phi may be given."""
        mean, variance, choice = self.moments(beta)
        if self.trust is None:
            pearson = (self.labels - mean) ** 2 / np.maximum(variance, 1e-12 * variance.max())
            return replace(self, phi=float(self.weight() @ pearson) / self.total)
        variance = _never_zero(variance)
        label = self.trust.variances(variance, choice)
        if phi is None:
            phi = self.trust.dispersion(self.labels - mean, label, self.width)
        return replace(self, omega=self.trust.omega(label, phi), phi=phi, mean_variance=variance)

    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return the variance of each residual at beta as far as it is known, (u * q,) both."""
        _, variance, choice = self.moments(beta)
        return self.rule.variances(_never_zero(variance), choice)

    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the actual variance of each residual, whatever the weights assume, (u * q,)."""
        _, variance, choice = self.moments(beta)
        return self.rule.variances(variance, choice).total(self.phi)

    def units(self, beta: FloatArray) -> Working:
        """Return the units that count; if they are elsewhere there must be few."""
        blocks = list(self.blocks(beta))
        used = np.repeat(self.base() > 0, self.outputs)
        jacobian = np.concatenate([block.jacobian for block in blocks])[used]
        residuals = np.concatenate([block.residuals for block in blocks])[used]
        return Working(jacobian, residuals, self.label_variance(beta).of(used))

    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model near beta, without bags of no weight."""
        return LinearModel.of(self.units(beta).over, beta, least=self.rule.unexplained.least)

    def at_centroids(self) -> "BagProblem | None":
        """Return an easier problem in the same coordinates to start from, if there is one.

        The aggregate loss is convex, and on fewer rows.
        """
        if self.members is None:
            return None
        design = self.design
        centroids = centroids_of(design.rows, design.offset, self.members.mean, self.family)
        picked = self.trust is not None and self.trust.label_kind == "pick"
        return replace(
            self,
            design=design.about(*centroids),
            members=None,
            inside=(design, self.members) if picked else None,
            _last={},
        )

    def constant_start(self) -> FloatArray:
        """Return the beta that predicts about the mean label everywhere."""
        start = np.zeros((self.outputs, self.design.width))
        if not self.design.fit_intercept:
            return start.ravel()
        if self.family.has_classes:
            shares = np.clip(self.base() @ self.labels / self.base().sum(), 0.01, 0.99)
            start[:, -1] = self.family.predictor(shares)
            return start.ravel()
        mean = self.family.interior(self._mean_label())
        start[:, -1] = self.family.predictor(np.array(mean))
        known, weight = self.over_units(_exposure_of)
        if weight > 0:  # then a row with the mean exposure has this offset
            start[:, -1] -= self.family.predictor(np.asarray(known / weight))
        return start.ravel()

    def _mean_label(self) -> float:
        """Return the mean label; with known noise, its expected value within the family."""
        if self.trust is None:
            weight, labels = self.over_units(
                lambda units: np.array([units.total, units.weight() @ units.labels])
            )
            return float(labels / weight)
        base, limits = self.trust.base, np.array(self.family.label_range)
        mean = float(base @ self.labels) / float(base.sum())
        if not self.noisy or np.isinf(limits).all():
            return mean
        # Noise may have carried it out of the range, or next to its end.
        error = float(np.linalg.norm(base * self.trust.noise_sd)) / float(base.sum())
        return float(scipy.stats.truncnorm.mean(*((limits - mean) / error), loc=mean, scale=error))


def _never_zero(variance: FloatArray) -> FloatArray:
    """Where a chance is as good as certain its variance vanishes; ratios of variances must not."""
    return np.maximum(variance, max(1e-12 * float(variance.max()), 1e-200))


def _exposure_of(units: BagProblem) -> FloatArray:
    """Return the mean exposures of the units and their weights, added up; zeros without any."""
    if units.design.offset is None:
        return np.zeros(2)
    exposure = units.average(units.family.mean(units.design.offset))
    return np.array([units.base() @ exposure, units.base().sum()])
