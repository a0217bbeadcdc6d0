"""The order in which rows are processed, which is never that of the source.

A table is often exported in the order of its labels. Whatever is computed from rows can depend on
their order: a sum of doubles in its last bits, a search in the solution it finds, a strategy of a
user's own in anything. So rows are brought into another order before anything is computed from
them, and nothing downstream has to be proved harmless one by one.

Two orders are safe. A secret permutation is independent of everything. An order that the features
alone decide, with ties broken in secret, tells nothing beyond the features, which are public; it
is for requests that must repeat, such as those with a seed.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import ColumnError
from bagwise.rng import NoiseSource
from bagwise.rows.columns import as_float, as_text, is_numeric, without_dictionary

_AT_ONCE = 2**20  # rows that are looked at together, where there may be very many


def secret_order(n_rows: int, source: NoiseSource) -> IntArray:
    """Return a uniformly random order of the rows."""
    return source.permutation(n_rows)


def feature_order(table: pa.Table, names: Sequence[str], source: NoiseSource) -> IntArray:
    """Return the order of the rows by their features; rows equal in all are in secret order.

    >>> from bagwise.rng import SecureNoise
    >>> table = pa.table({"x": [3, 1, 2], "y": [0, 0, 0]})
    >>> feature_order(table, ["x"], SecureNoise()).tolist()
    [1, 2, 0]
    """
    order = secret_order(table.num_rows, source)
    group = np.zeros(order.size, dtype=np.int64)  # rows that are equal in all columns so far
    for name in names:
        ranks = _ranks(table.column(name), name)[order]
        place = np.lexsort((ranks, group))  # stable, so that ties stay in the secret order
        order, ranks, group = order[place], ranks[place], group[place]
        differs = (np.diff(ranks) != 0) | (np.diff(group) != 0)
        group = np.concatenate([[0], np.cumsum(differs)])
        if differs.all():
            break  # one column is mostly enough, and then the others are not looked at
    return order


def inverse_order(order: IntArray) -> IntArray:
    """Return the order that undoes `order`.

    >>> inverse_order(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    inverse = np.empty_like(order)
    for first in range(0, order.size, _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        inverse[some] = np.arange(first, first + some.size)
    return inverse


def mid_ranks(values: AnyArray) -> FloatArray:
    """Return the rank of each value from 1 on; equal values share the mean of their ranks.

    As scipy's ``rankdata`` does, whose module takes half a second to import.

    >>> mid_ranks(np.array([30.0, 10.0, 30.0, 20.0]))
    array([3.5, 1. , 3.5, 2. ])
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def _ranks(column: pa.ChunkedArray, name: str) -> IntArray:
    """Return the number of each value among the distinct ones: of doubles, or else of text."""
    column = without_dictionary(column)
    if is_numeric(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(np.unique(as_float(column), return_inverse=True)[1], dtype=np.int64)
    try:
        text = as_text(column, name=name)
    except ColumnError:
        # Nobody can sort a list or a picture; the encoder will say so in its own words.
        return np.zeros(len(column), dtype=np.int64)
    return np.asarray(pc.rank(text, tiebreaker="dense"), dtype=np.int64)
