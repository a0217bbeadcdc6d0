"""CSV and TSV: one file or many, compressed or piped in; the dialect is detected."""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from bagwise.errors import Shield, TableError
from bagwise.rows.columns import is_text
from bagwise.rows.sources.dialect import (
    LOOKED_AT,
    Dialect,
    Told,
    decimal_advice,
    find_dialect,
    not_in_encoding,
    numbers_with,
)
from bagwise.rows.sources.files import STANDARD_INPUT, Where, find_files, shown, unreadable
from bagwise.rows.sources.source import FIRST_LINE, Source, refuse_cells_as_names

_GZIP = b"\x1f\x8b"
_GLANCE = 100  # cells that show whether a column of text is worth a closer look


@dataclass(frozen=True)
class TextFile:
    """A text file or piped input: its bytes, decompressed if they are compressed."""

    name: str
    content: Path | pa.Buffer

    def open(self) -> pa.NativeFile:
        """Return the bytes from the beginning."""
        content = self.content
        raw = pa.OSFile(str(content)) if isinstance(content, Path) else pa.BufferReader(content)
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        return pa.CompressedInputStream(raw, "gzip") if packed else raw

    def head(self) -> tuple[bytes, bool]:
        """Return the beginning, and whether it is the whole content."""
        with Shield(unreadable(self.name, "CSV")), self.open() as stream:
            found = stream.read(LOOKED_AT + 1)
        return found[:LOOKED_AT], len(found) <= LOOKED_AT


class Csv(Source):
    r"""CSV or TSV files whose details are stated, not detected.

    Encoding, delimiter and decimal mark are detected unless they are given; files that could be
    read in two ways are refused. Text is UTF-8, or UTF-16 with or without a mark; other encodings
    must be stated. Compressed files (gzip) are decompressed.

    Parameters
    ----------
    where : path, pattern, directory, list of paths, or "-" for standard input
    delimiter, decimal, encoding : str, optional

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = Path(directory) / "rents.csv"
    ...     _ = file.write_bytes("Größe;Miete\n31,5;950\n".encode("latin-1"))
    ...     Csv(file, encoding="latin-1").read().to_pydict()
    {'Größe': [31.5], 'Miete': [950]}
    """

    def __init__(
        self,
        where: Where,
        *,
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
    ) -> None:
        self._told = Told(encoding, delimiter, decimal)
        self._piped = where == STANDARD_INPUT
        self._where = where
        if not self._piped:
            self._files = find_files(where)
            if self._files.kind != "CSV":
                raise TableError(
                    f"{self._files} is {self._files.kind}, which has no delimiter, decimal mark or "
                    "encoding. Leave these options out."
                )

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return the rows of all files, one after the other."""
        if self._piped:
            texts = [TextFile("standard input", read_standard_input())]
        else:
            texts = [TextFile(shown(path), path) for path in self._files.paths]
        return read_text(texts, self._told, wanted)


class Piped(Source):
    """Standard input: CSV, Parquet or Arrow, recognised by its first bytes."""

    def read(self, wanted: Collection[str] = ()) -> pa.Table:
        """Return what is piped in."""
        content = read_standard_input()
        first = content.slice(0, min(8, content.size)).to_pybytes()
        for mark, kind, read in _PIPED:
            if first.startswith(mark):
                with Shield(unreadable("standard input", kind)):
                    return read(pa.BufferReader(content))
        return read_text([TextFile("standard input", content)], Told(), wanted)


_PIPED: tuple[tuple[bytes, str, Callable[[Any], pa.Table]], ...] = (
    (b"PAR1", "Parquet", lambda file: pq.ParquetFile(file).read()),
    (b"ARROW1", "Arrow", lambda file: pa.ipc.open_file(file).read_all()),
    (b"\xff\xff\xff\xff", "Arrow", lambda file: pa.ipc.open_stream(file).read_all()),
)


def read_standard_input() -> pa.Buffer:
    """Return all piped input; it can be read only once."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise TableError(
            "- means standard input, but nothing is piped into it. Pipe a table: "
            "gunzip -c rents.csv.gz | bagwise release - …"
        )
    content = stream.read()
    if not content:
        raise TableError("standard input is empty. What writes into the pipe may have failed.")
    return pa.py_buffer(content)


