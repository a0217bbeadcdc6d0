"""From a table and a choice to a release: the steps in order."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import accepts_sparse, assign_bags, check_bag_size, parameters_of
from bagwise.bagging.bags import Bags
from bagwise.data.columns import (
    find_column,
    refuse_lookalikes,
    select_features,
    without_dictionary,
)
from bagwise.data.encode import Encoder
from bagwise.data.label_copies import (
    note_likely_copies,
    refuse_copies_of_class,
    refuse_copies_of_label,
)
from bagwise.data.labels import label_codes, label_vector
from bagwise.data.row_order import feature_order, inverse_order, secret_order
from bagwise.data.table import read_table
from bagwise.errors import BudgetError, ColumnError, shielded
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel, TrainedOn
from bagwise.privacy import Certificate
from bagwise.privacy.calibrate import Calibration
from bagwise.privacy.curves import check_epsilon
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.promise import check_promise
from bagwise.privacy.units import Units, units_of
from bagwise.release.certify import certify_bags, make_promise
from bagwise.release.exposure import report_exposure
from bagwise.release.label_bags import label_bags
from bagwise.release.provenance import Provenance
from bagwise.release.release import BAG_ID, Release
from bagwise.release.request import Choice, Columns
from bagwise.release.scores import ScoreBudget, Scores, compute_scores, model_scores
from bagwise.release.verify import noise_per_bag
from bagwise.rng import NoiseSource, make_generator
from bagwise.show.stages import OnStage, Stages, ignore_stage


def build(source: Any, choice: Choice, *, on_stage: OnStage = ignore_stage) -> Release:
    """Carry out a choice: the steps in order, and nothing else."""
    run, columns = Stages(on_stage), choice.columns
    table = run("reading the table", read_table, source, index_names=columns.named)
    check_bag_size(choice.bag_size, n_rows=table.num_rows)
    _check_promise(choice.calibration, choice.noise, table.num_rows)
    provenance = _provenance(choice)
    labels = run("checking the labels", _read_labels, table, columns)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, columns)
    order = run("ordering the rows", _computing_order, table, names, choice)
    table, labels = table.take(pa.array(order)), labels[order]
    units = _find_units(table, columns)
    _check_prior(choice.calibration, units)
    dense = choice.scores == "model" or not accepts_sparse(choice.strategy)
    encoder, X = run("encoding features", _encode, table, names, columns, dense=dense)  # public
    scores = run("computing scores", _compute_scores, labels, X, encoder, units, choice)
    bags = run("forming bags", _form_bags, X, scores, choice)
    del X
    leaving = _leaving_order(order, choice)
    instances = run("taking the rows", _take_rows, table, names, leaving, columns.id)
    bags, labels, units = bags.take(leaving), labels[leaving], units.take(leaving)
    values, events = run("aggregating labels", label_bags, labels, bags, units, scores, choice)
    if choice.calibration is None:
        run("looking for exposed labels", _report_exposure, labels, bags, values, choice)
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(events, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certify_bags(events, choice, bags, unit_rows=units.largest),
        encoder=encoder,
        instances=instances,
        provenance=provenance,
        model=scores.model,
    )


def build_model(
    source: Any,
    columns: Columns,
    calibration: Calibration,
    *,
    noise: NoiseSource,
    on_stage: OnStage = ignore_stage,
) -> RowModel:
    """Release a private linear model instead of bags."""
    run = Stages(on_stage)
    table = run("reading the table", read_table, source, index_names=columns.named)
    _check_promise(calibration, noise, table.num_rows)
    labels = run("checking the labels", label_vector, table, columns.label)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, columns)
    order = secret_order(table.num_rows, noise)
    table, labels = table.take(pa.array(order)), labels[order]
    units = _find_units(table, columns)
    _check_prior(calibration, units)
    encoder, X = run("encoding features", _encode, table, names, columns)  # (n, d), public
    budget = ScoreBudget(calibration, share=1.0, bag_size=1, unit_rows=units.largest)
    scores = run(
        "releasing the model",
        model_scores,
        labels,
        X,
        encoder.feature_names,
        budget=budget,
        source=noise,
    )
    if scores.model is None:
        raise AssertionError("model scores always carry their model")
    events = (*calibration.prior, *scores.events)
    promise = make_promise(calibration, noise)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=calibration.bounds,
        events=events,
        smallest_bag=None,
        noise_source=noise.name,
        unit=columns.unit,
        unit_rows=units.largest,
        circumstances=promise.circumstances,
    )
    certificate.check()
    model = RowModel(
        family="gaussian",
        loss=RELEASED_DIRECTLY,
        label=columns.label,
        encoder=encoder,
        coef=scores.model.coef,
        intercept=scores.model.intercept,
        trained_on=TrainedOn(n_rows=table.num_rows),
    )
    return model.certified(certificate)


def build_bounds(
    source: Any, columns: Columns, *, epsilon: float, outside: float, noise: NoiseSource
) -> PrivateBounds:
    """Choose label bounds privately."""
    run = Stages()
    table = run("reading the table", read_table, source, index_names=columns.named)
    check_epsilon(epsilon)
    check_promise(epsilon, 0.0, n_rows=table.num_rows)
    labels = run("checking the labels", label_vector, table, columns.label)  # (n,), secret
    rows = _find_units(table, columns).largest
    found = run(
        "choosing bounds",
        choose_bounds,
        labels,
        epsilon=epsilon,
        outside=outside,
        source=noise,
        rows=rows,
    )
    return dataclasses.replace(found, unit=columns.unit)


def _check_promise(calibration: Calibration | None, noise: NoiseSource, n_rows: int) -> None:
    """Refuse an empty promise; experiments, which promise nothing, may have any parameters."""
    if calibration is not None and calibration.is_exact and noise.is_secret:
        check_promise(calibration.epsilon, calibration.delta, n_rows=n_rows)


def _read_labels(table: pa.Table, columns: Columns) -> AnyArray:
    """Return labels as numbers, or as numbers of classes."""
    if columns.classes is None:
        return label_vector(table, columns.label)
    return label_codes(table, columns.label, columns.classes)


def _choose_columns(table: pa.Table, labels: AnyArray, columns: Columns) -> list[str]:
    reserved = [name for name in (columns.label, columns.id, columns.unit) if name is not None]
    names = select_features(
        table, reserved=reserved, features=columns.features, exclude=columns.exclude
    )
    if columns.id is not None:
        _check_id(table, columns)
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


def _check_id(table: pa.Table, columns: Columns) -> None:
    if columns.id == columns.label:
        raise ColumnError("id and label name the same column.")
    column = without_dictionary(find_column(table, str(columns.id), role="id"))
    if column.null_count or pc.count_distinct(column).as_py() != len(column):
        raise ColumnError(
            f"id {columns.id!r} is missing or repeated in some rows; a key is neither."
        )


def _find_units(table: pa.Table, columns: Columns) -> Units:
    if columns.unit is None:
        return Units()
    if columns.unit == columns.label:
        raise ColumnError("unit and label name the same column.")
    find_column(table, columns.unit, role="unit")
    return units_of(table, columns.unit)


def _check_prior(calibration: Calibration | None, units: Units) -> None:
    """Refuse bounds that were found for smaller units than are to be protected."""
    if calibration is not None and any(e.rows < units.largest for e in calibration.prior):
        raise BudgetError(
            f"the bounds were found for units of fewer than {units.largest} rows. "
            "Find them again on this table, with the same unit."
        )


def _encode(
    table: pa.Table, names: list[str], columns: Columns, *, dense: bool = True
) -> tuple[Encoder, Any]:
    """Return the recipe and X, (n, d); without `dense`, X is sparse where that saves memory."""
    encoder = Encoder.for_table(
        table,
        names,
        named=columns.features or (),
        max_levels=columns.max_levels,
        nulls=columns.nulls,
    )
    if encoder.is_mostly_zeros and not dense:
        return encoder, encoder.transform_sparse(table)
    return encoder, encoder.transform(table)


def _compute_scores(
    labels: AnyArray, X: FloatArray, encoder: Encoder, units: Units, choice: Choice
) -> Scores:
    budget = None
    if choice.calibration is not None:
        calibration, rows = choice.calibration, units.largest
        if choice.label_kind == "pick" and rows > 1:
            # The bound for groups covers picks and scores at once, so both are set by row.
            calibration, rows = calibration.per_row(rows), 1
        budget = ScoreBudget(calibration, choice.score_share, choice.bag_size, rows)
    return compute_scores(
        choice.scores, labels, X, encoder.feature_names, budget=budget, source=choice.noise
    )


def _form_bags(X: FloatArray, scores: Scores, choice: Choice) -> Bags:
    rng = make_generator(choice.seed)
    return assign_bags(choice.strategy, X, scores.values, bag_size=choice.bag_size, rng=rng)


def _report_exposure(labels: AnyArray, bags: Bags, values: FloatArray, choice: Choice) -> None:
    sorted_by_label = choice.scores == "labels"  # of which the scores have warned already
    kind, bounds = choice.label_kind, choice.bounds
    report_exposure(labels, bags, values, label_kind=kind, bounds=bounds, warn=not sorted_by_label)


def _computing_order(table: pa.Table, names: list[str], choice: Choice) -> IntArray:
    """Return the order in which rows are looked at; the source may be sorted by its label."""
    if choice.keep_order or choice.seed is not None:
        return feature_order(table, names, choice.noise)
    return secret_order(table.num_rows, choice.noise)


def _leaving_order(computing: IntArray, choice: Choice) -> IntArray:
    """Return the order in which rows leave, in terms of the one they were looked at."""
    if choice.keep_order:
        return inverse_order(computing)
    if choice.seed is not None:
        return secret_order(computing.size, choice.noise)
    return np.arange(computing.size)  # already a secret one


def _take_rows(table: pa.Table, names: list[str], order: IntArray, id: str | None) -> pa.Table:
    rows = pa.array(order)
    # Categories leave as plain values: a list of levels may name some that no row here has.
    leaving = [*([id] if id else []), *names]
    taken = {name: without_dictionary(table.column(name)).take(rows) for name in leaving}
    return shielded(
        lambda: as_parquet_keeps_it(pa.table(taken)),
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
