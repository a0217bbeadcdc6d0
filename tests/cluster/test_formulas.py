"""The compiled loops against plain NumPy: gains, penalties, repairs, traces, neighbours."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import _exchange, _moves, _neighbours, _repair, _trace
from bagwise.cluster import neighbours as neighbours_module
from bagwise.cluster.exchanging import Blocks, tournament
from bagwise.cluster.neighbours import CentreGraph, exact_lists
from bagwise.cluster.search import Rows
from bagwise.cluster.trace import lower_trace
from bagwise.cluster.workers import Patience, Workers

NO_NOISE = np.zeros(4097)


def spread(Z, labels):
    return sum(
        np.sum((Z[labels == a] - Z[labels == a].mean(axis=0)) ** 2) for a in np.unique(labels)
    )


def two_clusters(seed, sizes=(6, 4), d=3):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(sum(sizes), d))
    return Z, np.repeat([0, 1], sizes)


def packed(Z, labels, most):
    ids = np.arange(labels.size, dtype=np.int32)
    return Blocks.pack(Rows.of(Z.copy(), ids, labels.astype(np.int32), labels.max() + 1), most)


def visit(blocks, least, most, *, heat=0.0, noise=NO_NOISE, visits=1, seed=0):
    pairs = np.array([[0, 1]], dtype=np.int32)
    return _exchange.visit_pairs(
        pairs, 0, 1, blocks.ids, *blocks.state, least, most, heat, visits, noise, seed
    )


def labels_of(blocks, n):
    labels = np.full(n, -1)
    for a in range(blocks.sizes.size):
        labels[blocks.ids[blocks.starts[a] : blocks.starts[a] + blocks.sizes[a]]] = a
    return labels


def changes_of(labels, least, most):
    """All labels that one move or swap within the sizes leads to."""
    for i in range(labels.size):
        moved = labels.copy()
        moved[i] = 1 - moved[i]
        sizes = np.bincount(moved, minlength=2)
        if sizes.min() >= least and sizes.max() <= most:
            yield moved
    for i, j in itertools.combinations(range(labels.size), 2):
        if labels[i] != labels[j]:
            swapped = labels.copy()
            swapped[[i, j]] = labels[[j, i]]
            yield swapped


@pytest.mark.parametrize("least_and_most", [(4, 6), (3, 7), (2, 8)])
@pytest.mark.parametrize("seed", range(12))
def test_a_visit_makes_the_best_of_all_changes(seed, least_and_most):
    Z, labels = two_clusters(seed)
    blocks = packed(Z, labels, least_and_most[1])
    changed = visit(blocks, *least_and_most)
    best = min(changes_of(labels, *least_and_most), key=lambda other: spread(Z, other))
    if spread(Z, best) < spread(Z, labels) - 1e-4:
        assert changed == 1
        assert spread(Z, labels_of(blocks, 10)) == pytest.approx(spread(Z, best))
    else:
        assert changed == 0
        assert np.array_equal(labels_of(blocks, 10), labels)


@given(seed=st.integers(0, 10**6), heat=st.sampled_from([0.0, 0.3, 5.0]))
def test_visits_keep_sizes_rows_and_books(seed, heat):
    Z, labels = two_clusters(seed, sizes=(7, 5))
    blocks = packed(Z, labels, 8)
    noise = np.random.default_rng(seed).gumbel(size=4097)
    noise[0] = noise.max()
    visit(blocks, 4, 8, heat=heat, noise=noise, visits=5, seed=seed)
    after = labels_of(blocks, 12)
    assert sorted(blocks.ids[blocks.ids >= 0]) == list(range(12))
    assert np.bincount(after).min() >= 4
    assert np.bincount(after).max() <= 8
    for a in (0, 1):
        members = blocks.ids[blocks.starts[a] : blocks.starts[a] + blocks.sizes[a]]
        rows = blocks.rows[blocks.starts[a] : blocks.starts[a] + blocks.sizes[a]]
        assert np.array_equal(rows, Z[members])
        assert np.allclose(blocks.centres[a], Z[members].mean(axis=0))
        offsets = blocks.offsets[blocks.starts[a] : blocks.starts[a] + blocks.sizes[a]]
        assert np.allclose(offsets, np.sum((Z[members] - blocks.centres[a]) ** 2, axis=1))
    if heat == 0.0:
        assert spread(Z, after) <= spread(Z, labels) + 1e-9


@given(st.integers(0, 12), st.integers(1, 8), st.integers(0, 4), st.floats(0.1, 10))
def test_the_price_of_growing_is_the_difference_of_the_penalty(size, least, more, weight):
    most = least + more

    def penalty(s):
        return weight / 2 * max(0, s - most, least - s) ** 2

    found = _moves.cost_of_growing(size, least, most, weight)
    assert found == pytest.approx(penalty(size + 1) - penalty(size))


@given(
    sizes=st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(lambda s: sum(s) >= len(s)),
    seed=st.integers(0, 1000),
    connected=st.booleans(),
    fixed=st.booleans(),
)
def test_repair_reaches_any_sizes(sizes, seed, connected, fixed):
    rng = np.random.default_rng(seed)
    m, n = len(sizes), sum(sizes)
    labels = np.repeat(np.arange(m, dtype=np.int32), sizes)
    Z, C = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    targets = rng.multinomial(n, np.full(m, 1 / m)).astype(np.int64)
    graph = np.full((m, 1), -1, dtype=np.int32)
    if connected:
        graph[:, 0] = (np.arange(m) + 1) % m
    now, centres = np.array(sizes, dtype=np.int64), C.copy()
    starts, neighbours = _neighbours.both_ways(graph)
    _repair.reach_targets(Z, centres, now, targets, labels, starts, neighbours, 50, fixed)
    assert np.array_equal(np.bincount(labels, minlength=m), targets)
    assert np.array_equal(now, targets)
    if fixed:
        assert np.array_equal(centres, C)


def test_every_pair_of_parts_meets_once_and_no_part_twice_in_a_round():
    rounds = tournament(16)
    met = [pair for games in rounds for pair in games]
    assert sorted(met) == [(p, q) for p in range(16) for q in range(p, 16)]
    for games in rounds[1:]:
        named = [part for pair in games for part in pair]
        assert len(named) == len(set(named))


def test_pairs_are_listed_once_and_grouped_by_part():
    rng = np.random.default_rng(3)
    m, parts = 40, 4
    graph = np.array([rng.permutation(np.delete(np.arange(m), a))[:6] for a in range(m)], np.int32)
    extra = rng.integers(-1, m, size=(m, 3)).astype(np.int32)
    dealt = rng.integers(0, parts, size=m).astype(np.int32)
    pairs, groups = _exchange.list_pairs(graph, 5, extra, dealt, parts)
    by_centre = {frozenset((a, int(b))) for a in range(m) for b in graph[a, :5]}
    by_row = {frozenset((a, int(b))) for a in range(m) for b in extra[a] if b >= 0 and b != a}
    found = [frozenset(map(int, pair)) for pair in pairs]
    assert set(found) == by_centre | by_row
    assert all(found.count(pair) == 1 for pair in by_centre)
    for p, q in itertools.product(range(parts), repeat=2):
        for a, b in pairs[groups[p * parts + q] : groups[p * parts + q + 1]]:
            assert (min(dealt[a], dealt[b]), max(dealt[a], dealt[b])) == (p, q)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("guess", ["none", "right", "wrong"])
def test_exact_lists_are_exact(own, guess):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(300, 4))
    points = centres if own else rng.normal(size=(500, 4))
    distances = np.sum((points[:, None] - centres) ** 2, axis=2)
    if own:
        np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :7]
    lists = np.full((points.shape[0], 7), -1, dtype=np.int32)
    if guess == "right":
        lists[:] = nearest[:, ::-1]
    if guess == "wrong":
        lists[:] = [rng.permutation(300)[:7] for _ in lists]
        lists[lists == np.arange(lists.shape[0])[:, None]] = -1
    with Workers(1, n_rows=500) as workers:
        exact_lists(points, centres, lists, workers, own=own)
    assert np.array_equal(lists, nearest)


def test_the_searched_graph_finds_nearly_all_neighbours(monkeypatch):
    centres = np.random.default_rng(0).normal(size=(3000, 6)).astype(np.float32)
    exact = np.full((3000, 16), -1, dtype=np.int32)
    with Workers(1, n_rows=3000) as workers:
        exact_lists(centres, centres, exact, workers, own=True)
        monkeypatch.setattr(neighbours_module, "EXACT_CENTRES", 0)
        monkeypatch.setattr(neighbours_module, "EXACT_ROWS", 0)
        graph = CentreGraph(3000, seed=0, workers=workers)
        queries = centres + 0.1
        near = graph.refresh_with(centres, queries, 5)
        rows = np.full((3000, 10), -1, dtype=np.int32)
        graph.fill_rows(queries, centres, np.arange(3000, dtype=np.int32), rows)
    found = np.mean([len(set(a) & set(b)) / 16 for a, b in zip(graph.lists, exact, strict=True)])
    assert found > 0.9
    assert all(a not in graph.lists[a] for a in range(3000))
    assert all(len(set(row[row >= 0])) == np.sum(row >= 0) for row in graph.lists)
    true = np.argsort(np.sum((queries[:, None] - centres) ** 2, axis=2), axis=1)
    assert (
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows, true[:, :10], strict=True)]) > 0.9
    )
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(near, true[:, :5], strict=True)]) > 0.5


def trace_of(X, labels):
    sizes = np.bincount(labels)
    means = np.array([X[labels == a].mean(axis=0) for a in range(sizes.size)])
    return np.trace(np.linalg.inv((means * sizes[:, None]).T @ means))


@pytest.mark.parametrize("seed", range(8))
def test_the_trace_falls_exactly_as_updated(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * [1, 3, 0.3]
    X -= X.mean(axis=0)
    labels = rng.permutation(np.arange(60) % 9)
    sizes = np.bincount(labels)
    means = np.array([X[labels == a].mean(axis=0) for a in range(9)])
    P = np.linalg.inv((means * sizes[:, None]).T @ means)
    images = X @ P
    blocks = packed(images, labels, 0)
    rows = X[blocks.ids]
    pairs = np.array(list(itertools.combinations(range(9), 2)), dtype=np.int32)
    before = np.trace(P)
    swaps = _trace.lower_trace_by_swaps(pairs, blocks.ids, *blocks.state, rows, means, P, 3)
    after = labels_of(blocks, 60)
    assert swaps > 0
    assert np.trace(P) < before
    assert np.trace(P) == pytest.approx(trace_of(X, after), rel=1e-9)
    assert np.array_equal(rows, X[blocks.ids])
    assert np.array_equal(np.bincount(after), sizes)


def test_lower_trace_never_raises_it_and_gives_up_where_it_is_infinite():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4)) * [1, 1, 1, 0.2]
    X -= X.mean(axis=0)
    labels = rng.permutation(np.arange(200) % 20)
    better = lower_trace(X, labels, sweeps=5, seed=0, waiting=Patience())
    assert trace_of(X, better) < 0.9 * trace_of(X, labels)
    assert np.array_equal(np.bincount(better), np.bincount(labels))
    few = np.arange(200) % 3  # three means cannot span four directions
    assert np.array_equal(lower_trace(X, few, sweeps=5, seed=0, waiting=Patience()), few)
