"""Storage of answers: an append-only SQLite file with a write-ahead log.

Every answer is one line with its time and source, and the last answer for a row counts. Undoing an
answer adds another line without a value. Each import is one transaction, which is on disk before it
is reported (``synchronous=FULL``): a process that is killed leaves all of it or nothing.

Rows are identified by their ids, never by position, so answers cannot move to another row.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bagwise.errors import ProjectError, shielded
from bagwise.files.atomic import create_private

Value = float | str
"""A label: a number, or the name of a class."""

VERSION = 2
_APPLICATION = 0x62616777  # "bagw": what tells the file from other databases
_PATIENCE = 30.0  # seconds to wait for another writer

_TABLES = """
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, design TEXT NOT NULL, time TEXT NOT NULL);
CREATE TABLE tasks (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    round INTEGER NOT NULL REFERENCES rounds(number));
CREATE TABLE answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL REFERENCES tasks(id),
    value, source TEXT NOT NULL, time TEXT NOT NULL);
CREATE INDEX answers_of ON answers (id, number);
"""
_ALL_TASKS = """
SELECT place, tasks.id, round, value, number FROM tasks LEFT JOIN answers ON answers.id = tasks.id
    AND number IN (SELECT max(number) FROM answers GROUP BY id) ORDER BY place
"""
_NEWEST_OF_SOURCE = """
SELECT id FROM answers WHERE number IN (SELECT max(number) FROM answers GROUP BY id)
    AND value IS NOT NULL AND source = ? ORDER BY number DESC LIMIT 1
"""


@dataclass(frozen=True)
class Task:
    """A row that is to be labelled."""

    place: int  # in the order of labelling, from 1
    id: str
    round: int
    value: Value | None  # its label; None while it has none
    number: int | None  # of the last answer, which distinguishes it from earlier ones


@dataclass(frozen=True)
class Round:
    """One purchase of labels."""

    number: int
    design: str


class AnswerStore:
    """Rounds, tasks and answers in one SQLite file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     store = AnswerStore.create(Path(place) / "labels.sqlite")
    ...     store.add_round(Round(1, "random"), ["a", "b"])
    ...     _ = store.add_answers([("a", 3.5)], source="file")
    ...     [answer.value for answer in store.answers()], [task.id for task in store.open_tasks()]
    ([3.5], ['b'])
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "AnswerStore":
        """Make a new file, which nobody but its owner may read: it holds labels."""
        create_private(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("PRAGMA synchronous=FULL")
            file.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id={_APPLICATION};"
                f"PRAGMA user_version={VERSION}; COMMIT;"
            )
        return cls(path)

    def check(self) -> None:
        """Refuse a file that is damaged, or not an annotation file."""
        with self._connected() as file:
            marks = [
                file.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            ]
            if marks != [_APPLICATION, VERSION]:
                raise ProjectError(
                    f"{self.path} holds no labels that this version reads. Restore the project "
                    "from a copy, or start another one."
                )
            if file.execute("PRAGMA quick_check").fetchall() != [("ok",)]:
                raise self._damaged()

    def rounds(self) -> list[Round]:
        """Return all rounds, the first one first."""
        with self._connected() as file:
            lines = file.execute("SELECT number, design FROM rounds ORDER BY number")
            return [Round(*line) for line in lines]

    def tasks(self) -> list[Task]:
        """Return all rows that were ever to be labelled, in their order."""
        with self._connected() as file:
            return self._tasks(file)

    def open_tasks(self) -> list[Task]:
        """Return the rows that have no label yet."""
        return [task for task in self.tasks() if task.value is None]

    def answers(self) -> list[Task]:
        """Return the rows that have a label, in the order in which these came."""
        labelled = [task for task in self.tasks() if task.value is not None]
        return sorted(labelled, key=lambda task: task.number or 0)

    def add_round(self, new: Round, ids: Sequence[str]) -> None:
        """Add a round with the ids of its rows, in the order of labelling."""
        with self._changing() as file:
            if file.execute("SELECT 1 FROM rounds WHERE number = ?", (new.number,)).fetchone():
                raise ProjectError(
                    f"round {new.number} was started by somebody else meanwhile. Look at the "
                    "status, and ask for the next round again if you still want one."
                )
            file.execute("INSERT INTO rounds VALUES (?, ?, ?)", (new.number, new.design, _now()))
            file.executemany(
                "INSERT INTO tasks (id, round) VALUES (?, ?)", [(key, new.number) for key in ids]
            )

    def add_answers(
        self, answers: Iterable[tuple[str, Value]], *, source: str, correct: bool = False
    ) -> int:
        """Add labels, all of them or none; return how many were new.

        A label that a row has already changes nothing. Another one is refused (`ConflictError`),
        unless it is to `correct` the old one.
        """
        given = list(answers)
        with self._changing() as file:
            known = {task.id: task.value for task in self._tasks(file)}
            clashes = [key for key, value in given if known.get(key) not in (None, value)]
            if clashes and not correct:
                raise ConflictError(clashes)
            new = [(key, value) for key, value in given if known.get(key) != value]
            time = _now()
            file.executemany(
                "INSERT INTO answers (id, value, source, time) VALUES (?, ?, ?, ?)",
                [(key, value, source, time) for key, value in new],
            )
        return len(new)

    def take_back(self, *, source: str) -> str | None:
        """Take back the last answer from `source` that still counts; return the id of its row."""
        with self._changing() as file:
            last = file.execute(_NEWEST_OF_SOURCE, (source,)).fetchone()
            if last is None:
                return None
            file.execute(
                "INSERT INTO answers (id, value, source, time) VALUES (?, NULL, ?, ?)",
                (last[0], source, _now()),
            )
            return str(last[0])

    @staticmethod
    def _tasks(file: sqlite3.Connection) -> list[Task]:
        return [Task(*line) for line in file.execute(_ALL_TASKS)]

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection: callers may be in other threads or processes."""
        if not self.path.is_file():
            raise ProjectError(f"{self.path} is missing: the labels of the project were in it.")
        file = shielded(
            lambda: sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None),
            self._damaged(),
        )
        failure = None
        with closing(file):
            try:
                file.execute("PRAGMA synchronous=FULL")
                file.execute("PRAGMA foreign_keys=ON")
                yield file
            except sqlite3.OperationalError:
                failure = ProjectError(
                    f"{self.path} cannot be read or written, and nothing was changed. Another "
                    "process may be writing to it, the disk may be full, or permissions missing."
                )
            except sqlite3.DatabaseError:  # its message may quote what it chokes on
                failure = self._damaged()
        if failure is not None:
            raise failure

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside a transaction that ends with the block, or never was."""
        with self._connected() as file:
            file.execute("BEGIN IMMEDIATE")
            try:
                yield file
                file.execute("COMMIT")
            except BaseException:
                if file.in_transaction:
                    file.execute("ROLLBACK")
                raise

    def _damaged(self) -> ProjectError:
        return ProjectError(
            f"{self.path} is damaged, or is no database. Restore it from a copy of the project."
        )


class ConflictError(ProjectError):
    """Rows that would get a label different from the one they have."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__(
            f"{len(ids)} row(s) have another label already. Nothing was changed; correct=True "
            "(--correct) replaces labels."
        )
        self.ids = tuple(ids)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
