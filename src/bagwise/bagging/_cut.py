"""Cutting a row of values into consecutive groups of at least `size`, and rows into near groups.

The optimal cut is the paper's label k-means in one dimension under the constraint as stated there,
at least `size` rows per bag: a dynamic programme over groups of `size` to ``2*size - 1`` values
(a longer group can be split without loss). The paper's proof covers groups of exactly `size`,
for which sorting and chunking is optimal; with a minimum it is not: [0, .1, .2, 5, 5.1, 5.2] in
pairs costs 11.53 by chunking and 0.04 in two groups of three.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray

_AT_ONCE = 2**18  # values that are looked at together, where there may be very many


class InOrder:
    """Values in an order, of which parts are only sorted when they are accessed.

    >>> InOrder(np.array([5.0, 3.0, 4.0]), np.array([1, 2, 0]))[:2]
    array([3., 4.])
    """

    def __init__(self, values: FloatArray, order: IntArray) -> None:
        self._values, self._order = values, order
        self.size = order.size

    def __getitem__(self, part: slice) -> FloatArray:
        return self._values[self._order[part]]


Ordered = FloatArray | InOrder


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

    Exact, in O(n * size) time; where two cuts cost the same, either may be returned.

    References
    ----------
    Lemma 15 (l3) for groups of equal size; Hansen and Mukherjee (2003) for a minimum size.
    """
    if size == 1 or ordered.size < 2 * size:
        return equal_sizes(ordered.size, size)
    return trace_back(best_last_lengths(ordered, size))


def trace_back(lengths: AnyArray) -> IntArray:
    """Return the sizes of the groups, found from the last back to the first."""
    sizes, end = [], lengths.size - 1
    while end > 0:
        sizes.append(int(lengths[end]))
        end -= sizes[-1]
    return np.array(sizes[::-1], dtype=np.int64)


def best_last_lengths(ordered: Ordered, size: int) -> AnyArray:
    """Length of the last group in the best cut of the first j values, for j = 0..n.

    The programme is ``cost[j] = min over L in size..2*size-1 of cost[j-L] + spread(j-L, j)``.
    Since L >= size, the costs of `size` consecutive prefixes depend only on earlier ones: each step
    computes that many at once from a window of the last ``2*size - 1`` costs. So values are needed
    some at a time, and all that is kept of each is a length, in two bytes where they are enough.
    """
    kind = np.uint16 if 2 * size <= 2**16 else np.int64
    lengths = np.zeros((ordered.size // size + 1) * size, dtype=kind)
    costs = np.full(2 * size - 1, np.inf)  # of the prefixes first-2*size+1 .. first-1
    costs[size - 1] = 0.0  # the empty prefix
    step = max(1, _AT_ONCE // size) * size
    for first in range(size, lengths.size, step):
        last = min(first + step, lengths.size)
        start, stop = first - 2 * size + 1, last - 1
        part = np.asarray(ordered[max(0, start) : stop], dtype=np.float64)
        beyond = (max(0, -start), max(0, stop - ordered.size))  # there, the end is repeated
        part = np.pad(part, beyond, mode="edge")
        _compiled()(part, size, costs, lengths[first:last])
    return lengths[: ordered.size + 1]


@cache
def _compiled() -> Callable[..., None]:
    """Return `extend_lengths`, compiled; the tests compare it with a twin in NumPy."""
    from bagwise.cluster.arith import compiled  # numba takes a second to import

    return compiled(extend_lengths)


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


def cut_apart(points: FloatArray, starts: IntArray) -> IntArray:
    """Return an order of rows in which starts[g]..starts[g+1] are near each other.

    Rows are cut in two along the column in which they differ most, and each part again.
    """
    order = np.arange(points.shape[0])
    parts = [(0, starts.size - 1)]
    while parts:
        low, high = parts.pop()
        if high - low < 2:
            continue
        middle = (low + high) // 2
        rows = order[starts[low] : starts[high]]
        column = points[rows, int(np.argmax(np.var(points[rows], axis=0)))]
        here = int(starts[middle] - starts[low])
        order[starts[low] : starts[high]] = rows[np.argpartition(column, here)]
        parts += [(low, middle), (middle, high)]
    return order
