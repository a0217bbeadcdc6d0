"""A loss on bags in parts: sums are added up where the bags are.

Each part is a loss of its own, by the classes that serve in memory (`problems`), and what a solver
asks for is a sum over parts: the loss, its score and its information. Weights depend on all bags by
two numbers only, the beta of the last reweighting and the dispersion, so that a part knows them by
itself. A step of the solver is one pass: whoever asks for the loss at a new beta gets the equations
there, under the weights that would come next, from the same pass.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.glm.parts import Chunk, Chunks, Reach, Recipe, Sums, Weights
from bagwise.glm.parts_working import PartsWorking
from bagwise.glm.problems import BagLabels, Equations, UnitsAtHand, Working, never_zero
from bagwise.glm.weights import dispersion_by

T = TypeVar("T")

_REMEMBERED = 8  # sums that may be asked for again
_LEAST = 1e-12  # of the largest: below, a variance counts as this (`Trust.omega`)


@dataclass(frozen=True)
class PartsProblem(BagLabels):
    """A loss on bags in parts; labels, sizes and noise of the bags are here, rows are not.

    Attributes
    ----------
    chunks : Chunks
    recipe : Recipe
    n_rows : int
    weights : Weights or None
    weight_total : float
    """

    chunks: Chunks = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)
    n_rows: int = field(kw_only=True)
    weights: Weights | None = None
    weight_total: float = np.nan
    _seen: dict[Any, Sums] = field(default_factory=dict, repr=False, compare=False)
    _fetch: dict[bytes, list[FloatArray]] = field(default_factory=dict, repr=False, compare=False)
    _models: dict[Any, PartsWorking] = field(default_factory=dict, repr=False, compare=False)

    @property
    def has_offset(self) -> bool:
        """Whether something is known of the rows' linear predictors."""
        return self.recipe.exposed

    @property
    def n_units(self) -> int:
        """How many bags there are; for instance loss, rows."""
        return self.n_rows if self.recipe.of_rows else len(self.labels)

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return self.weight_total

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss."""
        value = self._sums(beta, self._weights).loss / self.total
        return value if np.isfinite(value) else np.inf

    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information."""
        sums = self._sums(beta, self._weights)
        return Equations(sums.score / self.total, sums.information / self.total)

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""
        if self.trust is None:  # every row counts the same, whatever beta is
            weights = self._next_weights(beta)
            sums = self._sums(beta, weights)
            phi = sums.pearson / sums.total
            return replace(self, weights=weights, weight_total=sums.total, phi=phi)
        phi = self._dispersion(beta)
        weights = Weights(beta, phi)
        reach = self._sums(beta, weights).reach
        variance, omega = (
            _LEAST * high if low < _LEAST * high else 0.0 for low, high in reach[1:3]
        )
        if variance or omega:
            weights = Weights(beta, phi, (variance, omega))
        total = self._sums(beta, weights).total
        return replace(self, weights=weights, weight_total=total, phi=phi)

    def range_of_eta(self, beta: FloatArray) -> FloatArray:
        """Return the least and the most of all linear predictors."""
        return self._sums(beta, self._next_weights(beta)).reach.eta

    def over_units(
        self, work: Callable[[UnitsAtHand], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return what work makes of the bags with their weights, chunk by chunk."""
        go: Callable[[Chunk], T] = partial(
            _over_weighted, recipe=self.recipe, weights=self.weights, work=work
        )
        merged: T = self.chunks.over(go, merge)
        return merged

    def at_centroids(self) -> "PartsProblem | None":
        """Return the aggregate loss, where rows cannot be beyond the range of eta."""
        if self.recipe.by_row or np.isfinite(self.family.eta_range[0]):
            return None
        return replace(self, recipe=replace(self.recipe, at_centroids=True), weights=None)

    def units(self, beta: FloatArray) -> Working:
        """Return the linear model with all bags, of which there must be few: they come here."""
        mean, variance, jacobian = self._fetched(beta)
        response = self.labels - mean + jacobian @ beta
        return Working(jacobian, response, self.rule.variances(never_zero(variance), np.zeros(1)))

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the mean of each bag and its mean variance function; for few bags, too."""
        mean, variance, _ = self._fetched(beta)
        return mean, variance, np.zeros(1)

    def _fetched(self, beta: FloatArray) -> list[FloatArray]:
        """Return mean, mean variance function and derivative of each bag, in one pass."""
        key = beta.tobytes()
        if key not in self._fetch:
            fetch = partial(_moments_of, recipe=self.recipe, beta=beta)
            parts = sorted(self.chunks.over(fetch, operator.add), key=operator.itemgetter(0))
            columns = zip(*(part for _, part in parts), strict=True)
            self._fetch[key] = [np.concatenate(each) for each in columns]
            _forget(self._fetch, 2)
        return self._fetch[key]

    def working(self, beta: FloatArray) -> PartsWorking:
        """Return the linear model that the problem is close to beta; a Gaussian one is so anywhere.

        Then one pass is enough for a whole fit.
        """
        # Residuals of classes are in units of their weights; of others, weights do not matter.
        weights = self._weights if self.family.has_classes else Weights(beta, 1.0)
        place = b"" if self._is_linear else (beta.tobytes(), weights.key)
        key = (self.recipe.at_centroids, place)
        if key not in self._models:
            self._models[key] = self._model(beta, weights)
            _forget(self._models, 2)
        return self._models[key].rebased(beta)

    def _model(self, beta: FloatArray, weights: Weights) -> PartsWorking:
        ratios = self.span_of_ratios(beta)
        return PartsWorking.of(self.chunks, self.recipe, beta, weights, ratios=ratios)

    @property
    def _is_linear(self) -> bool:
        return self.family.name == "gaussian" and self.noisy

    @property
    def _weights(self) -> Weights:
        if self.weights is None:
            raise AssertionError("weights come from a beta")
        return self.weights

    def _dispersion(self, beta: FloatArray) -> float:
        """Return phi, estimated if need be (`weights.estimate_dispersion`)."""
        if self.rule.phi is not None:
            return self.rule.phi
        freedom = max(1, self.n_units - self.width)
        if self.noisy:
            model = self.working(beta)
            return dispersion_by(model.pearson, freedom, model.pearson_by_share / freedom)
        return self._sums(beta, Weights(beta, 1.0)).pearson / freedom

    def _next_weights(self, beta: FloatArray) -> Weights:
        """Return the weights at beta, as far as the dispersion is known before."""
        if self.trust is None:  # they follow from nothing
            return Weights(np.zeros_like(beta), 1.0)
        return Weights(beta, 1.0 if self.trust.phi is None else self.trust.phi)

    def span_of_ratios(self, beta: FloatArray) -> FloatArray:
        """Return the least and the most of share / known at beta."""
        if self._is_linear:
            return _ends(1 / (self.rule.counts * self.rule.noise_sd**2))
        return self._sums(beta, self._next_weights(beta)).reach.ratio

    def _sums(self, beta: FloatArray, weights: Weights) -> Sums:
        """Return sums at beta; one pass adds up those under the next weights as well."""
        if self._is_linear:
            return self.working(beta).sums(weights.phi)
        if not self.noisy and weights.phi not in (0.0, 1.0):  # then all weights are in proportion
            least = weights.least[0], weights.least[1] / weights.phi
            same = Weights(weights.beta, 1.0, least)
            return self._sums(beta, same).over(weights.phi)
        asked = [weights, self._next_weights(beta)]
        key, *ahead = ((self.recipe.at_centroids, beta.tobytes(), w.key) for w in asked)
        if key not in self._seen:
            wanted = dict(zip([key, *ahead], asked, strict=True))
            judge = partial(_judged, recipe=self.recipe, beta=beta, asked=tuple(wanted.values()))
            sums = self.chunks.over(judge, _each_merged)
            self._seen.update(zip(wanted, sums, strict=True))
            _forget(self._seen, _REMEMBERED)
        return self._seen[key]


def _forget(seen: dict[Any, Any], kept: int) -> None:
    """Drop all but the newest."""
    for old in list(seen)[:-kept]:
        del seen[old]


def _over_weighted(
    chunk: Chunk, recipe: Recipe, weights: Weights | None, work: Callable[[UnitsAtHand], T]
) -> T:
    local = recipe.on(chunk)
    return work(local if weights is None else weights.on(local))


def _judged(
    chunk: Chunk, recipe: Recipe, beta: FloatArray, asked: tuple[Weights, ...]
) -> tuple[Sums, ...]:
    local = recipe.on(chunk)
    with np.errstate(all="ignore"):  # a step that goes too far is not taken
        return tuple(_sums_of(weights.on(local), beta) for weights in asked)


def _each_merged(one: tuple[Sums, ...], other: tuple[Sums, ...]) -> tuple[Sums, ...]:
    return tuple(a.merged(b) for a, b in zip(one, other, strict=True))


def _sums_of(local: UnitsAtHand, beta: FloatArray) -> Sums:
    total, equations = local.total, local.equations(beta)
    variance = local.weight() * local.omega
    off, ratio = local.labels - local.moments(beta)[0], np.ones(1)
    pearson = float(np.sum(off**2 / local.omega))
    if local.trust is None:
        pearson = local.reweighted(beta).phi * total
    if local.family.has_classes or local.noisy:
        label = local.label_variance(beta)
        ratio = label.share / label.known
    reach = Reach(*(_ends(values) for values in (local.eta(beta), variance, local.omega, ratio)))
    return Sums(
        local.loss(beta) * total,
        total,
        pearson,
        equations.score * total,
        equations.information * total,
        reach,
    )


def _ends(values: FloatArray) -> FloatArray:
    return np.array([values.min(), values.max()])


def _moments_of(
    chunk: Chunk, recipe: Recipe, beta: FloatArray
) -> list[tuple[int, tuple[FloatArray, FloatArray, FloatArray]]]:
    with np.errstate(all="ignore"):  # as `_judged`
        local = recipe.on(chunk).weighted(beta, 1.0)
        mean, variance, _ = local.moments(beta)
        return [(chunk.first, (mean, variance, local.units(beta).jacobian))]
