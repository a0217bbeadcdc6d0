"""Resolve paths that a caller typed into existing files of one kind; read Parquet and Arrow.

Directories written by other engines may have cells in their names: ``rent=950/part-0.parquet``. So
messages show such names without what stands behind the sign (`shown`).
"""

import glob
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import Shield, TableError, shielded
from bagwise.rows.sources.source import ScannedSource

T = TypeVar("T")

Kind = Literal["Parquet", "CSV", "Arrow"]
Where = str | Path | Sequence[str | Path]

KINDS: dict[str, Kind] = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".tab": "CSV",
    ".txt": "CSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
}
PACKED: Kind = "CSV"  # the one kind of file that may end in .gz
STANDARD_INPUT = "-"
DATABASES = (".db", ".sqlite", ".sqlite3")

_KNOWN = f"{', '.join(KINDS)}, .csv.gz"
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+", re.IGNORECASE)
_SERVERS = {"postgresql", "postgres", "sqlite", "mysql", "mssql", "oracle", "snowflake", "bigquery"}
_PATTERN = re.compile(r"[*?\[]")
_RELEASE = {"manifest.json", "bags.parquet"}

_SPREADSHEET = (
    "is a spreadsheet, whose cells have no types. Save the sheet as CSV and give that file, or "
    "read it in Python, with pandas.read_excel for instance, and pass the frame"
)
_ARCHIVE = "is packed: unpack it, and give what is in it. Of packed files only .csv.gz is read"
_DATABASE = (
    "is a database: say which rows, with --query 'SELECT …' (in Python: bagwise.Query(…, …))"
)
_ELSEWHERE = (
    "is read in Python by pandas or polars: pass the frame, or write it as Parquet and give that"
)
_ADVICE = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers"), _SPREADSHEET),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".bz2", ".xz", ".zst", ".gz"), _ARCHIVE),
    **dict.fromkeys(DATABASES, _DATABASE),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".orc", ".avro", ".sav"), _ELSEWHERE),
    **dict.fromkeys((".dta", ".sas7bdat", ".xpt", ".rds", ".h5", ".hdf5", ".pkl"), _ELSEWHERE),
}


