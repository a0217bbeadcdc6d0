"""The rows of a SQL query through ADBC, as Arrow batches.

Messages of a database may quote cells, and its address a password: neither is repeated, but for
words of the query itself.
"""

import importlib
import importlib.util
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import MissingExtraError, TableError, shielded
from bagwise.rows.sources.files import DATABASES
from bagwise.rows.sources.source import Source

_POSTGRESQL = ("postgresql://", "postgres://")
_SQLITE = "sqlite:///"
_READ_ONLY = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
# What a query begins with, after spaces and comments. Everything else may do more than read: even
# on a connection that only reads, ATTACH makes a file, and COPY writes one.
_SELECT = re.compile(
    r"(\s|--[^\n]*\n|/\*([^*]|\*(?!/))*\*/)*((SELECT|WITH|VALUES|TABLE)\b|\()", re.IGNORECASE
)
# SQLite's columns have no types: the driver takes them from this many rows.
_ROWS_FOR_TYPES = 2**16
_SAID = (
    re.compile(r'(no such (?:table|column|function)): (?P<word>[\w."]+)'),
    re.compile(r'(syntax error at or near|near) "(?P<word>[^"]+)"(: syntax error)?'),
    re.compile(r'(column|relation|function) "?(?P<word>[\w.]+)"?(\(.*?\))? does not exist'),
)


class Query(Source):
    """The rows of a SQL query to SQLite or PostgreSQL. Needs ``bagwise[sql]``.

    The connection may only read. What the query computes, the database computes; rows come as Arrow
    batches.

    Parameters
    ----------
    database : str or path
        A SQLite file, ``sqlite:///file.db``, or ``postgresql://user@host/name``. Passwords belong
        into PGPASSWORD or ~/.pgpass, not into a command that others can list.
    sql : str
        One SELECT.

    Examples
    --------
    >>> import sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = Path(directory) / "flats.db"
    ...     with sqlite3.connect(file) as made:
    ...         _ = made.execute("CREATE TABLE flats AS SELECT 31.5 AS area, 950 AS rent")
    ...     made.close()
    ...     Query(file, "SELECT area, rent FROM flats").read().to_pydict()
    {'area': [31.5], 'rent': [950]}
    """

    def __init__(self, database: str | Path, sql: str) -> None:
        self._address, self._sql = str(database), sql
        if not _SELECT.match(sql):
            word = " ".join(sql.split()[:1])
            raise TableError(
                "a query must be one SELECT, since only reading is allowed, but it begins with "
                f"{word!r}. Run other statements with the database's own tools."
            )
        self._is_server = self._address.startswith(_POSTGRESQL)
        self._file = Path(self._address.removeprefix(_SQLITE))
        if not self._is_server and not self._file.is_file():
            # A path is shown, and no address, which may hold a password.
            is_path = self._file.suffix in DATABASES or "://" not in self._address
            raise TableError(
                "a query needs a database: an existing SQLite file, or "
                f"postgresql://user@host/name. Got neither{f': {self._file}' if is_path else ''}."
            )
        module = f"adbc_driver_{'postgresql' if self._is_server else 'sqlite'}"
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("a SQL query", "sql")
        self._driver = importlib.import_module(f"{module}.dbapi")

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Run the query and return its rows."""
        del wanted
        return shielded(self._read, self._refused)

    def _read(self) -> pa.Table:
        with self._cursor() as cursor:
            if not self._is_server:
                cursor.adbc_statement.set_options(
                    **{"adbc.sqlite.query.batch_rows": str(_ROWS_FOR_TYPES)}
                )
            cursor.execute(self._sql)
            table = cursor.fetch_arrow_table()
        columns = [_plain(table.schema.field(i), table.column(i)) for i in range(table.num_columns)]
        return pa.table(columns, names=table.column_names)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        if self._is_server:
            with self._driver.connect(self._address) as link, link.cursor() as cursor:
                cursor.execute(_READ_ONLY)
                link.commit()
                yield cursor
        else:  # read only: a name that is mistyped would be created otherwise
            address = f"file:{quote(str(self._file.absolute()))}?mode=ro"
            with self._driver.connect(address) as link, link.cursor() as cursor:
                yield cursor

    def _refused(self, error: Exception) -> TableError:
        said = ""
        for pattern in _SAID:
            found = pattern.search(str(error))
            if found and found["word"].strip('"').rpartition(".")[2] in self._sql:
                said = f": {found[1]} {found['word']!r}"
                break
        return TableError(
            f"the query could not be read{said}. Check the address, the query, and that each "
            "column has one type (CAST it if not). The rest of the database's message is withheld, "
            "since it may quote a label."
        )


def _plain(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return PostgreSQL's exact numbers, which come as text, as numbers."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    kind = (field.metadata or {}).get(b"ADBC:postgresql:typname", b"")
    is_number = kind == b"numeric" or getattr(field.type, "type_name", "") == "numeric"
    return pc.cast(column, pa.float64()) if is_number else column
