"""Rows on their way out: every row to the file and the place that it has, written by tasks."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import ColumnError, ReleaseError, shielded
from bagwise.files.atomic import create_private
from bagwise.files.parquet_files import WrittenTable, as_parquet_keeps_it, write_plain
from bagwise.files.regular_files import sha256_of
from bagwise.rows.columns import without_dictionary
from bagwise.rows.parts import FileParts, Reader, Split
from bagwise.rows.spark.places import Places
from bagwise.rows.workers import split_rows


def leaving_schema(table: FileParts, names: Sequence[str]) -> pa.Schema:
    """Return the columns with the types that they will have in a release."""
    empty = table.schema.empty_table().select(list(names))
    plain = pa.table([without_dictionary(column) for column in empty.columns], names=list(names))
    return shielded(
        lambda: as_parquet_keeps_it(plain).schema,
        lambda _: ColumnError("a column, perhaps the id, has a type that Parquet cannot hold."),
    )


def write_rows(
    table: FileParts, places: Places, schema: pa.Schema, *, bag_column: str, rows_per_file: int
) -> list[WrittenTable]:
    """Write all rows in the order of their places, so many to a file, with their bags."""
    where = str(table.workers.scratch.new_file("rows"))
    whole = schema.append(pa.field(bag_column, pa.int64()))
    found = table.workers.exchange(
        table.splits,
        partial(_send, reader=table.reader, places=places, schema=schema, size=rows_per_file),
        partial(_write, schema=whole, size=rows_per_file, where=where),
    )
    parts = [found[number] for number in sorted(found)]
    rows = [part.rows for part in parts]
    full = [rows_per_file] * (table.num_rows // rows_per_file)
    rest = table.num_rows % rows_per_file
    if rows != full + [rest] * (rest > 0):
        raise AssertionError("every row leaves once")
    return parts


def _send(
    split: Split, secret: bytes, *, reader: Reader, places: Places, schema: pa.Schema, size: int
) -> Iterator[tuple[int, pa.Table]]:
    read = reader.read(split, schema.names, secret)
    where, bags = places.read(split)
    columns = [
        column if column.type == field.type else pc.cast(column, field.type)
        for column, field in zip(read.columns, schema, strict=True)
    ]
    names = [str(number) for number in range(len(columns) + 2)]
    table = pa.table([*columns, pa.array(bags, mask=bags < 0), pa.array(where)], names=names)
    yield from split_rows(where // size, table)


def _write(
    target: int, sent: pa.Table, _secret: bytes, *, schema: pa.Schema, size: int, where: str
) -> WrittenTable:
    places = sent.column(sent.num_columns - 1).to_numpy()
    order = np.argsort(places)
    if not np.array_equal(places[order], target * size + np.arange(places.size)):
        raise AssertionError("every row has one place")
    table = sent.select(range(sent.num_columns - 1)).take(pa.array(order))
    path = create_private(Path(f"{where}.{target}.{token_hex(8)}"))
    write_plain(pa.table(table.columns, schema=schema), path)
    return WrittenTable(path, places.size, sha256_of(path, error=ReleaseError))
