"""From a table and a request to a release: the way that the data takes, step by step.

::

    source ─► rows ─► checked: labels, names, encoder        release.tables, release.parts_table
                │     shown to the custodian, who confirms   release.preview
                ▼
       in a secret order, with units, groups and strata
                │
       ┌────────┴── what comes first depends on what follows from what ───────────┐
       │ bags from features     plan ► bag ► ask     noise may depend on the bags  │
       │ bags from scores       plan ► ask ► bag     bags depend on paid answers   │
       │ planned with answers   ask ► plan ► bag     and so does the plan          │
       └────────┬──────────────────────────────────────────────────────────────────┘
                │  plan: strategy and size, from a sample    planner.automatic
                │  ask: settle all queries ► charge ►        requests.queries
                │       bounds ► range ► scores ► centre
                │  bag: features and paid scores, no labels  bagging, cells, bags_in_parts
                ▼
       one label a bag: settle, charge, tell, hide           release.label_bags
                ▼
       certificate, provenance ─► Release ─► files           requests.budget, release.release

Rules that keep it safe:

1. How privately each query is asked is settled before the first draw, from public quantities alone
   (`settle_queries`), and everything is charged before it (`_charge_ahead`).
2. Strategies and the planner see features and paid answers, never labels.
3. A seed drives the partition only. Noise, picks and the order of rows have none.
4. A step that fails tells its name and never a label (`show.stages`).

The order of the steps is the same wherever the rows are; a table knows how each is done with its
rows. ``python -m tools.walk`` counts the functions on this way.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from bagwise.bagging import check_bag_size, parameters_of
from bagwise.ledger import Account
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel
from bagwise.planner.search import decide
from bagwise.privacy.private_model import LinearScores
from bagwise.privacy.promise import warn_of_strong_promise
from bagwise.privacy.units import ProtectedUnits
from bagwise.release.label_bags import SizedBags, foreseen_events, settle_labels
from bagwise.release.parts_table import PartsTable
from bagwise.release.preview import Confirm, confirm_columns
from bagwise.release.tables import LocalTable
from bagwise.release.verify import circumstances_of
from bagwise.requests.budget import Budget, certify
from bagwise.requests.provenance import Provenance
from bagwise.requests.queries import (
    NO_SCORES,
    OWN_MODEL,
    Centring,
    Outlook,
    Queries,
    Scores,
    ScoresRequest,
    ask_centre,
    ask_model,
    ask_range,
    ask_scores,
    look_ahead,
    settle_queries,
)
from bagwise.requests.verbs import Choice, ModelRequest, ReleaseRequest
from bagwise.rows.labels import Bounds
from bagwise.rows.matrix import EncodedRows
from bagwise.rows.parts import Parts
from bagwise.rows.row_order import secret_order
from bagwise.rows.table import read_rows
from bagwise.show.stages import OnStage, Stages, ignore_stage

Table = LocalTable | PartsTable
"""Rows in memory or on disk, or those that many machines read: both know the same steps."""


def build(
    source: Any,
    request: ReleaseRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> Any:
    """Carry out a request for a release: a `Release`, or a `PartsRelease` where rows are in parts.

    Bags are those of the rows, wherever these are, and so are answers: only a table knows them.
    """
    stage, account = Stages(on_stage), Account() if account is None else account
    bags: Any
    answers: Any
    # 1. Say all that is wrong with a table at once, and show what will be published of it.
    table = _read(source, request, stage)
    _confirm(table, request.budget, confirmed)

    # 2. Plan, bag and ask.
    if request.plans_late:
        # Any bags get the same noise: what was paid for may say which bags serve best.
        table, X = _look(table, request, None, stage)
        asked = _ask(table, X, NO_SCORES, None, request, account, stage)
        request = dataclasses.replace(request, budget=asked.budget)
        choice = _choose(table, request, stage, asked.outlook)
        bags = _form_bags(table, X, asked.scores, choice, stage)
    else:
        request = choice = _choose(table, request, stage)
        check_bag_size(choice.bag_size, n_rows=table.n_rows)
        table.check_choice(choice)  # refused before anything is asked and charged for
        table, X = _look(table, request, choice, stage)
        if choice.scores == "none":
            # The noise may depend on the bags: on their sizes, and where the rows of a unit are.
            bags = _form_bags(table, X, Scores(None), choice, stage)
            asked = _ask(table, X, choice.scores_request, bags, request, account, stage)
        else:
            asked = _ask(table, X, choice.scores_request, None, request, account, stage)
            bags = _form_bags(table, X, asked.scores, choice, stage)
    del X
    choice = dataclasses.replace(choice, budget=asked.budget)
    scores, centring = asked.scores, asked.centring
    # Scores have done their work, and there is one for each row.
    asked = dataclasses.replace(asked, scores=dataclasses.replace(scores, values=None))

    # 3. One label a bag: settled, charged, and drawn once.
    with stage("taking the rows"):
        left: tuple[Table, Any, Centring] = table.as_they_leave(bags, centring, choice)
        table, bags, centring = left
    with stage("aggregating labels"):
        labelling = settle_labels(bags, table.units, asked.scores, centring, choice)
        if labelling.events:
            account.charge(labelling.events)
        answers = table.answer(bags, labelling, centring, choice)
    if choice.calibration is None:
        with stage("looking for exposed labels"):
            table.report_exposure(bags, answers, choice)

    # 4. What leaves, and what it promises.
    provenance = _provenance(choice, centring)
    certificate = certify(
        labelling.events,
        choice.budget,
        unit_rows=table.units.largest,
        smallest_bag=min(bags.count_sizes()),
        circumstances=circumstances_of(provenance),
        tightened=asked.tightened,
        limit=centring.limit,
        mark=account.mark,
    )
    return table.release(
        bags,
        answers,
        labelling.events,
        certificate=certificate,
        label_kind=choice.label_kind,
        provenance=provenance,
        model=asked.model,
    )


@dataclass(frozen=True)
class Asked:
    """What was asked of the labels before bags get theirs, and the answers, which are paid for.

    The budget is what the queries leave: its bounds are the stated ones, or those that were found,
    and its rule is one within a private range if that was asked for.
    """

    queries: Queries
    budget: Budget
    scores: Scores
    centring: Centring

    @property
    def outlook(self) -> Outlook:
        """What a plan may know."""
        return look_ahead(self.budget.rule, self.centring)

    @property
    def tightened(self) -> Bounds | None:
        """The private range, if one was asked for."""
        return None if self.queries.range is None else self.budget.rule.bounds

    @property
    def model(self) -> LinearScores | None:
        """The model that is published with the bags, if one was bought."""
        return self.centring.model or self.scores.model


def _read(source: Any, request: ReleaseRequest, stage: Stages) -> Table:
    """Return rows that nothing is wrong with: in memory, on disk, or on many machines."""
    with stage("reading the table"):
        rows = source
        if not isinstance(rows, Parts):
            rows = read_rows(source, named=request.columns.named)
    with stage("checking the table"):
        if isinstance(rows, Parts):
            return PartsTable.checked(rows, request)
        return LocalTable.checked(rows, request.columns, request.budget)


def _confirm(table: Table, budget: Budget, confirmed: bool | Confirm) -> None:
    """Go on if somebody has seen the columns, and something is promised, but for experiments."""
    confirm_columns(table.preview, confirmed)
    budget.check_rows(table.n_rows)
    if budget.promises:
        warn_of_strong_promise(budget.rule.epsilon, n_rows=table.n_rows)


def _choose(
    table: Table, request: ReleaseRequest, stage: Stages, outlook: Outlook | None = None
) -> Choice:
    """Return what was named, or what the planner says."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    with stage("planning"):
        rows, population = table.for_a_plan()
        return decide(rows, request, outlook, population)


