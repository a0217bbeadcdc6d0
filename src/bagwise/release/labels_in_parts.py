"""One label per bag of rows in parts: added up or picked where the rows are, and hidden here.

What is told of a bag, exactly, is written part by part, sealed for this process. Noise is drawn
here, from those files, and written to the table of bags at once: nothing that may be done again
draws anything.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ReleaseError
from bagwise.files.atomic import create_private
from bagwise.files.parquet_files import WrittenTable, write_plain
from bagwise.files.regular_files import sha256_of
from bagwise.files.spill import SpillDirectory
from bagwise.privacy.calibrate import Calibration, ExactCalibration
from bagwise.privacy.grid import labels_to_steps, one_hot
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import (
    centred_steps,
    hidden_class_picks,
    hidden_means,
    hidden_picks,
    hidden_shares,
    reported_labels,
)
from bagwise.privacy.private_model import LinearScores
from bagwise.privacy.units import ProtectedUnits
from bagwise.release.bags_in_parts import PartBags
from bagwise.release.label_bags import (
    reports_singly,
    settle_class_picks,
    settle_means,
    settle_picks,
    settle_shares,
)
from bagwise.release.release import BAG_ID
from bagwise.release.verify import noise_per_bag
from bagwise.requests.queries import Centring, Scores, expected_labels
from bagwise.requests.verbs import Choice
from bagwise.rng import NoiseSource
from bagwise.rows.encode import Encoder
from bagwise.rows.keys import SealedBox, row_blocks, seal
from bagwise.rows.labels import Bounds, label_vector
from bagwise.rows.matrix import blocks_of
from bagwise.rows.parts import Part

Hide = Callable[[IntArray, IntArray], FloatArray]
"""From what is told of some bags, (amounts, bags), and their sizes, to their labels with noise."""

Measure = Callable[[pa.Table], Sequence[IntArray]]
"""From rows to whole numbers of each, of which every one is added up exactly."""

Tell = Callable[[Part, IntArray, IntArray, int], IntArray]
"""From a part, the rows that are in bags, their bags, and how many bags there are, to what is told
of each bag, (amounts, bags)."""


@dataclass(frozen=True)
class Telling:
    """How bags get their labels: settled, and nothing drawn.

    Attributes
    ----------
    events : tuple of Mechanism
        Everything that is spent on the way.
    tell : callable
        What is told of the bags of a part, exactly.
    columns : tuple of str
        What it has to see.
    hide : callable
        Draws the noise.
    """

    events: tuple[Mechanism, ...]
    tell: Tell
    columns: tuple[str, ...]
    hide: Hide


def settle_labels(
    bags: PartBags,
    encoder: Encoder,
    units: ProtectedUnits,
    scores: Scores,
    centring: Centring,
    choice: Choice,
) -> Telling:
    """Settle the noise on the labels of bags, as `label_bags` does in memory."""
    rule, label, source = choice.calibration, choice.columns.label, choice.noise_source
    if rule is None:
        return _settle_openly(choice)
    if choice.columns.classes is not None:
        return _settle_classes(bags, units, choice, rule, len(choice.columns.classes))
    tell: Tell
    hide: Callable[..., FloatArray]
    if isinstance(rule, ExactCalibration) and reports_singly(rule):
        channel = rule.single_labels(rule.noise, rows=units.largest)
        tell = partial(average, bounds=None, label=label)  # every row is a bag of its own
        hide = partial(_reported, channel=channel, source=source)
        return Telling((*rule.prior, channel), tell, (label,), hide)
    steps = partial(_steps, label=label, bounds=rule.bounds)
    if choice.label_kind == "pick":
        picks, events = settle_picks(rule, choice.bag_size, bags, units, scores)
        tell = partial(pick_one, measure=partial(steps, step=picks.grid_step))
        hide = partial(hidden_picks, bounds=rule.bounds, event=picks, source=source)
        return Telling(events, tell, (label,), lambda told, n: hide(told[0], n))
    means, events = settle_means(rule, bags, units, scores, centring)
    hide = partial(hidden_means, event=means, source=source)
    if centring.limit is None or centring.model is None:
        tell = partial(add_up, measure=partial(steps, step=means.grid_step))
        hide = partial(hide, bounds=rule.bounds)
        return Telling(events, tell, (label,), lambda told, n: hide(told[0], n))
    bounds = centring.bounds
    measure = partial(
        _left_and_expected, encoder=encoder, label=label, model=centring.model, bounds=bounds,
        step=means.grid_step,
    )  # fmt: skip
    hide = partial(hide, bounds=bounds)
    return Telling(
        events,
        partial(add_up, measure=measure),
        (*encoder.inputs, label),
        # What a model expects is no secret.
        lambda told, n: hide(told[0], n, expected=told[1]),
    )


def _settle_classes(
    bags: PartBags, units: ProtectedUnits, choice: Choice, rule: Calibration, classes: int
) -> Telling:
    """Settle how shares of classes are hidden, or picked classes."""
    label, source = choice.columns.label, choice.noise_source
    codes = partial(_codes, label=label)
    if choice.label_kind == "pick":
        chosen = settle_class_picks(rule, bags, units, classes)
        pick = partial(hidden_class_picks, event=chosen, source=source)
        tell: Tell = partial(pick_one, measure=codes)
        return Telling((chosen,), tell, (label,), lambda told, n: pick(told[0], n))
    shares = settle_shares(rule, bags, units)
    hide = partial(hidden_shares, event=shares, source=source)
    tell = partial(count_kinds, measure=codes, kinds=classes)
    return Telling((shares,), tell, (label,), lambda told, n: hide(told.T, n))


def _settle_openly(choice: Choice) -> Telling:
    """Return how bags get labels without noise."""
    label, classes = choice.columns.label, choice.columns.classes
    codes, picked = partial(_codes, label=label), choice.label_kind == "pick"
    words = partial(_as_words, label=label, bounds=choice.bounds)
    tell: Tell
    if classes is not None:
        tell = partial(count_kinds, measure=codes, kinds=len(classes))
        if picked:
            tell = partial(pick_one, measure=codes)
        return Telling((), tell, (label,), partial(_open_shares, picked=picked, kinds=len(classes)))
    tell = partial(average, label=label, bounds=choice.bounds)
    return Telling((), partial(pick_one, measure=words) if picked else tell, (label,), _read)


def _open_shares(told: IntArray, sizes: IntArray, *, picked: bool, kinds: int) -> FloatArray:
    shares = one_hot(told[0], kinds) if picked else told.T / sizes[:, None]
    return np.asarray(shares, dtype=np.float64)


def _reported(
    told: IntArray, sizes: IntArray, *, channel: Mechanism, source: NoiseSource
) -> FloatArray:
    return reported_labels(_read(told, sizes), event=channel, source=source)


def average(
    part: Part,
    kept: IntArray,
    bags: IntArray,
    n_bags: int,
    *,
    label: str,
    bounds: Bounds | None,
) -> IntArray:
    """Return the mean label of each bag, a double in a word of 64 bits."""
    labels = _as_words(part.table, label=label, bounds=bounds)[0].view(np.float64)
    sums = np.bincount(bags, weights=labels[kept], minlength=n_bags)
    return np.asarray((sums / np.bincount(bags, minlength=n_bags)).view(np.int64)[None])


def _as_words(table: pa.Table, *, label: str, bounds: Bounds | None) -> list[IntArray]:
    labels = label_vector(table, label)
    return [(labels if bounds is None else np.clip(labels, *bounds)).view(np.int64)]


def _read(told: IntArray, _sizes: IntArray) -> FloatArray:
    return np.ascontiguousarray(told[0]).view(np.float64)


def add_up(
    part: Part, kept: IntArray, bags: IntArray, n_bags: int, *, measure: Measure
) -> IntArray:
    """Add up whole numbers by bag; rows of a bag stand together."""
    found = []
    for amounts in measure(part.table):
        sums = np.zeros(n_bags, dtype=np.int64)
        np.add.at(sums, bags, amounts[kept])
        found.append(sums)
    return np.stack(found)


def count_kinds(
    part: Part, kept: IntArray, bags: IntArray, n_bags: int, *, measure: Measure, kinds: int
) -> IntArray:
    """Count the rows of each kind in each bag; what is measured is the number of the kind."""
    (kind,) = measure(part.table)
    if kind.min() < 0 or kind.max() >= kinds:
        raise AssertionError("labels were found to be classes before")
    counted = np.bincount(kind[kept] * n_bags + bags, minlength=kinds * n_bags)
    return np.asarray(counted.reshape(kinds, n_bags), dtype=np.int64)


def pick_one(
    part: Part, kept: IntArray, bags: IntArray, n_bags: int, *, measure: Measure
) -> IntArray:
    """Take what is measured of one row of each bag, the one whose block of the secret is least.

    The block is a function of the secret and the number of the row: whoever asks again, because a
    task failed or was slow, gets the same row. Which one it is goes into no file.
    """
    (amounts,) = measure(part.table)
    blocks = row_blocks(part.secret, "pick", part.first, part.table.num_rows)[kept]
    order = np.lexsort((blocks[:, 1], blocks[:, 0], bags))
    first = np.searchsorted(bags[order], np.arange(n_bags))
    return np.asarray(amounts[kept][order[first]][None], dtype=np.int64)


def _steps(table: pa.Table, *, label: str, bounds: Bounds, step: float) -> list[IntArray]:
    return [labels_to_steps(label_vector(table, label), bounds=bounds, step=step)]


def _codes(table: pa.Table, *, label: str) -> list[IntArray]:
    return [table.column(label).to_numpy().astype(np.int64)]


def _left_and_expected(
    table: pa.Table,
    *,
    encoder: Encoder,
    label: str,
    model: LinearScores,
    bounds: Bounds,
    step: float,
) -> list[IntArray]:
    """Return both from one prediction, so that machines which round otherwise do no harm."""
    parts = []
    for block, labels in blocks_of(table, encoder, label):
        if labels is None or not np.isfinite(labels).all():
            raise AssertionError("labels are named, and were looked at before")
        predictions = expected_labels(model, block, bounds)
        parts.append(centred_steps(labels, predictions, bounds=bounds, step=step))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@dataclass(frozen=True)
class SealedSums:
    """Exact sums in files that only this process can read, in the order of the bags."""

    paths: tuple[str, ...]
    counts: tuple[int, ...]
    box: SealedBox

    def chunks(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield what is told, (amounts, bags), and the sizes, of the bags of each part."""
        for path, n_bags in zip(self.paths, self.counts, strict=True):
            content = np.frombuffer(self.box.open(Path(path).read_bytes()), dtype="<i8")
            found = content.reshape(-1, n_bags).astype(np.int64)
            yield found[1:], found[0]

    def discard(self) -> None:
        """Remove the files."""
        for path in self.paths:
            Path(path).unlink(missing_ok=True)


