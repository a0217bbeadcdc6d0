from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.bagging import _cut
from tests.bagging import cut_twins


def cost(values, sizes):
    """Sum of squares around group means, added up group by group."""
    groups = np.split(values, np.cumsum(sizes)[:-1])
    return sum(float(np.sum((group - group.mean()) ** 2)) for group in groups)


def partitions(items, size):
    """All partitions of `items` into sets of at least `size`, contiguous or not."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for mask in range(2 ** len(rest)):
        group = [first] + [item for bit, item in enumerate(rest) if mask >> bit & 1]
        if len(group) >= size:
            left = [item for bit, item in enumerate(rest) if not mask >> bit & 1]
            for others in partitions(left, size):
                yield [group, *others]


def brute_force(values, size):
    """The least cost over all partitions, not only over consecutive groups."""
    return min(
        sum(float(np.sum((values[g] - values[g].mean()) ** 2)) for g in groups)
        for groups in partitions(list(range(values.size)), size)
    )


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_partition_at_all_is_better(count, size):
    if count < size:
        return
    rng = np.random.default_rng(count * 10 + size)
    for values in (rng.normal(size=count), rng.integers(0, 3, size=count).astype(float)):
        ordered = np.sort(values)
        sizes = _cut.optimal_sizes(ordered, size)
        assert cost(ordered, sizes) == pytest.approx(brute_force(ordered, size), abs=1e-12)


def test_a_minimum_size_beats_equal_chunks():
    values = np.array([0, 0.1, 0.2, 5, 5.1, 5.2])
    assert cost(values, _cut.optimal_sizes(values, 2)) == pytest.approx(0.04)
    assert cost(values, _cut.equal_sizes(6, 2)) == pytest.approx(11.53)


sorted_floats = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60).map(sorted).map(np.array)


@given(sorted_floats, st.integers(2, 12))
def test_compiled_and_numpy_agree_and_respect_sizes(ordered, size):
    if ordered.size < 2 * size:
        return
    compiled_sizes = _cut.trace_back(_cut.best_last_lengths(ordered, size))
    with mock.patch.object(_cut, "_compiled", return_value=cut_twins.extend_lengths):
        numpy_sizes = _cut.trace_back(_cut.best_last_lengths(ordered, size))
    scale = max(1.0, float(np.var(ordered)) * ordered.size)
    for sizes in (numpy_sizes, compiled_sizes):
        assert sizes.sum() == ordered.size
        assert sizes.min() >= size
        assert sizes.max() <= 2 * size - 1
        assert (
            cost(ordered, sizes)
            <= cost(ordered, _cut.equal_sizes(ordered.size, size)) + 1e-9 * scale
        )
    assert cost(ordered, numpy_sizes) == pytest.approx(
        cost(ordered, compiled_sizes), rel=1e-9, abs=1e-9 * scale
    )


def test_close_values_far_from_zero_keep_their_digits():
    near_zero = np.sort(np.random.default_rng(0).normal(size=500))
    far = near_zero + 1e7
    expected = cost(near_zero, _cut.optimal_sizes(near_zero, 5))
    assert cost(near_zero, _cut.optimal_sizes(far, 5)) == pytest.approx(expected, rel=1e-6)


@given(st.integers(1, 200), st.integers(1, 50))
def test_equal_sizes(count, size):
    if count < size:
        return
    sizes = _cut.equal_sizes(count, size)
    assert sizes.sum() == count
    assert sizes.min() >= size
    assert sizes.max() - sizes.min() <= 1
    assert np.all(np.diff(sizes) >= 0)


@pytest.mark.parametrize("count", [24, 25, 59, 60, 61, 250])
def test_values_that_are_looked_at_some_at_a_time_are_cut_the_same(count, monkeypatch):
    values = np.random.default_rng(count).normal(size=count)
    order = np.argsort(values).astype(np.int32)
    at_once = _cut.best_last_lengths(values[order], 5)
    expected = _cut.trace_back(at_once)
    monkeypatch.setattr(_cut, "_AT_ONCE", 20)
    parts = _cut.best_last_lengths(_cut.InOrder(values, order), 5)
    assert np.array_equal(at_once, parts)
    assert np.array_equal(_cut.trace_back(parts), expected)
    whole = np.empty(count, dtype=np.int64)
    whole[order] = _cut.group_index(expected)
    assert np.array_equal(_cut.rows_in_groups(order, expected), whole)


def test_groups_of_very_many_values_have_room_for_their_lengths():
    values = np.concatenate([np.zeros(40_000), np.ones(70_000)])
    assert _cut.optimal_sizes(values, 40_000).tolist() == [40_000, 70_000]
