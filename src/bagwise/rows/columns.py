"""Columns of an Arrow table: find and choose them, and read them as numbers or groups."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ColumnError, Shield, did_you_mean, shielded


def find_column(table: pa.Table, name: str, *, role: str) -> pa.ChunkedArray:
    """Return one column, or raise an error that suggests the right name."""
    if name not in table.column_names:
        raise ColumnError(f"{role} {name!r} is not a column of the table.{_hint(name, table)}")
    return table.column(name)


# Letters of other alphabets that look like Latin ones, from Unicode's list of confusables (TR 39).
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁԛԝһӏвкмнтαβγεζηικμνορτυχω",
    "aeopcyxijsdqwhlbkmhtabyeznikmvoptuxw",
)

_INVISIBLE = {"Zs", "Zl", "Zp", "Cc", "Cf"}


def reads_like(name: str, other: str) -> bool:
    """Return whether two names look the same, apart from case, spaces and other alphabets.

    >>> reads_like("Price ", "price"), reads_like("рrice", "price"), reads_like("prices", "price")
    (True, True, False)
    """
    return _skeleton(name) == _skeleton(other)


def _skeleton(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)
    # Z are spaces of all kinds, Cc and Cf are invisible characters.
    return "".join(c for c in plain if unicodedata.category(c) not in _INVISIBLE)


def refuse_lookalikes(names: Iterable[str], *, label: str) -> None:
    """Reject columns with nearly the same name as the label."""
    for name in names:
        if reads_like(name, label):
            raise ColumnError(
                f"column {name!r} has nearly the same name as the label {label!r}. If it contains "
                f"labels, drop it with exclude=[{name!r}] (--exclude); if not, rename it."
            )


def select_features(
    table: pa.Table,
    *,
    reserved: Sequence[str],
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> list[str]:
    """Return the feature columns in table order: all but `reserved`, or the named ones."""
    for argument, names in (("features", features or ()), ("exclude", exclude)):
        refuse_duplicates(names, f"{argument} names")
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
        raise ColumnError("there are no feature columns besides label, id and excluded columns.")
    return chosen


def as_text(column: pa.ChunkedArray, *, name: str) -> pa.ChunkedArray:
    """Return a column of categories as strings; booleans become true and false."""
    return shielded(
        lambda: pc.cast(without_dictionary(column), pa.string()),
        ColumnError(f"column {name!r} of type {column.type} cannot be read as classes."),
    )


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type is numeric (booleans, dates and durations are not)."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a categorical column as plain values, and other columns unchanged."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pc.cast(column, column.type.value_type)


def as_float(column: pa.ChunkedArray) -> FloatArray:
    """Return a numeric or boolean column as float64, with nulls as NaN."""
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    floats: FloatArray = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return floats if floats.flags.writeable else floats.copy()  # Arrow's buffers are read-only


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's string types."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def refuse_duplicates(names: Iterable[str], where: str) -> None:
    """Reject names that were given more than once."""
    if doubled := _doubled(names):
        raise ColumnError(f"{where} {_quoted(doubled)} more than once. Rename or drop the copies.")


def refuse_doubled_columns(table: pa.Table) -> None:
    """Reject a table with two columns of the same name."""
    doubled = _doubled(table.column_names)
    if doubled and names_may_be_cells(table.column_names, table.columns):
        raise ColumnError(f"the table has columns of the same name. {_ADD_HEADER}")
    if doubled:
        raise ColumnError(
            f"the table has columns {_quoted(doubled)} more than once. Rename or drop the copies."
        )


def reads_as_number(name: str) -> bool:
    """Return whether a column name could be a cell with a number, in any usual format.

    >>> [reads_as_number(name) for name in ("3.1", " -3,5", "1e5", "nan", "$ 1,200.50", "5.1.1")]
    [True, True, True, True, True, True]
    >>> [reads_as_number(name) for name in ("x1", "1st", "size", "2019-01-05")]
    [False, False, False, False]
    """
    return _number_in(name) is not None


def header_is_data(names: Sequence[str]) -> bool:
    """Return whether column names look like a row of data, as in a file without a header line.

    Numbers that increase or decrease from column to column are names, for example of years or
    wavelengths. So are whole numbers if there are more words than numbers.

    >>> header_is_data(["3.1", "918273645"]), header_is_data(["12.5", "red", "blue"])
    (True, True)
    >>> header_is_data(["city", "2019", "2020", "2021"]), header_is_data(["0", "1"])
    (False, False)
    """
    found = [number for name in names if (number := _number_in(name)) is not None]
    numbers = [number for number in found if np.isfinite(number)]  # "inf" alone may be a word
    if not numbers or _is_a_scale(numbers):
        return False
    return 2 * len(numbers) >= len(names) or not all(number.is_integer() for number in numbers)


def names_may_be_cells(names: Sequence[str], columns: Iterable[pa.ChunkedArray]) -> bool:
    """Return whether the names of a table could be its first row, so no message may list them.

    One name that begins like a number is enough, or a column that contains its own name.
    """
    return any(
        reads_as_number(name)
        or name.lstrip(_AROUND + "+-.,(#")[:1].isdigit()
        or _holds(column, name)
        for name, column in zip(names, columns, strict=True)
    )


_AROUND = " \t\"'$€£¥%"  # characters around the number of a cell
_SUFFIX = re.compile(r"(_duplicated_\d+|\.\d+)$")  # what polars and pandas add to duplicate names
_ADD_HEADER = (
    "Their names are not shown, since they may be cells: they look like a row of data. If the file "
    "has no header line, add one; otherwise rename or drop columns."
)


def _number_in(name: str) -> float | None:
    text = name.strip(_AROUND)
    german = text.replace(".", "").replace(",", ".")
    for spelling in (text, text.replace(",", ""), german, _SUFFIX.sub("", text)):
        try:
            return float(spelling)
        except ValueError:
            continue
    return None


def _is_a_scale(numbers: Sequence[float]) -> bool:
    """Return whether numbers are in an order that is unlikely for a row of data."""
    if numbers == list(range(len(numbers))):  # how frames number columns without names
        return True
    steps = np.diff(numbers)
    if not (np.all(steps > 0) or np.all(steps < 0)):
        return False
    # Five numbers are in order once in sixty times; fewer have to be evenly spaced as well.
    evenly = steps.size >= 2 and np.ptp(steps) <= 1e-9 * abs(steps[0])
    return bool(steps.size >= 4 or evenly)


def _holds(column: pa.ChunkedArray, name: str) -> bool:
    plain = without_dictionary(column)
    return is_text(plain.type) and pc.index(plain, pa.scalar(name, plain.type)).as_py() >= 0


def _doubled(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


def _hint(name: str, table: pa.Table) -> str:
    """Return a sentence with the name that was probably meant, or with all names."""
    known = table.column_names
    if names_may_be_cells(known, map(table.column, known)):
        return (
            " The names of its columns are not listed here, since they may be cells: some look "
            "like data. If the table has no header line, add one; otherwise check the name."
        )
    if hint := did_you_mean(name, known):
        return hint
    shown = ", ".join(repr(column) for column in known[:10])
    return f" Columns are {shown}{', …' if len(known) > 10 else ''}."


def number_groups(table: Any, names: Sequence[str], *, role: str) -> IntArray:
    """Return the group number of each row: rows share a group if they agree in all these columns.

    Missing values count as one value.

    >>> table = pa.table({"town": ["a", "b", "a", None], "year": [1, 1, 2, 1]})
    >>> number_groups(table, ["town"], role="by").tolist()
    [0, 1, 0, 2]
    >>> number_groups(table, ["town", "year"], role="by").tolist()
    [0, 2, 1, 3]
    """
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for name in names:
        column = without_dictionary(find_column(table, name, role=role))
        refusal = ColumnError(
            f"column {name!r} of type {column.type} cannot define groups. Convert it to text or to "
            "whole numbers."
        )
        with Shield(refusal):
            # The rank of each value: codes must not depend on the order of the rows.
            codes = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.int64) - 1
        # Renumber after each column: products of many numbers of categories would overflow.
        pairs = numbers * (codes.max(initial=0) + 1) + codes
        numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def exposure_vector(table: Any, name: str) -> FloatArray:
    """Return the exposure of each row, which is public and must be positive.

    >>> import pyarrow as pa
    >>> exposure_vector(pa.table({"years": [1.0, 0.25]}), "years").tolist()
    [1.0, 0.25]
    """
    column = find_column(table, name, role="exposure")
    if not is_numeric(column.type):
        raise ColumnError(f"exposure {name!r} is of type {column.type}, not a number.")
    values = as_float(column)
    check_exposure(name, count_unexposed(values))
    return values


def repeated(name: str) -> ColumnError:
    """Return the message about a key column with missing or repeated values."""
    return ColumnError(f"id {name!r} is missing or repeated in some rows, which a key must not be.")


def count_unexposed(values: FloatArray) -> int:
    """Return how many exposures are missing, infinite or not positive."""
    return int((~(np.isfinite(values) & (values > 0))).sum())


def check_exposure(name: str, wrong: int) -> None:
    """Reject rows without a positive exposure."""
    if wrong:
        raise ColumnError(
            f"exposure {name!r} is missing, infinite or not positive in {wrong} row(s). A row that "
            "was not observed has no label: drop it."
        )
