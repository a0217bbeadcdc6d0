"""Data in parts of whole bags, possibly on many machines.

Nothing about a fit asks for more of them than sums, and the least and the most of something. Each
part is a problem of its own, by the class that serves in memory (`problem`), and what a solver asks
for is a sum over parts: the loss, its score and its information. Weights depend on all bags by two
numbers only, the beta of the last reweighting and the dispersion, so that a part knows them by
itself. A step of the solver is one pass: whoever asks for the loss at a new beta gets the equations
there, under the weights that would come next, from the same pass.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.glm.classes import ClassProblem
from bagwise.glm.design import Design, spread_by_exposure
from bagwise.glm.linear import LinearModel, Working, all_added
from bagwise.glm.problem import BagProblem, Equations, Members
from bagwise.glm.weights import NOTHING, LabelVariance, Trust, Unexplained

T = TypeVar("T")

_REMEMBERED = 8  # sums that may be asked for again

Weights = tuple[FloatArray, float]
"""What the weights of all bags follow from: variances at a beta, and the dispersion."""


@dataclass(frozen=True)
class Chunk:
    """Some bags with all of their rows.

    Attributes
    ----------
    first : int
        The number of the first bag; others follow without gaps.
    rows : (r, d)
        The rows of the bags; for a linear mean their centroids are enough, one for each.
    index : (r,)
        The bag of each row, counted from the first.
    sizes, labels, noise_sd : (u,)
        Of each bag; labels with classes are (u, classes).
    offset : (r,) or None
        What is known of each row's linear predictor.
    """

    first: int
    rows: FloatArray
    index: IntArray
    sizes: IntArray
    labels: FloatArray
    noise_sd: FloatArray
    offset: FloatArray | None = None

    @property
    def exposure(self) -> FloatArray:
        """The factor of each row's rate, under a logarithmic link."""
        return np.ones(len(self.rows)) if self.offset is None else np.exp(self.offset)


OverChunks = Callable[[Callable[[Chunk], Any], Callable[[Any, Any], Any]], Any]
"""A map over all chunks; what it makes of them is merged. It is pickled on its way to them."""


def held_here(over: OverChunks) -> OverChunks:
    """Bring all chunks to this process, for many steps over little data."""
    chunks: list[Chunk] = over(lambda chunk: [chunk], operator.add)
    return lambda work, merge: reduce(merge, map(work, chunks))


@dataclass(frozen=True)
class Recipe:
    """The recipe that turns a chunk into a problem.

    Attributes
    ----------
    frame : Design
        The standardisation, without rows.
    by_row : bool
        Whether a bag has one row in its chunk.
    at_centroids : bool
        Whether the easier loss is meant, at centroids (`BagProblem.at_centroids`).
    of_rows : bool
        Whether instance loss is meant: every row with the label of its bag.
    unexplained : Unexplained
        What the labels' variance may hold beside what is known.
    """

    frame: Design
    family: Family
    by_row: bool
    at_centroids: bool = False
    of_rows: bool = False
    unexplained: Unexplained = NOTHING

    def on(self, chunk: Chunk, weights: Weights | None = None) -> BagProblem:
        """Return the problem of a chunk, with weights if any are given."""
        design = self.frame.about(chunk.rows, chunk.offset)
        bags, ones = Bags(chunk.index), np.ones(chunk.sizes.size)
        if self.of_rows:
            labels = spread_by_exposure(chunk.labels, chunk.offset, bags, self.family)
            return BagProblem(design, self.family, labels, mean_variance=np.ones(labels.size))
        sizes = chunk.sizes.astype(np.float64)
        trust = Trust("known-noise", "mean", sizes, chunk.noise_sd, ones, None, self.unexplained)
        members = None if self.by_row else Members.of(bags)
        kind = ClassProblem if self.family.has_classes else BagProblem
        whole: BagProblem = kind(design, self.family, chunk.labels, trust, members=members)
        local = (whole.at_centroids() if self.at_centroids else None) or whole
        return local if weights is None else local.reweighted(*weights)


class LossSums(NamedTuple):
    """Loss, weights, score and information, added up."""

    loss: float
    total: float
    score: FloatArray
    information: FloatArray


