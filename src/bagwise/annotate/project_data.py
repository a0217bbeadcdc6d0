"""What a project directory holds: its rows, its rounds, and the labels so far."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.annotate import files
from bagwise.annotate.request import kind_from
from bagwise.annotate.store import AnswerStore, Task
from bagwise.rows.columns import find_column


class ProjectData:
    """A project as its files have it.

    Attributes
    ----------
    directory : Path
    kind : LabelKind
        What a label can be.
    store : AnswerStore
        Rounds, rows to label, and answers.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._file = files.read_project(self.directory)
        self.kind = kind_from(
            self._file.label, self._file.family, self._file.bounds, self._file.classes
        )
        self.store = AnswerStore(self.directory / files.LABELS)

    @property
    def id_name(self) -> str:
        """The column that names rows."""
        return self._file.id

    @property
    def show(self) -> tuple[str, ...]:
        """Columns that an annotator sees."""
        return self._file.show

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return int(self.rows.num_rows)

    @cached_property
    def rows(self) -> pa.Table:
        """All rows, with their ids."""
        table = files.read_rows(self.directory)
        for name in (self.id_name, *self.show, *self._file.encoder.inputs):
            find_column(table, name, role="project column")
        return table

    @cached_property
    def encoded(self) -> FloatArray:
        """All rows as numbers."""
        return self._file.encoder.transform(self.rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where the row of each id is."""
        return {key: place for place, key in enumerate(self.rows.column(self.id_name).to_pylist())}

    def shown(self, task: Task) -> dict[str, Any]:
        """Return what an annotator sees of a row."""
        place = self.places[task.id]
        return {name: self.rows.column(name)[place].as_py() for name in self.show}

    def known_ids(self) -> dict[str, bool]:
        """Return of every id whether its row was ever to be labelled."""
        asked = {task.id for task in self.store.tasks()}
        return {key: key in asked for key in self.places}

    def to_label(self, number: int | None = None) -> pa.Table:
        """Return the rows that have no label yet, of one round or of all, with an empty one."""
        tasks = self.store.open_tasks()
        return self.as_list([task for task in tasks if number in (None, task.round)])

    def labels(self) -> pa.Table:
        """Return the labels so far, with their ids."""
        answers = self.store.answers()
        values = [answer.value for answer in answers]
        kind = pa.float64() if self.kind.classes is None else pa.string()
        ids = pa.array([answer.id for answer in answers], pa.string())
        return pa.table({self.id_name: ids, self.kind.name: pa.array(values, kind)})

    def labelled_rows(self) -> tuple[FloatArray, FloatArray]:
        """Return the rows that have a label, encoded, and their labels; of classes a one each."""
        answers = self.store.answers()
        rows = np.array([self.places[answer.id] for answer in answers], dtype=np.int64)
        if self.kind.classes is None:
            return self.encoded[rows], np.array([answer.value for answer in answers], np.float64)
        code = {name: number for number, name in enumerate(self.kind.classes)}
        codes = np.array([code[str(answer.value)] for answer in answers], dtype=np.int64)
        return self.encoded[rows], np.eye(len(code))[codes]

    def as_list(self, tasks: Sequence[Task]) -> pa.Table:
        """Return rows as annotators get them, with an empty label."""
        places = pa.array([self.places[task.id] for task in tasks], pa.int64())
        names = [self.id_name, *(name for name in self.show if name != self.id_name)]
        empty = pa.nulls(len(tasks), pa.float64() if self.kind.classes is None else pa.string())
        return self.rows.select(names).take(places).append_column(self.kind.name, empty)

    def write_lists(self) -> None:
        """Write the lists of all rounds that are not there."""
        tasks = self.store.tasks()
        for one in self.store.rounds():
            paths = files.list_paths(self.directory, one.number)
            if not all(path.exists() for path in paths):
                here = [task for task in tasks if task.round == one.number]
                files.write_lists(self.as_list(here), self.directory, one.number)
