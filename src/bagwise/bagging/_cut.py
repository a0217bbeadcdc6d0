"""Cutting a row of values into consecutive groups of at least `size`.

The optimal cut is the paper's label k-means in one dimension under the constraint as stated there,
at least `size` rows per bag: a dynamic programme over groups of `size` to ``2*size - 1`` values
(a longer group can be split without loss). The paper's proof covers groups of exactly `size`,
for which sorting and chunking is optimal; with a minimum it is not: [0, .1, .2, 5, 5.1, 5.2] in
pairs costs 11.53 by chunking and 0.04 in two groups of three.
"""

import importlib.util
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bagwise._types import AnyArray, FloatArray, IntArray

_AT_ONCE = 2**18  # values that are looked at together, where there may be very many


class InOrder:
    """Values in an order, of which parts are brought into it where they are looked at.

    >>> InOrder(np.array([5.0, 3.0, 4.0]), np.array([1, 2, 0]))[:2]
    array([3., 4.])
    """

    def __init__(self, values: FloatArray, order: IntArray) -> None:
        self._values, self._order = values, order
        self.size = order.size

    def __getitem__(self, part: slice) -> FloatArray:
        return self._values[self._order[part]]


Ordered = FloatArray | InOrder
Extend = Callable[[FloatArray, int, FloatArray, AnyArray], None]


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


def rows_in_groups(order: IntArray, sizes: IntArray) -> IntArray:
    """Group of each row when rows in this order are cut into consecutive groups of these sizes.

    >>> rows_in_groups(np.array([3, 1, 0, 2]), np.array([1, 3]))
    array([1, 1, 1, 0])
    """
    index = np.empty(order.size, dtype=np.int64)
    step, start = max(1, _AT_ONCE // int(sizes.max())), 0
    for first in range(0, sizes.size, step):
        some = sizes[first : first + step]
        stop = start + int(some.sum())
        index[order[start:stop]] = first + group_index(some)
        start = stop
    return index


def optimal_sizes(ordered: Ordered, size: int) -> IntArray:
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

        return _kernels.trace_back(best_last_lengths(ordered, size, _kernels.extend_lengths))
    return trace_back(best_last_lengths(ordered, size))


def best_last_lengths(ordered: Ordered, size: int, extend: Extend | None = None) -> AnyArray:
    """Length of the last group in the best cut of the first j values, for j = 0..n.

    The programme is ``cost[j] = min over L in size..2*size-1 of cost[j-L] + spread(j-L, j)``.
    Since L >= size, the costs of `size` consecutive prefixes depend only on earlier ones: each step
    computes that many at once from a window of the last ``2*size - 1`` costs. So values are needed
    some at a time, and all that is kept of each is a length, in two bytes where they are enough.
    """
    extend = extend_lengths if extend is None else extend
    kind = np.uint16 if 2 * size <= 2**16 else np.int64
    lengths = np.zeros((ordered.size // size + 1) * size, dtype=kind)
    costs = np.full(2 * size - 1, np.inf)  # of the prefixes first-2*size+1 .. first-1
    costs[size - 1] = 0.0  # the empty prefix
    step = max(1, _AT_ONCE // size) * size
    for first in range(size, lengths.size, step):
        last = min(first + step, lengths.size)
        part = _with_ends(ordered, first - 2 * size + 1, last - 1)
        extend(part, size, costs, lengths[first:last])
    return lengths[: ordered.size + 1]


def _with_ends(ordered: Ordered, start: int, stop: int) -> FloatArray:
    """Return values from `start` on; before the first and after the last one these are repeated."""
    part = np.asarray(ordered[max(0, start) : stop], dtype=np.float64)
    return np.pad(part, (max(0, -start), max(0, stop - ordered.size)), mode="edge")


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


def trace_back(lengths: AnyArray) -> IntArray:
    """Sizes of the groups, from the last back to the first."""
    sizes, end, first = [], lengths.size - 1, lengths.size
    steps: list[int] = []
    while end > 0:
        if end < first:  # a plain list is several times faster to walk, and larger
            first = max(0, end + 1 - _AT_ONCE)
            steps = lengths[first : end + 1].tolist()
        sizes.append(steps[end - first])
        end -= sizes[-1]
    return np.array(sizes[::-1], dtype=np.int64)
