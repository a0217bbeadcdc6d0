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
    count = ordered.size
    lengths = np.zeros(count + 1, dtype=np.int64)
    costs = np.full(count + 1, np.inf)
    costs[0] = 0.0
    for end in range(size, count + 1):
        origin = ordered[end - 1]  # measuring from here keeps the digits of small spreads
        total = 0.0
        squares = 0.0
        for length in range(1, min(end, 2 * size - 1) + 1):
            value = ordered[end - length] - origin
            total += value
            squares += value * value
            if length >= size:
                cost = costs[end - length] + squares - total * total / length
                if cost < costs[end]:
                    costs[end] = cost
                    lengths[end] = length
    return lengths
