"""Cutting a row of values into consecutive groups of at least `size`.

The optimal cut is the paper's label k-means in one dimension under the constraint as stated there,
at least `size` rows per bag: a dynamic programme over groups of `size` to ``2*size - 1`` values
(a longer group can be split without loss). The paper's proof covers groups of exactly `size`,
for which sorting and chunking is optimal; with a minimum it is not: [0, .1, .2, 5, 5.1, 5.2] in
pairs costs 11.53 by chunking and 0.04 in two groups of three.
"""

import importlib.util

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bagwise._types import FloatArray, IntArray


def equal_sizes(count: int, size: int) -> IntArray:
    """Sizes of ``count // size`` groups, as equal as can be, the larger ones last.

    >>> equal_sizes(11, 3)
    array([3, 4, 4])
    """
    groups = count // size
    sizes = np.full(groups, count // groups)
    sizes[groups - count % groups :] += 1
    return sizes


def group_index(sizes: IntArray) -> IntArray:
    """Group of each value when consecutive groups have these sizes."""
    return np.repeat(np.arange(sizes.size), sizes)


def optimal_sizes(ordered: FloatArray, size: int) -> IntArray:
    """Sizes of the consecutive groups of at least `size` with the least sum of squares within.

    Exact, in O(n * size) time. Compiled if numba is installed, else in NumPy; the cost is the same
    to rounding, and where two cuts cost the same, either may be returned.

    References
    ----------
    Lemma 15 (l3) for groups of equal size; Hansen and Mukherjee (2003) for a minimum size.
    """
    if size == 1 or ordered.size < 2 * size:
        return equal_sizes(ordered.size, size)
    if importlib.util.find_spec("numba") is not None:
        from bagwise.bagging import _kernels

        return _kernels.trace_back(_kernels.best_last_lengths(ordered, size))
    return trace_back(best_last_lengths(ordered, size))


def best_last_lengths(ordered: FloatArray, size: int) -> IntArray:
    """Length of the last group in the best cut of the first j values, for j = 0..n.

    The programme is ``cost[j] = min over L in size..2*size-1 of cost[j-L] + spread(j-L, j)``.
    Since L >= size, the costs of `size` consecutive prefixes depend only on earlier ones: each step
    computes that many at once from a window of the last ``2*size - 1`` costs.
    """
    count, reach = ordered.size, 3 * size - 2
    lengths = np.zeros((count // size + 1) * size, dtype=np.int64)
    padded = np.concatenate(
        [np.full(size - 1, ordered[0]), ordered, np.full(2 * size, ordered[-1])]
    )
    costs = np.full(2 * size - 1, np.inf)  # of the prefixes first-2*size+1 .. first-1
    costs[size - 1] = 0.0  # the empty prefix
    candidates = np.arange(2 * size - 1, size - 1, -1)
    for first in range(size, count + 1, size):
        window = padded[first - size : first - size + reach]
        window = window - window[reach // 2]  # near zero, so that squares keep their digits
        sums = np.concatenate([[0.0], np.cumsum(window)])
        squares = np.concatenate([[0.0], np.cumsum(window * window)])
        # [t, c]: the prefix first+t whose last group has candidates[c] values.
        group_sum = sums[2 * size - 1 :, None] - sliding_window_view(sums[: 2 * size - 1], size)
        before = sliding_window_view(costs - squares[: 2 * size - 1], size)
        total = before - group_sum * group_sum / candidates
        best = total.argmin(axis=1)
        lengths[first : first + size] = candidates[best]
        fresh = total[np.arange(size), best] + squares[2 * size - 1 :]
        costs = np.concatenate([costs[size:], fresh])
        costs -= costs.min()  # only differences matter, and small numbers keep them
    return lengths[: count + 1]


def trace_back(lengths: IntArray) -> IntArray:
    """Sizes of the groups, from the last back to the first."""
    steps = lengths.tolist()  # a plain list is several times faster to walk
    sizes, end = [], len(steps) - 1
    while end > 0:
        sizes.append(steps[end])
        end -= steps[end]
    return np.array(sizes[::-1], dtype=np.int64)
