import warnings

import numpy as np
import pytest
from scipy import stats as scipy_stats

import bagwise as bw
from benchmarks import defaults


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        yield


# The comparison


def test_the_grid_leaves_out_sizes_with_too_few_bags(data):
    sizes = {design.bag_size for design in defaults.grid(data) if design.strategy == "kmeans"}
    assert sizes == {10, 20}  # ten bags of 40 would still do, and 50 is the next size


def test_a_scale_gives_one_to_true_labels_and_zero_to_their_mean(data):
    scale = defaults.Scale.of(data)
    exact = bw.make_release(data.train, label="y", bag_size=1, strategy="random", not_private=True)
    assert scale.kept_by(exact) == pytest.approx(1)
    assert 0 < scale.floor < scale.ceiling


def test_the_shortest_command_is_compared_with_the_best_of_the_first_pass(data, monkeypatch):
    few = [defaults.Design("kmeans", 20), defaults.Design("random", 20)]
    refused = defaults.Design("kmeans", 4000)
    monkeypatch.setattr(defaults, "grid", lambda _: [*few, refused])
    row = defaults.compare(defaults.Scale.of(data), 4.0, draws=3, first_draws=2)

    means = {entry["strategy"]: entry["mean"] for entry in row["grid"] if not entry["refused"]}
    assert row["best"]["strategy"] == max(means, key=means.get)
    assert [entry["refused"] for entry in row["grid"]] == [False, False, True]
    assert len(row["shortest"]["kept"]) == len(row["best"]["kept"]) == 3
    assert row["difference"] == pytest.approx(row["shortest"]["mean"] - row["best"]["mean"])
    assert row["interval"][0] <= row["difference"] <= row["interval"][1]


def test_the_interval_of_paired_differences_is_students():
    ours, theirs = [1.0, 2.0, 3.0], [0.0, 2.0, 1.0]
    middle, interval = defaults.paired_difference(ours, theirs)
    known = scipy_stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert middle == 1
    assert interval == pytest.approx([known.low, known.high])
    assert defaults.paired_difference([1.0, -np.inf], theirs[:2]) == (None, None)
