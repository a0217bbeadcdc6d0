"""Parquet files and DataFrames as parts that tasks of Spark read.

Row groups of Parquet files are read where they are, by Arrow. A DataFrame is evaluated once, and
its rows are written to such files first, labels under a stream of the secret: a query that draws
something at random, or that is tried again, cannot show two faces. From then on row number 7 is the
same row whoever asks, and whenever.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise._types import FloatArray
from bagwise.errors import EngineError, LabelError, Shield, TableError, shielded
from bagwise.files.atomic import create_private
from bagwise.files.spill import SpillDirectory
from bagwise.files.stored import in_groups
from bagwise.rows.labels import check_label, label_numbers
from bagwise.rows.parts import Parts, Split, mask_column, numbered
from bagwise.rows.sources import open_source
from bagwise.rows.sources.files import ParquetFiles
from bagwise.rows.sources.source import UNREADABLE
from bagwise.rows.spark.session import check, is_frame, open_session
from bagwise.rows.spark.tasks import Cluster, guarded, run_job
from bagwise.rows.table import choose_columns, refuse_empty

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)

GROUP = 2**18
"""Rows of a row group that is written for a DataFrame: a task of its own, and even, so that masks
of eight bytes a row begin at whole blocks."""


def open_files(source: Any, cluster: Cluster, *, named: Sequence[str] = ()) -> Parts:
    """Return the rows of Parquet files; nothing is read but their footers."""
    opened = open_source(source)
    if not isinstance(opened, ParquetFiles):
        raise TableError(
            "on Spark a table is Parquet files, or a DataFrame. Read others with spark.read and "
            "pass the DataFrame (in Python), or leave out --engine spark."
        )
    dataset = opened.open()
    names = choose_columns(dataset.schema.empty_table(), named)
    kept = pa.schema([dataset.schema.field(name).remove_metadata() for name in names])
    with Shield(TableError(UNREADABLE)):
        splits = numbered(
            Split(str(Path(file.path).absolute()), group.id, group.num_rows, cells=_cells_of(file))
            for file in dataset.get_fragments()
            for group in file.row_groups
            if group.num_rows
        )
    refuse_empty(len(splits), len(kept))
    return Parts(cluster, kept, splits, stable=True)


def _cells_of(file: Any) -> tuple[tuple[str, Any], ...]:
    """Return what the directories of a file say of partitions."""
    from pyarrow.dataset import get_partition_keys

    return tuple(get_partition_keys(file.partition_expression).items())


def open_frame(
    frame: Any,
    cluster: Cluster,
    *,
    label: str,
    classes: Sequence[str] | None = None,
    named: Sequence[str] = (),
) -> Parts:
    """Write the rows of a DataFrame to files, labels masked; return them as a table."""
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = shielded(
        lambda: to_arrow_schema(frame.schema, prefers_large_types=False),
        TableError("the DataFrame has a column of a type that Arrow cannot hold."),
    )
    names = choose_columns(kinds.empty_table(), named)
    kinds = pa.schema([kinds.field(name) for name in names])
    check_label(kinds, label, classes)
    chosen = frame.select(*(f"`{name.replace('`', '``')}`" for name in names))
    splits = _write_frame(chosen, cluster, label, classes)
    refuse_empty(len(splits), len(kinds))
    return Parts(cluster, kinds, splits)


def _write_frame(
    frame: Any, cluster: Cluster, label: str, classes: Sequence[str] | None
) -> tuple[Split, ...]:
    """Have tasks write the rows; return files and row groups of those whose result Spark took."""
    from pyspark.sql import functions

    secret = cluster.session.createDataFrame(
        pa.table({"secret": pa.array([cluster.secret], pa.binary())})
    )
    # Under numbers, so that no name is in the way of the column with the secret.
    plain = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    told = plain.crossJoin(functions.broadcast(secret))
    where, names = str(cluster.scratch.new_file("source")), list(frame.columns)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = f"{where}.{token_hex(8)}"
        return _write_rows(batches, path=path, names=names, label=label, classes=classes)

    jobs = told.mapInArrow(write, "path string, part long, rows long, nonce binary")
    found = run_job(jobs.toArrow)
    groups = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))
    for path, _, _, told in groups[:1]:  # what was refused has no path, and comes first
        if not path:
            raise LabelError(told.decode())
    return numbered(Split(path, group, rows, (label, told)) for path, group, rows, told in groups)


def _write_rows(
    batches: Iterable[pa.RecordBatch],
    *,
    path: str,
    names: list[str],
    label: str,
    classes: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    """Write all rows of a task, with the secret in their last column, to one file.

    Yield its row groups, or that labels are no labels: to try again would not help.
    """
    told = list[tuple[str, int, int, bytes]]()

    def write() -> None:
        with ExitStack() as opened:
            for group in in_groups(batches, repeat(GROUP)):
                secret = group.column(len(names))[0].as_py()
                table = pa.table(group.columns[: len(names)], names=names)
                labels = pa.array(_label_of(table, label, classes))
                table, (_, nonce) = mask_column(
                    table.set_column(names.index(label), label, labels), label, secret
                )
                if not told:
                    create_private(Path(path))
                    writer = pq.ParquetWriter(path, table.schema, compression="lz4")
                    opened.enter_context(writer)
                writer.write_table(table, row_group_size=GROUP)
                told.append((path, len(told), table.num_rows, nonce))

    refused: Any = guarded(write)
    if refused is not None:
        told[:] = [("", 0, 0, refused.text.encode())]
    columns = list(zip(*told, strict=True)) or [(), (), (), ()]
    types = (pa.string(), pa.int64(), pa.int64(), pa.binary())
    yield pa.record_batch(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)],
        names=["path", "part", "rows", "nonce"],
    )


def _label_of(table: pa.Table, label: str, classes: Sequence[str] | None) -> FloatArray:
    """Return labels; in a DataFrame rows have no numbers that a message could name."""
    values = label_numbers(table, label, classes)
    if not np.isfinite(values).all():
        what = "NaN or infinite" if classes is None else "or none of the classes"
        raise LabelError(
            f"label {label!r} is missing, {what} in some rows. Drop or repair those rows."
        )
    return values


def open_on_spark(
    source: Any,
    *,
    label: str,
    classes: Sequence[str] | None = None,
    named: Sequence[str] = (),
    spill: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Parts:
    """Return the rows of a DataFrame, or of Parquet files, on a session that is set up safely.

    What Arrow cannot reach by a path, ``s3a://…`` for instance, is read by Spark.
    """
    if is_frame(source):
        session = source.sparkSession
        check(session)
    else:
        session = open_session(settings)
    if spill is None and not str(session.conf.get("spark.master", "")).startswith("local"):
        raise EngineError(
            "on several machines, name a directory that all of them can reach: spill=. Files that "
            "go between steps are written there."
        )
    cluster = Cluster(session, SpillDirectory(Path(gettempdir() if spill is None else spill)))
    if isinstance(source, str) and _REMOTE.match(source):
        source = run_job(lambda: session.read.parquet(source))
    if is_frame(source):
        return open_frame(source, cluster, label=label, classes=classes, named=named)
    return open_files(source, cluster, named=named)
