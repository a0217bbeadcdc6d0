"""Build a release from a table and a request, step by step.

::

    source ─► rows ─► checked: labels, names, encoder        release.tables, release.parts_table
                │     shown to the custodian, who confirms   release.preview
                ▼
       in a secret order, with units, groups and strata
                │
       ┌────────┴── what comes first depends on what follows from what ───────────┐
       │ bags from features     plan ► bag ► ask     noise may depend on the bags  │
       │ bags from answers      plan ► ask ► bag     the noise allows for any bags │
       │ planned with answers   ask ► plan ► bag     so does it here               │
       └────────┬──────────────────────────────────────────────────────────────────┘
                │  plan: strategy and size, from a sample    planner.search
                │  ask: settle all queries ► charge ►        requests.queries
                │       bounds ► range ► scores ► centre     requests.answers
                │  bag: features and paid scores, no labels  bagging, release.bags_in_parts
                ▼
       one label a bag: settle, charge, tell, hide           requests.bag_labels,
                │                                            release.label_bags
                ▼
       certificate, provenance ─► Release ─► files           requests.budget, release.release

A request becomes a choice as soon as its bags are planned; a table knows what it is a table of
(`Population`), and answers know what they leave of the budget. So every step has what it needs, and
nothing is there at one time and not at another.

Rules that keep it safe:

1. How privately each query is asked is settled from public quantities alone (`settle_queries`), and
   everything is charged (`_ask`), before the first draw.
2. Strategies and the planner see features and paid answers, never labels.
3. A seed drives the partition only. Noise, picks and the order of rows have none.
4. A step that fails tells its name and never a label (`show.stages`).

The order of the steps is the same wherever the rows are; a table knows how each is done with its
rows. ``python -m tools.walk`` counts the functions on this way.
"""

from dataclasses import replace
from typing import Any

from msgspec import UNSET

from bagwise.bagging import check_bag_size, parameters_of
from bagwise.ledger import Account
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel
from bagwise.planner.search import decide
from bagwise.privacy.promise import warn_of_strong_promise
from bagwise.release.label_bags import settle_labels
from bagwise.release.parts_table import PartsRelease, PartsTable
from bagwise.release.preview import Confirm, confirm_columns
from bagwise.release.release import Release
from bagwise.release.tables import LocalTable
from bagwise.release.verify import circumstances_of
from bagwise.requests.answers import Answers, ask_labels, ask_model, ask_range
from bagwise.requests.bag_labels import Reach, price_labels
from bagwise.requests.budget import Budget, certify
from bagwise.requests.provenance import Provenance
from bagwise.requests.queries import Queries, settle_queries
from bagwise.requests.verbs import Choice, ModelRequest, ReleaseRequest, Request
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
) -> Release | PartsRelease:
    """Carry out a request for a release; its rows stay in memory, on disk or in parts."""
    stage, account = Stages(on_stage), Account() if account is None else account
    # 1. Report everything that is wrong with the table at once, and show what will be published.
    with stage("reading the table"):
        named = request.columns.named
        rows = source if isinstance(source, Parts) else read_rows(source, named=named)
    with stage("checking the table"):
        table: Table
        if isinstance(rows, Parts):
            table = PartsTable.checked(rows, request)
        else:
            table = LocalTable.checked(rows, request, is_confirmed=confirmed is True)
    _confirm(table, request.budget, confirmed)

    # 2. Plan before anything is asked, unless what will be paid for may say which bags serve best.
    if not request.plans_late:
        request = _choose(table, request, stage)
    with stage("ordering the rows"):
        table = table.in_secret_order(request)
    with stage("encoding features"):
        X = table.matrix(request)

    # 3. Bag and ask. A strategy sees features and paid scores, never labels.
    if isinstance(request, Choice) and request.scores == "none":
        # The noise may depend on the bags: on their sizes, and where the rows of a unit are.
        choice = request
        with stage("forming bags"):
            formed = table.form_bags(X, Answers(), choice)
        reach = formed.reach
        answers = _ask(table, X, choice, reach, account, stage)
    else:
        # Bags that follow from answers are not counted: the noise allows for any.
        size, largest = request.scores_request.bag_size, table.everyone.largest_unit
        answers = _ask(table, X, request, Reach.at_worst({size: 1}, largest), account, stage)
        left = replace(request, budget=answers.budget)
        choice = left if isinstance(left, Choice) else _choose(table, left, stage, answers)
        with stage("forming bags"):
            formed = table.form_bags(X, answers, choice)
        reach = Reach.at_worst(formed.bags.count_sizes(), largest)
    del table, X
    choice = replace(choice, budget=answers.budget)
    answers = replace(answers, scores=None)  # one for each row, which have done their work

    # 4. Take the rows that leave, and settle what hides their labels. Then pay.
    with stage("taking the rows"):
        leaving = formed.leaving(answers, choice)
        del formed
    with stage("aggregating labels"):
        labelling = settle_labels(reach, answers, choice)
        if labelling.events:
            account.charge(labelling.events)

        # 5. One label a bag, drawn once, with what is promised of it.
        provenance = _provenance(choice, answers)
        certificate = certify(
            labelling.events,
            choice.budget,
            unit_rows=reach.rows,
            smallest_bag=min(reach.sizes),
            circumstances=circumstances_of(provenance),
            limit=answers.limit,
            mark=account.mark,
        )
        return leaving.release(labelling, choice, answers, certificate, provenance)


