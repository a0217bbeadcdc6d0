"""Tables that nobody picked: which labels are taken, and what is measured of them."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import _many_tables as found
from benchmarks import many_tables as benchmark


def frame(n=6000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return pd.DataFrame(
        {
            "rownames": np.arange(n),
            "a": X[:, 0],
            "b": X[:, 1],
            "c": X[:, 2],
            "total": X @ [3.0, 2.0, 1.0] + rng.normal(size=n) + 40.0,
            "kind": rng.choice(["x", "y"], n),
            "remark": [f"row {i}" for i in range(n)],
        }
    )


def test_names_and_remarks_are_no_columns():
    assert list(found.usable_columns(frame())) == ["a", "b", "c", "total", "kind"]


def test_the_label_is_one_that_can_be_learnt_and_the_same_every_time():
    labels = {found.with_label("some.table", found.usable_columns(frame())).label for _ in "ab"}
    assert len(labels) == 1
    noise = frame().assign(total=np.random.default_rng(1).normal(size=6000))
    assert found.with_label("some.table", found.usable_columns(noise)) is None


def classes(n=1500, kinds=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    told = np.argmax(X @ rng.normal(size=(3, kinds)) + rng.gumbel(size=(n, kinds)), axis=1)
    made = pd.DataFrame(X, columns=list("abc"))
    if kinds == 2:
        return found.cut("made up", made.assign(y=told), "y", "bernoulli")
    return found.cut("made up", made.assign(y=np.array(list("pqr"))[told]), "y", "multinomial")


@pytest.mark.parametrize("kinds", [2, 3])
def test_the_shortest_command_is_measured_beside_a_few_named_bags(kinds, monkeypatch):
    monkeypatch.setattr(benchmark, "DESIGNS", (("kmeans", 10), ("random", 100)))
    (row,) = benchmark.measure_classes(classes(kinds=kinds), epsilons=[8.0], draws=1)
    assert row["which"] == "kmeans 10"
    assert row["kept"] == pytest.approx(100, abs=25)
    assert row["others"]["random 100"] < row["best"]
    assert benchmark.judge_classes([row])["cells"] == 1


def test_noise_is_measured_beside_that_without_queries():
    made = frame()
    made["total"] = made["a"] + made["b"]  # that much signal pays
    table = found.cut("made up", found.usable_columns(made), "total", "gaussian")
    row = benchmark.measure_queries(table, 4.0, draws=2)
    assert row["tried"]
    assert row["centred"] == 2
    assert row["noise"] < 0.6
    (together,) = benchmark.judge_queries([row])
    assert together["most"] == row["most"]
