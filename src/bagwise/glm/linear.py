"""The linear model that approximates a problem near a fit, by sums over its units.

The restricted likelihood (`shrinkage`) is a function of the dispersion phi by way of weights

    1 / (e * share + known)  =  1 / known  *  1 / (1 + e * exp(t)),     t = log(share / known)

of each unit, with e = phi - least, and asks for them at dozens of phi. As a function of t, the last
factor has its poles at a distance of pi from the real axis whatever phi is. So it is a sum of
Chebyshev polynomials in t, as many as the span of t asks for and no more (Bernstein 1912), and one
pass that adds up Gram matrices, once for each polynomial, serves for every phi, to twelve digits.
Units of which nothing is known have weights ``1 / (e * share)``, and are added up by themselves.

References
----------
Trefethen (2013), Approximation theory and approximation practice, theorem 8.2.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.polynomial import chebyshev

from bagwise._types import FloatArray
from bagwise.glm.weights import LabelVariance
from bagwise.theory.restricted import Spectrum

_DIGITS = 28.0  # minus the logarithm of 1e-12, the error that is left to weights


class Block(NamedTuple):
    """Some units, each with q values (1 but for classes): instruments and Jacobian (u * q, p).

    Residuals are (u * q,); those of one unit are uncorrelated as the weights see it.
    """

    instruments: FloatArray
    jacobian: FloatArray
    residuals: FloatArray


class Working(NamedTuple):
    """Some units close to a beta: ``residuals = jacobian @ change of beta + error``."""

    jacobian: FloatArray
    residuals: FloatArray
    variance: LabelVariance

    def over(self, work: Callable[["Working"], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """Return the result of `work` on the units, which are one part."""
        return reduce(merge, [work(self)])


OverUnits = Callable[[Callable[[Working], Any], Callable[[Any, Any], Any]], Any]
"""A map over the parts of all units; what it makes of them is merged."""


@dataclass(frozen=True)
class LinearModel:
    """A linear model with independent errors, of which sums over the units are at hand.

    Products are those of ``[jacobian, residuals at beta, 1]``, of which the response is a
    combination: so nothing is lost to the rounding of large numbers that cancel.

    Attributes
    ----------
    over : OverUnits
        The units, with residuals at `origin`.
    origin, beta : (p,)
        Where the units were asked for, and where residuals of the products are.
    least : float
        The dispersion that counts as known.
    span : (low, high)
        Of ``t = log(share / known)``.
    grams : (k, p + 2, p + 2)
        Products over known, times the Chebyshev polynomials in t, added up.
    counts : (k,)
        The polynomials, added up.
    unknown, by_share : (p + 2, p + 2)
        Products over share: of units of which nothing is known, and of all.
    n_unknown, n_units : float
    log_scale : float
        Logarithms of the known variances, or else of the shares, added up.
    phi : float or None
        The dispersion, where it counts as known.
    """

    over: OverUnits
    origin: FloatArray
    beta: FloatArray
    least: float
    span: tuple[float, float]
    grams: FloatArray
    counts: FloatArray
    unknown: FloatArray
    by_share: FloatArray
    n_unknown: float
    n_units: float
    log_scale: float
    phi: float | None = None

    @classmethod
    def of(cls, over: OverUnits, beta: FloatArray, *, least: float = 0.0) -> Self:
        """Add up what every dispersion needs."""
        with np.errstate(divide="ignore"):  # where nothing is unknown, t is minus infinity
            low, high = np.log(over(_ratios_of, wider))
        span = (low, high) if low <= high else (0.0, 0.0)
        products = over(partial(_products_of, span=span), all_added)
        return cls(over, beta, beta, least, span, *products)

    def rebased(self, beta: FloatArray) -> "LinearModel":
        """Return the same model with residuals at another beta."""
        if np.array_equal(beta, self.beta):
            return self
        change = np.eye(beta.size + 2)
        change[: beta.size, -2] = self.beta - beta
        moved = (change.T @ gram @ change for gram in (self.grams, self.unknown, self.by_share))
        grams, unknown, by_share = moved
        return replace(self, beta=beta, grams=grams, unknown=unknown, by_share=by_share)

    def gram(self, phi: float) -> FloatArray:
        """Return the products over the variances that go with a dispersion."""
        excess = self._excess(phi)
        gram = np.tensordot(self._terms_of(lambda x: 1 / (1 + x), excess), self.grams, axes=1)
        return gram + self.unknown / excess if self.n_unknown else np.asarray(gram)

    def spectrum(self, basis: FloatArray, free: FloatArray, phi: float) -> Spectrum:
        """Return the likelihood for slopes along the columns of basis, as a function of tau^2."""
        gram, excess, width = self.gram(phi), self._excess(phi), self.beta.size
        # What is free is taken out anyway; without it, the response is small from the beginning.
        response = _combined(self.beta - free @ (free.T @ self.beta))
        log_determinant = self.log_scale + float(self._terms_of(np.log1p, excess) @ self.counts)
        if self.n_unknown:
            log_determinant += self.n_unknown * float(np.log(excess))
        return Spectrum.of(
            gram[:width, :width],
            gram[:width] @ response,
            float(response @ gram @ response),
            basis=basis,
            free=free,
            log_determinant=log_determinant,
        )

    def most_dispersion(self) -> float | None:
        """Return the phi that would explain all labels; None where no variance is unknown."""
        if not self.by_share.any():
            return None
        gram, response = self.gram(1.0), _combined(self.beta)
        response[-1] -= float(gram[-1] @ response) / float(gram[-1, -1])
        return float(response @ self.by_share @ response) / self.n_units + self.least

    def with_dispersion(self, phi: float) -> "LinearModel":
        """Return the same model with variances that are known."""
        return replace(self, phi=phi)

    def normal_equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information, (p, p), and the score at beta; variances are known."""
        width, gram = self.beta.size, self.gram(1.0)
        return gram[:width, :width], gram[:width] @ _combined(self.beta - beta)

    def over_blocks(
        self, beta: FloatArray, work: Callable[[Iterable[Block]], FloatArray]
    ) -> FloatArray:
        """Add up what work makes of units with their residuals at beta; variances are known."""
        phi = 1.0 if self.phi is None else self.phi
        go = partial(_block_of, moved=beta - self.origin, phi=phi, work=work)
        return np.asarray(self.over(go, np.add))

    def _excess(self, phi: float) -> float:
        return (phi if self.phi is None else self.phi) - self.least

    def _terms_of(self, of: Callable[[FloatArray], FloatArray], excess: float) -> FloatArray:
        """Return the coefficients of a function of ``excess * exp(t)`` in the polynomials."""
        low, high = self.span
        degree = self.counts.size - 1
        places = chebyshev.chebpts1(degree + 1)
        middle = low + 0 * places if high == low else (low + high) / 2 + places * (high - low) / 2
        values = of(excess * np.exp(middle))
        return np.asarray(np.linalg.solve(chebyshev.chebvander(places, degree), values))


