import warnings

import numpy as np
import pytest
from scipy import stats as scipy_stats

import bagwise as bw
from bagwise.requests.records import filed
from bagwise.rng import SecureNoise, SimulatedNoise
from benchmarks import defaults
from benchmarks._redrawn import can_be_redrawn, redrawn
from tests import stats

DRAWS = 400


@pytest.fixture(autouse=True)
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        yield


# Noise that is drawn again


def test_redrawn_noise_is_that_of_a_release_made_anew(data):
    design, exact = defaults.Design("kmeans", 40), data.clipped
    release = design.release(data, 1.0, partition=0)
    means = release.bags.mean(exact)

    again = np.array(
        [redrawn(release, data.labels, SecureNoise()).labels - means for _ in range(DRAWS)]
    )
    anew = np.array(
        [design.release(data, 1.0, partition=0).labels - means for _ in range(DRAWS // 8)]
    )

    standard = again / release.noise_sd
    assert stats.mean_is(standard.ravel(), 0)
    assert stats.mean_is(standard.ravel() ** 2, 1)
    assert not stats.mean_is(standard.ravel() ** 2, 1.4)
    alike = scipy_stats.ks_2samp(again.ravel(), anew.ravel())
    assert alike.pvalue > stats.ALPHA


def test_redrawn_releases_keep_their_bags_and_repeat_by_seed(data):
    release = defaults.Design("kmeans", 40).release(data, 4.0, partition=0)
    first, second, other = (
        redrawn(release, data.labels, SimulatedNoise(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.labels, second.labels)
    assert (first.labels != other.labels).any()
    assert first.bags is release.bags


@pytest.mark.parametrize(
    "asked",
    [{"keep_order": False}, {"strategy": "sorted", "scores": "model"}, {"label_kind": "pick"}],
)
def test_only_means_of_bags_by_features_in_the_tables_order_are_redrawn(data, asked):
    options = {"keep_order": True, "strategy": "kmeans", **asked}
    release = bw.make_release(
        data.train,
        **filed(label="y", bag_size=40, bounds=data.bounds, epsilon=1.0, delta=1e-6, **options),
    )
    assert not can_be_redrawn(release)
    with pytest.raises(ValueError, match="are redrawn"):
        redrawn(release, data.labels, SecureNoise())


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


def test_rows_of_a_table_and_epsilon_replace_older_ones_and_nothing_else():
    def row(table, epsilon, draws=1):
        return {"part": "table", "table": table, "epsilon": epsilon, "draws": draws}

    paper = {"part": "paper", "way": "shortest"}
    before = [row("visits", 1.0), row("diamonds", 1.0), paper]
    found = defaults.merged(before, [row("visits", 2.0), row("diamonds", 1.0, draws=2)])
    assert found == [row("diamonds", 1.0, 2), row("visits", 1.0), row("visits", 2.0), paper]