def _look(
    table: Table, request: ReleaseRequest, choice: Choice | None, stage: Stages
) -> tuple[Table, Any]:
    """Put rows into a secret order, and return X in that order."""
    with stage("ordering the rows"):
        table = table.in_secret_order(request, choice)
    with stage("encoding features"):
        return table, table.matrix(request, choice)


def _form_bags(table: Table, X: Any, scores: Scores, choice: Choice, stage: Stages) -> Any:
    """Put rows into bags; a strategy sees features and paid scores, never labels."""
    with stage("forming bags"):
        return table.form_bags(X, scores, choice)


def _ask(
    table: Table,
    X: Any,
    scored: ScoresRequest,
    bags: SizedBags | None,
    request: ReleaseRequest,
    account: Account,
    stage: Stages,
) -> Asked:
    """Settle every query, charge, and ask: bounds, a range, scores, what labels are centred on.

    `scored` is what bags will be formed by, and `bags` are None where they follow from the answers.
    On many machines X has its labels with it, and the table has none.
    """
    budget, labels = request.budget, table.labels
    # 1. Settle, from public quantities alone, what is asked and how privately. Then pay.
    with stage("settling what to ask"):
        queries = settle_queries(
            budget.calibration,
            X,
            table.encoder.feature_names,
            unit_rows=table.units.largest,
            tighten=request.tighten,
            centre=request.centre,
            scores=scored,
            stated=budget.find_within is None,
        )
    _charge_ahead(account, queries, bags, table.units, request, bag_size=scored.bag_size)
    # 2. Ask in this order: each answer is paid for, so that the next question may depend on it.
    budget = ask_range(queries, table.counted, budget, stage)
    queries = queries.within(budget.calibration)
    family = request.family
    with stage("computing scores"):
        scores = ask_scores(scored.kind, queries, labels, X, budget, family=family)
    with stage("centring the labels"):
        centring = ask_centre(queries, labels, X, budget, family=family, scored=scores.model)
    return Asked(queries, budget, scores, centring)


