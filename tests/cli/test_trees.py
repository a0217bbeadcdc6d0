"""`bagwise fit --model boosted`, and what reads its file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from tools.settings import filed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a table, and a release of it."""
    path = tmp_path_factory.mktemp("trees")
    rng = np.random.default_rng(0)
    x, city = rng.uniform(-2, 2, 400), rng.choice(["Bonn", "Pune", "Oslo"], 400)
    rent = 500 + 100 * np.abs(x) + 80 * (city == "Pune")
    table = pa.table({"x": x, "city": city, "rent": rent})
    pcsv.write_csv(table, path / "rents.csv")
    options = {"bag_size": 5, "strategy": "random", "not_private": True, "seed": 0}
    bw.make_release(table, **filed(label="rent", **options)).save(path / "out")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_fit_predict_and_evaluate(folder):
    done = run("fit", folder / "out", "--model", "boosted", "-o", folder / "trees.json", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said["trees"] == bw.load_model(folder / "trees.json").n_trees
    assert {way["start"] for way in said["ways"]} == {"constant", "glm"}
    done = run("predict", folder / "trees.json", folder / "rents.csv", "-o", folder / "p.csv")
    assert done.exit_code == 0, done.output
    assert pcsv.read_csv(folder / "p.csv").num_rows == 400
    for data in ("rents.csv", "out"):
        done = run("evaluate", folder / "trees.json", folder / data, "--json")
        assert done.exit_code == 0, done.output
        scores = json.loads(done.output)
        assert scores.get("r2", scores.get("r2_without_noise")) > 0.4


def test_what_was_tried_is_shown(folder):
    done = run("fit", folder / "out", "--model", "boosted", "-o", folder / "shown.json")
    assert done.exit_code == 0, done.output
    assert "error on held-out bags" in done.output
    assert "glm" in done.output


def test_options_of_linear_models_are_refused(folder):
    for option in (["--loss", "bag"], ["--debias"]):
        done = run("fit", folder / "out", "--model", "boosted", *option, "-o", folder / "no.json")
        assert done.exit_code == 2
        assert option[0] in done.output
    assert run("fit", folder / "out", "--model", "forest").exit_code == 2
    assert not (folder / "no.json").exists()
