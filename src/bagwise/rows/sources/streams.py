"""Tables passed in memory or in pieces: frames, relations, readers, pipes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import BagwiseError, ColumnError, TableError, shielded
from bagwise.rows.columns import reads_as_number
from bagwise.rows.sources.csv_files import TextFile, read_text
from bagwise.rows.sources.dialect import Told
from bagwise.rows.sources.source import (
    NUMBERED,
    Source,
    read_standard_input,
    refuse_cells_as_names,
)

_DOUBLED = "the frame has a column more than once. Rename or drop the copies."
_NOT_COMPUTED = (
    "could not be computed ({}). The message of the engine is withheld, since it may quote a label."
)


@dataclass(frozen=True)
class Stream(Source):
    """Batches as somebody else makes them: a reader, a DuckDB relation; most can be read once."""

    producer: Any

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return all of its rows."""
        del wanted
        return shielded(lambda: self.batches().read_all(), self._failed)

    def batches(self) -> pa.RecordBatchReader:
        """Return its rows as they come. What raises later may quote a cell: shield it."""
        return shielded(lambda: pa.RecordBatchReader.from_stream(self.producer), self._failed)

    def _failed(self, error: Exception) -> TableError:
        return TableError(
            f"a {type(self.producer).__name__} {_NOT_COMPUTED.format(type(error).__name__)}"
        )


@dataclass(frozen=True)
class Frame(Source):
    """A frame that narwhals understands, lazy or not."""

    frame: Any

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the frame, and its index if it is wanted."""
        wrapped = shielded(lambda: nw.from_native(self.frame), self._not_a_frame)
        if isinstance(wrapped, nw.LazyFrame):
            wrapped = shielded(lambda: wrapped.collect("pyarrow"), self._not_computed)
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

    def _not_computed(self, error: Exception) -> TableError:
        return TableError(f"the lazy frame {_NOT_COMPUTED.format(type(error).__name__)}")


class Piped(Source):
    """Standard input: CSV, Parquet or Arrow, told by its first bytes."""

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return what is piped in."""
        content = read_standard_input()
        first = content.slice(0, min(8, content.size)).to_pybytes()
        for mark, kind, read in _PIPED:
            if first.startswith(mark):
                return shielded(
                    lambda read=read: read(pa.BufferReader(content)),  # type: ignore[misc]
                    lambda _, kind=kind: TableError(  # type: ignore[misc]
                        f"standard input cannot be read as {kind}: it is damaged or cut short."
                    ),
                )
        return read_text([TextFile("standard input", content)], Told(), wanted)


_PIPED: tuple[tuple[bytes, str, Callable[[Any], pa.Table]], ...] = (
    (b"PAR1", "Parquet", lambda file: pq.ParquetFile(file).read()),
    (b"ARROW1", "Arrow", lambda file: pa.ipc.open_file(file).read_all()),
    (b"\xff\xff\xff\xff", "Arrow", lambda file: pa.ipc.open_stream(file).read_all()),
)


def _to_arrow(name: str, convert: Callable[[], Any]) -> Any:
    called = "a column" if reads_as_number(name) else f"column {name!r}"
    return shielded(
        convert,
        lambda _: TableError(
            f"{called} mixes types that do not go together (for example numbers and text). "
            "Make it one type."
        ),
    )
