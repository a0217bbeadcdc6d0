"""Rows in parts, with three operations: map, regroup and write.

- `map` computes a small result from each part; results come back in the order of the parts.
- `regroup` sends every row to the part that a number names. Within a part rows are in a secret
  order, so that nothing depends on where they came from or on who was first.
- `write` writes rows in the order of the parts, with the same number of rows to each file.

Parts are row groups of files, and tasks of Spark work on them (`spark.tasks`). One column, such as
the label, is under a stream of the run's secret in every file that is written.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TypeVar

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
    number : int
        Its place among the splits.
    first, rows : int
        Number of its first row in the table, and how many it has.
    nonce : bytes or None
        Of the stream that encrypts one of its columns.
    """

    number: int
    path: str
    group: int
    first: int
    rows: int
    nonce: bytes | None = None


@dataclass(frozen=True)
class Reader:
    """The settings for reading a split.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the table, including cells of directories (``year=2020``).
    root : str or None
        The directory whose names have cells.
    keys : tuple of str
        Columns that are such cells.
    masked : str or None
        The column that is encrypted by a stream of the secret.
    """

    schema: pa.Schema
    root: str | None = None
    keys: tuple[str, ...] = ()
    masked: str | None = None

    def read(self, split: Split, names: Sequence[str], secret: bytes) -> pa.Table:
        """Return some columns of a split."""
        if self.root is not None:
            table = self._read_partition(split, names)
        else:
            with pq.ParquetFile(split.path, pre_buffer=False) as file:
                read = file.read_row_group(split.group, columns=list(names), use_threads=False)
            table = pa.table([read.column(name) for name in names], names=list(names))
            wanted = pa.schema([self.schema.field(name).remove_metadata() for name in names])
            table = table if table.schema.equals(wanted) else table.cast(wanted)
        if table.num_rows != split.rows:
            raise TableError("a file has other rows than it had when the run began.")
        if self.masked in names and split.nonce is not None:
            place = table.column_names.index(self.masked)
            hidden = table.column(place).to_numpy().astype("<i8").tobytes()
            shown = pa.array(np.frombuffer(masked(secret, split.nonce, hidden), dtype="<f8"))
            table = table.set_column(place, self.masked, shown)
        return table

    def part(self, split: Split, names: Sequence[str], secret: bytes) -> Part:
        """Return some columns of a split as a part."""
        return Part(split.number, split.first, self.read(split, names, secret), secret)

    def _read_partition(self, split: Split, names: Sequence[str]) -> pa.Table:
        import pyarrow.dataset as ds

        keys = pa.schema([self.schema.field(key) for key in self.keys])
        dataset = ds.dataset(
            [split.path],
            schema=self.schema,
            partitioning=ds.partitioning(keys, flavor="hive"),
            partition_base_dir=self.root,
            format=ds.ParquetFileFormat(pre_buffer=False),
        )
        (fragment,) = dataset.get_fragments()
        group = fragment.subset(row_group_ids=[split.group])
        return group.to_table(schema=self.schema, columns=list(names), use_threads=False)


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
    reader: Reader
    splits: tuple[Split, ...]
    schema: pa.Schema
    stable: bool = False

    rows_at_once = 0  # there may be more than one machine holds

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""
        return self.num_rows * row_bytes(pa.schema([self.schema.field(name) for name in names]))

    @property
    def masked(self) -> str | None:
        """A column of doubles that is encrypted by a stream in files."""
        return self.reader.masked

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
        reader = self.reader
        return self.workers.each(
            self.splits, lambda split, secret: work(reader.part(split, columns, secret))
        )

    def gather(self, deal: Deal, work: Callable[[Part], T], columns: Sequence[str]) -> dict[int, T]:
        """Bring rows together; return a small result from each new part."""
        reader = self.reader

        def scatter(split: Split, secret: bytes) -> Iterator[tuple[int, pa.Table]]:
            part = reader.part(split, columns, secret)
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

        def keep(part: Part) -> tuple[str, int, bytes | None, pa.Schema]:
            kept, nonce = finish(part), None
            schema = kept.schema
            if masked is not None:
                kept, nonce = mask_column(kept, masked, part.secret)
            path = create_private(Path(f"{where}.{part.number}.{token_hex(8)}"))
            pq.write_table(kept, path, compression="lz4", row_group_size=max(1, kept.num_rows))
            return str(path), kept.num_rows, nonce, schema

        found = self.gather(deal, keep, columns)
        splits, first = list[Split](), 0
        for target in sorted(found):
            path, rows, nonce, schema = found[target]
            splits.append(Split(len(splits), path, 0, first, rows, nonce))
            first += rows
        reader = Reader(schema)
        if masked is not None:
            place = schema.get_field_index(masked)
            reader = Reader(schema.set(place, pa.field(masked, pa.int64())), masked=masked)
        return Parts(self.workers, reader, tuple(splits), schema)

    def head(self) -> "Parts":
        """Return the first split alone."""
        return replace(self, splits=self.splits[:1])

    def reordered(self, order: IntArray) -> "Parts":
        """Return the splits in another order, numbered anew."""
        splits, first = list[Split](), 0
        for number, place in enumerate(order.tolist()):
            splits.append(replace(self.splits[place], number=number, first=first))
            first += splits[-1].rows
        return replace(self, splits=tuple(splits))

    def write(
        self, leave: Finish, columns: Sequence[str], path: Path, *, rows_per_file: int
    ) -> list[WrittenTable]:
        """Write rows in the order of the splits; a file has rows of one split or of several."""
        items = []
        for start in range(0, self.num_rows, rows_per_file):
            stop = start + rows_per_file
            here = [s for s in self.splits if s.first < stop and s.first + s.rows > start]
            items.append((start, stop, here))
        reader, name = self.reader, str(path)

        def write(item: tuple[int, int, Sequence[Split]], secret: bytes) -> WrittenTable:
            (start, stop, splits), tables = item, []
            for split in splits:
                rows = leave(reader.part(split, columns, secret))
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

        keyed = replace(self, workers=self.workers.with_secret(key))  # in no plan of Spark's
        return keyed.map(digest, self.column_names)


def by_key(keys: NDArray[np.uint64], parts: int) -> IntArray:
    """Return the part of each key: equal shares of what keys can be.

    >>> by_key(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 2)
    array([0, 1, 1])
    """
    return ((keys >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def mask_column(table: pa.Table, name: str, secret: bytes) -> tuple[pa.Table, bytes]:
    """Return a table with a column of doubles encrypted by a stream, and the stream's nonce."""
    nonce, place = token_bytes(16), table.column_names.index(name)
    shown = table.column(name).to_numpy().astype("<f8").tobytes()
    hidden = pa.array(np.frombuffer(masked(secret, nonce, shown), dtype="<i8"))
    return table.set_column(place, name, hidden), nonce
