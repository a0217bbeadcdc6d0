"""The file of results: a line of JSON for each run of a cell, written as soon as it is known.

So a run that was killed continues where it was. Whatever a kill left of the last line is dropped.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise.errors import OutputExistsError, TableError
from reproduction.cells import Cell

FILE_NAME = "results.jsonl"
REVISION = 1
"""Raised whenever the same job would give other values: results of two revisions never mix."""

_COUNTS = ("rows", "batch", "run", "seed")


@dataclass(frozen=True)
class Job:
    """One run of a cell from a seed: it always has the same result.

    `batch` is how many bags the protocol looks at in one step.
    """

    cell: Cell
    rows: int
    batch: int
    run: int
    seed: int


@dataclass(frozen=True)
class Result:
    """What a job found, how long it took, and with which versions.

    Examples
    --------
    >>> job = Job(Cell.parse("bag,iso,10,0.5,random"), rows=1_000, batch=512, run=0, seed=0)
    >>> line = Result(job, {"exact": 0.5}, seconds=1.0, versions={"numpy": "2.0"}).to_line()
    >>> Result.from_line(line).values
    {'exact': 0.5}
    """

    job: Job
    values: Mapping[str, float]
    seconds: float
    versions: Mapping[str, str]

    def to_line(self) -> str:
        """Return one line of JSON."""
        job = self.job
        return json.dumps(
            {
                "cell": str(job.cell),
                **{name: getattr(job, name) for name in _COUNTS},
                "revision": REVISION,
                "values": dict(self.values),
                "seconds": round(self.seconds, 3),
                "versions": dict(self.versions),
            }
        )

    @classmethod
    def from_line(cls, line: str) -> "Result":
        """Read what `to_line` wrote."""
        entry: dict[str, Any] = json.loads(line)
        if entry["revision"] != REVISION:
            raise ValueError("made by another revision")
        job = Job(Cell.parse(entry["cell"]), *(int(entry[name]) for name in _COUNTS))
        values = {str(name): float(value) for name, value in entry["values"].items()}
        return cls(job, values, float(entry["seconds"]), entry["versions"])


class ResultsFile:
    """All results in a directory, and a place to add more.

    Parameters
    ----------
    directory : Path or None
        None keeps them in memory only.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE_NAME
        self.by_job: dict[Job, Result] = {}
        if directory is not None:
            self._open(directory)

    def add(self, results: Iterable[Result]) -> None:
        """Keep results, on disk before anything else happens."""
        results = list(results)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{result.to_line()}\n" for result in results)
                file.flush()
                os.fsync(file.fileno())
        self.by_job.update((result.job, result) for result in results)

    def _open(self, directory: Path) -> None:
        _claim(directory)
        path = directory / FILE_NAME
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            result = _read(line, path, number)
            self.by_job[result.job] = result
        if whole != text:
            with path.open("r+b") as file:
                file.truncate(len(whole))


@contextmanager
def alone_in(directory: Path | None) -> Iterator[None]:
    """Refuse a directory in which another run is writing, where the system can tell."""
    if directory is None or os.name != "posix":
        yield
        return
    import fcntl

    _claim(directory)
    with (directory / FILE_NAME).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputExistsError(
                f"another run is writing to {directory}. Wait for it, or choose another directory."
            ) from None
        yield  # the lock goes with the file, however the run ends


def _claim(directory: Path) -> None:
    """Make an empty file of results, unless there is one or the directory holds other things."""
    if directory.exists() and not directory.is_dir():
        raise OutputExistsError(f"{directory} is a file; choose another name for the results.")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / FILE_NAME).exists():
        raise OutputExistsError(
            f"{directory} has files in it, and no {FILE_NAME} to continue. Choose another name."
        )
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE_NAME).touch()


def _read(line: bytes, path: Path, number: int) -> Result:
    try:
        return Result.from_line(line.decode("utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise TableError(
            f"line {number} of {path} is not a result of this bagwise reproduce (revision "
            f"{REVISION}). Remove the line to have it computed again, or choose another directory."
        ) from None
