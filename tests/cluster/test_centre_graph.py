import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import arith, centre_graph
from bagwise.cluster.centre_graph import CentreGraph, exact_lists
from bagwise.cluster.state import Threads
from tests.cluster import reference


def distances_of(points, centres, *, own=False):
    distances = np.sum((points[:, None].astype(float) - centres.astype(float)) ** 2, axis=2)
    if own:
        np.fill_diagonal(distances, np.inf)
    return distances


@pytest.fixture
def approximate(monkeypatch):
    monkeypatch.setattr(centre_graph, "EXACT_CENTRES", 0)
    monkeypatch.setattr(centre_graph, "EXACT_ROWS", 0)


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_hashes_are_nonnegative_and_those_of_splitmix(a, b):
    word = 2**64
    z = (a * 0x9E3779B97F4A7C15 + b * 0xD1342543DE82EF95) % word
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % word
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % word
    assert arith.mix(a, b) == (z ^ (z >> 31)) >> 2


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9)), max_size=30),
    st.integers(1, 5),
)
def test_insertion_keeps_the_nearest_in_order_and_no_id_twice(offers, length):
    ids = np.full((3, length), -1, dtype=np.int32)
    distances = np.full((3, length), np.inf)
    lists = centre_graph.Lists(ids, distances)
    nearest = {}
    for new, distance in offers:
        nearest.setdefault(new, (distance + new / 10, new))  # an id has one distance, and no ties
        inserted = centre_graph.insert_nearest(lists, 1, new, nearest[new][0])
        assert not inserted or new in ids[1]
    expected = sorted(nearest.values())[:length]
    assert ids[1].tolist()[: len(expected)] == [new for _, new in expected]
    assert distances[1].tolist()[: len(expected)] == [distance for distance, _ in expected]
    assert np.all(ids[1, len(expected) :] == -1)
    assert np.all(ids[[0, 2]] == -1)


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 200),
    d=st.integers(1, 5),
    length=st.integers(1, 20),
    own=st.booleans(),
    guess=st.sampled_from(["none", "right", "wrong", "some"]),
    ties=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_exact_lists_are_those_of_brute_force_whatever_was_guessed(
    seed, count, d, length, own, guess, ties, dtype
):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, d)).astype(dtype)
    if ties:
        centres = np.round(2 * centres)
    points = centres if own else rng.normal(size=(30, d)).astype(dtype)
    distances = distances_of(points, centres, own=own)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :length]
    lists = np.full((points.shape[0], length), -1, dtype=np.int32)
    if guess == "right":
        lists[:, : expected.shape[1]] = expected[:, ::-1]
    if guess in ("wrong", "some"):
        lists[:] = rng.integers(-1, count, size=lists.shape)
        lists[rng.random(lists.shape) < (guess == "some") / 2] = -1
    if own:
        lists[lists == np.arange(count)[:, None]] = -1
    with reference.one_worker() as workers:
        exact_lists(points, centres, lists, workers, own=own)
    found = min(length, count - own)
    assert np.all(lists[:, found:] == -1)
    for r in range(points.shape[0]):
        listed = lists[r, :found]
        assert len(set(listed)) == found
        assert not (own and r in listed)
        # With ties, or rounding, another centre may be listed if it is as near.
        near = np.sort(distances[r])[:found]
        assert np.allclose(distances[r, listed], near, atol=1e-4 if dtype == np.float32 else 1e-9)


def test_more_centres_than_are_looked_at_together_and_more_rows_than_a_block(monkeypatch):
    monkeypatch.setattr(centre_graph, "BLOCK", 20 * 300)
    rng = np.random.default_rng(0)
    points, centres = rng.normal(size=(95, 3)), rng.normal(size=(300, 3))
    expected = np.argsort(distances_of(points, centres), axis=1)[:, :6]
    for threads in (1, 3):
        lists = np.full((95, 6), -1, dtype=np.int32)
        with Threads(threads, n_rows=10**6) as workers:
            exact_lists(points, centres, lists, workers)
        assert np.array_equal(lists, expected)
        others = np.full((300, 6), -1, dtype=np.int32)
        with Threads(threads, n_rows=10**6) as workers:
            exact_lists(centres, centres, others, workers, own=True)
        own = np.argsort(distances_of(centres, centres, own=True), axis=1)[:, :6]
        assert np.array_equal(others, own)
    assert centre_graph.SCAN < 300


