"""Results, arranged by cell, and what can be said of them with how much confidence."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from bagwise._types import FloatArray
from reproduction.cells import PRINTED_RUNS, Cell, printed_values

LEVEL = 0.95


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
    """What a job found, and how long it took."""

    job: Job
    values: Mapping[str, float]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        job = {**vars(self.job), "cell": str(self.job.cell)}
        return {**job, "values": dict(self.values), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class Estimate:
    """A mean over runs with its standard error.

    Examples
    --------
    >>> Estimate.of(np.array([1.0, 3.0]))
    Estimate(mean=2.0, standard_error=1.0, runs=2)
    """

    mean: float
    standard_error: float
    runs: int

    @classmethod
    def of(cls, values: FloatArray) -> "Estimate":
        """Average runs."""
        error = values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else math.nan
        return cls(float(values.mean()), float(error), values.size)

    @property
    def sign(self) -> int:
        """Return -1 or 1 where a 95 % interval excludes zero, and 0 where it does not.

        Examples
        --------
        >>> Estimate(3.0, 1.0, 15).sign, Estimate(-1.0, 1.0, 15).sign
        (1, 0)
        """
        return int(np.sign(self.mean)) if abs(self.mean) > self.reach else 0

    @property
    def reach(self) -> float:
        """Half the width of a 95 % interval."""
        return float(stats.t.ppf((1 + LEVEL) / 2, max(1, self.runs - 1)) * self.standard_error)


class Measured:
    """The results at one number of rows, by cell, each in the order of the runs."""

    def __init__(self, results: Iterable[Result], *, rows: int) -> None:
        found: dict[Cell, dict[int, Result]] = defaultdict(dict)
        for result in results:
            if result.job.rows == rows:
                found[result.job.cell][result.job.run] = result
        self._runs = {
            cell: [runs[run].values for run in sorted(runs)] for cell, runs in found.items()
        }

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._runs

    def runs(self, cell: Cell, name: str) -> FloatArray:
        """Return one value per run."""
        return np.array([values[name] for values in self._runs[cell]])

    def mean(self, cell: Cell, name: str) -> float:
        """Return the average over runs."""
        return float(self.runs(cell, name).mean())


def printed_means(tables: Iterable[int]) -> dict[Cell, tuple[float, float]]:
    """Return what is printed in tables, by cell: the mean, and its standard error."""
    wanted = set(tables)
    return {
        printed.cell: (printed.mean, printed.sd / math.sqrt(PRINTED_RUNS))
        for printed in printed_values()
        if printed.table in wanted
    }
