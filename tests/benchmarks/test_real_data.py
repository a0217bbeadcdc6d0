import dataclasses
import warnings

import numpy as np
import pytest
from sklearn import metrics

import bagwise as bw
from bagwise.privacy.calibrate import ExactCalibration
from benchmarks import _real_report as report
from benchmarks import _real_scores as scores
from benchmarks import _real_ways as ways
from benchmarks import real_data
from tests import stats

ONCE = ways.Repeats(most=1, slow=1, kmeans=1, slow_sizes=(20,))


def record(way, *, epsilon=1.0, share=0.5, size=10, noise=ways.GAUSSIAN):
    return {
        "way": way, "epsilon": epsilon, "bag_size": size, "noise": noise, "kept": share,
        "kept_se": 0.01, "mean": 2.0, "se": 0.1, "rmse": 2.0, "repeats": 3, "choice": "",
    }  # fmt: skip


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
            keep_order=True,
            seed=0,
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
    np.testing.assert_allclose(release.noise_sd, event.sum_sd, rtol=1e-12)


def test_every_way_predicts_all_held_out_rows(data):
    chosen = [
        *ways.reference_ways(data),
        *ways.exact_ways(data, sizes=[10, 20], repeats=ONCE),
        *ways.private_ways(data, 4.0, sizes=[20], repeats=ONCE),
    ]
    assert {way.name for way in chosen} == {*report.KINDS, ways.PICKS, ways.TRUE, ways.MEAN}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        rows = [real_data._measure(data, way) for way in chosen]
    real_data._add_shares(rows)
    assert all(np.isfinite(row["kept"]) for row in rows)
    shares = {row["way"]: row["kept"] for row in rows}
    assert shares[ways.TRUE] == 1
    assert shares[ways.MEAN] == 0
    exact = report.best(report.of(rows, ways.KMEANS, epsilon=None))
    assert exact is not None
    assert 0.9 < exact["kept"] < 1.1


def test_other_labels_leave_the_features_alone(data):
    other = data.with_labels(np.zeros(400), np.ones(100))
    assert not other.labels.any()
    assert other.held_out.all()
    np.testing.assert_array_equal(other.encoded[0], data.encoded[0])


def test_few_large_bags_keep_more_where_the_linear_model_is_true(data):
    rng = np.random.default_rng(2)
    X, held_out = data.encoded
    bent = [np.exp(part[:, 0]) + 0.1 * rng.normal(size=len(part)) for part in (X, held_out)]
    curved = data.with_labels(*bent)
    chosen = [
        *ways.reference_ways(curved),
        *ways.bag_ways(curved, sizes=[10], repeats=ONCE),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        rows = [real_data._measure(curved, way) for way in chosen]
        made_linear = real_data._linear_twin(curved, quick=True)
    real_data._add_shares(rows)
    real, twin = (
        report.best(report.of(found, ways.ALIGNED, bag_size=10)) for found in (rows, made_linear)
    )
    assert real["kept"] < twin["kept"]


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_labels_by_the_model_have_its_means(data, family):
    rng = np.random.default_rng(3)
    X, held_out = data.encoded
    eta = 0.3 + X @ [0.5, -0.5]
    drawn = {
        "gaussian": eta + rng.normal(size=eta.size),
        "poisson": rng.poisson(np.exp(eta)),
        "bernoulli": rng.random(eta.size) < 1 / (1 + np.exp(-eta)),
    }[family].astype(float)
    known = dataclasses.replace(data.with_labels(drawn, np.zeros(100)), family=family)
    model = bw.BaggedGLM(family).fit(X, drawn)
    many = [real_data._labels_by_model(known, np.random.default_rng(i)) for i in range(200)]
    for place, rows in enumerate((X, held_out)):
        off = [np.mean(labels[place] - model.predict(rows)) for labels in many]
        if (family, place) == ("gaussian", 0):  # shuffled, residuals keep their sum
            np.testing.assert_allclose(off, np.mean(drawn - model.predict(rows)), atol=1e-9)
        else:
            assert stats.mean_is(off, 0)
            assert not stats.mean_is(off, 0.1)


# Page


def test_the_best_row_is_the_one_that_keeps_most():
    rows = [record(ways.KMEANS, share=share, size=size) for share, size in ((0.2, 10), (0.9, 50))]
    assert report.best([*rows, {**rows[0], "kept": None}]) is rows[1]
    assert report.best([]) is None


def test_the_page_tells_where_other_ways_win():
    rows = [
        record(ways.TRUE, epsilon=None, share=1.0),
        record(ways.MEAN, epsilon=None, share=0.0),
        record(ways.KMEANS, share=0.8),
        record(ways.KMEANS, share=0.85, noise=ways.LAPLACE),
        record(ways.PLANNER, share=0.7, size=None),
        record(ways.MODEL, share=0.9, size=None),
    ]
    table = {
        "about": "About.", "source": "somewhere", "rows_to_learn_from": 10, "rows_held_out": 2,
        "columns_of_X": 3, "label": "y", "family": "gaussian", "bounds": [0, 1], "clipped": 0,
        "processor_seconds": 60.0, "rows": rows,
    }  # fmt: skip
    page = report.page({"tables": {"t": table}, "packages": {}, "python": "3", "command": "python"})
    assert "keeps more than the best bags in 1 of 1 cases (t at 1)" in page
    assert "the worst is t at epsilon 1, 15.0 points" in page.replace("\n  ", " ")
    assert "in 1 of 1 settings with the same bags" in page.replace("\n  ", " ")
    assert "85.0 ± 1.0 (10, Laplace)" in page
    assert "1 bags of 10 for 4 coefficients" in page.replace("\n  ", " ")
    assert ">>>" not in page
    assert all(len(line) <= 100 for line in page.split("\n") if not line.startswith("|"))
