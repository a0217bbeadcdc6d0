"""Run cells over processes."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import joblib
from threadpoolctl import threadpool_limits

from bagwise.errors import BagwiseWarning, StrategyError
from reproduction.cells import PRINTED_RUNS, Cell, table_cells
from reproduction.draws import Draw
from reproduction.measured import Job, Result
from reproduction.open_cells import run_open_cell
from reproduction.private_cells import run_private_cell
from reproduction.protocol import BATCH_BAGS

OnResults = Callable[[Sequence[Result]], None]

PAPER_ROWS, FEATURES = 50_000, 32


@dataclass(frozen=True)
class Scale:
    """How much to run: by default what the paper has."""

    rows: int = PAPER_ROWS
    runs: int = PRINTED_RUNS  # of each cell

    @property
    def is_papers(self) -> bool:
        """Whether results can be put beside the printed ones."""
        return self.rows == PAPER_ROWS

    @property
    def batch(self) -> int:
        """How many bags the protocol looks at in one step: fewer if there are fewer rows.

        How far it comes is a matter of steps, so a small problem gets as many.

        Examples
        --------
        >>> Scale(rows=50_000).batch, Scale(rows=20_000).batch
        (512, 205)
        """
        return max(1, round(BATCH_BAGS * self.rows / PAPER_ROWS))

    def job(self, cell: Cell, *, run: int, seed: int) -> Job:
        """Return one run of a cell at this scale."""
        return Job(cell, self.rows, self.batch, run, seed)


QUICK = Scale(rows=20_000, runs=3)


def table_jobs(tables: Iterable[int], scale: Scale, *, seed: int) -> list[Job]:
    """Return what is needed for tables; a cell that is in two of them is run once."""
    cells = dict.fromkeys(cell for table in tables for cell in table_cells(table))
    return cell_jobs(cells, scale, seed=seed)


def cell_jobs(cells: Iterable[Cell], scale: Scale, *, seed: int) -> list[Job]:
    """Return all runs of cells."""
    return [scale.job(cell, run=run, seed=seed) for cell in cells for run in range(scale.runs)]


def reproduce(
    jobs: Sequence[Job], *, workers: int = 1, on_results: OnResults = lambda _results: None
) -> list[Result]:
    """Run jobs, and return their results in the order of the jobs.

    A job that is asked for twice is run once, and is in the results once.

    Parameters
    ----------
    workers : int
        Processes; what they find does not depend on how many there are.
    on_results : function
        Called with the results of each piece of work as it is done.

    Examples
    --------
    >>> job = Job(Cell.parse("bag,iso,10,0.5,random"), rows=1_000, batch=64, run=0, seed=0)
    >>> [result] = reproduce([job])
    >>> sorted(result.values)
    ['along_start', 'exact', 'expected', 'expected_sd', 'protocol']
    """
    jobs = list(dict.fromkeys(jobs))
    for job in jobs:
        _check(job)
    by_job: dict[Job, Result] = {}
    for results in _run_all(_pieces(jobs), workers):
        by_job.update((result.job, result) for result in results)
        on_results(results)
    return [by_job[job] for job in jobs]


def _check(job: Job) -> None:
    """Refuse what has no answer: bags that do not come out even, or fewer than coefficients."""
    if not _fits(job.cell, job.rows):
        step = _rows_per_bag(job.cell)
        raise StrategyError(
            f"the cell {job.cell} needs rows that are a multiple of {step}, and at least "
            f"{step * (FEATURES + 2)}, for {FEATURES + 2} bags or more; got {job.rows}. Choose "
            "other --rows, or another bag size."
        )


def _fits(cell: Cell, rows: int) -> bool:
    step = _rows_per_bag(cell)
    return rows % step == 0 and rows // step > FEATURES + 1


def _rows_per_bag(cell: Cell) -> int:
    return cell.bag_size * (2 if cell.strategy == "super" else 1)  # half of them is left out


def _pieces(jobs: Iterable[Job]) -> list[list[Job]]:
    """Put jobs that share their bags together: clustering is what takes time."""

    def shared(job: Job) -> tuple[int, int, int, str, int, str]:
        cell = job.cell
        return job.run, job.seed, job.rows, cell.data, cell.bag_size, cell.strategy

    return [list(piece) for _, piece in groupby(sorted(jobs, key=shared), key=shared)]


def _run_all(pieces: Sequence[list[Job]], workers: int) -> Iterator[list[Result]]:
    if workers == 1 or len(pieces) <= 1:
        yield from map(run_piece, pieces)
    else:
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)
        yield from parallel(joblib.delayed(run_piece)(piece) for piece in pieces)


def run_piece(jobs: Sequence[Job]) -> list[Result]:
    """Run jobs that share their data."""
    first = jobs[0]
    draw = Draw(first.cell.data, n=first.rows, d=FEATURES, run=first.run, seed=first.seed)
    results = []
    # Sums depend on how many threads share them: one, so that workers do not matter.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)  # the tables show what they warn of
        for job in jobs:
            began = time.perf_counter()
            run = run_open_cell if job.cell.epsilon is None else run_private_cell
            values = run(draw, job.cell, batch=job.batch)
            results.append(Result(job, values, time.perf_counter() - began))
    return results
