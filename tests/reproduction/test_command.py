import json

import pytest
from typer.testing import CliRunner

from reproduction.__main__ import app

SMALL = ("--rows", "2000", "--runs", "2", "--workers", "1")


def command(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_table_again(tmp_path):
    out = tmp_path / "out"
    made = command("--table", 2, *SMALL, "-o", out)
    assert made.exit_code == 0, made.output
    assert "the drop is sharper" in " ".join(made.output.split())
    assert len(json.loads((out / "results.json").read_text())) == 24
    typed = f"python -m reproduction --table 2 --runs 2 --rows 2000 -o {out}"
    assert typed in (out / "report.md").read_text()


def test_one_cell(tmp_path):
    shown = command("--cell", "bag,iso,10,0.5,random", *SMALL).output
    assert "printed in table 1" in shown
    assert "0.0099" in shown
    assert "exact minimiser" in shown


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
    assert "other files" in " ".join(refused.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
