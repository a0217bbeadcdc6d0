"""Strata of rows on many machines: named by columns, counted by Spark, numbered by the driver."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import IntArray
from bagwise.errors import ColumnError
from bagwise.rows.columns import as_text
from bagwise.rows.groups import number_groups
from bagwise.rows.parts import FileParts, Reader, Split
from bagwise.rows.spark.tasks import cluster_of, run_job

MOST_STRATA = 2**16
"""Strata whose names every task has to know."""


@dataclass(frozen=True)
class Strata:
    """Strata, in an order of their names.

    Attributes
    ----------
    names : tuple of str
        Columns; rows that agree in all of them are of one stratum.
    keys : pyarrow.Array
        What each stratum is called.
    rows : (strata,) integers
    """

    names: tuple[str, ...]
    keys: pa.Array
    rows: IntArray

    def number(self, table: pa.Table) -> IntArray:
        """Return the stratum of each row of a table."""
        numbers = pc.index_in(_keys(table, self.names), value_set=self.keys)
        if numbers.null_count:
            raise AssertionError("every row is of a stratum that was counted")
        return np.asarray(numbers.to_numpy(), dtype=np.int64)


def count_strata(table: FileParts, names: Sequence[str]) -> Strata:
    """Have Spark count the rows of each stratum."""
    from pyspark.sql import functions

    number_groups(table.schema.empty_table(), names, role="within")  # refuses what has no levels
    produce = partial(_named, reader=table.reader, names=tuple(names))
    rows = cluster_of(table.workers).columns(table.splits, produce, "stratum string")
    counts = rows.groupBy("stratum").agg(functions.count("*").alias("rows"))
    found = run_job(counts.limit(MOST_STRATA + 1).toArrow).sort_by("stratum")
    if found.num_rows > MOST_STRATA:
        raise ColumnError(
            f"columns {', '.join(map(repr, names))} have more than {MOST_STRATA} strata. Join some "
            "that are alike."
        )
    keys = found["stratum"].cast(pa.string()).combine_chunks()
    return Strata(tuple(names), keys, np.asarray(found["rows"].to_numpy(), dtype=np.int64))


def _named(
    split: Split, secret: bytes, *, reader: Reader, names: Sequence[str]
) -> Iterable[pa.Table]:
    yield pa.table({"stratum": _keys(reader.read(split, names, secret), names)})


def _keys(table: pa.Table, names: Sequence[str]) -> Any:
    """Return what the stratum of each row is called: its cells, each after its length.

    A missing value is a value like any other.
    """
    parts = []
    for name in names:
        text = as_text(table.column(name), name=name)
        length = pc.cast(pc.binary_length(text), pa.string())
        parts.append(pc.fill_null(pc.binary_join_element_wise(length, text, ":"), "-"))
    return pc.binary_join_element_wise(*parts, "")