@dataclass(frozen=True)
class Files:
    """Files of one kind, in the order in which their rows follow each other.

    `root` is the directory whose sub-directories may hold partitions, if one was given.
    """

    kind: Kind
    paths: tuple[Path, ...]
    root: Path | None = None

    @property
    def partition_keys(self) -> list[str]:
        """What the directories below the root are named by: ``year`` for ``year=2020``."""
        below = () if self.root is None else [path.relative_to(self.root) for path in self.paths]
        keys = (part.partition("=")[0] for path in below for part in path.parts[:-1] if "=" in part)
        return list(dict.fromkeys(keys))

    def each(self, read: Callable[[Path], T]) -> list[T]:
        """Return what is read of each file."""
        return [shielded(partial(read, p), unreadable(shown(p), self.kind)) for p in self.paths]

    def refuse_other_columns(self, schemas: Sequence[pa.Schema]) -> None:
        """Refuse files that do not have the columns of the first."""
        for path, schema in zip(self.paths, schemas, strict=True):
            if set(schema.names) != set(schemas[0].names):
                raise TableError(
                    f"{shown(path)} has other columns than {shown(self.paths[0])}. Pass files of "
                    "one table, or give them the same columns."
                )

    def unify(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        """Return columns of types that can hold all values: for numbers, the widest."""
        with Shield(self.other_types):
            return pa.unify_schemas(schemas, promote_options="permissive")

    @property
    def other_types(self) -> TableError:
        """The error for columns that have no type in common."""
        return TableError(
            f"a column has types that do not go together in {self} files: numbers in one and text "
            "in another, for example. Bring them to one type."
        )

    def __str__(self) -> str:
        first = shown(self.paths[0])
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"


def find_files(where: Where) -> Files:
    """Return the files that a path, a pattern, a directory or several of them mean.

    >>> find_files("https://example.org/rents.csv")
    Traceback (most recent call last):
    bagwise.errors.TableError: URLs are not supported (https://…): download the file first, ...
    """
    if isinstance(where, str | Path):
        return _find(where)
    parts = [_find(part) for part in where]
    if not parts:
        raise TableError("no file was given.")
    if len(parts) == 1:
        return parts[0]
    paths = [path for part in parts for path in part.paths]
    if len(set(paths)) < len(paths):
        raise TableError("a file was given more than once, and its rows would count twice.")
    return Files(_one_kind(paths), tuple(paths))


def kind_of(path: Path) -> Kind:
    """Return the kind of a file by the ending of its name; suggest what to do about others."""
    ending = path.suffix.lower()
    if ending == ".gz" and KINDS.get(Path(path.stem).suffix.lower()) == PACKED:
        return PACKED
    if ending in KINDS:
        return KINDS[ending]
    if ending in _ADVICE:
        raise TableError(f"{shown(path)} {_ADVICE[ending]}.")
    raise TableError(f"{shown(path)} has no known ending; expected one of {_KNOWN}.")


def shown(path: Path) -> str:
    """Return a path for a message, without the cells that names of partitions hold.

    >>> shown(Path("rents/year=2020/rent=950/part-0.parquet")).replace(chr(92), "/")
    'rents/year=…/rent=…/part-0.parquet'
    """
    *directories, name = path.parts
    return str(Path(*(re.sub(r"=.*", "=…", part) for part in directories), name))


def _find(where: str | Path) -> Files:
    if found := _URL.match(str(where)):
        scheme = found[1].lower()  # the rest may hold a password
        if scheme in _SERVERS:
            raise TableError(f"{scheme}://… {_DATABASE}.")
        raise TableError(
            f"URLs are not supported ({scheme}://…): download the file first, for example with "
            "curl -O, or open it in Python with pyarrow.dataset or DuckDB, and pass the result."
        )
    path = Path(where)
    if path.is_dir():
        return _in_directory(path)
    if not path.exists() and _PATTERN.search(str(where)):
        return _matching(str(where))
    if not path.is_file():
        raise TableError(f"{shown(path)} does not exist. Check the path.")
    return Files(kind_of(path), (path,))


def _in_directory(root: Path) -> Files:
    if {entry.name for entry in root.iterdir()} >= _RELEASE:
        raise TableError(
            f"{shown(root)} is a release: its rows have no labels of their own. To use its "
            "features, pass its instances."
        )
    # All files but those that engines leave beside tables: _SUCCESS, .crc and the like.
    paths = sorted(
        path
        for path in root.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
    )
    if not paths:
        raise TableError(f"{shown(root)} is a directory without tables ({_KNOWN}).")
    return Files(_one_kind(paths), tuple(paths), root)


def _matching(pattern: str) -> Files:
    paths = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207
    paths = [path for path in paths if path.is_file()]
    if not paths:
        raise TableError(f"no file matches {pattern}. Check the pattern.")
    fixed = Path(pattern).parts
    stem = [*fixed[: next(i for i, part in enumerate(fixed) if _PATTERN.search(part))]]
    return Files(_one_kind(paths), tuple(paths), Path(*stem))


def _one_kind(paths: Iterable[Path]) -> Kind:
    kinds = {kind_of(path) for path in paths}
    if len(kinds) > 1:
        raise TableError(
            f"the files are of several kinds ({', '.join(sorted(kinds))}). Select one kind "
            "with a pattern such as 'rents/*.parquet'."
        )
    return kinds.pop()


@dataclass(frozen=True)
class ParquetFiles(ScannedSource):
    """Parquet files; what their directories say of partitions (``year=2020``) becomes columns."""

    files: Files

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the rows of all files, one after the other."""
        if self.files.root is None and len(self.files.paths) == 1:
            return self.files.each(_read_parquet)[0]
        return super().read(wanted)

    def open(self) -> Any:
        """Return the files as a dataset of pyarrow, from which single columns can be read."""
        schemas = self.files.each(pq.read_schema)
        self.files.refuse_other_columns(schemas)
        with Shield(TableError(f"{self.files} cannot be read as one table of Parquet files.")):
            import pyarrow.dataset as ds  # it imports pandas, where there is one

            paths, root = [str(path) for path in self.files.paths], self.files.root
            options: dict[str, Any] = {"format": ds.ParquetFileFormat(pre_buffer=False)}
            if root is not None:
                # Opened once to find the types of partitions. Those of columns would be taken from
                # the first file, though a later one may need more.
                options["partition_base_dir"] = str(root)
                schemas.insert(0, ds.dataset(paths, partitioning="hive", **options).schema)
            schema = self.files.unify(schemas)
            keys = pa.schema([schema.field(key) for key in self.files.partition_keys])
            hive = ds.partitioning(keys, flavor="hive") if root is not None else None
            return ds.dataset(paths, schema=schema, partitioning=hive, **options)


@dataclass(frozen=True)
class ArrowFiles(ScannedSource):
    """Files or streams in Arrow's own format; they are mapped, not copied into memory."""

    files: Files

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the rows of all files, one after the other."""
        del wanted
        tables = self.files.each(_read_arrow)
        schemas = [table.schema for table in tables]
        self.files.refuse_other_columns(schemas)
        schema = self.files.unify(schemas)
        with Shield(self.files.other_types):
            return pa.concat_tables([one.select(schema.names).cast(schema) for one in tables])

    def open(self) -> Any:
        """Return the mapped rows as a dataset."""
        import pyarrow.dataset as ds

        return ds.dataset(self.read())


def _read_parquet(path: Path) -> pa.Table:
    # Without holding its compressed pages beside the table.
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read()


def _read_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(source).read_all()


def unreadable(name: str, kind: str) -> TableError:
    """Return the error for a file that is not what its name says."""
    return TableError(
        f"{name} cannot be read as {kind}: it is damaged, cut short or another format."
    )
