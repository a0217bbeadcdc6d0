import json

import pyarrow.csv
import pytest
from typer.testing import CliRunner

from bagwise.cli import app
from tests.annotate.conftest import rents


def bagwise(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(flats, tmp_path):
    path = tmp_path / "flats.csv"
    pyarrow.csv.write_csv(flats, path)
    return path


def start(table, out, *more):
    return bagwise(
        "annotate", "start", table, "--label", "rent", "--budget", "40", "--exclude", "note",
        "--bounds", "0", "3000", "--seed", "1", "-o", out, *more,
    )  # fmt: skip


def fill(out, number=1):
    name = "to_label.csv" if number == 1 else f"to_label-{number}.csv"
    listed = pyarrow.csv.read_csv(out / name)
    place = listed.column_names.index("rent")
    filled = listed.set_column(place, "rent", pyarrow.array(rents(listed)))
    pyarrow.csv.write_csv(filled, out / "filled.csv")
    moved = out.parent / f"filled-{number}.csv"
    (out / "filled.csv").rename(moved)
    return moved


def test_the_whole_way(table, tmp_path):
    out, model = tmp_path / "p", tmp_path / "model.json"
    made = start(table, out)
    assert made.exit_code == 0, made.output
    words = " ".join(made.output.split())
    assert "40 rows by kmeans are in" in words
    assert "Next: bagwise annotate import" in words
    assert "40 are open" in bagwise("annotate", "status", out).output
    brought = bagwise("annotate", "import", out, fill(out))
    assert brought.exit_code == 0, brought.output
    assert "40 labels are new" in brought.output
    fitted = bagwise("annotate", "fit", out, "-o", model)
    assert fitted.exit_code == 0, fitted.output
    assert "from 40 labels" in " ".join(fitted.output.split())
    assert bagwise("predict", model, table, "-o", tmp_path / "x.csv").exit_code == 0
    more = bagwise("annotate", "next", out, "--budget", 10)
    assert more.exit_code == 0, more.output
    assert "to_label-2.csv" in " ".join(more.output.split())
    assert bagwise("annotate", "import", out, fill(out, 2)).exit_code == 0


def test_machines_get_json_and_nothing_else(table, tmp_path):
    out = tmp_path / "p"
    made = json.loads(start(table, out, "--json", "--design", "random").output)
    assert made == {
        "path": str(out / "to_label.csv"), "round": 1, "design": "random", "labels": 40
    }  # fmt: skip
    brought = json.loads(bagwise("annotate", "import", out, fill(out), "--json").output)
    assert brought == {"new": 40, "known": 0, "open": 0}
    found = json.loads(bagwise("annotate", "status", out, "--json").output)
    assert found["labelled"] == 40
    model = tmp_path / "model.json"
    fitted = json.loads(bagwise("annotate", "fit", out, "-o", model, "--json").output)
    assert fitted["labels"] == 40
    assert {"path", "coefficients"} <= set(fitted)
    more = json.loads(bagwise("annotate", "next", out, "--budget", 5, "--json").output)
    assert more["round"] == 2
    assert not bagwise("annotate", "status", out, "--quiet").output


def test_a_bad_list_is_one_line_and_exit_code_2(table, tmp_path):
    out = tmp_path / "p"
    start(table, out, "--design", "random")
    bad = tmp_path / "bad.csv"
    bad.write_text("row_id,rent\nnobody,918273\n")
    refused = bagwise("annotate", "import", out, bad)
    assert refused.exit_code == 2
    assert "line 2: no row of the project has this id" in " ".join(refused.output.split())
    assert "918273" not in refused.output
    comma = tmp_path / "comma.csv"
    asked = (out / "to_label.csv").read_text().splitlines()[1].split(",")[0]
    comma.write_text(f"row_id;area;rent\n{asked};1.5;700,5\n")
    assert bagwise("annotate", "import", out, comma).exit_code == 2
    told = bagwise("annotate", "import", out, comma, "--read", "decimal=,")
    assert told.exit_code == 0, told.output


def test_every_verb_has_help_with_an_example():
    for verb in ("start", "import", "status", "fit", "next"):
        shown = bagwise("annotate", verb, "--help")
        assert shown.exit_code == 0
        assert f"bagwise annotate {verb}" in " ".join(shown.output.split())
