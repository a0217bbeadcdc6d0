"""Tables in: files and frames become one Arrow table; its label column becomes a checked vector.

Everything that can quote a cell of the table in an error message is called through `shielded`.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.atomic import new_file
from bagwise.errors import BagwiseError, BoundsError, ColumnError, LabelError, TableError, shielded

Bounds = tuple[float, float]

_LARGEST = 1e100  # beyond, squares and products would leave the range of a double

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
        table = table.drop_columns(sorted(_pandas_index(table) - wanted))
    else:
        table = _from_frame(source, wanted)
    _refuse_duplicates(table.column_names)
    if any(not name.strip() for name in table.column_names):
        raise ColumnError("a column has no name. Name it, or drop it.")
    if table.num_columns == 0 or table.num_rows == 0:
        raise TableError("the table is empty: it has no rows or no columns.")
    columns = [_without_views(column) for column in table.columns]
    return pa.table(columns, names=table.column_names)  # and so without any metadata


def read_parquet(path: Path) -> pa.Table:
    """Read one Parquet file without holding its compressed pages beside the table."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (each reader costs import time)

    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read()


def write_table(table: pa.Table, path: Path, *, force: bool = False) -> None:
    """Write a table as Parquet or CSV, by the ending of `path`, whole or not at all."""
    match path.suffix.lower():
        case ".parquet" | ".pq":
            import pyarrow.parquet as pq  # noqa: PLC0415 (each writer costs import time)

            write = pq.write_table
        case ".csv":
            from pyarrow import csv  # noqa: PLC0415 (each writer costs import time)

            write = csv.write_csv
        case _:
            raise TableError(f"{path} must end in .parquet or .csv.")
    with new_file(path, force=force) as draft:
        write(table, draft)


def find_column(table: pa.Table, name: str, *, role: str) -> pa.ChunkedArray:
    """Return one column, or say which name was probably meant."""
    if name not in table.column_names:
        raise ColumnError(
            f"{role} {name!r} is not a column of the table."
            f"{_did_you_mean(name, table.column_names)}"
        )
    return table.column(name)


