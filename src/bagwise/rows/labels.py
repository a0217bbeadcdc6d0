"""The label column: its values or classes, its public bounds, and columns that would leak it.

Exact copies are refused. A column that predicts the label almost perfectly by itself, as a rounded,
rescaled or renamed copy does, is only shown to the operator: this fact reveals something about the
labels, and an honest column may predict as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BoundsError, ColumnError, LabelError, shielded
from bagwise.rows.columns import (
    as_float,
    as_text,
    find_column,
    is_numeric,
    is_text,
    without_dictionary,
)
from bagwise.rows.row_order import mid_ranks
from bagwise.show.operator_notes import tell_operator

Bounds = tuple[float, float]

_LARGEST = 1e100  # beyond, squares and products would leave the range of a double

MOST_ROWS = 100_000  # rows looked at; so many tell as much as all
FEWEST_ROWS = 50  # with fewer, honest predictors are as good by chance
_FEWEST_OUTSIDE = 5  # rows beyond the most common label; fewer agree by chance
_LEFT_OPEN = 0.1  # share of what there is to predict that a near-perfect predictor may miss
_LEAVE_OUT = " A release can leave them out: --drop-missing-labels (drop_missing_labels=True)."
_AT_ONCE = 2**20  # rows that are compared together with the label


def label_vector(table: pa.Table, label: str) -> FloatArray:
    """Return the label column as finite float64 values, or report a row without one."""
    column = find_column(table, label, role="label")
    kind = column.type
    if not (pa.types.is_boolean(kind) or is_numeric(kind)):
        raise LabelError(
            f"label {label!r} is of type {kind}, not a number{_first_text(column)}. "
            "Convert it to numbers (or to true/false) first. If the label is one of several "
            "classes, name them with classes=[...] (--classes), without bounds."
        )
    if column.null_count:
        raise LabelError(_where_bad(label, "missing", pc.is_null(column)) + _LEAVE_OUT)
    values = as_float(column)
    if not np.isfinite(values).all():
        raise LabelError(_where_bad(label, "NaN or infinite", ~np.isfinite(values)) + _LEAVE_OUT)
    return values


def label_codes(table: pa.Table, label: str, classes: Sequence[str]) -> IntArray:
    """Return the number of each row's class, or report a row whose label is not among them."""
    text = as_text(find_column(table, label, role="label"), name=label)
    if text.null_count:
        raise LabelError(_where_bad(label, "missing", pc.is_null(text)) + _LEAVE_OUT)
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
    listed = isinstance(classes, Sequence) and not isinstance(classes, str)
    names = tuple(map(str, classes)) if listed and None not in classes else ()
    if len(names) < 2 or len(set(names)) != len(names):
        raise LabelError("classes must be a list of at least two different names.")
    return names


def check_label(kinds: pa.Schema, label: str, classes: Sequence[str] | None) -> None:
    """Refuse a label that is not a column, or is not numeric although it has no classes."""
    if classes is None:
        label_vector(kinds.empty_table(), label)
    else:
        label_codes(kinds.empty_table(), label, classes)


def label_numbers(
    table: pa.Table, label: str, classes: Sequence[str] | None, *, coded: bool = False
) -> FloatArray:
    """Return labels, or the numbers of their classes, as doubles; NaN if there is none.

    Where labels were written under a mask, they are coded: numbers of classes.
    """
    column = table.column(label)
    if classes is None or coded:
        return as_float(column)
    text = as_text(column, name=label)
    codes = pc.index_in(text, value_set=pa.array(classes, text.type), skip_nulls=True)
    return as_float(codes if isinstance(codes, pa.ChunkedArray) else pa.chunked_array([codes]))


