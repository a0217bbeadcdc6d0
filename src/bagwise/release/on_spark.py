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
from typing import Any

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
from bagwise.release.build import (
    centre_labels,
    charge_ahead,
    check_rows,
    exact_rule,
    needs_matrix,
    provenance_of,
    settle_looks,
    tighten_range,
)
from bagwise.release.certify import certify
from bagwise.release.checks import name_columns
from bagwise.release.label_bags import reports_singly
from bagwise.release.preview import Confirm, confirm_columns, preview_columns
from bagwise.release.spread import SpreadRelease, bag_schema
from bagwise.release.spread_bags import check_formable, check_strata_of, form_bags
from bagwise.release.spread_labels import draw_labels, settle_labels
from bagwise.release.verify import circumstances_of
from bagwise.release.wide_bounds import remark_on_wide_bounds
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.queries import Outlook, Schedule, look_ahead
from bagwise.requests.scores import PricedModel, Scores, resolve_scores
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
    run, columns, budget = Stages(on_stage), request.columns, request.budget
    account = Uncharged() if account is None else account
    refuse_on_spark(request)
    if request.bag_size is not None:
        check_bag_size(request.bag_size, n_rows=table.num_rows)
    check_rows(budget, table.num_rows)
    names, leaving = run("checking the columns", _name_columns, table, columns)
    schema = leaving_schema(table, leaving)
    facts = run("looking at all columns", _gather, table, names, leaving, columns)
    _judge(facts, table, leaving, request)
    encoder = columns.encoder_from(facts.columns)
    confirm_columns(preview_columns(facts.columns, encoder, columns), confirmed)
    units = run("counting units", _units_in, table, budget)
    strata = run("counting strata", _strata_in, table, request)
    everyone = Population(tuple(names), encoder, table.num_rows, units.largest, _smallest(strata))
    plan = partial(_choose, run, table, everyone)
    choice = None if request.plans_late else plan(request)
    if _computes_from_features(request, choice):  # the source may be sorted by its label
        table = run("ordering the rows", _in_secret_order, table, leaving, columns)
        units = dataclasses.replace(units, table=table)
    X = SparkMatrix(table, encoder, columns.label)
    places = None
    if choice is not None and choice.scores == "none":  # what noise there is may depend on them
        places = run("forming bags", _form_bags, X, Scores(None), choice, strata)
        units = run("counting units in bags", units.counted_in, places)
    # Settled before the first look at labels: which there are, and how private each is.
    schedule = run("planning looks", settle_looks, X, encoder, units, request, choice)
    charge_ahead(account, schedule, places, units, request, choice)
    labels: Any = SpreadLabels(table, columns.label)
    request, schedule = run("finding a range", tighten_range, labels, schedule, request)
    if choice is not None:
        choice = dataclasses.replace(choice, budget=request.budget)
    scores = run("computing scores", _model_scores, X, schedule, choice)
    centring = run("centring the labels", centre_labels, None, X, schedule, scores, request)
    if choice is None:
        choice = plan(request, look_ahead(exact_rule(request), centring))
    if places is None:
        places = run("forming bags", _form_bags, X, scores, choice, strata)
    rule = exact_rule(request)
    telling = settle_labels(X, places, units, scores, centring, choice, rule)
    account.charge(telling.events)
    sums = run("adding up labels", telling.add_up)
    bag_columns = bag_schema(columns.classes)
    drawn = run("drawing noise", draw_labels, sums, telling, table, places, bag_columns)
    certificate = certify(
        telling.events,
        budget,
        unit_rows=units.largest,
        smallest_bag=places.smallest,
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=None if schedule.tighten is None else rule.bounds,
        limit=None if centring is None else centring.limit,
        mark=account.mark,
    )
    return SpreadRelease(
        table=table,
        places=places,
        columns=schema,
        bag_table=drawn.written,
        certificate=certificate,
        provenance=provenance_of(choice, centre="none" if centring is None else "model"),
        encoder=encoder,
        label_kind=choice.label_kind,
        largest_bag=drawn.largest,
        model=scores.model if centring is None else centring.model,
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
    run: Stages,
    table: FileParts,
    population: Population,
    request: ReleaseRequest,
    outlook: Outlook | None = None,
) -> Choice:
    """Return what was named, or what the planner says of a sample of the features."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    drawn = run("drawing rows for a plan", _sample, table, population, request.columns.unit)
    return run("planning", decide, LocalRows(drawn), request, outlook, population)


def _sample(table: FileParts, population: Population, unit: str | None) -> pa.Table:
    if unit is None:
        return sample_rows(table, population.names, MOST_ROWS)
    largest = population.largest_unit
    return sample_units(table, population.names, unit, MOST_ROWS, largest=largest)


def _computes_from_features(request: ReleaseRequest, choice: Choice | None) -> bool:
    """Tell whether there is a model or a metric: doubles, whose last bits show an order of rows.

    Other bags follow from secret keys of rows, and from what is counted.
    """
    if choice is None or request.centre == "model":
        return True
    return choice.scores != "none" or needs_matrix(choice.strategy)


def _in_secret_order(table: FileParts, leaving: list[str], columns: Columns) -> FileParts:
    unit = () if columns.unit is None else (columns.unit,)
    names = tuple(dict.fromkeys((*leaving, *unit)))
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


def _form_bags(X: SparkMatrix, scores: Scores, choice: Choice, strata: Strata | None) -> Places:
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


def _model_scores(X: SparkMatrix, schedule: Schedule, choice: Choice | None) -> Scores:
    """Release a model for scores, which are computed where the rows are."""
    priced, rule = schedule.scores, None if choice is None else choice.calibration
    if choice is None or priced is None or rule is None:  # bags that are planned late have none
        return Scores(None)
    if not isinstance(priced, PricedModel):
        raise AssertionError("scores on Spark are those of a model")
    model = priced.linear(
        None, X, family=choice.family, bounds=rule.bounds, source=choice.noise_source
    )
    return Scores(None, (priced.event,), model)
