"""What each family says about the label of a bag, were a given row the pick.

A density returns two things for each row: the logarithm of the density of its bag's label, privacy
noise included, and the label that the row must then have had, on average, before the noise. By
them all derivatives are known: that of the log density in eta is
``(expected - mean) * natural_slope / phi``, as if the expected label had been seen.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit, gammaln, wrightomega

from bagwise._types import FloatArray, IntArray
from bagwise.errors import StrategyError
from bagwise.families import Family
from bagwise.glm.design import chunks
from bagwise.learn.mixture.likelihood import PickedBags

_FAR = 8.0  # standard deviations beyond which a count does not matter: 1e-15
_TERMS = 2_000_000  # of the sums over counts at a time


class Density(Protocol):
    """The density of its bag's label at each row."""

    def evaluate(self, eta: FloatArray, phi: float) -> tuple[FloatArray, FloatArray]:
        """Return log densities and expected labels, both (n,)."""
        ...


@dataclass(frozen=True)
class Seen:
    """Labels without privacy noise."""

    family: Family
    labels: FloatArray

    def evaluate(self, eta: FloatArray, phi: float) -> tuple[FloatArray, FloatArray]:
        """Return the family's own density, and the label as it is."""
        return self.family.log_density(self.labels, eta, phi), self.labels


@dataclass(frozen=True)
class Normal:
    """Normal labels of variance phi, with normal noise on top where `noise_sd` is positive."""

    labels: FloatArray
    noise_sd: FloatArray

    def evaluate(self, eta: FloatArray, phi: float) -> tuple[FloatArray, FloatArray]:
        """Return the density of the sum, and the share of what is off that is the label's own."""
        variance = phi + self.noise_sd**2
        off = self.labels - eta
        return _log_normal(off, np.sqrt(variance)), eta + phi / variance * off


@dataclass(frozen=True)
class Binary:
    """Labels 0 or 1, with normal noise on top where `noise_sd` is positive."""

    labels: FloatArray
    noise_sd: FloatArray

    def evaluate(self, eta: FloatArray, phi: float) -> tuple[FloatArray, FloatArray]:
        """Weigh the two labels by how well they explain what is seen."""
        del phi
        noisy = self.noise_sd > 0
        spread = np.where(noisy, self.noise_sd, 1.0)
        lead = (self.labels - 0.5) / spread**2  # by which the noise favours a 1
        log_density = -np.logaddexp(0.0, eta) + np.where(
            noisy,
            _log_normal(self.labels, spread) + np.logaddexp(0.0, eta + lead),
            self.labels * eta,
        )
        return log_density, np.where(noisy, expit(eta + lead), self.labels)


@dataclass(frozen=True)
class Counts:
    """Counts, with normal noise on top where `noise_sd` is positive."""

    family: Family
    labels: FloatArray
    noise_sd: FloatArray

    def evaluate(self, eta: FloatArray, phi: float) -> tuple[FloatArray, FloatArray]:
        """Add up over the counts that may be behind a noisy label."""
        log_density = self.family.log_density(np.maximum(self.labels, 0.0), eta, phi)
        expected = self.labels.copy()
        noisy = np.flatnonzero(self.noise_sd > 0)
        if noisy.size:
            log_density[noisy], expected[noisy] = self._over_counts(noisy, eta[noisy])
        return log_density, expected

    def _over_counts(self, rows: IntArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        labels, spread = self.labels[rows], self.noise_sd[rows]
        log_density, expected = np.empty(eta.size), np.empty(eta.size)
        lowest, terms = _window(eta, labels, spread)
        for part in chunks(eta.size, max(1, _TERMS // terms)):
            counts = lowest[part, None] + np.arange(terms)
            log_joint = (
                counts * eta[part, None]
                - gammaln(counts + 1)
                + _log_normal(labels[part, None] - counts, spread[part, None])
            )
            peak = log_joint.max(axis=1, keepdims=True)
            share = np.exp(log_joint - peak)
            total = share.sum(axis=1)
            log_density[part] = peak[:, 0] + np.log(total) - np.exp(eta[part])
            expected[part] = (share * counts).sum(axis=1) / total
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
    >>> log_density, _ = density_of(find_family("poisson"), bags).evaluate(np.log([1.0, 2.0]), 1.0)
    >>> np.exp(log_density).round(3)  # of a count of 1
    array([0.368, 0.271])
    """
    if "mixture" not in family.losses:
        raise StrategyError(
            f"loss='mixture' has nothing to add for the family {family.name}: the likelihood of a "
            "picked class is that of the mean of its rows' chances. Set loss='bag'."
        )
    seen = bags.noise_sd == 0
    family.check_labels(bags.labels[seen])
    labels, noise_sd = bags.repeat(bags.labels), bags.repeat(bags.noise_sd)
    if family.name == "gaussian":
        return Normal(labels, noise_sd)
    if family.name == "bernoulli":
        return Binary(labels, noise_sd)
    if family.name == "poisson":
        return Counts(family, labels, noise_sd)
    if not seen.all():
        raise StrategyError(
            f"loss='mixture' does not know the density of labels of the family {family.name} with "
            "privacy noise. Set loss='bag', which needs their variance only."
        )
    return Seen(family, labels)
