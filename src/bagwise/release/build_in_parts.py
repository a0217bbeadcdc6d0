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
from bagwise.bagging.assigning import check_strata
from bagwise.bagging.bags import Bags
from bagwise.errors import ColumnError, StrategyError, shielded
from bagwise.files.parquet_files import WrittenTable, as_parquet_keeps_it
from bagwise.files.spill import SpillDirectory
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
from bagwise.release.build import Asked, ask, provenance_of
from bagwise.release.checks import check_promise_of, name_columns, remark_on_wide_bounds
from bagwise.release.exposure import report_exposure
from bagwise.release.labels_in_parts import draw_labels, settle_labels, tell_all
from bagwise.release.preview import Confirm, confirm_columns, preview_columns
from bagwise.release.release import BAG_ID
from bagwise.release.release_in_parts import PartsRelease, bag_schema
from bagwise.release.verify import circumstances_of
from bagwise.requests.budget import Budget, certify
from bagwise.requests.columns import Columns
from bagwise.requests.queries import NO_SCORES, Outlook, Scores, ScoresRequest, resolve_scores
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
from bagwise.rows.encode import Encoder
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
    stage, columns, budget = Stages(on_stage), request.columns, request.budget
    account = Uncharged() if account is None else account
    refuse_in_parts(request)
    if request.bag_size is not None:
        check_bag_size(request.bag_size, n_rows=table.num_rows)
    check_promise_of(budget, table.num_rows)

    # 1. Facts about all columns: exact sums, so that no order of rows shows in them.
    with stage("checking the columns"):
        names, leaving = _name_columns(table, columns)
    schema = _leaving_schema(table.schema, leaving)
    with stage("looking at all columns"):
        facts = _gather(table, names, leaving, columns)
    _judge(facts, table.schema, leaving, request)
    encoder = columns.encoder_from(facts.columns)
    confirm_columns(preview_columns(facts.columns, encoder, columns), confirmed)
    with stage("counting units"):
        units = _units_in(table, budget)
    with stage("counting strata"):
        strata, groups = _given_in(table, request)
    everyone = Population(tuple(names), encoder, table.num_rows, units.largest, _smallest(strata))
    moved = Moved.of(leaving, columns)
    form = partial(_form_bags, moved, strata, groups, stage)

    # 2. Plan, bag and ask, in the order that `build` explains.
    if request.plans_late:
        X = _matrix(table, encoder, moved, stage, ordered=True)
        asked = _ask(X, units, NO_SCORES, None, request, account, stage)
        choice = _choose(table, everyone, request.within(asked.rule), stage, asked.outlook)
        bags = form(X, asked.scores, choice)
    else:
        choice = _choose(table, everyone, request, stage)
        request = request.as_chosen(choice)
        ordered = _computes_from_features(request, choice)
        X = _matrix(table, encoder, moved, stage, ordered=ordered)
        if choice.scores == "none":  # what noise there is may depend on them
            bags = form(X, Scores(None), choice)
            with stage("counting units in bags"):
                units = units.counted_in(bags)
            asked = _ask(X, units, choice.scores_request, bags, request, account, stage)
        else:
            asked = _ask(X, units, choice.scores_request, None, request, account, stage)
            bags = form(X, asked.scores, choice)
    made = _Made(table.workers.scratch, bags, schema, encoder, units)
    return _answer(made, choice.within(asked.rule), asked, account, stage)


@dataclass(frozen=True)
class _Made:
    """Bags of rows that have no labels yet."""

    scratch: SpillDirectory
    bags: PartBags
    schema: pa.Schema
    encoder: Encoder
    units: "CountedUnits"


def _answer(
    made: _Made, choice: Choice, asked: Asked, account: Account, stage: Stages
) -> PartsRelease:
    """Give every bag its label: exact sums are sealed first; then noise is drawn here, once."""
    bags, encoder, units, scratch = made.bags, made.encoder, made.units, made.scratch
    telling = settle_labels(bags, encoder, units, asked.scores, asked.centring, choice)
    account.charge(telling.events)
    with stage("adding up labels"):
        sums = tell_all(bags, telling.tell, telling.columns, scratch)
    with stage("drawing noise"):
        drawn = draw_labels(sums, telling, bags, bag_schema(choice.columns.classes), scratch)
    if choice.calibration is None:
        with stage("looking for exposed labels"):
            _report_exposure(bags, drawn.written, choice)
    certificate = certify(
        telling.events,
        choice.budget,
        unit_rows=units.largest,
        smallest_bag=bags.smallest,
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=asked.tightened,
        limit=asked.centring.limit,
        mark=account.mark,
    )
    return PartsRelease(
        bags=bags,
        scratch=scratch,
        columns=made.schema,
        bag_table=drawn.written,
        certificate=certificate,
        provenance=provenance_of(choice, asked.centring),
        encoder=encoder,
        label_kind=choice.label_kind,
        largest_bag=drawn.largest,
        model=asked.model,
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
    table: Parts,
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


def _sample(table: Parts, population: Population, unit: str | None) -> pa.Table:
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


def _matrix(
    table: Parts, encoder: Encoder, moved: Moved, stage: Stages, *, ordered: bool
) -> PartsMatrix:
    """Return X, of rows in a secret order where they need one: they may be sorted by label."""
    if ordered:
        with stage("ordering the rows"):
            table = in_secret_order(table, moved)
    return PartsMatrix(table, encoder, moved.label)


def _ask(
    X: PartsMatrix,
    units: "CountedUnits",
    scored: ScoresRequest,
    bags: PartBags | None,
    request: ReleaseRequest,
    account: Account,
    stage: Stages,
) -> Asked:
    """Ask of labels that are with their rows."""
    names, counted = X.encoder.feature_names, PartsLabels(X.parts, X.label)
    return ask(X, names, units, scored, bags, request, account, stage, None, counted=counted)


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
    moved: Moved,
    strata: Strata | None,
    groups: Strata | None,
    stage: Stages,
    X: PartsMatrix,
    scores: Scores,
    choice: Choice,
) -> PartBags:
    with stage("forming bags"):
        return form_bags(
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
