"""Columns that would carry the label out under another name.

Exact copies are refused. What follows the label almost row by row, such as a rounded, rescaled or
renamed copy, is shown to the operator only: that it does tells about the labels, and an honest
predictor may be as good.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import ColumnError
from bagwise.rows.columns import as_float, as_text, is_numeric, is_text, without_dictionary
from bagwise.rows.row_order import mid_ranks
from bagwise.show.operator_notes import tell_operator

MOST_ROWS = 100_000  # rows looked at; so many tell as much as all
FEWEST_ROWS = 50  # with fewer, honest predictors order the rows as the label does by chance
SAME_ORDER = 0.999  # rank correlation; a predictor with an R² of 0.99 has 0.994
MOST_LEVELS = 100  # of columns and labels that are compared as classes
_FEWEST_OUTSIDE = 5  # rows beyond the most common level; fewer agree by chance
_LEFT_OPEN = 0.1  # share of what there is to predict that a near-perfect predictor may miss
_GLANCE = 2_000  # rows that show whether a column is worth a closer look
_AT_ONCE = 2**20  # rows that are compared together with the label


def refuse_copies_of_label(
    table: pa.Table, columns: Iterable[str], labels: FloatArray, *, label: str
) -> None:
    """Refuse columns that would carry the label out under another name."""
    for name in columns:
        if is_copy(table.column(name), labels):
            raise equals_label(name, label)


def is_copy(column: pa.ChunkedArray, labels: FloatArray) -> bool:
    """Tell whether a column, or a part of one, spells the labels."""
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


def refuse_copies_of_class(table: pa.Table, columns: Iterable[str], *, label: str) -> None:
    """Refuse columns that would carry the class of each row out under another name."""
    classes = as_text(table.column(label), name=label)
    for name in columns:
        column = table.column(name)
        if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
            continue
        try:
            text = as_text(column, name=name)
        except ColumnError:
            continue  # what cannot be read as text cannot spell the classes
        if pc.all(pc.equal(text, classes), skip_nulls=False).as_py():
            raise equals_label(name, label)


def note_likely_copies(
    table: pa.Table, columns: Iterable[str], labels: AnyArray, *, label: str, classes: bool
) -> None:
    """Tell the operator which columns follow the label, or predict it alone; never raise.

    Parameters
    ----------
    labels : (n,)
        Numbers, or numbers of classes.

    Notes
    -----
    Numbers, also as text, booleans or categories, are compared by Spearman's rank correlation,
    which no increasing function changes: at least 0.999, up or down. Rounding the label to k
    equally common values leaves ``sqrt(1 - 1/k²)`` of it, so that about 23 values and more are
    noticed. Anything with few levels is compared as classes: each level must belong to one class,
    and each class to one level. In both cases one row in a thousand, and at least one, may be an
    exception, but not more than a tenth of the rows beyond the most common level: a label that is
    nearly always 0 agrees with anything that is, and so only the rest counts, as in Goodman and
    Kruskal's lambda [1]_. Whatever predicts nine tenths of the labels of other rows by itself is
    told of, too: honest columns may, and so may one that is known only after the label.

    References
    ----------
    .. [1] L. A. Goodman and W. H. Kruskal. Measures of association for cross classifications.
       Journal of the American Statistical Association 49, 1954.
    """
    # A check that fails is no reason to refuse a release, and its message might quote a cell.
    with suppress(Exception):
        for name, what in _telling_columns(table, columns, labels, classes=classes):
            tell_operator(
                f"column {name!r} {what.format(label=repr(label))} Leave it out with "
                f"exclude=[{name!r}] (--exclude {name}) unless that is as it should be. This note "
                "depends on the labels: keep it with them."
            )


_FOLLOWS = (
    "follows the label {label} almost row by row, as a copy of it would that was rescaled, rounded "
    "or renamed: then it gives the labels away."
)
_PREDICTS = (
    "alone predicts the label {label} almost perfectly. If it is known only after the label, or "
    "was made from it, it gives the labels away."
)


def _telling_columns(
    table: pa.Table, columns: Iterable[str], labels: AnyArray, *, classes: bool
) -> Iterator[tuple[str, str]]:
    if len(labels) < FEWEST_ROWS:
        return
    few = min(len(labels), MOST_ROWS)
    rows = np.random.default_rng().choice(len(labels), size=few, replace=False)
    labels, taken = labels[rows], pa.array(rows)
    ordinals = _ordinals(labels)
    placed = labels if classes else mid_ranks(labels)  # one huge label is not all there is
    levels = ordinals if ordinals.max() < _most_levels(ordinals.size) else None
    for name in columns:
        column = without_dictionary(table.column(name)).take(taken)
        numbers, own_levels = _as_numbers(column), _levels_of(column)
        if (not classes and numbers is not None and _same_order(numbers, labels)) or (
            levels is not None and _same_levels(own_levels, levels)
        ):
            yield name, _FOLLOWS
            continue
        if own_levels is None and numbers is not None:  # in groups of equal size
            known = np.where(np.isnan(numbers), np.inf, numbers)
            n_groups = min(MOST_LEVELS, few // 20)
            edges = np.quantile(known, np.linspace(0, 1, n_groups + 1)[1:-1], method="lower")
            own_levels = np.searchsorted(np.unique(edges), known)
        if own_levels is not None and _predicts(own_levels, placed, classes=classes):
            yield name, _PREDICTS


def _predicts(levels: IntArray, labels: AnyArray, *, classes: bool) -> bool:
    """Tell whether levels predict most of the labels of the other half of the rows.

    Of ranks it is the variance, of classes the errors beyond the most common one (Goodman and
    Kruskal's lambda). Rows come in a random order.
    """
    first, other = slice(None, labels.size // 2), slice(labels.size // 2, None)
    n_levels = int(levels.max()) + 1
    if classes:
        counts = np.zeros((n_levels, int(labels.max()) + 1))
        np.add.at(counts, (levels[first], labels[first]), 1)
        missed = np.sum(counts.argmax(axis=1)[levels[other]] != labels[other])
        left = np.sum(counts.sum(axis=0).argmax() != labels[other])
        return bool(left >= _FEWEST_OUTSIDE and missed <= _LEFT_OPEN * left)
    seen = np.bincount(levels[first], minlength=n_levels)
    sums = np.bincount(levels[first], weights=labels[first], minlength=n_levels)
    means = np.where(seen > 0, sums / np.maximum(seen, 1), labels[first].mean())
    left = np.sum((labels[other] - labels[first].mean()) ** 2)
    outside = _outside(_ordinals(labels[other])) >= _FEWEST_OUTSIDE
    return bool(outside and np.sum((labels[other] - means[levels[other]]) ** 2) < _LEFT_OPEN * left)


def _same_order(values: FloatArray, labels: FloatArray) -> bool:
    """Tell whether values go up, or down, with the labels in all but a few rows."""
    known = np.isfinite(values)
    values, labels = values[known], labels[known]
    if values.size < FEWEST_ROWS:
        return False
    # Few rows cost little, and show that most columns are nothing like the label.
    glance = _rank_correlation(values[:_GLANCE], labels[:_GLANCE])
    if abs(glance) < 0.5:
        return False
    values = np.copysign(1.0, glance) * values
    allowed = _exceptions(_outside(_ordinals(values)), _outside(_ordinals(labels)), values.size)
    if allowed is None:
        return False
    if allowed:
        off = np.abs(mid_ranks(values) - mid_ranks(labels))
        kept = np.argpartition(off, values.size - allowed)[: values.size - allowed]
        values, labels = values[kept], labels[kept]
    return _rank_correlation(values, labels) >= SAME_ORDER


def _rank_correlation(one: FloatArray, other: FloatArray) -> float:
    """Return Spearman's rank correlation with ties at their mean rank; 0 if something is constant.

    >>> _rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([-1.0, -2.0, -3.0]))
    -1.0
    """
    a, b = (ranks - ranks.mean() for ranks in (mid_ranks(one), mid_ranks(other)))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def _same_levels(levels: IntArray | None, classes: IntArray) -> bool:
    """Tell whether levels and classes are one to one in all but a few rows."""
    if levels is None:
        return False
    allowed = _exceptions(_outside(levels), _outside(classes), classes.size)
    if allowed is None:
        return False
    counts = np.zeros((levels.max() + 1, classes.max() + 1), dtype=np.int64)
    np.add.at(counts, (levels, classes), 1)
    agreeing = min(counts.max(axis=0).sum(), counts.max(axis=1).sum())
    return bool(classes.size - agreeing <= allowed)


def _exceptions(outside: int, other_outside: int, n_rows: int) -> int | None:
    """Return how many rows may differ in a copy, or None where too few could tell one."""
    least = min(outside, other_outside)
    return min(max(1, n_rows // 1000), least // 10) if least >= _FEWEST_OUTSIDE else None


def _outside(levels: IntArray) -> int:
    """Return the number of rows beyond the most common level."""
    return int(levels.size - np.bincount(levels).max())


def _ordinals(values: AnyArray) -> IntArray:
    """Return the number of each value among the distinct ones."""
    return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)


def _most_levels(n_rows: int) -> int:
    """Return how many levels are few: where nearly every row has its own, all are one to one."""
    return min(MOST_LEVELS, n_rows // 5)


def _levels_of(column: pa.ChunkedArray) -> IntArray | None:
    """Return any column as numbers of levels; a missing cell is a level."""
    if pa.types.is_nested(column.type):
        return None
    coded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    if len(coded.dictionary) > _most_levels(len(column)):
        return None
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


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
