"""A release of rows in parts, on Spark for instance: the same steps as in memory, part by part.

- Nothing with one entry for each row is ever in one place: labels, bags and orders are in the files
  of the parts, and what comes back from them adds up (d x d matrices, counts, sums).
- Labels are drawn once. Sums by bag, exact whole numbers, are written first, sealed for this
  process. Noise is drawn here, from those files, and written to the table of bags. Everything that
  may be done again, because a task failed or was slow, happens before or after that.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    check_bag_size,
    find_strategy,
)
from bagwise.bagging._strata import check_strata
from bagwise.bagging.bags import Bags
from bagwise.errors import ColumnError, StrategyError, shielded
from bagwise.files.parquet_files import WrittenTable, as_parquet_keeps_it
from bagwise.ledger import Account, Uncharged
from bagwise.planner.automatic import decide
from bagwise.planner.sample import MOST_ROWS, Population
from bagwise.privacy.private_range import Distance, count_beyond
from bagwise.release.bags_in_parts import (
    Moved,
    PartBags,
    check_formable,
    check_strata_of,
    form_bags,
    in_secret_order,
)
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
from bagwise.release.exposure import report_exposure
from bagwise.release.labels_in_parts import draw_labels, settle_labels, tell_all
from bagwise.release.preview import Confirm, confirm_columns, preview_columns
from bagwise.release.release import BAG_ID
from bagwise.release.release_in_parts import PartsRelease, bag_schema
from bagwise.release.verify import circumstances_of
from bagwise.release.wide_bounds import remark_on_wide_bounds
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.queries import Outlook, Schedule, look_ahead
from bagwise.requests.scores import PricedModel, Scores, compute_scores, resolve_scores
from bagwise.requests.verbs import Choice, ReleaseRequest
from bagwise.rows.columns import without_dictionary
from bagwise.rows.counts import (
    Strata,
    count_strata,
    largest_unit,
    reach_of_units,
    sample_rows,
    sample_units,
)
from bagwise.rows.facts import Facts, count_labels, gather_facts
from bagwise.rows.label_copies import equals_label, note_likely_copies
from bagwise.rows.labels import check_label, label_vector
from bagwise.rows.local import LocalRows
from bagwise.rows.matrix import PartsMatrix
from bagwise.rows.parts import FileParts, Part, Parts
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build_in_parts(
    table: FileParts,
    request: ReleaseRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> PartsRelease:
    """Carry out a request: the steps in order, and nothing else."""
    run, columns, budget = Stages(on_stage), request.columns, request.budget
    account = Uncharged() if account is None else account
    scratch = table.workers.scratch
    # 1. What is asked for can be done with these columns and rows.
    refuse_in_parts(request)
    if request.bag_size is not None:
        check_bag_size(request.bag_size, n_rows=table.num_rows)
    check_rows(budget, table.num_rows)
    names, leaving = run("checking the columns", _name_columns, table, columns)
    schema = _leaving_schema(table.schema, leaving)
    facts = run("looking at all columns", _gather, table, names, leaving, columns)
    _judge(facts, table.schema, leaving, request)
    encoder = columns.encoder_from(facts.columns)
    confirm_columns(preview_columns(facts.columns, encoder, columns), confirmed)
    units = run("counting units", _units_in, table, budget)
    strata, groups = run("counting strata", _given_in, table, request)
    # 2. A plan, from features alone, unless it waits for what private queries tell.
    everyone = Population(tuple(names), encoder, table.num_rows, units.largest, _smallest(strata))
    plan = partial(_choose, run, table, everyone)
    choice = None if request.plans_late else plan(request)
    if choice is not None:
        request = dataclasses.replace(request, budget=choice.budget)  # perhaps of single labels
    # 3. A secret order, before anything is computed from features: the source may be sorted by its
    #    label.
    moved = Moved.of(leaving, columns)
    rows: Parts = table
    if _computes_from_features(request, choice):
        rows = run("ordering the rows", in_secret_order, table, moved)
    X = PartsMatrix(rows, encoder, columns.label)
    form = partial(_form_bags, run, X, moved, strata, groups)
    bags = None
    if choice is not None and choice.scores == "none":  # what noise there is may depend on them
        bags = form(Scores(None), choice)
        units = run("counting units in bags", units.counted_in, bags)
    # 4. Which private queries there are, and how private each is: settled before the first.
    schedule = run("planning looks", settle_looks, X, encoder, units, request, choice)
    charge_ahead(account, schedule, bags, units, request, choice)
    labels: Any = PartsLabels(rows, columns.label)
    request, schedule = run("finding a range", tighten_range, labels, schedule, request)
    if choice is not None:
        choice = dataclasses.replace(choice, budget=request.budget)
    scores = run("computing scores", _model_scores, X, schedule, choice)
    centring = run("centring the labels", centre_labels, None, X, schedule, scores, request)
    if choice is None:
        choice = plan(request, look_ahead(exact_rule(request), centring))
    if bags is None:
        bags = form(scores, choice)
    # 5. Exact sums are sealed first; then noise is drawn, once.
    telling = settle_labels(bags, encoder, units, scores, centring, choice)
    account.charge(telling.events)
    sums = run("adding up labels", tell_all, bags, telling.tell, telling.columns, scratch)
    drawn = run(
        "drawing noise", draw_labels, sums, telling, bags, bag_schema(columns.classes), scratch
    )
    if choice.calibration is None:
        run("looking for exposed labels", _report_exposure, bags, drawn.written, choice)
    certificate = certify(
        telling.events,
        budget,
        unit_rows=units.largest,
        smallest_bag=bags.smallest,
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=None if schedule.tighten is None else exact_rule(request).bounds,
        limit=None if centring is None else centring.limit,
        mark=account.mark,
    )
    return PartsRelease(
        bags=bags,
        scratch=scratch,
        columns=schema,
        bag_table=drawn.written,
        certificate=certificate,
        provenance=provenance_of(choice, centre="none" if centring is None else "model"),
        encoder=encoder,
        label_kind=choice.label_kind,
        largest_bag=drawn.largest,
        model=scores.model if centring is None else centring.model,
    )


def refuse_in_parts(request: ReleaseRequest) -> None:
    """Refuse what is not done on Spark, with what to do."""
    budget = request.budget
    missing = {
        "a seed (bags come from a secret key)": request.seed is not None,
        "the order of the table (rows of a DataFrame have none)": request.keep_order,
        "rules for experiments": (
            budget.calibration is not None and not budget.calibration.is_exact
        ),
    }
    if found := [what for what, asked in missing.items() if asked]:
        raise StrategyError(f"not on Spark: {found[0]}. Or leave out the engine.")
    for strategy in _named(request):
        check_formable(strategy)
        private = budget.calibration is not None
        kind = resolve_scores(request.scores, strategy=strategy, private=private)
        if kind == "noisy-labels":
            raise StrategyError(f"not on Spark yet: scores={kind!r}. Use scores='model'.")


def _choose(
    run: Stages,
    table: Parts,
    population: Population,
    request: ReleaseRequest,
    outlook: Outlook | None = None,
) -> Choice:
    """Return what was named, or what the planner says of a sample of the features."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    drawn = run("drawing rows for a plan", _sample, table, population, request.columns.unit)
    return run("planning", decide, LocalRows(drawn), request, outlook, population)