def all_added(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sums of two parts, added entry by entry."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _combined(beta: FloatArray) -> FloatArray:
    """Return the combination of columns that is the residuals plus ``jacobian @ beta``."""
    return np.concatenate([beta, [1.0, 0.0]])


def wider(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the minimum and the maximum of two parts, each (2,)."""
    return np.array([min(one[0], other[0]), max(one[1], other[1])])


def _ratios_of(units: Working) -> FloatArray:
    """Return the ends of share / known, where something is known."""
    seen = units.variance.known > 0
    ratio = units.variance.share[seen] / units.variance.known[seen]
    return np.array([ratio.min(initial=np.inf), ratio.max(initial=0.0)])


def _terms(low: float, high: float) -> int:
    """Return the number of polynomials needed: each reduces the error by the factor rho.

    >>> _terms(0.0, 0.0), _terms(-1.0, 1.0)
    (1, 17)
    """
    half = 0.0 if high == low else (high - low) / 2
    if half < 1e-12:
        return 1
    rho = np.pi / half + np.hypot(np.pi / half, 1.0)
    return int(np.ceil(_DIGITS / np.log(rho))) + 1


def _products_of(units: Working, span: tuple[float, float]) -> tuple[Any, ...]:
    """Return the sums that a `LinearModel` needs, for some units."""
    (jacobian, residuals, variance), (low, high) = units, span
    share, known = variance.share, variance.known
    columns = np.column_stack([jacobian, residuals, np.ones(len(residuals))])
    terms, seen = _terms(low, high), known > 0
    place = np.zeros(int(seen.sum()))
    if terms > 1:
        place = (2 * np.log(share[seen] / known[seen]) - (low + high)) / (high - low)
    polynomials, weights = chebyshev.chebvander(place, terms - 1), 1 / known[seen]
    of_known = columns if seen.all() else columns[seen]
    grams = np.stack([of_known.T @ (of_known * (p * weights)[:, None]) for p in polynomials.T])
    by_share = unknown = np.zeros_like(grams[0])
    if share.any():
        by_share = columns.T @ (columns / share[:, None])
    if not seen.all():
        unknown = columns[~seen].T @ (columns[~seen] / share[~seen, None])
    log_scale = float(np.sum(np.log(np.where(seen, known, share))))
    n_unknown = float(np.sum(~seen))
    counts = polynomials.sum(axis=0)
    return grams, counts, unknown, by_share, n_unknown, float(len(share)), log_scale


def _block_of(
    units: Working, moved: FloatArray, phi: float, work: Callable[[Iterable[Block]], FloatArray]
) -> FloatArray:
    jacobian, residuals, variance = units
    instruments = jacobian / variance.total(phi)[:, None]
    return work([Block(instruments, jacobian, residuals - jacobian @ moved)])
