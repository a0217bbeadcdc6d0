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
def reach_targets(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    starts: IntArray,
    neighbours: AnyArray,
    rounds: int,
    fixed: bool,
) -> None:
    """Hand rows on until ``sizes == targets``, which have the same sum.

    With `fixed` centres the cost of a row is its distance alone, as in assigning new rows. Where
    neighbours do not lead to the need, rows go there directly.
    """
    count = C.shape[0]
    head = np.full(count, -1, dtype=np.int64)
    following = np.empty(Z.shape[0], dtype=np.int64)
    for i in range(Z.shape[0] - 1, -1, -1):
        following[i] = head[labels[i]]
        head[labels[i]] = i
    steps = np.empty(count, dtype=np.int64)
    queue = np.empty(count, dtype=np.int64)
    handed = 1
    while rounds > 0 and handed > 0:
        rounds -= 1
        handed = 0
        _count_steps(sizes, targets, starts, neighbours, steps, queue)
        for a in range(count):
            handed += _hand_on(
                Z, C, sizes, targets, labels, head, following, a, steps, starts, neighbours, fixed
            )
    for a in range(count):
        while sizes[a] > targets[a]:
            row, before, b = _cheapest_anywhere(
                Z, C, sizes, targets, head, following, a, queue, fixed
            )
            _hand_over(Z, C, sizes, labels, head, following, row, before, b, fixed)


@kernel
def _hand_on(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    head: IntArray,
    following: IntArray,
    a: int,
    steps: IntArray,
    starts: IntArray,
    neighbours: AnyArray,
    fixed: bool,
) -> int:
    """Let cluster `a` hand on what it has too many, as far as neighbours want it; count rows."""
    handed = 0
    while sizes[a] > targets[a] and steps[a] > 0:
        row, before, b = _cheapest(
            Z, C, sizes, targets, head, following, a, steps, starts, neighbours, fixed
        )
        if row < 0:
            break
        _hand_over(Z, C, sizes, labels, head, following, row, before, b, fixed)
        handed += 1
    return handed


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
def _price(
    Z: AnyArray, C: AnyArray, sizes: IntArray, row: int, a: int, b: int, fixed: bool
) -> float:
    here, there = squared_distance(Z, row, C, a), squared_distance(Z, row, C, b)
    if fixed or sizes[a] < 2:
        return there - here
    return sizes[b] / (sizes[b] + 1.0) * there - sizes[a] / (sizes[a] - 1.0) * here


@kernel
def _cheapest(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    head: IntArray,
    following: IntArray,
    a: int,
    steps: IntArray,
    starts: IntArray,
    neighbours: AnyArray,
    fixed: bool,
) -> tuple[int, int, int]:
    """Find the cheapest row of `a` to hand to a neighbour one step nearer to the need."""
    best, best_row, best_before, best_to = np.inf, -1, -1, -1
    for t in range(starts[a], starts[a + 1]):
        b = neighbours[t]
        if steps[b] != steps[a] - 1 or (steps[b] == 0 and sizes[b] >= targets[b]):
            continue
        before, row = -1, head[a]
        while row >= 0:
            price = _price(Z, C, sizes, row, a, b, fixed)
            if price < best:
                best, best_row, best_before, best_to = price, row, before, b
            before, row = row, following[row]
    return best_row, best_before, best_to


@kernel
def _cheapest_anywhere(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    head: IntArray,
    following: IntArray,
    a: int,
    queue: IntArray,
    fixed: bool,
) -> tuple[int, int, int]:
    """Find the cheapest row of `a` and needy cluster, however far: where no neighbours lead."""
    needy = 0
    for b in range(sizes.size):
        if sizes[b] < targets[b]:
            queue[needy] = b
            needy += 1
    best, best_row, best_before, best_to = np.inf, -1, -1, -1
    before, row = -1, head[a]
    while row >= 0:
        for t in range(needy):
            price = _price(Z, C, sizes, row, a, queue[t], fixed)
            if price < best:
                best, best_row, best_before, best_to = price, row, before, queue[t]
        before, row = row, following[row]
    return best_row, best_before, best_to


@kernel
def _hand_over(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    labels: AnyArray,
    head: IntArray,
    following: IntArray,
    row: int,
    before: int,
    b: int,
    fixed: bool,
) -> None:
    a = labels[row]
    if before < 0:
        head[a] = following[row]
    else:
        following[before] = following[row]
    following[row] = head[b]
    head[b] = row
    if fixed:
        sizes[a] -= 1
        sizes[b] += 1
        labels[row] = b
    else:
        transfer(Z, C, sizes, labels, row, b)
