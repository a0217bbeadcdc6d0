"""Rows in a file of Arrow batches, written once in order and read block by block."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa

from bagwise._types import IntArray

BATCH = 65_536
"""Rows in each batch of a file but the last."""


class StoredTable:
    """Rows in a file that is deleted as soon as nobody reads it.

    Batches are copied into memory when they are read, and not mapped: what was read does not stay.
    """

    def __init__(self, path: Path) -> None:
        self._mapped = pa.memory_map(str(path))
        self._reader = pa.ipc.open_file(pa.OSFile(str(path)))
        last = self._reader.num_record_batches - 1
        tail = self._reader.get_batch(last).num_rows if last >= 0 else 0
        self.num_rows: int = max(last, 0) * BATCH + tail
        self.schema: pa.Schema = self._reader.schema
        path.unlink()  # both readers keep what it holds

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows."""
        for number in range(self._reader.num_record_batches):
            yield self._reader.get_batch(number).select(list(names))

    def block(self, names: Sequence[str], start: int, stop: int) -> pa.Table:
        """Return some columns of the rows from `start` on, up to `stop`."""
        first, last = start // BATCH, -(-stop // BATCH)
        batches = [self._reader.get_batch(number) for number in range(first, last)]
        table = pa.Table.from_batches(batches, self.schema).select(list(names))
        return table.slice(start - first * BATCH, stop - start)

    def table(self) -> pa.Table:
        """Return all rows as a memory-mapped table, read only where it is accessed."""
        return pa.ipc.open_file(self._mapped).read_all()


def in_groups(batches: Iterable[pa.RecordBatch], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Yield tables of these numbers of rows, and the remainder, whatever the batches are.

    >>> batch = pa.record_batch({"x": [1, 2, 3]})
    >>> [table["x"].to_pylist() for table in in_groups([batch, batch], [2, 2, 2, 2])]
    [[1, 2], [3, 1], [2, 3]]
    """
    waiting, count, wanted = list[pa.RecordBatch](), 0, iter(sizes)
    size = next(wanted)
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= size:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, size)
            waiting, count, size = table.slice(size).to_batches(), count - size, next(wanted)
    if count:
        yield pa.Table.from_batches(waiting)


def store(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> StoredTable:
    """Write batches, of any size, and return them as a table.

    >>> import tempfile
    >>> batch = pa.record_batch({"x": [1, 2, 3]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = store([batch, batch], batch.schema, Path(folder) / "rows")
    >>> found.num_rows, found.block(["x"], 2, 5)["x"].to_pylist()
    (6, [3, 1, 2])
    """
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for table in in_groups(batches, repeat(BATCH)):
            writer.write_table(table.combine_chunks())
    return StoredTable(path)


def arrange(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    places: IntArray,
    folder: Path,
    *,
    rows_at_once: int,
) -> StoredTable:
    """Write rows to their positions, which are distinct, in two passes over them.

    The first deals rows to files, one for all places from ``i * rows_at_once`` on. The second
    brings the rows of each file, which fit into memory, into their order.
    """
    rows_at_once = max(BATCH, rows_at_once // BATCH * BATCH)
    parts = _deal(batches, schema, places, folder, rows_at_once)
    return store(_in_order(parts, schema), schema, folder / "arranged")


def _deal(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    places: IntArray,
    folder: Path,
    rows_at_once: int,
) -> list[Path]:
    count = max(1, -(-places.size // rows_at_once))
    paths = [folder / f"part.{number}" for number in range(count)]
    # Under names that no other column can have.
    numbered = [field.with_name(f"{number}") for number, field in enumerate(schema)]
    placed = pa.schema([*numbered, pa.field("place", pa.int64())])
    start = 0
    with ExitStack() as opened:
        files = [opened.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
        writers = [opened.enter_context(pa.ipc.new_stream(file, placed)) for file in files]
        for batch in batches:
            here = np.asarray(places[start : start + batch.num_rows], dtype=np.int64)
            start += batch.num_rows
            part = here // rows_at_once
            order = np.argsort(part, kind="stable")
            columns = [*batch.columns, pa.array(here)]
            dealt = pa.record_batch(columns, schema=placed).take(pa.array(order))
            edges = np.searchsorted(part[order], np.arange(count + 1))
            for number in np.flatnonzero(np.diff(edges)):
                rows = int(edges[number]), int(edges[number + 1] - edges[number])
                writers[number].write_batch(dealt.slice(*rows))
    if start != places.size:
        raise AssertionError("every row has a place")
    return paths


def _in_order(parts: Iterable[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in parts:
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        path.unlink()
        order = np.argsort(table["place"].to_numpy())
        for start in range(0, order.size, BATCH):
            taken = table.take(pa.array(order[start : start + BATCH])).combine_chunks()
            for batch in taken.to_batches():
                yield pa.record_batch(batch.columns[:-1], schema=schema)
