import json

import pytest
from typer.testing import CliRunner

from reproduction import reproduce as module
from reproduction.__main__ import app

SMALL = ("--rows", "2000", "--runs", "2", "--workers", "1")


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def lines(directory):
    return [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]


def test_a_table_again_and_continued(tmp_path):
    out = tmp_path / "out"
    made = command("--table", 2, *SMALL, "-o", out)
    assert made.exit_code == 0, made.output
    assert "the drop is sharper" in " ".join(made.output.split())
    first = lines(out)
    assert len(first) == 24
    assert all(set(line) >= {"cell", "run", "seed", "seconds", "versions"} for line in first)
    typed = f"python -m reproduction --table 2 --runs 2 --rows 2000 -o {out}"
    assert typed in (out / "report.md").read_text()
    again = command("--table", 2, *SMALL, "-o", out, "--json")
    assert lines(out) == first
    found = json.loads(again.stdout)
    assert found["path"] == str(out)
    assert len(found["claims"]) == 3


def test_one_cell_is_the_same_as_in_its_table(tmp_path):
    whole = json.loads(command("--cell", "bag,iso,10,0.5,random", *SMALL, "--json").stdout)
    assert [run["run"] for run in whole["runs"]] == [0, 1]
    assert whole["printed"][0] == {"table": 1, "mean": 0.0099, "sd": 0.002}
    shown = command("--cell", "bag,iso,10,0.5,random", *SMALL, "-o", tmp_path / "cell")
    assert "exact minimiser" in shown.output
    kept = lines(tmp_path / "cell")
    assert [line["values"] for line in kept] == [run["values"] for run in whole["runs"]]


def test_an_interrupted_run_says_how_to_go_on(tmp_path, monkeypatch):
    done = []

    def stop_after_two(jobs, run=module.run_piece):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(jobs)
        return run(jobs)

    monkeypatch.setattr(module, "run_piece", stop_after_two)
    out = tmp_path / "out"
    stopped = command("--table", 2, *SMALL, "-o", out)
    assert stopped.exit_code == 130
    assert "The same command goes on" in stopped.output
    kept = lines(out)
    assert len(kept) == sum(map(len, done)) > 0
    monkeypatch.undo()
    assert command("--table", 2, *SMALL, "-o", out, "-q").exit_code == 0
    assert lines(out)[: len(kept)] == kept


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--table", "6"], "1, 2, 3, 4, 5 or all"),
        (["--cell", "bag,iso"], "for example bag,iso,10,0.5,kmeans"),
        (["--cell", "bag,iso,10,0.5,random", "--rows", "1234"], "multiple of 10, and at least 340"),
        (["--cell", "bag,iso,10,0.5,super", "--rows", "340"], "multiple of 20, and at least 680"),
        (["--cell", "bag,iso,10,0.5,random", "--table", "4"], "not both"),
        (["--cell", "instance,iso,10,0.5,kmeans,1000"], "Leave the sixth field out"),
    ],
)
def test_bad_requests_are_refused(arguments, word):
    refused = command(*arguments)
    assert refused.exit_code == 2
    assert word in " ".join(refused.output.split())
    assert "Traceback" not in refused.output


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    refused = command("--table", 2, *SMALL, "-o", tmp_path)
    assert refused.exit_code == 2
    assert "no results.jsonl to continue" in " ".join(refused.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
