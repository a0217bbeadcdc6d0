import itertools

import numpy as np
import pytest

from bagwise.cluster.swapping import change_inverse, lower_trace, swap_between
from tests.cluster import reference


def rows_of(seed, n=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(0.3, 3, d)
    return X - X.mean(axis=0)


def labels_of(seed, n=60, clusters=9):
    return np.random.default_rng(1000 + seed).permutation(np.arange(n) % clusters)


@pytest.mark.parametrize("seed", range(20))
def test_the_inverse_is_updated_if_and_only_if_its_trace_falls(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(6, 4))
    M = root.T @ root
    accepted = 0
    for _ in range(20):
        e, h = 0.4 * rng.normal(size=(2, 4))
        changed = M + np.outer(e, h) + np.outer(h, e)
        P = np.linalg.inv(M)
        before = P.copy()
        lowers = change_inverse(P, e, h, *np.empty((2, 4)))
        is_positive = np.linalg.eigvalsh(changed)[0] > 0
        falls = is_positive and np.trace(np.linalg.inv(changed)) < np.trace(before)
        assert lowers == falls
        expected = np.linalg.inv(changed) if falls else before
        assert np.allclose(P, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
        accepted += falls
    assert 0 < accepted < 20


def test_a_change_that_makes_the_scatter_singular_is_refused():
    P, e = np.eye(2), np.array([1.0, 0.0])
    # M = I loses all of its first direction by e h' + h e' with h = -e/2.
    assert not change_inverse(P, e, -0.5 * e, *np.empty((2, 2)))
    assert np.array_equal(P, np.eye(2))


def sweep(X, labels, visits=3, pairs=None):
    """State after one sweep over all pairs, and the number of swaps."""
    clusters = labels.max() + 1
    P = np.linalg.inv(reference.scatter_of(X, labels))
    blocks = reference.pack(X @ P, labels, clusters, 0)
    rows, means = X[blocks.ids], reference.centres_of(X, labels, clusters)
    pairs = np.array(pairs or list(itertools.combinations(range(clusters), 2)), dtype=np.int32)
    swaps = swap_between(pairs, blocks, rows, means, P, visits)
    return reference.labels_in(blocks, labels.size), rows, means, P, blocks, swaps


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_on_the_way_is_what_it_would_be_from_scratch(seed):
    X, labels = rows_of(seed), labels_of(seed)
    found, rows, means, P, blocks, swaps = sweep(X, labels)
    assert swaps > 5
    assert np.array_equal(np.bincount(found), np.bincount(labels))
    assert np.array_equal(rows, X[blocks.ids])
    assert np.allclose(means, reference.centres_of(X, found, 9), atol=1e-10)
    expected = np.linalg.inv(reference.scatter_of(X, found))
    assert np.allclose(P, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert np.trace(P) < reference.trace_of(X, labels)
    images = X @ np.linalg.inv(reference.scatter_of(X, labels))
    assert np.array_equal(blocks.rows, images[blocks.ids])
    assert np.allclose(blocks.centres, reference.centres_of(images, found, 9), atol=1e-10)


def test_the_swap_that_is_made_lowers_the_trace_and_gains_most_by_the_metric_of_its_gradient():
    made = 0
    for seed in range(60):
        X, labels = rows_of(seed, n=12, d=2), labels_of(seed, n=12, clusters=3)
        images = X @ np.linalg.inv(reference.scatter_of(X, labels))
        found, *_, swaps = sweep(X, labels, visits=1, pairs=[(0, 1)])
        rows = labels < 2
        changes = []
        for two in reference.changes_of(labels[rows], 12, 12):  # sizes that allow swaps only
            changed = labels.copy()
            changed[rows] = two
            changes.append(changed)
        gains = [
            reference.spread(images, labels) - reference.spread(images, changed)
            for changed in changes
        ]
        best = changes[int(np.argmax(gains))]
        pays = max(gains) > 1e-9 and reference.trace_of(X, best) < reference.trace_of(X, labels)
        assert swaps == pays
        assert np.array_equal(found, best if pays else labels)
        made += pays
    assert 10 < made < 60


@pytest.mark.parametrize("threads", [1, 2])
def test_sweeps_lower_the_trace_and_keep_sizes(threads):
    X = rows_of(0, n=500, d=4)
    labels = np.sort(np.random.default_rng(0).integers(0, 40, size=500))
    labels = np.unique(labels, return_inverse=True)[1]
    given_labels = labels.copy()
    traces = [reference.trace_of(X, labels)]
    for sweeps in (0, 1, 5):
        found = lower_trace(X, labels, sweeps=sweeps, seed=0, threads=threads)
        assert np.array_equal(np.bincount(found), np.bincount(labels))
        traces.append(reference.trace_of(X, found))
    assert np.array_equal(labels, given_labels)
    assert traces[0] == traces[1]
    assert traces[2] < 0.7 * traces[0]
    assert traces[3] < traces[2]


def test_the_trace_does_not_rise_where_the_start_is_good():
    for seed in range(5):
        X = rows_of(seed, n=200, d=2)
        labels = np.empty(200, dtype=np.int64)
        labels[np.argsort(X[:, 1])] = np.arange(200) // 10
        found = lower_trace(X, labels, sweeps=10, seed=seed)
        assert reference.trace_of(X, found) <= reference.trace_of(X, labels)
        again = lower_trace(X, found, sweeps=10, seed=seed)
        assert reference.trace_of(X, again) <= reference.trace_of(X, found) * (1 + 1e-12)


@pytest.mark.parametrize("power", [-200, -80, -30, 30, 80, 200])
def test_the_unit_of_the_rows_does_not_matter(power):
    X, labels = rows_of(3, n=100), labels_of(3, n=100)
    one, other = (lower_trace(unit * X, labels, sweeps=4, seed=0) for unit in (1.0, 2.0**power))
    assert np.array_equal(one, other)
    assert not np.array_equal(one, labels)


@pytest.mark.parametrize(
    "labels", [np.zeros(60, dtype=int), np.arange(60) % 3], ids=["one cluster", "too few clusters"]
)
def test_labels_stay_where_the_means_do_not_span_the_columns(labels):
    X = rows_of(0, d=3)
    # Three means that add up to zero span two directions.
    assert np.linalg.matrix_rank(reference.scatter_of(X, labels), tol=1e-9) < 3
    assert lower_trace(X, labels, sweeps=5, seed=0) is labels