def _sample(table: Parts, population: Population, unit: str | None) -> pa.Table:
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


@dataclass(frozen=True)
class CountedUnits:
    """Who is protected, as far as it was counted.

    Attributes
    ----------
    column : str or None
        None: every row by itself.
    largest : int
        Rows of the unit with the most.
    reach : (square, touched) or None
        How far a unit reaches into bags that have been formed; None before.
    """

    column: str | None = None
    largest: int = 1
    reach: tuple[int, int] | None = None

    def counted_in(self, bags: PartBags) -> "CountedUnits":
        """Return the same units, as they are in these bags."""
        if self.column is None:
            return self
        square, touched = reach_of_units(bags.parts, self.column, BAG_ID)
        # Rows that are left out count as if they were in bags of their own, as in memory.
        return dataclasses.replace(self, reach=(max(square, self.largest), touched))

    def square_in_bags(self, _bags: PartBags) -> int:
        """Return the most that a unit has of squared rows in a bag, added up."""
        return self._counted[0]

    def bags_touched(self, _bags: PartBags) -> int:
        """Return the largest number of bags that the rows of one unit are in."""
        return self._counted[1]

    @property
    def _counted(self) -> tuple[int, int]:
        if self.column is None:
            return 1, 1
        if self.reach is None:
            raise AssertionError("units are counted when bags are known")
        return self.reach


def _units_in(table: Parts, budget: Budget) -> CountedUnits:
    """Return who is protected; refuse bounds that were found for smaller units."""
    if budget.unit is None:
        return CountedUnits()
    largest = largest_unit(table, budget.unit)
    budget.check_units(largest)
    return CountedUnits(budget.unit, largest)


