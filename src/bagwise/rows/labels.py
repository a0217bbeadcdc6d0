"""The label column: its values or classes, and its public bounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BoundsError, LabelError, shielded
from bagwise.rows.columns import (
    as_float,
    as_text,
    find_column,
    is_numeric,
    is_text,
    without_dictionary,
)

Bounds = tuple[float, float]


_LARGEST = 1e100  # beyond, squares and products would leave the range of a double


def label_vector(table: pa.Table, label: str) -> FloatArray:
    """Return the label column as finite float64 values, or say in which row it is not."""
    column = find_column(table, label, role="label")
    kind = column.type
    if not (pa.types.is_boolean(kind) or is_numeric(kind)):
        raise LabelError(
            f"label {label!r} is of type {kind}, not a number{_first_text(column)}. "
            "Convert it to numbers (or to true/false) first. If the label is one of several "
            "classes, name them with classes=[...] (--classes), without bounds."
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
        bad = _where_bad(label, "none of the classes", pc.is_null(codes))
        alike = pa.array([name.strip().casefold() for name in classes], text.type)
        if pc.all(pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(text)), value_set=alike)).as_py():
            bad += " The classes given differ from those in the table only in case or blanks."
        raise LabelError(bad)
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def has_label(column: Any, classes: Sequence[str] | None) -> Any:
    """Tell for each row whether it has a label: one that is not null, NaN, or an empty class.

    It depends on nothing else of the labels.

    >>> has_label(pa.array([1.0, None, float("nan")]), None).to_pylist()
    [True, False, False]
    >>> has_label(pa.array(["yes", "", None]), ["no", "yes"]).to_pylist()
    [True, False, False]
    """
    column = without_dictionary(column)
    there = pc.invert(pc.is_null(column, nan_is_null=True))
    if classes is None or "" in classes or not is_text(column.type):
        return there
    return pc.and_(there, pc.fill_null(pc.not_equal(column, ""), False))  # as files of text have it


def check_classes(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the public classes of a label: at least two different names."""
    if classes is None:
        return None
    if isinstance(classes, str) or not isinstance(classes, Sequence) or None in classes:
        raise LabelError("classes must be a list of at least two different names.")
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise LabelError("classes must be a list of at least two different names.")
    return names


def check_label(kinds: pa.Schema, label: str, classes: Sequence[str] | None) -> None:
    """Refuse a label that is no column, and no number where it has no classes."""
    if classes is None:
        label_vector(kinds.empty_table(), label)
    else:
        label_codes(kinds.empty_table(), label, classes)


def codes_of(table: pa.Table, label: str, classes: Sequence[str], *, coded: bool) -> IntArray:
    """Return the number of each row's class, -1 if it is none; in a frame labels are codes."""
    if coded:
        return np.asarray(table.column(label).to_numpy(), dtype=np.int64)
    text = as_text(table.column(label), name=label)
    codes = pc.index_in(text, value_set=pa.array(classes, text.type), skip_nulls=True)
    return np.asarray(pc.fill_null(codes, -1).to_numpy(), dtype=np.int64)


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
            f"bounds ({low:g}, {high:g}) are too large for computations. Rescale the label."
        )
    if low >= high:
        raise BoundsError(
            f"bounds must satisfy lo < hi, got ({low:g}, {high:g}). Swap or widen them."
        )
    return low, high


def _first_text(column: pa.ChunkedArray) -> str:
    """Say where a column of text stops being numbers, for the one bad cell in a million."""
    if not is_text(column.type):
        return ""
    number = pc.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
    first = pc.index(number, False).as_py()
    return f"; the first text is in row {first + 1} (counting from 1)" if first >= 0 else ""


def _where_bad(label: str, what: str, bad: Any) -> str:
    rows = np.flatnonzero(np.asarray(bad))
    return (
        f"label {label!r} is {what} in {rows.size} row(s), the first being row {rows[0] + 1} "
        "(counting from 1). Drop or repair those rows. `bagwise release` leaves out those whose "
        "label is missing with --drop-missing-labels (drop_missing_labels=True)."
    )
