"""Engines: where the rows of a table are, and how they are read.

A release needs little of a table: one column at a time, a block of rows at a time, and facts that
add up over its parts. `Rows` says what; `local` has it for tables in memory, and `spilled` for
those that do not fit. Vectors with one number a row (labels, bags, an order) are in memory with
both, columns of features need not be. `opening` chooses.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, Self, runtime_checkable

import pyarrow as pa

from bagwise._types import IntArray
from bagwise.files.stored import StoredTable
from bagwise.rng import NoiseSource
from bagwise.rows.summary import ColumnSummary


@runtime_checkable
class Rows(Protocol):
    """The rows of a table, in an order of their own.

    What is called as in Arrow does what it does there: whoever looks at one column after the other
    takes a table, too.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def column_names(self) -> list[str]:
        """Names of all columns, the label among them."""

    @property
    def rows_at_once(self) -> int:
        """How many rows may be in memory with all their columns."""

    @property
    def stored(self) -> StoredTable | None:
        """What was handed over, where it is on disk: to be read without mapping it."""

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column."""

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""

    def scan(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows, one table after the other."""

    def take(self, order: IntArray) -> Self:
        """Return these rows, none twice, in this order, without touching them yet."""

    def block(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return some columns of the rows from `start` on, up to `stop`."""

    def feature_order(self, names: Sequence[str], source: NoiseSource) -> IntArray:
        """Return the order of the rows by columns, those that are equal in all in secret order."""

    def summarise(self, names: Sequence[str]) -> dict[str, ColumnSummary]:
        """Return the facts about columns that an encoder needs; exact, so that no order shows."""

    def hand_over(self, names: Sequence[str]) -> pa.Table:
        """Return columns as they leave, and forget them: rows of this source are not used again.

        An engine that does not fit into memory writes blocks to a file, and maps that.
        """
