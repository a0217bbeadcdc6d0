"""The files of an annotation project.

=======================  ===================================================================
file                     what it holds
=======================  ===================================================================
project.json             what was asked for; it never changes
rows.parquet             all rows: their ids, features, and what annotators see
to_label.csv, .parquet   the rows of the first round, with an empty label; of later rounds
and .json                to_label-N.csv and so on. They are never written again. JSON has
                         them as tasks of Label Studio
label_studio.xml         the labelling interface for these tasks
labels.sqlite            rounds, rows to label, and every answer (`store`)
=======================  ===================================================================
"""

import json
import re
from pathlib import Path
from typing import Annotated, Literal
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from bagwise._version import SOFTWARE_PATTERN
from bagwise.errors import ProjectError, shielded
from bagwise.files.atomic import DirectoryKind
from bagwise.files.json_files import write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.rows.encode import Encoder
from bagwise.rows.table import write_table

SCHEMA: Literal["bagwise-annotation/2"] = "bagwise-annotation/2"
PROJECT, ROWS, LABELS = "project.json", "rows.parquet", "labels.sqlite"
INTERFACE = "label_studio.xml"
_NUMBERED = re.compile(r"to_label(-\d+)?\.(csv|parquet|json)")


class ProjectFile(Record, frozen=True):
    """The settings that a project was started with."""

    schema: Literal["bagwise-annotation/2"]
    software: Annotated[str, Meta(pattern=rf"^{SOFTWARE_PATTERN}\Z")]
    label: str
    family: str
    bounds: tuple[float, float] | None
    classes: tuple[str, ...] | None
    id: str
    show: tuple[str, ...]
    seed: Annotated[int, Meta(ge=0)]
    encoder: Encoder


_SECRET = frozenset({LABELS, f"{LABELS}-wal", f"{LABELS}-shm"})
KIND = DirectoryKind(
    name="an annotation project",
    files=frozenset({PROJECT, ROWS, INTERFACE}) | _SECRET,
    is_ours=lambda directory: (directory / PROJECT).is_file(),
    parts=_NUMBERED,
    private=_SECRET,
)


def write_project(file: ProjectFile, directory: Path) -> None:
    """Write the description of a project, and the labelling interface for Label Studio."""
    write_json(to_plain(file), directory / PROJECT)
    name = quoteattr(file.label)
    if file.classes is None:
        answer = f'<Number name={name} toName="row"/>'
    else:
        choices = "".join(f"<Choice value={quoteattr(one)}/>" for one in file.classes)
        answer = f'<Choices name={name} toName="row">{choices}</Choices>'
    text = f'<View><Table name="row" value="$row"/>{answer}</View>\n'
    (directory / INTERFACE).write_text(text, encoding="utf-8")


def read_project(directory: Path) -> ProjectFile:
    """Read the description of a project."""
    if not KIND.is_ours(directory):
        raise ProjectError(
            f"{directory} is no annotation project. Start one: bagwise annotate start TABLE "
            "--label NAME --budget M -o DIR"
        )
    path = directory / PROJECT
    return read_file(
        ProjectFile, path, schema=SCHEMA, error=ProjectError, what="an annotation project"
    )


def read_rows(directory: Path) -> pa.Table:
    """Read all rows of a project."""
    path = directory / ROWS
    return shielded(
        lambda: pq.read_table(path, partitioning=None),
        ProjectError(f"{path} is missing or damaged. Restore it from a copy."),
    )


def list_paths(directory: Path, number: int) -> tuple[Path, Path, Path]:
    """Return where the rows to label of a round are: as CSV, as Parquet, and for Label Studio."""
    stem = "to_label" if number == 1 else f"to_label-{number}"
    return directory / f"{stem}.csv", directory / f"{stem}.parquet", directory / f"{stem}.json"


def write_lists(table: pa.Table, directory: Path, number: int) -> None:
    """Write the rows to label of a round, unless they are there: somebody may have filled them."""
    csv, parquet, tasks = list_paths(directory, number)
    for path in (csv, parquet):
        if not path.exists():
            write_table(table, path)
    if not tasks.exists():
        id_name, *shown, _ = table.column_names
        rows = table.select([id_name, *shown]).to_pylist()
        data = [{id_name: row[id_name], "row": {n: row[n] for n in shown}} for row in rows]
        text = json.dumps([{"data": one} for one in data], default=str, ensure_ascii=False)
        tasks.write_text(text + "\n", encoding="utf-8")
