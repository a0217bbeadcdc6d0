"""Rows in memory or on disk; an estimate decides which before anything is read.

Bags may differ with the engine, and so the estimate must not depend on labels: a label column
counts with the same number of bytes in each row, whatever it contains.

Files that do not fit into memory are read in place, a column or a batch at a time. Only columns
that are published are ever reordered on disk, so that labels are in no file but their own.
"""

import copy
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bagwise._types import IntArray, index_type
from bagwise.errors import LabelError, OutputError, Shield, TableError, shielded
from bagwise.files.parquet_files import memory_of_machine
from bagwise.files.spill import SpillDirectory, sweep_spills
from bagwise.files.stored import BATCH, StoredTable, arrange
from bagwise.rows.columns import find_column, is_text
from bagwise.rows.labels import has_label
from bagwise.rows.sources import ScannedSource, Stream, open_source
from bagwise.rows.sources.files import ParquetFiles
from bagwise.rows.sources.source import UNREADABLE
from bagwise.rows.table import (
    Rows,
    choose_columns,
    known_layout,
    published_schema,
    read_rows,
    refuse_empty,
)

VECTORS = 6
"""Numbers of 64 bits for each row that a release holds at its peak: labels, orders and bags."""

COPIES = 2.0
"""Times the features of a table that are in memory at the peak of a release, ..."""

SEARCHED = 6.0
"""... and where bags of neighbours are searched for, which takes points and lists of neighbours."""

BY_CELLS = 2**28
"""Bytes that a search takes, cell by cell and on disk, before it saves any."""

