"""One label per bag of rows on many machines: added up or picked there, and hidden here.

What is told of a bag, exactly, is written by tasks, sealed for this process. Noise is drawn here,
from those files, some bags at a time, and written to the table of bags at once: nothing that Spark
may do again draws anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ReleaseError
from bagwise.files.atomic import create_private
from bagwise.files.parquet_files import WrittenTable, write_plain
from bagwise.files.regular_files import sha256_of
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import labels_to_steps
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import (
    centred_steps,
    hidden_class_picks,
    hidden_means,
    hidden_picks,
    hidden_shares,
)
from bagwise.privacy.private_model import LinearScores
from bagwise.privacy.units import ProtectedUnits
from bagwise.release.label_bags import (
    settle_class_picks,
    settle_means,
    settle_picks,
    settle_shares,
)
from bagwise.requests.queries import Centring, Scores, expected_labels
from bagwise.requests.verbs import Choice
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import Bounds, label_vector
from bagwise.rows.parts import FileParts, Reader, Split
from bagwise.rows.spark.matrix import SparkMatrix, blocks_of
from bagwise.rows.spark.places import Places
from bagwise.rows.spark.sums import Measure, SealedSums, add_up, count_kinds, pick_one
from bagwise.rows.spark.table import codes_of

Hide = Callable[[IntArray, IntArray], FloatArray]
"""From what is told of some bags, (amounts, bags), and their sizes, to their labels with noise."""


@dataclass(frozen=True)
class Telling:
    """How bags get their labels: settled, and nothing drawn.

    Attributes
    ----------
    events : tuple of Mechanism
        Everything that is spent on the way.
    event : Mechanism
        The last of them.
    add_up : callable
        Has tasks write, sealed, what is told of each bag.
    hide : callable
        Draws the noise.
    """

    events: tuple[Mechanism, ...]
    event: Mechanism
    add_up: Callable[[], SealedSums]
    hide: Hide


def settle_labels(
    X: SparkMatrix,
    places: Places,
    units: ProtectedUnits,
    scores: Scores,
    centring: Centring,
    choice: Choice,
    rule: ExactCalibration,
) -> Telling:
    """Settle the noise on the labels of bags, as `label_bags` does in memory."""
    table, source, classes = X.table, choice.noise_source, choice.columns.classes
    if classes is not None:
        return _tell_classes(X, places, units, choice, rule, classes)
    steps = partial(_steps, reader=table.reader, label=X.label, bounds=rule.bounds)
    if choice.label_kind == "pick":
        picks, events = settle_picks(rule, choice.bag_size, places, units, scores)
        measure: Measure = partial(steps, step=picks.grid_step)
        hide = partial(hidden_picks, bounds=rule.bounds, event=picks, source=source)
        add = partial(pick_one, table, places, measure)
        return Telling(events, picks, add, lambda told, sizes: hide(told[0], sizes))
    means, events = settle_means(rule, places, units, scores, centring)
    hide_means = partial(hidden_means, event=means, source=source)
    if centring.limit is None or centring.model is None:
        measure = partial(steps, step=means.grid_step)
        add = partial(add_up, table, places, measure)
        return Telling(
            events, means, add, lambda told, sizes: hide_means(told[0], sizes, bounds=rule.bounds)
        )
    bounds = centring.bounds
    measure = partial(
        _left_and_expected, reader=table.reader, encoder=X.encoder, label=X.label,
        model=centring.model, bounds=bounds, step=means.grid_step,
    )  # fmt: skip
    add = partial(add_up, table, places, measure, amounts=2)
    return Telling(
        events,
        means,
        add,
        # What a model expects is no secret.
        lambda told, sizes: hide_means(told[0], sizes, bounds=bounds, expected=told[1]),
    )


def _tell_classes(
    X: SparkMatrix,
    places: Places,
    units: ProtectedUnits,
    choice: Choice,
    rule: ExactCalibration,
    classes: tuple[str, ...],
) -> Telling:
    """Settle how shares of classes are hidden, or picked classes."""
    table, source, count = X.table, choice.noise_source, len(classes)
    measure = partial(_codes, reader=table.reader, label=X.label, classes=classes)
    if choice.label_kind == "pick":
        picks = settle_class_picks(rule, places, units, count)
        hide = partial(hidden_class_picks, event=picks, source=source)
        add = partial(pick_one, table, places, measure)
        return Telling((picks,), picks, add, lambda told, sizes: hide(told[0], sizes))
    shares = settle_shares(rule, places, units)
    hide_shares = partial(hidden_shares, event=shares, source=source)
    add = partial(count_kinds, table, places, measure, kinds=count)
    return Telling((shares,), shares, add, lambda told, sizes: hide_shares(told.T, sizes))


def _steps(
    split: Split, secret: bytes, *, reader: Reader, label: str, bounds: Bounds, step: float
) -> list[IntArray]:
    labels = label_vector(reader.read(split, [label], secret), label)
    return [labels_to_steps(labels, bounds=bounds, step=step)]


def _codes(
    split: Split, secret: bytes, *, reader: Reader, label: str, classes: tuple[str, ...]
) -> list[IntArray]:
    read = reader.read(split, [label], secret)
    codes = codes_of(read, label, classes, coded=reader.masked == label)
    if codes.min() < 0 or codes.max() >= len(classes):
        raise AssertionError("labels were found to be classes before")
    return [codes]


def _left_and_expected(
    split: Split,
    secret: bytes,
    *,
    reader: Reader,
    encoder: Encoder,
    label: str,
    model: LinearScores,
    bounds: Bounds,
    step: float,
) -> list[IntArray]:
    """Return both from one prediction, so that machines which round otherwise do no harm."""
    parts = []
    for block, labels in blocks_of(split, secret, reader, encoder, label):
        if labels is None or not np.isfinite(labels).all():
            raise AssertionError("labels are named, and were looked at before")
        predictions = expected_labels(model, block, bounds)
        parts.append(centred_steps(labels, predictions, bounds=bounds, step=step))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@dataclass(frozen=True)
class DrawnBags:
    """The table of bags in a file: what it holds cannot be drawn a second time."""

    written: WrittenTable
    largest: int


def draw_labels(
    sums: SealedSums, telling: Telling, table: FileParts, places: Places, schema: pa.Schema
) -> DrawnBags:
    """Draw the noise of all bags, some at a time, and write their table."""
    path = create_private(table.workers.scratch.new_file("bags"))
    counted: dict[int, int] = {}

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for told, sizes in sums.chunks():
            _check_sizes(sizes, places, counted)
            values = telling.hide(told, sizes)
            columns = [values] if values.ndim == 1 else list(values.T.copy())
            numbers = np.arange(first, first + sizes.size)
            yield pa.record_batch(
                [numbers, sizes, *columns, telling.event.noise_sd(sizes)], schema=schema
            )
            first += sizes.size

    write_plain(pa.RecordBatchReader.from_batches(schema, batches()), path)
    sums.discard()
    if counted != places.sizes:
        raise AssertionError("every row is counted in one bag")
    written = WrittenTable(path, sums.n_bags, sha256_of(path, error=ReleaseError))
    return DrawnBags(written, max(counted))


def _check_sizes(sizes: IntArray, places: Places, counted: dict[int, int]) -> None:
    """Count bags by size; refuse a size that noise was not set for."""
    found, times = np.unique(sizes, return_counts=True)
    for size, time in zip(found.tolist(), times.tolist(), strict=True):
        counted[size] = counted.get(size, 0) + time
        if counted[size] > places.sizes.get(size, 0):
            raise AssertionError("every row is counted in one bag")
