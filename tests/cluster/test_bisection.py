from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bagwise.cluster import bisection
from bagwise.cluster.bisection import Order, bisect
from bagwise.cluster.state import Threads
from tests.cluster import reference


def bisected(Z, starts, *, rounds=3, seed=0, threads=1):
    """Ids in their new order; the rows have gone along."""
    moved, ids = Z.copy(), np.arange(Z.shape[0], dtype=np.int32)
    with Threads(threads, n_rows=10**9) as workers:
        bisect(moved, ids, starts, rounds=rounds, seed=seed, workers=workers)
    assert np.array_equal(np.sort(ids), np.arange(Z.shape[0]))
    assert np.array_equal(moved, Z[ids])
    return ids


def labels_of(ids, starts):
    labels = np.empty(ids.size, dtype=int)
    labels[ids] = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    return labels


@st.composite
def rows_and_starts(draw):
    n = draw(st.integers(1, 120))
    groups = draw(st.one_of(st.integers(1, n), st.just(n)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    cuts = np.sort(rng.permutation(np.arange(1, n))[: groups - 1])
    Z = rng.normal(size=(n, draw(st.integers(1, 4))))
    kind = draw(st.sampled_from(["normal", "ties", "equal", "one column"]))
    if kind == "ties":
        Z = np.round(Z)
    if kind == "equal":
        Z[:] = 0.3
    if kind == "one column":
        Z[:, 1:] = 7
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Z.astype(dtype), np.concatenate([[0], cuts, [n]]).astype(np.int64)


@given(rows_and_starts(), st.integers(0, 3), st.integers(0, 100))
def test_rows_are_only_reordered_whatever_they_are(case, rounds, seed):
    Z, starts = case
    ids = bisected(Z, starts, rounds=rounds, seed=seed)
    assert np.array_equal(ids, bisected(Z, starts, rounds=rounds, seed=seed))


@given(rows_and_starts(), st.integers(0, 3))
def test_on_a_line_groups_are_cuts_of_the_sorted_order(case, rounds):
    Z, starts = case
    x = Z[:, :1].copy()
    ids = bisected(x, starts, rounds=rounds)
    groups = np.split(x[ids, 0], starts[1:-1])
    # Each cut may put the larger half first, so that the groups come in some order of their own.
    groups.sort(key=lambda group: (group.min(), group.max()))
    for one, following in pairwise(groups):
        assert one.max() <= following.min()


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.integers(1, 60),
        elements=st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6, width=32)),
    ),
    st.data(),
)
def test_the_nth_smallest_is_that_of_the_sorted_values(values, data):
    start = data.draw(st.integers(0, values.size - 1))
    stop = data.draw(st.integers(start + 1, values.size))
    place = data.draw(st.integers(start, stop - 1))
    scratch = values.copy()
    found = bisection._nth_smallest(scratch, start, stop, place)
    assert found == np.sort(values[start:stop])[place - start]
    assert np.array_equal(np.sort(scratch[start:stop]), np.sort(values[start:stop]))
    assert np.array_equal(scratch[:start], values[:start])
    assert np.array_equal(scratch[stop:], values[stop:])


def test_the_principal_axis_is_that_of_the_covariance():
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    Z = (rng.normal(size=(900, 5)) * [4, 1, 1, 0.5, 0.1]) @ turn + 30
    axis = bisection._principal_axis(Z, 100, 800, 0)
    _, vectors = np.linalg.eigh(np.cov(Z[100:800].T))
    assert abs(axis @ vectors[:, -1]) > 0.999
    assert np.linalg.norm(axis) == pytest.approx(1)


def test_the_principal_axis_of_many_rows_comes_from_a_sample_of_them():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(5 * bisection.SAMPLE, 3)) * [1, 5, 1]
    for seed in range(5):
        assert abs(bisection._principal_axis(Z, 0, Z.shape[0], seed)[1]) > 0.99


def split_in_two(Z, middle, rounds):
    n = Z.shape[0]
    moved, ids = Z.copy(), np.arange(n, dtype=np.int32)
    keys, scratch = np.empty(n), np.empty(n)
    bisection.split(Order(moved, ids, keys, scratch), 0, middle, n, rounds, 0)
    return labels_of(ids, np.array([0, middle, n]))


def test_rounds_of_two_means_never_make_a_cut_worse():
    improved = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        Z, middle = rng.normal(size=(60, 4)), int(rng.integers(5, 55))
        spreads = [reference.spread(Z, split_in_two(Z, middle, rounds)) for rounds in range(6)]
        assert np.all(np.diff(spreads) <= 1e-9)
        improved += spreads[3] < 0.999 * spreads[0]
    assert improved > 20


def test_after_many_rounds_each_side_is_the_best_for_its_means():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        Z, middle = rng.normal(size=(50, 3)), 20
        labels = split_in_two(Z, middle, 60)
        one, two = reference.centres_of(Z, labels, 2)
        along = Z @ (two - one)
        assert along[labels == 0].max() <= along[labels == 1].min() + 1e-9


def test_two_clouds_of_known_sizes_are_told_apart():
    rng = np.random.default_rng(0)
    true = rng.permutation(np.repeat([0, 1], [70, 30]))
    Z = rng.normal(size=(100, 3)) + 20 * true[:, None]
    # Which side comes first is not said, so both sizes are tried.
    found = [split_in_two(Z, middle, 3) for middle in (30, 70)]
    assert min(reference.spread(Z, labels) for labels in found) == pytest.approx(
        reference.spread(Z, true)
    )


def test_groups_are_more_compact_than_random_and_than_sorted_by_one_column():
    rng = np.random.default_rng(0)
    Z, starts = rng.normal(size=(1000, 3)), np.arange(0, 1001, 10)
    found = reference.spread(Z, labels_of(bisected(Z, starts), starts))
    assert found < 0.2 * reference.spread(Z, rng.permutation(np.arange(1000) // 10))
    assert found < 0.3 * reference.spread(Z, labels_of(np.argsort(Z[:, 0]), starts))


def test_threads_do_not_change_the_order():
    Z = np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32)
    for groups in (7, 300):
        starts = np.arange(groups + 1) * 3000 // groups
        one, three = (bisected(Z, starts, threads=threads) for threads in (1, 3))
        assert np.array_equal(one, three)
