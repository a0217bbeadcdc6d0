"""Sources of rows: tables stored anywhere, which are not read before they are needed.

Those that somebody else holds are here: datasets, frames, and batches as they come.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa

from bagwise.errors import BagwiseError, ColumnError, Shield, TableError, shielded
from bagwise.rows.columns import header_is_data, reads_as_number

FIRST_LINE = (
    "the first line of the file seems to be data, not the names of columns (it is not quoted here, "
    "since it may hold a label). Add a header line, such as: size,city,rent"
)
NUMBERED = (
    "the names of the columns seem to be data (they are not quoted here, since one may be a "
    "label). Name the columns; if the table was read from a file without a header line, say so to "
    "the reader, or the first row is lost."
)
UNREADABLE = (
    "the table cannot be read: a file is damaged, cut short or missing, or a column has types that "
    "do not go together."
)
_DOUBLED = "the frame has a column more than once. Rename or drop the copies."


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
    """A source that can be read repeatedly, so that it never needs to be in memory as a whole."""

    @abstractmethod
    def open(self) -> Any:
        """Return a dataset of pyarrow, from which single columns can be read."""

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return all of its rows, in the order of its fragments."""
        del wanted
        return shielded(self.open().to_table, TableError(UNREADABLE))


@dataclass(frozen=True)
class DatasetSource(ScannedSource):
    """A `pyarrow.dataset.Dataset` that the caller opened."""

    dataset: Any

    def open(self) -> Any:
        """Return the dataset."""
        return self.dataset


@dataclass(frozen=True)
class Stream(Source):
    """Batches from another library: a reader, a DuckDB relation; most can be read only once."""

    producer: Any

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return all of its rows."""
        del wanted
        with Shield(_not_computed(f"a {type(self.producer).__name__}")):
            return self.batches().read_all()

    def batches(self) -> pa.RecordBatchReader:
        """Return its rows as they come. What raises later may quote a cell: shield it."""
        with Shield(_not_computed(f"a {type(self.producer).__name__}")):
            return pa.RecordBatchReader.from_stream(self.producer)


@dataclass(frozen=True)
class Frame(Source):
    """A frame that narwhals understands, lazy or not."""

    frame: Any

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Read the frame, with its index if that is requested."""
        wrapped = shielded(lambda: nw.from_native(self.frame), self._not_a_frame)
        if isinstance(wrapped, nw.LazyFrame):
            with Shield(_not_computed("the lazy frame")):
                wrapped = wrapped.collect("pyarrow")
        names = [str(name) for name in wrapped.columns]
        refuse_cells_as_names(names, wanted, NUMBERED)
        if len(set(names)) < len(names):  # such as 1 and "1"
            raise ColumnError(_DOUBLED)
        index = nw.maybe_get_index(wrapped)
        # By get_column: narwhals takes wrapped[0] for the first row, also where 0 is a name.
        columns = {
            str(name): _to_arrow(str(name), wrapped.get_column(name).to_arrow)
            for name in wrapped.columns
        }
        if index is not None and index.name is not None and index.name in wanted:
            columns.setdefault(str(index.name), _to_arrow(str(index.name), lambda: pa.array(index)))
        return pa.table(columns)

    def _not_a_frame(self, error: Exception) -> BagwiseError:
        if isinstance(error, nw.exceptions.DuplicateError):
            return ColumnError(_DOUBLED)
        return TableError(
            f"cannot read a {type(self.frame).__name__} as a table. Pass a path, a pandas, polars "
            "or pyarrow frame, or another source (docs/sources.md)."
        )


def _not_computed(what: str) -> Callable[[Exception], TableError]:
    return lambda error: TableError(
        f"{what} could not be computed ({type(error).__name__}). The message of the engine is "
        "withheld, since it may quote a label."
    )


def _to_arrow(name: str, convert: Callable[[], Any]) -> Any:
    called = "a column" if reads_as_number(name) else f"column {name!r}"
    return shielded(
        convert,
        TableError(
            f"{called} mixes types that do not go together (for example numbers and text). "
            "Make it one type."
        ),
    )


def refuse_cells_as_names(names: Sequence[str], wanted: Collection[str], message: str) -> None:
    """Refuse names that are the first row: it would be lost, and messages would quote it.

    A header that has a name the caller asked for is one, whatever else it has.
    """
    asked = any(name in names and not reads_as_number(name) for name in wanted)
    if header_is_data(names) and not asked:
        raise TableError(message)
