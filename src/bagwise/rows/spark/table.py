"""A table as splits that tasks read by themselves.

Row groups of Parquet files are read where they are, by Arrow. A DataFrame is evaluated once, and
its rows are written to such files first, labels under a stream of the secret: a query that draws
something at random, or that is tried again, cannot show two faces. From then on row number 7 is the
same row whoever asks, and whenever.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ColumnError, LabelError, TableError, shielded
from bagwise.rows.columns import as_float, as_text
from bagwise.rows.labels import label_codes, label_vector
from bagwise.rows.sources import open_source
from bagwise.rows.sources.arrow_files import ParquetFiles
from bagwise.rows.spark.keys import masked
from bagwise.rows.spark.tasks import Cluster, guarded, run_job
from bagwise.rows.spilled import row_bytes
from bagwise.rows.table import choose_columns, refuse_empty

GROUP = 2**18
"""Rows of a row group that is written for a DataFrame: a task of its own, and even, so that masks
of eight bytes a row begin at whole blocks."""


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
        Of the stream that its labels are under.
    """

    number: int
    path: str
    group: int
    first: int
    rows: int
    nonce: bytes | None = None


@dataclass(frozen=True)
class Reader:
    """How a task reads a split.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the table, cells of directories (``year=2020``) among them.
    root : str or None
        The directory whose names have cells.
    keys : tuple of str
        Columns that are such cells.
    masked : str or None
        The column that is under a stream of the secret: the label, as numbers, or as numbers of
        its classes.
    """

    schema: pa.Schema
    root: str | None = None
    keys: tuple[str, ...] = ()
    masked: str | None = None

    def read(self, split: Split, names: Sequence[str], secret: bytes) -> pa.Table:
        """Return some columns of a split."""
        if self.root is None:
            table = self._read_file(split, names)
        else:
            table = self._read_partition(split, names)
        if table.num_rows != split.rows:
            raise TableError("a file has other rows than it had when the run began.")
        if self.masked in names and split.nonce is not None:
            place = table.column_names.index(self.masked)
            hidden = table.column(place).to_numpy().astype("<i8").tobytes()
            shown = pa.array(np.frombuffer(masked(secret, split.nonce, hidden), dtype="<f8"))
            table = table.set_column(place, self.masked, shown)
        return table

    def _read_file(self, split: Split, names: Sequence[str]) -> pa.Table:
        with pq.ParquetFile(split.path, pre_buffer=False) as file:
            table = file.read_row_group(split.group, columns=list(names), use_threads=False)
        wanted = pa.schema([self.schema.field(name).remove_metadata() for name in names])
        table = pa.table([table.column(name) for name in names], names=list(names))
        return table if table.schema.equals(wanted) else table.cast(wanted)

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
class SparkTable:
    """Rows in splits; what looks like an Arrow table here has its columns, and none of its cells.

    Attributes
    ----------
    kinds : pyarrow.Schema
        The columns with the types that the source has.
    stable : bool
        Whether the same source has the same rows in the same splits the next time.
    """

    cluster: Cluster
    reader: Reader
    splits: tuple[Split, ...]
    kinds: pa.Schema
    stable: bool

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(split.rows for split in self.splits)

    @property
    def column_names(self) -> list[str]:
        """Names of all columns."""
        return list(self.kinds.names)

    @property
    def firsts(self) -> IntArray:
        """Number of the first row of each split."""
        return np.array([split.first for split in self.splits], dtype=np.int64)

    rows_at_once = 0  # there may be more than one machine holds

    def n_bytes(self, names: Sequence[str]) -> int:
        """Return about how many bytes some columns take."""
        return self.num_rows * row_bytes(pa.schema([self.kinds.field(name) for name in names]))

    def column(self, name: str) -> pa.ChunkedArray:
        """Refuse: a column is on many machines."""
        raise ColumnError(f"column {name!r} would have to fit into one machine, and is on Spark.")

    def digests(self, key: bytes) -> list[str]:
        """Return keyed digests of all cells, split by split; new ones for an unstable source."""
        if not self.stable:
            return [token_hex(32)]
        read = partial(_digest, reader=self.reader, names=tuple(self.column_names))
        keyed = dataclasses.replace(self.cluster, secret=key)
        return keyed.each(self.splits, read)


