import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster.state import SizeRange


@given(n=st.integers(1, 500), least=st.integers(1, 60))
def test_near_equal_makes_as_many_clusters_as_fit_with_sizes_that_differ_by_one(n, least):
    if n < least:
        return
    sizes = SizeRange.near_equal(n, least)
    assert sizes.clusters == max(m for m in range(1, n + 1) if m * least <= n)
    assert sizes.least >= least
    assert sizes.most - sizes.least == (n % sizes.clusters > 0)
    assert sizes.clusters * sizes.least <= n <= sizes.clusters * sizes.most


@given(n=st.integers(1, 500), clusters=st.integers(1, 60))
def test_starts_are_as_equal_as_can_be_and_spread_the_larger_clusters(n, clusters):
    if n < clusters:
        return
    starts = SizeRange(clusters, 1, n).starts(n)
    sizes = np.diff(starts)
    assert starts[0] == 0
    assert starts[-1] == n
    assert set(sizes) <= {n // clusters, -(-n // clusters)}
    assert np.all(np.abs(starts - np.arange(clusters + 1) * n / clusters) < 1)


@st.composite
def sizes_and_range(draw):
    sizes = np.array(draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)))
    total, clusters = int(sizes.sum()), sizes.size
    least = draw(st.integers(0, total // clusters))
    most = draw(st.integers(-(-total // clusters), max(-(-total // clusters), 9)))
    return sizes, SizeRange(clusters, least, most)


@given(sizes_and_range())
def test_nearest_moves_as_few_rows_as_any_sizes_in_range(case):
    sizes, limits = case
    given_sizes = sizes.copy()
    found = limits.nearest(sizes)
    assert np.array_equal(sizes, given_sizes)
    assert found.sum() == sizes.sum()
    assert found.min() >= limits.least
    assert found.max() <= limits.most
    each = range(limits.least, limits.most + 1)
    fewest = min(
        np.abs(np.array(other) - sizes).sum()
        for other in itertools.product(each, repeat=sizes.size)
        if sum(other) == sizes.sum()
    )
    assert np.abs(found - sizes).sum() == fewest


@pytest.mark.parametrize(
    ("sizes", "limits", "expected"),
    [
        ([8, 10, 13], (10, 11), [10, 10, 11]),
        ([0, 0, 30], (5, 20), [5, 5, 20]),
        ([3, 9, 9], (7, 7), [7, 7, 7]),
        ([12, 12, 6], (9, 12), [10, 11, 9]),
        ([3, 8, 14], (4, 12), [4, 9, 12]),  # the first has one too many already
        ([13, 9, 2], (4, 12), [12, 8, 4]),  # and here one too few
    ],
)
def test_nearest_by_hand(sizes, limits, expected):
    assert SizeRange(3, *limits).nearest(np.array(sizes)).tolist() == expected