def _given_in(table: Parts, request: ReleaseRequest) -> tuple[Strata | None, Strata | None]:
    """Return the strata that whatever may be chosen can keep to, and the groups, if there are."""
    by, within = request.columns.by, request.columns.within
    groups = count_strata(table, by, role="by") if by else None
    if not within:
        return None, groups
    strata = count_strata(table, request.columns.within, role="within")
    check_strata(_smallest(strata), request.bag_size or 1)
    for strategy in _named(request) or _tried_unasked():
        check_strata_of(strategy, strata)
    return strata, groups


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
    run: Stages,
    X: PartsMatrix,
    moved: Moved,
    strata: Strata | None,
    groups: Strata | None,
    scores: Scores,
    choice: Choice,
) -> PartBags:
    return run(
        "forming bags",
        form_bags,
        choice.strategy,
        X,
        scores.model,
        moved,
        bag_size=choice.bag_size,
        source=choice.noise_source,
        strata=strata,
        groups=groups,
    )


@dataclass(frozen=True)
class PartsLabels:
    """Labels in parts, which can be counted."""

    table: Parts
    label: str

    @property
    def size(self) -> int:
        """Number of labels."""
        return self.table.num_rows

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many labels are farther than each limit; limits fall."""
        count = partial(count_beyond, distance=distance, limits=limits)
        return np.asarray(np.sum(count_labels(self.table, self.label, count), axis=0))


def _name_columns(table: Parts, columns: Columns) -> tuple[list[str], list[str]]:
    empty = table.schema.empty_table()
    check_label(table.schema, columns.label, columns.classes)
    return name_columns(empty, columns)


def _report_exposure(bags: PartBags, written: WrittenTable, choice: Choice) -> None:
    """Tell the operator what bags without noise show, by those of the first part."""
    label, classes = choice.columns.label, choice.columns.classes
    (rows,) = bags.parts.head().map(_whole_part, [label, BAG_ID])
    labels, found = rows[label].to_numpy(), Bags(rows[BAG_ID].to_numpy())
    told = pq.read_table(written.path).slice(0, found.n_bags)
    columns = [told[name].to_numpy() for name in told.column_names[2:-1]]
    report_exposure(
        labels if classes is None else labels.astype(np.int64),
        found,
        columns[0] if classes is None else np.column_stack(columns),
        label_kind=choice.label_kind,
        bounds=choice.bounds,
        warn=choice.scores != "labels",  # of which the scores have warned already
    )


def _whole_part(part: Part) -> pa.Table:
    return part.table


def _leaving_schema(kinds: pa.Schema, names: list[str]) -> pa.Schema:
    """Return the columns with the types that they will have in a release."""
    empty = kinds.empty_table().select(names)
    plain = pa.table([without_dictionary(column) for column in empty.columns], names=names)
    return shielded(
        lambda: as_parquet_keeps_it(plain).schema,
        lambda _: ColumnError("a column, perhaps the id, has a type that Parquet cannot hold."),
    )


def _gather(table: Parts, names: list[str], leaving: list[str], columns: Columns) -> Facts:
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


def _judge(facts: Facts, kinds: pa.Schema, leaving: list[str], request: ReleaseRequest) -> None:
    """Refuse copies of the label, and tell the operator what only the operator may know."""
    label, rule = request.columns.label, request.budget.calibration
    for name in leaving:
        if name in facts.copies:
            raise equals_label(name, label)
    seen, classes = label_vector(facts.sample, label), request.columns.classes is not None
    note_likely_copies(facts.sample, leaving, seen, label=label, classes=classes)
    if rule is not None and not classes:
        kind, ends = kinds.field(label).type, np.array(facts.label_range)
        remark_on_wide_bounds(kind, ends, bounds=rule.bounds)


def _model_scores(X: PartsMatrix, schedule: Schedule, choice: Choice | None) -> Scores:
    """Release a model for scores, which are computed where the rows are."""
    priced, rule = schedule.scores, None if choice is None else choice.calibration
    if choice is None:  # bags that are planned late have none
        return Scores(None)
    if priced is None or rule is None:
        source, nobody = choice.noise_source, np.empty(0)  # labels stay where they are
        return dataclasses.replace(
            compute_scores(choice.scores, nobody, X, None, bounds=None, source=source), values=None
        )
    if not isinstance(priced, PricedModel):
        raise AssertionError("scores on Spark are those of a model")
    model = priced.linear(
        None, X, family=choice.family, bounds=rule.bounds, source=choice.noise_source
    )
    return Scores(None, (priced.event,), model)
