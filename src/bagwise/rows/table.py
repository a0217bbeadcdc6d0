"""Read anything with rows as an Arrow table, reorder its rows, and write tables."""

import copy
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import IntArray
from bagwise.errors import ColumnError, TableError
from bagwise.files.atomic import new_file
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.files.stored import StoredTable
from bagwise.rows.columns import refuse_doubled_columns, without_dictionary
from bagwise.rows.sources import open_source
from bagwise.rows.sources.source import NUMBERED, refuse_cells_as_names
from bagwise.rows.summary import ColumnSummary


class Rows:
    """The rows of a table in memory, in an order of their own and without a second copy.

    Methods named as in Arrow do the same as there: code that reads one column after the other
    also takes a table. `opening.SpilledRows` has the same interface for rows on disk.

    >>> import numpy as np
    >>> rows = Rows(pa.table({"x": [10, 20, 30]})).take(np.array([2, 0]))
    >>> rows.column("x").to_pylist(), rows.hand_over(["x"]).num_rows
    ([30, 10], 2)

    Attributes
    ----------
    num_rows : int
    stored : StoredTable or None
        What was handed over, where it is on disk: to be read without mapping it.
    """

    stored: StoredTable | None = None

    def __init__(self, table: pa.Table) -> None:
        # Shared with whatever is taken of these rows, so that columns handed over are freed.
        self._columns = dict(zip(table.column_names, table.columns, strict=True))
        self._order: IntArray | None = None
        self.num_rows: int = table.num_rows
        self._n_stored = self.num_rows

    @property
    def column_names(self) -> list[str]:
        """Names of all columns, the label among them."""
        return list(self._columns)

    @property
    def rows_at_once(self) -> int:
        """How many rows may be in memory with all their columns."""
        return self.num_rows

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""
        column, places = self._stored_column(name), self._places()
        return column if places is None else column.take(pa.array(places))

    def _stored_column(self, name: str) -> pa.ChunkedArray:
        """Return one column in the order of the source."""
        return self._columns[name]

    def _places(self) -> IntArray | None:
        """Return where the rows are in the source, if not as they are there."""
        return self._order

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""
        return sum(int(self._columns[name].nbytes) for name in names)

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows, one table after the other."""
        yield pa.table({name: self.column(name) for name in names})

    def take(self, order: IntArray) -> Self:
        """Return these rows, none twice, in this order, without touching them yet."""
        taken = copy.copy(self)
        taken._order = order if self._order is None else self._order[order]
        taken.num_rows = order.size
        return taken

    def block(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return some columns of the rows from `start` on, up to `stop`."""
        if self._order is not None:
            # Blocks are read many times over: each column is brought into its order once.
            self._columns = {name: self.column(name) for name in self._columns}
            self._order, self._n_stored = None, self.num_rows
        return pa.table({name: self._columns[name].slice(start, stop - start) for name in names})

    def summarise(self, names: Sequence[str]) -> dict[str, ColumnSummary]:
        """Return the facts about columns that an encoder needs; exact, so that no order shows."""
        # In any order, if all rows are there: to bring a column into its order takes long.
        read = self._stored_column if self.num_rows == self._n_stored else self.column
        return {name: ColumnSummary.of_all(name, read(name)) for name in names}

    def hand_over(self, names: Sequence[str]) -> pa.Table:
        """Return the published columns, and forget them: these rows are not used again."""
        leaving = {}
        for name in names:
            # Categories leave as plain values: a list of levels may name some that no row here has.
            leaving[name] = without_dictionary(self.column(name))
            del self._columns[name]  # also from the rows that these were taken of
        self._columns.clear()
        return pa.table(leaving)


def read_rows(source: Any, *, named: Iterable[str] = ()) -> Rows:
    """Read the rows of a file or a frame; return rows unchanged.

    >>> read_rows(pa.table({"x": [1, 2]})).num_rows
    2
    """
    return source if isinstance(source, Rows) else Rows(read_table(source, index_names=named))


def read_table(source: Any, *, index_names: Iterable[str] = ()) -> pa.Table:
    """Return `source` as an Arrow table without any metadata of where it came from.

    Parameters
    ----------
    source : path or paths, frame, stream, or Source
        Whatever `open_source` knows.
    index_names : iterable of str
        Columns the caller asks for by name. A pandas index is dropped unless its name is here:
        it often numbers the rows of an earlier, differently sorted table. The same holds for an
        index that pandas wrote into a file.
    """
    wanted = set(index_names)
    table = open_source(source).read(wanted)
    table = table.select(choose_columns(table, wanted))
    refuse_empty(table.num_rows, table.num_columns)
    # As a new table, and so without any metadata.
    return pa.table(list(map(known_layout, table.columns)), names=table.column_names)


def known_layout(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings in a layout that every Arrow function knows; other columns unchanged."""
    view = pa.types.is_string_view(column.type)
    return pc.cast(column, pa.large_string()) if view else column


def published_schema(kinds: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the types that columns will have in the Parquet files of a release."""
    empty = kinds.empty_table().select(list(names))
    plain = pa.table([without_dictionary(one) for one in empty.columns], names=list(names))
    return as_parquet_keeps_it(plain).schema


def choose_columns(table: pa.Table, wanted: Collection[str]) -> list[str]:
    """Return the columns that are used; refuse names that are cells, duplicated or missing."""
    refuse_cells_as_names(table.column_names, wanted, NUMBERED)
    refuse_doubled_columns(table)
    if any(not name.strip() for name in table.column_names):
        raise ColumnError("a column has no name. Name it, or drop it.")
    index = _pandas_index(table) - set(wanted)
    return [name for name in table.column_names if name not in index]


def refuse_empty(n_rows: int, n_columns: int) -> None:
    """Refuse a table without rows or columns."""
    if n_columns == 0 or n_rows == 0:
        raise TableError("the table is empty: it has no rows or no columns.")


def write_table(rows: pa.Table | Iterable[pa.Table], path: Path, *, force: bool = False) -> int:
    """Write a table as Parquet or CSV, by the ending of `path`, whole or not at all.

    It may come as one part or more, none of which is kept. Return the number of rows.
    """
    parts = iter([rows] if isinstance(rows, pa.Table) else rows)
    match path.suffix.lower():
        case ".parquet" | ".pq":
            import pyarrow.parquet as pq

            opened = pq.ParquetWriter
        case ".csv":
            from pyarrow import csv

            opened = csv.CSVWriter
        case _:
            raise TableError(f"{path} must end in .parquet or .csv.")
    written = 0
    with new_file(path, force=force) as draft:
        first = next(parts)
        with opened(draft, first.schema) as file:
            for part in chain([first], parts):
                file.write_table(part)
                written += part.num_rows
    return written


def _pandas_index(table: pa.Table) -> set[str]:
    """Names of the columns that were the index of a pandas frame, as its file metadata says."""
    notes = (table.schema.metadata or {}).get(b"pandas")
    try:
        index = json.loads(notes)["index_columns"] if notes else []
    except (ValueError, KeyError, TypeError):
        return set()
    return {name for name in index if isinstance(name, str)} & set(table.column_names)
