"""Moving single rows between clusters, with sizes that are wished for rather than enforced.

The cost of a partition is its sum of squares plus ``weight / 2`` times the squared distance of
each cluster's size from the range it should lie in. The change of the sum of squares is exact, with
the centre moving along (Hartigan 1975), which matters for clusters of ten rows. Choices are made in
batches from frozen centres, and carried out one after the other where they still pay.
"""

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels.arith import kernel, squared_distance

STAY = -1
STRIP = 16  # rows side by side in memory that belong to the same batch


@kernel
def strips_of(n_rows: int, batches: int) -> int:
    """Count the strips of the longest batch."""
    return (n_rows + STRIP * batches - 1) // (STRIP * batches)


@kernel
def _row_of(place: int, batch: int, batches: int) -> int:
    return ((place // STRIP) * batches + batch) * STRIP + place % STRIP


@kernel
def cost_of_growing(size: int, least: int, most: int, weight: float) -> float:
    """Change of the penalty when a cluster of `size` takes one more row."""
    penalty = 0.0
    if size + 1 > most:
        penalty += weight * (size + 0.5 - most)
    if size < least:
        penalty -= weight * (least - size - 0.5)
    return penalty


@kernel
def choose_moves(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    labels: AnyArray,
    lists: AnyArray,
    wanted: AnyArray,
    batch: int,
    batches: int,
    first: int,
    last: int,
    least: int,
    most: int,
    weight: float,
    strict: bool,
) -> None:
    """Write the best cluster of the rows of a batch into `wanted`, strips first..last of it.

    `strict` keeps sizes in range.
    """
    for place in range(first * STRIP, last * STRIP):
        i = _row_of(place, batch, batches)
        if i >= Z.shape[0]:
            break
        a = labels[i]
        wanted[i] = STAY
        if sizes[a] < 2 or (strict and sizes[a] <= least):
            continue
        shrink = sizes[a] / (sizes[a] - 1.0)
        lowest = shrink * squared_distance(Z, i, C, a) + cost_of_growing(
            sizes[a] - 1, least, most, weight
        )
        for t in range(lists.shape[1]):
            b = lists[i, t]
            if b < 0 or b == a or (strict and sizes[b] >= most):
                continue
            cost = sizes[b] / (sizes[b] + 1.0) * squared_distance(Z, i, C, b) + cost_of_growing(
                sizes[b], least, most, weight
            )
            if cost < lowest:
                lowest = cost
                wanted[i] = b


@kernel
def carry_out(
    Z: AnyArray,
    C: AnyArray,
    sizes: IntArray,
    labels: AnyArray,
    wanted: AnyArray,
    batch: int,
    batches: int,
    least: int,
    most: int,
    weight: float,
    strict: bool,
) -> int:
    """Move the rows of a batch where it still pays, and return how many; centres follow."""
    moved = 0
    for place in range(strips_of(Z.shape[0], batches) * STRIP):
        i = _row_of(place, batch, batches)
        if i >= Z.shape[0]:
            break
        b = wanted[i]
        if b < 0:
            continue
        a = labels[i]
        if sizes[a] < 2 or (strict and (sizes[a] <= least or sizes[b] >= most)):
            continue
        before = sizes[a] / (sizes[a] - 1.0) * squared_distance(Z, i, C, a)
        after = sizes[b] / (sizes[b] + 1.0) * squared_distance(Z, i, C, b)
        before += cost_of_growing(sizes[a] - 1, least, most, weight)
        after += cost_of_growing(sizes[b], least, most, weight)
        if after < before:
            transfer(Z, C, sizes, labels, i, b)
            moved += 1
    return moved


@kernel
def transfer(Z: AnyArray, C: AnyArray, sizes: IntArray, labels: AnyArray, i: int, b: int) -> None:
    """Move row i to cluster b, both centres and sizes included."""
    a = labels[i]
    for f in range(Z.shape[1]):
        C[a, f] -= (Z[i, f] - C[a, f]) / (sizes[a] - 1)
        C[b, f] += (Z[i, f] - C[b, f]) / (sizes[b] + 1)
    sizes[a] -= 1
    sizes[b] += 1
    labels[i] = b
