"""From a table and a choice to a release: the steps in order."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.aggregate import AGGREGATES, LabelKind
from bagwise.bagging import BaggingStrategy, assign_bags, check_bag_size
from bagwise.bags import Bags
from bagwise.encode import Encoder, Nulls
from bagwise.errors import ClippingWarning, ColumnError
from bagwise.privacy import Certificate
from bagwise.privacy.calibrate import calibrate_bag_means
from bagwise.privacy.noise import NOISE_SOURCE, private_bag_means
from bagwise.release import BAG_ID, Release, noise_per_bag
from bagwise.rng import NoiseSource, SecureNoise, make_generator
from bagwise.scores import ScoresKind, compute_scores
from bagwise.stages import OnStage, Stages, ignore_stage
from bagwise.table import (
    Bounds,
    find_column,
    label_vector,
    read_table,
    refuse_copies_of_label,
    select_features,
    without_dictionary,
)


@dataclass(frozen=True)
class Budget:
    """The privacy that was asked for, with the public bounds it needs."""

    epsilon: float
    delta: float
    bounds: Bounds


@dataclass(frozen=True)
class Choice:
    """Every decision about a release, resolved: nothing here is "auto"."""

    label: str
    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    label_kind: LabelKind
    budget: Budget | None
    bounds: Bounds | None
    features: tuple[str, ...] | None
    exclude: tuple[str, ...]
    id: str | None
    keep_order: bool
    seed: int | None
    nulls: Nulls
    max_levels: int


def build(source: Any, choice: Choice, *, on_stage: OnStage = ignore_stage) -> Release:
    """Carry out a choice: the steps in order, and nothing else."""
    run = Stages(on_stage)
    secret = SecureNoise()
    named = [choice.label, *([choice.id] if choice.id else []), *(choice.features or ())]
    table = run("reading the table", read_table, source, index_names=named)
    check_bag_size(choice.bag_size, n_rows=table.num_rows)
    labels = run("checking the labels", label_vector, table, choice.label)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, choice)
    encoder, bags = run("forming bags", _form_bags, table, names, labels, choice)
    order = _leaving_order(table.num_rows, choice, secret)
    instances = run("ordering the rows", _take_rows, table, names, order, choice.id)
    bags, labels = bags.take(order), labels[order]
    values, certificate = run("aggregating labels", _bag_labels, labels, bags, choice, secret)
    return Release(
        bags=bags,
        labels=values,
        noise_sd=noise_per_bag(certificate, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certificate,
        encoder=encoder,
        instances=instances,
        provenance=_provenance(choice),
    )


def _choose_columns(table: pa.Table, labels: FloatArray, choice: Choice) -> list[str]:
    reserved = [choice.label, *([choice.id] if choice.id else [])]
    names = select_features(
        table, reserved=reserved, features=choice.features, exclude=choice.exclude
    )
    if choice.id is not None:
        _check_id(table, choice)
    leaving = [*names, *([choice.id] if choice.id else [])]
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    refuse_copies_of_label(table, leaving, labels, label=choice.label)
    return names


def _check_id(table: pa.Table, choice: Choice) -> None:
    if choice.id == choice.label:
        raise ColumnError("id and label name the same column.")
    column = without_dictionary(find_column(table, str(choice.id), role="id"))
    if column.null_count or pc.count_distinct(column).as_py() != len(column):
        raise ColumnError(
            f"id {choice.id!r} is missing or repeated in some rows; a key is neither."
        )


def _form_bags(
    table: pa.Table, names: list[str], labels: FloatArray, choice: Choice
) -> tuple[Encoder, Bags]:
    encoder = Encoder.for_table(
        table,
        names,
        named=choice.features or (),
        max_levels=choice.max_levels,
        nulls=choice.nulls,
    )
    X = encoder.transform(table)  # (n, d), public
    scores = compute_scores(choice.scores, labels)
    rng = make_generator(choice.seed)
    return encoder, assign_bags(choice.strategy, X, scores, bag_size=choice.bag_size, rng=rng)


def _leaving_order(n_rows: int, choice: Choice, secret: NoiseSource) -> IntArray:
    # The input may be sorted by label, so rows leave shuffled unless that is waived.
    return np.arange(n_rows) if choice.keep_order else secret.permutation(n_rows)


def _take_rows(table: pa.Table, names: list[str], order: IntArray, id: str | None) -> pa.Table:
    rows = pa.array(order)
    # Categories leave as plain values: a list of levels may name some that no row here has.
    leaving = [*([id] if id else []), *names]
    return pa.table({name: without_dictionary(table.column(name)).take(rows) for name in leaving})


def _bag_labels(
    labels: FloatArray, bags: Bags, choice: Choice, secret: NoiseSource
) -> tuple[FloatArray, Certificate]:
    smallest = int(bags.sizes.min())
    if choice.budget is not None:
        bounds = choice.budget.bounds
        event = calibrate_bag_means(
            bounds, epsilon=choice.budget.epsilon, delta=choice.budget.delta
        )
        noisy = private_bag_means(labels, bags, bounds=bounds, event=event)
        return noisy, Certificate(
            epsilon=choice.budget.epsilon,
            delta=choice.budget.delta,
            bounds=bounds,
            events=(event,),
            smallest_bag=smallest,
            noise_source=NOISE_SOURCE,
            remarks=(*_delta_remark(choice.budget.delta, bags.n_rows), *_order_remarks(choice)),
        )
    if choice.bounds is not None:
        labels = _clip_openly(labels, choice.bounds)
    return AGGREGATES[choice.label_kind](labels, bags, secret), Certificate(
        epsilon=None,
        delta=None,
        bounds=choice.bounds,
        events=(),
        smallest_bag=smallest,
        noise_source="none",
        remarks=(*_leak_remark(choice.scores), *_order_remarks(choice)),
    )


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


def _delta_remark(delta: float, n_rows: int) -> tuple[str, ...]:
    if delta <= 1 / n_rows:
        return ()
    return (
        f"delta = {delta:g} is above 1/n: on its own terms the promise would allow showing "
        "one of the n labels outright. Choose delta well below 1/n.",
    )


def _leak_remark(scores: ScoresKind) -> tuple[str, ...]:
    if scores == "none":
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
        "label": choice.label,
        "bag_size": int(choice.bag_size),
        "strategy": choice.strategy.name,
        "strategy_parameters": dataclasses.asdict(choice.strategy),  # type: ignore[call-overload]
        "scores": choice.scores,
        "seed": choice.seed,
        "row_order": "kept" if choice.keep_order else "secret permutation",
        "id": choice.id,
    }