BASE = 300 * 2**20
"""Bytes of Python and its libraries."""

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Memory:
    """A limit on memory, and the place for data that do not fit.

    Attributes
    ----------
    limit : int
        Bytes.
    spill : Path
        A directory in the file system of the output.
    searched : bool
        Whether bags of neighbours may be searched for.
    """

    limit: int
    spill: Path
    searched: bool = False

    @classmethod
    def of(cls, limit: str | int | None, spill: str | Path, *, searched: bool = False) -> "Memory":
        """Read a limit as a user gives it; None means half of the machine's memory."""
        size = memory_of_machine() // 2 if limit is None else parse_size(limit)
        return cls(size, Path(spill), searched)

    def needed(self, n_rows: int, table_bytes: int) -> int:
        """Return about how many bytes a release needs if the table is in memory.

        >>> memory = Memory.of("2GB", ".")
        >>> round(memory.needed(10_000_000, 10_000_000 * 17 * 8) / 2**30, 1)
        3.3
        """
        search = max(0.0, (SEARCHED - COPIES) * table_bytes - BY_CELLS) if self.searched else 0.0
        return int(BASE + COPIES * table_bytes + search + 8 * VECTORS * n_rows)

    def at_once(self, n_rows: int) -> int:
        """Return the bytes of features that may be in memory beside the vectors of all rows."""
        left = self.limit - BASE - 8 * VECTORS * n_rows
        return max(left, self.limit // 8) // 4


def parse_size(text: str | int) -> int:
    """Return a number of bytes.

    >>> parse_size("2GB"), parse_size("500 MB"), parse_size(1024)
    (2147483648, 524288000, 1024)
    """
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", str(text).upper())
    if found is None or float(found[1]) <= 0:
        raise TableError(f"a memory limit is a size such as 8GB or 500MB, got {text!r}.")
    return int(float(found[1]) * _UNITS[found[2]])


def shown(size: int) -> str:
    """Return a number of bytes for people.

    >>> shown(3 * 2**30), shown(5_000_000)
    ('3.0 GB', '4.8 MB')
    """
    return f"{size / 2**30:.1f} GB" if size >= 2**30 else f"{size / 2**20:.1f} MB"


class SpilledRows(Rows):
    """Rows on disk, of which single columns, and vectors with one number a row, fit into memory."""

    def __init__(self, dataset: Any, names: Sequence[str], memory: Memory) -> None:
        self._dataset, self._memory = dataset, memory
        self._spill = SpillDirectory(memory.spill)
        self._schema: pa.Schema = pa.schema([dataset.schema.field(name) for name in names])
        self.num_rows = shielded(dataset.count_rows, TableError(UNREADABLE))
        self._n_stored = self.num_rows
        # The order is in a file without a name: it is needed once or twice, and vectors of all rows
        # are what memory is short of.
        self._parked: Any = None

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        return list(self._schema.names)

    @property
    def rows_at_once(self) -> int:
        """How many rows may be in memory with all their columns."""
        at_once = self._memory.at_once(self._n_stored)
        return max(1, at_once // row_bytes(self._schema))

    def _places(self) -> IntArray | None:
        if self._parked is None:
            return None
        self._parked.seek(0)
        return np.fromfile(self._parked, dtype=index_type(self._n_stored))

    def _stored_column(self, name: str) -> pa.ChunkedArray:
        """Read one column; numbers go to where they stay at once.

        Assembled from batches, a column would be in memory twice, and its pieces would be kept for
        reuse.
        """
        kind = self._schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            values, start = np.empty(self._n_stored, dtype=kind.to_pandas_dtype()), 0
            for batch in self._scan([name]):
                if batch.column(0).null_count:
                    break
                values[start : start + batch.num_rows] = batch.column(0).to_numpy()
                start += batch.num_rows
            else:
                return pa.chunked_array([pa.array(values)], type=kind)
        chunks = [batch.column(0) for batch in self._scan([name])]
        pa.default_memory_pool().release_unused()  # of the columns before
        return known_layout(pa.chunked_array(chunks, type=kind))

    def _scan(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows, in the order of the files."""
        scanner = self._dataset.scanner(
            columns=list(names), batch_size=BATCH, batch_readahead=2, fragment_readahead=1
        )
        return read_on(scanner.to_reader)

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""
        return self.num_rows * row_bytes(pa.schema([self._schema.field(n) for n in names]))

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows, some rows at a time."""
        here = self._parked is None
        for batch in self._scan(names) if here else self._arrange(names).batches(names):
            yield pa.Table.from_batches([batch])

    def take(self, order: IntArray) -> Self:
        """Return these rows, in this order."""
        taken, places = copy.copy(self), self._places()
        chosen = order if places is None else places[order]
        with Shield(
            OutputError("the order of the rows cannot be written beside the output: is it full?")
        ):
            taken._parked = tempfile.TemporaryFile(dir=self._spill.path)  # noqa: SIM115 (it stays)
            chosen.astype(index_type(self._n_stored), copy=False).tofile(taken._parked)
        taken.num_rows, taken.stored = order.size, None
        return taken

    def block(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return some columns of the rows from `start` on, up to `stop`."""
        return self._arrange(names).block(names, start, stop)

    def hand_over(self, names: Sequence[str]) -> pa.Table:
        """Return columns as they leave, as a table that is mapped."""
        return self._arrange(names).table().select(list(names))

    def _arrange(self, names: Sequence[str]) -> StoredTable:
        """Return a file in which the rows, with these columns at least, are in their order."""
        held = self.stored
        if held is None or not set(names) <= set(held.schema.names):
            self.stored = held = self._write(names)
        return held

    def _write(self, names: Sequence[str]) -> StoredTable:
        schema = published_schema(self._schema, names)
        places = np.arange(self._n_stored, dtype=index_type(self._n_stored))
        if (order := self._places()) is not None:
            places.fill(-1)
            places[order] = np.arange(order.size, dtype=places.dtype)
        del order

        def batches() -> Iterator[pa.RecordBatch]:
            start = 0
            for batch in self._scan(names):
                here = places[start : start + batch.num_rows] >= 0
                start += batch.num_rows
                chosen = batch if here.all() else batch.filter(pa.array(here))
                columns = zip(chosen.columns, schema, strict=True)
                with Shield(TableError("a column has a type that Parquet cannot hold.")):
                    cells = [pc.cast(column, field.type) for column, field in columns]
                yield pa.record_batch(cells, schema=schema)

        kept = places if self.num_rows == self._n_stored else places[places >= 0]
        return arrange(batches(), schema, kept, self._spill.path, rows_at_once=self.rows_at_once)


def spilled(table: pa.Table, names: Sequence[str], memory: Memory) -> SpilledRows:
    """Return columns of a table that is mapped, without bringing it into memory."""
    import pyarrow.dataset as ds

    return SpilledRows(ds.dataset(table), names, memory)


def row_bytes(schema: pa.Schema) -> int:
    """Return about how many bytes a row takes in memory: a guess where cells have own lengths."""
    total = 0
    for field in schema:
        try:
            total += max(1, int(field.type.bit_width) // 8)
        except (ValueError, AttributeError):
            total += 32
    return total


# -- opening ---------------------------------------------------------------------------------------

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
        """Return whether the size is worth a message."""
        return self.needed > min(memory.limit, WORTH_TELLING)

    def sentence(self, memory: Memory) -> str:
        """Describe how much memory the table takes, and how it will be handled."""
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
    """Return the rows of a source: in memory if they fit, on disk otherwise.

    Without a limit they are in memory. A stream, whose size is unknown, is refused if it is larger
    than the limit, since its copy on disk would contain labels. `label` is a column that is secret.
    """
    if memory is None or isinstance(source, Rows):
        return read_rows(source, named=named)
    sweep_spills(memory.spill)  # what a killed run has left there may hold labels
    source = open_source(source)
    if isinstance(source, Stream):
        return read_rows(_read_stream(source, memory, label), named=named)
    estimate = estimate_size(source, memory, label=label)
    if estimate is None or estimate.needed <= memory.limit:
        return read_rows(source, named=named)
    dataset = source.open()
    names = choose_columns(dataset.schema.empty_table(), named)
    refuse_empty(estimate.n_rows, len(names))
    return SpilledRows(dataset, names, memory)


def leave_out_missing(rows: Rows, label: str, classes: Sequence[str] | None) -> tuple[Rows, int]:
    """Return the rows that have a label, and how many have none; nothing else is revealed."""
    column = find_column(rows, label, role="label")
    there = np.flatnonzero(has_label(column, classes).to_numpy())
    del column
    missing = rows.num_rows - there.size
    if not there.size:
        raise LabelError(f"label {label!r} is missing in every row.")
    if not missing:
        return rows, 0
    return rows.take(there), missing


def estimate_size(source: Any, memory: Memory, *, label: str | None = None) -> Estimate | None:
    """Estimate what a release of a source needs; None if that is unknown before it is read.

    Cells count by their types, and text by its length in the first rows. The sizes stated in files
    depend on the label as well: on how well it is compressed, and, if a writer counts bytes, on how
    many row groups there are.
    """
    if not isinstance(source, ScannedSource):
        return None  # also for files whose size tells how labels are spelled, or how well they pack
    with Shield(TableError(UNREADABLE)):
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
    return Estimate(n_rows, memory.needed(n_rows, n_rows * size))


def _texts(schema: pa.Schema, label: str | None) -> list[str]:
    return [field.name for field in schema if is_text(field.type) and field.name != label]


def _read_stream(source: Stream, memory: Memory, label: str | None) -> pa.Table:
    """Read a stream, which can be read only once, as long as it fits into memory."""
    reader, read, n_rows, size = source.batches(), list[pa.RecordBatch](), 0, 0
    for batch in read_on(lambda: reader):
        read.append(batch)
        n_rows += batch.num_rows
        size += int(batch.select([name for name in batch.schema.names if name != label]).nbytes)
        size_of_labels = 0 if label is None else _LABEL_BYTES * n_rows
        if memory.needed(n_rows, size + size_of_labels) > memory.limit:
            raise TableError(
                f"the stream is larger than the limit of {shown(memory.limit)}, and is not copied "
                "to disk, since it contains labels. Write it to Parquet and pass that file, or "
                "raise the limit (memory_limit, --memory-limit)."
            )
    return pa.Table.from_batches(read, reader.schema)


def read_on(open_reader: Callable[[], pa.RecordBatchReader]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader, whose messages may quote cells."""
    batches = iter(shielded(open_reader, TableError(UNREADABLE)))
    while (batch := shielded(lambda: next(batches, None), TableError(UNREADABLE))) is not None:
        yield batch