def _charge_ahead(
    account: Account,
    queries: Queries,
    bags: SizedBags | None,
    units: ProtectedUnits,
    request: ReleaseRequest,
    *,
    bag_size: int,
) -> None:
    """Charge for everything before the first query; without any, bags are charged when labelled."""
    rule = request.budget.calibration
    if rule is None or queries == Queries():
        return
    rule = rule.after(*queries.searches)
    kind = request.label_kind
    account.charge(foreseen_events(rule, queries, bags, units, label_kind=kind, bag_size=bag_size))


def _provenance(choice: Choice, centring: Centring) -> Provenance:
    """Return how a release was made, for its manifest."""
    return Provenance(
        label=choice.columns.label,
        classes=choice.columns.classes,
        bag_size=int(choice.bag_size),
        strategy=choice.strategy.name,
        strategy_parameters=parameters_of(choice.strategy),
        chosen_because=choice.why,
        scores=choice.scores,
        centre="none" if centring.model is None else "model",
        seed=choice.seed,
        row_order="kept" if choice.keep_order else "secret permutation",
        id=choice.columns.id,
        by=choice.columns.by,
        within=choice.columns.within,
        exposure=choice.columns.exposure,
        missing_labels=UNSET if choice.missing_labels is None else choice.missing_labels,
    )


def build_model(
    source: Any,
    request: ModelRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> RowModel:
    """Release a private model instead of bags."""
    account = Account() if account is None else account
    stage, columns, budget = Stages(on_stage), request.columns, request.budget
    # 1. Read and check the table; rows are looked at in a secret order.
    with stage("reading the table"):
        rows = read_rows(source, named=columns.named)
    with stage("checking the table"):
        table = LocalTable.checked(rows, columns, budget)
    _confirm(table, budget, confirmed)
    table = table.take(secret_order(rows.num_rows, budget.noise_source))
    labels, encoder, unit_rows = table.labels, table.encoder, table.units.largest
    X = EncodedRows(table.rows, encoder)
    # 2. Settle what is asked: perhaps bounds and a range, and with all that they leave the model.
    # Then pay.
    with stage("weighing the rows"):
        queries = settle_queries(
            budget.calibration,
            X,
            encoder.feature_names,
            unit_rows=unit_rows,
            tighten=request.tighten,
            centre="none",
            scores=OWN_MODEL,
            stated=budget.find_within is None,
        )
    account.charge((*queries.searches, *queries.spent))
    # 3. Ask.
    budget = ask_range(queries, labels, budget, stage)
    rule = budget.rule
    query = queries.within(rule).scores
    if query is None:
        raise AssertionError("the model was settled")
    with stage("releasing the model"):
        fit = ask_model(query, labels, X, budget, request.family)
    # 4. What leaves, and what it promises.
    certificate = certify(
        (*rule.prior, query.event),
        budget,
        unit_rows=unit_rows,
        tightened=None if queries.range is None else rule.bounds,
        mark=account.mark,
    )
    released = RowModel.of(
        fit,
        n_rows=rows.num_rows,
        family=request.family.name,
        link=request.family.link,
        loss=RELEASED_DIRECTLY,
        label=columns.label,
        bounds=certificate.stated_bounds,
        encoder=encoder,
    )
    return released.certified(certificate)
