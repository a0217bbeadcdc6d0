"""`bagwise audit`: what it prints and how it ends."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")

FEW = ["--draws", "6000"]


@pytest.fixture
def place(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=600), "y": 0.2 + 0.6 * rng.random(600)})
    pq.write_table(table, tmp_path / "table.parquet")
    shape = {"label": "y", "bag_size": 10, "strategy": "random", "bounds": (0, 1)}
    bw.make_release(table, **shape, epsilon=1.0).save(tmp_path / "private")
    bw.make_release(table, **shape, not_private=True).save(tmp_path / "open")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_a_private_release_is_green(place):
    found = run(place / "private", "--labels", place / "table.parquet", *FEW)
    assert found.exit_code == 0, found.output
    assert "green" in found.output
    assert "for the custodian" in found.output
    assert "laplace-bag-means" in found.output or "staircase-bag-means" in found.output


def test_bags_that_show_labels_are_red(place):
    found = run(place / "open", "--labels", place / "table.parquet", *FEW)
    assert found.exit_code == 4
    assert "red" in found.output
    assert "can be read" in found.output
    labels = pq.read_table(place / "table.parquet")["y"].to_pylist()
    # With all six digits: 0.462 alone may be a figure of the audit.
    assert not any(f"{label:.6f}" in found.output for label in labels)


def test_machines_get_one_section_for_each_part(place):
    found = run(place / "private", "--labels", place / "table.parquet", "--json", *FEW)
    parts = json.loads(found.output)
    assert set(parts) == {"colour", "verdict", "recomputed", "mechanisms", "label_inference"}
    assert parts["recomputed"]["epsilon"] == 1.0
    assert parts["mechanisms"]["audits"][0]["verdict"] == "not refuted"
    names = [attack["name"] for attack in parts["label_inference"]["attacks"]]
    assert len(names) == 5


def test_without_labels_nothing_is_guessed(place):
    parts = json.loads(run(place / "private", "--json", *FEW).output)
    assert parts["label_inference"] is None
    assert parts["colour"] == "green"
    assert json.loads(run(place / "open", "--json", *FEW).output)["colour"] == "amber"


def test_an_edited_release_is_refused_first(place):
    path = place / "private" / "certificate.json"
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    found = run(place / "private", "--labels", place / "table.parquet", *FEW)
    assert found.exit_code == 2


def test_models_and_evaluations_are_audited_by_their_events(place):
    table = pq.read_table(place / "table.parquet")
    bw.release_model(table, label="y", bounds=(0, 1), epsilon=1.0).save(place / "model.json")
    found = run(place / "model.json", "--json", "--draws", "2000")
    assert json.loads(found.output)["mechanisms"]["audits"][0]["kind"] == "laplace-model"
    refused = run(place / "model.json", "--labels", place / "table.parquet")
    assert refused.exit_code == 2
    assert "bags only" in refused.output
