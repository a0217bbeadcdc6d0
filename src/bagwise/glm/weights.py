"""Weights of bags from the known noise of their labels.

A bag's label varies by ``omega = (phi - least) * share + known``. In an ordinary fit least is 0
and share is the variance that the family gives the label: the mean variance function V of the bag's
rows, divided by the prior weight of the bag and, for a mean, by its size. The rest is known: the
variance of the privacy noise and, for a pick, that of the expected labels inside the bag. The best
weights are 1/omega. Where phi is not known it is estimated.

With known noise a model's lack of fit is estimated too, and must not be a multiple of V: a bag that
is predicted close to an end of the range has next to no V, so that a small miss there would make
phi explode, and the noise so found would hide every slope. A label between two bounds cannot vary
by more than (mean - low) * (high - mean), which for 0 and 1 is V itself. So there phi is 1 for what
the labels do, and what the model misses is a variance of its own, the same for all bags. Counts do
vary by more than V, and so do amounts; half of their unknown part follows V (`Unexplained`).

References
----------
Generalised least squares, F4 of the theory page.
"""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import scipy

from bagwise._types import AnyArray, FloatArray
from bagwise.privacy.noise import LabelKind

_NOTHING = 1e-30
_UNUSUAL = 0.05


@dataclass(frozen=True)
class Unexplained:
    """The part of a label's variance that its family and its noise leave unexplained.

    ``share = shape * V / counts + (1 - shape) * usual`` is what phi multiplies, and `least` times
    ``V / counts`` counts as known.

    Attributes
    ----------
    least : float
        The dispersion by the nature of the labels: 1 for counts and chances.
    shape : float
        How much of the unknown variance follows the variance function.
    usual : float
        The variance of a bag's label at the mean of all labels.
    """

    least: float = 0.0
    shape: float = 1.0
    usual: float = 0.0


NOTHING = Unexplained()
"""All of the unknown variance is a multiple of the variance function."""


@dataclass(frozen=True)
class Trust:
    """The rule by which bags get their weights, and the facts about the bags that it needs.

    Attributes
    ----------
    rule : {"known-noise", "equal", "size"}
        Weights from the variances; all the same; or by the number of rows.
    label_kind : {"mean", "pick"}
    phi : float or None
        The dispersion, where it is known.
    unexplained : Unexplained
    sizes, noise_sd, base : (m,)
        `base` is the prior weight: what the user gave as sample weight.
    """

    rule: str
    label_kind: LabelKind
    phi: float | None = None
    unexplained: Unexplained = NOTHING
    sizes: FloatArray = field(default_factory=lambda: np.zeros(0))
    noise_sd: FloatArray = field(default_factory=lambda: np.zeros(0))
    base: FloatArray = field(default_factory=lambda: np.zeros(0))

    def over(self, sizes: FloatArray, noise_sd: FloatArray, base: FloatArray) -> Self:
        """Return the same rule over some bags."""
        return replace(self, sizes=sizes, noise_sd=noise_sd, base=base)

    @property
    def counts(self) -> FloatArray:
        """Labels behind each bag's label: its rows for a mean, one for a pick, times the weight."""
        # A bag of weight zero keeps a trace, so that nothing is divided by zero.
        base: FloatArray = np.maximum(self.base, _NOTHING * self.base.max())
        return base * self.sizes if self.label_kind == "mean" else base

    def variances(self, variance: FloatArray, choice: FloatArray) -> "LabelVariance":
        """Return omega's two parts, given mean variance functions and variances of the choice."""
        known = self.noise_sd**2 + (choice if self.label_kind == "pick" else 0.0)
        own, rest = variance / self.counts, self.unexplained
        share = rest.shape * own + (1 - rest.shape) * rest.usual
        return LabelVariance(share, known + rest.least * own, rest.least)

    def omega(self, variance: "LabelVariance", phi: float, *, known: bool) -> FloatArray:
        """Return the variance of a bag's label that the weights assume.

        Where phi is `known`, spread inside a bag and noise are parts of one variance.
        """
        if self.rule == "known-noise":
            omega, several = variance.total(phi), self.sizes > 1
            if not known and self.label_kind == "pick" and several.any():
                # The spread inside a bag is an estimate. A bag whose rows happen to look alike
                # would be taken for certain, and drag the fit along.
                usual = float(np.quantile(omega[several], _UNUSUAL))
                omega = np.where(several, np.maximum(omega, usual / 2), omega)
        else:
            omega = variance.share * self.count_ratio
        # A label known without any error would get infinite weight; a millionth of the largest
        # deviation is as good as none.
        largest = float(omega[self.base > 0].max(initial=0.0))
        return np.maximum(omega, 1e-12 * largest) if largest > 0 else np.ones_like(omega)

    @property
    def count_ratio(self) -> FloatArray:
        """The ratio of omega to share under the rule "equal" or "size"."""
        base = np.maximum(self.base, _NOTHING * self.base.max())
        return np.asarray(self.counts / (base * self.sizes if self.rule == "size" else base))


@dataclass(frozen=True)
class LabelVariance:
    """The variance of each bag's label, ``(phi - least) * share + known``, both (m,)."""

    share: FloatArray
    known: FloatArray
    least: float = 0.0

    def total(self, phi: float) -> FloatArray:
        """Return omega for each bag."""
        return (phi - self.least) * self.share + self.known

    def of(self, used: AnyArray) -> "LabelVariance":
        """Return the variances of some of the bags."""
        return LabelVariance(self.share[used], self.known[used], self.least)


def estimate_dispersion(
    residuals: FloatArray, variance: LabelVariance, *, n_parameters: int
) -> float:
    """Return phi >= 0 for which Pearson's statistic is what its degrees of freedom say.

    Without known variances this is Pearson's estimate, the mean of ``residual**2 / share``. With
    them it solves ``sum(residual**2 / (phi * share + known)) = m - p``, whose left side falls in
    phi: the known noise is taken out, and bags that have much of it count for little (Paule and
    Mandel 1982).

    Examples
    --------
    >>> r = np.array([1.0, -2.0, 2.0, -1.0])
    >>> estimate_dispersion(r, LabelVariance(np.ones(4), np.zeros(4)), n_parameters=0)
    2.5
    >>> with_noise = LabelVariance(np.ones(4), np.ones(4))
    >>> round(estimate_dispersion(r, with_noise, n_parameters=0), 6)
    1.5
    """
    freedom = max(1, residuals.size - n_parameters)
    squares, share, known = residuals**2, variance.share, variance.known
    pearson = float(np.sum(squares / share)) / freedom
    if not np.any(known):
        return pearson

    def statistic(phi: float) -> float:
        omega = phi * share + known
        seen = squares > 0  # a label met exactly says nothing, not even without noise
        return float(np.sum(squares[seen] / np.maximum(omega[seen], 1e-300)))

    if pearson == 0.0 or statistic(0.0) <= freedom:
        return 0.0
    high = 1.001 * pearson  # phi is no larger than without known variances, but for rounding
    root = scipy.optimize.brentq(
        lambda phi: statistic(phi) - freedom, 0.0, high, xtol=1e-12 * high, rtol=1e-10
    )
    return float(root)
