"""Tables in and out: files and frames become one Arrow table.

Everything that can quote a cell of the table in an error message is called through `shielded`.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.data.columns import (
    header_is_data,
    is_text,
    reads_as_number,
    refuse_doubled_columns,
)
from bagwise.errors import BagwiseError, ColumnError, TableError, shielded
from bagwise.files.atomic import new_file

FILE_KINDS = (".parquet", ".pq", ".csv", ".csv.gz", ".arrow", ".feather", ".ipc")


def read_table(source: Any, *, index_names: Iterable[str] = ()) -> pa.Table:
    """Return `source` as an Arrow table without any metadata of where it came from.

    Parameters
    ----------
    source : path, or a pandas, polars, pyarrow or other frame that narwhals understands
        Paths end in one of `FILE_KINDS`.
    index_names : iterable of str
        Columns the caller asks for by name. A pandas index is dropped unless its name is here:
        it often numbers the rows of an earlier, differently sorted table. The same holds for an
        index that pandas wrote into a file.
    """
    wanted = set(index_names)
    if isinstance(source, str | Path):
        table = _read_file(Path(source))
        _refuse_cells_as_names(table.column_names, wanted, _FIRST_LINE)
        table = table.drop_columns(sorted(_pandas_index(table) - wanted))
    else:
        table = _from_frame(source, wanted)
    refuse_doubled_columns(table)
    if any(not name.strip() for name in table.column_names):
        raise ColumnError("a column has no name. Name it, or drop it.")
    if table.num_columns == 0 or table.num_rows == 0:
        raise TableError("the table is empty: it has no rows or no columns.")
    columns = [_without_views(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)  # and so without any metadata


def read_parquet(path: Path) -> pa.Table:
    """Read one Parquet file without holding its compressed pages beside the table."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read()


def write_table(table: pa.Table, path: Path, *, force: bool = False) -> None:
    """Write a table as Parquet or CSV, by the ending of `path`, whole or not at all."""
    match path.suffix.lower():
        case ".parquet" | ".pq":
            import pyarrow.parquet as pq

            write = pq.write_table
        case ".csv":
            from pyarrow import csv

            write = csv.write_csv
        case _:
            raise TableError(f"{path} must end in .parquet or .csv.")
    with new_file(path, force=force) as draft:
        write(table, draft)


_FIRST_LINE = (
    "the first line of the file seems to be data, not the names of columns (it is not quoted here, "
    "since it may hold a label). Add a header line, such as: size,city,rent"
)
_NUMBERED = (
    "the names of the frame's columns seem to be data (they are not quoted here, since one may be "
    "a label). Name the columns; if the frame was read from a file without a header line, say so "
    "to the reader, or the first row is lost."
)


def _refuse_cells_as_names(names: list[str], wanted: set[str], message: str) -> None:
    """Refuse names that are the first row: it would be lost, and messages would quote it.

    A header that has a name the caller asked for is one, whatever else it has.
    """
    asked = any(name in names and not reads_as_number(name) for name in wanted)
    if header_is_data(names) and not asked:
        raise TableError(message)


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings in a layout that every Arrow function knows."""
    return pc.cast(column, pa.large_string()) if pa.types.is_string_view(column.type) else column


def _from_frame(frame: Any, wanted: set[str]) -> pa.Table:
    wrapped = shielded(lambda: nw.from_native(frame), lambda error: _frame_error(frame, error))
    if isinstance(wrapped, nw.LazyFrame):
        wrapped = shielded(
            lambda: wrapped.collect("pyarrow"),
            lambda error: TableError(
                f"the lazy frame could not be computed: {type(error).__name__}."
            ),
        )
    names = [str(name) for name in wrapped.columns]
    _refuse_cells_as_names(names, wanted, _NUMBERED)
    if len(set(names)) < len(names):  # such as 1 and "1"
        raise ColumnError("the frame has a column more than once. Rename or drop the copies.")
    index = nw.maybe_get_index(wrapped)
    # By get_column: narwhals takes wrapped[0] for the first row, also where 0 is a name.
    columns = {str(name): _column_to_arrow(wrapped.get_column(name)) for name in wrapped.columns}
    if index is not None and index.name is not None and index.name in wanted:
        columns.setdefault(str(index.name), _to_arrow(str(index.name), lambda: pa.array(index)))
    return pa.table(columns)


def _frame_error(frame: Any, error: Exception) -> BagwiseError:
    if isinstance(error, nw.exceptions.DuplicateError):
        return ColumnError("the frame has a column more than once. Rename or drop the copies.")
    return TableError(
        f"cannot read a {type(frame).__name__} as a table. "
        "Pass a path, or a pandas, polars or pyarrow frame."
    )


def _column_to_arrow(series: "nw.Series[Any]") -> Any:
    return _to_arrow(str(series.name), series.to_arrow)


def _to_arrow(name: str, convert: Callable[[], Any]) -> Any:
    called = "a column" if reads_as_number(name) else f"column {name!r}"
    return shielded(
        convert,
        lambda _: TableError(
            f"{called} mixes types that do not go together (for example numbers and text). "
            "Make it one type."
        ),
    )


def _read_file(path: Path) -> pa.Table:
    if path.is_dir():
        raise TableError(f"{path} is a directory; give one file ending in {', '.join(FILE_KINDS)}.")
    if not path.is_file():
        raise TableError(f"{path} does not exist. Check the path.")
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    match suffix.lower():
        case ".parquet" | ".pq":
            return shielded(lambda: read_parquet(path), lambda _: _unreadable(path, "Parquet"))
        case ".csv" | ".csv.gz":
            return _read_csv(path)
        case ".arrow" | ".feather" | ".ipc":
            return shielded(lambda: _read_arrow(path), lambda _: _unreadable(path, "Arrow"))
        case _:
            raise TableError(
                f"{path} has no known ending; expected one of {', '.join(FILE_KINDS)}."
            )


def _pandas_index(table: pa.Table) -> set[str]:
    """Names of the columns that were the index of a pandas frame, as its file metadata says."""
    notes = (table.schema.metadata or {}).get(b"pandas")
    try:
        index = json.loads(notes)["index_columns"] if notes else []
    except (ValueError, KeyError, TypeError):
        return set()
    return {name for name in index if isinstance(name, str)} & set(table.column_names)


def _read_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(source).read_all()


def _read_csv(path: Path) -> pa.Table:
    from pyarrow import csv

    def read(*, use_threads: bool) -> pa.Table:
        return csv.read_csv(path, read_options=csv.ReadOptions(use_threads=use_threads))

    def locate(_error: Exception) -> TableError:
        # Arrow counts rows only with one thread, so the place takes a second look.
        try:
            read(use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            return _csv_error(path, str(error))
        return _unreadable(path, "CSV")

    table = shielded(lambda: read(use_threads=True), locate)
    return pa.table([_empty_as_null(column) for column in table.columns], names=table.column_names)


def _empty_as_null(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Take an empty cell of text for missing. "NA" stays text: it may be Namibia."""
    if not is_text(column.type):
        return column
    return pc.if_else(pc.equal(column, ""), None, column)


def _csv_error(path: Path, message: str) -> TableError:
    """Take the place out of Arrow's message, and nothing else: the rest quotes the row."""
    if cells := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        return TableError(
            f"{path}: line {cells[1]} has {cells[3]} cells where the header has {cells[2]}. Fix it."
        )
    return _unreadable(path, "CSV")


def _unreadable(path: Path, kind: str) -> TableError:
    return TableError(
        f"{path} cannot be read as {kind}: it is damaged, cut short or another format."
    )
