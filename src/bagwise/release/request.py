"""What is asked for, checked once: each verb makes a request of these records and hands it down."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from bagwise.bagging import BaggingStrategy, find_strategy
from bagwise.data.columns import find_column, select_features
from bagwise.data.encode import DEFAULT_MAX_LEVELS, Encoder
from bagwise.data.labels import Bounds, check_bounds, check_classes
from bagwise.engines import Rows
from bagwise.errors import (
    BagTooSmallError,
    BoundsError,
    BudgetError,
    ColumnError,
    StrategyError,
    check_name,
)
from bagwise.families import Family
from bagwise.models.from_statistics import check_bounds_of, family_to_release
from bagwise.privacy.aggregate import LabelKind, check_label_kind
from bagwise.privacy.calibrate import Calibration, ExactCalibration, NoiseKind
from bagwise.privacy.curves import check_delta, check_epsilon
from bagwise.privacy.mechanisms import NoisyChoice
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.privacy.promise import check_promise
from bagwise.privacy.units import Units, units_of
from bagwise.release.provenance import Reason
from bagwise.release.scores import GAUSSIAN, ScoresKind, resolve_scores
from bagwise.rng import NoiseSource, SecureNoise

AnyBounds = Sequence[float] | PrivateBounds | None
Names = str | Sequence[str] | None
AUTO: Literal["auto"] = "auto"

_OTHERWISE = " If a label is one of several classes, name them instead: classes=[...] (--classes)."


@dataclass(frozen=True)
class Columns:
    """Which columns play which part, and how features become X."""

    label: str
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    id: str | None = None
    unit: str | None = None
    nulls: str = "indicator"
    max_levels: int = DEFAULT_MAX_LEVELS

    @classmethod
    def of(
        cls,
        label: str,
        *,
        classes: Sequence[str] | None = None,
        features: Names = None,
        exclude: Names = (),
        id: str | None = None,
        unit: str | None = None,
        nulls: str = "indicator",
        max_levels: int = DEFAULT_MAX_LEVELS,
    ) -> Self:
        """Check names as a user gives them.

        >>> Columns.of("rent", features="area").features
        ('area',)
        """
        for role, name in (("label", label), ("id", id), ("unit", unit)):
            if not isinstance(name, str) and (name is not None or role == "label"):
                raise ColumnError(f"{role} must be the name of a column, got {name!r}.")
        for role, name in (("id", id), ("unit", unit)):
            if name == label:
                raise ColumnError(f"{role} and label name the same column.")
        chosen = None if features is None else _names(features)
        named = check_classes(classes)
        return cls(label, named, chosen, _names(exclude), id, unit, nulls, max_levels)

    @property
    def reserved(self) -> dict[str, str]:
        """Columns that are no features, by the part that they play."""
        roles = {"label": self.label, "id": self.id, "unit": self.unit}
        return {role: name for role, name in roles.items() if name is not None}

    @property
    def named(self) -> list[str]:
        """Columns that the caller asked for by name."""
        return [*self.reserved.values(), *(self.features or ())]

    def features_in(self, rows: Rows) -> list[str]:
        """Return the names of the features, if every column that was asked for is there."""
        for role, name in self.reserved.items():
            find_column(rows, name, role=role)
        reserved = list(self.reserved.values())
        return select_features(
            rows, reserved=reserved, features=self.features, exclude=self.exclude
        )

    def encoder_for(self, rows: Rows, names: Sequence[str]) -> Encoder:
        """Write the recipe from these features to X."""
        facts, named, levels = rows.summarise(names), self.features or (), self.max_levels
        return Encoder.from_summaries(facts, named=named, max_levels=levels, nulls=self.nulls)


@dataclass(frozen=True)
class Budget:
    """What is promised about labels, and whose; what was spent on it before.

    Attributes
    ----------
    calibration : Calibration or None
        None where nothing is promised, and nothing is hidden.
    bounds : (lo, hi) or None
        Public range of a label.
    unit : str or None
        The column whose values are protected together; None: each row by itself.
    noise_source : NoiseSource
    """

    calibration: Calibration | None = None
    bounds: Bounds | None = None
    unit: str | None = None
    noise_source: NoiseSource = field(default_factory=SecureNoise)

    @classmethod
    def of(
        cls,
        epsilon: float | None,
        delta: float | None,
        *,
        bounds: AnyBounds = None,
        unit: str | None = None,
        classes: bool = False,
        not_private: bool = False,
        noise: NoiseKind = "auto",
        noise_source: NoiseSource | None = None,
        calibration: Calibration | None = None,
        what: str = "release",
    ) -> Self:
        """Check what a user asks for; `what` is the word for it in messages.

        Without a delta the promise is pure.

        >>> Budget.of(1.0, None, bounds=(0, 5)).calibration
        ExactCalibration(epsilon=1.0, delta=0.0, bounds=(0.0, 5.0), prior=(), noise='auto')
        """
        _check_noise(noise)
        if classes and bounds is not None:
            raise BoundsError("a label with classes has no bounds; leave them out.")
        limits, prior = _resolve_bounds((0.0, 1.0) if classes else bounds, unit, what)
        source = SecureNoise() if noise_source is None else noise_source
        if calibration is not None:
            rule: Calibration | None = _check_experiment(
                calibration, prior, alone=epsilon is delta is None, not_private=not_private
            )
        elif _wants_noise(epsilon, delta, source, not_private=not_private, what=what):
            rule = _exact_calibration(epsilon, delta, limits, prior, noise, what)
        else:
            rule, limits = None, None if classes else limits
        if noise != AUTO and not isinstance(rule, ExactCalibration):
            raise BudgetError(f"noise={noise!r} belongs to a promise; give an epsilon with it.")
        return cls(rule, limits if rule is None else rule.bounds, unit, source)

    def check_rows(self, n_rows: int) -> None:
        """Refuse an empty promise; experiments, which promise nothing, may have any parameters."""
        rule = self.calibration
        if rule is not None and rule.is_exact and self.noise_source.is_secret:
            check_promise(rule.epsilon, rule.delta, n_rows=n_rows)

    def units_in(self, table: Rows) -> Units:
        """Return who is protected; refuse bounds that were found for smaller units."""
        if self.unit is None:
            return Units()
        find_column(table, self.unit, role="unit")
        units = units_of(table, self.unit)
        prior = () if self.calibration is None else self.calibration.prior
        if any(event.rows < units.largest for event in prior):
            raise BudgetError(
                f"the bounds were found for units of fewer than {units.largest} rows. "
                "Find them again on this table, with the same unit."
            )
        return units


@dataclass(frozen=True)
class BoundsRequest:
    """Private bounds for a label."""

    columns: Columns
    budget: Budget
    epsilon: float
    outside: float

    @classmethod
    def of(cls, columns: Columns, *, epsilon: float, outside: float) -> Self:
        """Check what a user asks for."""
        check_epsilon(epsilon)
        return cls(columns, Budget(unit=columns.unit), epsilon, outside)


@dataclass(frozen=True)
class ModelRequest:
    """A private model, released instead of bags."""

    columns: Columns
    budget: Budget
    calibration: Calibration
    family: Family

    @classmethod
    def of(cls, columns: Columns, budget: Budget, *, family: str = AUTO, link: str = AUTO) -> Self:
        """Check that there is a budget, and that the family can be released and has the bounds."""
        rule = budget.calibration
        if rule is None:
            raise BudgetError("a private model needs an epsilon (--epsilon).")
        chosen = family_to_release(family, link)
        check_bounds_of(chosen, rule.bounds)
        return cls(columns, budget, rule, chosen)


@dataclass(frozen=True)
class Choice:
    """Every decision about a release: nothing here is "auto" but the share of scores.

    The family is that of a private model for scores.
    """

    columns: Columns
    budget: Budget
    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    score_share: float | Literal["auto"]
    label_kind: LabelKind
    keep_order: bool
    seed: int | None
    why: Reason | None = None
    family: Family = GAUSSIAN

    @property
    def calibration(self) -> Calibration | None:
        """The rule for noise, if there is any."""
        return self.budget.calibration

    @property
    def bounds(self) -> Bounds | None:
        """Public range of a label."""
        return self.budget.bounds

    @property
    def noise_source(self) -> NoiseSource:
        """Where secrets are drawn from."""
        return self.budget.noise_source


@dataclass(frozen=True)
class ReleaseRequest:
    """A release as it was asked for; the planner may have to choose how rows are put together.

    Attributes
    ----------
    bag_size : int or None
        None: the planner chooses it.
    strategy : BaggingStrategy or None
        None: the planner chooses it.
    min_bag_size : int or None
        The smallest that the planner may choose.
    strategies : tuple or None
        Those that the planner may choose from; None: all that it knows.
    family : str
        Distribution of a label, for the planner and for a private model that rows are sorted by.
    """

    columns: Columns
    budget: Budget
    label_kind: LabelKind
    bag_size: int | None
    min_bag_size: int | None
    strategy: BaggingStrategy | None
    strategies: tuple[str | BaggingStrategy, ...] | None
    family: str
    scores: str
    score_share: float | Literal["auto"]
    keep_order: bool
    seed: int | None

    @classmethod
    def of(
        cls,
        columns: Columns,
        budget: Budget,
        *,
        label_kind: str,
        bag_size: int | Literal["auto"] | None,
        strategy: str | BaggingStrategy,
        parameters: Any,
        scores: str,
        score_share: float | Literal["auto"],
        keep_order: bool,
        seed: int | None,
        min_bag_size: int | None = None,
        strategies: str | Sequence[str | BaggingStrategy] | None = None,
        family: str = AUTO,
    ) -> Self:
        """Check what a user asks for, as far as it can be told without the table."""
        size = _resolve_size(bag_size, min_bag_size, private=budget.calibration is not None)
        if strategies is not None and strategy != AUTO:
            raise StrategyError("give a strategy, or strategies for the planner, not both.")
        listed = (strategies,) if isinstance(strategies, str) else strategies
        return cls(
            columns=columns,
            budget=budget,
            label_kind=check_label_kind(label_kind),
            bag_size=size,
            min_bag_size=min_bag_size,
            strategy=_resolve_strategy(strategy, parameters, size, scores, budget),
            strategies=None if listed is None else tuple(listed),
            family=family,
            scores=scores,
            score_share=score_share,
            keep_order=keep_order,
            seed=_check_seed(seed),
        )

    def choose(
        self,
        strategy: BaggingStrategy,
        bag_size: int,
        scores: str,
        *,
        score_share: float | None = None,
        why: Reason | None = None,
    ) -> Choice:
        """Return the choice of this strategy; `score_share` replaces what was asked."""
        private = self.budget.calibration is not None
        kind = resolve_scores(scores, strategy=strategy, private=private)
        if self.columns.classes is not None and kind != "none":
            raise StrategyError(
                "classes cannot be sorted; use a strategy that looks at features only."
            )
        return Choice(
            columns=self.columns,
            budget=self.budget,
            bag_size=bag_size,  # checked with the rows
            strategy=strategy,
            scores=kind,
            score_share=_check_share(score_share or self.score_share, kind),
            label_kind=self.label_kind,
            keep_order=self.keep_order,
            seed=self.seed,
            why=why,
            family=self._family_of_scores() if kind == "model" else GAUSSIAN,
        )

    def _family_of_scores(self) -> Family:
        """Return the family of a private model that rows are sorted by."""
        family = family_to_release(self.family)
        if self.budget.bounds is not None:
            check_bounds_of(family, self.budget.bounds)
        return family


def _names(names: Names) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else tuple(names or ())
    if not all(isinstance(name, str) for name in listed):
        raise ColumnError("features and exclude are names of columns.")
    return listed


def _resolve_bounds(
    bounds: AnyBounds, unit: str | None, what: str
) -> tuple[Bounds | None, tuple[NoisyChoice, ...]]:
    """Return the public range of a label, and what was spent on finding it."""
    if not isinstance(bounds, PrivateBounds):
        return check_bounds(bounds), ()
    if bounds.unit != unit:
        raise BoundsError(
            f"the bounds were found for unit {bounds.unit!r}, the {what} protects {unit!r}. "
            "Find them again with the same unit."
        )
    return check_bounds(bounds.bounds), (bounds.event,)


def _wants_noise(
    epsilon: float | None, delta: float | None, source: NoiseSource, *, not_private: bool, what: str
) -> bool:
    """Tell whether anything is to be hidden; experiments hide it behind noise that is no secret."""
    given = epsilon is not None or delta is not None
    if not source.is_secret and not not_private:
        raise BudgetError("simulated noise is not private: say so with not_private=True.")
    if given and not_private and source.is_secret:
        raise BudgetError("give either epsilon, or not_private, not both.")
    if not given and not not_private:
        raise BudgetError(
            f"say how private the {what} is: epsilon (for example --epsilon 1), with a delta or "
            "without, or not_private=True (--not-private) to release exact aggregates."
        )
    return given


def _exact_calibration(
    epsilon: float | None,
    delta: float | None,
    bounds: Bounds | None,
    prior: tuple[NoisyChoice, ...],
    noise: NoiseKind,
    what: str,
) -> ExactCalibration:
    """Return the rule for a promise; one without a delta is pure."""
    if epsilon is None:
        raise BudgetError("a delta alone promises nothing; give an epsilon with it.")
    delta = 0.0 if delta is None else delta
    check_epsilon(epsilon)
    check_delta(delta)
    if bounds is None:
        raise BoundsError(
            f"a private {what} needs bounds=(lo, hi) (--bounds LO HI): the range a label can have, "
            f"known without looking at these labels.{_OTHERWISE if what == 'release' else ''}"
        )
    return ExactCalibration(float(epsilon), float(delta), bounds, prior, noise)


def _check_noise(noise: object) -> None:
    """Refuse a source of randomness, which has a name of its own; other names are listed later."""
    if isinstance(noise, NoiseSource):
        raise BudgetError(
            "noise= takes the name of a kind of noise; a source of randomness goes to "
            "noise_source=."
        )
    check_name("noise", noise, get_args(NoiseKind), BudgetError)


def _check_experiment(
    calibration: Calibration, prior: tuple[NoisyChoice, ...], *, alone: bool, not_private: bool
) -> Calibration:
    if prior:
        raise BudgetError("a calibration brings its own bounds; it cannot charge for others.")
    if not alone:
        raise BudgetError("a calibration brings its own epsilon and delta; do not give them too.")
    if calibration.is_exact:
        raise BudgetError("the exact calibration is what epsilon and delta stand for; give those.")
    if not not_private:
        raise BudgetError("only the exact calibration delivers privacy; say not_private=True.")
    return calibration


def _resolve_size(
    bag_size: int | Literal["auto"] | None, least: int | None, *, private: bool
) -> int | None:
    """Return the size that was named; None where the planner is to choose it."""
    if bag_size is None and not private:
        raise BagTooSmallError(
            "a release that is not private needs a bag size (--bag-size): how many rows must share "
            "a label is for you to say. 'auto' leaves it to the planner."
        )
    if isinstance(bag_size, str) and bag_size != AUTO:
        raise BagTooSmallError(f"bag_size must be a whole number or 'auto', got {bag_size!r}.")
    if least is not None and not (type(least) is int and least >= 1):
        raise BagTooSmallError(f"min_bag_size must be a whole number from 1 on, got {least!r}.")
    size = None if bag_size == AUTO else bag_size
    if size is not None and least is not None and size < least:
        raise BagTooSmallError(f"bag_size {size} is below min_bag_size {least}.")
    return size


def _resolve_strategy(
    strategy: str | BaggingStrategy,
    parameters: Any,
    bag_size: int | None,
    scores: str,
    budget: Budget,
) -> BaggingStrategy | None:
    """Return the strategy that was named; None where the planner is to choose one."""
    known = scores in (AUTO, "none")  # what else there is will be refused with a list
    plannable = known and (budget.calibration is None or budget.calibration.is_exact)
    if bag_size is None and not plannable:
        raise StrategyError(
            "the planner knows no bag size for these scores, or for noise of an experiment: name "
            "one (bag_size, --bag-size)."
        )
    if strategy != AUTO:
        return find_strategy(strategy, parameters)
    if parameters:
        raise StrategyError("parameters belong to a strategy; name one instead of 'auto'.")
    if scores in ("labels", "noisy-labels", "model"):
        raise StrategyError(
            f"scores={scores!r} are for a strategy that sorts: name strategy='sorted'. 'auto' "
            "chooses scores by itself, and never the labels."
        )
    return None if plannable else find_strategy("random")


def _check_seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:  # a manifest has no larger numbers
        raise StrategyError(
            f"seed must be a whole number of at least 0 and below 2**63, or None, got {seed!r}."
        )
    return int(seed)


def _check_share(share: float | Literal["auto"], kind: ScoresKind) -> float | Literal["auto"]:
    if share != AUTO and kind not in ("noisy-labels", "model"):
        raise BudgetError("score_share belongs to scores that cost something; leave it at 'auto'.")
    if share != AUTO and not (isinstance(share, int | float) and 0 < share < 1):
        raise BudgetError(f"score_share must be above 0 and below 1, or 'auto', got {share!r}.")
    return share