@dataclass(frozen=True)
class PartsProblem(BagProblem):
    """A loss on bags in parts; labels, sizes and noise of the bags are here, rows are not.

    Attributes
    ----------
    over : OverChunks
    recipe : Recipe
    n_rows : int
    weights : Weights or None
    weight_total : float
    """

    over: OverChunks = field(kw_only=True)
    recipe: Recipe = field(kw_only=True)
    n_rows: int = field(kw_only=True)
    weights: Weights | None = None
    weight_total: float = np.nan
    _seen: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_units(self) -> int:
        """How many bags there are; for instance loss, rows."""
        return self.n_rows if self.recipe.of_rows else len(self.labels)

    @property
    def total(self) -> float:
        """The weight of all bags together."""
        return self.weight_total

    def over_units(
        self, work: Callable[[BagProblem], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return the result of `work` on the bags with their weights, chunk by chunk."""
        on, weights = self.recipe.on, self.weights  # what travels: not the map to all chunks

        def go(chunk: Chunk) -> T:
            with np.errstate(all="ignore"):  # a step that goes too far is not taken
                return work(on(chunk, weights))

        merged: T = self.over(go, merge)
        return merged

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss."""
        value = self._sums(beta, self.weights).loss / self.total
        return value if np.isfinite(value) else np.inf

    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information."""
        sums = self._sums(beta, self.weights)
        return Equations(sums.score / self.total, sums.information / self.total)

    def reweighted(self, beta: FloatArray, phi: float | None = None) -> Self:
        """Return the same problem with weights from the variances at beta."""
        if self.trust is None:  # every row counts the same, whatever beta is
            pearson, total = self.over_units(
                lambda units: np.array([units.reweighted(beta).phi * units.total, units.total])
            )
            return replace(self, weight_total=total, phi=pearson / total)
        phi = self.trust.phi if phi is None else phi
        if phi is None:
            residuals = self.labels - self.moments(beta)[0]
            phi = self.trust.dispersion(residuals, self.label_variance(beta), self.width)
        total = self._sums(beta, (beta, phi)).total
        return replace(self, weights=(beta, phi), weight_total=total, phi=phi)

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the mean of each bag and its mean variance function."""
        mean, variance = self._gathered("moments", beta, lambda units: units.moments(beta)[:2])
        return mean, variance, np.zeros(1)

    def units(self, beta: FloatArray) -> Working:
        """Return all bags, which must be few, since they are brought to this process."""

        def columns(local: BagProblem) -> tuple[FloatArray, ...]:
            jacobian, residuals, variance = local.units(beta)
            return jacobian, residuals, variance.share, variance.known

        jacobian, residuals, share, known = self._gathered("units", beta, columns)
        variance = LabelVariance(share, known, self.rule.unexplained.least)
        return Working(jacobian, residuals, variance)

    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model near beta; a Gaussian problem is linear everywhere.

        Then one pass is enough for a whole fit.
        """
        # Residuals of classes are in units of their weights; of others, weights do not matter.
        weights = self.weights if self.family.has_classes else None
        on, over_chunks = self.recipe.on, self.over

        def over(work: Callable[[Working], T], merge: Callable[[T, T], T]) -> Any:
            return over_chunks(lambda chunk: work(on(chunk, weights).units(beta)), merge)

        place = () if self._is_linear else (beta.tobytes(), _key(weights))
        key = ("model", *place)
        model: LinearModel = self._seen.get(key) or self._remember(
            key, LinearModel.of(over, beta, least=self.rule.unexplained.least)
        )
        return model.rebased(beta)

    def at_centroids(self) -> "PartsProblem | None":
        """Return the aggregate loss, on fewer rows."""
        if self.recipe.by_row:
            return None
        recipe = replace(self.recipe, at_centroids=True)
        return replace(self, recipe=recipe, weights=None, _seen={})

    @property
    def _is_linear(self) -> bool:
        return self.family.name == "gaussian" and self.trust is not None

    def _remember(self, key: Any, made: T) -> T:
        """Keep a result; the oldest results are forgotten."""
        self._seen[key] = made
        for old in list(self._seen)[:-_REMEMBERED]:
            del self._seen[old]
        return made

    def _gathered(
        self, what: str, beta: FloatArray, work: Callable[[BagProblem], Any]
    ) -> list[FloatArray]:
        """Return the result of `work` for every bag at beta, in their order."""
        on = self.recipe.on

        def go(chunk: Chunk) -> list[tuple[int, Any]]:
            with np.errstate(all="ignore"):
                return [(chunk.first, work(on(chunk)))]

        key = (what, beta.tobytes())
        if key not in self._seen:
            parts = sorted(self.over(go, operator.add), key=operator.itemgetter(0))
            columns = zip(*(values for _, values in parts), strict=True)
            self._remember(key, [np.concatenate(column) for column in columns])
        gathered: list[FloatArray] = self._seen[key]
        return gathered

    def _sums(self, beta: FloatArray, weights: Weights | None) -> LossSums:
        """Return sums at beta; one pass adds up those under the next weights as well."""
        if self._is_linear and weights is not None:  # then the loss is the model: squares
            width, gram = self.width, self.working(beta).gram(weights[1])
            loss, total = float(gram[-2, -2]) / 2, float(gram[-1, -1])
            return LossSums(loss, total, gram[:width, -2], gram[:width, :width])
        asked = {_key(weights): weights}
        if self.trust is not None and self.trust.phi is not None:
            asked[_key((beta, self.trust.phi))] = (beta, self.trust.phi)
        if (_key(weights), beta.tobytes()) not in self._seen:
            on, each = self.recipe.on, list(asked.values())

            def judge(chunk: Chunk) -> tuple[Any, ...]:
                local, sums = on(chunk), list[Any]()
                with np.errstate(all="ignore"):
                    for w in each:
                        units = local if w is None else local.reweighted(*w)
                        total, (score, matrix) = units.total, units.equations(beta)
                        sums += [units.loss(beta) * total, total, score * total, matrix * total]
                return tuple(sums)

            added = iter(self.over(judge, all_added))
            for key, sums in zip(asked, zip(*[added] * 4, strict=True), strict=True):
                self._remember((key, beta.tobytes()), LossSums(*sums))
        found: LossSums = self._seen[_key(weights), beta.tobytes()]
        return found


def _key(weights: Weights | None) -> tuple[bytes, float] | None:
    return None if weights is None else (weights[0].tobytes(), weights[1])
