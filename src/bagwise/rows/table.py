"""Tables in and out: whatever holds rows becomes one Arrow table."""

import json
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import ColumnError, TableError
from bagwise.files.atomic import new_file
from bagwise.rows.columns import refuse_doubled_columns
from bagwise.rows.sources import open_source
from bagwise.rows.sources.source import NUMBERED, refuse_cells_as_names


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
    columns = [  # strings in a layout that every Arrow function knows
        pc.cast(column, pa.large_string()) if pa.types.is_string_view(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)  # and so without any metadata


def choose_columns(table: pa.Table, wanted: Collection[str]) -> list[str]:
    """Return the columns that count; refuse names that are cells, doubled or missing."""
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

    It may come in parts, of which there is one at least; none is kept. Return the number of rows.
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
