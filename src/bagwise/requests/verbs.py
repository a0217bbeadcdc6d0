"""Requests of the public functions, checked once and passed to the layers below."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, cast, get_args

import numpy as np
import pyarrow as pa

from bagwise.bagging import STRATEGIES, BaggingStrategy, find_strategy, measures_by_scores
from bagwise.errors import (
    BagTooSmallError,
    BudgetError,
    StrategyError,
    check_name,
)
from bagwise.families import Family
from bagwise.glm.statistic import check_bounds_of, family_to_release
from bagwise.privacy.calibrate import (
    SINGLE_LABELS,
)
from bagwise.privacy.noise import LabelKind, check_label_kind
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.provenance import Reason
from bagwise.requests.queries import (
    NO_SCORES,
    OWN_MODEL,
    Centre,
    ScoresKind,
    ScoresRequest,
    Tighten,
    resolve_scores,
)
from bagwise.requests.records import Bagging, Privacy

AUTO: Literal["auto"] = "auto"

Learner = Literal["linear", "flexible"]

SMALLEST = 10
"""Rows of the smallest bag if none is stated: nobody asked to publish anything about fewer."""


@dataclass(frozen=True)
class Request:
    """The parts that every request has.

    Attributes
    ----------
    tighten, centre : str
        Queries on the labels before any others (`queries`); "none" where there can be none.
    """

    columns: Columns
    budget: Budget
    tighten: Tighten
    centre: Centre

    @property
    def scores_request(self) -> ScoresRequest:
        """The scores in the form that `settle_queries` takes; none before bags are planned."""
        return NO_SCORES

    def of_type(self, kind: pa.DataType) -> Self:
        """Return the request for a label of this type; refuse one that has no bounds."""
        budget = self.budget.of_type(kind, "release")
        if budget.find_within == self.budget.find_within:
            return replace(self, budget=budget)
        # True and false: there is no range to look for, and nothing to centre.
        tighten: Tighten = "none" if self.tighten == AUTO else self.tighten
        centre: Centre = "none" if self.centre == AUTO else self.centre
        return replace(self, budget=budget, tighten=tighten, centre=centre)


@dataclass(frozen=True)
class ModelRequest(Request):
    """A private model, released instead of bags."""

    family: Family

    @classmethod
    def of(
        cls, columns: Columns, budget: Budget, *, family: str = AUTO, tighten: str = AUTO
    ) -> Self:
        """Check that there is a budget, and that the family can be released and has the bounds."""
        rule = budget.calibration
        if rule is None:
            raise BudgetError("a private model needs an epsilon (--epsilon).")
        chosen = family_to_release(family)
        check_bounds_of(chosen, rule.bounds)
        look = _resolve_query("tighten", tighten, get_args(Tighten), budget, family=chosen.name)
        return cls(columns, budget, cast(Tighten, look), "none", chosen)

    @property
    def scores_request(self) -> ScoresRequest:
        """The model itself, with all that is left of the budget."""
        return OWN_MODEL


@dataclass(frozen=True)
class ReleaseRequest(Request):
    """A release as requested; the planner may still have to choose strategy and size.

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
        Distribution of a label, for the planner and for a private model that rows are sorted by or
        labels centred on.
    learner : {"linear", "flexible"}
        Who the bags are for, where the planner chooses a strategy or a size.
    missing_labels : int or None
        Rows that were left out because their label is missing; None: such rows are refused.
    """

    label_kind: LabelKind
    bag_size: int | None
    min_bag_size: int | None
    strategy: BaggingStrategy | None
    strategies: tuple[BaggingStrategy, ...] | None
    family: str
    scores: str
    keep_order: bool
    seed: int | None
    learner: Learner
    missing_labels: int | None = None

    @classmethod
    def of(
        cls,
        columns: Columns,
        budget: Budget,
        *,
        bag_size: int | Literal["auto"] | None = None,
        strategy: str | BaggingStrategy = AUTO,
        learner: str = "linear",
        bagging: Bagging | None = None,
        privacy: Privacy | None = None,
        keep_order: bool = False,
    ) -> Self:
        """Check the user's arguments as far as that is possible without the table."""
        bagging, privacy = bagging or Bagging(), privacy or Privacy()
        check_name("learner", learner, get_args(Learner))
        least, centre = bagging.min_bag_size, privacy.centre
        size = _resolve_size(bag_size, least, private=budget.calibration is not None)
        if columns.by:  # there is nothing to plan: bags are given but for the smallest
            size = size or least or SMALLEST
            strategy = "groups" if strategy == AUTO else strategy
        if (rule := budget.calibration) is not None and rule.noise in SINGLE_LABELS:
            _check_single(rule.noise, columns, size, strategy, bagging.label_kind, centre)
            size, strategy, centre = 1, "random", "none"
        named = bagging.strategies
        if named is not None and strategy != AUTO:
            raise StrategyError("give a strategy, or strategies for the planner, not both.")
        listed = (named,) if isinstance(named, str) else named
        classes = columns.classes is not None
        if learner == "flexible" and listed is not None:
            raise StrategyError(
                "strategies can only be ranked for linear learners: with learner='flexible', name "
                "one strategy or none."
            )
        chosen = _resolve_strategy(strategy, size, bagging.scores)
        _check_groups(chosen, columns.by)
        # A range or a centre gains nothing for classes, and a centre nothing for picks.
        unranged = "classes have no range to tighten; leave tighten at 'auto'." if classes else ""
        uncentred = "classes" if classes else "picked labels"
        uncentred += (
            " cannot be centred: changing a label changes its residual by the same amount. Use "
            "centre='auto' (--centre auto)."
        )
        if not classes and bagging.label_kind != "pick":
            uncentred = ""
        resolve = partial(_resolve_query, budget=budget, family=bagging.family)
        return cls(
            columns=columns,
            budget=budget,
            tighten=resolve("tighten", privacy.tighten, get_args(Tighten), refused=unranged),
            centre=resolve("centre", centre, get_args(Centre), refused=uncentred),
            label_kind=check_label_kind(bagging.label_kind),
            bag_size=size,
            min_bag_size=least,
            strategy=chosen,
            strategies=None if listed is None else tuple(map(find_strategy, listed)),
            family=bagging.family,
            scores=bagging.scores,
            keep_order=keep_order,
            seed=_check_seed(bagging.seed),
            learner=cast(Learner, learner),
        )

    @property
    def named(self) -> tuple[BaggingStrategy, ...] | None:
        """The strategies that were named; None: the planner chooses from all that it knows."""
        return self.strategies if self.strategy is None else (self.strategy,)

    @property
    def plans_late(self) -> bool:
        """Whether bags are planned after private queries on the labels, with their answers.

        Not if the noise depends on the bags: noise has to be settled before the first query.
        """
        return (
            (self.strategy is None or self.bag_size is None)
            and (self.budget.find_within, self.tighten, self.centre) != (None, "none", "none")
            and self.label_kind == "mean"
            and self.budget.unit is None
            and self.learner == "linear"
            and not any(strategy.uses_scores for strategy in self.named or ())
        )

    @property
    def may_report_singly(self) -> bool:
        """Whether no option is about bags, so that every label may be reported by itself."""
        rule, columns = self.budget.calibration, self.columns
        return (
            rule is not None
            and rule.noise == AUTO
            and (self.strategy, self.bag_size, self.min_bag_size) == (None, None, None)
            and self.scores == AUTO
            and self.centre != "model"
            and not (columns.by or columns.within)
        )

    def choose(
        self,
        strategy: BaggingStrategy,
        bag_size: int,
        scores: str,
        *,
        why: Reason | None = None,
    ) -> "Choice":
        """Return the same request with this strategy; the size is checked with the rows."""
        private = self.budget.calibration is not None
        kind = resolve_scores(scores, strategy=strategy, private=private)
        if self.columns.classes is not None and kind != "none":
            raise StrategyError("classes cannot be sorted; use a strategy that uses only features.")
        if kind == "model":
            family = family_to_release(self.family)
            if self.budget.bounds is not None:
                check_bounds_of(family, self.budget.bounds)
        # Labels are not centred unasked for bags that need no features: X is never made as a whole.
        lean = self.centre == AUTO and not strategy.needs_features
        centre = "none" if lean else self.centre
        chosen = {"strategy": strategy, "bag_size": bag_size, "scores": kind, "centre": centre}
        return Choice(**{**vars(self), **chosen}, why=why)


