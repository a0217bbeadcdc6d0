"""A release of rows on many machines: the same steps as in memory, each where the rows are.

- Nothing with one entry for each row is ever in one place: labels, bags and orders are in files of
  the splits, and what comes back from tasks adds up (d x d matrices, counts, sums).
- Labels are drawn once. Sums by bag, exact whole numbers, are written first, sealed for this
  process. Noise is drawn here, from those files, and written to the table of bags. Everything that
  Spark may do again, because a task failed or was slow, happens before or after that.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    check_bag_size,
    find_strategy,
)
from bagwise.bagging._strata import check_strata
from bagwise.errors import StrategyError
from bagwise.ledger import Account, Uncharged
from bagwise.planner.automatic import decide
from bagwise.planner.sample import MOST_ROWS, Population
from bagwise.privacy.private_range import Distance, count_beyond
from bagwise.release.build import ask, provenance_of
from bagwise.release.checks import check_promise_of, name_columns, remark_on_wide_bounds
from bagwise.release.label_bags import reports_singly
from bagwise.release.preview import Confirm, confirm_columns, preview_columns
from bagwise.release.spread import SpreadRelease, bag_schema
from bagwise.release.spread_bags import check_formable, check_strata_of, form_bags
from bagwise.release.spread_labels import draw_labels, settle_labels
from bagwise.release.verify import circumstances_of
from bagwise.requests.budget import Budget, certify
from bagwise.requests.columns import Columns
from bagwise.requests.queries import NO_SCORES, Outlook, Scores, resolve_scores
from bagwise.requests.verbs import Choice, ReleaseRequest
from bagwise.rows.label_copies import equals_label, note_likely_copies
from bagwise.rows.labels import label_vector
from bagwise.rows.local import LocalRows
from bagwise.rows.parts import FileParts
from bagwise.rows.spark.facts import Facts, count_labels, gather_facts
from bagwise.rows.spark.leaving import leaving_schema
from bagwise.rows.spark.matrix import SparkMatrix
from bagwise.rows.spark.order import in_secret_order
from bagwise.rows.spark.places import Places
from bagwise.rows.spark.sample import sample_rows
from bagwise.rows.spark.strata import Strata, count_strata
from bagwise.rows.spark.table import check_label
from bagwise.rows.spark.units import largest_unit, reach_of_units, sample_units
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build_on_spark(
    table: FileParts,
    request: ReleaseRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> SpreadRelease:
    """Carry out a request: the steps in order, and nothing else."""
    stage, columns, budget = Stages(on_stage), request.columns, request.budget
    account = Uncharged() if account is None else account
    refuse_on_spark(request)
    if request.bag_size is not None:
        check_bag_size(request.bag_size, n_rows=table.num_rows)
    check_promise_of(budget, table.num_rows)

    # 1. Facts about all columns: exact sums, so that no order of rows shows in them.
    with stage("checking the columns"):
        names, leaving = _name_columns(table, columns)
    schema = leaving_schema(table, leaving)
    with stage("looking at all columns"):
        facts = _gather(table, names, leaving, columns)
    _judge(facts, table, leaving, request)
    encoder = columns.encoder_from(facts.columns)
    confirm_columns(preview_columns(facts.columns, encoder, columns), confirmed)
    with stage("counting units"):
        units = _units_in(table, budget)
    with stage("counting strata"):
        strata = _strata_in(table, request)
    everyone = Population(tuple(names), encoder, table.num_rows, units.largest, _smallest(strata))

    # 2. Plan, bag and ask, in the order that `build` explains.
    if request.plans_late:
        original, table = table, _ordered(table, leaving, columns, stage)
        units = dataclasses.replace(units, table=table)
        X = SparkMatrix(table, encoder, columns.label)
        asked = ask(
            X, encoder.feature_names, units, NO_SCORES, None, request, account, stage, None,
            counted=SpreadLabels(table, columns.label),
        )  # fmt: skip
        choice = _choose(original, everyone, request.within(asked.rule), stage, asked.outlook)
        places = _form_bags(X, asked.scores, choice, strata, stage)
    else:
        choice = _choose(table, everyone, request, stage)
        request = request.as_chosen(choice)
        if _computes_from_features(request, choice):  # the source may be sorted by its label
            table = _ordered(table, leaving, columns, stage)
            units = dataclasses.replace(units, table=table)
        X, known = SparkMatrix(table, encoder, columns.label), None
        if choice.scores == "none":  # what noise there is may depend on them
            known = places = _form_bags(X, Scores(None), choice, strata, stage)
            with stage("counting units in bags"):
                units = units.counted_in(places)
        asked = ask(
            X, encoder.feature_names, units, choice.scores_request, known, request, account, stage,
            None, counted=SpreadLabels(table, columns.label),
        )  # fmt: skip
        if choice.scores != "none":
            places = _form_bags(X, asked.scores, choice, strata, stage)
    choice = choice.within(asked.rule)

    # 3. Answer: sums by bag are written by tasks, noise is drawn here, once.
    telling = settle_labels(
        X, places, units, asked.scores, asked.centring, choice, asked.exact_rule
    )
    account.charge(telling.events)
    with stage("adding up labels"):
        sums = telling.add_up()
    with stage("drawing noise"):
        drawn = draw_labels(sums, telling, table, places, bag_schema(columns.classes))
    certificate = certify(
        telling.events,
        budget,
        unit_rows=units.largest,
        smallest_bag=places.smallest,
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=asked.tightened,
        limit=asked.centring.limit,
        mark=account.mark,
    )
    return SpreadRelease(
        table=table,
        places=places,
        columns=schema,
        bag_table=drawn.written,
        certificate=certificate,
        provenance=provenance_of(choice, asked.centring),
        encoder=encoder,
        label_kind=choice.label_kind,
        largest_bag=drawn.largest,
        model=asked.model,
    )


def refuse_on_spark(request: ReleaseRequest) -> None:
    """Refuse what is not done on Spark, with what to do."""
    columns, budget = request.columns, request.budget
    missing = {
        "a release that is NOT PRIVATE (give an epsilon)": budget.calibration is None,
        "bags by columns (give the columns to within=, and a bag size)": bool(columns.by),
        "a seed (bags come from a secret key)": request.seed is not None,
        "the order of the table (rows of a DataFrame have none)": request.keep_order,
        "bags that are chosen for a flexible learner (name strategy='kmeans')": (
            request.learner == "flexible" and request.strategy is None
        ),
        f"noise={getattr(budget.calibration, 'noise', '')!r}": reports_singly(budget.calibration),
        "rules for experiments": (
            budget.calibration is not None and not budget.calibration.is_exact
        ),
    }
    if found := [what for what, asked in missing.items() if asked]:
        raise StrategyError(f"not on Spark yet: {found[0]}. Or leave out the engine.")
    for strategy in _named(request):
        check_formable(strategy)
        kind = resolve_scores(request.scores, strategy=strategy, private=True)
        if kind not in ("none", "model"):
            raise StrategyError(f"not on Spark yet: scores={kind!r}. Use scores='model'.")


def _choose(
    table: FileParts,
    population: Population,
    request: ReleaseRequest,
    stage: Stages,
    outlook: Outlook | None = None,
) -> Choice:
    """Return what was named, or what the planner says of a sample of the features."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    with stage("drawing rows for a plan"):
        drawn = _sample(table, population, request.columns.unit)
    with stage("planning"):
        return decide(LocalRows(drawn), request, outlook, population)


