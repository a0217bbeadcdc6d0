"""A loss on bags that are in chunks on many machines: sums are added up where the bags are.

Each chunk is a loss of its own, by the classes that serve in memory (`problems`), and what a solver
asks for is a sum over chunks: the loss, its score and its information. Weights depend on all bags
by two numbers only, the beta of the last reweighting and the dispersion, so that a chunk knows them
by itself. A step of the solver is one pass: whoever asks for the loss at a new beta gets the
equations there, under the weights that would come next, from the same pass.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.learn.chunks import Chunk, Chunks
from bagwise.learn.classes import ClassProblem
from bagwise.learn.problems import (
    FAR,
    Block,
    Equations,
    Problem,
    Working,
    never_zero,
)
from bagwise.learn.spread.parts import Reach, Recipe, Sums, Weights, all_added
from bagwise.learn.spread.working import SpreadWorking
from bagwise.learn.weights import Trust, dispersion_by

T = TypeVar("T")

_REMEMBERED = 8  # sums that may be asked for again
_LEAST = 1e-12  # of the largest: below, a variance counts as this (`Trust.omega`)


@dataclass(frozen=True)
class SpreadProblem(Problem):
    """A loss on bags in chunks; labels, sizes and noise of the bags are here, rows are not.

    Attributes
    ----------
    chunks : Chunks
    recipe : Recipe
    weights : Weights or None
    weight_total : float
    """

    chunks: Chunks = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)
    weights: Weights | None = None
    weight_total: float = np.nan
    _seen: dict[Any, Sums] = field(default_factory=dict, repr=False, compare=False)
    _fetch: dict[bytes, list[FloatArray]] = field(default_factory=dict, repr=False, compare=False)
    _models: dict[Any, SpreadWorking] = field(default_factory=dict, repr=False, compare=False)

    @property
    def outputs(self) -> int:
        """Number of values that a bag's label has: contrasts of classes."""
        return 1 if self.labels.ndim == 1 else int(self.labels.shape[1]) - 1

    def constant_start(self) -> FloatArray:
        """Return the beta that predicts about the mean label everywhere."""
        if self.outputs == 1 and not self.family.has_classes:
            return super().constant_start()
        return ClassProblem(self.design, self.family, self.labels, self.trust).constant_start()

    @property
    def is_at_hand(self) -> bool:
        """Whether the rows are here."""
        return False

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return self.weight_total

    def weight(self) -> FloatArray:
        """Refuse: weights are with the bags."""
        raise NotImplementedError

    def _with_weights(self, omega: FloatArray, phi: float, variance: FloatArray) -> Self:
        raise NotImplementedError  # see `reweighted`

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss."""
        value = self._sums(beta, self._weights).loss / self.total
        return value if np.isfinite(value) else np.inf

    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information."""
        found = self._sums(beta, self._weights)
        return Equations(found.score / self.total, found.information / self.total)

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""
        phi = self._dispersion(beta)
        weights = Weights(beta, phi)
        reach = self._sums(beta, weights).reach
        least = [_LEAST * high if low < _LEAST * high else 0.0 for low, high in reach[1:3]]
        if any(least):
            weights = Weights(beta, phi, *least)
        total = self._sums(beta, weights).total
        return replace(self, weights=weights, weight_total=total, phi=phi)

    def allows(self, beta: FloatArray) -> bool:
        """Whether every linear predictor is in the family's range."""
        if np.isinf(self.family.eta_range).all():
            return bool(np.isfinite(beta).all())
        return self.family.allows(self._reach(beta).eta)

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta is on its way to infinity."""
        return self.family.knows_dispersion and bool(np.abs(self._reach(beta).eta).max() > FAR)

    def over_units(
        self, work: Callable[[Problem], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return what work makes of the bags with their weights, chunk by chunk."""
        weights = self._weights
        go: Callable[[Chunk], T] = partial(
            _over_weighted, recipe=self.recipe, weights=weights, work=work
        )
        found: T = self.chunks.over(go, merge)
        return found

    def at_centroids(self) -> Problem | None:
        """Return the aggregate loss, where rows cannot be beyond the range of eta."""
        if self.recipe.by_row or np.isfinite(self.family.eta_range[0]):
            return None
        return replace(self, recipe=replace(self.recipe, at_centroids=True), weights=None)

    def blocks(self, beta: FloatArray) -> Iterator[Block]:
        """Refuse: blocks are with the bags (`over_units`)."""
        raise NotImplementedError

    def units(self, beta: FloatArray) -> Working:
        """Return the linear model with all bags, of which there must be few: they come here."""
        mean, variance, jacobian = self._fetched(beta)
        response = self.labels - mean + jacobian @ beta
        return Working(jacobian, response, self._rule.variances(never_zero(variance), np.zeros(1)))

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
            found = zip(*(part for _, part in parts), strict=True)
            self._fetch[key] = [np.concatenate(each) for each in found]
            _forget(self._fetch, 2)
        return self._fetch[key]

    def working(self, beta: FloatArray) -> SpreadWorking:
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

    def _model(self, beta: FloatArray, weights: Weights) -> SpreadWorking:
        ratios = self.span_of_ratios(beta)
        return SpreadWorking.of(self.chunks, self.recipe, beta, weights, ratios=ratios)

    @property
    def _is_linear(self) -> bool:
        return self.family.name == "gaussian" and self.noisy

    def _usual_offset(self) -> float:
        exposure = partial(_exposure_of, family=self.family, by_row=self.recipe.of_rows)
        if not self.recipe.exposed:
            return 0.0
        known, units = self.chunks.over(exposure, all_added)
        return float(self.family.predictor(np.asarray(known / units)))

    def _closest_to(self, eta: float) -> FloatArray:
        gram = self.chunks.over(partial(_gram_of, recipe=self.recipe), operator.add)
        return np.asarray(np.linalg.lstsq(gram[:, :-1], eta * gram[:, -1])[0])

    @property
    def _weights(self) -> Weights:
        if self.weights is None:
            raise AssertionError("weights come from a beta")
        return self.weights

    def _dispersion(self, beta: FloatArray) -> float:
        """Return phi, estimated if need be (`weights.estimate_dispersion`)."""
        if self._rule.phi is not None:
            return self._rule.phi
        freedom = max(1, self.n_units - self.width)
        if self.noisy:
            model = self.working(beta)
            return dispersion_by(model.pearson, freedom, model.pearson_by_share / freedom)
        return self._sums(beta, Weights(beta, 1.0)).pearson / freedom

    @property
    def _rule(self) -> Trust:
        if self.trust is None:
            raise TypeError("bags always have a rule for their weights")
        return self.trust

    def _reach(self, beta: FloatArray) -> Reach:
        """Return how far something goes; some weights must be, and do not matter."""
        return self._sums(beta, self._next_weights(beta)).reach

    def _next_weights(self, beta: FloatArray) -> Weights:
        """Return the weights at beta, as far as the dispersion is known before."""
        return Weights(beta, 1.0 if self._rule.phi is None else self._rule.phi)

    def span_of_ratios(self, beta: FloatArray) -> FloatArray:
        """Return the least and the most of share / known at beta."""
        if self._is_linear:
            return _ends(1 / (self._rule.counts * self._rule.noise_sd**2))
        return self._reach(beta).ratio

    def _sums(self, beta: FloatArray, weights: Weights) -> Sums:
        """Return sums at beta; one pass adds up those under the next weights as well."""
        if self._is_linear:
            return self.working(beta).sums(weights.phi)
        if not self.noisy and weights.phi not in (0.0, 1.0):  # then all weights are in proportion
            same = replace(weights, phi=1.0, least_omega=weights.least_omega / weights.phi)
            return self._sums(beta, same).over(weights.phi)
        asked = [weights, self._next_weights(beta)]
        key, *ahead = ((self.recipe.at_centroids, beta.tobytes(), w.key) for w in asked)
        if key not in self._seen:
            wanted = dict(zip([key, *ahead], asked, strict=True))
            judge = partial(_judged, recipe=self.recipe, beta=beta, asked=tuple(wanted.values()))
            found = self.chunks.over(judge, _each_merged)
            self._seen.update(zip(wanted, found, strict=True))
            _forget(self._seen, _REMEMBERED)
        return self._seen[key]


