"""Public columns with a role: those that name groups or strata, and the exposure of each row."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ColumnError, shielded
from bagwise.rows.columns import as_float, find_column, is_numeric, without_dictionary


def number_groups(table: Any, names: Sequence[str], *, role: str) -> IntArray:
    """Return the number of each row's group: rows have the same one if all these columns agree.

    A missing value is a value like any other.

    >>> table = pa.table({"town": ["a", "b", "a", None], "year": [1, 1, 2, 1]})
    >>> number_groups(table, ["town"], role="by").tolist()
    [0, 1, 0, 2]
    >>> number_groups(table, ["town", "year"], role="by").tolist()
    [0, 2, 1, 3]
    """
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for name in names:
        codes = _codes(find_column(table, name, role=role), name)
        # Numbered anew after each column: products of many numbers of levels would overflow.
        pairs = numbers * (codes.max(initial=0) + 1) + codes
        numbers = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbers


def _codes(column: pa.ChunkedArray, name: str) -> IntArray:
    """Return the place of each value among all that occur: the order of the rows must not show."""
    return shielded(
        lambda: _ranks(without_dictionary(column)),
        lambda _: ColumnError(
            f"column {name!r} of type {column.type} cannot tell groups apart. Convert it to text "
            "or to whole numbers."
        ),
    )


def _ranks(column: pa.ChunkedArray) -> IntArray:
    # Not as a level of its own: lists of levels that hold a missing value cannot be unified.
    encoded = pc.dictionary_encode(column, null_encoding="mask")
    parts = pa.chunked_array(encoded).unify_dictionaries().chunks
    if not parts:
        return np.empty(0, dtype=np.int64)
    order = pc.sort_indices(parts[0].dictionary).to_numpy(zero_copy_only=False)
    rank = np.empty(order.size + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(order.size), order.size  # missing ones come last
    places = [
        pc.fill_null(part.indices, order.size).to_numpy(zero_copy_only=False) for part in parts
    ]
    return np.asarray(rank[np.concatenate(places)])


def exposure_vector(table: Any, name: str) -> FloatArray:
    """Return the exposure of each row; it is public, and has to be positive.

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


def count_unexposed(values: FloatArray) -> int:
    """Return how many exposures are missing, infinite or not positive."""
    return int((~(np.isfinite(values) & (values > 0))).sum())


def check_exposure(name: str, wrong: int) -> None:
    """Refuse rows that were not observed."""
    if wrong:
        raise ColumnError(
            f"exposure {name!r} is missing, infinite or not positive in {wrong} row(s). A row that "
            "was not observed has no label: drop it."
        )
