"""Labels in files that people filled in: every line is checked before the first label is kept.

A file is refused as a whole, with the numbers of the lines that are wrong and never what they hold.
Lines whose label is empty are open still, so that a list may be filled in and imported in parts.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.annotate.request import LabelKind
from bagwise.annotate.store import Value
from bagwise.errors import ColumnError, LabelError, TableError
from bagwise.files.regular_files import open_regular
from bagwise.rows.columns import as_text, find_column, without_dictionary
from bagwise.rows.sources.dialect import LOOKED_AT, Told, find_dialect
from bagwise.rows.table import read_table

_SHOWN = 10  # lines that a message lists
_TEXT = (".csv", ".tsv", ".txt")
_LARGEST = 2**30  # bytes of a file that is read as a whole


@dataclass(frozen=True)
class Line:
    """An id and a label as they were written, and where."""

    number: int
    id: str
    label: str


@dataclass(frozen=True)
class Checked:
    """Labels that may be kept, and the line of each row."""

    labels: dict[str, Value]
    lines: dict[str, int]
    open: int


def read_labels(
    source: Any, *, kind: LabelKind, id_name: str, known: Mapping[str, bool], told: Told
) -> Checked:
    """Read and check a file or a frame; `known` tells of each id whether it is to be labelled."""
    what, decimal = name_of(source), "."
    if isinstance(source, str | Path) and Path(source).suffix.lower() in _TEXT:
        decimal, lines = _text_lines(Path(source), id_name, kind.name, told)
    else:
        lines = _table_lines(read_table(source, index_names=[id_name]), id_name, kind.name)
    problems: list[str] = []
    labels: dict[str, Value] = {}
    first: dict[str, int] = {}
    n_open = 0
    for line in lines:
        if not line.label:
            n_open += bool(line.id)
            continue
        value, wrong = _checked(line, kind, known, decimal)
        if value is not None and labels.get(line.id, value) != value:
            wrong = f"the row has another label in line {first[line.id]}"
        if wrong:
            problems.append(f"line {line.number}: {wrong}")
        elif value is not None:
            labels[line.id] = value
            first.setdefault(line.id, line.number)
    if problems:
        raise refusal(what, problems)
    return Checked(labels, first, n_open)


def refusal(what: str, problems: Sequence[str]) -> LabelError:
    """Return what is wrong with a file, by line."""
    shown = "; ".join(problems[:_SHOWN])
    more = len(problems) - _SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    return LabelError(f"{what} was not imported, not even in part. {shown}{rest}.")


def name_of(source: Any) -> str:
    """Return what to call a source in messages."""
    return str(source) if isinstance(source, str | Path) else "the table"


def _checked(
    line: Line, kind: LabelKind, known: Mapping[str, bool], decimal: str
) -> tuple[Value | None, str]:
    """Return the label of a line, or what is wrong with it."""
    if not line.id:
        return None, "there is a label and no id"
    if line.id not in known:
        return None, "no row of the project has this id"
    if not known[line.id]:
        return None, "this row was not asked for"
    try:
        return kind.read(line.label, decimal=decimal), ""
    except LabelError as problem:
        return None, str(problem)


def _text_lines(path: Path, id_name: str, label: str, told: Told) -> tuple[str, Iterator[Line]]:
    with open_regular(path, error=TableError) as handle:
        content = handle.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise TableError(f"{path} is too large for a list of labels.")
    head = content[:LOOKED_AT]
    whole = len(content) <= LOOKED_AT
    dialect = find_dialect(head, told, name=str(path), whole=whole)
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise TableError(f"{path} is not text in {dialect.encoding}. Save it as UTF-8.")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter, strict=True)
    return dialect.decimal, _records(reader, str(path), id_name, label)


def _records(reader: Any, path: str, id_name: str, label: str) -> Iterator[Line]:
    last = 0
    places: tuple[int, int] | None = None
    width = 0
    while True:
        failed = False
        try:
            cells = next(reader, None)
        except csv.Error:
            failed = True
        if failed:
            raise TableError(
                f"{path} is damaged near line {reader.line_num}: a quotation mark is left open."
            )
        if cells is None:
            break
        number, last = last + 1, reader.line_num
        if places is None:
            places, width = _places(cells, path, id_name, label), len(cells)
            continue
        if not cells:
            continue
        if len(cells) != width:
            raise TableError(
                f"{path} has {len(cells)} cells in line {number}, and {width} in its header. "
                "Put text with a delimiter in it into quotation marks."
            )
        yield Line(number, cells[places[0]].strip(), cells[places[1]].strip())
    if places is None:
        raise TableError(f"{path} is empty.")


def _places(names: Sequence[str], path: str, id_name: str, label: str) -> tuple[int, int]:
    found = [name.strip() for name in names]
    for name in (id_name, label):
        if found.count(name) != 1:
            raise ColumnError(
                f"{path} must have the columns {id_name!r} and {label!r}, each once; {name!r} is "
                f"there {found.count(name)} times."
            )
    return found.index(id_name), found.index(label)


def _table_lines(table: pa.Table, id_name: str, label: str) -> Iterator[Line]:
    ids, labels = (
        as_text(without_dictionary(find_column(table, name, role=role)), name=name).to_pylist()
        for name, role in ((id_name, "id"), (label, "label"))
    )
    for number, (key, value) in enumerate(zip(ids, labels, strict=True), start=1):
        text = "" if value is None or value == "nan" else str(value).strip()
        yield Line(number, (key or "").strip(), text)
