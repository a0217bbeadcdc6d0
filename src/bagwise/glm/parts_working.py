"""The linear model close to a fit of bags in parts: one pass for every dispersion.

The restricted likelihood (`shrinkage`) is a function of the dispersion phi by way of weights

    1 / (e * share + known)  =  1 / known  *  1 / (1 + e * exp(t)),     t = log(share / known)

of each bag, with e = phi - least, and asks for them at dozens of phi. As a function of t, the last
factor has its poles at a distance of pi from the real axis whatever phi is. So it is a sum of
Chebyshev polynomials in t, as many as the span of t asks for and no more (Bernstein 1912), and one
pass that adds up Gram matrices, once for each polynomial, serves for every phi, to twelve digits.

References
----------
Trefethen (2013), Approximation theory and approximation practice, theorem 8.2.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.polynomial import chebyshev

from bagwise._types import FloatArray
from bagwise.glm.parts import Chunk, Chunks, Reach, Recipe, Sums, Weights, all_added
from bagwise.glm.problems import Block
from bagwise.theory.restricted import Spectrum

_DIGITS = 28.0  # minus the logarithm of 1e-12, the error that is left to weights


@dataclass(frozen=True)
class PartsWorking:
    """A linear model (`LinearModel`) of which sums over the bags are at hand.

    Products are those of ``[jacobian, residuals at beta, 1]``, of which the response is a
    combination: so nothing is lost to the rounding of large numbers that cancel.

    Attributes
    ----------
    chunks : Chunks
    recipe : Recipe
    beta : (p,)
        Where the problem is close to the model.
    weights : Weights
        Under which the model was made.
    span : (low, high)
        Of ``t = log(share / known)``.
    grams : (k, p + 2, p + 2)
        Products over known, times the Chebyshev polynomials in t, added up.
    counts : (k,)
        The polynomials, added up.
    by_share : (p + 2, p + 2)
        Products over share.
    log_known : float
        Logarithms of the known variances, added up.
    phi : float or None
        The dispersion, where it counts as known.
    """

    chunks: Chunks
    recipe: Recipe
    beta: FloatArray
    weights: Weights
    span: tuple[float, float]
    grams: FloatArray
    counts: FloatArray
    by_share: FloatArray
    log_known: float
    phi: float | None = None

    @classmethod
    def of(
        cls,
        chunks: Chunks,
        recipe: Recipe,
        beta: FloatArray,
        weights: Weights,
        *,
        ratios: FloatArray,
    ) -> Self:
        """Add up what every dispersion needs; `ratios` are the ends of ``share / known``."""
        with np.errstate(divide="ignore"):  # of classes nothing is unknown, and t is minus infinity
            low, high = np.log(ratios)
        add = partial(_products_of, recipe=recipe, weights=weights, beta=beta)
        products = chunks.over(partial(add, span=(low, high), terms=_terms(low, high)), all_added)
        return cls(chunks, recipe, beta, weights, (low, high), *products)

    def rebased(self, beta: FloatArray) -> "PartsWorking":
        """Return the same model with residuals at another beta."""
        if np.array_equal(beta, self.beta):
            return self
        change = np.eye(beta.size + 2)
        change[: beta.size, -2] = self.beta - beta
        return replace(
            self,
            beta=beta,
            grams=change.T @ self.grams @ change,
            by_share=change.T @ self.by_share @ change,
        )

    def sums(self, phi: float) -> Sums:
        """Return the sums of a loss that is this model: squares, over variances."""
        gram, width, one = self._gram(phi), self.beta.size, np.ones(2)
        reach = Reach(0 * one, one, one, np.exp(self.span))
        loss, total = float(gram[-2, -2]) / 2, float(gram[-1, -1])
        return Sums(loss, total, 2 * loss, gram[:width, -2], gram[:width, :width], reach)

    def pearson(self, phi: float) -> float:
        """Return the squares of residuals over variances, added up."""
        return float(self._gram(phi)[-2, -2])

    @property
    def pearson_by_share(self) -> float:
        """The squares of residuals over shares, added up."""
        return float(self.by_share[-2, -2])

    def spectra(self, basis: FloatArray, free: FloatArray) -> Callable[[float], Spectrum]:
        """Return the likelihood for slopes along the columns of basis, as a function of phi."""
        return partial(self._spectrum, basis, free)

    def _spectrum(self, basis: FloatArray, free: FloatArray, phi: float) -> Spectrum:
        gram = self._gram(phi)
        # What is free is taken out anyway; without it, the response is small from the beginning.
        response = self._response(self.beta - free @ (free.T @ self.beta))
        width = self.beta.size
        return Spectrum.of_sums(
            gram[:width, :width],
            gram[:width] @ response,
            float(response @ gram @ response),
            basis=basis,
            free=free,
            log_determinant=self.log_known + float(self._terms_of(np.log1p, phi) @ self.counts),
        )

    def most_dispersion(self) -> float | None:
        """Return the phi that would explain all labels."""
        if not self.by_share.any():
            return None
        gram, response = self._gram(1.0), self._response(self.beta)
        one = np.eye(response.size)[-1]
        center = float(one @ gram @ response) / float(one @ gram @ one)
        off = response - center * one
        squares = float(off @ self.by_share @ off) / float(self.counts[0])
        return squares + self.recipe.unexplained.least

    def with_dispersion(self, phi: float) -> "PartsWorking":
        """Return the same model with variances that are known."""
        return replace(self, phi=phi)

    def normal_equations(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information and the score at beta."""
        width, gram = self.beta.size, self._gram(1.0)
        return gram[:width, :width], gram[:width] @ self._response(self.beta - beta)

    def over_blocks(
        self, beta: FloatArray, work: Callable[[Iterable[Block]], FloatArray]
    ) -> FloatArray:
        """Add up what work makes of the bags with their residuals at beta."""
        go = partial(
            _over_known,
            recipe=self.recipe,
            weights=self.weights,
            close_to=self.beta,
            phi=self._known_phi(1.0),
            beta=beta,
            work=work,
        )
        return self.chunks.over(go, operator.add)

    def _known_phi(self, asked: float) -> float:
        return asked if self.phi is None else self.phi

    def _response(self, beta: FloatArray) -> FloatArray:
        """Return the combination of columns that is the residuals plus ``jacobian @ beta``."""
        return np.concatenate([beta, [1.0, 0.0]])

    def _gram(self, phi: float) -> FloatArray:
        return np.tensordot(self._terms_of(lambda x: 1 / (1 + x), phi), self.grams, axes=1)

    def _terms_of(self, of: Callable[[FloatArray], FloatArray], phi: float) -> FloatArray:
        """Return the coefficients of a function of ``phi * exp(t)`` in Chebyshev polynomials."""
        low, high = self.span
        excess = self._known_phi(phi) - self.recipe.unexplained.least

        def at(place: FloatArray) -> FloatArray:
            middle = low if high == low else (low + high) / 2 + place * (high - low) / 2
            return of(excess * np.exp(middle) + 0 * place)

        degree = self.counts.size - 1
        places = chebyshev.chebpts1(degree + 1)
        return np.asarray(np.linalg.solve(chebyshev.chebvander(places, degree), at(places)))


