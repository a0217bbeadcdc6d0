"""Valid labels, and reading labels from files that people filled in.

Every line of a file is checked before any label is stored. A file with mistakes is rejected as a
whole; the message lists each mistake with its line numbers, but never the contents of a line. Lines
with an empty label stay open, so a list can be filled in and imported in parts. JSON files are
exports of Label Studio, in the full or the short form.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bagwise.annotate.store import Value
from bagwise.errors import ColumnError, LabelError, StrategyError, TableError, shielded
from bagwise.families import Family
from bagwise.files.regular_files import open_regular
from bagwise.planner.problem import resolve_family
from bagwise.rows.columns import as_text, find_column, without_dictionary
from bagwise.rows.labels import Bounds, check_bounds, check_classes
from bagwise.rows.sources.dialect import LOOKED_AT, Told, find_dialect
from bagwise.rows.table import read_table

_BLANKS = " \u00a0\u2009\u202f"  # also those that spreadsheets put between thousands
_AROUND = f"[$€£¥₹₩₽₺{_BLANKS}]*"
_SHOWN = 10  # lines of a mistake that a message lists
_TEXT = (".csv", ".tsv", ".txt")
_LARGEST = 2**30  # bytes of a file that is read as a whole


@dataclass(frozen=True)
class LabelKind:
    """The kind of valid labels: the name of their column, and bounds on plausible values."""

    name: str
    family: Family
    bounds: Bounds | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        *,
        family: str = "auto",
        bounds: Sequence[float] | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Check the user's description of the label.

        >>> LabelKind.of("grade", bounds=(1, 6)).family.name
        'gaussian'
        """
        if not isinstance(name, str) or not name.strip():
            raise ColumnError("label must be the name of a column.")
        named, limits = check_classes(classes), check_bounds(bounds)
        if named is not None and limits is not None:
            raise StrategyError("a label with classes has no bounds; leave them out.")
        if named is not None and any(one != one.strip() or not one for one in named):
            raise LabelError("the name of a class is not empty, nor has it blanks at its ends.")
        fitted = resolve_family(family, None if named is None else len(named))
        if named is not None and not fitted.has_classes:
            raise StrategyError("labels with classes are of the family multinomial: leave it out.")
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        return cls(name, fitted, limits, named)

    @property
    def type(self) -> pa.DataType:
        """What a column of labels is made of."""
        return pa.float64() if self.classes is None else pa.string()

    def read(self, text: str, *, decimal: str = ".", certain: bool = False) -> Value:
        """Return a cell as a label; refuse it (`LabelError`) without quoting it.

        `certain` says that somebody named the decimal mark, so that the other one groups thousands.
        """
        if self.classes is not None:
            # "yes " and "YES" are the class Yes, unless another class is spelt like that.
            alike = [one for one in self.classes if one.casefold() == text.strip().casefold()]
            if text not in self.classes and len(alike) != 1:
                raise LabelError(f"the label is none of {', '.join(self.classes)}")
            return text if text in self.classes else alike[0]
        return self.check(read_number(text, decimal, certain=certain))

    def check(self, value: float) -> float:
        """Return a number that can be a label; refuse others."""
        if not np.isfinite(value):
            raise LabelError("the label is not a finite number")
        low, high = self.bounds or self.family.label_range
        if not low <= value <= high:
            raise LabelError(f"the label is not between {low:g} and {high:g}")
        if self.family.open_range and value in self.family.label_range:
            raise LabelError(f"the label is not {self.family.range_text}")
        if self.family.name == "bernoulli" and value not in (0.0, 1.0):
            raise LabelError("the label is neither 0 nor 1")
        if self.family.name == "poisson" and value != int(value):
            raise LabelError("the label is not a whole number")
        return value

    def describe(self) -> str:
        """Describe the requested label, for the page and for messages.

        >>> LabelKind.of("grade", bounds=(1, 6)).describe()
        'a number between 1 and 6'
        """
        if self.classes is not None:
            return "one of " + ", ".join(self.classes)
        if self.family.name == "bernoulli":
            return "0 or 1"
        kind = "a whole number" if self.family.name == "poisson" else "a number"
        low, high = self.bounds or self.family.label_range
        if np.isfinite([low, high]).all():
            return f"{kind} between {low:g} and {high:g}"
        return kind if not np.isfinite(low) else f"{kind} of at least {low:g}"


def read_number(text: str, decimal: str = ".", *, certain: bool = False) -> float:
    """Return a number as people write it: with grouped thousands, or as an amount of money.

    "1,200" alone may be a thousand or one: nobody should guess, unless the decimal mark is certain.

    >>> read_number("$1,234"), read_number("1 234,5 €", ","), read_number("-1,234,567.5")
    (1234.0, 1234.5, -1234567.5)
    """
    other = "," if decimal == "." else "."
    between = f"[{_BLANKS}'’{other}]"
    parts = re.fullmatch(
        rf"(?P<sign>[+-]?)(?P<money>{_AROUND})"
        rf"(?P<whole>\d{{1,3}}(?P<between>{between})\d{{3}}(?:(?P=between)\d{{3}})*|\d*)"
        rf"(?P<rest>[{decimal}]\d*)?(?P<power>[eE][+-]?\d+)?(?P<after>{_AROUND})",
        text.strip(),
    )
    if parts is None or not any(map(str.isdigit, (parts["whole"] + (parts["rest"] or "")))):
        raise LabelError("the label is not a number")
    whole, rest = parts["whole"], parts["rest"] or ""
    is_clear = certain or rest or parts["money"] or parts["after"] or whole.count(other) > 1
    if parts["between"] == other and not is_clear:
        raise LabelError(
            "the label is a thousand or a fraction: write it without the comma or point, or say "
            "which mark is the decimal one (--read decimal=.)"
        )
    digits = re.sub(r"\D", "", whole)
    return float(f"{parts['sign']}{digits}.{rest[1:]}{parts['power'] or ''}")


