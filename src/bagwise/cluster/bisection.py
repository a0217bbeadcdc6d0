"""Recursive balanced bisection: the start of a search, and trees for lists of neighbours."""

from typing import NamedTuple

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.arith import kernel, mix
from bagwise.cluster.state import Threads

ROUNDS = 3  # of 2-means in each cut
SUBTREES = 32  # nodes from which on each is one piece of work, together with all below it
SAMPLE = 2048  # rows from which a node's principal axis is estimated


class Order(NamedTuple):
    """Rows that are being brought into an order, and what the loops need for each of them."""

    Z: AnyArray
    ids: AnyArray
    keys: AnyArray
    scratch: AnyArray


def bisect(
    Z: AnyArray, ids: AnyArray, starts: IntArray, *, rounds: int, seed: int, workers: Threads
) -> None:
    """Reorder Z and ids so that the rows starts[g]..starts[g+1] form the compact group g."""
    order = Order(Z, ids, np.empty(Z.shape[0], dtype=Z.dtype), np.empty(Z.shape[0], dtype=Z.dtype))
    nodes = [(0, starts.size - 1)]
    while len(nodes) < SUBTREES and any(high - low > 1 for low, high in nodes):
        cuts = [(low, (low + high) // 2, high) for low, high in nodes if high - low > 1]
        workers.run(split, [(order, *starts[list(cut)], rounds, seed) for cut in cuts])
        nodes = [half for low, middle, high in cuts for half in ((low, middle), (middle, high))]
    workers.run(split_all, [(order, starts, low, high, rounds, seed) for low, high in nodes])


@kernel
def split(order: Order, start: int, middle: int, stop: int, rounds: int, seed: int) -> None:
    """Reorder rows start..stop so that middle divides them into two compact halves.

    The direction starts as the principal axis. Then come rounds of 2-means with fixed sizes, whose
    best assignment is a cut of the projections on the difference of the two means.
    """
    Z, ids, keys, scratch = order
    direction = _principal_axis(Z, start, stop, seed)
    for turn in range(rounds + 1):
        _mark_sides(Z, keys, scratch, start, middle, stop, direction)
        if turn < rounds:
            _difference_of_means(Z, keys, start, stop, direction)
    _move_to_sides(Z, ids, keys, start, middle)


@kernel
def split_all(
    order: Order, starts: IntArray, first: int, last: int, rounds: int, seed: int
) -> None:
    """Split the groups first..last until each stands alone; `starts` says where groups begin."""
    stack = np.empty((128, 2), dtype=np.int64)
    stack[0, 0], stack[0, 1] = first, last
    depth = 1
    while depth > 0:
        depth -= 1
        low, high = stack[depth, 0], stack[depth, 1]
        if high - low < 2:
            continue
        half = (low + high) // 2
        split(order, starts[low], starts[half], starts[high], rounds, seed)
        stack[depth, 0], stack[depth, 1] = low, half
        stack[depth + 1, 0], stack[depth + 1, 1] = half, high
        depth += 2


@kernel
def _principal_axis(Z: AnyArray, start: int, stop: int, seed: int) -> AnyArray:
    """Estimate the direction of largest spread by four power iterations on a sample."""
    features, count = Z.shape[1], stop - start
    step = max(1, count // SAMPLE)
    first = start + mix(seed, start) % step
    mean, axis = np.zeros(features), np.empty(features)
    used = 0
    for i in range(first, stop, step):
        used += 1
        for f in range(features):
            mean[f] += Z[i, f]
    for f in range(features):
        mean[f] /= used
        axis[f] = mix(seed + f, stop) / 2.0**61 - 1.0
    following = np.empty(features)
    for _ in range(4):
        following[:] = 0.0
        for i in range(first, stop, step):
            along = 0.0
            for f in range(features):
                along += (Z[i, f] - mean[f]) * axis[f]
            for f in range(features):
                following[f] += along * (Z[i, f] - mean[f])
        if not _normalise(following, axis):
            break
    return axis.astype(Z.dtype)


@kernel
def _normalise(vector: AnyArray, out: AnyArray) -> bool:
    """Write the direction of a vector, one entry at a time: arrays take seconds more to compile."""
    squares = 0.0
    for f in range(vector.size):
        squares += vector[f] * vector[f]
    if squares > 0.0:
        for f in range(vector.size):
            out[f] = vector[f] / np.sqrt(squares)
    return squares > 0.0


@kernel
def _mark_sides(
    Z: AnyArray, keys: AnyArray, scratch: AnyArray, start: int, middle: int, stop: int,
    direction: AnyArray,
) -> None:  # fmt: skip
    """Set keys to -1 for the middle-start rows with the smallest projections, to 1 elsewhere."""
    for i in range(start, stop):
        along = Z.dtype.type(0.0)
        for f in range(Z.shape[1]):
            along += Z[i, f] * direction[f]
        keys[i] = along
        scratch[i] = along
    cut = _nth_smallest(scratch, start, stop, middle)
    ties = middle - start
    for i in range(start, stop):
        if keys[i] < cut:
            ties -= 1
    for i in range(start, stop):
        left = keys[i] < cut
        if keys[i] == cut and ties > 0:
            left = True
            ties -= 1
        keys[i] = -1.0 if left else 1.0


@kernel
def _nth_smallest(values: AnyArray, start: int, stop: int, position: int) -> float:
    """Quickselect; equal values are spread over both sides, so that all-equal input is fast."""
    low, high = start, stop - 1
    while low < high:
        a, b, c = values[low], values[(low + high) // 2], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if position <= j:
            high = j
        elif position >= i:
            low = i
        else:
            break
    return values[position]


@kernel
def _difference_of_means(
    Z: AnyArray, sides: AnyArray, start: int, stop: int, direction: AnyArray
) -> None:
    left, right = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    on_left = 0
    for i in range(start, stop):
        if sides[i] < 0:
            on_left += 1
            for f in range(Z.shape[1]):
                left[f] += Z[i, f]
        else:
            for f in range(Z.shape[1]):
                right[f] += Z[i, f]
    on_right = stop - start - on_left
    for f in range(Z.shape[1]):
        direction[f] = right[f] / on_right - left[f] / on_left


@kernel
def _move_to_sides(Z: AnyArray, ids: AnyArray, sides: AnyArray, start: int, middle: int) -> None:
    j = middle
    for i in range(start, middle):
        if sides[i] < 0:
            continue
        while sides[j] > 0:
            j += 1
        ids[i], ids[j] = ids[j], ids[i]
        for f in range(Z.shape[1]):
            Z[i, f], Z[j, f] = Z[j, f], Z[i, f]
        sides[j] = 1.0