@dataclass(frozen=True)
class SpreadRowProblem(SpreadProblem):
    """Instance loss on bags in chunks: every row counts the same, whatever beta is."""

    sizes: IntArray = field(kw_only=True)

    @property
    def n_units(self) -> int:
        """How many rows there are."""
        return int(self.sizes.sum())

    def weight(self) -> FloatArray:
        """Return the weight of the rows of each bag."""
        return self.sizes.astype(np.float64)

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with the dispersion at beta."""
        weights = self._next_weights(beta)
        found = self._sums(beta, weights)
        phi = found.pearson / found.total
        return replace(self, weights=weights, weight_total=found.total, phi=phi)

    def _next_weights(self, beta: FloatArray) -> Weights:
        return Weights(np.zeros_like(beta), 1.0)  # they follow from nothing


def _forget(seen: dict[Any, Any], kept: int) -> None:
    """Drop all but the newest."""
    for old in list(seen)[:-kept]:
        del seen[old]


def _over_weighted(
    chunk: Chunk, recipe: Recipe, weights: Weights, work: Callable[[Problem], T]
) -> T:
    return work(weights.on(recipe.on(chunk)))


def _judged(
    chunk: Chunk, recipe: Recipe, beta: FloatArray, asked: tuple[Weights, ...]
) -> tuple[Sums, ...]:
    local = recipe.on(chunk)
    with np.errstate(all="ignore"):  # a step that goes too far is not taken
        return tuple(_sums_of(weights.on(local), beta) for weights in asked)


def _each_merged(one: tuple[Sums, ...], other: tuple[Sums, ...]) -> tuple[Sums, ...]:
    return tuple(a.merged(b) for a, b in zip(one, other, strict=True))


def _sums_of(local: Problem, beta: FloatArray) -> Sums:
    total, found = local.total, local.equations(beta)
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
        found.score * total,
        found.information * total,
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


def _exposure_of(chunk: Chunk, family: Family, by_row: bool) -> tuple[float, int]:
    """Return the exposure of the rows, or the mean ones of the bags, added up, and their number."""
    exposure = family.mean(np.zeros(len(chunk.rows)) if chunk.offset is None else chunk.offset)
    if not by_row:
        exposure = Bags(chunk.index).mean(exposure)
    return float(exposure.sum()), exposure.size


def _gram_of(chunk: Chunk, recipe: Recipe) -> FloatArray:
    rows = chunk.rows / recipe.frame.scale
    return np.column_stack([rows.T @ rows, rows.sum(axis=0)])
