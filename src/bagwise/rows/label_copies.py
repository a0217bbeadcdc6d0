"""Columns that would publish the label under another name.

Exact copies are refused. What predicts the label almost perfectly by itself, as a rounded, rescaled
or renamed copy does, is shown to the operator only: that it does tells about the labels, and an
honest column may be as good.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import ColumnError
from bagwise.rows.columns import as_float, is_numeric, is_text, without_dictionary
from bagwise.rows.labels import codes_of
from bagwise.rows.row_order import mid_ranks
from bagwise.show.operator_notes import tell_operator

MOST_ROWS = 100_000  # rows looked at; so many tell as much as all
FEWEST_ROWS = 50  # with fewer, honest predictors are as good by chance
_FEWEST_OUTSIDE = 5  # rows beyond the most common label; fewer agree by chance
_LEFT_OPEN = 0.1  # share of what there is to predict that a near-perfect predictor may miss
_AT_ONCE = 2**20  # rows that are compared together with the label


def refuse_copies(
    table: Any,
    columns: Iterable[str],
    labels: AnyArray,
    *,
    label: str,
    classes: Sequence[str] | None = None,
) -> None:
    """Refuse columns that would carry the label, or the number of its class, under another name."""
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
            codes = codes_of(pa.table({"c": column}), "c", classes, coded=False)
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
    """Return what to say of a copy."""
    return ColumnError(
        f"column {name!r} equals the label {label!r} in every row: releasing it would "
        f"release the labels. Leave it out with exclude=[{name!r}] (--exclude {name})."
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
                f"exclude=[{name!r}] (--exclude {name}) unless that is as it should be. This note "
                "depends on the labels: keep it with them."
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
    """Return numbers by which equal cells stand together; NaN for those that are missing."""
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