def may_search(strategy: str | BaggingStrategy, bagging: Bagging | None) -> bool:
    """Return whether bags of neighbours may be searched for, cell by cell if memory is short.

    >>> may_search("auto", None), may_search("random", None)
    (True, False)
    """
    bagging = bagging or Bagging()
    planned = bagging.strategies or tuple(STRATEGIES)
    named = (strategy,) if strategy != AUTO else (planned,) if isinstance(planned, str) else planned
    follows = bagging.by or bagging.within
    return not follows and any(find_strategy(one).compact for one in named)


@dataclass(frozen=True)
class Choice(ReleaseRequest):
    """A request with every decision made: nothing that bags need is "auto"."""

    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    why: Reason | None = None

    @property
    def scores_request(self) -> ScoresRequest:
        """The scores of the strategy that was chosen."""
        return ScoresRequest(
            self.scores,
            bag_size=self.bag_size,
            metric=measures_by_scores(self.strategy),
            for_picks=self.label_kind == "pick",
        )


def _resolve_size(
    bag_size: int | Literal["auto"] | None, least: int | None, *, private: bool
) -> int | None:
    """Return the size that was named; None if the planner is to choose it."""
    if bag_size is None and not private:
        raise BagTooSmallError(
            "a release that is not private needs a bag size (--bag-size), which only you can "
            "choose. 'auto' uses the planner's choice."
        )
    if isinstance(bag_size, str) and bag_size != AUTO:
        raise BagTooSmallError(f"bag_size must be a whole number or 'auto', got {bag_size!r}.")
    if least is not None and not (type(least) is int and least >= 1):
        raise BagTooSmallError(f"min_bag_size must be a whole number of at least 1, got {least!r}.")
    size = None if bag_size == AUTO else bag_size
    if size is not None and least is not None and size < least:
        raise BagTooSmallError(f"bag_size {size} is below min_bag_size {least}.")
    return size


