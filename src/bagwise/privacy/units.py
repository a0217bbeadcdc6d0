"""Units with several rows, and how far their labels can move an answer."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import ColumnError
from bagwise.rows.columns import without_dictionary


@dataclass(frozen=True)
class Units:
    """Which unit each row belongs to; without a column every row is a unit of its own."""

    index: IntArray | None = None  # (n,): number of the unit of each row

    @property
    def largest(self) -> int:
        """Rows of the unit with the most."""
        return 1 if self.index is None else int(np.bincount(self.index).max())

    def reach(self, bags: Bags) -> tuple[int, int]:
        """Return the largest sum of a unit's squared rows per bag, and its largest number of bags.

        The root of the first, times the width of the bounds, is the exact L2 sensitivity of all bag
        sums. Rows that are left out of bags count as if they were in one of their own: a
        certificate names the rows of a unit, and its noise must allow for so many.
        """
        if self.index is None:
            return 1, 1
        rows = np.flatnonzero(bags.in_bag)
        pairs = self.index[rows].astype(np.int64) * bags.n_bags + bags.index[rows]
        cells, counts = np.unique(pairs, return_counts=True)
        squares = np.bincount(cells // bags.n_bags, weights=counts.astype(np.float64) ** 2)
        touched = np.bincount(cells // bags.n_bags)
        return max(int(squares.max()), self.largest), int(touched.max())

    def take(self, rows: IntArray) -> "Units":
        """Reorder rows."""
        return self if self.index is None else Units(self.index[rows])


def units_of(table: pa.Table, column: str) -> Units:
    """Return the units in a named column, numbered."""
    values = without_dictionary(table.column(column))
    if values.null_count:
        raise ColumnError(f"unit {column!r} is missing in some rows: whose labels are they?")
    codes = pc.dictionary_encode(values).combine_chunks()
    if isinstance(codes, pa.ChunkedArray):
        codes = codes.unify_dictionaries().combine_chunks()
    return Units(codes.indices.to_numpy().astype(np.int64))
