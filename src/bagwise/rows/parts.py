"""Rows in parts, with three operations: map, regroup and write.

- `map` computes a small result from each part; results come back in the order of the parts.
- `regroup` sends every row to the part that a number names. Within a part rows are in a secret
  order, so that nothing depends on where they came from or on who was first.
- `write` writes rows in the order of the parts, with the same number of rows to each file.

Parts are row groups of files, and tasks of Spark work on them (`spark.tasks`). One column, such as
the label, is under a stream of the run's secret in every file that is written.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bagwise._types import IntArray
from bagwise.errors import EngineError, ReleaseError, TableError
from bagwise.files.atomic import create_private
from bagwise.files.parquet_files import WrittenTable, write_plain
from bagwise.files.regular_files import sha256_of
from bagwise.rows.keys import derived, masked, row_keys
from bagwise.rows.opening import row_bytes
from bagwise.rows.spark.tasks import Cluster, split_rows

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """Some rows of a table.

    Attributes
    ----------
    number : int
        Its place among the parts.
    first : int
        The number of its first row among all rows.
    table : pyarrow.Table
        The columns that were asked for.
    secret : bytes
        Of the run.
    """

    number: int
    first: int
    table: pa.Table
    secret: bytes = field(repr=False)

    def keys(self, purpose: str) -> NDArray[np.uint64]:
        """Return a secret number of 64 bits for each row."""
        return row_keys(self.secret, purpose, self.first, self.table.num_rows)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator seeded by the secret, so that it always draws the same numbers."""
        seed = derived(self.secret, f"{purpose} {self.number}")
        return np.random.default_rng(np.frombuffer(seed, dtype="<u4").tolist())


Deal = Callable[[Part], tuple[IntArray, pa.Table]]
"""From a part to the number of the part that each row goes to, and what goes there of it."""

Finish = Callable[[Part], pa.Table]
"""From a new part, rows in secret order, to what is kept of it."""


@dataclass(frozen=True)
class Split:
    """A row group of a file.

    Attributes
    ----------
    masked : (str, bytes) or None
        The column that is encrypted, and the nonce of its stream.
    cells : tuple of pairs
        Columns that the names of directories hold (``year=2020``), and their cells.
    number, first : int
        Its place among the splits, and that of its first row among all rows (`numbered`).
    """

    path: str
    group: int
    rows: int
    masked: tuple[str, bytes] | None = None
    cells: tuple[tuple[str, Any], ...] = ()
    number: int = 0
    first: int = 0

    def read(self, schema: pa.Schema, names: Sequence[str], secret: bytes) -> pa.Table:
        """Return some columns, with the types of a schema."""
        cells, columns = dict(self.cells), []
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            stored = [name for name in names if name not in cells]
            read = file.read_row_group(self.group, columns=stored, use_threads=False)
        if read.num_rows != self.rows:
            raise TableError("a file has other rows than it had when the run began.")
        for name in names:
            kind = schema.field(name).type
            if name in cells:
                column = pa.repeat(pa.scalar(cells[name]), self.rows).cast(kind)
            elif self.masked is not None and name == self.masked[0]:
                hidden = read.column(name).to_numpy().astype("<i8").tobytes()
                shown = masked(secret, self.masked[1], hidden)
                column = pa.array(np.frombuffer(shown, dtype="<f8"))
            else:
                column = read.column(name)
                column = column if column.type == kind else column.cast(kind)
            columns.append(column)
        return pa.table(columns, names=list(names))

    def part(self, schema: pa.Schema, names: Sequence[str], secret: bytes) -> Part:
        """Return some columns as a part."""
        return Part(self.number, self.first, self.read(schema, names, secret), secret)


def numbered(splits: Iterable[Split]) -> tuple[Split, ...]:
    """Return splits that follow each other, and know their places."""
    placed, first = list[Split](), 0
    for split in splits:
        placed.append(replace(split, number=len(placed), first=first))
        first += split.rows
    return tuple(placed)


