import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import moving
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.moving import Rule, move_rows
from bagwise.cluster.repair import repair_sizes
from bagwise.cluster.state import EFFORTS, Clusters, OrderedRows, Search, SizeRange
from tests.cluster import reference


def penalty(size, least, most, weight):
    return weight / 2 * max(0, least - size, size - most) ** 2


def test_the_cost_of_growing_is_the_change_of_the_penalty():
    for least, most in itertools.combinations_with_replacement(range(6), 2):
        for size in range(10):
            grown = penalty(size + 1, least, most, 1.7) - penalty(size, least, most, 1.7)
            assert moving.cost_of_growing(size, least, most, 1.7) == pytest.approx(grown)


@given(st.integers(1, 400), st.integers(1, 40))
def test_batches_take_every_row_once_in_strips_that_stand_side_by_side(n, batches):
    places = [batch.tolist() for batch in moving.batches_of(n, batches)]
    assert sorted(row for batch in places for row in batch) == list(range(n))
    assert all(rows == sorted(rows) for rows in places)
    assert all(len({row // moving.STRIP for row in rows[:16]}) <= 1 for rows in places)


@st.composite
def labelled_rows(draw):
    clusters = draw(st.integers(2, 6))
    n = draw(st.integers(clusters, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    labels = rng.permutation(np.concatenate([np.arange(clusters), rng.integers(0, clusters, n)]))
    Z = rng.normal(size=(labels.size, draw(st.integers(1, 3))))
    if draw(st.booleans()):
        Z = np.round(2 * Z)
    return Z, labels[: labels.size], clusters


def run_pass(Z, labels, lists, *, batches, rule):
    """One pass, batch by batch, with the centres, sizes and labels it leaves."""
    clusters = labels.max() + 1
    centres = reference.centres_of(Z, labels, clusters).astype(Z.dtype)
    sizes = np.bincount(labels, minlength=clusters)
    labels, wanted = labels.astype(np.int32), np.full(labels.size, 99, dtype=np.int32)
    state = Clusters(Z, centres, sizes, labels)
    moved = 0
    for batch in moving.batches_of(labels.size, batches):
        for half in np.array_split(batch, 2):
            moving.choose_moves(state, Rule(*rule), lists, wanted, half)
        moved += moving.carry_out(state, Rule(*rule), wanted, batch)
    assert not np.any(wanted == 99)
    return labels, centres, sizes, moved


def everywhere(labels, clusters):
    return np.tile(np.arange(clusters, dtype=np.int32), (labels.size, 1))


@given(
    labelled_rows(),
    st.sampled_from([1, 3]),
    st.sampled_from([0.0, 0.3]),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_pass_lowers_the_cost_keeps_strict_ranges_and_moves_the_centres_along(
    case, batches, weight, strict, dtype
):
    Z, labels, clusters = case
    Z = Z.astype(dtype)
    start = np.bincount(labels)
    least, most = (start.min(), start.max()) if strict else (4, 6)

    def cost(labels):
        sizes = np.bincount(labels, minlength=clusters)
        wrong = sum(penalty(size, least, most, weight) for size in sizes)
        return reference.spread(Z, labels) + (0 if strict else wrong)

    weight = 0.0 if strict else weight
    rule = (int(least), int(most), weight, strict)
    found, centres, sizes, moved = run_pass(
        Z, labels, everywhere(labels, clusters), batches=batches, rule=rule
    )
    rounding = (1e-5 if dtype == np.float32 else 1e-12) * (1 + np.sum(Z.astype(float) ** 2))
    assert cost(found) <= cost(labels) + rounding
    assert np.array_equal(sizes, np.bincount(found, minlength=clusters))
    assert np.allclose(centres, reference.centres_of(Z, found, clusters), atol=1e-4)
    assert sizes.min() >= 1
    if strict:
        assert sizes.min() >= least
        assert sizes.max() <= most
    assert (moved > 0) >= np.any(found != labels)


@given(labelled_rows(), st.sampled_from([0.0, 0.3]))
def test_rows_want_the_cluster_that_lowers_the_cost_most(case, weight):
    Z, labels, clusters = case
    least, most = 4, 6
    centres, sizes = reference.centres_of(Z, labels, clusters), np.bincount(labels)
    wanted = np.empty(labels.size, dtype=np.int32)
    state = Clusters(Z, centres, sizes, labels.astype(np.int32))
    rule, lists = Rule(least, most, weight, False), everywhere(labels, clusters)
    moving.choose_moves(state, rule, lists, wanted, np.arange(labels.size))

    def cost(labels):
        sizes = np.bincount(labels, minlength=clusters)
        return reference.spread(Z, labels) + sum(penalty(s, least, most, weight) for s in sizes)

    before = cost(labels)
    for i in range(labels.size):
        costs = []
        for b in range(clusters):
            changed = labels.copy()
            changed[i] = b
            costs.append(cost(changed))
        if sizes[labels[i]] == 1:
            assert wanted[i] == moving.STAY
        elif min(costs) < before - 1e-9:
            assert costs[wanted[i]] == pytest.approx(min(costs))
        elif wanted[i] != moving.STAY:
            assert costs[wanted[i]] == pytest.approx(before, abs=1e-9)


def test_rows_consider_their_lists_only():
    Z = np.array([0.0, 0, 5, 5, 9, 9, 5])[:, None]
    labels = np.array([0, 0, 1, 1, 2, 2, 0])
    for near, expected in (([0, 1], 1), ([2, -1], 2), ([0, -1], 0)):
        lists = np.full((7, 2), -1, dtype=np.int32)
        lists[6] = near
        found, *_ = run_pass(Z, labels, lists, batches=1, rule=(1, 9, 0.0, False))
        assert found[6] == expected
        assert found[:6].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_choice_that_no_longer_pays_is_not_carried_out():
    # Both rows at 4 want to go to the cluster at 6, which has room for one.
    Z = np.array([4.0, 4, -3, -3, 6, 6])[:, None]
    labels = np.array([0, 0, 0, 0, 1, 1])
    found, _, sizes, moved = run_pass(
        Z, labels, everywhere(labels, 2), batches=1, rule=(3, 3, 60.0, False)
    )
    assert moved == 1
    assert sizes.tolist() == [3, 3]
    assert sorted(found[:2]) == [0, 1]


def moved(Z, labels, sizes, *, effort="default"):
    ids = np.arange(labels.size, dtype=np.int32)
    rows = OrderedRows.of(Z.copy(), ids, labels.astype(np.int32), sizes.clusters)
    with reference.one_worker() as workers:
        graph = CentreGraph(sizes.clusters, seed=0, workers=workers)
        search = Search(sizes, EFFORTS[effort], 0, workers, lambda what, share: None)
        move_rows(rows, graph, 2.0 / Z.shape[1], search)
    assert np.array_equal(rows.sizes, np.bincount(rows.labels, minlength=sizes.clusters))
    expected = reference.centres_of(Z, rows.labels, sizes.clusters)
    assert np.allclose(rows.centres, expected, atol=1e-4)
    afresh = OrderedRows.of(rows.Z, rows.ids, rows.labels, sizes.clusters)
    assert np.array_equal(rows.centres, afresh.centres)  # without the rounding of updates
    assert rows.inertia == pytest.approx(reference.spread(Z, rows.labels), rel=1e-4)
    return rows


@given(
    n=st.integers(10, 120),
    clusters=st.integers(2, 10),
    slack=st.integers(0, 4),
    ties=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_sizes_are_in_range_after_moving(n, clusters, slack, ties, seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2)).astype(np.float32)
    if ties:
        Z = np.round(Z)
    sizes = SizeRange(clusters, max(1, n // clusters - slack), -(-n // clusters) + slack)
    rows = moved(Z, np.arange(n) % clusters, sizes)
    assert rows.sizes.min() >= sizes.least
    assert rows.sizes.max() <= sizes.most


def test_moving_finds_dense_regions_of_different_sizes():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])
    true = np.repeat(np.arange(4), [40, 20, 25, 35])
    Z = (centres[true] + rng.normal(size=(120, 2))).astype(np.float32)
    start = true.copy()
    start[rng.permutation(120)[:40]] = rng.integers(0, 4, 40)
    rows = moved(Z, start, SizeRange(4, 10, 90))
    assert np.array_equal(rows.labels, true)


def test_no_single_move_within_the_sizes_is_left():
    for seed in range(5):
        Z = np.random.default_rng(seed).normal(size=(60, 2)).astype(np.float32)
        sizes = SizeRange(8, 5, 10)
        rows = moved(Z, np.arange(60) % 8, sizes)
        spread = reference.spread(Z, rows.labels)
        for i, b in itertools.product(range(60), range(8)):
            if rows.sizes[rows.labels[i]] > sizes.least and rows.sizes[b] < sizes.most:
                changed = rows.labels.copy()
                changed[i] = b
                assert reference.spread(Z, changed) > spread * (1 - 1e-5)


def test_repair_leaves_sizes_alone_that_are_in_range():
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(40, 2)), rng.permutation(np.repeat(np.arange(4), [8, 9, 11, 12]))
    for limits, changed in ((SizeRange(4, 8, 12), 0), (SizeRange(4, 9, 12), 1)):
        ids = np.arange(40, dtype=np.int32)
        rows = OrderedRows.of(Z.copy(), ids, labels.astype(np.int32), 4)
        with reference.one_worker() as workers:
            graph = CentreGraph(4, seed=0, workers=workers)
            search = Search(limits, EFFORTS["fast"], 0, workers, lambda *_: None)
            repair_sizes(rows, graph, search)
        assert np.sum(rows.labels != labels) == changed