def _confirm(table: Table, budget: Budget, confirmed: bool | Confirm) -> None:
    """Go on only if the columns are confirmed and, experiments aside, a guarantee is promised."""
    confirm_columns(table.preview, confirmed)
    n_rows = table.everyone.n_rows
    budget.check_rows(n_rows)
    if budget.promises:
        warn_of_strong_promise(budget.rule.epsilon, n_rows=n_rows)


def _choose(
    table: Table, request: ReleaseRequest, stage: Stages, answers: Answers | None = None
) -> Choice:
    """Return the strategy and size that were named, or those that the planner chooses."""
    if request.strategy is not None and request.bag_size is not None:
        choice = request.choose(request.strategy, request.bag_size, request.scores)
    else:
        with stage("planning"):
            choice = decide(table.for_a_plan(), request, table.everyone, answers)
    # What cannot be formed is refused before anything more is asked and charged for.
    check_bag_size(choice.bag_size, n_rows=table.everyone.n_rows)
    table.check_choice(choice)
    return choice


def _ask(
    table: Table, X: Any, request: ReleaseRequest, reach: Reach, account: Account, stage: Stages
) -> Answers:
    """Settle every query, charge, and ask: bounds, a range, scores, a model to centre labels on.

    The reach is that of the bags, or of any where they follow from the answers. On many machines X
    has its labels with it, and the table has none.
    """
    budget, scored = request.budget, request.scores_request
    # 1. Settle, from public quantities alone, what is asked and how privately. Then pay.
    with stage("settling what to ask"):
        queries = _settle(table, X, request)
    if (rule := budget.calibration) is not None and queries != Queries():
        # With what bags will cost. Where nothing is asked, they are charged when labelled.
        left, kind, size = rule.after(*queries.searches), request.label_kind, scored.bag_size
        label = price_labels(left, reach, queries.spent, label_kind=kind, bag_size=size)
        account.charge((*left.prior, *queries.spent, label))
    # 2. Ask in this order: each answer is paid for, so that the next question may depend on it.
    budget = ask_range(queries, table.counted, budget, stage)
    queries = queries.within(budget.calibration)
    with stage("computing scores"):
        return ask_labels(
            scored.kind, queries, table.labels, X, budget, stage, family=request.family
        )


def _settle(table: Table, X: Any, request: Request) -> Queries:
    """Settle all queries of a request on a table, whose features are X."""
    budget, everyone = request.budget, table.everyone
    return settle_queries(
        budget.calibration,
        X,
        everyone.encoder.feature_names,
        unit_rows=everyone.largest_unit,
        tighten=request.tighten,
        centre=request.centre,
        scores=request.scores_request,
        stated=budget.find_within is None,
    )


def _provenance(choice: Choice, answers: Answers) -> Provenance:
    """Return how a release was made, to be recorded in its manifest."""
    columns = choice.columns
    return Provenance(
        label=columns.label,
        classes=columns.classes,
        bag_size=int(choice.bag_size),
        strategy=choice.strategy.name,
        strategy_parameters=parameters_of(choice.strategy),
        chosen_because=choice.why,
        scores=choice.scores,
        centre="model" if answers.centred else "none",
        seed=choice.seed,
        row_order="kept" if choice.keep_order else "secret permutation",
        id=columns.id,
        by=columns.by,
        within=columns.within,
        exposure=columns.exposure,
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
        table = LocalTable.checked(rows, request, is_confirmed=confirmed is True)
    _confirm(table, budget, confirmed)
    table = table.take(secret_order(rows.num_rows, budget.noise_source))
    labels, everyone = table.labels, table.everyone
    X = EncodedRows(table.rows, everyone.encoder)
    # 2. Settle what is asked: perhaps bounds and a range, and with all that they leave the model.
    # Then pay.
    with stage("weighing the rows"):
        queries = _settle(table, X, request)
    account.charge((*queries.searches, *queries.spent))
    # 3. Ask.
    budget = ask_range(queries, labels, budget, stage)
    rule = budget.rule
    query = queries.within(rule).model
    if query is None:
        raise AssertionError("the model was settled")
    with stage("releasing the model"):
        fit = ask_model(query, labels, X, budget, request.family)
    # 4. Assemble the model that is published, and its guarantee.
    certificate = certify(
        (*rule.prior, query.event),
        budget,
        unit_rows=everyone.largest_unit,
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
        encoder=everyone.encoder,
    )
    return released.certified(certificate)