def check_bounds(bounds: Sequence[float] | str | None) -> Bounds | None:
    """Return public label bounds as two floats lo < hi."""
    if bounds is None:
        return None
    wrong = BoundsError("bounds must be two numbers (lo, hi).")
    if isinstance(bounds, str):
        raise wrong
    pair = shielded(lambda: tuple(float(edge) for edge in bounds), wrong)
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
    """Report where a column of text stops being numbers, for the one bad cell in a million."""
    if not is_text(column.type):
        return ""
    number = pc.match_substring_regex(column, r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$")
    first = pc.index(number, False).as_py()
    return f"; the first text is in row {first + 1} (counting from 1)" if first >= 0 else ""


def _where_bad(label: str, what: str, bad: Any) -> str:
    rows = np.flatnonzero(np.asarray(bad))
    return (
        f"label {label!r} is {what} in {rows.size} row(s), the first being row {rows[0] + 1} "
        "(counting from 1). Drop or repair those rows."
    )


# -- copies ----------------------------------------------------------------------------------------


def refuse_copies(
    table: Any,
    columns: Iterable[str],
    labels: AnyArray,
    *,
    label: str,
    classes: Sequence[str] | None = None,
) -> None:
    """Refuse columns that would publish the label, or its class number, under another name."""
    for name in columns:
        if spells(table.column(name), labels, classes):
            raise equals_label(name, label)


def spells(column: pa.ChunkedArray, labels: AnyArray, classes: Sequence[str] | None = None) -> bool:
    """Tell whether a column, or a part of one, spells the labels, or the classes of these numbers.

    >>> spells(pa.chunked_array([["b", "a"]]), np.array([1, 0]), ["a", "b"])
    True
    """
    if classes is not None:
        if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
            return False
        try:
            codes = label_numbers(pa.table({"c": column}), "c", classes)
        except ColumnError:
            return False  # what cannot be read as text cannot spell the classes
        return np.array_equal(codes, labels)
    for first in range(0, labels.size, _AT_ONCE):  # most columns differ at once
        some = slice(first, first + _AT_ONCE)
        values = _as_numbers(column.slice(first, _AT_ONCE))
        if values is None or not np.array_equal(values, labels[some]):
            return False
    return len(column) == labels.size


def equals_label(name: str, label: str) -> ColumnError:
    """Return the message about a copy of the label."""
    return ColumnError(
        f"column {name!r} equals the label {label!r} in every row that has a label: releasing it "
        f"would release the labels. Leave it out with exclude=[{name!r}] (--exclude {quote(name)})."
    )


def note_likely_copies(
    table: pa.Table, columns: Iterable[str], labels: AnyArray, *, label: str, classes: bool
) -> None:
    """Tell the operator which columns predict the label almost perfectly alone; never raise.

    Parameters
    ----------
    labels : (n,)
        Numbers, or numbers of classes.

    Notes
    -----
    Rows are put into the order of a column, and each is predicted by its two neighbours: of
    numbers, the mean of their ranks, which no increasing function changes; of classes, the class of
    the one before. Whatever copies the label, be it rescaled, rounded or renamed, leaves next to
    nothing of its variance, or of the rows beyond the most common class, as in Goodman and
    Kruskal's lambda [1]_. A tenth is the limit; an honest column that misses a fifteenth of the
    variance is at it. Of numbers, one row in a thousand, and at least one, may be an exception.

    References
    ----------
    .. [1] L. A. Goodman and W. H. Kruskal. Measures of association for cross classifications.
       Journal of the American Statistical Association 49, 1954.
    """
    # A check that fails is no reason to refuse a release, and its message might quote a cell.
    with suppress(Exception):
        for name in _telling_columns(table, columns, labels, classes=classes):
            tell_operator(
                f"column {name!r} alone predicts the label {label!r} almost perfectly, as a copy "
                "of it would that was rescaled, rounded or renamed. If it was made from the label, "
                "or is known only after it, it gives the labels away. Leave it out with "
                f"exclude=[{name!r}] (--exclude {quote(name)}) unless that is as it should be. "
                "This note depends on the labels: keep it with them."
            )


def _telling_columns(
    table: pa.Table, columns: Iterable[str], labels: AnyArray, *, classes: bool
) -> Iterator[str]:
    few = min(len(labels), MOST_ROWS)
    rows = np.random.default_rng().choice(len(labels), size=few, replace=False)
    labels, taken = labels[rows], pa.array(rows)
    for name in columns:
        values = _in_an_order(without_dictionary(table.column(name)).take(taken))
        known = np.isfinite(values)
        if known.sum() >= FEWEST_ROWS and _predicts(values[known], labels[known], classes=classes):
            yield name


def _in_an_order(column: pa.ChunkedArray) -> FloatArray:
    """Return numbers that are equal for equal cells and can be sorted; NaN for missing cells."""
    if pa.types.is_nested(column.type):
        return np.full(len(column), np.nan)
    if (numbers := _as_numbers(column)) is not None:
        return numbers
    coded = pc.dictionary_encode(column, null_encoding="mask").combine_chunks()
    return as_float(pa.chunked_array([coded.indices]))


def _predicts(values: FloatArray, labels: AnyArray, *, classes: bool) -> bool:
    """Tell whether rows with neighbouring values tell nearly all about each other's labels.

    Rows come in a random order, so that those with equal values are in one.
    """
    in_order = labels[np.argsort(values, kind="stable")]
    outside = labels.size - np.unique(labels, return_counts=True)[1].max()
    if outside < _FEWEST_OUTSIDE:
        return False
    if classes:
        return bool(np.sum(in_order[1:] != in_order[:-1]) <= _LEFT_OPEN * outside)
    ranks = mid_ranks(in_order)
    errors = np.sort((ranks[1:-1] - (ranks[:-2] + ranks[2:]) / 2) ** 2)
    # A row that is an exception also spoils what is predicted of its neighbours.
    allowed = 3 * min(max(1, labels.size // 1000), outside // 10)
    left = errors[: errors.size - allowed].sum()
    return bool(left < _LEFT_OPEN * labels.size * np.var(ranks))


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
