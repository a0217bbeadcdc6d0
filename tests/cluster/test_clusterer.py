"""SizeConstrainedKMeans as a scikit-learn clusterer."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise import SizeConstrainedKMeans


@parametrize_with_checks(
    [
        SizeConstrainedKMeans(),
        SizeConstrainedKMeans(size_min=2, n_clusters=3),
        SizeConstrainedKMeans(size_min=1, effort="fast"),
    ]
)
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


def blobs(n=300, seed=0):
    return make_blobs(n_samples=n, centers=5, random_state=seed)[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"size_min": 7},
        {"size_min": 7, "size_max": 8},
        {"size_min": 20, "size_max": 60, "n_clusters": 8},
        {"size_min": 75, "size_max": 75},
        {"size_min": 300},
    ],
)
def test_what_it_found_adds_up(parameters):
    X = blobs()
    model = SizeConstrainedKMeans(**parameters, random_state=0).fit(X)
    sizes = np.bincount(model.labels_)
    assert np.array_equal(sizes, model.cluster_sizes_)
    assert sizes.min() >= parameters["size_min"]
    assert sizes.max() <= parameters.get("size_max", 2 * parameters["size_min"] - 1)
    assert sizes.size == parameters.get("n_clusters", sizes.size)
    means = np.array([X[model.labels_ == a].mean(axis=0) for a in range(sizes.size)])
    assert np.allclose(model.cluster_centers_, means)
    assert model.inertia_ == pytest.approx(np.sum((X - means[model.labels_]) ** 2))


@pytest.mark.parametrize("seed", range(3))
def test_wide_limits_are_as_good_as_k_means(seed):
    X, _ = make_blobs(n_samples=[50, 400, 300, 150], cluster_std=1.0, random_state=seed)
    peer = KMeans(4, n_init=10, random_state=0).fit(X)
    model = SizeConstrainedKMeans(size_min=5, n_clusters=4, random_state=0).fit(X)
    assert model.inertia_ <= 1.01 * peer.inertia_


def test_predict_is_the_nearest_centre():
    X, new = blobs(), np.random.default_rng(0).normal(size=(50, 2)) * 5
    model = SizeConstrainedKMeans(size_min=10, random_state=0).fit(X)
    distances = np.sum((new[:, None] - model.cluster_centers_) ** 2, axis=2)
    assert np.array_equal(model.predict(new), distances.argmin(axis=1))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"size_min": 400}, "300.*400"),
        ({"size_min": 10, "n_clusters": 40}, "400"),
        ({"size_min": 2, "size_max": 3, "n_clusters": 5}, "10 to 15"),
        ({"size_min": 9, "size_max": 3}, "below"),
    ],
)
def test_impossible_requests_say_why(parameters, words):
    with pytest.raises(ValueError, match=words):
        SizeConstrainedKMeans(**parameters).fit(blobs())


def test_sparse_rows_and_pipelines():
    rng = np.random.default_rng(0)
    X = sparse.random_array((300, 200), density=0.05, random_state=rng, format="csr")
    model = SizeConstrainedKMeans(size_min=10, random_state=0).fit(X)
    assert model.cluster_sizes_.min() >= 10
    dense = X.toarray() - model.cluster_centers_[model.labels_]
    assert model.inertia_ == pytest.approx(np.sum(dense**2))
    assert np.array_equal(model.predict(X), model.predict(X.toarray()))
    steps = make_pipeline(StandardScaler(), SizeConstrainedKMeans(size_min=10, random_state=0))
    assert np.bincount(steps.fit_predict(blobs())).min() >= 10


def test_jobs_do_not_change_labels(monkeypatch):
    from bagwise.cluster import workers

    monkeypatch.setattr(workers, "ROWS_WORTH_A_THREAD", 0)
    X = blobs(2000)
    one, three = (
        SizeConstrainedKMeans(size_min=10, random_state=0, n_jobs=jobs).fit(X).labels_
        for jobs in (1, 3)
    )
    assert np.array_equal(one, three)


def test_a_time_budget_holds_for_all_starts():
    X = np.random.default_rng(0).normal(size=(3000, 4))
    model = SizeConstrainedKMeans(size_min=10, n_clusters=100, time_budget=1e-6, random_state=0)
    assert model.fit(X).cluster_sizes_.min() >= 10


def test_centres_have_the_precision_of_the_rows():
    X = np.random.default_rng(0).normal(size=(60, 2))
    for kind in (np.float32, np.float64):
        model = SizeConstrainedKMeans(size_min=5, random_state=0).fit(X.astype(kind))
        assert model.cluster_centers_.dtype == kind