def read_text(texts: Sequence[TextFile], told: Told, wanted: Collection[str]) -> pa.Table:
    """Read text files with the same columns as one table."""
    tables = [_read(text, told, wanted, {}) for text in texts]
    first = tables[0].column_names
    for text, table in zip(texts, tables, strict=True):
        if table.column_names != first:  # their names are not listed: a first row may be data
            raise TableError(
                f"{text.name} has another header line than {texts[0].name}. Pass files of one "
                "table, each with its header line."
            )
    types = _common_types([table.schema for table in tables])
    for i, (text, table) in enumerate(zip(texts, tables, strict=True)):
        if any(table.schema.field(name).type != kind for name, kind in types.items()):
            tables[i] = _read(text, told, wanted, types)  # 007 as a number is no text any more
    return pa.concat_tables(tables)


def _common_types(schemas: Sequence[pa.Schema]) -> dict[str, pa.DataType]:
    """Return the type of each column that differs between files: the widest type, or else text."""
    types = {}
    for name in schemas[0].names if len(set(schemas[0].names)) == len(schemas[0].names) else ():
        found = {schema.field(name).type for schema in schemas}
        if len(found) > 1:
            found.discard(pa.null())
            numbers = found <= {pa.int64(), pa.float64()}
            types[name] = (
                found.pop() if len(found) == 1 else (pa.float64() if numbers else pa.string())
            )
    return types


def _read(
    text: TextFile, told: Told, wanted: Collection[str], types: Mapping[str, pa.DataType]
) -> pa.Table:
    head, whole = text.head()
    if not head.strip():
        raise TableError(f"{text.name} is empty.")
    dialect = find_dialect(head, told, name=text.name, whole=whole)
    table = _parse(text, dialect, types)
    refuse_cells_as_names(table.column_names, wanted, FIRST_LINE)
    columns = [  # An empty cell of text is missing. "NA" stays text: it may be Namibia.
        pc.if_else(pc.equal(column, ""), None, column) if is_text(column.type) else column
        for column in table.columns
    ]
    if any(pa.types.is_binary(column.type) for column in columns):
        raise not_in_encoding(text.name, dialect.encoding)
    if told.decimal is None:
        _refuse_other_decimals(columns, dialect.decimal, text.name)
    return pa.table(columns, names=table.column_names)


def _parse(text: TextFile, dialect: Dialect, types: Mapping[str, pa.DataType]) -> pa.Table:
    failure = unreadable(text.name, "CSV")
    # The second time also cells over several lines, which the beginning of the file did not have;
    # and with one thread, since Arrow then tells the line of an error.
    for quoted_lines, use_threads in ((dialect.quoted_lines, True), (True, False)):
        try:
            with text.open() as stream:
                return csv.read_csv(
                    stream,
                    csv.ReadOptions(use_threads=use_threads, encoding=dialect.encoding),
                    csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=quoted_lines),
                    csv.ConvertOptions(decimal_point=dialect.decimal, column_types=types),
                )
        except Exception as error:
            failure = _csv_error(text, dialect, error)
    raise failure  # out here, so that nothing links it to an error that quotes a row


def _csv_error(text: TextFile, dialect: Dialect, error: Exception) -> TableError:
    """Return only the position from Arrow's message: the rest of it quotes the row."""
    if isinstance(error, UnicodeError):
        return not_in_encoding(text.name, dialect.encoding)
    if cells := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error)):
        return TableError(
            f"{text.name}: line {cells[1]} has {cells[3]} cells where the header has {cells[2]}. "
            "Fix it."
        )
    return unreadable(text.name, "CSV")


def _refuse_other_decimals(columns: Sequence[pa.ChunkedArray], decimal: str, name: str) -> None:
    """Refuse text that is numbers with the other mark, which the beginning of the file had not."""
    other = "," if decimal == "." else "."
    for i, column in enumerate(columns):
        if not is_text(column.type):
            continue
        cells = column.drop_null()
        first = cells[:_GLANCE].to_pylist()
        if numbers_with(other, [*first, f"0{other}5"]):  # so far whole numbers may be all
            spelled = pc.match_substring_regex(cells, rf"^\s*[-+]?\d*[{other}]?\d+\s*$")
            marked = pc.match_substring(cells, other)
            if pc.all(spelled).as_py() and pc.any(marked).as_py():
                raise TableError(
                    f"{name}: column {i + 1} has numbers with another decimal mark than the "
                    f"beginning of the file. If that is right, use {decimal_advice(other)}; with "
                    f"decimal={decimal} it is text."
                )
