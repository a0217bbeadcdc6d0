"""The compiled loops behind optimal cuts once more, in NumPy."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

_AT_ONCE = 2**18


def extend_lengths(part, size, costs, lengths):
    reach, candidates = 3 * size - 2, np.arange(2 * size - 1, size - 1, -1)
    for first in range(0, lengths.size, size):
        window = part[first : first + reach]
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
        costs[:] = np.concatenate([costs[size:], fresh])
        costs -= costs.min()  # only differences matter, and small numbers keep them


def trace_back(lengths):
    """Sizes of the groups, from the last back to the first."""
    sizes, end, first = [], lengths.size - 1, lengths.size
    steps = []
    while end > 0:
        if end < first:  # a plain list is several times faster to walk, and larger
            first = max(0, end + 1 - _AT_ONCE)
            steps = lengths[first : end + 1].tolist()
        sizes.append(steps[end - first])
        end -= sizes[-1]
    return np.array(sizes[::-1], dtype=np.int64)
