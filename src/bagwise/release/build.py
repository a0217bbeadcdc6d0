"""From a table and a choice to a release: the steps in order."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import (
    BaggingStrategy,
    Given,
    assign_bags,
    check_bag_size,
    measures_by_scores,
    parameters_of,
)
from bagwise.bagging.bags import Bags
from bagwise.errors import ColumnError, StrategyError, shielded
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.files.stored import StoredTable
from bagwise.ledger import Account, Uncharged
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel
from bagwise.planner.automatic import decide
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.promise import check_promise, warn_of_strong_promise
from bagwise.privacy.units import ProtectedUnits
from bagwise.release.cells import assign_by_cells
from bagwise.release.certify import certify
from bagwise.release.checks import check_table, leaving_columns
from bagwise.release.exposure import report_exposure
from bagwise.release.label_bags import SizedBags, foreseen_events, label_bags
from bagwise.release.preview import Confirm, confirm_columns
from bagwise.release.release import Release
from bagwise.release.verify import circumstances_of, noise_per_bag
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns, read_given
from bagwise.requests.provenance import Provenance
from bagwise.requests.queries import (
    Centring,
    Outlook,
    Schedule,
    look_ahead,
    schedule_looks,
    schedule_range,
    take_centring,
    take_range,
)
from bagwise.requests.scores import (
    PricedLabels,
    PricedModel,
    ScoreBudget,
    Scores,
    cheapest_model,
    compute_scores,
    price_scores,
)
from bagwise.requests.verbs import BoundsRequest, Choice, ModelRequest, ReleaseRequest
from bagwise.rng import make_generator
from bagwise.rows import Rows
from bagwise.rows.encode import Encoder
from bagwise.rows.encoded import EncodedRows
from bagwise.rows.labels import label_vector
from bagwise.rows.local import read_rows
from bagwise.rows.row_order import inverse_order, secret_order
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build(
    source: Any,
    request: ReleaseRequest,
    *,
    account: Account | None = None,
    confirmed: bool | Confirm = True,
    on_stage: OnStage = ignore_stage,
) -> Release:
    """Carry out a request: the steps in order, and nothing else."""
    run, columns, budget = Stages(on_stage), request.columns, request.budget
    account = Uncharged() if account is None else account
    rows = run("reading the table", read_rows, source, named=columns.named)
    table = rows  # in its own order, for a plan
    # All that is wrong with the table is said at once, and what will be published is shown.
    checked = run("checking the table", check_table, rows, columns, budget)
    confirm_columns(checked.preview, confirmed)
    given = read_given(rows, by=columns.by, within=columns.within)
    choice = None
    if not request.plans_late:
        choice = _choose(run, rows, request)
        request = dataclasses.replace(request, budget=choice.budget)  # perhaps of single labels
        check_bag_size(choice.bag_size, n_rows=rows.num_rows)
        given.check_size(choice.bag_size)
    check_rows(budget, rows.num_rows)
    labels, names, encoder = checked.labels, checked.names, checked.encoder
    del checked
    order = run("ordering the rows", _computing_order, rows, names, request)
    rows, labels, given = rows.take(order), labels[order], given.take(order)
    computing = order if request.keep_order else None
    del order
    units = budget.units_in(rows)
    X = run("encoding features", _encode, rows, encoder, request, choice)  # (n, d), public
    bags = _form_early(run, X, given, choice, rows)  # what noise there is may depend on them
    # Settled before the first look at labels: which there are, and how private each is.
    schedule = run("planning looks", settle_looks, X, encoder, units, request, choice)
    charge_ahead(account, schedule, bags, units, request, choice)
    request, schedule = run("finding a range", tighten_range, labels, schedule, request)
    if choice is not None:
        choice = dataclasses.replace(choice, budget=request.budget)
    scores = run("computing scores", _compute_scores, labels, X, schedule, choice)
    centring = run("centring the labels", centre_labels, labels, X, schedule, scores, request)
    if choice is None:
        choice = _choose(run, table, request, look_ahead(exact_rule(request), centring))
    if bags is None:
        bags = run("forming bags", _form_bags, X, scores, given, choice, rows)
    scores = dataclasses.replace(scores, values=None)  # one for each row; nobody needs them now
    del X
    leaving = _leaving_order(computing, labels.size, request)
    if leaving is None:  # the order is a secret one already
        bags = bags.renumbered()
    else:
        rows = rows.take(leaving)
        bags, labels, units = bags.take(leaving), labels[leaving], units.take(leaving)
        centring = None if centring is None else centring.take(leaving)
    del computing, leaving
    instances, stored = run("taking the rows", _take_rows, rows, names, columns)
    values, events = run(
        "aggregating labels",
        label_bags,
        labels,
        bags,
        units,
        scores,
        centring,
        choice,
        before_draw=account.charge,
    )
    if choice.calibration is None:
        run("looking for exposed labels", _report_exposure, labels, bags, values, choice)
    certificate = certify(
        events,
        budget,
        unit_rows=units.largest,
        smallest_bag=int(bags.sizes.min()),
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        tightened=None if schedule.tighten is None else exact_rule(request).bounds,
        limit=None if centring is None else centring.limit,
        mark=account.mark,
    )
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(events, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certificate,
        encoder=encoder,
        instances=instances,
        provenance=provenance_of(choice, centre="none" if centring is None else "model"),
        model=scores.model if centring is None else centring.model,
        stored=stored,
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
    run, columns, budget = Stages(on_stage), request.columns, request.budget
    rows = run("reading the table", read_rows, source, named=columns.named)
    check_rows(budget, rows.num_rows)
    checked = run("checking the table", check_table, rows, columns, budget)
    confirm_columns(checked.preview, confirmed)
    labels, encoder = checked.labels, checked.encoder
    del checked
    order = secret_order(rows.num_rows, budget.noise_source)
    rows, labels = rows.take(order), labels[order]
    units = budget.units_in(rows)
    rule, source, unit_rows = request.calibration, budget.noise_source, units.largest
    look = schedule_range(rule, n_rows=rows.num_rows, unit_rows=unit_rows, asked=request.tighten)
    if look is not None:  # the rule for what it leaves
        rule = rule.within(rule.bounds, look)
    share = ScoreBudget(rule, share=1.0, bag_size=1, unit_rows=unit_rows)
    X, names = EncodedRows(rows, encoder), encoder.feature_names
    priced = run("weighing the rows", cheapest_model, X, names, share)
    family = request.family
    account.charge((*rule.prior, priced.event))
    if look is not None:
        rule = run("finding a range", take_range, labels, request.calibration, look, source)
        priced = priced.within(rule.bounds)
    fit = run(
        "releasing the model",
        priced.release,
        labels,
        X,
        family=family,
        bounds=rule.bounds,
        source=source,
    )
    certificate = certify(
        (*rule.prior, priced.event),
        budget,
        unit_rows=unit_rows,
        tightened=None if look is None else rule.bounds,
        mark=account.mark,
    )
    released = RowModel.of(
        fit.kept,
        n_rows=rows.num_rows,
        family=family.name,
        link=family.link,
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
    run, columns, budget = Stages(), request.columns, request.budget
    rows = run("reading the table", read_rows, source, named=columns.named)
    check_promise(request.epsilon, 0.0, n_rows=rows.num_rows)
    labels = run("checking the labels", label_vector, rows, columns.label)  # (n,), secret
    found = run(
        "choosing bounds",
        choose_bounds,
        labels,
        epsilon=request.epsilon,
        outside=request.outside,
        source=budget.noise_source,
        rows=budget.units_in(rows).largest,
        before_draw=account.charge,
    )
    return dataclasses.replace(found, unit=columns.unit, mark=account.mark)


def _choose(
    run: Stages,
    rows: Rows,
    request: ReleaseRequest,
    outlook: Outlook | None = None,
) -> Choice:
    """Return what was named, or what the planner says."""
    if request.strategy is not None and request.bag_size is not None:
        return request.choose(request.strategy, request.bag_size, request.scores)
    return run("planning", decide, rows, request, outlook)


def exact_rule(request: ReleaseRequest) -> ExactCalibration:
    """Return the rule for noise where private looks may be taken."""
    if not isinstance(request.budget.calibration, ExactCalibration):
        raise AssertionError("private looks have the exact rule")
    return request.budget.calibration


def settle_looks(
    X: Any, encoder: Encoder, units: ProtectedUnits, request: ReleaseRequest, choice: Choice | None
) -> Schedule:
    """Settle which looks are taken, and how privately, from public quantities alone."""
    rows, names = units.largest, encoder.feature_names
    if (request.tighten, request.centre) == ("none", "none"):
        return Schedule(scores=_price_scores(X, names, units, request.budget, choice))
    rule = exact_rule(request)
    lean = request.centre == "auto" and choice is not None and not needs_matrix(choice.strategy)
    scored = choice is not None and choice.scores == "model"
    looks = schedule_looks(
        rule,
        X,
        names,
        unit_rows=rows,
        tighten=request.tighten,
        centre="none" if lean else request.centre,
        scored=scored and not _shares_model(choice),
    )
    if scored and looks.model is not None:  # one that is good enough to centre on is for both
        return dataclasses.replace(looks, scores=looks.model, model=None)
    if looks.tighten is not None:
        rule = rule.within(rule.bounds, looks.tighten)
    scores = _price_scores(X, names, units, request.within(rule).budget, choice)
    return dataclasses.replace(looks, scores=scores)


def _shares_model(choice: Choice | None) -> bool:
    """Tell whether a model for bags may be as good as one to centre on wants to be.

    A model that rows are sorted by has its own best share of the budget. One that is a metric only
    takes what it is given, unless somebody says how much.
    """
    return (
        choice is not None and measures_by_scores(choice.strategy) and choice.score_share == "auto"
    )


def _price_scores(
    X: Any, names: Sequence[str], units: ProtectedUnits, budget: Budget, choice: Choice | None
) -> PricedLabels | PricedModel | None:
    if choice is None or budget.calibration is None:  # bags that are planned late have none
        return None
    rule, rows = budget.calibration, units.largest
    if choice.label_kind == "pick" and rows > 1:
        # The bound for groups covers picks and scores at once, so both are set by row.
        rule, rows = rule.per_row(rows), 1
    metric = measures_by_scores(choice.strategy)
    share = ScoreBudget(rule, choice.score_share, choice.bag_size, rows, for_metric=metric)
    return price_scores(choice.scores, X, names, share)


def charge_ahead(
    account: Account,
    schedule: Schedule,
    bags: SizedBags | None,
    units: ProtectedUnits,
    request: ReleaseRequest,
    choice: Choice | None,
) -> None:
    """Charge for everything if there are looks; else the bags are charged when they get labels."""
    rule = request.budget.calibration
    if rule is None or schedule == Schedule():
        return
    if schedule.tighten is not None:
        rule = exact_rule(request).within(rule.bounds, schedule.tighten)
    bag_size = None if choice is None else choice.bag_size
    kind = request.label_kind
    account.charge(foreseen_events(rule, schedule, bags, units, label_kind=kind, bag_size=bag_size))


def tighten_range(
    labels: AnyArray, schedule: Schedule, request: ReleaseRequest
) -> tuple[ReleaseRequest, Schedule]:
    """Return the request and the other looks for a private range, if one is looked for."""
    if schedule.tighten is None:
        return request, schedule
    source = request.budget.noise_source
    rule = take_range(labels, exact_rule(request), schedule.tighten, source)
    return request.within(rule), schedule.within(rule.bounds)


def centre_labels(
    labels: AnyArray | None, X: Any, schedule: Schedule, scores: Scores, request: ReleaseRequest
) -> Centring | None:
    """Find what labels are centred on, if that is scheduled; X may have its labels with it."""
    stated = request.budget.bounds
    if schedule.limit is None or stated is None:
        return None
    return take_centring(
        labels,
        X,
        schedule,
        exact_rule(request),
        family=request.family_of_model,
        bounds=stated,
        scored=scores.model,
        source=request.budget.noise_source,
    )


def check_rows(budget: Budget, n_rows: int) -> None:
    """Refuse an empty promise, and warn of one that leaves nothing; experiments are left alone."""
    budget.check_rows(n_rows)
    rule = budget.calibration
    if rule is not None and rule.is_exact and budget.noise_source.is_secret:
        warn_of_strong_promise(rule.epsilon, n_rows=n_rows)


def _encode(rows: Rows, encoder: Encoder, request: ReleaseRequest, choice: Choice | None) -> Any:
    """Return X: whole only if it is needed so, sparse if that saves memory."""
    if rows.rows_at_once < rows.num_rows:
        return EncodedRows(rows, encoder)
    if choice is None:
        return encoder.transform(rows)
    if not needs_matrix(choice.strategy):
        return EncodedRows(rows, encoder)
    modelled = choice.scores == "model" or request.centre != "none"
    if encoder.is_mostly_zeros and not modelled and choice.strategy.accepts_sparse:
        return encoder.transform_sparse(rows)
    return encoder.transform(rows)


def needs_matrix(strategy: BaggingStrategy) -> bool:
    """Tell whether a strategy wants X as a whole; others leave it in the table."""
    return strategy.needs_features


def _compute_scores(labels: AnyArray, X: Any, schedule: Schedule, choice: Choice | None) -> Scores:
    if choice is None:  # bags that are planned late have none
        return Scores(None)
    return compute_scores(
        choice.scores,
        labels,
        X,
        schedule.scores,
        bounds=choice.bounds if choice.calibration is None else choice.calibration.bounds,
        source=choice.noise_source,
        family=choice.family,
    )


def _form_early(
    run: Stages, X: Any, given: Given, choice: Choice | None, rows: Rows
) -> Bags | None:
    """Return bags that follow from features; None for others, which must at least be possible.

    What cannot be made is refused now, before labels are looked at and charged for.
    """
    if choice is None:
        return None
    if choice.scores != "none":
        _check_cells(choice, given, rows)
        return None
    return run("forming bags", _form_bags, X, Scores(None), given, choice, rows)


def _check_cells(choice: Choice, given: Given, rows: Rows) -> None:
    """Refuse a strategy that cannot follow columns of so many rows."""
    by_cells = needs_matrix(choice.strategy) and rows.rows_at_once < rows.num_rows
    if by_cells and (given.groups is not None or given.strata is not None):
        raise StrategyError(
            f"bags by {choice.strategy.name!r} of a table that does not fit into memory cannot "
            "follow columns (by, within). Give more memory (--memory-limit), or release parts."
        )


def _form_bags(X: Any, scores: Scores, given: Given, choice: Choice, rows: Rows) -> Bags:
    rng, size = make_generator(choice.seed), choice.bag_size
    if not needs_matrix(choice.strategy) or rows.rows_at_once >= rows.num_rows:
        return assign_bags(choice.strategy, X, scores.values, bag_size=size, rng=rng, given=given)
    _check_cells(choice, given, rows)
    return assign_by_cells(choice.strategy, X, rows, bag_size=size, rng=rng, scores=scores.values)


def _report_exposure(labels: AnyArray, bags: Bags, values: FloatArray, choice: Choice) -> None:
    sorted_by_label = choice.scores == "labels"  # of which the scores have warned already
    kind, bounds = choice.label_kind, choice.bounds
    report_exposure(labels, bags, values, label_kind=kind, bounds=bounds, warn=not sorted_by_label)


def _computing_order(rows: Rows, names: list[str], request: ReleaseRequest) -> IntArray:
    """Return the order in which rows are looked at; the source may be sorted by its label."""
    source = request.budget.noise_source
    if request.keep_order or request.seed is not None:
        return rows.feature_order(names, source)
    return secret_order(rows.num_rows, source)


def _leaving_order(
    computing: IntArray | None, n_rows: int, request: ReleaseRequest
) -> IntArray | None:
    """Return the order in which rows leave, in terms of the one they were looked at.

    None if it is the same one, a secret one. `computing` is known if the order is to be kept.
    """
    if computing is not None:
        return inverse_order(computing)
    if request.seed is not None:
        return secret_order(n_rows, request.budget.noise_source)
    return None


def _take_rows(
    rows: Rows, names: list[str], columns: Columns
) -> tuple[pa.Table, StoredTable | None]:
    leaving = rows.hand_over(leaving_columns(names, columns))
    kept = shielded(
        lambda: as_parquet_keeps_it(leaving),
        lambda _: ColumnError("a column, perhaps the id, has a type that Parquet cannot hold."),
    )
    return kept, rows.stored


def provenance_of(choice: Choice, *, centre: Literal["none", "model"]) -> Provenance:
    """Return how a release was made, for its manifest."""
    return Provenance(
        label=choice.columns.label,
        classes=choice.columns.classes,
        bag_size=int(choice.bag_size),
        strategy=choice.strategy.name,
        strategy_parameters=parameters_of(choice.strategy),
        chosen_because=choice.why,
        scores=choice.scores,
        centre=centre,
        seed=choice.seed,
        row_order="kept" if choice.keep_order else "secret permutation",
        id=choice.columns.id,
        by=choice.columns.by,
        within=choice.columns.within,
        exposure=choice.columns.exposure,
    )