def _sample(table: FileParts, population: Population, unit: str | None) -> pa.Table:
    if unit is None:
        return sample_rows(table, population.names, MOST_ROWS)
    largest = population.largest_unit
    return sample_units(table, population.names, unit, MOST_ROWS, largest=largest)


def _computes_from_features(request: ReleaseRequest, choice: Choice) -> bool:
    """Tell whether there is a model or a metric: doubles, whose last bits show an order of rows.

    Other bags follow from secret keys of rows, and from what is counted.
    """
    modelled = request.centre == "model" or choice.scores != "none"
    return modelled or choice.strategy.needs_features


def _ordered(table: FileParts, leaving: list[str], columns: Columns, stage: Stages) -> FileParts:
    """Return the rows in a secret order."""
    unit = () if columns.unit is None else (columns.unit,)
    names = tuple(dict.fromkeys((*leaving, *unit)))
    with stage("ordering the rows"):
        return in_secret_order(table, names, label=columns.label, classes=columns.classes)


@dataclass(frozen=True)
class SpreadUnits:
    """Who is protected; what is known of them was counted by Spark.

    Attributes
    ----------
    column : str or None
        None: every row by itself.
    largest : int
        Rows of the unit with the most.
    reach : (square, touched) or None
        How far a unit reaches into bags that have been formed; None before.
    """

    table: FileParts
    column: str | None = None
    largest: int = 1
    reach: tuple[int, int] | None = None

    def counted_in(self, places: Places) -> "SpreadUnits":
        """Return the same units, as they are in these bags."""
        if self.column is None:
            return self
        square, touched = reach_of_units(self.table, places, self.column)
        # Rows that are left out count as if they were in bags of their own, as in memory.
        return dataclasses.replace(self, reach=(max(square, self.largest), touched))

    def square_in_bags(self, _bags: Places) -> int:
        """Return the most that a unit has of squared rows in a bag, added up."""
        return self._counted[0]

    def bags_touched(self, _bags: Places) -> int:
        """Return the largest number of bags that the rows of one unit are in."""
        return self._counted[1]

    @property
    def _counted(self) -> tuple[int, int]:
        if self.column is None:
            return 1, 1
        if self.reach is None:
            raise AssertionError("units are counted when bags are known")
        return self.reach


