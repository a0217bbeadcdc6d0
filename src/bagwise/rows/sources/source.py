"""The base class of sources: a table that is read only on demand."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from bagwise.errors import TableError, shielded
from bagwise.rows.columns import header_is_data, reads_as_number


class Source(ABC):
    """A table that has not been read yet.

    Making one looks at names and kinds of files at most, so that mistakes are found before any
    work; what cannot be read says so when it is read.

    Nothing that a source raises quotes a cell, and none of its messages is linked to an exception
    that does.
    """

    @abstractmethod
    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the whole table; `wanted` are columns that the caller asks for by name."""


class ScannedSource(Source):
    """A source that can be read again and again, so that it need never be in memory as a whole."""

    @abstractmethod
    def open(self) -> Any:
        """Return a dataset of pyarrow, from which single columns can be read."""

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return all of its rows, in the order of its fragments."""
        del wanted
        return shielded(
            self.open().to_table,
            lambda _: TableError(
                "the dataset cannot be read: a file is damaged or missing, or a column has types "
                "that do not go together."
            ),
        )


FIRST_LINE = (
    "the first line of the file seems to be data, not the names of columns (it is not quoted here, "
    "since it may hold a label). Add a header line, such as: size,city,rent"
)
NUMBERED = (
    "the names of the columns seem to be data (they are not quoted here, since one may be a "
    "label). Name the columns; if the table was read from a file without a header line, say so to "
    "the reader, or the first row is lost."
)


def refuse_cells_as_names(names: Sequence[str], wanted: Collection[str], message: str) -> None:
    """Refuse names that are the first row: it would be lost, and messages would quote it.

    A header that has a name the caller asked for is one, whatever else it has.
    """
    asked = any(name in names and not reads_as_number(name) for name in wanted)
    if header_is_data(names) and not asked:
        raise TableError(message)


def read_standard_input() -> pa.Buffer:
    """Return everything that is piped in; it is there once."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise TableError(
            "- means standard input, but nothing is piped into it. Pipe a table: "
            "gunzip -c rents.csv.gz | bagwise release - …"
        )
    content = stream.read()
    if not content:
        raise TableError("standard input is empty. What writes into the pipe may have failed.")
    return pa.py_buffer(content)
