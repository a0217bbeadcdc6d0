"""Which engine reads a table: it is told by an estimate, before anything is read.

Bags may differ with the engine, and so labels must have no part in the estimate: a label column
counts with the same number of bytes in each row, whatever is in it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import LabelError, TableError, shielded
from bagwise.files.spill import SpillDirectory, sweep_spills
from bagwise.files.stored import StoredTable, store
from bagwise.rows import Rows
from bagwise.rows.columns import find_column, is_text
from bagwise.rows.labels import has_label
from bagwise.rows.local import read_rows
from bagwise.rows.sources import StreamedSource, open_source
from bagwise.rows.sources.arrow_files import DatasetSource, ParquetFiles
from bagwise.rows.spilled import Memory, ScannedTable, SpilledRows, needed, row_bytes, shown
from bagwise.rows.table import choose_columns, refuse_empty

WORTH_TELLING = 2**30

_LABEL_BYTES = 8  # a row
_OFFSET_BYTES = 4  # that say where a cell of text begins
_FIRST = 1000  # rows that show how long text is


@dataclass(frozen=True)
class Estimate:
    """What is known of a table before it is read."""

    n_rows: int | None
    needed: int

    def is_large(self, memory: Memory) -> bool:
        """Tell whether it is worth telling."""
        return self.needed > min(memory.limit, WORTH_TELLING)

    def sentence(self, memory: Memory) -> str:
        """Say how much memory it takes, and what is done about it."""
        fits = self.needed <= memory.limit
        rows = "" if self.n_rows is None else f"{self.n_rows} rows, "
        return (
            f"{rows}about {shown(self.needed)} in memory; the limit is {shown(memory.limit)}: "
            f"{'in memory' if fits else 'out of core, with a private directory beside the output'}"
        )


def open_rows(
    source: Any,
    *,
    memory: Memory | None = None,
    named: Sequence[str] = (),
    label: str | None = None,
) -> Rows:
    """Return the rows of a source: in memory if they fit, and on disk if not.

    Without a limit they are in memory. A stream, whose size nobody knows, is in memory until it has
    used up the limit; then all of it goes to disk. `label` is a column that is secret.
    """
    if memory is None or isinstance(source, Rows):
        return read_rows(source, named=named)
    sweep_spills(memory.spill)  # what a killed run has left there may hold labels
    source = open_source(source)
    estimate = estimate_size(source, label=label)
    if estimate is None and isinstance(source, StreamedSource):
        return _read_stream(source, memory, named, label)
    if estimate is None or estimate.needed <= memory.limit:
        return read_rows(source, named=named)
    spill = SpillDirectory(memory.spill)
    if isinstance(source, ParquetFiles | DatasetSource):
        dataset = source.open()
        names = choose_columns(dataset.schema.empty_table(), named)
        return _spilled(ScannedTable(dataset, names), memory, spill)
    reader = source.batches(named)
    return _spilled(_spooled(reader, reader.schema, spill, named), memory, spill)


def leave_out_missing(rows: Rows, label: str, classes: Sequence[str] | None) -> tuple[Rows, int]:
    """Return the rows that have a label, and how many have none; that is all that is told."""
    column = find_column(rows, label, role="label")
    there = np.flatnonzero(has_label(column, classes).to_numpy())
    del column
    missing = rows.num_rows - there.size
    if not there.size:
        raise LabelError(f"label {label!r} is missing in every row.")
    if not missing:
        return rows, 0
    left = rows.labelled(label, classes) if isinstance(rows, SpilledRows) else rows.take(there)
    return left, missing


def estimate_size(source: Any, *, label: str | None = None) -> Estimate | None:
    """Estimate what a release of a source needs; None where nobody can tell without reading it.

    Cells count by their types, and text by how long it is in the first rows. What Parquet files say
    of bytes depends on the label as well: how well it is packed, and, where a writer counts bytes,
    how many row groups all columns are cut into.
    """
    if isinstance(source, ParquetFiles):
        import pyarrow.parquet as pq  # noqa: PLC0415 (only for files of this kind)

        paths = source.files.paths
        n_rows = sum(shielded(partial(pq.read_metadata, path), _damaged).num_rows for path in paths)
        with shielded(partial(pq.ParquetFile, paths[0]), _damaged) as file:
            size = n_rows * shielded(partial(_row_bytes, file, label), _damaged)
        return Estimate(n_rows, needed(n_rows, size))
    if isinstance(source, DatasetSource):
        dataset = source.open()
        n_rows = shielded(dataset.count_rows, _damaged)
        return Estimate(n_rows, needed(n_rows, n_rows * row_bytes(dataset.schema)))
    return None  # also for files whose size tells how labels are spelled, or how well they pack


def _row_bytes(file: Any, label: str | None) -> int:
    """Return about how many bytes a row of a file takes in memory."""
    schema = file.schema_arrow
    text = [field.name for field in schema if is_text(field.type) and field.name != label]
    fixed = [field for field in schema if field.name not in {*text, label}]
    first, batches = schema.empty_table().select(text), file.iter_batches(_FIRST, columns=text)
    while text and first.num_rows < _FIRST and (batch := next(batches, None)) is not None:
        first = pa.concat_tables([first, pa.Table.from_batches([batch])])
    cells = [column.cast(pa.large_string()) for column in first.slice(0, _FIRST).columns]
    letters = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in cells)
    looked_at: int = max(1, min(_FIRST, first.num_rows))
    known = row_bytes(pa.schema(fixed)) + _secret_bytes(1, label)
    return known + _OFFSET_BYTES * len(text) + math.ceil(letters / looked_at)


def _secret_bytes(n_rows: int, label: str | None) -> int:
    return 0 if label is None else _LABEL_BYTES * n_rows


def _read_stream(
    source: StreamedSource, memory: Memory, named: Sequence[str], label: str | None
) -> Rows:
    """Read a stream, which is there once: into memory, or to disk as soon as it is too large."""
    reader, read, n_rows, size = source.batches(named), list[pa.RecordBatch](), 0, 0
    while needed(n_rows, size) <= memory.limit:
        batch = shielded(lambda: next(reader, None), _damaged)
        if batch is None:
            return read_rows(pa.Table.from_batches(read, reader.schema), named=named)
        read.append(batch)
        public = batch.select([name for name in batch.schema.names if name != label])
        n_rows += batch.num_rows
        size += int(public.nbytes) + _secret_bytes(batch.num_rows, label)
    spill = SpillDirectory(memory.spill)
    waiting = _emptying(read)
    return _spilled(_spooled(chain(waiting, reader), reader.schema, spill, named), memory, spill)


def _spilled(
    stored: ScannedTable | StoredTable, memory: Memory, spill: SpillDirectory
) -> SpilledRows:
    refuse_empty(stored.num_rows, len(stored.schema))
    return SpilledRows(stored, memory, spill)


def _spooled(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    spill: SpillDirectory,
    named: Sequence[str],
) -> StoredTable:
    names = choose_columns(schema.empty_table(), named)
    kept = pa.schema([schema.field(name).remove_metadata() for name in names])
    return shielded(lambda: store(_selected(batches, kept), kept, spill.new_file("rows")), _damaged)


def _emptying(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batches.reverse()
    while batches:
        yield batches.pop()


def _selected(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([batch[name] for name in schema.names], schema=schema)


def _damaged(_error: Exception) -> TableError:
    return TableError(
        "the table cannot be read: a file is damaged, cut short, or of several types in a column."
    )