@dataclass(frozen=True)
class Parts:
    """The rows of a table in parts: row groups of files, with the engine that processes them.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns with the types that the source has.
    stable : bool
        Whether the same source has the same rows in the same splits the next time.
    """

    workers: Cluster
    schema: pa.Schema
    splits: tuple[Split, ...]
    stable: bool = False

    rows_at_once = 0  # there may be more than one machine holds

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""
        return self.num_rows * row_bytes(pa.schema([self.schema.field(name) for name in names]))

    @property
    def masked(self) -> str | None:
        """A column of doubles that is encrypted by a stream in files."""
        one = self.splits[0].masked
        return None if one is None else one[0]

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each split."""
        return [split.rows for split in self.splits]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        return list(self.schema.names)

    def map(self, work: Callable[[Part], T], columns: Sequence[str]) -> list[T]:
        """Return the results of `work` for each split, in the order of the splits."""
        schema = self.schema
        return self.workers.each(
            self.splits, lambda split, secret: work(split.part(schema, columns, secret))
        )

    def gather(self, deal: Deal, work: Callable[[Part], T], columns: Sequence[str]) -> dict[int, T]:
        """Bring rows together; return a small result from each new part."""
        schema = self.schema

        def scatter(split: Split, secret: bytes) -> Iterator[tuple[int, pa.Table]]:
            part = split.part(schema, columns, secret)
            targets, rows = deal(part)  # perhaps not all of them
            keys = row_keys(secret, "regroup", part.first, rows.num_rows)
            # In the end, and found by its place: nobody knows what columns of a table are called.
            keyed = pa.table([*rows.columns, pa.array(keys)], names=[*rows.column_names, "key"])
            yield from split_rows(targets, keyed)

        def gathered(target: int, dealt: pa.Table, secret: bytes) -> T:
            # In the order of their keys, so that nothing depends on which task was first.
            last = dealt.num_columns - 1
            rows = dealt.take(pa.array(np.argsort(dealt.column(last).to_numpy(), kind="stable")))
            keys = rows.column(last).to_numpy()
            if np.any(keys[1:] == keys[:-1]):
                # Once in 2**24 parts of 2**20 rows; to break the tie would favour an order.
                raise EngineError(
                    "two rows have drawn the same key. Nothing was released; start again."
                )
            return work(Part(target, 0, rows.select(range(last)), secret))

        return self.workers.exchange(self.splits, scatter, gathered)

    def regroup(
        self, deal: Deal, finish: Finish, columns: Sequence[str], *, masked: str | None = None
    ) -> "Parts":
        """Regroup rows into files in the private directory, with one column encrypted."""
        where = str(self.workers.scratch.new_file("part"))

        def keep(part: Part) -> tuple[Split, pa.Schema]:
            kept, hidden = finish(part), None
            schema = kept.schema
            if masked is not None:
                kept, hidden = mask_column(kept, masked, part.secret)
            path = create_private(Path(f"{where}.{part.number}.{token_hex(8)}"))
            pq.write_table(kept, path, compression="lz4", row_group_size=max(1, kept.num_rows))
            return Split(str(path), 0, kept.num_rows, hidden), schema

        found = self.gather(deal, keep, columns)
        splits, schemas = zip(*(found[target] for target in sorted(found)), strict=True)
        return Parts(self.workers, schemas[0], numbered(splits))

    def head(self) -> "Parts":
        """Return the first split alone."""
        return replace(self, splits=self.splits[:1])

    def reordered(self, order: IntArray) -> "Parts":
        """Return the splits in another order, numbered anew."""
        return replace(self, splits=numbered(self.splits[place] for place in order.tolist()))

    def write(
        self, leave: Finish, columns: Sequence[str], path: Path, *, rows_per_file: int
    ) -> list[WrittenTable]:
        """Write rows in the order of the splits; a file has rows of one split or of several."""
        items = []
        for start in range(0, self.num_rows, rows_per_file):
            stop = start + rows_per_file
            here = [s for s in self.splits if s.first < stop and s.first + s.rows > start]
            items.append((start, stop, here))
        schema, name = self.schema, str(path)

        def write(item: tuple[int, int, Sequence[Split]], secret: bytes) -> WrittenTable:
            (start, stop, splits), tables = item, []
            for split in splits:
                rows = leave(split.part(schema, columns, secret))
                first = max(0, start - split.first)
                tables.append(rows.slice(first, stop - split.first - first))
            table, written = pa.concat_tables(tables), Path(f"{name}.{start}.{token_hex(8)}")
            write_plain(table, create_private(written))
            return WrittenTable(written, table.num_rows, sha256_of(written, error=ReleaseError))

        return self.workers.each(items, write)

    def digests(self, key: bytes) -> list[str]:
        """Return keyed digests of all cells, split by split; new ones for an unstable source."""
        if not self.stable:
            return [token_hex(32)]

        def digest(part: Part) -> str:
            found = hashlib.blake2b(key=part.secret, digest_size=32, person=b"bagwise-split")
            for name in part.table.column_names:
                column = part.table.column(name).combine_chunks()
                found.update(f"{name}: {column.type}".encode())
                found.update(memoryview(pa.record_batch([column], names=["cells"]).serialize()))
            return found.hexdigest()

        keyed = replace(self, workers=replace(self.workers, secret=key))  # in no plan of Spark's
        return keyed.map(digest, self.column_names)


def by_key(keys: NDArray[np.uint64], parts: int) -> IntArray:
    """Return the part of each key: equal shares of what keys can be.

    >>> by_key(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 2)
    array([0, 1, 1])
    """
    return ((keys >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def mask_column(table: pa.Table, name: str, secret: bytes) -> tuple[pa.Table, tuple[str, bytes]]:
    """Return a table with a column of doubles encrypted by a stream; its name, and the nonce."""
    nonce, place = token_bytes(16), table.column_names.index(name)
    shown = table.column(name).to_numpy().astype("<f8").tobytes()
    hidden = pa.array(np.frombuffer(masked(secret, nonce, shown), dtype="<i8"))
    return table.set_column(place, name, hidden), (name, nonce)
