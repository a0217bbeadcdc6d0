"""The benchmark of labelling budgets on a table of a few rows: every way has its figure."""

import dataclasses
import json

import numpy as np
import pytest

from bagwise.annotate.uses import USES
from bagwise.families import find_family
from benchmarks import _annotate_report as report
from benchmarks import annotate


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 2))
    labels = 3 + X @ [1.0, 2.0] + 0.3 * rng.normal(size=700)
    return annotate.Problem(
        X[:300], labels[:300], find_family("gaussian"), (-10.0, 10.0), X[300:], labels[300:], "x"
    )


def test_a_model_of_all_labels_loses_nothing_and_the_mean_everything(problem):
    best, mean = problem.scale()
    assert best == pytest.approx(0.09, rel=0.3)
    assert mean == pytest.approx(5, rel=0.3)
    nowhere = dataclasses.replace(problem, truth=problem.truth * np.nan)
    assert nowhere.loss(np.zeros(400)) == np.inf


def test_every_way_is_measured_and_shown(problem, monkeypatch, tmp_path):
    monkeypatch.setattr(annotate, "load", lambda name: problem)
    found = annotate.measure("paper", (30,), (0,))
    ways = {(row["design"], row["use"]) for row in found["measured"]}
    assert {design for design, _ in ways} >= {"rows-random", "rows-v-optimal", annotate.IN_ROUNDS}
    assert {use for design, use in ways if design == "bags-kmeans"} == {
        *USES, annotate.CHOSEN
    }  # fmt: skip
    lost = {(row["design"], row["use"]): row["lost"] for row in found["measured"]}
    assert lost["rows-random", "shrunk"] < 0.1 < lost["bags-random", "instance"]
    path = tmp_path / "results.json"
    annotate._keep(path, "paper", found)
    other = [{**row, "seed": 1} for row in found["measured"]]
    annotate._keep(path, "paper", {**found, "measured": other})
    kept = json.loads(path.read_text())["paper"]["measured"]
    assert {row["seed"] for row in kept} == {0, 1}
    report.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| rows-random |" in page
    assert (tmp_path / "paper-rows.svg").exists()
