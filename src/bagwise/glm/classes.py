"""The estimating equations for labels with classes, with a vector of shares per unit.

Shares add up to one, so that only their contrasts carry information: Q'share for an orthonormal Q
whose columns are at right angles to (1, …, 1). Noise on each share leaves contrasts with noise of
the same size, independent of each other. Within a unit contrasts are correlated; multiplied by the
inverse of a root of their covariance they are not, and then each counts like a label of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.glm.design import chunks
from bagwise.glm.linear import Block
from bagwise.glm.units import BAGS_AT_A_TIME, Units, Weights
from bagwise.glm.weights import LabelVariance


@dataclass(frozen=True)
class ClassUnits(Units):
    """Units with shares of classes, labels being (u, classes).

    Attributes
    ----------
    root : (u, q, q)
        Inverse roots of what the weights take the covariance of contrasts to be.
    uncorrelated : (u, q)
        Variances of the contrasts, turned so that they are uncorrelated.
    scale : (u,)
        The weight of each unit in the mean loss.
    """

    root: FloatArray = field(default_factory=lambda: np.ones((1, 1, 1)))
    uncorrelated: FloatArray = field(default_factory=lambda: np.ones((1, 1)))
    scale: FloatArray = field(default_factory=lambda: np.ones(1))

    @cached_property
    def contrasts(self) -> FloatArray:
        """Q, (classes, classes - 1)."""
        return np.asarray(linalg.helmert(self.labels.shape[1]).T)

    @cached_property
    def inner(self) -> FloatArray:
        """K with ``Q' share = constant + K' share[1:]`` for shares that add up to one."""
        return np.asarray(self.contrasts[1:] - self.contrasts[:1])

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictors, (rows, q)."""
        return self.design.eta(beta.reshape(self.outputs, -1).T)

    def weight(self) -> FloatArray:
        """Return the weight of each unit's loss."""
        return self.scale

    def loss(self, beta: FloatArray) -> float:
        """Return the squares of uncorrelated residuals, halved."""
        return float(np.sum(self._residuals(self.eta(beta)) ** 2)) / 2

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return expected shares, their mean covariance, and a zero."""
        eta = self.eta(beta)
        return self._shares(eta), self._mean_covariance(eta), np.zeros(1)

    def _weigh(self, weights: Weights) -> Self:
        here, eta = replace(self, phi=weights.phi), self.eta(weights.beta)
        mean = self.inner.T @ self._mean_covariance(eta) @ self.inner
        omega, root = here._inverse_root(here._label_covariance(eta, honest=False))
        trace = np.einsum("uij,ujk,uik->u", root, mean, root) / self.outputs
        return replace(here, root=root, uncorrelated=omega, scale=trace)

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Return blocks of units, their residuals uncorrelated under the weights."""
        eta = self.eta(beta)
        residuals = self._residuals(eta)
        for part in chunks(len(self.labels), BAGS_AT_A_TIME):
            jacobian = np.matmul(self.root[part] @ self.inner.T, self._jacobian_of(eta, part))
            jacobian = jacobian.reshape(-1, self.width)
            yield Block(jacobian, jacobian, residuals[part].ravel())

    def _equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.members is not None:
            return super()._equations(beta)
        eta = self.eta(beta)
        lever = np.matmul(self.root @ self.inner.T, self.family.slope(eta))
        pull = np.einsum("uij,ui->uj", lever, self._residuals(eta))
        return self._of_rows(pull, np.matmul(lever.transpose(0, 2, 1), lever))

    def true_variance(self, beta: FloatArray) -> FloatArray:
        """Return the actual variance of each residual, whatever the weights assume."""
        covariance = self._label_covariance(self.eta(beta), honest=True)
        spread = np.einsum("uij,ujk,uik->ui", self.root, covariance, self.root)
        return np.asarray(spread).ravel()

    def label_variance(self, beta: FloatArray) -> LabelVariance:
        """Return variances relative to those that the weights, taken at beta, assume."""
        del beta
        rest = self.trust.unexplained
        share = rest.usual / self.uncorrelated.ravel()
        return LabelVariance(share, 1 - (self.phi - rest.least) * share, rest.least)

    def _shares(self, eta: FloatArray) -> FloatArray:
        return self.average(self.family.mean(eta))

    def _residuals(self, eta: FloatArray) -> FloatArray:
        off = (self.labels - self._shares(eta)) @ self.contrasts
        return np.asarray(np.einsum("uij,uj->ui", self.root, off))

    def _mean_covariance(self, eta: FloatArray) -> FloatArray:
        """Return the covariance of one row's indicators, averaged over a unit, (u, q, q)."""
        return self.average(self.family.variance(eta))

    def _label_covariance(self, eta: FloatArray, *, honest: bool) -> FloatArray:
        """Return the covariance of contrasts: the actual one, or that of the rule for weights."""
        trust = self.trust
        if trust.label_kind == "pick":
            shares = self._shares(eta)[:, 1:]
            products = shares[:, :, None] * shares[:, None, :]
            covariance = shares[:, :, None] * np.eye(self.outputs) - products
        else:
            covariance = self._mean_covariance(eta)
        covariance = self.inner.T @ covariance @ self.inner / trust.counts[:, None, None]
        if honest or trust.rule == "known-noise":
            missed = (self.phi - trust.unexplained.least) * trust.unexplained.usual
            noise = trust.noise_sd[:, None, None] ** 2 + missed
            return np.asarray(covariance + noise * np.eye(self.outputs))
        return np.asarray(covariance * trust.count_ratio[:, None, None])

    def _inverse_root(self, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return eigenvalues and R with ``R covariance R' = 1``, if need be of small chances."""
        # Not `data.whitening`: of labels, whose units count, and no direction is left out.
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-10 * float(values[self.trust.base > 0].max()) + 1e-14)
        scaled = vectors / np.sqrt(values)[:, None, :]
        return values, np.asarray(scaled.transpose(0, 2, 1))

    def _jacobian_of(self, eta: FloatArray, part: slice) -> FloatArray:
        """Return the derivative of shares[1:] by beta, (u, q, p * q)."""
        q = self.outputs
        if self.members is None:
            rows = self.design.standardise(self.design.rows[part])
            slope = self.family.slope(eta[part])
            return np.asarray(np.einsum("uij,up->uijp", slope, rows).reshape(len(rows), q, -1))
        slope = self.family.slope(eta)
        out = np.empty((len(range(*part.indices(len(self.labels)))), q, q, self.design.width))
        for i in range(q):
            for j in range(i + 1):  # slopes of chances are symmetric
                jacobian = self.mean_rows(slope[:, i, j], part)
                out[:, i, j] = out[:, j, i] = jacobian
        return out.reshape(-1, q, self.width)