def open_files(source: Any, cluster: Cluster, *, named: Sequence[str] = ()) -> SparkTable:
    """Return the rows of Parquet files; nothing is read but their footers."""
    opened = open_source(source)
    if not isinstance(opened, ParquetFiles):
        raise TableError(
            "on Spark a table is Parquet files, or a DataFrame. Read others with spark.read and "
            "pass the DataFrame (in Python), or leave out --engine spark."
        )
    files = opened.files
    schema = opened.open().schema
    names = choose_columns(schema.empty_table(), named)
    kept = pa.schema([schema.field(name).remove_metadata() for name in names])
    splits = list(_groups_of(files.paths))
    refuse_empty(sum(split.rows for split in splits), len(kept))
    keys = tuple(files.partition_keys)
    root = str(files.root.absolute()) if files.root is not None and keys else None
    return SparkTable(cluster, Reader(kept, root, keys), tuple(splits), kept, stable=True)


def _groups_of(paths: Iterable[Path]) -> Iterator[Split]:
    number = first = 0
    for path in paths:
        found = shielded(partial(pq.read_metadata, path), lambda _: _damaged())
        for group in range(found.num_row_groups):
            rows = found.row_group(group).num_rows
            if rows:
                yield Split(number, str(path.absolute()), group, first, rows)
                number, first = number + 1, first + rows


def open_frame(
    frame: Any,
    cluster: Cluster,
    *,
    label: str,
    classes: Sequence[str] | None = None,
    named: Sequence[str] = (),
) -> SparkTable:
    """Write the rows of a DataFrame to files, labels masked; return them as a table."""
    kinds = _arrow_schema(frame)
    names = choose_columns(kinds.empty_table(), named)
    kinds = pa.schema([kinds.field(name) for name in names])
    check_label(kinds, label, classes)
    chosen = frame.select(*(f"`{name.replace('`', '``')}`" for name in names))
    written = _write_frame(chosen, cluster, partial(_label_of, label=label, classes=classes), label)
    splits, first = list[Split](), 0
    for path, group, rows, nonce in written:
        splits.append(Split(len(splits), path, group, first, rows, nonce))
        first += rows
    refuse_empty(first, len(kinds))
    place = kinds.get_field_index(label)
    kept = kinds.set(place, pa.field(label, pa.int64()))  # as it is under its mask
    return SparkTable(cluster, Reader(kept, masked=label), tuple(splits), kinds, stable=False)


def check_label(kinds: pa.Schema, label: str, classes: Sequence[str] | None) -> None:
    """Refuse a label that is no column, and no number where it has no classes."""
    if classes is None:
        label_vector(kinds.empty_table(), label)
    else:
        label_codes(kinds.empty_table(), label, classes)


def codes_of(table: pa.Table, label: str, classes: Sequence[str], *, coded: bool) -> IntArray:
    """Return the number of each row's class, -1 if it is none; in a frame labels are codes."""
    if coded:
        return np.asarray(table.column(label).to_numpy(), dtype=np.int64)
    text = as_text(table.column(label), name=label)
    codes = pc.index_in(text, value_set=pa.array(classes, text.type), skip_nulls=True)
    return np.asarray(pc.fill_null(codes, -1).to_numpy(), dtype=np.int64)


