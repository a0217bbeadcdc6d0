"""Sizes are repaired where neighbours do not lead, and without handing on most of the rows."""

import numpy as np
import pytest

from bagwise.cluster import repair
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.repair import repair_sizes, replace_the_nearly_empty
from bagwise.cluster.state import EFFORTS, OrderedRows, Search, SizeRange, Threads
from tests.cluster import reference


def islands(count, rows, seed=0):
    """Rows on islands far apart, (rows, 3), each island a cluster with neighbours of its own."""
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(rows - count, np.ones(count) / count) + 1
    labels = np.repeat(np.arange(count), sizes).astype(np.int32)
    Z = 100 * rng.normal(size=(count, 3))[labels] + rng.normal(size=(rows, 3))
    return Z.astype(np.float32), labels


def test_islands_without_neighbours_reach_their_targets_at_little_more_cost(monkeypatch):
    Z, labels = islands(60, 600)
    near = SizeRange.near_equal(600, 10)
    costs = {}
    for pairs in (0, repair.PAIRS):  # 0: every row is compared with few clusters in need
        monkeypatch.setattr(repair, "PAIRS", pairs)
        rows = OrderedRows.of(Z.copy(), np.arange(600), labels.copy(), 60)
        graph = np.full((60, 1), -1, dtype=np.int32)
        targets = near.nearest(rows.sizes)
        repair.reach_targets(rows.state, targets, graph)
        assert np.array_equal(rows.sizes, targets)
        assert np.array_equal(np.bincount(rows.labels, minlength=60), targets)
        costs[pairs] = reference.spread(rows.Z, rows.labels)
    assert costs[0] < 1.3 * costs[repair.PAIRS]


def search_for(sizes):
    workers = Threads(1, n_rows=10)
    return Search(sizes, EFFORTS["default"], 0, workers, lambda *_: None)


def one_crowd(m=40, k=10):
    """A crowd that a few clusters share, and clusters of one row each that nobody is near to."""
    rng = np.random.default_rng(1)
    alone = m // 2
    crowd = rng.normal(size=(m * k - alone, 2))
    far = 50 + 10 * rng.normal(size=(alone, 2))
    Z = np.vstack([crowd, far]).astype(np.float32)
    labels = np.concatenate([rng.integers(0, m - alone, len(crowd)), m - alone + np.arange(alone)])
    return Z, labels.astype(np.int32), m


def test_clusters_that_are_nearly_empty_are_replaced():
    Z, labels, m = one_crowd()
    rows = OrderedRows.of(Z, np.arange(len(Z)), labels, m)
    sizes = SizeRange.near_equal(len(Z), 10)
    surplus = int(np.maximum(rows.sizes - 10, 0).sum())
    replaced = replace_the_nearly_empty(rows, sizes.nearest(rows.sizes), search_for(sizes))
    assert replaced == surplus // 10
    assert rows.sizes.sum() == len(Z)
    assert np.array_equal(rows.sizes, np.bincount(rows.labels, minlength=m))
    left = int(np.maximum(rows.sizes - 10, 0).sum())
    assert left < surplus / 4


@pytest.mark.parametrize("much", [0.05, 1.0])
def test_sizes_are_in_range_with_and_without_it(much, monkeypatch):
    monkeypatch.setattr(repair, "MUCH", much)
    Z, labels, m = one_crowd()
    rows = OrderedRows.of(Z, np.arange(len(Z)), labels, m)
    graph = CentreGraph(m, seed=0, workers=Threads(1, n_rows=10))
    repair_sizes(rows, graph, search_for(SizeRange.near_equal(len(Z), 10)))
    assert set(rows.sizes) == {10}


def test_few_rows_too_many_are_handed_on():
    Z, labels, m = one_crowd()
    rows = OrderedRows.of(Z, np.arange(len(Z)), labels, m)
    targets = rows.sizes.copy()
    targets[0] -= 1
    targets[-1] += 1
    assert replace_the_nearly_empty(rows, targets, search_for(SizeRange(m, 1, 50))) == 0
