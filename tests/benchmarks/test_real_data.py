import warnings

import numpy as np
import pytest
from sklearn import metrics

import bagwise as bw
from bagwise.privacy.calibrate import ExactCalibration
from benchmarks import _real_scores as scores
from benchmarks import _real_ways as ways
from benchmarks import real_data

ONCE = ways.Repeats(most=1, slow=1, kmeans=1, slow_sizes=(20,))


# Scores


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    means = rng.uniform(0.5, 5, size=200)
    counts = rng.poisson(means).astype(float)
    marks = (rng.random(200) < 0.4).astype(float)
    chances = rng.uniform(0.1, 0.9, size=200)
    assert scores.score("poisson", counts, means)["loss"] == pytest.approx(
        metrics.mean_poisson_deviance(counts, means)
    )
    assert scores.score("bernoulli", marks, chances)["loss"] == pytest.approx(
        metrics.log_loss(marks, chances)
    )
    assert scores.score("gaussian", counts, means)["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(counts, means)
    )


def test_share_kept_is_one_at_the_floor_and_negative_beyond_the_ceiling():
    assert scores.kept(2.0, floor=2.0, ceiling=10.0) == 1
    assert scores.kept(10.0, floor=2.0, ceiling=10.0) == 0
    assert scores.kept(18.0, floor=2.0, ceiling=10.0) == -1


def test_standard_error_of_a_mean():
    assert scores.mean_and_error([1.0, 3.0]) == (2.0, 1.0)
    assert scores.mean_and_error([1.0]) == (1.0, None)
    assert scores.mean_and_error([1.0, np.inf])[1] is None


# Ways


def test_bags_made_before_are_those_of_the_strategy(data):
    again = [
        bw.make_release(
            data.train,
            label="y",
            bag_size=20,
            strategy=strategy,
            not_private=True,
            reading=bw.Reading(keep_order=True),
            bagging=bw.Bagging(seed=0),
        ).bags.index
        for strategy in (ways.MadeBefore("made up", "kmeans", 0), "kmeans")
    ]
    np.testing.assert_array_equal(*again)


def test_noise_on_every_label_is_the_least_that_the_accountant_accepts(data):
    release = bw.make_release(
        data.train, label="y", bag_size=1, strategy="random", epsilon=1.0, delta=ways.DELTA,
        bounds=data.bounds,
    )  # fmt: skip
    event = ExactCalibration(1.0, ways.DELTA, data.bounds).bag_means()
    np.testing.assert_allclose(release.noise_sd, event.number_sd, rtol=1e-12)


def test_every_way_predicts_all_held_out_rows(data):
    chosen = [
        *ways.reference_ways(data),
        *ways.exact_ways(data, sizes=[10, 20], repeats=ONCE),
        *ways.private_ways(data, 4.0, sizes=[20], repeats=ONCE),
    ]
    assert {ways.KMEANS, ways.PLANNER, ways.MODEL, ways.PICKS} < {way.name for way in chosen}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        rows = [real_data._measure(data, way) for way in chosen]
    real_data._add_shares(rows)
    assert all(np.isfinite(row["kept"]) for row in rows)
    shares = {row["way"]: row["kept"] for row in rows}
    assert shares[ways.TRUE] == 1
    assert shares[ways.MEAN] == 0
    exact = [row["kept"] for row in rows if row["way"] == ways.KMEANS and row["epsilon"] is None]
    assert 0.9 < max(exact) < 1.1
