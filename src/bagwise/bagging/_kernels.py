"""Compiled inner loops. Importing this module needs numba; nothing else in the package does.

Each kernel has a NumPy twin with the same name that the tests hold it against. They are compiled
on first use and kept in numba's on-disk cache.
"""

import numba
import numpy as np

from bagwise._types import FloatArray, IntArray


@numba.njit(cache=True)
def best_last_lengths(ordered: FloatArray, size: int) -> IntArray:
    """Length of the last group in the best cut of each prefix; twin of the one in ``_cut``."""
    count, reach = ordered.size, 3 * size - 2
    lengths = np.zeros(count + 1, dtype=np.int64)
    sums = np.zeros(reach + 1)
    squares = np.zeros(reach + 1)
    costs = np.full(2 * size - 1, np.inf)
    costs[size - 1] = 0.0
    fresh = np.empty(size)
    for first in range(size, count + 1, size):
        start = first - 2 * size + 1
        origin = ordered[min(max(start + reach // 2, 0), count - 1)]
        for i in range(reach):
            value = ordered[min(max(start + i, 0), count - 1)] - origin
            sums[i + 1] = sums[i] + value
            squares[i + 1] = squares[i] + value * value
        before = costs - squares[: 2 * size - 1]
        for t in range(size):
            best, best_length = np.inf, 0
            for c in range(size):
                group_sum = sums[2 * size - 1 + t] - sums[t + c]
                cost = before[t + c] - group_sum * group_sum / (2 * size - 1 - c)
                if cost < best:
                    best, best_length = cost, 2 * size - 1 - c
            fresh[t] = best + squares[2 * size - 1 + t]
            if first + t <= count:
                lengths[first + t] = best_length
        costs[: size - 1] = costs[size:]
        costs[size - 1 :] = fresh
        costs -= costs.min()
    return lengths


@numba.njit(cache=True)
def trace_back(lengths: IntArray) -> IntArray:
    """Sizes of the groups that the lengths lead to; twin of the one in ``_cut``."""
    sizes = np.empty(lengths.size, dtype=np.int64)
    groups, end = 0, lengths.size - 1
    while end > 0:
        sizes[groups] = lengths[end]
        end -= lengths[end]
        groups += 1
    return sizes[:groups][::-1].copy()
