"""From sizes that are nearly right to sizes that are exactly right, at little cost.

Clusters with too many rows hand their cheapest row to a neighbour that is one step nearer to a
cluster with too few, until all have what they should. Handing on along neighbours keeps rows
local; a row sent all the way to the needy cluster would cost far more.
"""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels.arith import kernel, squared_distance
from bagwise.cluster.kernels.moves import transfer


@kernel
def hand_on(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    starts: IntArray,
    neighbours: AnyArray,
    rounds: int,
) -> None:
    """Hand rows on until ``sizes == targets``, as far as neighbours lead in so many rounds."""
    count = C.shape[0]
    head = np.full(count, -1, dtype=np.int64)
    following = np.empty(Z.shape[0], dtype=np.int64)
    for i in range(Z.shape[0] - 1, -1, -1):
        following[i] = head[labels[i]]
        head[labels[i]] = i
    steps = np.empty(count, dtype=np.int64)
    queue = np.empty(count, dtype=np.int64)
    best = np.empty(Z.shape[0], dtype=np.float64)
    to = np.empty(Z.shape[0], dtype=np.int64)
    handed = 1
    while rounds > 0 and handed > 0:
        rounds -= 1
        handed = 0
        _count_steps(sizes, targets, starts, neighbours, steps, queue)
        for a in range(count):
            if sizes[a] > targets[a] and steps[a] > 0:
                handed += _hand_on(
                    Z, C, sizes, targets, labels, head, following, best, to, a, steps, starts,
                    neighbours,
                )  # fmt: skip


@kernel
def hand_over(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    rows: IntArray,
    to: IntArray,
) -> None:
    """Hand rows over, one offer after the other, wherever that helps both sides."""
    for t in range(rows.size):
        row, b = rows[t], to[t]
        a = labels[row]
        if sizes[a] > targets[a] and sizes[b] < targets[b]:
            transfer(Z, C, sizes, labels, row, b)


@kernel
def _hand_on(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    head: IntArray,
    following: IntArray,
    best: AnyArray,
    to: IntArray,
    a: int,
    steps: IntArray,
    starts: IntArray,
    neighbours: AnyArray,
) -> int:
    """Let cluster `a` hand on what it has too many, as far as neighbours want it; count rows.

    Every row is priced once, and again only where the neighbour that it was for is full: to price
    all rows for each that goes would take the square of what is too many.
    """
    row = head[a]
    while row >= 0:
        to[row] = _price_row(Z, C, sizes, targets, row, a, steps, starts, neighbours, best)
        row = following[row]
    handed = 0
    while sizes[a] > targets[a]:
        cheapest, before_it = -1, -1
        before, row = -1, head[a]
        while row >= 0:
            if to[row] >= 0 and (cheapest < 0 or best[row] < best[cheapest]):
                cheapest, before_it = row, before
            before, row = row, following[row]
        if cheapest < 0:
            break
        b = to[cheapest]
        if steps[b] == 0 and sizes[b] >= targets[b]:
            to[cheapest] = _price_row(
                Z, C, sizes, targets, cheapest, a, steps, starts, neighbours, best
            )
            continue
        if before_it < 0:
            head[a] = following[cheapest]
        else:
            following[before_it] = following[cheapest]
        following[cheapest] = head[b]
        head[b] = cheapest
        transfer(Z, C, sizes, labels, cheapest, b)
        handed += 1
    return handed


@kernel
def _price_row(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    row: int,
    a: int,
    steps: IntArray,
    starts: IntArray,
    neighbours: AnyArray,
    best: AnyArray,
) -> int:
    """Return the neighbour one step nearer to the need that is cheapest for a row, -1 if none."""
    found = -1
    best[row] = np.inf
    for t in range(starts[a], starts[a + 1]):
        b = neighbours[t]
        if steps[b] != steps[a] - 1 or (steps[b] == 0 and sizes[b] >= targets[b]):
            continue
        price = _price(Z, C, sizes, row, a, b)
        if price < best[row]:
            best[row] = price
            found = b
    return found


@kernel
def _count_steps(
    sizes: IntArray,
    targets: IntArray,
    starts: IntArray,
    neighbours: AnyArray,
    steps: IntArray,
    queue: IntArray,
) -> None:
    """Count the steps from each cluster to the nearest one with too few rows, -1 if none leads."""
    filled = 0
    for a in range(sizes.size):
        steps[a] = -1
        if sizes[a] < targets[a]:
            steps[a] = 0
            queue[filled] = a
            filled += 1
    done = 0
    while done < filled:
        a = queue[done]
        done += 1
        for t in range(starts[a], starts[a + 1]):
            b = neighbours[t]
            if steps[b] < 0:
                steps[b] = steps[a] + 1
                queue[filled] = b
                filled += 1


@kernel
def _price(Z: AnyArray, C: AnyArray, sizes: IntArray, row: int, a: int, b: int) -> float:
    here, there = squared_distance(Z, row, C, a), squared_distance(Z, row, C, b)
    if sizes[a] < 2:
        return there - here
    return sizes[b] / (sizes[b] + 1.0) * there - sizes[a] / (sizes[a] - 1.0) * here
