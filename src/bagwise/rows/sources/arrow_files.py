"""Parquet and Arrow files, one or many, and datasets of pyarrow."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import TableError, shielded
from bagwise.rows.sources.locate import Files, shown
from bagwise.rows.sources.source import ScannedSource


@dataclass(frozen=True)
class DatasetSource(ScannedSource):
    """A `pyarrow.dataset.Dataset` that the caller opened."""

    dataset: Any

    def open(self) -> Any:
        """Return the dataset."""
        return self.dataset


@dataclass(frozen=True)
class ParquetFiles(ScannedSource):
    """Parquet files; what their directories say of partitions (``year=2020``) becomes columns."""

    files: Files

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the rows of all files, one after the other."""
        if self.files.root is None and len(self.files.paths) == 1:
            path = self.files.paths[0]
            return shielded(lambda: read_parquet(path), lambda _: unreadable(path, "Parquet"))
        return super().read(wanted)

    def open(self) -> Any:
        """Return the files as a dataset of pyarrow, from which single columns can be read."""
        schemas = [
            shielded(partial(pq.read_schema, path), partial(_not_parquet, path))
            for path in self.files.paths
        ]
        _refuse_other_columns(self.files, schemas)
        return shielded(
            lambda: self._open(schemas),
            lambda _: TableError(f"{self.files} cannot be read as one table of Parquet files."),
        )

    def _open(self, schemas: Sequence[pa.Schema]) -> Any:
        import pyarrow.dataset as ds  # it imports pandas, where there is one

        paths, root = [str(path) for path in self.files.paths], self.files.root
        options: dict[str, Any] = {"format": ds.ParquetFileFormat(pre_buffer=False)}
        if root is None:
            return ds.dataset(paths, schema=_unified(self.files, schemas), **options)
        # Opened once to find the types of partitions. Those of columns would be taken from the
        # first file, though a later one may need more.
        options["partition_base_dir"] = str(root)
        found = ds.dataset(paths, partitioning="hive", **options)
        schema = _unified(self.files, [found.schema, *schemas])
        keys = pa.schema([schema.field(key) for key in self.files.partition_keys])
        return ds.dataset(
            paths, schema=schema, partitioning=ds.partitioning(keys, flavor="hive"), **options
        )


@dataclass(frozen=True)
class ArrowFiles(ScannedSource):
    """Files or streams in Arrow's own format; they are mapped, not copied into memory."""

    files: Files

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the rows of all files, one after the other."""
        del wanted
        tables = [
            shielded(partial(_read_arrow, path), lambda _, path=path: unreadable(path, "Arrow"))  # type: ignore[misc]
            for path in self.files.paths
        ]
        schemas = [table.schema for table in tables]
        _refuse_other_columns(self.files, schemas)
        schema = _unified(self.files, schemas)
        return shielded(
            lambda: pa.concat_tables([table.select(schema.names).cast(schema) for table in tables]),
            lambda _: _other_types(self.files),
        )

    def open(self) -> Any:
        """Return the mapped rows as a dataset."""
        import pyarrow.dataset as ds

        return ds.dataset(self.read())


def read_parquet(path: Path) -> pa.Table:
    """Read one Parquet file without holding its compressed pages beside the table."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read()


def unreadable(path: Path, kind: str) -> TableError:
    """Say that a file is not what its name says."""
    return TableError(
        f"{shown(path)} cannot be read as {kind}: it is damaged, cut short or another format."
    )


def _read_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(source).read_all()


def _not_parquet(path: Path, _error: Exception) -> TableError:
    return unreadable(path, "Parquet")


def _refuse_other_columns(files: Files, schemas: Sequence[pa.Schema]) -> None:
    for path, schema in zip(files.paths, schemas, strict=True):
        if set(schema.names) != set(schemas[0].names):
            raise TableError(
                f"{shown(path)} has other columns than {shown(files.paths[0])}. Pass files of one "
                "table, or give them the same columns."
            )


def _unified(files: Files, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return columns that hold what all files have in them: of numbers, the widest type."""
    return shielded(
        lambda: pa.unify_schemas(schemas, promote_options="permissive"),
        lambda _: _other_types(files),
    )


def _other_types(files: Files) -> TableError:
    return TableError(
        f"a column has types that do not go together in {files} files: numbers in one and text in "
        "another, for example. Bring them to one type."
    )
