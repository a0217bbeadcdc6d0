"""From a table and a request to a release: the way that the data takes, step by step.

::

    source ─► rows ─► checked: labels, names, encoder        rows.local, release.checks
                │     shown to the custodian, who confirms   release.preview
                ▼
       in a secret order, with units, groups and strata      release.labelled
                │
       ┌────────┴── what comes first depends on what follows from what ───────────┐
       │ bags from features     plan ► bag ► ask     noise may depend on the bags  │
       │ bags from scores       plan ► ask ► bag     bags depend on paid answers   │
       │ planned with answers   ask ► plan ► bag     and so does the plan          │
       └────────┬──────────────────────────────────────────────────────────────────┘
                │  plan: strategy and size, from a sample    planner.automatic
                │  ask: settle all queries ► charge ►        requests.queries
                │       range ► scores ► centre
                │  bag: features and paid scores, no labels  bagging, release.cells
                ▼
       rows in the order in which they leave                 release.labelled
                ▼
       one label a bag: charge, aggregate, add noise         release.label_bags
                ▼
       certificate, provenance ─► Release ─► files           requests.budget, release.release

Rules that keep it safe:

1. How privately each query is asked is settled before the first draw, from public quantities alone
   (`settle_queries`), and everything is charged before it (`charge_ahead`).
2. Strategies and the planner see features and paid answers, never labels.
3. A seed drives the partition only. Noise, picks and the order of rows have none.
4. A step that fails tells its name and never a label (`show.stages`).

On Spark the same steps run where the rows are (`release.build_in_parts`); `ask` is shared.
``python -m tools.walk`` counts the functions on this way.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from bagwise._types import AnyArray
from bagwise.bagging import assign_bags, check_bag_size, check_strata, parameters_of
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.ledger import Account, Uncharged
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel
from bagwise.planner.automatic import decide
from bagwise.privacy.calibrate import Calibration, ExactCalibration
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.private_model import LinearScores
from bagwise.privacy.promise import check_promise
from bagwise.privacy.units import ProtectedUnits
from bagwise.release.cells import assign_by_cells
from bagwise.release.checks import CheckedTable, check_promise_of, check_table
from bagwise.release.exposure import report_exposure
from bagwise.release.label_bags import SizedBags, foreseen_events, label_bags
from bagwise.release.labelled import (
    Labelled,
    in_secret_order,
    leaving_order,
    take_leaving,
)
from bagwise.release.preview import Confirm, confirm_columns
from bagwise.release.release import Release
from bagwise.release.verify import circumstances_of, noise_per_bag
from bagwise.requests.budget import Budget, certify
from bagwise.requests.columns import Columns, read_given
from bagwise.requests.provenance import Provenance
from bagwise.requests.queries import (
    NO_SCORES,
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
    price_own_model,
    price_range,
    settle_queries,
    take_range,
)
from bagwise.requests.verbs import BoundsRequest, Choice, ModelRequest, ReleaseRequest
from bagwise.rng import make_generator
from bagwise.rows import Rows
from bagwise.rows.encoded import EncodedRows
from bagwise.rows.labels import Bounds, label_vector
from bagwise.rows.local import read_rows
from bagwise.rows.row_order import secret_order
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build(
    source: Any,
    request: ReleaseRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> Release:
    """Carry out a request for a release."""
    stage, account = Stages(on_stage), Uncharged() if account is None else account
    with stage("reading the table"):
        rows = read_rows(source, named=request.columns.named)
    checked = _check(rows, request.columns, request.budget, confirmed, stage)
    given = read_given(rows, by=request.columns.by, within=request.columns.within)

    if request.plans_late:
        # Any bags get the same noise: what was paid for may say which bags serve best.
        table = in_secret_order(rows, checked, given, request, stage)
        with stage("encoding features"):
            X = table.encoded()
        asked = _ask(table, X, NO_SCORES, None, request, account, stage)
        choice = _choose(rows, request.within(asked.rule), stage, asked.outlook)
        bags = _form_bags(table, X, asked.scores, choice, stage)
    else:
        choice = _choose(rows, request, stage)
        request = request.as_chosen(choice)
        check_bag_size(choice.bag_size, n_rows=rows.num_rows)
        check_strata(given.smallest_stratum, choice.bag_size)
        table = in_secret_order(rows, checked, given, request, stage)
        with stage("encoding features"):
            X = table.encoded_for(choice, centred=request.centre != "none")
        if choice.scores == "none":
            # The noise may depend on the bags: on their sizes, and where the rows of a unit are.
            bags = _form_bags(table, X, Scores(None), choice, stage)
            asked = _ask(table, X, choice.scores_request, bags, request, account, stage)
        else:
            _check_cells(table, choice)  # refused before anything is asked and charged for
            asked = _ask(table, X, choice.scores_request, None, request, account, stage)
            bags = _form_bags(table, X, asked.scores, choice, stage)
    del X, checked, given
    choice = choice.within(asked.rule)
    table, bags, asked = _as_they_leave(table, bags, choice, asked)
    return _answer(table, bags, choice, asked, account, stage)


@dataclass(frozen=True)
class Asked:
    """What was asked of the labels before bags get theirs, and the answers, which are paid for.

    The rule is that for what the queries leave, within a private range if one was asked for.
    """

    queries: Queries
    rule: Calibration | None
    scores: Scores
    centring: Centring

    @property
    def exact_rule(self) -> ExactCalibration:
        """The rule where there can be private queries."""
        if not isinstance(self.rule, ExactCalibration):
            raise AssertionError("private queries have the exact rule")
        return self.rule

    @property
    def outlook(self) -> Outlook:
        """What a plan may know."""
        return look_ahead(self.exact_rule, self.centring)

    @property
    def tightened(self) -> Bounds | None:
        """The private range, if one was asked for."""
        return None if self.queries.range is None else self.exact_rule.bounds

    @property
    def model(self) -> LinearScores | None:
        """The model that is published with the bags, if one was bought."""
        return self.centring.model or self.scores.model


def _check(
    rows: Rows,
    columns: Columns,
    budget: Budget,
    confirmed: bool | Confirm,
    stage: Stages,
) -> CheckedTable:
    """Say all that is wrong with a table at once, and show what will be published of it."""
    with stage("checking the table"):
        checked = check_table(rows, columns, budget)
    confirm_columns(checked.preview, confirmed)
    check_promise_of(budget, rows.num_rows)
    return checked


def _choose(
    rows: Rows, request: ReleaseRequest, stage: Stages, outlook: Outlook | None = None
) -> Choice:
    """Return what was named, or what the planner says."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    with stage("planning"):
        return decide(rows, request, outlook)


