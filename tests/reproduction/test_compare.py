import numpy as np
import pandas as pd
import pytest

from bagwise.errors import BagwiseError
from reproduction.compare import compare
from tests.reproduction.test_command import command


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    town = rng.choice(["Bonn", "Oslo"], 3000)
    y = x @ [3.0, 2.0, 1.0] + 2 * (town == "Oslo") + rng.normal(size=3000)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "town": town, "y": y})


def test_ways_are_ranked_as_theory_has_it(frame):
    found = compare(frame, label="y", bag_sizes=[10], runs=3)
    kept = {(one.strategy, one.loss): one.kept.mean for one in found}
    assert len(kept) == 12
    assert kept["kmeans", "bag"] > 0.97
    assert kept["random", "bag"] > 0.9
    assert kept["random", "instance"] < 0.4  # E9: slopes shrink to about 1/10
    assert kept["sorted", "instance"] > 0.97
    assert kept["sorted", "bag"] < kept["sorted", "instance"]  # E8: slopes are too steep
    again = compare(frame, label="y", bag_sizes=[10], runs=3)
    assert [one.kept.mean for one in again] == [one.kept.mean for one in found]


def test_one_command(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    shown = command("--data", tmp_path / "t.csv", "--label", "y", "--runs", 2)
    assert shown.exit_code == 0, shown.output
    assert "kmeans" in shown.output
    assert command("--data", tmp_path / "t.csv").exit_code == 2


def test_what_cannot_be_compared_is_refused(frame):
    for wrong in ({"label": "town"}, {"label": "y", "losses": ["mixture"]},
                  {"label": "y", "strategies": ["best"]}, {"label": "z"}):  # fmt: skip
        with pytest.raises(BagwiseError):
            compare(frame, **wrong)
    with pytest.raises(BagwiseError, match="every row"):
        compare(frame.assign(y=frame.y.where(frame.y > 0)), label="y")
