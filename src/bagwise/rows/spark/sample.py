"""Some rows of a table on many machines: which they are follows from cells alone.

Neither the order of the rows nor how they are split has a part in it, and it is the same every
time. Rows that are equal in all columns named are counted by Spark, and of each kind its share is
taken, rounded up or down by a hash of the cells: as many as the share says on average, and of few
rows all.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from bagwise._types import IntArray
from bagwise.errors import ColumnError
from bagwise.rows.columns import as_float, as_text, is_numeric, without_dictionary
from bagwise.rows.parts import FileParts, Reader, Split
from bagwise.rows.spark.tasks import cluster_of, run_job


def sample_rows(table: FileParts, names: Sequence[str], count: int) -> pa.Table:
    """Return about `count` rows with these columns, or all if there are fewer."""
    from pyspark.sql import functions

    # Cells are compared as numbers or, as in `feature_order`, as text.
    types = [table.schema.field(name).type for name in names]
    kinds = [bool(is_numeric(kind) or pa.types.is_boolean(kind)) for kind in types]
    schema = ["row long", *(f"c{i} {'double' if n else 'string'}" for i, n in enumerate(kinds))]
    produce = partial(_cells, reader=table.reader, names=tuple(names), kinds=tuple(kinds))
    cells = cluster_of(table.workers).columns(table.splits, produce, ", ".join(schema))
    columns = [f"c{i}" for i in range(len(names))]
    # Two hashes, so that rows which differ are not taken for equal.
    hashes = [functions.xxhash64(functions.lit(i), *columns).alias(f"h{i}") for i in (0, 1)]
    alike = cells.select("row", *hashes).groupBy("h0", "h1")
    counted = alike.agg(functions.count("*").alias("rows"), functions.min("row").alias("row"))
    share = functions.lit(min(1.0, count / table.num_rows))
    part = functions.shiftrightunsigned("h0", 11) / functions.lit(2.0**53)  # from 0 up to 1
    taken = counted.select(
        "row", functions.floor(functions.col("rows") * share + part).alias("times")
    ).where("times > 0")
    found = run_job(taken.toArrow)
    rows, times = (np.asarray(column.to_numpy(), dtype=np.int64) for column in found.columns)
    order = np.argsort(rows)
    return read_rows(table, names, rows[order]).take(
        pa.array(np.repeat(np.arange(order.size), times[order]))
    )


def read_rows(table: FileParts, names: Sequence[str], rows: IntArray) -> pa.Table:
    """Return some columns of some rows, whose numbers rise."""
    cuts = np.searchsorted(rows, [*(one.first for one in table.splits), table.num_rows])
    wanted = [
        (split, rows[start:stop] - split.first)
        for split, start, stop in zip(table.splits, cuts, cuts[1:], strict=False)
        if stop > start
    ]
    read = partial(_read, reader=table.reader, names=tuple(names))
    return pa.concat_tables(table.workers.each(wanted, read))


def _read(
    item: tuple[Split, IntArray], secret: bytes, *, reader: Reader, names: Sequence[str]
) -> pa.Table:
    split, rows = item
    read = reader.read(split, names, secret).take(pa.array(rows))
    return pa.table({name: without_dictionary(read.column(name)) for name in names})


def _cells(
    split: Split, secret: bytes, *, reader: Reader, names: Sequence[str], kinds: Sequence[bool]
) -> Iterable[pa.Table]:
    read = reader.read(split, names, secret)
    rows = pa.array(np.arange(split.first, split.first + split.rows, dtype=np.int64))
    spelled = _spelled(read, names, kinds)
    yield pa.table([rows, *spelled], names=["row", *(f"c{i}" for i in range(len(names)))])


def _spelled(
    read: pa.Table, names: Sequence[str], kinds: Sequence[bool]
) -> Iterator[pa.Array | pa.ChunkedArray]:
    for name, number in zip(names, kinds, strict=True):
        column = without_dictionary(read.column(name))
        if number:
            yield pa.array(as_float(column) + 0.0)  # there is one zero
            continue
        try:
            yield as_text(column, name=name).cast(pa.string())
        except ColumnError:  # nobody can compare a list or a picture
            yield pa.nulls(len(column), pa.string())
