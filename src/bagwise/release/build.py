"""From a table and a choice to a release: the steps in order."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import (
    assign_bags,
    check_bag_size,
    parameters_of,
    traits_of,
)
from bagwise.bagging.bags import Bags
from bagwise.data.columns import (
    refuse_lookalikes,
    without_dictionary,
)
from bagwise.data.encode import Encoder
from bagwise.data.label_copies import (
    note_likely_copies,
    refuse_copies_of_class,
    refuse_copies_of_label,
)
from bagwise.data.labels import label_codes, label_vector
from bagwise.data.row_order import inverse_order, secret_order
from bagwise.engines import Rows
from bagwise.engines.encoded import EncodedRows
from bagwise.engines.local import read_rows
from bagwise.errors import ColumnError, shielded
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.models.from_statistics import RELEASED_NOTE
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel, TrainedOn
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.promise import check_promise, warn_of_strong_promise
from bagwise.privacy.units import Units
from bagwise.release.certify import certify
from bagwise.release.exposure import report_exposure
from bagwise.release.label_bags import label_bags
from bagwise.release.provenance import Provenance
from bagwise.release.release import BAG_ID, Release
from bagwise.release.request import BoundsRequest, Budget, Choice, Columns, ModelRequest
from bagwise.release.scores import ScoreBudget, Scores, cheapest_model, compute_scores
from bagwise.release.verify import circumstances_of, noise_per_bag
from bagwise.release.wide_bounds import remark_on_wide_bounds
from bagwise.rng import make_generator
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build(source: Any, choice: Choice, *, on_stage: OnStage = ignore_stage) -> Release:
    """Carry out a choice: the steps in order, and nothing else."""
    run, columns, budget = Stages(on_stage), choice.columns, choice.budget
    rows = run("reading the table", read_rows, source, named=columns.named)
    check_bag_size(choice.bag_size, n_rows=rows.num_rows)
    _check_rows(budget, rows.num_rows)
    provenance = _provenance(choice)
    labels = run("checking the labels", _read_labels, rows, columns)  # (n,), secret
    if choice.calibration is not None and columns.classes is None:
        kind, bounds = rows.column(columns.label).type, choice.calibration.bounds
        remark_on_wide_bounds(kind, labels, bounds=bounds)
    names = run("checking the columns", _choose_columns, rows, labels, columns)
    order = run("ordering the rows", _computing_order, rows, names, choice)
    rows, labels = rows.take(order), labels[order]
    units = budget.units_in(rows)
    encoder, X = run("encoding features", _encode, rows, names, choice)  # X is (n, d), public
    scores = run("computing scores", _compute_scores, labels, X, encoder, units, choice)
    bags = run("forming bags", _form_bags, X, scores, choice)
    del X
    leaving = _leaving_order(order, choice)
    rows = rows.take(leaving)
    instances = run("taking the rows", _take_rows, rows, names, columns.id)
    bags, labels, units = bags.take(leaving), labels[leaving], units.take(leaving)
    values, events = run("aggregating labels", label_bags, labels, bags, units, scores, choice)
    if choice.calibration is None:
        run("looking for exposed labels", _report_exposure, labels, bags, values, choice)
    certificate = certify(
        events,
        budget,
        unit_rows=units.largest,
        smallest_bag=int(bags.sizes.min()),
        circumstances=circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
    )
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(events, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certificate,
        encoder=encoder,
        instances=instances,
        provenance=provenance,
        model=scores.model,
    )


def build_model(
    source: Any, request: ModelRequest, *, on_stage: OnStage = ignore_stage
) -> RowModel:
    """Release a private model instead of bags."""
    run, columns, budget = Stages(on_stage), request.columns, request.budget
    rows = run("reading the table", read_rows, source, named=columns.named)
    _check_rows(budget, rows.num_rows)
    labels = run("checking the labels", label_vector, rows, columns.label)  # (n,), secret
    kind, bounds = rows.column(columns.label).type, request.calibration.bounds
    remark_on_wide_bounds(kind, labels, bounds=bounds)
    names = run("checking the columns", _choose_columns, rows, labels, columns)
    order = secret_order(rows.num_rows, budget.noise_source)
    encoder = run("encoding features", columns.encoder_for, rows, names)  # public
    rows, labels = rows.take(order), labels[order]
    units = budget.units_in(rows)
    share = ScoreBudget(request.calibration, share=1.0, bag_size=1, unit_rows=units.largest)
    X, names, source = EncodedRows(rows, encoder), encoder.feature_names, budget.noise_source
    priced = run("weighing the rows", cheapest_model, X, names, share)
    family = request.family
    fit = run(
        "releasing the model",
        priced.release,
        labels,
        X,
        family=family,
        budget=share,
        source=source,
    )
    released = RowModel(
        family=family.name,
        link=family.link,
        loss=RELEASED_DIRECTLY,
        label=columns.label,
        encoder=encoder,
        coef=fit.coef,
        intercept=fit.intercept,
        trained_on=TrainedOn(
            n_rows=rows.num_rows, dispersion=fit.dispersion, converged=fit.converged
        ),
        standard_errors=fit.standard_errors,
        unshrunk=fit.unshrunk,
        note=RELEASED_NOTE,
    )
    events = (*request.calibration.prior, priced.event)
    return released.certified(certify(events, budget, unit_rows=units.largest))


def build_bounds(source: Any, request: BoundsRequest) -> PrivateBounds:
    """Choose label bounds privately."""
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
    )
    return dataclasses.replace(found, unit=columns.unit)


def _check_rows(budget: Budget, n_rows: int) -> None:
    """Refuse an empty promise, and warn of one that leaves nothing; experiments are left alone."""
    budget.check_rows(n_rows)
    rule = budget.calibration
    if rule is not None and rule.is_exact and budget.noise_source.is_secret:
        warn_of_strong_promise(rule.epsilon, n_rows=n_rows)


def _read_labels(table: Rows, columns: Columns) -> AnyArray:
    """Return labels as numbers, or as numbers of classes."""
    if columns.classes is None:
        return label_vector(table, columns.label)
    return label_codes(table, columns.label, columns.classes)


def _choose_columns(table: Rows, labels: AnyArray, columns: Columns) -> list[str]:
    names = columns.features_in(table)
    if columns.id is not None:
        _check_id(table, columns.id)
    leaving = [*names, *([columns.id] if columns.id else [])]
    refuse_lookalikes(leaving, label=columns.label)
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    if columns.classes is not None:
        refuse_copies_of_class(table, leaving, label=columns.label)
    else:
        refuse_copies_of_label(table, leaving, labels, label=columns.label)
    classes = columns.classes is not None
    note_likely_copies(table, leaving, labels, label=columns.label, classes=classes)
    return names


def _check_id(table: Rows, id: str) -> None:
    column = without_dictionary(table.column(id))
    if column.null_count or pc.count_distinct(column).as_py() != len(column):
        raise ColumnError(f"id {id!r} is missing or repeated in some rows; a key is neither.")


def _encode(rows: Rows, names: list[str], choice: Choice) -> tuple[Encoder, Any]:
    """Return the recipe and X: whole only if the strategy needs it, sparse if that saves memory."""
    encoder = choice.columns.encoder_for(rows, names)
    if not traits_of(choice.strategy).needs_features:
        return encoder, EncodedRows(rows, encoder)
    dense = choice.scores == "model" or not traits_of(choice.strategy).accepts_sparse
    if encoder.is_mostly_zeros and not dense:
        return encoder, encoder.transform_sparse(rows)
    return encoder, encoder.transform(rows)


def _compute_scores(
    labels: AnyArray, X: Any, encoder: Encoder, units: Units, choice: Choice
) -> Scores:
    budget = None
    if choice.calibration is not None:
        calibration, rows = choice.calibration, units.largest
        if choice.label_kind == "pick" and rows > 1:
            # The bound for groups covers picks and scores at once, so both are set by row.
            calibration, rows = calibration.per_row(rows), 1
        budget = ScoreBudget(calibration, choice.score_share, choice.bag_size, rows)
    return compute_scores(
        choice.scores,
        labels,
        X,
        encoder.feature_names,
        budget=budget,
        source=choice.noise_source,
        family=choice.family,
    )


def _form_bags(X: Any, scores: Scores, choice: Choice) -> Bags:
    rng = make_generator(choice.seed)
    return assign_bags(choice.strategy, X, scores.values, bag_size=choice.bag_size, rng=rng)


def _report_exposure(labels: AnyArray, bags: Bags, values: FloatArray, choice: Choice) -> None:
    sorted_by_label = choice.scores == "labels"  # of which the scores have warned already
    kind, bounds = choice.label_kind, choice.bounds
    report_exposure(labels, bags, values, label_kind=kind, bounds=bounds, warn=not sorted_by_label)


def _computing_order(rows: Rows, names: list[str], choice: Choice) -> IntArray:
    """Return the order in which rows are looked at; the source may be sorted by its label."""
    if choice.keep_order or choice.seed is not None:
        return rows.feature_order(names, choice.noise_source)
    return secret_order(rows.num_rows, choice.noise_source)


def _leaving_order(computing: IntArray, choice: Choice) -> IntArray:
    """Return the order in which rows leave, in terms of the one they were looked at."""
    if choice.keep_order:
        return inverse_order(computing)
    if choice.seed is not None:
        return secret_order(computing.size, choice.noise_source)
    return np.arange(computing.size)  # already a secret one


def _take_rows(rows: Rows, names: list[str], id: str | None) -> pa.Table:
    leaving = rows.hand_over([*([id] if id else []), *names])
    return shielded(
        lambda: as_parquet_keeps_it(leaving),
        lambda _: ColumnError("a column, perhaps the id, has a type that Parquet cannot hold."),
    )


def _provenance(choice: Choice) -> Provenance:
    return Provenance(
        label=choice.columns.label,
        classes=choice.columns.classes,
        bag_size=int(choice.bag_size),
        strategy=choice.strategy.name,
        strategy_parameters=parameters_of(choice.strategy),
        chosen_because=choice.why,
        scores=choice.scores,
        seed=choice.seed,
        row_order="kept" if choice.keep_order else "secret permutation",
        id=choice.columns.id,
    )