def _resolve_strategy(
    strategy: str | BaggingStrategy, bag_size: int | None, scores: str
) -> BaggingStrategy | None:
    """Return the strategy that was named; None if the planner is to choose one."""
    known = scores in (AUTO, "none")  # what else there is will be refused with a list
    if bag_size is None and not known:
        raise StrategyError(
            "the planner knows no bag size for these scores: name one (bag_size, --bag-size)."
        )
    if strategy != AUTO:
        return find_strategy(strategy)
    if scores in ("labels", "noisy-labels", "model"):
        raise StrategyError(
            f"scores={scores!r} are for a strategy that sorts: name strategy='sorted'. With "
            "'auto', bagwise chooses the scores, and never uses labels."
        )
    return None if known else find_strategy("random")


def _check_single(
    noise: str,
    columns: Columns,
    size: int | None,
    strategy: str | BaggingStrategy,
    label_kind: str,
    centre: str,
) -> None:
    """Refuse to report single labels in bags, by scores, or of classes."""
    plain = label_kind == "mean" and columns.classes is None and not columns.by
    alone = size in (None, 1) and strategy in (AUTO, "random") and centre in (AUTO, "none")
    if not (plain and alone):
        raise BudgetError(
            f"noise={noise!r} publishes a noisy number for every row, in a bag of its own: do not "
            "set strategy, label_kind or centre, and leave out bag_size or set it to 1."
        )


def _check_groups(strategy: BaggingStrategy | None, by: tuple[str, ...]) -> None:
    """Refuse groups for a strategy that ignores them, and a strategy for groups without any."""
    if (strategy is not None and strategy.keeps_groups) == bool(by):
        return
    if by:
        raise StrategyError(
            "by= defines the bags, but this strategy makes its own: use strategy='auto'. To make "
            "bags inside the groups, pass the same columns to within= (--within)."
        )
    raise StrategyError(
        "this strategy needs existing groups: name the columns that define them, by= (--by)."
    )


def _resolve_query(
    name: str, value: str, known: tuple[str, ...], budget: Budget, *, family: str, refused: str = ""
) -> Any:
    """Return which range or centre to ask for: none if it gains nothing.

    Bounds of 0 and 1 are those of an answer or of a share: the range is known, and a label moves
    what a model leaves by as much as it moves itself. `refused` says why labels have none.
    """
    check_name(name, value, known, BudgetError)
    rule, insists = budget.calibration, value not in (AUTO, "none")
    if rule is None:
        if insists:
            raise BudgetError(
                f"{name}={value!r} asks the labels privately; give an epsilon for it."
            )
        return "none"
    if refused and insists:
        raise BudgetError(refused)
    stated = None if budget.find_within is not None else rule.bounds
    needless = bool(refused) or family == "bernoulli" or stated == (0.0, 1.0)
    return "none" if needless and not insists else value


def _check_seed(seed: int | None) -> int | None:
    if seed is None:
        return None
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**63:  # a manifest has no larger numbers
        raise StrategyError(
            f"seed must be a whole number of at least 0 and below 2**63, or None, got {seed!r}."
        )
    return int(seed)
