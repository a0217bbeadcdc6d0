"""Labels in files that people filled in: every line is checked before the first label is kept.

A file is refused as a whole: each mistake once, with the numbers of its lines and never what they
hold. JSON is what Label Studio exports, in its full or in its short form.
Lines whose label is empty are open still, so that a list may be filled in and imported in parts.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise.annotate.request import LabelKind
from bagwise.annotate.store import Value
from bagwise.errors import ColumnError, LabelError, TableError, shielded
from bagwise.files.regular_files import open_regular
from bagwise.rows.columns import as_text, find_column, without_dictionary
from bagwise.rows.sources.dialect import LOOKED_AT, Told, find_dialect
from bagwise.rows.table import read_table

_SHOWN = 10  # lines of a mistake that a message lists
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
    unit: str


def read_labels(
    source: Any, *, kind: LabelKind, id_name: str, known: Mapping[str, bool], told: Told
) -> Checked:
    """Read and check a file or a frame; `known` tells of each id whether it is to be labelled."""
    what, decimal, unit = name_of(source), ".", "line"
    suffix = Path(source).suffix.lower() if isinstance(source, str | Path) else ""
    if suffix in _TEXT:
        decimal, lines = _text_lines(Path(source), id_name, kind.name, told)
    elif suffix == ".json":
        unit, lines = "task", _task_lines(Path(source), id_name, kind.name)
    else:
        lines = _table_lines(read_table(source, index_names=[id_name]), id_name, kind.name)
    problems: dict[str, list[int]] = {}
    labels: dict[str, Value] = {}
    first: dict[str, int] = {}
    n_open = 0
    for line in lines:
        if not line.label:
            n_open += bool(line.id)
            continue
        try:
            _check_id(line.id, known)
            value = kind.read(line.label, decimal=decimal, certain=told.decimal is not None)
            if labels.get(line.id, value) != value:
                raise LabelError(f"the row has another label in {unit} {first[line.id]}")
        except LabelError as problem:
            problems.setdefault(str(problem), []).append(line.number)
        else:
            labels[line.id] = value
            first.setdefault(line.id, line.number)
    if problems:
        raise refusal(what, problems, unit)
    return Checked(labels, first, n_open, unit)


def _check_id(key: str, known: Mapping[str, bool]) -> None:
    if not key:
        raise LabelError("there is a label and no id")
    if key not in known:
        raise LabelError("no row of the project has this id")
    if not known[key]:
        raise LabelError("this row was not asked for")


def refusal(what: str, problems: Mapping[str, Sequence[int]], unit: str) -> LabelError:
    """Return what is wrong with a file: each mistake once, with the lines that have it.

    >>> print(refusal("a.csv", {"the label is not a number": [4, 11]}, "line"))
    a.csv was not imported, not even in part. lines 4, 11: the label is not a number.
    """
    said = []
    for problem, numbers in problems.items():
        shown = ", ".join(str(number) for number in sorted(numbers)[:_SHOWN])
        more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        said.append(f"{unit}{'s' * (len(numbers) > 1)} {shown}{more}: {problem}")
    return LabelError(f"{what} was not imported, not even in part. {'; '.join(said)}.")


def name_of(source: Any) -> str:
    """Return what to call a source in messages."""
    return str(source) if isinstance(source, str | Path) else "the table"


def _content(path: Path) -> bytes:
    with open_regular(path, error=TableError) as handle:
        content = handle.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise TableError(f"{path} is too large for a list of labels.")
    return content


def _task_lines(path: Path, id_name: str, label: str) -> Iterator[Line]:
    """Yield a line for each answer to a task of Label Studio, and one for a task without any."""
    content = _content(path)
    tasks = shielded(
        lambda: json.loads(content),
        lambda _: TableError(f"{path} is not JSON. Export the tasks from Label Studio as JSON."),
    )
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise TableError(f"{path} is no list of tasks, as Label Studio exports them.")
    for number, task in enumerate(tasks, start=1):
        data = task.get("data", task)
        key = data.get(id_name, "") if isinstance(data, dict) else ""
        # The short form has the answer beside the data, the full one in its annotations.
        answers = [task.get(label)] if "data" not in task else _answers(task, label)
        for answer in answers or [None]:
            yield Line(number, str(key).strip(), _spelt_answer(answer))


def _spelt_answer(answer: Any) -> str:
    """Return an answer as text: ``{"choices": ["a"]}``, ``{"number": 5}``, or the value itself."""
    while isinstance(answer, dict | list) and answer:
        answer = next(iter(answer.values() if isinstance(answer, dict) else answer))
    return str(answer).strip() if isinstance(answer, str | int | float) else ""


def _answers(task: Mapping[str, Any], label: str) -> list[Any]:
    """Return what annotators answered to a task; answers to other questions do not count."""
    return [
        result.get("value")
        for annotation in task.get("annotations") or ()
        if isinstance(annotation, dict) and not annotation.get("was_cancelled")
        for result in annotation.get("result") or ()
        if isinstance(result, dict) and result.get("from_name") == label
    ]


def _text_lines(path: Path, id_name: str, label: str, told: Told) -> tuple[str, Iterator[Line]]:
    content = _content(path)
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
    columns = [name.strip() for name in names]
    for name in (id_name, label):
        if columns.count(name) != 1:
            raise ColumnError(
                f"{path} must have the columns {id_name!r} and {label!r}, each once; {name!r} is "
                f"there {columns.count(name)} times."
            )
    return columns.index(id_name), columns.index(label)


def _table_lines(table: pa.Table, id_name: str, label: str) -> Iterator[Line]:
    ids, labels = (
        as_text(without_dictionary(find_column(table, name, role=role)), name=name).to_pylist()
        for name, role in ((id_name, "id"), (label, "label"))
    )
    for number, (key, value) in enumerate(zip(ids, labels, strict=True), start=1):
        text = "" if value is None or value == "nan" else str(value).strip()
        yield Line(number, (key or "").strip(), text)
