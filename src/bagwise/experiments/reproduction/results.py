"""The file of results: a line of JSON for each run of a cell, written as soon as it is known.

So a run that was killed continues where it was. Whatever a kill left of the last line is dropped.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise.errors import OutputExistsError, TableError
from bagwise.experiments.reproduction.cells import Cell

FILE_NAME = "results.jsonl"
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
                "values": dict(self.values),
                "seconds": round(self.seconds, 3),
                "versions": dict(self.versions),
            }
        )

    @classmethod
    def from_line(cls, line: str) -> "Result":
        """Read what `to_line` wrote."""
        entry: dict[str, Any] = json.loads(line)
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
        self.by_job.update((result.job, result) for result in results)

    def _open(self, directory: Path) -> None:
        check_directory(directory)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FILE_NAME
        if not path.exists():
            path.touch()
            return
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            result = _read(line, path, number)
            self.by_job[result.job] = result
        if whole != text:
            with path.open("r+b") as file:
                file.truncate(len(whole))


def check_directory(directory: Path) -> None:
    """Refuse a directory that holds something else; cheap, so that callers can ask first."""
    if directory.exists() and not directory.is_dir():
        raise OutputExistsError(f"{directory} is a file; choose another name for the results.")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / FILE_NAME).exists():
        raise OutputExistsError(
            f"{directory} has files in it, and no {FILE_NAME} to continue. Choose another name."
        )


def _read(line: bytes, path: Path, number: int) -> Result:
    try:
        return Result.from_line(line.decode("utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise TableError(
            f"line {number} of {path} is not a result of bagwise reproduce. "
            "Remove the line to have it computed again, or choose another directory."
        ) from None
