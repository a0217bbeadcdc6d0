"""Moves and swaps that lower ``tr(W A^-1)``, where A is the scatter of bag sums, A = sum s s'.

Taking e from the sum of bag a and adding it to that of b changes A by ``e h' + h e'`` with
``h = s_b - s_a + e``: e is a row that moves, or the difference of two rows that are swapped.
`lower_trace` says what that does to the trace. To first order, and up to a factor of -2, it is
``e'K h`` with K = P W P and P = A^-1: this is how candidates are found without the O(d^2) of the
exact change.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.cluster.kernels.arith import kernel, lower_trace


@kernel
def exchange(
    rows: FloatArray,
    pulls: FloatArray,
    selves: FloatArray,
    labels: IntArray,
    sizes: IntArray,
    sums: FloatArray,
    P: FloatArray,
    weights: FloatArray,
    least: int,
    most: int,
    worthwhile: float,
) -> int:
    """Move or swap rows where the exact trace falls by more than `worthwhile`; return how often.

    ``pulls[i, b]`` is x_i'K s_b and ``selves[i]`` is x_i'K x_i, as K and the sums were at the
    start. Labels, sizes, sums and P are kept up to date.
    """
    scratch = np.empty((4, rows.shape[1]))
    any_size = sizes.sum() + 1
    changes = 0
    for i in range(rows.shape[0]):
        a = labels[i]
        b = _strongest(pulls, i, a, sizes, any_size)
        if pulls[i, b] + selves[i] <= pulls[i, a]:
            continue
        if sizes[a] <= least or sizes[b] >= most:
            j = _partner(pulls, selves, labels, a, b)
            if j >= 0 and _swap(rows, i, j, labels, sums, P, weights, scratch, worthwhile):
                changes += 1
                continue
            b = _strongest(pulls, i, a, sizes, most)
            if sizes[a] <= least or b == a or pulls[i, b] + selves[i] <= pulls[i, a]:
                continue
        if _move(rows, i, b, labels, sizes, sums, P, weights, scratch, worthwhile):
            changes += 1
    return changes


@kernel
def _strongest(pulls: FloatArray, i: int, a: int, sizes: IntArray, most: int) -> int:
    """Find the bag other than `a`, of fewer than `most` rows, that pulls row i most; or `a`."""
    best, strongest = -np.inf, a
    for b in range(sizes.size):
        if b != a and sizes[b] < most and pulls[i, b] > best:
            best, strongest = pulls[i, b], b
    return strongest


@kernel
def _partner(pulls: FloatArray, selves: FloatArray, labels: IntArray, a: int, b: int) -> int:
    """Find the row of bag b that would lose least, or gain most, by going to a; -1 if none."""
    best, partner = -np.inf, -1
    for j in range(labels.size):
        if labels[j] == b:
            gain = pulls[j, a] - pulls[j, b] + selves[j]
            if gain > best:
                best, partner = gain, j
    return partner


@kernel
def _move(
    rows: FloatArray,
    i: int,
    b: int,
    labels: IntArray,
    sizes: IntArray,
    sums: FloatArray,
    P: FloatArray,
    weights: FloatArray,
    scratch: FloatArray,
    worthwhile: float,
) -> bool:
    a = labels[i]
    for f in range(rows.shape[1]):
        scratch[0, f] = rows[i, f]
    if not transfer(sums, P, weights, a, b, scratch, worthwhile):
        return False
    labels[i] = b
    sizes[a] -= 1
    sizes[b] += 1
    return True


@kernel
def _swap(
    rows: FloatArray,
    i: int,
    j: int,
    labels: IntArray,
    sums: FloatArray,
    P: FloatArray,
    weights: FloatArray,
    scratch: FloatArray,
    worthwhile: float,
) -> bool:
    a, b = labels[i], labels[j]
    for f in range(rows.shape[1]):
        scratch[0, f] = rows[i, f] - rows[j, f]
    if not transfer(sums, P, weights, a, b, scratch, worthwhile):
        return False
    labels[i], labels[j] = b, a
    return True


@kernel
def transfer(
    sums: FloatArray,
    P: FloatArray,
    weights: FloatArray,
    a: int,
    b: int,
    scratch: FloatArray,
    worthwhile: float,
) -> bool:
    """Take ``scratch[0]`` from the sum of bag a to that of b if the trace falls; say whether."""
    e, h = scratch[0], scratch[1]
    for f in range(e.size):
        h[f] = sums[b, f] - sums[a, f] + e[f]
    if not lower_trace(P, weights, e, h, scratch[2], scratch[3], worthwhile):
        return False
    for f in range(e.size):
        sums[a, f] -= e[f]
        sums[b, f] += e[f]
    return True
