"""Labels that were picked from their bags: rows in order, their coordinates and their densities.

The label of a bag is that of one of its rows, chosen uniformly: a mixture with one component for
each row. Which row it was is known only by its probability, the responsibility of the row.

A density says two things of each row, were it the pick: the logarithm of the density of its bag's
label, privacy noise included, and the label that the row must then have had, on average, before the
noise. By them all derivatives are known: that of the log density in eta is
``(expected - mean) * natural_slope / phi``, as if the expected label had been seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
from scipy import linalg, sparse
from scipy.special import expit, gammaln, wrightomega

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import StrategyError
from bagwise.families import Family
from bagwise.glm.design import chunks
from bagwise.learn.bag_data import BagData
from bagwise.rows.whitening import FLAT, principal_axes, rounding

Density = Callable[[FloatArray, float], tuple[FloatArray, FloatArray]]
"""From the eta of each row and phi to log densities and expected labels, both (n,)."""

_FAR = 8.0  # standard deviations beyond which a count does not matter: 1e-15
_TERMS = 2_000_000  # of the sums over counts at a time


def e_step(log_density: FloatArray, ends: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return each row's probability to be the pick, (n,), and each bag's log-likelihood, (m,).

    Examples
    --------
    >>> e_step(np.log([0.1, 0.3, 0.5]), np.array([0, 2, 3]))[0]
    array([0.25, 0.75, 1.  ])
    """
    first, sizes = ends[:-1], np.diff(ends)
    peak = np.maximum.reduceat(log_density, first)
    weight = np.exp(log_density - np.repeat(peak, sizes))
    total = np.add.reduceat(weight, first)
    return weight / np.repeat(total, sizes), peak + np.log(total / sizes)


@dataclass(frozen=True)
class PickedBags:
    """Bags that count, and their rows one bag after the other: sums over a bag are over a slice.

    Attributes
    ----------
    X : (n, d)
    ends : (m + 1,)
        Bag l is ``X[ends[l]:ends[l + 1]]``.
    labels, noise_sd, weight : (m,)
        A bag of weight 2 counts as two bags.
    """

    X: FloatArray
    ends: IntArray
    labels: FloatArray
    noise_sd: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, data: BagData) -> Self:
        """Order the rows, and leave out bags of weight zero."""
        used = data.weight > 0
        order = np.argsort(data.bags.index, kind="stable")
        index = data.bags.index[order]
        rows = order[(index >= 0) & used[index]]
        ends = np.concatenate([[0], np.cumsum(data.bags.sizes[used])])
        return cls(data.X[rows], ends, data.labels[used], data.noise_sd[used], data.weight[used])

    @cached_property
    def sizes(self) -> IntArray:
        """Rows in each bag."""
        return np.diff(self.ends)

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return float(self.weight.sum())

    @cached_property
    def row_weight(self) -> FloatArray:
        """The weight of each row's bag."""
        return self.repeat(self.weight)

    @cached_property
    def chance(self) -> FloatArray:
        """How likely each row is, before the labels are seen, to be a pick; adds up to 1."""
        return self.repeat(self.weight / (self.sizes * self.total))

    def repeat(self, bag_values: FloatArray) -> FloatArray:
        """Give each row its bag's value."""
        return np.repeat(bag_values, self.sizes)

    def sum(self, values: FloatArray) -> FloatArray:
        """Add up the values of the rows of each bag, (m,)."""
        return np.asarray(np.add.reduceat(values, self.ends[:-1]))

    def weighted_sum(self, weight: FloatArray, rows: FloatArray) -> FloatArray:
        """Add up the weighted rows of each bag, (m, p)."""
        n = weight.size
        chosen = sparse.csr_array((weight, np.arange(n), self.ends), shape=(len(self.labels), n))
        return np.asarray(chosen @ rows)


@dataclass(frozen=True)
class PickCoordinates:
    """A linear map from columns to uncorrelated directions of spread 1, and back.

    Directions without spread drop out, so that constant and duplicate columns do no harm and their
    coefficients are those of least norm. theta holds one entry for each direction that is kept and,
    last, the intercept at the centre.

    Attributes
    ----------
    center : (d,)
    basis : (d, kept)
        Coefficients of each direction.
    back : (kept, d)
        Maps coefficients to directions.
    open : (d + 1,)
        Which coefficients, and whether the intercept, change along directions that dropped out.
    """

    center: FloatArray
    basis: FloatArray
    back: FloatArray
    open: AnyArray
    fit_intercept: bool

    @classmethod
    def of(cls, bags: PickedBags, *, fit_intercept: bool) -> Self:
        """Find the directions in which rows differ."""
        X, weight = bags.X, bags.chance
        center = weight @ X if fit_intercept else np.zeros(X.shape[1])
        gram = (X - center).T @ ((X - center) * weight[:, None])
        # A constant column has the spread of its rounding.
        flat = np.diag(gram) <= FLAT * (weight @ X**2)
        # As in the other learners (`solver`), all that can be told from rounding is learnt.
        axes = principal_axes(gram, constant=flat, tolerance=rounding(len(gram)))
        # Turned once more, so that |coef|^2 has no cross terms.
        basis = axes.basis @ linalg.eigh(axes.basis.T @ axes.basis)[1]
        own = np.vstack([np.diag(1 / axes.spread), -center / axes.spread])
        return cls(center, basis, basis.T @ gram, moves(own, axes.lost), fit_intercept)

    @property
    def kept(self) -> int:
        """Number of directions."""
        return int(self.basis.shape[1])

    @property
    def width(self) -> int:
        """Number of entries of theta."""
        return self.kept + self.fit_intercept

    def design(self, X: FloatArray) -> FloatArray:
        """Return the rows in these coordinates, with a column of ones for the intercept."""
        rows = (X - self.center) @ self.basis
        return np.column_stack([rows, np.ones(len(rows))]) if self.fit_intercept else rows

    def penalty(self, ridge: float) -> FloatArray:
        """Return the ridge penalty of each entry of theta; the intercept has none."""
        slopes = ridge * np.sum(self.basis**2, axis=0)
        return np.append(slopes, 0.0) if self.fit_intercept else slopes

    def theta(self, coef: FloatArray, intercept: float) -> FloatArray:
        """Return theta of coefficients in the columns' own units."""
        slopes = self.back @ coef
        return np.append(slopes, intercept + self.center @ coef) if self.fit_intercept else slopes

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps theta to coefficients and, last, the intercept."""
        change = np.zeros((len(self.center) + 1, self.width))
        change[:-1, : self.kept] = self.basis
        change[-1, : self.kept] = -self.center @ self.basis
        change[-1, self.kept :] = 1.0
        return change


def moves(change: FloatArray, directions: FloatArray) -> AnyArray:
    """Return which rows of a linear map change along some directions, beyond rounding."""
    moved = np.linalg.norm(change @ directions, axis=1)
    size = np.linalg.norm(change, axis=1)
    return np.asarray(moved > 1e-6 * np.where(size > 0, size, 1.0))


def _seen(
    eta: FloatArray, phi: float, *, family: Family, labels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the family's own density, and the label as it is."""
    return family.log_density(labels, eta, phi), labels