def _arrow_schema(frame: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return shielded(
        lambda: to_arrow_schema(frame.schema, prefers_large_types=False),
        lambda _: TableError("the DataFrame has a column of a type that Arrow cannot hold."),
    )


def _write_frame(
    frame: Any, cluster: Cluster, label_of: Callable[[pa.Table], FloatArray], label: str
) -> list[tuple[str, int, int, bytes]]:
    """Have tasks write the rows; return files and row groups of those whose result Spark took."""
    from pyspark.sql import functions

    secret = cluster.session.createDataFrame(
        pa.table({"secret": pa.array([cluster.secret], pa.binary())})
    )
    # Under numbers, so that no name is in the way of the column with the secret.
    numbered = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    told = numbered.crossJoin(functions.broadcast(secret))
    write = partial(
        _write_rows,
        names=tuple(frame.columns),
        label=label,
        label_of=label_of,
        where=str(cluster.new_file("source")),
    )
    jobs = told.mapInArrow(write, "path string, part long, rows long, nonce binary")
    found = run_job(jobs.toArrow)
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    for path, _, _, refused in rows:
        if not path:
            raise LabelError(refused.decode())
    return sorted(rows)


def _write_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    names: Sequence[str],
    label: str,
    label_of: Callable[[pa.Table], FloatArray],
    where: str,
) -> Iterator[pa.RecordBatch]:
    """Write all rows of a task to one file, and tell its row groups."""
    path, told = f"{where}.{token_hex(8)}", list[tuple[str, int, int, bytes]]()

    def write() -> None:
        writer = None
        try:
            for group in _gathered(batches, GROUP):
                secret = group.column(len(names))[0].as_py()
                table, nonce = _masked_rows(group, names, label, label_of, secret)
                if writer is None:
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4")
                writer.write_table(table, row_group_size=GROUP)
                told.append((path, len(told), table.num_rows, nonce))
        finally:
            if writer is not None:
                writer.close()

    refused: Any = guarded(write)
    if refused is not None:  # that the labels are no labels; to try again would not help
        told[:] = [("", 0, 0, refused.text.encode())]
    columns = list(zip(*told, strict=True)) or [(), (), (), ()]
    types = (pa.string(), pa.int64(), pa.int64(), pa.binary())
    yield pa.record_batch(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)],
        names=["path", "part", "rows", "nonce"],
    )


def _gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield tables of `size` rows, and what is left."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= size:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, size)
            waiting, count = table.slice(size).to_batches(), count - size
    if count:
        table = pa.Table.from_batches(waiting)
        for first in range(0, count, size):
            yield table.slice(first, size)


def _masked_rows(
    group: pa.Table,
    names: Sequence[str],
    label: str,
    label_of: Callable[[pa.Table], FloatArray],
    secret: bytes,
) -> tuple[pa.Table, bytes]:
    table = pa.table(group.columns[: len(names)], names=list(names))
    values, nonce = label_of(table), os.urandom(16)
    hidden = np.frombuffer(masked(secret, nonce, values.astype("<f8").tobytes()), dtype="<i8")
    return table.set_column(names.index(label), label, pa.array(hidden)), nonce


def _label_of(table: pa.Table, *, label: str, classes: Sequence[str] | None) -> FloatArray:
    """Return labels; in a DataFrame rows have no numbers that a message could name."""
    if classes is not None:
        codes = codes_of(table, label, classes, coded=False)
        if codes.min(initial=0) < 0:
            raise LabelError(
                f"label {label!r} is missing, or none of the classes, in some rows. Drop or repair "
                "those rows."
            )
        return codes.astype(np.float64)
    values = as_float(table.column(label))
    if not np.isfinite(values).all():
        raise LabelError(
            f"label {label!r} is missing, NaN or infinite in some rows. Drop or repair those rows."
        )
    return values


def _digest(split: Split, key: bytes, *, reader: Reader, names: Sequence[str]) -> str:
    digest = hashlib.blake2b(key=key, digest_size=32, person=b"bagwise-split")
    for name in names:
        column = reader.read(split, [name], key).column(0).combine_chunks()
        digest.update(f"{name}: {column.type}".encode())
        digest.update(memoryview(pa.record_batch([column], names=["cells"]).serialize()))
    return digest.hexdigest()


def _damaged() -> TableError:
    return TableError("a file is not readable Parquet: it is damaged, cut short or another format.")
