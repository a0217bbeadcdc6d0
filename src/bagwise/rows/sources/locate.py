"""Find the files that the caller named, all of one kind.

Directories written by other engines may have cells in their names: ``rent=950/part-0.parquet``. So
messages show such names without what stands behind the sign (`shown`).
"""

import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bagwise.errors import TableError

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

    def __str__(self) -> str:
        first = shown(self.paths[0])
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"


def find_files(where: Where) -> Files:
    """Return the files that a path, a pattern, a directory or several of them mean.

    >>> find_files("https://example.org/rents.csv")
    Traceback (most recent call last):
    bagwise.errors.TableError: a URL is not read (https://…): download the file first, ...
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
    """Return the kind of a file by the ending of its name; say what to do about others."""
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
    _refuse_urls(str(where))
    path = Path(where)
    if path.is_dir():
        return _in_directory(path)
    if not path.exists() and _PATTERN.search(str(where)):
        return _matching(str(where))
    if not path.is_file():
        raise TableError(f"{shown(path)} does not exist. Check the path.")
    return Files(kind_of(path), (path,))


def _refuse_urls(text: str) -> None:
    found = _URL.match(text)
    if found is None:
        return
    scheme = found[1].lower()  # the rest may hold a password
    if scheme in _SERVERS:
        raise TableError(f"{scheme}://… {_DATABASE}.")
    raise TableError(
        f"URLs are not supported ({scheme}://…): download the file first, for example with curl "
        "-O, or open it in Python with pyarrow.dataset or DuckDB, and pass the result."
    )


def _in_directory(root: Path) -> Files:
    names = {entry.name for entry in root.iterdir()}
    if names >= _RELEASE:
        raise TableError(
            f"{shown(root)} is a release: its rows have no labels of their own. To use its "
            "features, pass its instances."
        )
    paths = sorted(_tables_below(root))
    if not paths:
        raise TableError(f"{shown(root)} is a directory without tables ({_KNOWN}).")
    return Files(_one_kind(paths), tuple(paths), root)


def _tables_below(root: Path) -> Iterator[Path]:
    """Yield all files but those that engines leave beside tables: _SUCCESS, .crc and the like."""
    for path in root.rglob("*"):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
        if path.is_file() and not hidden:
            yield path


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