def _units_in(table: FileParts, budget: Budget) -> SpreadUnits:
    """Return who is protected; refuse bounds that were found for smaller units."""
    if budget.unit is None:
        return SpreadUnits(table)
    largest = largest_unit(table, budget.unit)
    budget.check_units(largest)
    return SpreadUnits(table, budget.unit, largest)


def _strata_in(table: FileParts, request: ReleaseRequest) -> Strata | None:
    """Return the strata, if there are some, that whatever may be chosen can keep to."""
    if not request.columns.within:
        return None
    strata = count_strata(table, request.columns.within)
    check_strata(_smallest(strata), request.bag_size or 1)
    for strategy in _named(request) or _tried_unasked():
        check_strata_of(strategy, strata)
    return strata


def _named(request: ReleaseRequest) -> list[BaggingStrategy]:
    named = request.strategies if request.strategy is None else (request.strategy,)
    return [find_strategy(strategy) for strategy in named or ()]


def _tried_unasked() -> list[BaggingStrategy]:
    """Return what a planner may choose where nobody names strategies."""
    known = [find_strategy(name) for name, kind in STRATEGIES.items() if kind.planned]
    return [one for one in known if not one.uses_scores]


def _smallest(strata: Strata | None) -> int | None:
    return None if strata is None else int(strata.rows.min())


def _form_bags(
    X: SparkMatrix, scores: Scores, choice: Choice, strata: Strata | None, stage: Stages
) -> Places:
    with stage("forming bags"):
        return form_bags(
            choice.strategy,
            X,
            scores.model,
            bag_size=choice.bag_size,
            source=choice.noise_source,
            strata=strata,
        )


@dataclass(frozen=True)
class SpreadLabels:
    """Labels on many machines, which can be counted."""

    table: FileParts
    label: str

    @property
    def size(self) -> int:
        """Number of labels."""
        return self.table.num_rows

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many labels are farther than each limit; limits fall."""
        count = partial(count_beyond, distance=distance, limits=limits)
        return np.asarray(np.sum(count_labels(self.table, self.label, count), axis=0))


def _name_columns(table: FileParts, columns: Columns) -> tuple[list[str], list[str]]:
    empty = table.schema.empty_table()
    check_label(table.schema, columns.label, columns.classes)
    return name_columns(empty, columns)


def _gather(table: FileParts, names: list[str], leaving: list[str], columns: Columns) -> Facts:
    return gather_facts(
        table,
        names,
        leaving,
        label=columns.label,
        key=columns.id,
        named=columns.features or (),
        classes=columns.classes,
        exposure=columns.exposure,
    )


def _judge(facts: Facts, table: FileParts, leaving: list[str], request: ReleaseRequest) -> None:
    """Refuse copies of the label, and tell the operator what only the operator may know."""
    label, rule = request.columns.label, request.budget.calibration
    for name in leaving:
        if name in facts.copies:
            raise equals_label(name, label)
    seen, classes = label_vector(facts.sample, label), request.columns.classes is not None
    note_likely_copies(facts.sample, leaving, seen, label=label, classes=classes)
    if rule is not None and not classes:
        kind, ends = table.schema.field(label).type, np.array(facts.label_range)
        remark_on_wide_bounds(kind, ends, bounds=rule.bounds)
