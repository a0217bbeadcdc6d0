"""The Parquet files of a release: tables and nothing else, read without trusting their writer.

A Parquet file can carry notes that no table shows, and a small one can describe a table that fills
the memory. What is read here has no notes and no gaps, and its size in memory is known, and found
bearable, before it is decoded.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bagwise.errors import BagwiseError, shielded
from bagwise.files.parquet_layout import ROWS_AT_ONCE, Layout, LayoutError, read_layout
from bagwise.files.regular_files import open_regular, size_of

_MODEST = 128 * 2**20  # a table of this size is read whatever the size of its file
_MOST_GROWTH = 200  # tables of features do not shrink further than that
_USUAL_MEMORY = 4 * 2**30  # where the system does not say how much it has

# Statistics would be one more place that holds values which no table shows.
_OPTIONS = {"compression": "zstd", "store_schema": False, "write_statistics": False}


def write_plain(rows: pa.Table | pa.RecordBatchReader, path: Path) -> None:
    """Write a table, or batches of one as they come, and nothing about where it came from."""
    schema = _without_notes(rows.schema.empty_table()).schema
    with pq.ParquetWriter(path, schema, **_OPTIONS) as file:
        for group in _row_groups(rows):
            file.write_table(_without_notes(group), row_group_size=ROWS_AT_ONCE)


def as_parquet_keeps_it(table: pa.Table) -> pa.Table:
    """Return a table with the types that it will have when it is read back from Parquet.

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


def read_plain(path: Path, *, error: type[BagwiseError], sha256: str | None = None) -> pa.Table:
    """Read a table that `write_plain` wrote, and refuse files that hold anything besides.

    If a SHA-256 is given, the file must have it; it is taken of the same open file that is read.

    Guarantee: no more memory is used than half of the machine's, nor, from 128 MB on, than 200
    times the size of the file.
    """
    with open_regular(path, error=error) as handle:
        if sha256 is not None and hashlib.file_digest(handle, "sha256").hexdigest() != sha256:
            raise error(
                f"{path} was changed after the release was written (its SHA-256 is not the one in "
                "the manifest). Ask for the release again."
            )
        return shielded(
            lambda: _read(handle, path, error),
            lambda _: error(f"{path} is not a readable Parquet file."),
        )


def _row_groups(rows: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield tables of `ROWS_AT_ONCE` rows, and what is left: the same whatever the batches are."""
    waiting = rows.schema.empty_table()
    for batch in rows.to_reader() if isinstance(rows, pa.Table) else rows:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows >= ROWS_AT_ONCE:
            yield waiting.slice(0, ROWS_AT_ONCE)
            waiting = waiting.slice(ROWS_AT_ONCE)
    if waiting.num_rows:
        yield waiting


def _read(handle: BufferedReader, path: Path, error: type[BagwiseError]) -> pa.Table:
    layout = _layout_of(handle, path, error)
    allowed = _allowance(size_of(handle))
    with pq.ParquetFile(handle, pre_buffer=False) as file:
        schema = file.schema_arrow
    if schema.metadata or any(field.metadata for field in schema):
        raise error(f"{path} holds Parquet metadata beside its table, which no release has.")
    needed = _estimate(layout, schema)
    if needed > allowed:
        raise _too_large(path, needed, error)
    # Text stays as numbers into a list of strings until it is known how long it all is.
    text = [field.name for field in schema if _is_text(field.type)]
    with pq.ParquetFile(handle, read_dictionary=text, pre_buffer=False) as file:
        table = file.read()
    needed += sum(_text_size(table.column(name)) for name in text)
    if needed > allowed:
        raise _too_large(path, needed, error)
    return _decoded(table, schema)


def _layout_of(handle: BufferedReader, path: Path, error: type[BagwiseError]) -> Layout:
    try:
        return read_layout(handle)
    except LayoutError as problem:
        failure = error(f"{path} {problem}")
    raise failure


def _estimate(layout: Layout, schema: pa.Schema) -> int:
    """Return how many bytes the table takes while its text is still in lists of strings."""
    bits = sum(32 if _is_text(kind) else _bit_width(kind) for kind in schema.types)
    return layout.rows * bits // 8 + layout.strings + layout.largest_page


def _bit_width(kind: pa.DataType) -> int:
    return 0 if pa.types.is_null(kind) else int(kind.bit_width)


def _is_text(kind: pa.DataType) -> bool:
    """Tell whether values of a type have lengths of their own."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text_size(column: pa.ChunkedArray) -> int:
    size = 0
    for chunk in column.chunks:
        lengths = np.asarray(pc.fill_null(pc.binary_length(chunk.dictionary), 0), dtype=np.int64)
        indices = pc.drop_null(chunk.indices).to_numpy()
        size += int(lengths @ np.bincount(indices, minlength=lengths.size)) + 4 * len(chunk)
    return size


def _decoded(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: Sequence[pa.ChunkedArray] = [
        _plain_text(column, field.type) if pa.types.is_dictionary(column.type) else column
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _plain_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    for chunk in column.chunks:
        chunk.dictionary.validate(full=True)  # a reader does not see to it that text is UTF-8
    return pc.cast(column, kind)


def _allowance(file_size: int) -> int:
    return min(_memory() // 2, max(_MODEST, _MOST_GROWTH * file_size))


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _USUAL_MEMORY


def _too_large(path: Path, needed: int, error: type[BagwiseError]) -> BagwiseError:
    return error(
        f"{path} describes a table of {needed / 2**20:.0f} MB, which is more than half of this "
        f"machine's memory or than {_MOST_GROWTH} times the file. It was not read."
    )


def _without_notes(table: pa.Table) -> pa.Table:
    return pa.table(table.columns, names=table.column_names)
