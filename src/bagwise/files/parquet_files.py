"""The Parquet files of a release: tables and nothing else, read without trusting their writer.

A Parquet file can carry notes that no table shows, and a small one can describe a table that fills
the memory. What is read here has no notes and no gaps, and its size in memory is known, and found
bearable, before it is decoded.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bagwise.errors import BagwiseError, shielded
from bagwise.files.parquet_layout import ROWS_AT_ONCE, read_layout
from bagwise.files.regular_files import open_regular, size_of
from bagwise.files.spill import SpillDirectory
from bagwise.files.stored import BATCH, in_groups, store

_MODEST = 128 * 2**20  # a table of this size is read whatever the size of its file
_MOST_GROWTH = 200  # tables of features do not shrink further than that
_USUAL_MEMORY = 4 * 2**30  # where the system does not say how much it has

# Statistics would be one more place that holds values which no table shows.
_OPTIONS = {"compression": "zstd", "store_schema": False, "write_statistics": False}


@dataclass(frozen=True)
class WrittenTable:
    """A table that `write_plain` has written to a file."""

    path: Path
    rows: int
    sha256: str


def write_plain(rows: pa.Table | pa.RecordBatchReader, path: Path) -> None:
    """Write a table, or batches of one as they come, without any metadata about its origin."""
    _write_groups(in_groups(_batches(rows), repeat(ROWS_AT_ONCE)), rows.schema, path)


def write_parts(
    rows: pa.Table | pa.RecordBatchReader, paths: Iterable[Path], *, rows_per_file: int
) -> None:
    """Write a table, or batches of one, to as many files of `rows_per_file` rows as needed."""
    full, rest = divmod(rows_per_file, ROWS_AT_ONCE)
    sizes = [ROWS_AT_ONCE] * full + [rest] * (rest > 0)
    groups = in_groups(_batches(rows), cycle(sizes))
    paths = iter(paths)
    for first in groups:  # no path is asked for in vain
        if (path := next(paths, None)) is None:
            raise AssertionError("there are more rows than files for them")
        _write_groups(chain([first], islice(groups, len(sizes) - 1)), rows.schema, path)


def _write_groups(groups: Iterable[pa.Table], schema: pa.Schema, path: Path) -> None:
    schema = _without_notes(schema.empty_table()).schema
    with pq.ParquetWriter(path, schema, **_OPTIONS) as file:
        for group in groups:
            file.write_table(_without_notes(group), row_group_size=ROWS_AT_ONCE)


def as_parquet_keeps_it(table: pa.Table) -> pa.Table:
    """Return a table with the types that it will have after a round trip through Parquet.

    >>> as_parquet_keeps_it(pa.table({"x": pa.array(["a"], pa.large_string())})).schema.types
    [DataType(string)]
    """
    buffer = pa.BufferOutputStream()
    pq.write_table(_without_notes(table.schema.empty_table()), buffer, **_OPTIONS)
    schema = pq.read_schema(pa.BufferReader(buffer.getvalue()))
    plain = _without_notes(table)
    if plain.schema.equals(schema):
        return plain
    # In pieces: one array of short strings holds 2 GB at most, a long one may hold more.
    pieces = plain.to_batches(max_chunksize=ROWS_AT_ONCE)
    return pa.Table.from_batches(pieces, plain.schema).cast(schema)


def read_parts(
    paths: Sequence[Path], *, error: type[BagwiseError], sha256: Sequence[str]
) -> pa.Table:
    """Read a table that `write_parts` wrote; all files but the last have the same number of rows.

    Guarantee: that of `read_plain`, for all files together.
    """
    tables: list[pa.Table] = []
    for path, digest in zip(paths, sha256, strict=True):
        taken = min(sum(table.nbytes for table in tables), memory_of_machine() // 2)
        tables.append(read_plain(path, error=error, sha256=digest, taken=taken))
        if not tables[-1].schema.equals(tables[0].schema):
            raise error(f"{path} has other columns than {paths[0].name}.")
    *full, last = (table.num_rows for table in tables)
    if full and (len(set(full)) > 1 or last > full[0]):
        raise error(f"{paths[0].parent}: the rows are not divided the way bagwise divides them.")
    return pa.concat_tables(tables)


def read_plain(
    path: Path, *, error: type[BagwiseError], sha256: str | None = None, taken: int = 0
) -> pa.Table:
    """Read a table that `write_plain` wrote, and refuse files that hold anything else.

    If a SHA-256 is given, the file must have it.

    Guarantee: what is read is what was hashed, also if somebody writes to the file meanwhile. No
    more memory is used than half of the machine's, less what is `taken` (bytes), nor, from 128 MB
    on, than 200 times the size of the file. A table that is too large for the memory alone is
    unpacked into a private file without a name, if half of what is free on the disk is enough, and
    mapped.
    """
    with open_regular(path, error=error) as opened:
        # A modest file is taken whole; a large one must not be touched before it is read.
        modest = (size := size_of(opened)) <= _MODEST
        handle = _in_arrow_memory(opened, size) if modest else opened
        touched = _last_touched(opened)
        if sha256 is not None and hashlib.file_digest(handle, "sha256").hexdigest() != sha256:
            raise error(
                f"{path} was changed after the release was written (its SHA-256 is not the one in "
                "the manifest). Ask for the release again."
            )
        table = shielded(
            lambda: _read(handle, path, error, taken),
            error(f"{path} is not a readable Parquet file."),
        )
        if not modest and _last_touched(opened) != touched:
            raise error(f"{path} was written to while it was read. Read it again.")
        return table


def _in_arrow_memory(opened: BufferedReader, size: int) -> pa.BufferReader:
    """Read a file into memory that is Arrow's own.

    Arrow's threads let go of what they read a moment after a table is there. Letting go of an
    object of Python while the interpreter ends, as a command does that nobody reads on, aborts
    the process.
    """
    buffer = pa.allocate_buffer(size)
    filled, view = 0, memoryview(buffer)
    while filled < size and (length := opened.readinto(view[filled:])):
        filled += length
    return pa.BufferReader(buffer.slice(0, filled))


def _last_touched(handle: BinaryIO) -> tuple[int, int]:
    status = os.fstat(handle.fileno())
    return status.st_mtime_ns, status.st_ctime_ns


def _batches(rows: pa.Table | pa.RecordBatchReader) -> pa.RecordBatchReader:
    return rows.to_reader() if isinstance(rows, pa.Table) else rows


def _read(handle: BinaryIO, path: Path, error: type[BagwiseError], taken: int) -> pa.Table:
    layout = shielded(lambda: read_layout(handle), lambda problem: error(f"{path} {problem}"))
    most = max(_MODEST, _MOST_GROWTH * size_of(handle))
    with pq.ParquetFile(handle, pre_buffer=False) as file:
        schema = file.schema_arrow
    if schema.metadata or any(field.metadata for field in schema):
        raise error(f"{path} holds Parquet metadata beside its table, which no release has.")
    # How many bytes the table takes while its text is still in lists of strings.
    kinds = [kind for kind in schema.types if not pa.types.is_null(kind)]
    bits = sum(32 if _is_text(kind) else int(kind.bit_width) for kind in kinds)
    needed = layout.rows * bits // 8 + layout.strings + layout.largest_page
    _check_size(path, needed, most, error)
    fits = min(memory_of_machine() // 2 - taken, most)
    # Text stays as numbers into a list of strings until it is known how long it all is.
    text = [field.name for field in schema if _is_text(field.type)]
    with pq.ParquetFile(handle, read_dictionary=text, pre_buffer=False) as file:
        if needed <= fits:
            table = file.read()
            needed += sum(_text_size(table.column(name)) for name in text)
            if needed <= fits:
                return _decoded(table, schema)
        most = min(most, shutil.disk_usage(gettempdir()).free // 2)
        _check_size(path, needed, most, error)
        return _read_to_disk(file, schema, lambda size: _check_size(path, size, most, error))


def _read_to_disk(
    file: pq.ParquetFile, schema: pa.Schema, check_size: Callable[[int], None]
) -> pa.Table:
    """Decode a table batch by batch into a file of its own; return it mapped."""

    def batches() -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in file.iter_batches(batch_size=BATCH):
            part = pa.Table.from_batches([batch])
            text = [name for name in part.column_names if _is_text(schema.field(name).type)]
            size += batch.nbytes + sum(_text_size(part.column(name)) for name in text)
            check_size(size)
            yield from _decoded(part, schema).combine_chunks().to_batches()

    spill = SpillDirectory(Path(gettempdir()))
    try:
        return store(batches(), schema, spill.new_file("rows")).table()
    finally:
        spill.close()  # the file has no name any more


def _check_size(path: Path, size: int, most: int, error: type[BagwiseError]) -> None:
    if size > most:
        raise error(
            f"{path} describes a table of {size / 2**20:.0f} MB: more than {_MOST_GROWTH} times "
            "the file, or than memory and disk have room for. It was not read."
        )


def _is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type vary in length."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text_size(column: pa.ChunkedArray) -> int:
    size = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.fill_null(pc.binary_length(chunk.dictionary), 0), dtype=np.int64)
        indices = pc.drop_null(chunk.indices).to_numpy()
        size += int(lengths @ np.bincount(indices, minlength=lengths.size)) + 4 * len(chunk)
    return size


def _decoded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = list[pa.ChunkedArray]()
    for column, field in zip(table.columns, schema, strict=True):
        coded = pa.types.is_dictionary(column.type)
        for chunk in column.chunks if coded else ():
            chunk.dictionary.validate(full=True)  # a reader does not see to it that text is UTF-8
        columns.append(pc.cast(column, field.type) if coded else column)
    return pa.table(columns, schema=schema)


def memory_of_machine() -> int:
    """Return the memory of the machine in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _USUAL_MEMORY


def _without_notes(table: pa.Table) -> pa.Table:
    return pa.table(table.columns, names=table.column_names)