def _terms(low: float, high: float) -> int:
    """Return how many polynomials it takes: the error falls by the factor rho with each.

    >>> _terms(0.0, 0.0), _terms(-1.0, 1.0)
    (1, 17)
    """
    half = 0.0 if high == low else (high - low) / 2
    if half < 1e-12:
        return 1
    rho = np.pi / half + np.hypot(np.pi / half, 1.0)
    return int(np.ceil(_DIGITS / np.log(rho))) + 1


def _products_of(
    chunk: Chunk,
    recipe: Recipe,
    weights: Weights,
    beta: FloatArray,
    span: tuple[float, float],
    terms: int,
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return what a `PartsWorking` adds up, of some bags."""
    jacobian, response, variance = weights.on(recipe.on(chunk)).units(beta)
    columns = np.column_stack([jacobian, response - jacobian @ beta, np.ones(len(response))])
    place = np.zeros(len(response))
    if terms > 1:
        low, high = span
        place = (2 * np.log(variance.share / variance.known) - (low + high)) / (high - low)
    polynomials = chebyshev.chebvander(place, terms - 1)
    grams = np.stack([columns.T @ (columns * (p / variance.known)[:, None]) for p in polynomials.T])
    by_share = np.zeros_like(grams[0])
    if variance.share.any():
        by_share = columns.T @ (columns / variance.share[:, None])
    return grams, polynomials.sum(axis=0), by_share, float(np.sum(np.log(variance.known)))


def _over_known(
    chunk: Chunk,
    recipe: Recipe,
    weights: Weights,
    close_to: FloatArray,
    phi: float,
    beta: FloatArray,
    work: Callable[[Iterable[Block]], FloatArray],
) -> FloatArray:
    model = weights.on(recipe.on(chunk)).units(close_to).with_dispersion(phi)
    return model.over_blocks(beta, work)
