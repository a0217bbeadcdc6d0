"""The file of results: it survives a kill at any byte, and says where it is damaged."""

import os
from contextlib import ExitStack
from dataclasses import replace

import pytest

from bagwise.errors import OutputExistsError, TableError
from reproduction.cells import Cell, printed_values
from reproduction.results import (
    FILE_NAME,
    REVISION,
    Job,
    Result,
    ResultsFile,
    alone_in,
)

CELL = Cell.parse("instance,iso,10,0.5,sorted,1")
JOBS = [Job(CELL, rows=1_000, batch=64, run=run, seed=7) for run in range(3)]
VALUES = {"exact": 0.1 + 0.2, "expected": 1e-300, "true_epsilon": 43.759576533303290}


def result(job, **values):
    return Result(job, values or VALUES, seconds=1.25, versions={"numpy": "2.0", "python": "3.11"})


RESULTS = [result(job) for job in JOBS]


@pytest.fixture
def file(tmp_path):
    """Return the file after three results were added to an empty directory."""
    ResultsFile(tmp_path).add(RESULTS)
    return tmp_path / FILE_NAME


@pytest.mark.parametrize("printed", printed_values()[::31], ids=lambda printed: str(printed.cell))
def test_a_line_reads_as_it_was_written(printed):
    written = result(Job(printed.cell, rows=50_000, batch=512, run=14, seed=2**40))
    line = written.to_line()
    assert "\n" not in line
    assert Result.from_line(line) == written  # all digits of all values


def test_a_job_is_known_again_whatever_the_digits_of_its_cell():
    job = replace(JOBS[0], cell=Cell("bag", "iso", 10, 0.123456789, "random"))
    assert Result.from_line(result(job).to_line()).job == job


def test_results_are_kept(file):
    again = ResultsFile(file.parent)
    assert list(again.by_job.values()) == RESULTS
    another = result(replace(JOBS[0], seed=8))
    again.add([another])
    assert again.by_job[another.job] == another
    assert list(ResultsFile(file.parent).by_job.values()) == [*RESULTS, another]


def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = ResultsFile(None)
    kept.add(RESULTS)
    assert list(kept.by_job) == JOBS
    assert not list(tmp_path.iterdir())


def test_a_new_directory_is_made(tmp_path):
    ResultsFile(tmp_path / "new" / "one").add(RESULTS[:1])
    assert (tmp_path / "new" / "one" / FILE_NAME).read_text().count("\n") == 1


def test_a_torn_last_line_is_dropped_and_nothing_else(file):
    whole = file.read_bytes()
    kept = whole[: whole[:-1].rfind(b"\n") + 1]
    for end in range(len(kept), len(whole)):
        file.write_bytes(whole[:end])
        found = ResultsFile(file.parent)
        assert list(found.by_job.values()) == RESULTS[:2]
        assert file.read_bytes() == kept
        found.add(RESULTS[2:])
        assert file.read_bytes() == whole
    assert len(whole) - len(kept) > 100


def test_a_torn_only_line_leaves_no_result(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(RESULTS[0].to_line().encode()[:20])
    assert not ResultsFile(tmp_path).by_job
    assert (tmp_path / FILE_NAME).read_bytes() == b""


DAMAGED = {
    "empty": b"",
    "no JSON": b"exact 0.5",
    "torn": RESULTS[1].to_line().encode()[:-5],
    "a number": b"12",
    "a list": b"[1, 2]",
    "nothing": b"null",
    "a key is missing": RESULTS[1].to_line().replace('"seed"', '"sed"').encode(),
    "an unknown cell": RESULTS[1].to_line().replace("sorted", "sordid").encode(),
    "no cell": RESULTS[1].to_line().replace(f'"{CELL}"', "5").encode(),
    "a count is no number": RESULTS[1].to_line().replace("64", '"many"').encode(),
    "a count is infinite": RESULTS[1].to_line().replace("64", "Infinity").encode(),
    "values are a list": RESULTS[1]
    .to_line()
    .replace('"values": {', '"values": [], "x": {')
    .encode(),
    "bytes that are no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_line_is_named(file, damage):
    lines = file.read_bytes().splitlines()
    lines[1] = damage
    damaged = b"".join(line + b"\n" for line in lines)
    file.write_bytes(damaged)
    with pytest.raises(TableError, match=r"line 2 of .*results\.jsonl .*Remove the line") as caught:
        ResultsFile(file.parent)
    assert str(file) in str(caught.value)
    assert caught.value.__cause__ is None
    assert file.read_bytes() == damaged  # it may be what is left of hours of work


def test_a_file_from_before_a_field_was_there_is_refused_as_a_whole(file):
    file.write_text(file.read_text().replace('"batch"', '"epochs"'))
    with pytest.raises(TableError, match="line 1"):
        ResultsFile(file.parent)


def test_a_directory_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for ask in (alone_in, ResultsFile):
        with pytest.raises(OutputExistsError, match="has files in it"), ExitStack() as stack:
            stack.enter_context(ask(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for ask in (alone_in, ResultsFile):
        with pytest.raises(OutputExistsError, match="is a file"), ExitStack() as stack:
            stack.enter_context(ask(tmp_path / "thesis.txt"))
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_directory_with_results_and_reports_is_continued(file):
    (file.parent / "report.md").write_text("as of now")
    assert list(ResultsFile(file.parent).by_job) == JOBS


def test_the_last_result_of_a_job_counts(file):
    ResultsFile(file.parent).add([result(JOBS[0], exact=9.0)])
    assert ResultsFile(file.parent).by_job[JOBS[0]].values == {"exact": 9.0}


def test_results_of_another_revision_are_refused(tmp_path):
    line = RESULTS[0].to_line().replace(f'"revision": {REVISION}', f'"revision": {REVISION + 1}')
    (tmp_path / FILE_NAME).write_text(line + "\n")
    with pytest.raises(TableError, match=f"line 1 .*revision {REVISION}"):
        ResultsFile(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="needs file locks")
def test_two_runs_do_not_share_a_directory(tmp_path):
    out = tmp_path / "out"
    with alone_in(out), pytest.raises(OutputExistsError, match="another run"), alone_in(out):
        pass
    with alone_in(out):  # the first is gone
        pass
