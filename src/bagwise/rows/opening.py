"""Choose the engine that reads a table, from an estimate of its size.

Bags may differ with the engine, and so labels must have no part in the estimate: a label column
counts with the same number of bytes in each row, whatever is in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bagwise.errors import LabelError, Shield, TableError, shielded
from bagwise.files.spill import sweep_spills
from bagwise.rows.columns import find_column, is_text
from bagwise.rows.labels import has_label
from bagwise.rows.sources import ScannedSource, Stream, open_source
from bagwise.rows.sources.arrow_files import ParquetFiles
from bagwise.rows.spilled import Memory, SpilledRows, needed, row_bytes, shown
from bagwise.rows.table import Rows, choose_columns, read_rows, refuse_empty

WORTH_TELLING = 2**30

_LABEL_BYTES = 8  # a row
_OFFSET_BYTES = 4  # that say where a cell of text begins
_FIRST = 1000  # rows that show how long text is


@dataclass(frozen=True)
class Estimate:
    """What is known of a table before it is read."""

    n_rows: int
    needed: int

    def is_large(self, memory: Memory) -> bool:
        """Tell whether it is worth telling."""
        return self.needed > min(memory.limit, WORTH_TELLING)

    def sentence(self, memory: Memory) -> str:
        """Say how much memory it takes, and what is done about it."""
        fits = self.needed <= memory.limit
        return (
            f"{self.n_rows} rows, about {shown(self.needed)} in memory; the limit is "
            f"{shown(memory.limit)}: "
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

    Without a limit they are in memory. A stream, whose size nobody knows, is refused where it is
    larger than the limit: on disk its copy would have labels. `label` is a column that is secret.
    """
    if memory is None or isinstance(source, Rows):
        return read_rows(source, named=named)
    sweep_spills(memory.spill)  # what a killed run has left there may hold labels
    source = open_source(source)
    if isinstance(source, Stream):
        return read_rows(_read_stream(source, memory, label), named=named)
    estimate = estimate_size(source, label=label)
    if estimate is None or estimate.needed <= memory.limit:
        return read_rows(source, named=named)
    dataset = source.open()
    names = choose_columns(dataset.schema.empty_table(), named)
    refuse_empty(estimate.n_rows, len(names))
    return SpilledRows(dataset, names, memory)


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
    return rows.take(there), missing


def estimate_size(source: Any, *, label: str | None = None) -> Estimate | None:
    """Estimate what a release of a source needs; None where nobody can tell without reading it.

    Cells count by their types, and text by how long it is in the first rows. What files say of
    bytes depends on the label as well: how well it is packed, and, where a writer counts bytes, how
    many row groups all columns are cut into.
    """
    if not isinstance(source, ScannedSource):
        return None  # also for files whose size tells how labels are spelled, or how well they pack
    with Shield(_damaged):
        if isinstance(source, ParquetFiles):  # without waiting for pyarrow's datasets
            n_rows = sum(pq.read_metadata(path).num_rows for path in source.files.paths)
            with pq.ParquetFile(source.files.paths[0]) as file:
                schema, text = file.schema_arrow, _texts(file.schema_arrow, label)
                first = schema.empty_table().select(text)
                batches = file.iter_batches(_FIRST, columns=text) if text else iter(())
                while first.num_rows < _FIRST and (batch := next(batches, None)) is not None:
                    first = pa.concat_tables([first, pa.Table.from_batches([batch])])
        else:
            dataset = source.open()
            n_rows, schema = dataset.count_rows(), dataset.schema
            text = _texts(schema, label)
            first = dataset.scanner(columns=text, batch_size=_FIRST).head(_FIRST)
    cells = [column.cast(pa.large_string()) for column in first.slice(0, _FIRST).columns]
    letters = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in cells)
    fixed = pa.schema([field for field in schema if field.name not in {*text, label}])
    size = row_bytes(fixed) + (0 if label is None else _LABEL_BYTES) + _OFFSET_BYTES * len(text)
    size += math.ceil(letters / max(1, min(_FIRST, first.num_rows)))
    return Estimate(n_rows, needed(n_rows, n_rows * size))


def _texts(schema: pa.Schema, label: str | None) -> list[str]:
    return [field.name for field in schema if is_text(field.type) and field.name != label]


def _read_stream(source: Stream, memory: Memory, label: str | None) -> pa.Table:
    """Read a stream, which is there once, as long as it fits."""
    reader, read, n_rows, size = source.batches(), list[pa.RecordBatch](), 0, 0
    while (batch := shielded(lambda: next(reader, None), _damaged)) is not None:
        read.append(batch)
        n_rows += batch.num_rows
        size += int(batch.select([name for name in batch.schema.names if name != label]).nbytes)
        if needed(n_rows, size + (0 if label is None else _LABEL_BYTES * n_rows)) > memory.limit:
            raise TableError(
                f"the stream is larger than the limit of {shown(memory.limit)}, and is not copied "
                "to disk, since it contains labels. Write it to Parquet and pass that file, or "
                "raise the limit (memory_limit, --memory-limit)."
            )
    return pa.Table.from_batches(read, reader.schema)


def _damaged(_error: Exception) -> TableError:
    return TableError(
        "the table cannot be read: a file is damaged, cut short, or of several types in a column."
    )
