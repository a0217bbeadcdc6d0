"""Compiled inner loops: compiled on first use, and kept in numba's on-disk cache.

Each has a twin of the same name in NumPy that the tests hold it against.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray

F = TypeVar("F", bound=Callable[..., object])


def _compiled(function: F) -> F:
    """Compile on first use; keep the result where numba can write, and nowhere else."""
    try:
        kept: Any = numba.njit(cache=True)(function)
    except RuntimeError:
        kept = numba.njit(function)
    return cast(F, kept)


@_compiled
def extend_lengths(part: FloatArray, size: int, costs: FloatArray, lengths: AnyArray) -> None:
    """Find the lengths of the next prefixes, and bring the window of costs up to them.

    Parameters
    ----------
    part : (lengths.size + 2 * size - 2,)
        The values that the last groups of these prefixes may have.
    costs : (2 * size - 1,)
        Of the prefixes before; changed.
    lengths : whole multiple of `size`
        Written to.
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


@_compiled
def trace_back(lengths: AnyArray) -> IntArray:
    """Sizes of the groups, from the last back to the first."""
    sizes = np.empty(lengths.size, dtype=np.int64)
    groups, end = 0, lengths.size - 1
    while end > 0:
        sizes[groups] = lengths[end]
        end -= lengths[end]
        groups += 1
    return sizes[:groups][::-1].copy()
