"""The estimating equations of all losses, in one form for one solver.

Each loss compares labels with expected values, unit by unit, and asks for the beta at which

    sum_u  Z_u (label_u - mean_u(beta))  =  0

with instruments Z that depend on the loss:

============  =====================  ============================  ============================
loss          unit                   mean                          Z
============  =====================  ============================  ============================
instance      row (its bag's label)  mean(eta of the row)          x * slope / variance
aggregate     bag                    mean(eta of the centroid)     c * slope / omega
bag           bag                    average of its rows' means    average of slope * x, / omega
============  =====================  ============================  ============================

For the Gaussian family bag and aggregate loss coincide, and for bags of one row all three do.

`FitProblem` is what the solver knows. A `BagProblem` has bags in parts, possibly on many machines;
in memory there is one part. Nothing about a fit asks for more of them than sums (`units`), and the
least and the most of something. Weights depend on all bags by two numbers only, the beta of the
last reweighting and the dispersion, so that a part knows them by itself. A step of the solver is
one pass: whoever asks for the loss at a new beta gets the equations there, under the weights that
would come next, from the same pass.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import scipy

from bagwise._types import AnyArray, FloatArray
from bagwise.families import Family
from bagwise.glm.classes import ClassUnits
from bagwise.glm.data import BagData
from bagwise.glm.design import Design, centroids_of, remember, spread_by_exposure
from bagwise.glm.linear import LinearModel, Working, all_added
from bagwise.glm.units import Sums, Units, Weights
from bagwise.glm.weights import LabelVariance, Trust, estimate_dispersion

T = TypeVar("T")

OverUnits = Callable[[Callable[[Units], Any], Callable[[Any, Any], Any]], Any]
"""A map over the parts of all units; what it makes of them is merged."""

_REMEMBERED = 8  # sums that may be asked for again
FAR = 20.0  # a chance of 2e-9, a rate of 5e8: few estimates get there by themselves


class Equations(NamedTuple):
    """Score (p,) and information (p, p), per unit of weight, without penalty."""

    score: FloatArray
    information: FloatArray


class FitProblem(ABC):
    """What a solver knows of noisy answers about labels: sums at a beta, under weights of its own.

    Attributes
    ----------
    family : Family
    """

    family: Family

    @property
    @abstractmethod
    def phi(self) -> float:
        """The dispersion at the last reweighting.

        In units of ``phi / n_units``, the information of the mean loss is one over the square of a
        standard error.
        """

    @property
    @abstractmethod
    def n_units(self) -> int:
        """How many labels are compared with expected values."""

    @property
    @abstractmethod
    def total(self) -> float:
        """The weight of all units together."""

    @abstractmethod
    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean loss at fixed weights; infinite outside the family's range."""

    @abstractmethod
    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information of the mean loss."""

    @abstractmethod
    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""

    @abstractmethod
    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""

    @abstractmethod
    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model that the problem is close to beta, without bags of no weight."""

    @abstractmethod
    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta leads to implausible expected labels."""


@dataclass(frozen=True)
class Loss:
    """What is compared with the labels of bags, and how these are weighed.

    Instance loss gives every row its bag's label (Def. 1; F1 of the theory page). Aggregate loss
    compares each bag's label with the expected label at its centroid (Def. 3; F2), and bag loss
    with the mean of its rows' expected labels (Def. 2; F2). Where a bag is one row, or the expected
    label is linear, the last two are the same, and centroids are less work.

    Attributes
    ----------
    name : {"instance", "aggregate", "bag"}
    trust : Trust
        The rule for weights, without bags.
    """

    name: str
    family: Family
    trust: Trust
    fit_intercept: bool

    def units(self, data: BagData, frame: Design | None = None) -> Units:
        """Return the units of some data, standardised by their own columns or as in `frame`."""

        def design(rows: FloatArray, weight: FloatArray, offset: FloatArray | None) -> Design:
            if frame is not None:
                return frame.about(rows, offset)
            return Design.of(rows, weight, fit_intercept=self.fit_intercept, offset=offset)

        family, known = self.family, (data.noise_sd, data.weight)
        kind = ClassUnits if family.has_classes else Units
        if self.name == "instance":
            weight = data.bags.repeat(data.weight) if data.row_weight is None else data.row_weight
            ones, labels = np.ones(len(data.X)), data.labels
            labels = spread_by_exposure(labels, data.offset, data.bags, family)
            trust = self.trust.over(ones, 0 * ones, weight)
            return kind(design(data.X, weight, data.offset), family, labels, trust)
        trust, is_line = self.trust.over(data.sizes, *known), family.name == "gaussian"
        if self.name == "bag" and not (data.single_rows or is_line):
            rows = design(data.X, data.row_weights, data.offset)
            return kind(rows, family, data.labels, trust, data.members, first=data.first)
        middle, offset, inside = data.X, data.offset, None
        if not data.single_rows:
            middle, offset = centroids_of(middle, offset, data.means, family)
        rows = design(middle, trust.base, offset)
        curved = not is_line or trust.label_kind == "pick"
        if curved and not (data.single_rows or family.has_classes):
            inside = (rows.about(data.X, data.offset), data.members)
        return kind(rows, family, data.labels, trust, inside=inside, first=data.first)


@dataclass(frozen=True)
class BagProblem(FitProblem):
    """A loss on labels of rows, of centroids, or of bags with all their rows.

    Attributes
    ----------
    over : OverUnits
    design : Design
        The standardisation; rows in memory are its rows.
    family : Family
    labels : (m,) or (m, classes)
    trust : Trust
        The rule for weights, with all bags.
    n_units, outputs : int
        How many labels there are, and how many values one has: contrasts of classes.
    here : Units or None
        The units, if they are in memory.
    weights : Weights or None
    total : float
        The weight of all units together.
    """

    over: OverUnits
    design: Design
    family: Family
    labels: FloatArray
    trust: Trust
    n_units: int = 0
    outputs: int = 1
    here: Units | None = None
    weights: Weights | None = None
    total: float = np.nan
    _seen: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, loss: Loss, data: BagData) -> Self:
        """Return the problem of some data, wherever their rows are."""
        family, trust = loss.family, loss.trust.over(data.sizes, data.noise_sd, data.weight)
        if loss.name == "instance":
            trust = replace(trust, noise_sd=0 * trust.noise_sd)
        outputs = data.labels.shape[1] - 1 if family.has_classes else 1
        if data.parts is None or data.moments is None:
            units = loss.units(data)

            def here(work: Callable[[Units], T], _: Any) -> T:
                return work(units)

            design, n_units = units.design, len(units.labels)
            return cls(here, design, family, data.labels, trust, n_units, outputs, units)
        frame = Design.of_moments(data.moments, fit_intercept=loss.fit_intercept)
        over_parts = data.parts

        def over(work: Callable[[Units], T], merge: Callable[[T, T], T]) -> Any:
            return over_parts(lambda part: work(loss.units(part, frame)), merge)

        n_units = data.bags.n_rows if loss.name == "instance" else data.bags.n_bags
        return cls(over, frame, family, data.labels, trust, n_units, outputs)

    @property
    def width(self) -> int:
        """Number of entries of beta."""
        return self.design.width * self.outputs

    @property
    def phi(self) -> float:
        """The dispersion at the last reweighting."""
        return 1.0 if self.weights is None else self.weights.phi

    @property
    def noisy(self) -> bool:
        """Whether labels are known to carry noise."""
        return bool(self.trust.noise_sd.any())

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps beta to coefficients, then intercept, of each value."""
        return np.asarray(np.kron(np.eye(self.outputs), self.design.to_own_units()))

    # --- passes over the parts

    def over_units(
        self, work: Callable[[Units], T], merge: Callable[[Any, Any], Any] = operator.add
    ) -> T:
        """Return the result of `work` on the units with their weights, part by part."""
        weights = self.weights  # what travels: not the problem

        def go(units: Units) -> T:
            with np.errstate(all="ignore"):  # a step that goes too far is not taken
                return work(units.weighed(weights))

        merged: T = self.over(go, merge)
        return merged

    def gathered(self, what: str, beta: FloatArray) -> list[FloatArray]:
        """Return what a method of `Units` does of all of them, in their order."""

        def work(units: Units) -> list[tuple[int, Any]]:
            values = getattr(units, what)(beta)
            return [(units.first, values if isinstance(values, tuple) else (values,))]

        def make() -> list[FloatArray]:
            parts = sorted(self.over_units(work), key=operator.itemgetter(0))
            by_column = zip(*(columns for _, columns in parts), strict=True)
            return [np.concatenate(column) for column in by_column]

        key = (what, beta.tobytes(), self.weights and self.weights.key)
        return remember(self._seen, key, make, most=_REMEMBERED)

    def _sums(self, beta: FloatArray, weights: Weights, *, ahead: bool = False) -> Sums:
        """Return sums at beta; `ahead` adds up those under the next weights in the same pass."""
        key = (beta.tobytes(), weights.key)
        if self._is_one_pass and key not in self._seen:  # the loss is the model: squares
            gram, width = self.working(beta).gram(weights.phi), self.width
            score, information = gram[:width, -2], gram[:width, :width]
            return Sums(float(gram[-2, -2]) / 2, float(gram[-1, -1]), score, information)
        if key in self._seen:
            return cast(Sums, self._seen[key])

        def judge(units: Units) -> tuple[Any, ...]:
            with np.errstate(all="ignore"):
                if not ahead:
                    return units.weighed(weights).sums(beta)
                loss = units.weighed(weights).loss(beta)
                return (loss, *units.weighed(follows).sums(beta))

        follows = Weights(beta, weights.phi, known=True)
        added = self.over(judge, all_added)
        if not ahead:
            sums = remember(self._seen, key, lambda: Sums(*added), most=_REMEMBERED)
            return cast(Sums, sums)
        loss, *rest = added
        remember(self._seen, (key[0], follows.key), lambda: Sums(*rest), most=_REMEMBERED)
        return Sums(loss, np.nan, np.zeros(0), np.zeros((0, 0)))

    @property
    def _is_one_pass(self) -> bool:
        """Whether labels are linear everywhere, and rows so far away that one pass must do."""
        return self.here is None and self.is_line and self.trust.rule == "known-noise"

    @property
    def is_line(self) -> bool:
        """Whether expected labels are linear in beta."""
        return self.family.name == "gaussian"

    # --- what the solver asks for

    @property
    def _weighed(self) -> Weights:
        if self.weights is None:
            raise AssertionError("weights come from a beta")
        return self.weights

    def loss(self, beta: FloatArray) -> float:
        """Return the weighted mean of ``b(eta) - label * eta``; for bags of squares, halved."""
        weights = self._weighed
        ahead = weights.known and self.trust.phi is not None
        value = float(self._sums(beta, weights, ahead=ahead).loss) / self.total
        return value if np.isfinite(value) else math.inf

    def equations(self, beta: FloatArray) -> Equations:
        """Return score and information."""
        sums = self._sums(beta, self._weighed)
        return Equations(sums.score / self.total, sums.information / self.total)

    def reweighted(self, beta: FloatArray) -> Self:
        """Return the same problem with weights from the variances at beta."""
        known = self.trust.phi
        phi = self._dispersion(beta) if known is None else known
        weights = Weights(beta, phi, known is not None)
        return replace(self, weights=weights, total=self._sums(beta, weights).total)

    def _dispersion(self, beta: FloatArray) -> float:
        """Return Pearson's estimate; where some variance is known, all residuals are asked for."""
        if self.family.has_classes:
            return 1.0

        def pearson(units: Units) -> AnyArray:
            off, share, known = units.residuals(beta)
            return np.array([np.sum(off**2 / share), off.size, known.any()])

        squares, count, some_known = self.over_units(pearson)
        if not some_known:
            return float(squares) / max(1.0, float(count) - self.width)
        off, share, known = self.gathered("residuals", beta)
        variance = LabelVariance(share, known, self.trust.unexplained.least)
        return estimate_dispersion(off, variance, n_parameters=self.width)

    def with_dispersion(self, phi: float) -> Self:
        """Return the same problem with a dispersion that counts as known."""
        return replace(self, trust=replace(self.trust, phi=phi))

    def counted_with(self, phi: float) -> Self:
        """Return the same problem at the same weights, labels varying by another dispersion."""
        return replace(self, weights=self._weighed._replace(phi=phi))

    def working(self, beta: FloatArray) -> LinearModel:
        """Return the linear model near beta, without bags of no weight."""
        # Residuals of classes are in units of their weights; of others, weights do not matter.
        weights = self.weights if self.family.has_classes else None
        over_units, least = self.over, self.trust.unexplained.least

        def make() -> LinearModel:
            units = self.here
            if units is not None:
                return LinearModel.of(units.weighed(weights).near(beta).over, beta, least=least)

            def over(work: Callable[[Working], T], merge: Callable[[T, T], T]) -> Any:
                return over_units(lambda units: work(units.weighed(weights).near(beta)), merge)

            return LinearModel.of(over, beta, least=least)

        key = ("model", *(() if self._is_one_pass else (beta.tobytes(), weights and weights.key)))
        model: LinearModel = remember(self._seen, key, make, most=_REMEMBERED)
        return model.rebased(beta)

    def runs_away(self, beta: FloatArray) -> bool:
        """Whether beta is diverging, as far as eta shows it."""
        if not self.family.knows_dispersion:
            return False
        farthest: float = self.over(lambda units: float(np.abs(units.eta(beta)).max()), max)
        return farthest > FAR

    def near(self, beta: FloatArray) -> Working:
        """Return all bags close to beta, which must be few: they are brought to this process."""
        if self.here is not None:
            return self.here.weighed(self.weights).near(beta)
        jacobian, residuals, share, known = self.gathered("columns", beta)
        variance = LabelVariance(share, known, self.trust.unexplained.least)
        return Working(jacobian, residuals, variance)

    # --- where a search starts

    def at_centroids(self) -> Self:
        """Return the problem of an easier loss in the same coordinates, to start from."""
        over_units, here = self.over, self.here

        def over(work: Callable[[Units], T], merge: Callable[[T, T], T]) -> Any:
            return over_units(lambda units: work(units.at_centroids), merge)

        units = None if here is None else here.at_centroids
        return replace(self, over=over, here=units, weights=None, _seen={})

    def constant_start(self) -> FloatArray:
        """Return the beta that predicts about the mean label everywhere."""
        start = np.zeros((self.outputs, self.design.width))
        if not self.design.fit_intercept:
            return start.ravel()
        # 1. The mean label, its error by noise, and the exposure: sums over units.
        total, labels, noise, exposed, exposure = self.over(_facts_of, all_added)
        mean = labels / total
        if self.family.has_classes:
            start[:, -1] = self.family.predictor(np.clip(mean, 0.01, 0.99))
            return start.ravel()
        # 2. Noise may have carried it out of the range, or next to its end.
        limits = np.array(self.family.label_range)
        if noise > 0 and np.isfinite(limits).any():
            error = np.sqrt(noise) / total
            ends = (limits - mean) / error
            mean = scipy.stats.truncnorm.mean(*ends, loc=mean, scale=error)
        start[:, -1] = self.family.predictor(np.array(self.family.interior(float(mean))))
        if exposed:  # a row with the mean exposure has this offset
            start[:, -1] -= self.family.predictor(np.asarray(exposure / total))
        return start.ravel()


def _facts_of(units: Units) -> tuple[Any, ...]:
    """Return weights, labels, squared noise, and exposure, added up."""
    base, offset = units.trust.base, units.design.offset
    noise = float(np.sum((base * units.trust.noise_sd) ** 2))
    exposure = 0.0 if offset is None else base @ units.average(units.family.mean(offset))
    return base.sum(), base @ units.labels, noise, int(offset is not None), exposure
