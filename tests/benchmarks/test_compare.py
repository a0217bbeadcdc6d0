"""Ratios of today beside the kept ones, from canned results."""

import json
import subprocess
import sys

import pytest

from benchmarks import _results, compare

CUT = {"n": 1000, "bag_size": 5, "labels": "normal", "seconds": 0.1}
NOISE = {"scale": 100, "gaussian_per_second": 1}


def write(directory, name, rows):
    (directory / f"{name}.json").write_text(json.dumps({"command": "", "rows": rows}))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Kept and new results: the cut became slower by a half, the noise faster by a quarter."""
    kept, today = tmp_path / "kept", tmp_path / "today"
    kept.mkdir(), today.mkdir()
    monkeypatch.setattr(compare, "RESULTS", kept)
    write(kept, "cut", [{**CUT, "time_ratio_to_faster_peer": 0.5}])
    write(today, "cut", [{**CUT, "seconds": 9.0, "time_ratio_to_faster_peer": 0.75}])
    write(kept, "noise", [{**NOISE, "times_as_fast": 100.0}])
    write(today, "noise", [{**NOISE, "times_as_fast": 125.0}])
    return kept, today


def test_changes_are_above_one_where_it_became_worse(folders):
    kept, today = folders
    cut, noise = (
        compare.compare(name, *(_results.read_rows(name, f) for f in (today, kept))).iloc[0]
        for name in ("cut", "noise")
    )
    assert (cut.today, cut.kept, cut.change) == (0.75, 0.5, 1.5)
    assert cut.case == "n 1000, bag_size 5, normal"
    assert (noise.today, noise.kept, noise.change) == (125.0, 100.0, 0.8)


def test_one_table_and_a_status_of_zero_unless_asked(folders, capsys):
    kept, today = folders
    before = (kept / "cut.json").read_bytes()
    given = ["cut", "noise", "--today", str(today)]
    assert compare.main(given) == 0
    head, cut, noise = capsys.readouterr().out.splitlines()
    assert head.split() == ["benchmark", "case", "ratio", "today", "kept", "change"]
    assert cut.split()[-3:] == ["0.75", "0.5", "1.5"]
    assert noise.split()[-3:] == ["125", "100", "0.8"]
    assert compare.main([*given, "--fail-above", "1.3"]) == 1
    assert "1 of 2 ratios became worse" in capsys.readouterr().out
    assert compare.main([*given, "--fail-above", "1.6"]) == 0
    assert compare.main(["noise", "--today", str(today), "--fail-above", "1.01"]) == 0
    assert (kept / "cut.json").read_bytes() == before


def test_what_only_one_of_them_has_is_listed_and_never_fails(folders, capsys):
    _, today = folders
    write(today, "cut", [{**CUT, "n": 7, "time_ratio_to_faster_peer": 9.0}])
    assert compare.main(["cut", "--today", str(today), "--fail-above", "1.3"]) == 0
    _, gone, new = capsys.readouterr().out.splitlines()
    assert gone.split()[-3:] == ["-", "0.5", "-"]
    assert new.split()[-3:] == ["9", "-", "-"]


def test_cases_that_look_the_same_are_told_apart_by_their_order():
    rows = [{**NOISE, "times_as_fast": 10.0}, {**NOISE, "times_as_fast": 20.0}]
    lines = compare.compare("noise", rows, rows)
    assert lines[["case", "change"]].to_numpy().tolist() == [
        ["scale 100", 1.0],
        ["scale 100 (2)", 1.0],
    ]


def test_a_benchmark_without_ratios_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        compare.main(["private"])
    assert stop.value.code == 2
    assert "no ratios in private" in capsys.readouterr().err


def test_every_kept_ratio_is_there():
    """Fields that a benchmark renames must be renamed in the comparison, too."""
    for name, compared in compare.COMPARED.items():
        rows = _results.read_rows(name)
        assert {*compared.keys, *compared.ratios} <= {field for row in rows for field in row}, name
        lines = compare.compare(name, rows, rows)
        assert set(lines.change) == {1.0}


def test_a_run_writes_where_it_is_told(tmp_path):
    """The process of a benchmark keeps its results in the directory that the variable names."""
    code = "from benchmarks._results import keep; keep('made up', [{'ratio': 1.0}])"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        env={"PATH": "", _results.RESULTS_VARIABLE: str(tmp_path)},
        cwd=_results.__file__.removesuffix("benchmarks/_results.py"),
    )
    assert _results.read_rows("made up", tmp_path) == [{"ratio": 1.0}]