def tell_all(
    bags: PartBags, tell: Tell, columns: Sequence[str], scratch: SpillDirectory
) -> SealedSums:
    """Have what is told of each bag written, sealed for this process."""
    box, where = SealedBox(), str(scratch.new_file("sums"))
    work = partial(_sealed, tell=tell, counts=bags.counts, public=box.public, where=where)
    return SealedSums(tuple(bags.parts.map(work, [*columns, BAG_ID])), bags.counts, box)


def _sealed(part: Part, *, tell: Tell, counts: Sequence[int], public: bytes, where: str) -> str:
    index, n_bags = part.table.column(BAG_ID).to_numpy(), counts[part.number]
    kept = np.flatnonzero(index >= 0)
    sizes = np.bincount(index[kept], minlength=n_bags)
    told = tell(part, kept, index[kept], n_bags)
    content = np.vstack([sizes[None], told]).astype("<i8")
    path = create_private(Path(f"{where}.{part.number}.{token_hex(8)}"))
    path.write_bytes(seal(public, content.tobytes()))
    return str(path)


@dataclass(frozen=True)
class DrawnBags:
    """The table of bags in a file: what it holds cannot be drawn a second time."""

    written: WrittenTable
    largest: int


def draw_labels(
    sums: SealedSums, telling: Telling, bags: PartBags, schema: pa.Schema, scratch: SpillDirectory
) -> DrawnBags:
    """Draw the noise of all bags, those of one part at a time, and write their table."""
    path = create_private(scratch.new_file("bags"))
    counted: dict[int, int] = {}

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for told, sizes in sums.chunks():
            _check_sizes(sizes, bags, counted)
            values = telling.hide(told, sizes)
            columns = [values] if values.ndim == 1 else list(values.T.copy())
            numbers = np.arange(first, first + sizes.size)
            yield pa.record_batch(
                [numbers, sizes, *columns, noise_per_bag(telling.events, sizes)], schema=schema
            )
            first += sizes.size

    write_plain(pa.RecordBatchReader.from_batches(schema, batches()), path)
    sums.discard()
    if counted != bags.sizes:
        raise AssertionError("every row is counted in one bag")
    written = WrittenTable(path, bags.n_bags, sha256_of(path, error=ReleaseError))
    return DrawnBags(written, max(counted))


def _check_sizes(sizes: IntArray, bags: PartBags, counted: dict[int, int]) -> None:
    """Count bags by size; refuse a size that noise was not set for."""
    found, times = np.unique(sizes, return_counts=True)
    for size, time in zip(found.tolist(), times.tolist(), strict=True):
        counted[size] = counted.get(size, 0) + time
        if counted[size] > bags.sizes.get(size, 0):
            raise AssertionError("every row is counted in one bag")