def _ask(
    table: Labelled,
    X: Any,
    scored: ScoresRequest,
    bags: Bags | None,
    request: ReleaseRequest,
    account: Account,
    stage: Stages,
) -> Asked:
    """Ask of labels in memory."""
    names, units, labels = table.encoder.feature_names, table.units, table.labels
    return ask(X, names, units, scored, bags, request, account, stage, labels, counted=labels)


def ask(
    X: Any,
    names: Sequence[str],
    units: ProtectedUnits,
    scored: ScoresRequest,
    bags: SizedBags | None,
    request: ReleaseRequest,
    account: Account,
    stage: Stages,
    labels: AnyArray | None,
    *,
    counted: Any,
) -> Asked:
    """Settle every query, charge for them, and ask: a range, scores, what labels are centred on.

    Parameters
    ----------
    scored : ScoresRequest
        What bags will be formed by.
    bags : SizedBags or None
        None where they follow from the answers.
    labels, counted : (n,) numbers
        Secret. On many machines X has its labels with it: then they are None, and `counted` is what
        counts them there.
    """
    budget, source = request.budget, request.budget.noise_source
    # 1. Settle, from public quantities alone, what is asked and how privately. Then pay.
    with stage("settling what to ask"):
        queries = settle_queries(
            budget.calibration,
            X,
            names,
            unit_rows=units.largest,
            tighten=request.tighten,
            centre=request.centre,
            scores=scored,
        )
    charge_ahead(account, queries, bags, units, request, bag_size=scored.bag_size)
    # 2. Ask in this order: each answer is paid for, so that the next question may depend on it.
    with stage("finding a range"):
        rule = ask_range(counted, budget.calibration, queries.range, source)
    bounds = budget.bounds if rule is None else rule.bounds
    queries = queries.within(rule)
    with stage("computing scores"):
        scores = ask_scores(
            scored.kind,
            labels,
            X,
            queries.scores,
            family=request.family,
            bounds=bounds,
            source=source,
        )
    with stage("centring the labels"):
        centring = ask_centre(
            labels,
            X,
            queries,
            rule,
            family=request.family,
            stated=budget.bounds,
            scored=scores.model,
            source=source,
        )
    return Asked(queries, rule, scores, centring)


