"""From a table and a choice to a release: the steps in order."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.aggregate import AGGREGATES, LabelKind, pick_labels
from bagwise.bagging import BaggingStrategy, assign_bags, check_bag_size
from bagwise.bags import Bags
from bagwise.encode import Encoder, Nulls
from bagwise.errors import BudgetError, ClippingWarning, ColumnError
from bagwise.privacy import Certificate, total_epsilon
from bagwise.privacy.calibrate import Calibration
from bagwise.privacy.certificate import exact
from bagwise.privacy.events import Event
from bagwise.privacy.noise import (
    one_hot,
    private_bag_means,
    private_class_picks,
    private_picks,
    private_shares,
)
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.units import Units, units_of
from bagwise.release import BAG_ID, Release, noise_per_bag
from bagwise.rng import NoiseSource, make_generator
from bagwise.row_model import RowModel
from bagwise.scores import ScoreBudget, Scores, ScoresKind, compute_scores, model_scores
from bagwise.stages import OnStage, Stages, ignore_stage
from bagwise.table import (
    Bounds,
    find_column,
    label_codes,
    label_vector,
    read_table,
    refuse_copies_of_class,
    refuse_copies_of_label,
    select_features,
    without_dictionary,
)


@dataclass(frozen=True)
class Columns:
    """Which columns play which part, and how features become X."""

    label: str
    classes: tuple[str, ...] | None
    features: tuple[str, ...] | None
    exclude: tuple[str, ...]
    id: str | None
    unit: str | None
    nulls: Nulls
    max_levels: int

    @property
    def named(self) -> list[str]:
        """Columns that the caller asked for by name."""
        roles = [self.label, self.id, self.unit]
        return [*(name for name in roles if name is not None), *(self.features or ())]


@dataclass(frozen=True)
class Choice:
    """Every decision about a release, resolved: nothing here is "auto" but the share of scores."""

    columns: Columns
    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    score_share: float | Literal["auto"]
    label_kind: LabelKind
    calibration: Calibration | None
    bounds: Bounds | None
    keep_order: bool
    seed: int | None
    noise: NoiseSource


def build(source: Any, choice: Choice, *, on_stage: OnStage = ignore_stage) -> Release:
    """Carry out a choice: the steps in order, and nothing else."""
    run, columns = Stages(on_stage), choice.columns
    table = run("reading the table", read_table, source, index_names=columns.named)
    check_bag_size(choice.bag_size, n_rows=table.num_rows)
    labels = run("checking the labels", _read_labels, table, columns)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, columns)
    units = _find_units(table, columns)
    _check_prior(choice.calibration, units)
    encoder, X = run("encoding features", _encode, table, names, columns)  # (n, d), public
    scores = run("computing scores", _compute_scores, labels, X, encoder, units, choice)
    bags = run("forming bags", _form_bags, X, scores, choice)
    del X
    order = _leaving_order(table.num_rows, choice)
    instances = run("ordering the rows", _take_rows, table, names, order, columns.id)
    bags, labels, units = bags.take(order), labels[order], units.take(order)
    values, events = run("aggregating labels", _bag_labels, labels, bags, units, scores, choice)
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(events, bags.sizes),
        label_kind=choice.label_kind,
        certificate=_certify(events, choice, bags),
        encoder=encoder,
        instances=instances,
        provenance=_provenance(choice),
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
    labels = run("checking the labels", label_vector, table, columns.label)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, columns)
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
    promise = _promise(calibration, noise, events)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=calibration.bounds,
        events=events,
        smallest_bag=None,
        noise_source=noise.name,
        unit=columns.unit,
        remarks=(*_delta_remark(promise.delta, table.num_rows), *promise.remarks),
    )
    certificate.check()
    return RowModel(
        family="gaussian",
        loss="none: released directly",
        label=columns.label,
        encoder=encoder,
        coef=scores.model.coef,
        intercept=scores.model.intercept,
        trained_on={"n_rows": table.num_rows},
        certificate=certificate,
    )


def build_bounds(
    source: Any, columns: Columns, *, epsilon: float, outside: float, noise: NoiseSource
) -> PrivateBounds:
    """Choose label bounds privately."""
    run = Stages()
    table = run("reading the table", read_table, source, index_names=columns.named)
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
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    if columns.classes is not None:
        refuse_copies_of_class(table, leaving, label=columns.label)
    else:
        refuse_copies_of_label(table, leaving, labels, label=columns.label)
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


def _encode(table: pa.Table, names: list[str], columns: Columns) -> tuple[Encoder, FloatArray]:
    encoder = Encoder.for_table(
        table,
        names,
        named=columns.features or (),
        max_levels=columns.max_levels,
        nulls=columns.nulls,
    )
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


def _leaving_order(n_rows: int, choice: Choice) -> IntArray:
    # The input may be sorted by label, so rows leave shuffled unless that is waived.
    return np.arange(n_rows) if choice.keep_order else choice.noise.permutation(n_rows)


def _take_rows(table: pa.Table, names: list[str], order: IntArray, id: str | None) -> pa.Table:
    rows = pa.array(order)
    # Categories leave as plain values: a list of levels may name some that no row here has.
    leaving = [*([id] if id else []), *names]
    return pa.table({name: without_dictionary(table.column(name)).take(rows) for name in leaving})


def _class_labels(
    codes: IntArray, bags: Bags, units: Units, choice: Choice, classes: int
) -> tuple[FloatArray, tuple[Event, ...]]:
    """Return one row of class shares per bag, and everything that was spent on the way."""
    calibration, source = choice.calibration, choice.noise
    if calibration is None:
        if choice.label_kind == "mean":
            return bags.mean(one_hot(codes, classes)), ()
        picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
        return one_hot(picked, classes).astype(np.float64), ()
    rows = units.largest
    if choice.label_kind == "pick":
        picks = calibration.class_picks(classes=classes, sizes=bags.sizes.tolist(), rows=rows)
        return private_class_picks(codes, bags, event=picks, source=source), (picks,)
    # A row that changes its class changes two counts by one: sqrt(2) in L2, and 2 in L1.
    square = 2 * units.square_in_bags(bags)
    shares = calibration.bag_means(square=square, rows=2 * rows)
    values = private_shares(codes, bags, classes=classes, event=shares, source=source)
    return values, (shares,)


def _bag_labels(
    labels: AnyArray, bags: Bags, units: Units, scores: Scores, choice: Choice
) -> tuple[FloatArray, tuple[Event, ...]]:
    """Return one label per bag, and everything that was spent on the way."""
    calibration, source, classes = choice.calibration, choice.noise, choice.columns.classes
    if classes is not None:
        return _class_labels(labels, bags, units, choice, len(classes))
    if calibration is None:
        if choice.bounds is not None:
            labels = _clip_openly(labels, choice.bounds)
        return AGGREGATES[choice.label_kind](labels, bags, source), ()
    spent, rows, bounds = scores.events, units.largest, calibration.bounds
    if choice.label_kind == "pick":
        # Sizes that depend on scores could have been any from the smallest on: all get its noise.
        smallest = choice.bag_size if spent else None
        sizes = bags.sizes.tolist()
        picks = calibration.picks(sizes=sizes, rows=rows, spent=spent, smallest=smallest)
        values = private_picks(labels, bags, bounds=bounds, event=picks, source=source)
        return values, (*calibration.prior, *spent, picks)
    # Bags that depend on labels could hold all rows of a unit; others are known, and counted.
    square = rows**2 if spent else units.square_in_bags(bags)
    means = calibration.bag_means(square=square, rows=rows, spent=spent)
    values = private_bag_means(labels, bags, bounds=bounds, event=means, source=source)
    return values, (*calibration.prior, *spent, means)


@dataclass(frozen=True)
class _Promise:
    """What the certificate may claim."""

    epsilon: float | None
    delta: float | None
    remarks: tuple[str, ...] = ()


def _promise(
    calibration: Calibration | None, noise: NoiseSource, events: tuple[Event, ...]
) -> _Promise:
    if calibration is None:
        return _Promise(None, None)
    if not noise.is_secret:
        return _Promise(
            None, None, ("The noise is simulated from a seed: who knows it removes it.",)
        )
    if not calibration.is_exact:
        true = total_epsilon(events, calibration.delta)
        return _Promise(
            None,
            None,
            (
                f"The noise was set by another rule for epsilon {exact(calibration.epsilon)} and "
                f"delta {exact(calibration.delta)}. At that delta its true epsilon is {true:.6g}.",
            ),
        )
    return _Promise(calibration.epsilon, calibration.delta)


def _certify(events: tuple[Event, ...], choice: Choice, bags: Bags) -> Certificate:
    promise = _promise(choice.calibration, choice.noise, events)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=choice.calibration.bounds if choice.calibration else choice.bounds,
        events=events,
        smallest_bag=int(bags.sizes.min()),
        noise_source=choice.noise.name if events else "none",
        unit=choice.columns.unit if choice.calibration else None,
        remarks=(
            *promise.remarks,
            *_delta_remark(promise.delta, bags.n_rows),
            *_leak_remark(choice.scores),
            *_order_remarks(choice),
        ),
    )
    certificate.check()
    return certificate


def _clip_openly(labels: FloatArray, bounds: Bounds) -> FloatArray:
    """Clip, and say how many: allowed here only because nothing is promised."""
    clipped = np.clip(labels, *bounds)
    if outside := int((clipped != labels).sum()):
        warnings.warn(
            f"{outside} label(s) lie outside the bounds and were clipped to them.",
            ClippingWarning,
            stacklevel=2,
        )
    return clipped


def _delta_remark(delta: float | None, n_rows: int) -> tuple[str, ...]:
    if delta is None or delta <= 1 / n_rows:
        return ()
    return (
        f"delta = {delta:g} is above 1/n: on its own terms the promise would allow showing "
        "one of the n labels outright. Choose delta well below 1/n.",
    )


def _leak_remark(scores: ScoresKind) -> tuple[str, ...]:
    if scores != "labels":
        return ()
    return ("Rows were put into bags by sorting their labels: membership alone tells the labels.",)


def _order_remarks(choice: Choice) -> tuple[str, ...]:
    remarks = []
    if choice.keep_order:
        remarks.append(
            "Rows are in the order of the source table. If that order depends on the labels, it "
            "tells about them, and nothing here protects against that."
        )
    if choice.seed is not None:
        remarks.append(
            "The partition comes from a public seed, which tells which positions of the source "
            "table share a bag. If that order depends on the labels, so does this."
        )
    return tuple(remarks)


def _provenance(choice: Choice) -> dict[str, Any]:
    return {
        "label": choice.columns.label,
        "classes": None if (names := choice.columns.classes) is None else list(names),
        "bag_size": int(choice.bag_size),
        "strategy": choice.strategy.name,
        "strategy_parameters": dataclasses.asdict(choice.strategy),  # type: ignore[call-overload]
        "scores": choice.scores,
        "seed": choice.seed,
        "row_order": "kept" if choice.keep_order else "secret permutation",
        "id": choice.columns.id,
    }