def test_both_ways_holds_every_edge_at_both_ends():
    graph = np.array([[1, 2], [0, -1], [3, 0], [-1, -1]], dtype=np.int32)
    starts, others = centre_graph.both_ways(graph)
    at = [sorted(others[low:high].tolist()) for low, high in itertools.pairwise(starts)]
    assert at == [[1, 1, 2, 2], [0, 0], [0, 0, 3], [2]]


def share_found(lists, distances):
    """Share of the nearest centres that the lists hold."""
    length = lists.shape[1]
    true = np.argsort(distances, axis=1)[:, :length]
    return np.mean([len(set(a) & set(b)) / length for a, b in zip(lists, true, strict=True)])


def check_lists(lists, distances):
    """No centre twice, and the nearest first."""
    for r, row in enumerate(lists):
        listed = row[row >= 0]
        assert len(set(listed)) == listed.size
        assert np.all(row[listed.size :] == -1)
        assert np.all(np.diff(distances[r, listed]) >= -1e-4)


@pytest.mark.parametrize(("d", "least"), [(2, 0.99), (6, 0.95), (12, 0.8)])
def test_the_graph_that_is_grown_finds_nearly_all_neighbours(approximate, d, least):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1500, d)).astype(np.float32)
    queries = (centres + 0.3 * rng.normal(size=centres.shape)).astype(np.float32)
    with reference.one_worker() as workers:
        graph = CentreGraph(1500, seed=0, workers=workers)
        near = graph.refresh_with(centres, queries, 5)
        first = share_found(graph.lists, distances_of(centres, centres, own=True))
        rows = np.full((1500, 16), -1, dtype=np.int32)
        graph.fill_rows(queries, centres, np.arange(1500, dtype=np.int32), rows)
    own, from_rows = distances_of(centres, centres, own=True), distances_of(queries, centres)
    assert np.all(graph.lists != np.arange(1500)[:, None])
    for lists, distances in ((graph.lists, own), (near, from_rows), (rows, from_rows)):
        check_lists(lists, distances)
    assert first > least
    assert share_found(graph.lists, own) > least
    assert share_found(rows, from_rows) > least
    assert share_found(near, from_rows) > 0.3  # one tree alone


def test_the_graph_follows_centres_that_move(approximate):
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(1500, 5)).astype(np.float32)
    with reference.one_worker() as workers:
        graph = CentreGraph(1500, seed=0, workers=workers)
        stale = graph.refresh(centres).copy()
        for _ in range(3):
            centres = (centres + 0.1 * rng.normal(size=centres.shape)).astype(np.float32)
            graph.refresh(centres)
    own = distances_of(centres, centres, own=True)
    assert share_found(graph.lists, own) > 0.95
    assert share_found(stale, own) < 0.8
    check_lists(graph.lists, own)


def test_searches_begin_from_the_own_cluster_and_from_what_was_known():
    # On a line of centres with links to the next ones only, each expansion goes one step.
    centres = np.arange(40.0)[:, None]
    graph = np.array([[max(a - 1, 0), min(a + 1, 39)] for a in range(40)], dtype=np.int32)
    Z, labels = np.array([[20.2], [20.2]]), np.array([10, 10], dtype=np.int32)
    lists = np.full((2, 3), -1, dtype=np.int32)
    lists[1, 0] = 18
    centre_graph.search_lists(Z, centres, labels, graph, 4, lists, 0, 2)
    assert lists.tolist() == [[14, 13, 12], [20, 21, 19]]
    centre_graph.search_lists(Z, centres, labels, graph, 16, lists, 0, 1)
    assert lists[0].tolist() == [20, 21, 19]


@pytest.mark.parametrize("few", [2, 3])
def test_lists_of_few_centres_hold_all_others(few):
    centres = np.arange(few, dtype=float)[:, None]
    with reference.one_worker() as workers:
        graph = CentreGraph(few, seed=0, workers=workers)
        found = graph.refresh_with(centres, centres, few)
    assert [sorted(row) for row in graph.lists.tolist()] == [
        [b for b in range(few) if b != a] for a in range(few)
    ]
    assert found[:, 0].tolist() == list(range(few))


def test_threads_do_not_change_lists_that_are_searched(approximate):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1200, 4)).astype(np.float32)
    Z, labels = rng.normal(size=(2000, 4)).astype(np.float32), rng.integers(0, 1200, 2000)
    results = []
    for threads in (1, 3):
        with Threads(threads, n_rows=10**6) as workers:
            graph = CentreGraph(1200, seed=5, workers=workers)
            near = graph.refresh_with(centres, Z[:1200], 5)
            lists = np.full((2000, 8), -1, dtype=np.int32)
            graph.fill_rows(Z, centres, labels.astype(np.int32), lists)
        results.append((near, graph.lists, lists))
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)
