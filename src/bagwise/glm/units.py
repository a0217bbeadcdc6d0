"""Labels with the rows behind them, and what a part of them adds to the sums of a fit."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.families import Family
from bagwise.glm.data import Members
from bagwise.glm.design import Design, centroids_of, chunks, remember
from bagwise.glm.linear import Block, Working
from bagwise.glm.weights import LabelVariance, Trust

BAGS_AT_A_TIME = 8192
_REMEMBERED = 2**25  # numbers of a Jacobian that is kept: 256 MB


class Weights(NamedTuple):
    """What the weights of all units follow from: variances at a beta, and the dispersion."""

    beta: FloatArray
    phi: float
    known: bool

    @property
    def key(self) -> tuple[bytes, float, bool]:
        """The same as a key."""
        return self.beta.tobytes(), self.phi, self.known


class Sums(NamedTuple):
    """Loss, weights, score and information, without penalty, added up over units."""

    loss: float
    total: float
    score: FloatArray
    information: FloatArray


@dataclass(frozen=True)
class Units:
    """Labels that are numbers: of rows, of centroids, or of bags with all their rows.

    Attributes
    ----------
    design : Design
        Whose rows are what eta is computed for.
    family : Family
    labels : (u,), or (u, classes)
    trust : Trust
    members : Members or None
        The rows behind each unit, for bag loss; None where a unit has one linear predictor.
    inside : (Design, Members) or None
        The rows inside units that are centroids, where their spread matters.
    first : int
        The number of the first unit, where these are some of many.
    phi : float
    mean_variance, omega : (u,)
        Mean variance functions, and what the weights take the variance of a label to be.
    """

    design: Design
    family: Family
    labels: FloatArray
    trust: Trust
    members: Members | None = None
    inside: tuple[Design, Members] | None = None
    first: int = 0
    phi: float = 1.0
    mean_variance: FloatArray = field(default_factory=lambda: np.ones(1))
    omega: FloatArray = field(default_factory=lambda: np.ones(1))
    _weighed: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _jacobian: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def outputs(self) -> int:
        """Number of values that a unit's label has: contrasts of classes."""
        return 1 if self.labels.ndim == 1 else int(self.labels.shape[1]) - 1

    @property
    def width(self) -> int:
        """Number of entries of beta."""
        return self.design.width * self.outputs

    @cached_property
    def used(self) -> Any:
        """Which values of units count, (u * q,)."""
        return np.repeat(self.trust.base > 0, self.outputs)

    def weight(self) -> FloatArray:
        """Return the weight of each unit's loss."""
        return self.mean_variance / self.omega

    def average(self, values: FloatArray) -> FloatArray:
        """Return the mean of values of the rows over each unit."""
        return values if self.members is None else self.members.mean(values)

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictor of every row, (rows,) or (rows, q)."""
        return self.design.eta(beta)

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each unit's mean, mean variance function, and variance of the choice."""
        eta = self.eta(beta)
        means, choice = self.family.mean(eta), np.zeros(1)
        if self.trust.label_kind == "pick":
            if self.members is not None:
                choice = self.members.variance(means)
            elif self.inside is not None:
                rows, members = self.inside
                choice = members.variance(self.family.mean(rows.eta(beta)))
        return self.average(means), self.average(self.family.variance(eta)), choice

    def weighed(self, weights: Weights | None) -> Self:
        """Return the same units with their weights."""
        if weights is None:
            return self
        # Of the last step, and of the one that is tried.
        made: Self = remember(self._weighed, weights.key, partial(self._weigh, weights), most=2)
        return made

    def _weigh(self, weights: Weights) -> Self:
        _, variance, choice = self.moments(weights.beta)
        variance = _never_zero(variance)
        label = self.trust.variances(variance, choice)
        omega = self.trust.omega(label, weights.phi, known=weights.known)
        return replace(self, omega=omega, phi=weights.phi, mean_variance=variance)

    def loss(self, beta: FloatArray) -> float:
        """Return the sum of ``b(eta) - label * eta``; for bags of squares, halved."""
        eta = self.eta(beta)
        if self.members is None:
            return float(self.weight() @ self.family.loss(self.labels, eta))
        off = self.labels - self.members.mean(self.family.mean(eta))
        return float(np.sum(off**2 / self.omega)) / 2

    def sums(self, beta: FloatArray) -> Sums:
        """Return loss, weights, score and information."""
        return Sums(self.loss(beta), float(self.weight().sum()), *self._equations(beta))

    def _equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.members is None:
            eta = self.eta(beta)
            lever = self.weight() * self.family.natural_slope(eta)
            pull = lever * (self.labels - self.family.mean(eta))
            square = lever * self.family.slope(eta)
            return self._of_rows(pull[:, None], square[:, None, None])
        score, information = np.zeros(self.width), np.zeros((self.width, self.width))
        for block in self.blocks(beta):
            score += block.instruments.T @ block.residuals
            information += block.instruments.T @ block.jacobian
        return score, information

    def _of_rows(self, pull: FloatArray, square: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Add up the score, given (u, q), and the information, given (u, q, q), row by row.

        With x the row of a unit and L, (q, q), the derivative of its uncorrelated residuals by its
        predictors, the derivative by beta is the product of L and x, so that the information is
        the sum of ``L'L`` times ``x x'``, block by block of beta.
        """
        q, width = self.outputs, self.design.width
        score, information = np.zeros((q, width)), np.zeros((q, width, q, width))
        for part in chunks(len(self.labels)):
            rows = self.design.standardise(self.design.rows[part])
            score += pull[part].T @ rows
            for i in range(q):
                for j in range(i + 1):
                    block = rows.T @ (square[part, i, j, None] * rows)
                    information[i, :, j] += block
                    if i != j:
                        information[j, :, i] += block
        return score.ravel(), information.reshape(self.width, self.width)

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
        parts = chunks(len(self.labels), BAGS_AT_A_TIME)
        if len(self.labels) * self.width > _REMEMBERED:
            jacobians = (self.mean_rows(slope, part) for part in parts)
        else:  # the choice of a penalty and the next step of the solver ask for the same beta
            whole = remember(
                self._jacobian,
                beta.tobytes(),
                lambda: np.concatenate([self.mean_rows(slope, part) for part in parts]),
            )
            jacobians = (whole[part] for part in parts)
        omega = np.broadcast_to(self.omega, len(self.labels))
        for part, jacobian in zip(parts, jacobians, strict=True):
            yield Block(jacobian / omega[part, None], jacobian, residuals[part])

    def mean_rows(self, values: FloatArray, part: slice) -> FloatArray:
        """Average standardised rows times values over some of the units; X is never copied."""
        if self.members is None:
            raise AssertionError("a unit with one predictor has no rows to average")
        member = self.members.average[part]
        member.data = member.data * values[member.indices]
        count = np.asarray(member.sum(axis=1)).ravel()
        return self.design.standardise_sums(member @ self.design.rows, count)

    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return the variance of each residual at beta as far as it is known, (u * q,) both."""
        _, variance, choice = self.moments(beta)
        return self.trust.variances(_never_zero(variance), choice)

    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the actual variance of each residual, whatever the weights assume, (u * q,)."""
        _, variance, choice = self.moments(beta)
        return self.trust.variances(variance, choice).total(self.phi)

    def residuals(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return residuals of units that count, and both parts of their variances."""
        off = (self.labels - self.moments(beta)[0])[self.used]
        variance = self.label_variance(beta).of(self.used)
        return off, variance.share, variance.known

    def near(self, beta: FloatArray) -> Working:
        """Return the units that count as a linear model near beta."""
        blocks, used = list(self.blocks(beta)), self.used
        jacobian = np.concatenate([block.jacobian for block in blocks])[used]
        residuals = np.concatenate([block.residuals for block in blocks])[used]
        return Working(jacobian, residuals, self.label_variance(beta).of(used))

    def columns(self, beta: FloatArray) -> tuple[FloatArray, ...]:
        """Return the same as columns of their own."""
        jacobian, residuals, variance = self.near(beta)
        return jacobian, residuals, variance.share, variance.known

    @cached_property
    def at_centroids(self) -> Self:
        """Units of an easier loss in the same coordinates: it is convex, and on fewer rows."""
        if self.members is None:
            return self
        design = self.design
        centroids = centroids_of(design.rows, design.offset, self.members.mean, self.family)
        picked = self.trust.label_kind == "pick"
        inside = (design, self.members) if picked else None
        easier = design.about(*centroids)
        return replace(self, design=easier, members=None, inside=inside, _weighed={})


def _never_zero(variance: FloatArray) -> FloatArray:
    """Where a chance is as good as certain its variance vanishes; ratios of variances must not."""
    return np.maximum(variance, max(1e-12 * float(variance.max()), 1e-200))