@dataclass(frozen=True)
class Line:
    """An id and a label as they were written, and where."""

    number: int
    id: str
    label: str


@dataclass(frozen=True)
class Checked:
    """Labels that passed all checks, and the line of each row."""

    labels: dict[str, Value]
    lines: dict[str, int]
    open: int
    unit: str


def read_labels(
    source: Any, *, kind: LabelKind, id_name: str, known: Mapping[str, bool], told: Told
) -> Checked:
    """Read and check a file or a frame; `known` tells of each id whether it is to be labelled."""
    decimal, unit = ".", "line"
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
            if labels.setdefault(line.id, value) != value:
                raise LabelError(f"the row has another label in {unit} {first[line.id]}")
        except LabelError as problem:
            problems.setdefault(str(problem), []).append(line.number)
        else:
            first.setdefault(line.id, line.number)
    if problems:
        raise refusal(name_of(source), problems, unit)
    return Checked(labels, first, n_open, unit)


def _check_id(key: str, known: Mapping[str, bool]) -> None:
    if not key:
        raise LabelError("there is a label and no id")
    if key not in known:
        raise LabelError("no row of the project has this id")
    if not known[key]:
        raise LabelError("this row was not asked for")


def refusal(what: str, problems: Mapping[str, Sequence[int]], unit: str) -> LabelError:
    """Return the message about a file: each mistake once, with the lines that have it.

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
    """Return the name of a source in messages."""
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
        TableError(f"{path} is not JSON. Export the tasks from Label Studio as JSON."),
    )
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise TableError(f"{path} is no list of tasks, as Label Studio exports them.")
    for number, task in enumerate(tasks, start=1):
        data = task.get("data", task)
        key = data.get(id_name, "") if isinstance(data, dict) else ""
        # The short form has the answer beside the data, the full one in its annotations, where
        # answers to other questions do not count.
        answers = (
            [task.get(label)]
            if "data" not in task
            else [
                result.get("value")
                for annotation in task.get("annotations") or ()
                if isinstance(annotation, dict) and not annotation.get("was_cancelled")
                for result in annotation.get("result") or ()
                if isinstance(result, dict) and result.get("from_name") == label
            ]
        )
        for answer in answers or [None]:
            yield Line(number, str(key).strip(), _spelt_answer(answer))


def _spelt_answer(answer: Any) -> str:
    """Return an answer as text: ``{"choices": ["a"]}``, ``{"number": 5}``, or the value itself."""
    while isinstance(answer, dict | list) and answer:
        answer = next(iter(answer.values() if isinstance(answer, dict) else answer))
    return str(answer).strip() if isinstance(answer, str | int | float) else ""


def _text_lines(path: Path, id_name: str, label: str, told: Told) -> tuple[str, Iterator[Line]]:
    """Return the decimal mark of a CSV file, and its lines; a record may have line breaks in it."""
    # 1. Find out how the file is written, and decode it.
    content = _content(path)
    head = content[:LOOKED_AT]
    dialect = find_dialect(head, told, name=str(path), whole=len(content) <= LOOKED_AT)
    encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
    text = shielded(
        lambda: content.decode(encoding),
        TableError(f"{path} is not text in {dialect.encoding}. Save it as UTF-8."),
    )
    # 2. Cut it into records, each with the line in which it ends.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter, strict=True)
    records = shielded(
        lambda: [(cells, reader.line_num) for cells in reader],
        TableError(
            f"{path} is damaged near line {reader.line_num}: a quotation mark is left open."
        ),
    )
    if not records:
        raise TableError(f"{path} is empty.")
    # 3. Find the two columns, and take them from every record.
    columns = [name.strip() for name in records[0][0]]
    for name in (id_name, label):
        if columns.count(name) != 1:
            raise ColumnError(
                f"{path} must have the columns {id_name!r} and {label!r}, each once; {name!r} is "
                f"there {columns.count(name)} times."
            )
    places = columns.index(id_name), columns.index(label)
    lines = []
    for (_, last), (cells, _) in pairwise(records):
        if cells and len(cells) != len(columns):
            raise TableError(
                f"{path} has {len(cells)} cells in line {last + 1}, and {len(columns)} in its "
                "header. Put text with a delimiter in it into quotation marks."
            )
        if cells:
            lines.append(Line(last + 1, *(cells[place].strip() for place in places)))
    return dialect.decimal, iter(lines)


def _table_lines(table: pa.Table, id_name: str, label: str) -> Iterator[Line]:
    ids, labels = (
        as_text(without_dictionary(find_column(table, name, role=role)), name=name).to_pylist()
        for name, role in ((id_name, "id"), (label, "label"))
    )
    for number, (key, value) in enumerate(zip(ids, labels, strict=True), start=1):
        text = "" if value is None or value == "nan" else str(value).strip()
        yield Line(number, (key or "").strip(), text)
