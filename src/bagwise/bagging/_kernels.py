"""The compiled inner loop of optimal cuts; the tests hold it against a twin in NumPy."""

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.cluster.arith import compiled


@compiled
def extend_lengths(part: FloatArray, size: int, costs: FloatArray, lengths: AnyArray) -> None:
    """Write the lengths of the next prefixes, and bring the window of costs up to them.

    `part` has the ``lengths.size + 2 * size - 2`` values that the last groups of these prefixes may
    have, `costs` the ``2 * size - 1`` of the prefixes before; there are whole multiples of `size`.
    """
    reach = 3 * size - 2
    sums = np.zeros(reach + 1)
    squares = np.zeros(reach + 1)
    fresh = np.empty(size)
    for first in range(0, lengths.size, size):
        origin = part[first + reach // 2]
        for i in range(reach):
            value = part[first + i] - origin
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
            lengths[first + t] = best_length
        costs[: size - 1] = costs[size:]
        costs[size - 1 :] = fresh
        costs -= costs.min()