def _normal(
    eta: FloatArray, phi: float, *, labels: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the density of a normal label with normal noise on top."""
    variance = phi + noise_sd**2
    off = labels - eta
    # The share of what is off that is the label's own.
    return _log_normal(off, np.sqrt(variance)), eta + phi / variance * off


def _binary(
    eta: FloatArray, _phi: float, *, labels: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Weigh the labels 0 and 1 by how well they explain what is seen; noise is normal."""
    noisy = noise_sd > 0
    spread = np.where(noisy, noise_sd, 1.0)
    lead = (labels - 0.5) / spread**2  # by which the noise favours a 1
    log_density = -np.logaddexp(0.0, eta) + np.where(
        noisy, _log_normal(labels, spread) + np.logaddexp(0.0, eta + lead), labels * eta
    )
    return log_density, np.where(noisy, expit(eta + lead), labels)


def _counts(
    eta: FloatArray, phi: float, *, family: Family, labels: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Add up over the counts that may be behind a label with normal noise."""
    log_density = family.log_density(np.maximum(labels, 0.0), eta, phi)
    expected, noisy = labels.copy(), np.flatnonzero(noise_sd > 0)
    if not noisy.size:
        return log_density, expected
    lowest, terms = _window(eta[noisy], labels[noisy], noise_sd[noisy])
    for part in chunks(noisy.size, max(1, _TERMS // terms)):
        rows = noisy[part]
        counts = lowest[part, None] + np.arange(terms)
        log_joint = (
            counts * eta[rows, None]
            - gammaln(counts + 1)
            + _log_normal(labels[rows, None] - counts, noise_sd[rows, None])
        )
        peak = log_joint.max(axis=1, keepdims=True)
        share = np.exp(log_joint - peak)
        total = share.sum(axis=1)
        log_density[rows] = peak[:, 0] + np.log(total) - np.exp(eta[rows])
        expected[rows] = (share * counts).sum(axis=1) / total
    return log_density, expected


def _window(eta: FloatArray, labels: FloatArray, spread: FloatArray) -> tuple[FloatArray, int]:
    """Return the smallest count that matters for each row, and how many do at most."""
    variance = spread**2
    # Where count * eta - log(count!) - (label - count)**2 / (2 variance) is largest, by Stirling.
    mode = variance * wrightomega(eta - np.log(variance) + labels / variance)
    width = _FAR * (1 + 1 / np.sqrt(1 / variance + 1 / np.maximum(mode, 1e-300)))
    lowest = np.maximum(0.0, np.floor(mode - width))
    return lowest, int(np.ceil(np.max(mode + width - lowest))) + 1


def _log_normal(off: FloatArray, spread: FloatArray) -> FloatArray:
    return np.asarray(-np.log(2 * np.pi) / 2 - np.log(spread) - (off / spread) ** 2 / 2)


def density_of(family: Family, bags: PickedBags) -> Density:
    """Return the density of picked labels, or say that there is none.

    Examples
    --------
    >>> from bagwise.families import find_family
    >>> ones = np.ones(2)
    >>> bags = PickedBags(np.eye(2), np.arange(3), ones, 0 * ones, ones)
    >>> log_density, _ = density_of(find_family("poisson"), bags)(np.log([1.0, 2.0]), 1.0)
    >>> np.exp(log_density).round(3)  # of a count of 1
    array([0.368, 0.271])
    """
    if "mixture" not in family.losses:
        raise StrategyError(
            f"loss='mixture' has no advantage for the family {family.name}: the likelihood of a "
            "picked class depends only on the mean of the rows' probabilities. Set loss='bag'."
        )
    seen = bags.noise_sd == 0
    family.check_labels(bags.labels[seen])
    labels, noise_sd = bags.repeat(bags.labels), bags.repeat(bags.noise_sd)
    known: dict[str, Density] = {
        "gaussian": partial(_normal, labels=labels, noise_sd=noise_sd),
        "bernoulli": partial(_binary, labels=labels, noise_sd=noise_sd),
        "poisson": partial(_counts, family=family, labels=labels, noise_sd=noise_sd),
    }
    if family.name in known:
        return known[family.name]
    if not seen.all():
        raise StrategyError(
            f"loss='mixture' does not support labels of the family {family.name} with privacy "
            "noise. Set loss='bag', which needs only their variance."
        )
    return partial(_seen, family=family, labels=labels)
