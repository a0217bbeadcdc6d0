"""Columns of an Arrow table: finding and choosing them, and reading one as numbers or as text."""

import difflib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray
from bagwise.errors import ColumnError, shielded


def find_column(table: pa.Table, name: str, *, role: str) -> pa.ChunkedArray:
    """Return one column, or say which name was probably meant."""
    if name not in table.column_names:
        raise ColumnError(
            f"{role} {name!r} is not a column of the table."
            f"{_did_you_mean(name, table.column_names)}"
        )
    return table.column(name)


# Letters of other alphabets that look like Latin ones, from Unicode's list of confusables (TR 39).
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁԛԝһӏвкмнтαβγεζηικμνορτυχω",
    "aeopcyxijsdqwhlbkmhtabyeznikmvoptuxw",
)

_INVISIBLE = {"Zs", "Zl", "Zp", "Cc", "Cf"}


def reads_like(name: str, other: str) -> bool:
    """Tell whether two names look the same to a reader: case, spaces, other alphabets aside.

    >>> reads_like("Price ", "price"), reads_like("рrice", "price"), reads_like("prices", "price")
    (True, True, False)
    """
    return _skeleton(name) == _skeleton(other)


def _skeleton(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)
    # Z are spaces of all kinds, Cc and Cf characters that show nothing.
    return "".join(c for c in plain if unicodedata.category(c) not in _INVISIBLE)


def refuse_lookalikes(names: Iterable[str], *, label: str) -> None:
    """Refuse columns whose names nobody can tell from the label's."""
    for name in names:
        if reads_like(name, label):
            raise ColumnError(
                f"column {name!r} reads like the label {label!r}. If it is another column, rename "
                f"it; if it holds labels, leave it out with exclude=[{name!r}] (--exclude)."
            )


def select_features(
    table: pa.Table,
    *,
    reserved: Sequence[str],
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
) -> list[str]:
    """Return the feature columns in table order: all but `reserved`, or those asked for."""
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
        raise ColumnError("no feature column is left after label, id and excluded columns.")
    return chosen


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


def as_float(column: pa.ChunkedArray) -> FloatArray:
    """Return a numeric or boolean column as float64, with nulls as NaN."""
    if pa.types.is_boolean(column.type):
        column = pc.cast(column, pa.int8())
    floats = pc.cast(column, pa.float64(), safe=False)
    return np.array(floats.to_numpy(), dtype=np.float64)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type holds strings, in any of Arrow's layouts."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def refuse_duplicates(names: Iterable[str], where: str = "the table has columns") -> None:
    """Refuse names that occur more than once."""
    doubled = {name for name, count in Counter(names).items() if count > 1}
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
