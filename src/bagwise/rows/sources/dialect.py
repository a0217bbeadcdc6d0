"""The format of a text file: its encoding, delimiter and decimal mark.

All three are detected from the beginning of the file. A file that can be read in two ways is
refused with advice, since a wrong guess changes numbers silently. Cells are never quoted.
"""

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from bagwise.errors import Shield, TableError, did_you_mean

LOOKED_AT = 2**18  # bytes of the beginning
_ROWS = 2_000
DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
DECIMALS = {".": "a point", ",": "a comma"}

_MARKS = (  # the longer first: that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_FOREIGN = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"SQLite format": "a database",
}
_NUMBER = re.compile(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?\d{1,3}([.,]\d{3})+")
_TWO_MARKS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+,\d+|[-+]?\d{1,3}(,\d{3})+\.\d+")


@dataclass(frozen=True)
class Dialect:
    """How a text file is written.

    `quoted_lines` tells whether a cell goes over several lines.
    """

    encoding: str
    delimiter: str
    decimal: str
    quoted_lines: bool = False


@dataclass(frozen=True)
class Told:
    """The details of a file that the caller states; those that are None are detected."""

    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        usual = ["utf-8", "utf-16", "latin-1", "cp1252"]
        unknown = TableError(
            f"unknown encoding {self.encoding!r}; usual are {', '.join(usual)}."
            f"{did_you_mean(self.encoding, usual)}"
        )
        with Shield(unknown):
            codecs.lookup(self.encoding or "utf-8")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise TableError(f"delimiter must be one character, got {self.delimiter!r}.")
        if self.decimal is not None and self.decimal not in DECIMALS:
            raise TableError(f"decimal must be '.' or ',', got {self.decimal!r}.")


def find_dialect(head: bytes, told: Told, *, name: str, whole: bool) -> Dialect:
    r"""Detect how a file that begins with `head` is written; `whole` if that is all of it.

    >>> find_dialect(b"area;rent\n31,5;950\n", Told(), name="rents.csv", whole=True)
    Dialect(encoding='utf-8', delimiter=';', decimal=',', quoted_lines=False)
    """
    for mark, what in _FOREIGN.items():
        if head.startswith(mark):
            raise TableError(f"{name} is {what}, whatever its name says. Give it its own ending.")
    encoding = told.encoding or _find_encoding(head, name)
    with Shield(not_in_encoding(name, encoding)):
        decoder = codecs.getincrementaldecoder(encoding)()
        text = decoder.decode(head, final=whole).removeprefix("\ufeff")
    delimiter = told.delimiter or _find_delimiter(text, name, whole=whole)
    rows = _rows(text, delimiter, whole=whole)
    decimal = told.decimal or _find_decimal(rows[1:], name)
    return Dialect(encoding, delimiter, decimal, any("\n" in c for row in rows for c in row))


def numbers_with(mark: str, cells: Sequence[str]) -> bool:
    """Return whether cells are numbers, some with this decimal mark and none with the other.

    >>> numbers_with(",", ["1,5", "2"]), numbers_with(",", ["1,5", "2.5"]), numbers_with(",", ["1"])
    (True, False, False)
    """
    other = "." if mark == "," else ","
    return (
        any(mark in cell for cell in cells)
        and not any(other in cell for cell in cells)
        and all(_NUMBER.fullmatch(cell.strip()) for cell in cells)
    )


def decimal_advice(decimal: str) -> str:
    """Return the message about numbers with this decimal mark."""
    return f"--read decimal={decimal} (in Python: bagwise.Csv(…, decimal={decimal!r}))"


def _find_encoding(head: bytes, name: str) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    zeros = [head[start : 2 * (len(head) // 2) : 2].count(0) for start in (0, 1)]
    # Of ASCII in UTF-16, every other byte is zero; text of eight bits has none.
    if max(zeros) * 4 > len(head) // 2 and min(zeros) * 20 < max(zeros):
        return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    if any(zeros):
        raise TableError(f"{name} holds zero bytes: it is damaged, or no text file.")
    return "utf-8"


def not_in_encoding(name: str, encoding: str) -> TableError:
    """Return the error for a file in another encoding, with the likely one."""
    return TableError(
        f"{name} is not text in {encoding.upper()}, and other encodings cannot be told apart "
        "safely. Say which it is: --read encoding=latin-1 (in Python: "
        "bagwise.Csv(…, encoding='latin-1')); cp1252 is usual for files from Windows."
    )


def _rows(text: str, delimiter: str, *, whole: bool) -> list[list[str]]:
    """Return the first rows; the last one may be cut, and is left out then."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = [row for row in islice(reader, _ROWS) if row]
    except csv.Error:  # a cell longer than any that is a number
        return []
    return rows if whole or len(rows) == _ROWS else rows[:-1]


def _find_delimiter(text: str, name: str, *, whole: bool) -> str:
    tables = {mark: _rows(text, mark, whole=whole) for mark in DELIMITERS}
    possible = [mark for mark, rows in tables.items() if rows and len(rows[0]) > 1]
    even = [mark for mark in possible if len({len(row) for row in tables[mark]}) == 1]
    if not possible:
        return ","  # one column
    if len(even) == 1 or len(possible) == 1:
        return (even or possible)[0]
    marks = " or ".join(DELIMITERS[mark] for mark in even or possible)
    raise TableError(
        f"{name}: the delimiter can be {marks}. Choose one: --read 'delimiter=;' "
        "(in Python: bagwise.Csv(…, delimiter=';'))."
    )


def _find_decimal(rows: Sequence[Sequence[str]], name: str) -> str:
    """Return the mark in columns of numbers; refuse columns that fit two marks."""
    width = min((len(row) for row in rows), default=0)
    columns = [[row[i].strip() for row in rows if row[i].strip()] for i in range(width)]
    grouped = [
        i
        for i, cells in enumerate(columns)
        if any(map(_TWO_MARKS.fullmatch, cells))
        and all(_NUMBER.fullmatch(c) or _TWO_MARKS.fullmatch(c) for c in cells)
    ]
    if grouped:
        raise TableError(
            f"{name}: column {grouped[0] + 1} has numbers with thousands separators, which are "
            "not supported. Remove the separators."
        )
    commas = [cells for cells in columns if numbers_with(",", cells)]
    points = any(numbers_with(".", cells) for cells in columns)
    if not commas:
        return "."
    thousands = all(_GROUPED.fullmatch(c) for cells in commas for c in cells if "," in c)
    if points or thousands:
        raise TableError(
            f"{name}: a comma in its numbers may be a decimal mark or a thousands separator. In "
            f"the first case use {decimal_advice(',')}, in the second remove it; with decimal=. "
            "such columns are text, except for the labels that annotate imports."
        )
    return ","