def select_features(
    table: pa.Table,
    *,
    reserved: Sequence[str],
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> list[str]:
    """Return the feature columns in table order: all but `reserved`, or those asked for."""
    for argument, names in (("features", features or ()), ("exclude", exclude)):
        _refuse_duplicates(names, f"{argument} names")
        for name in names:
            find_column(table, name, role=f"{argument} column")
    if taken := set(features or ()) & set(reserved):
        raise ColumnError(f"{_quoted(taken)} cannot be a feature: it is the label, id or unit.")
    if both := set(features or ()) & set(exclude):
        raise ColumnError(f"{_quoted(both)} is both in features and in exclude. Name it once.")
    wanted = (
        set(table.column_names if features is None else features) - set(reserved) - set(exclude)
    )
    chosen = [name for name in table.column_names if name in wanted]
    if not chosen:
        raise ColumnError("no feature column is left after label, id and excluded columns.")
    return chosen


def label_vector(table: pa.Table, label: str) -> FloatArray:
    """Return the label column as finite float64 values, or say in which row it is not."""
    column = find_column(table, label, role="label")
    kind = column.type
    if not (pa.types.is_boolean(kind) or is_numeric(kind)):
        raise LabelError(
            f"label {label!r} is of type {kind}, not a number{_first_text(column)}. "
            "Convert it to numbers (or to true/false) first."
        )
    if column.null_count:
        raise LabelError(_where_bad(label, "missing", pc.is_null(column)))
    values = as_float(column)
    if not np.isfinite(values).all():
        raise LabelError(_where_bad(label, "NaN or infinite", ~np.isfinite(values)))
    return values


def label_codes(table: pa.Table, label: str, classes: Sequence[str]) -> IntArray:
    """Return the number of each row's class, or say in which row the label is none of them."""
    text = as_text(find_column(table, label, role="label"), name=label)
    if text.null_count:
        raise LabelError(_where_bad(label, "missing", pc.is_null(text)))
    codes = pc.index_in(text, value_set=pa.array(classes, text.type))
    if codes.null_count:
        raise LabelError(_where_bad(label, "none of the classes", pc.is_null(codes)))
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def check_classes(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the public classes of a label: at least two different names."""
    if classes is None:
        return None
    names = tuple(str(name) for name in classes)
    if isinstance(classes, str) or len(names) < 2 or len(set(names)) != len(names):
        raise LabelError("classes must be a list of at least two different names.")
    return names


def check_bounds(bounds: Sequence[float] | str | None) -> Bounds | None:
    """Return public label bounds as two floats lo < hi."""
    if bounds is None:
        return None
    if isinstance(bounds, str):
        raise BoundsError("bounds must be two numbers (lo, hi).")
    pair = shielded(
        lambda: tuple(float(edge) for edge in bounds),
        lambda _: BoundsError("bounds must be two numbers (lo, hi)."),
    )
    if len(pair) != 2:
        raise BoundsError(f"bounds must be two numbers (lo, hi), got {len(pair)}.")
    low, high = pair
    if not (np.isfinite(low) and np.isfinite(high) and np.isfinite(high - low)):
        raise BoundsError(f"bounds must be finite, got ({low:g}, {high:g}).")
    if max(abs(low), abs(high)) > _LARGEST or 0 < high - low < 1 / _LARGEST:
        raise BoundsError(
            f"bounds ({low:g}, {high:g}) are beyond what can be computed with. Rescale."
        )
    if low >= high:
        raise BoundsError(
            f"bounds must satisfy lo < hi, got ({low:g}, {high:g}). Swap or widen them."
        )
    return low, high


def refuse_copies_of_label(
    table: pa.Table, columns: Iterable[str], labels: FloatArray, *, label: str
) -> None:
    """Refuse columns that would carry the label out under another name."""
    for name in columns:
        values = _as_numbers(table.column(name))
        if values is not None and np.array_equal(values, labels):
            raise ColumnError(
                f"column {name!r} equals the label {label!r} in every row: releasing it would "
                f"release the labels. Leave it out with exclude=[{name!r}] (--exclude {name})."
            )


def refuse_copies_of_class(table: pa.Table, columns: Iterable[str], *, label: str) -> None:
    """Refuse columns that would carry the class of each row out under another name."""
    classes = as_text(table.column(label), name=label)
    for name in columns:
        column = table.column(name)
        if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
            continue
        if pc.all(pc.equal(as_text(column, name=name), classes), skip_nulls=False).as_py():
            raise ColumnError(
                f"column {name!r} equals the label {label!r} in every row: releasing it would "
                f"release the labels. Leave it out with exclude=[{name!r}] (--exclude {name})."
            )


def as_text(column: pa.ChunkedArray, *, name: str) -> pa.ChunkedArray:
    """Return a column of levels as strings; booleans become true and false."""
    return shielded(
        lambda: pc.cast(without_dictionary(column), pa.string()),
        lambda _: ColumnError(f"column {name!r} of type {column.type} cannot be read as classes."),
    )


def is_numeric(kind: pa.DataType) -> bool:
    """Tell whether a type holds numbers (not booleans, dates or durations)."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a categorical column as its plain values; others as they are."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pc.cast(column, column.type.value_type)


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings in a layout that every Arrow function knows."""
    return pc.cast(column, pa.large_string()) if pa.types.is_string_view(column.type) else column


def as_float(column: pa.ChunkedArray) -> FloatArray:
    """Return a numeric or boolean column as float64, with nulls as NaN."""
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    floats = pc.cast(column, pa.float64(), safe=False)
    return np.array(floats.to_numpy(), dtype=np.float64)


def _as_numbers(column: pa.ChunkedArray) -> FloatArray | None:
    """Return the column as floats if that is what it spells, also as text or categories."""
    column = without_dictionary(column)
    if pa.types.is_boolean(column.type) or is_numeric(column.type):
        return as_float(column)
    if not is_text(column.type):
        return None
    try:
        return as_float(pc.cast(column, pa.float64()))
    except pa.ArrowInvalid:
        return None


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds strings, in any of Arrow's layouts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _from_frame(frame: Any, wanted: set[str]) -> pa.Table:
    wrapped = shielded(lambda: nw.from_native(frame), lambda error: _frame_error(frame, error))
    if isinstance(wrapped, nw.LazyFrame):
        wrapped = shielded(
            lambda: wrapped.collect("pyarrow"),
            lambda error: TableError(
                f"the lazy frame could not be computed: {type(error).__name__}."
            ),
        )
    _refuse_duplicates([str(name) for name in wrapped.columns])
    index = nw.maybe_get_index(wrapped)
    columns = {str(name): _column_to_arrow(wrapped[name]) for name in wrapped.columns}
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
    return shielded(
        convert,
        lambda _: TableError(
            f"column {name!r} mixes types that do not go together (for example numbers and text). "
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
    from pyarrow import csv  # noqa: PLC0415 (each reader costs import time)

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


def _first_text(column: pa.ChunkedArray) -> str:
    """Say where a column of text stops being numbers, for the one bad cell in a million."""
    if not is_text(column.type):
        return ""
    number = pc.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
    first = pc.index(number, False).as_py()
    return f"; the first text is in row {first + 1} (counting from 1)" if first >= 0 else ""


def _refuse_duplicates(names: Iterable[str], where: str = "the table has columns") -> None:
    seen: set[str] = set()
    doubled = {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    if doubled:
        raise ColumnError(f"{where} {_quoted(doubled)} more than once. Rename or drop the copies.")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    shown = ", ".join(repr(column) for column in known[:10])
    return f" Columns are {shown}{', …' if len(known) > 10 else ''}."


def _where_bad(label: str, what: str, bad: Any) -> str:
    rows = np.flatnonzero(np.asarray(bad))
    return (
        f"label {label!r} is {what} in {rows.size} row(s), the first being row {rows[0] + 1} "
        "(counting from 1). Drop or repair those rows."
    )
