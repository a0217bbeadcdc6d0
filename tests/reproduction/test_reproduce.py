"""Many cells over processes: the same values however they are run, and none lost."""

from itertools import groupby

import pytest

from bagwise.errors import StrategyError
from reproduction import reproduce as module
from reproduction.cells import APPENDIX, Cell, table_cells
from reproduction.measured import Job
from reproduction.reproduce import (
    FEATURES,
    PAPER_ROWS,
    QUICK,
    Scale,
    cell_jobs,
    reproduce,
    table_jobs,
)

TEXTS = [
    "bag,iso,10,0.5,random",
    "instance,iso,10,0.5,random",
    "aggregate,ind,10,2,sorted",
    "bag,dep,10,0.5,super",
    "bag,iso,10,0.5,kmeans",
    "instance,iso,10,0.5,kmeans,1",
    "instance,iso,10,0.5,sorted,1",
]


def job(text, *, run=0, rows=1_000):
    return Job(Cell.parse(text), rows=rows, batch=64, run=run, seed=11)


JOBS = [job(text, run=run) for run in range(2) for text in TEXTS]


def values_of(results):
    return {result.job: dict(result.values) for result in results}


@pytest.fixture(scope="module")
def alone():
    """Return the values of every job, each run on its own."""
    return values_of([reproduce([one])[0] for one in JOBS])


def test_results_come_in_the_order_of_the_jobs(alone):
    results = reproduce(JOBS[::-1])
    assert [result.job for result in results] == JOBS[::-1]
    assert values_of(results) == alone
    assert all(result.seconds > 0 for result in results)


def test_more_workers_find_the_same(alone):
    told = []
    results = reproduce(JOBS, workers=2, on_results=told.extend)
    assert [result.job for result in results] == JOBS
    assert values_of(results) == values_of(told) == alone


def test_runs_seeds_rows_and_cells_differ(alone):
    first = job(TEXTS[0])
    others = [
        job(TEXTS[0], run=1),
        job(TEXTS[0], rows=2_000),
        Job(first.cell, rows=1_000, batch=64, run=0, seed=12),
        job("bag,iso,10,2,random"),
    ]
    found = [alone[first]["exact"], *(reproduce([other])[0].values["exact"] for other in others)]
    assert len(set(found)) == len(found)


@pytest.fixture
def ran(monkeypatch):
    """Return the list of jobs that were really run, in order."""
    jobs, run_piece = [], module.run_piece

    def record(piece):
        jobs.extend(piece)
        return run_piece(piece)

    monkeypatch.setattr(module, "run_piece", record)
    return jobs


def test_a_job_asked_for_twice_is_run_once(ran):
    one = job(TEXTS[0])
    assert [result.job for result in reproduce([one, one])] == [one]
    assert ran == [one]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("bag,iso,10,0.5,random", 1_005),
        ("bag,iso,10,0.5,super", 1_010),  # an even number of bags, of which half are left out
        ("bag,iso,50,0.5,random", 1_000),  # 20 bags for 32 coefficients
        ("bag,iso,10,0.5,super", 660),  # 33 bags
        ("bag,iso,10,0.5,random", 330),
    ],
)
def test_rows_that_do_not_come_out_even_are_refused(text, rows, ran):
    jobs = [job(TEXTS[0]), job(text, rows=rows)]
    with pytest.raises(
        StrategyError, match=rf"^the cell {text} needs rows .* got {rows}\..*--rows"
    ):
        reproduce(jobs)
    assert not ran


def test_the_smallest_number_of_rows_is_enough():
    [result] = reproduce([job(TEXTS[0], rows=10 * (FEATURES + 2))])
    assert result.values["expected"] > 0


def test_pieces_share_their_bags(ran):
    reproduce([job(TEXTS[0]), job("bag,iso,10,0.5,kmeans"), job("instance,iso,10,2,kmeans")])
    strategies = [key for key, _ in groupby(one.cell.strategy for one in ran)]
    assert sorted(strategies) == ["kmeans", "random"]


@pytest.mark.parametrize("scale", [Scale(), QUICK], ids=["paper's", "quick"])
def test_everything_in_tables_can_be_run(scale):
    jobs = table_jobs(range(1, 6), scale, seed=0)
    for one in jobs:
        module._check(one)
    assert {one.batch for one in jobs} == {scale.batch}


def test_a_cell_of_two_tables_is_run_once():
    scale = Scale(runs=2)
    appendix = [one for table in APPENDIX for one in table_jobs([table], scale, seed=0)]
    assert set(table_jobs([1, *APPENDIX], scale, seed=0)) == set(appendix)
    assert len(table_jobs([1, *APPENDIX], scale, seed=0)) == len(appendix)
    assert len(table_jobs([2], scale, seed=0)) == 2 * len(table_cells(2))
    assert [one.run for one in cell_jobs(table_cells(2)[:1], scale, seed=0)] == [0, 1]


def test_scales():
    assert Scale().is_papers
    assert not QUICK.is_papers
    assert Scale(rows=PAPER_ROWS // 4).batch == 128
    assert Scale(rows=1).batch == 1
