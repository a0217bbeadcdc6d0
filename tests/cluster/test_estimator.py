import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise.cluster import estimator, state
from bagwise.cluster.estimator import SizeConstrainedKMeans
from tests.cluster import reference


def rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def check(model, X, least, most):
    """What was fitted follows from the labels, and sizes are in range."""
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
    clusters = model.cluster_sizes_.size
    assert model.labels_.shape == (dense.shape[0],)
    assert np.array_equal(np.bincount(model.labels_, minlength=clusters), model.cluster_sizes_)
    assert least <= model.cluster_sizes_.min()
    assert model.cluster_sizes_.max() <= most
    centres = reference.centres_of(dense, model.labels_, clusters)
    assert np.allclose(model.cluster_centers_, centres, rtol=1e-6, atol=1e-9)
    spread = reference.spread(dense, model.labels_)
    assert model.inertia_ == pytest.approx(spread, rel=1e-6, abs=1e-9)


@st.composite
def requests(draw):
    n, d = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    size_min = draw(st.integers(1, n))
    most_clusters = n // size_min
    n_clusters = draw(st.one_of(st.none(), st.integers(1, most_clusters)))
    clusters = most_clusters if n_clusters is None else n_clusters
    size_max = draw(st.one_of(st.none(), st.integers(-(-n // clusters), n)))
    X = np.random.default_rng(draw(st.integers(0, 10**6))).normal(size=(n, d))
    kind = draw(st.sampled_from(["normal", "duplicates", "equal", "int", "float32"]))
    if kind == "duplicates":
        X = np.round(X)
    if kind == "equal":
        X[:] = 0.1
    if kind == "int":
        X = np.round(3 * X).astype(int)
    if kind == "float32":
        X = X.astype(np.float32)
    return X, size_min, size_max, n_clusters


@settings(max_examples=60)
@given(requests(), st.sampled_from(["fast", "default"]))
def test_any_request_that_can_be_met_is_met(request_, effort):
    X, size_min, size_max, n_clusters = request_
    model = SizeConstrainedKMeans(size_min, size_max, n_clusters, effort=effort, random_state=0)
    model.fit(X)
    n = X.shape[0]
    usual = n if n_clusters is not None else max(2 * size_min - 1, n)
    check(model, X, size_min, usual if size_max is None else size_max)
    if n_clusters is not None:
        assert model.cluster_sizes_.size == n_clusters


def test_by_default_there_are_about_as_many_clusters_as_fit():
    for n, size_min in ((200, 5), (103, 10), (29, 10), (7, 7)):
        model = SizeConstrainedKMeans(size_min, random_state=0).fit(rows(n))
        check(model, rows(n), size_min, 2 * size_min - 1)
        assert 0.95 * (n // size_min) - 1 <= model.cluster_sizes_.size <= n // size_min


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_the_same_seed_gives_the_same_labels_and_another_one_others(effort):
    X = rows()
    one, again, other = (
        SizeConstrainedKMeans(5, effort=effort, random_state=seed).fit(X).labels_
        for seed in (3, 3, 4)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    random = np.random.RandomState(3)
    drawn = [SizeConstrainedKMeans(5, effort=effort, random_state=random).fit(X) for _ in range(2)]
    assert np.array_equal(drawn[0].labels_, one)
    assert not np.array_equal(drawn[1].labels_, one)


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("chunk", [7, 65_536])
def test_rows_are_predicted_to_their_nearest_centre(offset, chunk, monkeypatch):
    monkeypatch.setattr(estimator, "CHUNK", chunk)
    X, new = rows(300) + offset, rows(100, seed=1) + offset
    model = SizeConstrainedKMeans(3, effort="fast", random_state=0).fit(X)
    check(model, X, 3, 5)
    distances = np.sum((new[:, None] - model.cluster_centers_) ** 2, axis=2)
    found = distances[np.arange(100), model.predict(new)]
    assert np.allclose(found, distances.min(axis=1), rtol=1e-6)
    if offset == 0:
        assert np.array_equal(model.predict(new), distances.argmin(axis=1))


@pytest.mark.parametrize("columns", [20, 300])
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_sparse_rows_give_what_dense_ones_would(columns, form):
    X = sparse.random_array((150, columns), density=0.1, random_state=np.random.default_rng(0))
    model = SizeConstrainedKMeans(5, effort="fast", random_state=0).fit(form(X))
    check(model, X, 5, 9)
    assert isinstance(model.cluster_centers_, np.ndarray)
    assert np.array_equal(model.predict(form(X)), model.predict(X.toarray()))


def test_single_precision_is_as_good():
    X = rows(400)
    double, single = (
        SizeConstrainedKMeans(8, 8, effort="fast", random_state=0).fit(X.astype(kind))
        for kind in (np.float64, np.float32)
    )
    check(single, X.astype(np.float32), 8, 8)
    dtypes = [model.cluster_centers_.dtype.name for model in (double, single)]
    assert dtypes == ["float64", "float32"]
    assert single.inertia_ == pytest.approx(double.inertia_, rel=0.02)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_the_unit_does_not_matter(unit):
    X = rows(400)
    one = SizeConstrainedKMeans(8, 8, random_state=0).fit(X)
    other = SizeConstrainedKMeans(8, 8, random_state=0).fit(unit * X)
    assert reference.spread(X, other.labels_) < 1.02 * one.inertia_


def test_starts_from_k_means_find_unequal_clusters_that_bisection_cuts(monkeypatch):
    found = {}
    for starts in (0, estimator.KMEANS_STARTS):
        monkeypatch.setattr(estimator, "KMEANS_STARTS", starts)
        found[starts] = 0.0
        for seed in range(3):
            rng = np.random.default_rng(seed)
            true = np.concatenate([np.repeat(np.arange(15), 5), rng.geometric(0.2, 500) % 15])
            X = 10 * rng.normal(size=(15, 2))[true] + 0.5 * rng.normal(size=(575, 2))
            model = SizeConstrainedKMeans(5, n_clusters=15, random_state=0).fit(X)
            check(model, X, 5, 575)
            found[starts] += model.inertia_
    without, with_them = found.values()
    assert with_them < 0.8 * without


def test_a_far_centre_costs_the_others_no_digits():
    # Ten groups one apart, and one so far that single precision could not tell them apart.
    true = np.repeat(np.arange(11), 6)
    X = np.where(true < 10, true, 1e9)[:, None] + np.tile(np.linspace(-0.1, 0.1, 6), 11)[:, None]
    X = np.hstack([X, -X])
    model = SizeConstrainedKMeans(6, 6, random_state=0).fit(X)
    groups = model.labels_.reshape(11, 6)
    assert np.all(groups == groups[:, :1])
    assert np.array_equal(model.predict(X), model.labels_)


def test_jobs_do_not_change_labels(monkeypatch):
    monkeypatch.setattr(state, "ROWS_WORTH_A_THREAD", 0)
    X = rows(2000, 4)
    one, three = (
        SizeConstrainedKMeans(10, effort="fast", random_state=0, n_jobs=jobs).fit(X)
        for jobs in (1, 3)
    )
    assert np.array_equal(one.labels_, three.labels_)
    assert np.array_equal(one.predict(X), three.predict(X))


@parametrize_with_checks(
    [
        SizeConstrainedKMeans(),
        SizeConstrainedKMeans(size_min=2, n_clusters=3, effort="fast"),
    ]
)
def test_it_is_a_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("seed", range(3))
def test_wide_limits_are_as_good_as_k_means(seed):
    X, _ = make_blobs(n_samples=[50, 400, 300, 150], cluster_std=1.0, random_state=seed)
    peer = KMeans(4, n_init=10, random_state=0).fit(X)
    model = SizeConstrainedKMeans(size_min=5, n_clusters=4, random_state=0).fit(X)
    assert model.inertia_ <= 1.01 * peer.inertia_


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        *(({name: wrong}, name) for name, wrong in (
            ("size_min", 0), ("size_max", 0), ("n_clusters", 0), ("effort", "hard"),
            ("n_jobs", 0), ("size_min", 2.5),
        )),
        ({"size_min": 400}, "300.*400"),
        ({"size_min": 10, "n_clusters": 40}, "400"),
        ({"size_min": 2, "size_max": 3, "n_clusters": 5}, "10 to 15"),
        ({"size_min": 9, "size_max": 3}, "below"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_says_why(parameters, words):
    with pytest.raises(ValueError, match=words):
        SizeConstrainedKMeans(**parameters).fit(rows(300))
