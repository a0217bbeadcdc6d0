"""The engine for tables that fit into memory: an Arrow table, of which no second copy is made."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa

from bagwise._types import IntArray
from bagwise.rng import NoiseSource
from bagwise.rows import Rows
from bagwise.rows.columns import without_dictionary
from bagwise.rows.row_order import feature_order
from bagwise.rows.summary import ColumnSummary
from bagwise.rows.table import read_table


def read_rows(source: Any, *, named: Iterable[str] = ()) -> Rows:
    """Return the rows of a file or a frame; those of another engine as they are.

    >>> read_rows(pa.table({"x": [1, 2]})).num_rows
    2
    """
    return source if isinstance(source, Rows) else LocalRows(read_table(source, index_names=named))


class LocalRows:
    """Rows of an Arrow table.

    >>> import numpy as np
    >>> rows = LocalRows(pa.table({"x": [10, 20, 30]})).take(np.array([2, 0]))
    >>> rows.column("x").to_pylist(), rows.hand_over(["x"]).num_rows
    ([30, 10], 2)
    """

    def __init__(self, table: pa.Table) -> None:
        # Shared with whatever is taken of these rows, so that columns handed over are freed.
        self._columns = dict(zip(table.column_names, table.columns, strict=True))
        self._order: IntArray | None = None
        self._num_rows: int = table.num_rows

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._num_rows

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        return list(self._columns)

    @property
    def rows_at_once(self) -> int:
        """All rows are in memory."""
        return self._num_rows

    @property
    def stored(self) -> None:
        """Nothing is on disk."""
        return None

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""
        column = self._columns[name]
        return column if self._order is None else column.take(pa.array(self._order))

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return how many bytes some columns take."""
        return sum(int(self._columns[name].nbytes) for name in names)

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows at once: they are in memory."""
        yield pa.table({name: self.column(name) for name in names})

    def take(self, order: IntArray) -> Self:
        """Return these rows, in this order."""
        taken = copy.copy(self)
        taken._order = order if self._order is None else self._order[order]
        taken._num_rows = order.size
        return taken

    def block(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return some columns of the rows from `start` on, up to `stop`."""
        if self._order is not None:
            # Blocks are read many times over: each column is brought into its order once.
            self._columns = dict(self._columns)
            for name in self._columns:
                self._columns[name] = self.column(name)
            self._order = None
        return pa.table({name: self._columns[name].slice(start, stop - start) for name in names})

    def feature_order(self, names: Sequence[str], source: NoiseSource) -> IntArray:
        """Return the order of the rows by columns, those that are equal in all in secret order."""
        return feature_order(self, names, source)

    def summarise(self, names: Sequence[str]) -> dict[str, ColumnSummary]:
        """Return the facts about columns that an encoder needs."""
        return {name: ColumnSummary.of(name, self._any_order(name), whole=True) for name in names}

    def _any_order(self, name: str) -> pa.ChunkedArray:
        column = self._columns[name]
        return column if len(column) == self._num_rows else self.column(name)

    def hand_over(self, names: Sequence[str]) -> pa.Table:
        """Return columns as they leave, and forget them, one after the other."""
        leaving = {}
        for name in names:
            # Categories leave as plain values: a list of levels may name some that no row here has.
            leaving[name] = without_dictionary(self.column(name))
            del self._columns[name]  # also from the rows that these were taken of
        return pa.table(leaving)
