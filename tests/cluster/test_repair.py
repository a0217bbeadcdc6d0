import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import repair
from bagwise.cluster.state import Clusters
from tests.cluster import reference


def reach(Z, labels, targets, graph):
    """Labels, centres and sizes after `reach_targets`; the graph holds a list per cluster."""
    clusters = len(targets)
    centres = reference.centres_of(Z, labels, clusters)
    sizes = np.bincount(labels, minlength=clusters)
    labels = labels.astype(np.int32)
    graph = np.array(graph, dtype=np.int32)
    repair.reach_targets(Clusters(Z, centres, sizes, labels), np.array(targets), graph)
    return labels, centres, sizes


@st.composite
def sizes_to_repair(draw):
    clusters = draw(st.integers(1, 6))
    sizes = np.array([draw(st.integers(1, 9)) for _ in range(clusters)])
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    targets = np.ones(clusters, dtype=np.int64)
    np.add.at(targets, rng.integers(0, clusters, sizes.sum() - clusters), 1)
    Z = rng.normal(size=(sizes.sum(), draw(st.integers(1, 3))))
    if draw(st.booleans()):
        Z = np.round(Z)
    graph = rng.integers(-1, clusters, size=(clusters, draw(st.integers(0, 3))))
    graph[graph == np.arange(clusters)[:, None]] = -1
    return Z, rng.permutation(np.repeat(np.arange(clusters), sizes)), targets, graph


@given(sizes_to_repair(), st.sampled_from([0, 1, 20]), st.sampled_from([0, 10]))
def test_sizes_are_the_targets_whatever_the_start_and_the_graph(case, rounds, pairs):
    Z, labels, targets, graph = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "HANDINGS_ON", rounds)
        patch.setattr(repair, "PAIRS", pairs)
        patch.setattr(repair, "BRIDGES", 1)
        found, centres, sizes = reach(Z, labels, targets, graph)
    assert np.array_equal(sizes, targets)
    assert np.array_equal(np.bincount(found, minlength=targets.size), targets)
    expected = reference.centres_of(Z, found, targets.size)
    assert np.allclose(centres, expected, atol=1e-9)


def complete(clusters):
    return [[b for b in range(clusters) if b != a] for a in range(clusters)]


@given(sizes_to_repair(), st.booleans())
def test_among_neighbours_only_what_is_too_many_moves(case, connected):
    Z, labels, targets, _ = case
    clusters = targets.size
    graph = complete(clusters) if connected else np.full((clusters, 1), -1)
    found, _, _ = reach(Z, labels, targets, graph)
    surplus = np.maximum(np.bincount(labels, minlength=clusters) - targets, 0)
    for a in range(clusters):
        assert np.sum((labels == a) & (found != a)) == surplus[a]


def gain_of(Z, labels, row, b):
    """How much the spread falls when a row goes to b."""
    changed = labels.copy()
    changed[row] = b
    return reference.spread(Z, labels) - reference.spread(Z, changed)


@pytest.mark.parametrize("connected", [False, True])
def test_the_row_that_costs_least_is_handed_on(connected):
    differ = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        Z, labels = rng.normal(size=(9, 2)), np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])
        graph = complete(3) if connected else np.full((3, 1), -1)
        found, _, _ = reach(Z, labels, [3, 3, 3], graph)
        (row,) = np.flatnonzero(found != labels)
        assert row == np.argmax([gain_of(Z, labels, i, 2) for i in range(4)])
        centres = reference.centres_of(Z, labels, 3)
        nearer = [
            np.sum((Z[i] - centres[0]) ** 2) - np.sum((Z[i] - centres[2]) ** 2) for i in range(4)
        ]
        differ += row != np.argmax(nearer)
    assert differ > 5  # the spread is not the row's own distance


def test_the_cheapest_of_several_needy_neighbours_is_chosen():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        Z, labels = rng.normal(size=(9, 2)), np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
        for graph in (complete(3), np.full((3, 1), -1)):
            found, _, _ = reach(Z, labels, [4, 3, 2], graph)
            assert found[np.flatnonzero(found != labels)] == [1]
            found, _, _ = reach(Z, labels, [3, 3, 3], graph)
            assert sorted(found[np.flatnonzero(found != labels)]) == [1, 2]
            gains = {(i, b): gain_of(Z, labels, i, b) for i in range(5) for b in (1, 2)}
            best_row, best_to = max(gains, key=gains.get)
            assert found[best_row] == best_to


def test_rows_are_handed_on_step_by_step_rather_than_sent_all_the_way():
    # On a line, the cluster in between passes on its own row on the far side.
    Z = np.array([0.0, 1, 2, 10, 11, 12, 20])[:, None]
    labels = np.array([0, 0, 0, 1, 1, 1, 2])
    line = [[1, -1], [0, 2], [1, -1]]
    found, _, _ = reach(Z, labels, [2, 3, 2], line)
    assert found.tolist() == [0, 0, 1, 1, 1, 2, 2]
    found, _, _ = reach(Z, labels, [2, 3, 2], np.full((3, 1), -1))
    assert found.tolist() == [0, 0, 2, 1, 1, 1, 2]


def test_islands_are_helped_from_outside():
    # 0 and 1 are neighbours, 2 and 3 are; the row that the second pair lacks comes from the first.
    Z = np.array([0.0, 1, 2, 3, 10, 30, 40])[:, None]
    labels = np.array([0, 0, 0, 0, 1, 2, 3])
    found, _, _ = reach(Z, labels, [2, 2, 1, 2], [[1], [0], [3], [2]])
    assert found.tolist() == [0, 0, 3, 1, 1, 2, 3] or found.tolist() == [0, 0, 1, 3, 1, 2, 3]
