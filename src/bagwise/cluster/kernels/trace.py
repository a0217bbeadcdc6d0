"""Exchanges that lower ``tr M^-1``, where M is the scatter of the cluster means, M = sum n c c'.

Swapping x in A for y in B changes M by ``e h' + h e'`` with ``e = y - x`` and
``h = a - b + (1/|A| + 1/|B|)/2 e``, for the means a and b. `lower_trace` says what that does to the
trace. To first order it is the gain of the swap in k-means on the rows of ``X P`` with P = M^-1,
which is how candidates are found without the O(d^2) of the exact change.
"""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels.arith import kernel, lower_trace, squared_distance
from bagwise.cluster.kernels.exchange import draw_swap, price_side, settle, swap_rows


@kernel
def lower_trace_by_swaps(
    pairs: AnyArray,
    ids: AnyArray,
    images: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    image_means: AnyArray,
    offsets: AnyArray,
    rows: AnyArray,
    means: AnyArray,
    P: AnyArray,
    visits: int,
) -> int:
    """Visit all pairs of clusters and make the swaps that lower tr(P); return how many.

    `rows` and `images` (the rows of X P, as P was at the start) stand cluster by cluster. Means and
    P are kept up to date.
    """
    features = rows.shape[1]
    e, h, Pe, Ph = np.empty(features), np.empty(features), np.empty(features), np.empty(features)
    ones = np.ones(features)
    scratch = np.empty((4, sizes.max()), dtype=images.dtype)
    silence = np.zeros(2, dtype=images.dtype)  # no noise
    swaps = 0
    for t in range(pairs.shape[0]):
        a, b = pairs[t, 0], pairs[t, 1]
        for _ in range(visits):
            i, j = _best_swap(images, starts, sizes, image_means, offsets, a, b, scratch, silence)
            if i < 0:
                break
            half = 0.5 * (1.0 / sizes[a] + 1.0 / sizes[b])
            for f in range(features):
                e[f] = rows[j, f] - rows[i, f]
                h[f] = means[a, f] - means[b, f] + half * e[f]
            if not lower_trace(P, ones, e, h, Pe, Ph, 0.0):
                break
            for f in range(features):
                means[a, f] += e[f] / sizes[a]
                means[b, f] -= e[f] / sizes[b]
                rows[i, f], rows[j, f] = rows[j, f], rows[i, f]
            swap_rows(images, ids, i, j)
            settle(images, starts, sizes, image_means, offsets, a)
            settle(images, starts, sizes, image_means, offsets, b)
            swaps += 1
    return swaps


@kernel
def _best_swap(
    images: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    C: AnyArray,
    offsets: AnyArray,
    a: int,
    b: int,
    scratch: AnyArray,
    silence: AnyArray,
) -> tuple[int, int]:
    """Find the swap that gains most in k-means on the images; -1 if none gains."""
    kind = images.dtype.type
    w = kind(1.0 / sizes[a] + 1.0 / sizes[b])
    _, far_a, _ = price_side(
        images, offsets, C, a, b, starts[a], sizes[a], w, kind(-1), scratch[0], scratch[2]
    )
    top_b, far_b, _ = price_side(
        images, offsets, C, b, a, starts[b], sizes[b], w, kind(1), scratch[1], scratch[3]
    )
    i, j = draw_swap(
        images, C, a, b, starts[a], sizes[a], starts[b], sizes[b], w, squared_distance(C, a, C, b),
        scratch[0], scratch[1], top_b, 2 * w * far_a * far_b, kind(0), kind(0),
        silence, 0,
    )  # fmt: skip
    return (starts[a] + i, starts[b] + j) if i >= 0 else (-1, -1)
