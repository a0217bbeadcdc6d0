"""Rows that belong together by a column: counted by Spark, which brings them together."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import ColumnError
from bagwise.rows.columns import as_float, is_numeric, is_text, without_dictionary
from bagwise.rows.parts import FileParts, Reader, Split
from bagwise.rows.spark.places import Places
from bagwise.rows.spark.tasks import cluster_of, run_job

MOST_OF_ONE = 2**31
"""Rows of a unit whose square is a number of Spark's."""

ROWS_OF_ONE = 2**17
"""Rows of a unit that the driver may hold with their features."""


def largest_unit(table: FileParts, column: str) -> int:
    """Return the rows of the unit with the most; refuse rows that belong to none."""
    from pyspark.sql import functions

    kind = without_dictionary(table.schema.empty_table().column(column)).type
    known = is_numeric(kind) or is_text(kind) or pa.types.is_temporal(kind)
    if not (known or pa.types.is_boolean(kind)):
        raise ColumnError(
            f"unit {column!r} of type {kind} cannot be told apart on Spark. Convert it to text or "
            "to whole numbers."
        )
    counts = _counted(table, column)
    missing = functions.max(functions.col("unit").isNull())
    found = run_job(counts.agg(functions.max("rows"), missing).toArrow)
    largest, some_missing = (one.to_pylist()[0] for one in found.columns)
    if some_missing:
        raise ColumnError(f"unit {column!r} is missing in some rows: whose labels are they?")
    if largest >= MOST_OF_ONE:
        raise ColumnError(f"a unit of {column!r} has {largest} rows: nothing can be told of it.")
    return int(largest)


def reach_of_units(table: FileParts, places: Places, column: str) -> tuple[int, int]:
    """Return the most that a unit has of squared rows in a bag, added up, and of bags.

    Rows that are left out of bags are not counted.
    """
    from pyspark.sql import functions

    rows = _units(table, column, places).where("bag >= 0")
    in_bags = rows.groupBy("unit", "bag").agg(functions.count("*").alias("rows"))
    by_unit = in_bags.groupBy("unit").agg(
        functions.sum(functions.col("rows") * functions.col("rows")).alias("square"),
        functions.count("*").alias("touched"),
    )
    found = run_job(by_unit.agg(functions.max("square"), functions.max("touched")).toArrow)
    square, touched = (one.to_pylist()[0] for one in found.columns)
    return int(square), int(touched)


def sample_units(
    table: FileParts, names: Sequence[str], column: str, count: int, *, largest: int
) -> pa.Table:
    """Return all rows of some units, the largest among them: about `count` rows, or all.

    Hashes of what units are called decide which.
    """
    from pyspark.sql import functions

    if largest > ROWS_OF_ONE:
        raise ColumnError(
            f"a unit of {column!r} has {largest} rows, too many for a plan. Name a strategy and a "
            "bag size."
        )
    counts = _counted(table, column).withColumn("hash", functions.xxhash64("unit"))
    first = run_job(counts.orderBy("hash", "unit").limit(count).toArrow)
    most = run_job(counts.orderBy(functions.desc("rows"), "hash", "unit").limit(1).toArrow)
    before = np.cumsum(first["rows"].to_numpy()) - first["rows"].to_numpy()
    chosen = pa.concat_tables([most, first.filter(pa.array(before < count))])["unit"]
    wanted = pc.unique(chosen.cast(pa.string()))
    take = partial(_take, reader=table.reader, names=tuple(names), column=column, wanted=wanted)
    return pa.concat_tables(table.workers.each(table.splits, take))


def _counted(table: FileParts, column: str) -> Any:
    from pyspark.sql import functions

    return _units(table, column).groupBy("unit").agg(functions.count("*").alias("rows"))


def _units(table: FileParts, column: str, places: Places | None = None) -> Any:
    """Return a DataFrame with the unit, and the bag, of each row."""
    produce = partial(_named, reader=table.reader, column=column, places=places)
    schema = "unit string" if places is None else "unit string, bag long"
    return cluster_of(table.workers).columns(table.splits, produce, schema)


def _named(
    split: Split, secret: bytes, *, reader: Reader, column: str, places: Places | None
) -> Iterable[pa.Table]:
    units = _spelled(reader.read(split, [column], secret).column(0))
    bags = {} if places is None else {"bag": places.read(split)[1]}
    yield pa.table({"unit": units, **bags})


def _spelled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return what units are called: the same for the same value, in whichever split it is."""
    column = without_dictionary(column)
    if pa.types.is_floating(column.type):
        # There is one zero. NaN is a name like any other, and a missing value is none.
        whole = pa.array(as_float(column) + 0.0)
        column = pc.if_else(pc.is_valid(column), whole, pa.scalar(None, pa.float64()))
    return pc.cast(column, pa.string())


def _take(
    split: Split,
    secret: bytes,
    *,
    reader: Reader,
    names: Sequence[str],
    column: str,
    wanted: pa.Array,
) -> pa.Table:
    columns = [*names, column]
    read = reader.read(split, columns, secret)
    kept = pc.is_in(_spelled(read.column(column)), value_set=wanted)
    taken = read.filter(kept)
    return pa.table({name: without_dictionary(taken.column(name)) for name in columns})
