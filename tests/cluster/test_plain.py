"""The search without kernels: valid clusters, exact gains, and nearly as compact ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import plain
from bagwise.cluster.plain import (
    Members,
    bisect_plainly,
    find_clusters_plainly,
    is_small,
    swap_gains,
)
from bagwise.cluster.search import find_clusters
from bagwise.cluster.state import SizeRange
from tests.cluster import reference


def search(Z, k, *, effort="default", seed=0):
    sizes = SizeRange.near_equal(len(Z), k)
    return find_clusters_plainly(Z, sizes, effort=effort, seed=seed)


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_gains_are_those_of_brute_force(seed, a, b, d):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(a, d)), 1 + rng.normal(size=(b, d))

    def spread(*parts):
        return sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)

    p, q = one.mean(axis=0), other.mean(axis=0)
    gains = swap_gains(one - p, other - q, p - q, np.array(1 / a + 1 / b))
    for i in range(a):
        for j in range(b):
            swapped, swapped_other = one.copy(), other.copy()
            swapped[i], swapped_other[j] = other[j], one[i]
            expected = spread(one, other) - spread(swapped, swapped_other)
            assert gains[i, j] == pytest.approx(expected, abs=1e-9)


@given(st.integers(2, 80), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32))
def test_sizes_are_as_asked_and_no_row_is_lost(n, k, d, seed):
    k = min(k, n)
    Z = np.random.default_rng(seed).integers(0, 3, size=(n, d)).astype(np.float32)  # ties
    labels = search(Z, k, effort="fast", seed=seed)
    sizes = np.bincount(labels, minlength=n // k)
    near = SizeRange.near_equal(n, k)
    assert (sizes.size, sizes.min() >= near.least, sizes.max() <= near.most) == (n // k, True, True)


def test_the_bisection_cuts_along_what_differs():
    Z = np.array([[0, 5], [9, 4], [0, 4], [9, 5], [5, 0], [5, 1]], dtype=np.float64)
    order = bisect_plainly(Z, np.array([0, 2, 4, 6]), np.random.default_rng(0))
    assert {frozenset(order[i : i + 2].tolist()) for i in (0, 2, 4)} == {
        frozenset({0, 2}), frozenset({1, 3}), frozenset({4, 5})
    }  # fmt: skip


def test_the_same_seed_gives_the_same_clusters():
    Z = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    assert np.array_equal(search(Z, 7), search(Z, 7))
    assert not np.array_equal(search(Z, 7), search(Z, 7, seed=1))


@pytest.mark.parametrize("d", [2, 8])
def test_clusters_are_nearly_as_compact_as_those_of_the_kernels(d):
    Z = np.random.default_rng(d).normal(size=(2000, d)).astype(np.float32)
    sizes = SizeRange.near_equal(2000, 10)
    options = {"effort": "default", "seed": 0}
    best = reference.spread(Z, find_clusters(Z.copy(), sizes, **options))
    order = bisect_plainly(Z, sizes.starts(2000), np.random.default_rng(0))
    start = Members.cut(Z, order, sizes.starts(2000)).inertia
    found = reference.spread(Z, search(Z, 10))
    assert found < 1.1 * best < 0.95 * start


def test_annealing_that_made_it_worse_is_thrown_away(monkeypatch):
    Z = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    before = reference.spread(Z, search(Z, 5, effort="fast"))
    monkeypatch.setattr(plain, "HOT", 1e6)
    monkeypatch.setattr(plain, "COLD", 1e6)
    monkeypatch.setitem(plain.SWEEPS, "default", (5, 0))
    order = bisect_plainly(Z, SizeRange.near_equal(300, 5).starts(300), np.random.default_rng(0))
    start = Members.cut(Z, order, SizeRange.near_equal(300, 5).starts(300)).inertia
    assert reference.spread(Z, search(Z, 5)) == pytest.approx(start, rel=1e-5)
    assert before < start


def test_what_is_small():
    assert is_small(10_000, SizeRange.near_equal(10_000, 10))
    assert not is_small(10_001, SizeRange.near_equal(10_001, 10))
    assert not is_small(10_000, SizeRange.near_equal(10_000, 2))
    assert not is_small(1_000, SizeRange(100, 9, 19))