def charge_ahead(
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
    if queries.range is not None and isinstance(rule, ExactCalibration):
        rule = rule.within(rule.bounds, queries.range)
    kind = request.label_kind
    account.charge(foreseen_events(rule, queries, bags, units, label_kind=kind, bag_size=bag_size))


def _check_cells(table: Labelled, choice: Choice) -> None:
    """Refuse a strategy that cannot follow columns of so many rows."""
    follows = table.given.groups is not None or table.given.strata is not None
    if choice.strategy.needs_features and not table.fits and follows:
        raise StrategyError(
            f"bags by {choice.strategy.name!r} of a table that does not fit into memory cannot "
            "follow columns (by, within). Give more memory (--memory-limit), or release parts."
        )


def _form_bags(table: Labelled, X: Any, scores: Scores, choice: Choice, stage: Stages) -> Bags:
    """Put rows into bags; a strategy sees features and paid scores, never labels."""
    strategy, size, rng = choice.strategy, choice.bag_size, make_generator(choice.seed)
    with stage("forming bags"):
        if not strategy.needs_features or table.fits:
            given = table.given
            return assign_bags(strategy, X, scores.values, bag_size=size, rng=rng, given=given)
        _check_cells(table, choice)
        return assign_by_cells(
            strategy, X, table.rows, bag_size=size, rng=rng, scores=scores.values
        )


def _as_they_leave(
    table: Labelled, bags: Bags, choice: Choice, asked: Asked
) -> tuple[Labelled, Bags, Asked]:
    """Put all that has an entry a row into the order in which rows leave."""
    # Scores have done their work, and there is one for each row.
    asked = dataclasses.replace(asked, scores=dataclasses.replace(asked.scores, values=None))
    order = leaving_order(table, seed=choice.seed, source=choice.noise_source)
    if order is None:  # they are in a secret one already
        return table, bags.renumbered(), asked
    centred = dataclasses.replace(asked, centring=asked.centring.take(order))
    return table.take(order), bags.take(order), centred


def _answer(
    table: Labelled, bags: Bags, choice: Choice, asked: Asked, account: Account, stage: Stages
) -> Release:
    """Give every bag its label, and certify what was spent."""
    labels, units, centring = table.labels, table.units, asked.centring
    with stage("taking the rows"):
        instances, stored = take_leaving(table.rows, table.names, choice.columns)
    # One label a bag, drawn once, after the account is charged.
    with stage("aggregating labels"):
        values, events = label_bags(
            labels, bags, units, asked.scores, centring, choice, before_draw=account.charge
        )
    if choice.calibration is None:
        with stage("looking for exposed labels"):
            report_exposure(
                labels,
                bags,
                values,
                label_kind=choice.label_kind,
                bounds=choice.bounds,
                warn=choice.scores != "labels",  # of which the scores have warned already
            )
    # What leaves, and what it promises.
    certificate = certify(
        events,
        choice.budget,
        unit_rows=units.largest,
        smallest_bag=int(bags.sizes.min()),
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=asked.tightened,
        limit=centring.limit,
        mark=account.mark,
    )
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(events, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certificate,
        encoder=table.encoder,
        instances=instances,
        provenance=provenance_of(choice, centring),
        model=asked.model,
        stored=stored,
    )


def provenance_of(choice: Choice, centring: Centring) -> Provenance:
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
    account = Uncharged() if account is None else account
    stage, columns, budget = Stages(on_stage), request.columns, request.budget
    # 1. Read and check the table; rows are looked at in a secret order.
    with stage("reading the table"):
        rows = read_rows(source, named=columns.named)
    checked = _check(rows, columns, budget, confirmed, stage)
    order, encoder = secret_order(rows.num_rows, budget.noise_source), checked.encoder
    rows, labels = rows.take(order), checked.labels[order]
    X, unit_rows = EncodedRows(rows, encoder), budget.units_in(rows).largest
    # 2. Settle what is asked: perhaps a range, and with all that it leaves the model. Then pay.
    stated, n_rows = request.calibration, rows.num_rows
    ranged = price_range(stated, n_rows=n_rows, unit_rows=unit_rows, asked=request.tighten)
    left = stated if ranged is None else stated.within(stated.bounds, ranged)
    with stage("weighing the rows"):
        query = price_own_model(left, X, encoder.feature_names, unit_rows=unit_rows)
    account.charge((*left.prior, query.event))
    # 3. Ask.
    if ranged is not None:
        with stage("finding a range"):
            left = take_range(labels, stated, ranged, budget.noise_source)
        query = query.within(left.bounds)
    with stage("releasing the model"):
        fit = ask_model(
            query,
            labels,
            X,
            family=request.family,
            bounds=left.bounds,
            source=budget.noise_source,
        )
    # 4. What leaves, and what it promises.
    certificate = certify(
        (*left.prior, query.event),
        budget,
        unit_rows=unit_rows,
        tightened=None if ranged is None else left.bounds,
        mark=account.mark,
    )
    released = RowModel.of(
        fit.kept,
        n_rows=n_rows,
        family=request.family.name,
        link=request.family.link,
        loss=RELEASED_DIRECTLY,
        label=columns.label,
        bounds=certificate.stated_bounds,
        encoder=encoder,
    )
    return released.certified(certificate)


def build_bounds(
    source: Any, request: BoundsRequest, *, account: Account | None = None
) -> PrivateBounds:
    """Choose label bounds privately."""
    account = Uncharged() if account is None else account
    stage, columns, budget = Stages(), request.columns, request.budget
    with stage("reading the table"):
        rows = read_rows(source, named=columns.named)
    check_promise(request.epsilon, 0.0, n_rows=rows.num_rows)
    with stage("checking the labels"):
        labels = label_vector(rows, columns.label)  # (n,), secret
    with stage("choosing bounds"):
        chosen = choose_bounds(
            labels,
            epsilon=request.epsilon,
            outside=request.outside,
            source=budget.noise_source,
            rows=budget.units_in(rows).largest,
            before_draw=account.charge,
        )
    return dataclasses.replace(chosen, unit=columns.unit, mark=account.mark)
