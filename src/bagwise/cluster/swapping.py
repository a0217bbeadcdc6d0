"""Exchanges that reduce the expected error of a linear model, ``tr M^-1``.

M is the scatter of the cluster means, M = sum n c c'. Swapping x in A for y in B changes it by
``e h' + h e'`` with ``e = y - x`` and ``h = a - b + (1/|A| + 1/|B|)/2 e``, for the means a and b.
To first order the trace then changes by the gain of the swap in k-means on the rows of ``X P`` with
P = M^-1, which is how candidates are found without the O(d^2) of the exact change.
"""

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.cluster.arith import kernel, squared_distance
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.compile import load_kernels
from bagwise.cluster.exchanging import Blocks, draw_swap, price_side, settle, swap_rows
from bagwise.cluster.state import OrderedRows, Threads, sums_of_clusters
from bagwise.show.stages import report_progress

WORTHWHILE = 1e-4  # relative improvement that a sweep must bring to be followed by another
ROWS_PER_VISIT = 8
SINGULAR = 1e-12  # a determinant up to this, of a change that is 1 where nothing changes


def lower_trace(
    X: FloatArray,
    labels: IntArray,
    *,
    sweeps: int,
    seed: int,
    threads: int | None = None,
) -> IntArray:
    """Swap rows of X between clusters while ``tr M^-1`` falls; return the new labels.

    M is the size-weighted scatter of the cluster means. X should be centred and of full column
    rank. Each sweep looks at neighbours by the metric in which k-means is the gradient of the
    trace; a swap is made only if the exact trace falls, so no sweep makes it worse.
    """
    load_kernels()
    clusters = int(labels.max()) + 1
    sizes = np.bincount(labels)
    scatter = _scatter(_means(X, labels, sizes), sizes)
    if (
        clusters < 2
        or X.shape[1] == 0
        or np.linalg.matrix_rank(scatter, hermitian=True) < X.shape[1]
    ):
        return labels
    P = np.linalg.inv(scatter)
    rng = np.random.default_rng(seed)
    with Threads(threads, n_rows=X.shape[0]) as workers:
        graph = CentreGraph(clusters, seed=seed, workers=workers)
        for turn in range(sweeps):
            report_progress("lowering the expected error", turn / sweeps)
            # 1. Rows in the metric in which k-means is the gradient of the trace, as blocks.
            trace = np.trace(P)
            ids = np.arange(X.shape[0], dtype=np.int32)
            images = X @ (P / trace)
            # Squares must not overflow or vanish in float32; a common factor changes nothing.
            size = np.abs(images).max(axis=1)
            usual = float(np.median(size)) or float(size.max()) or 1.0
            images = np.ascontiguousarray(images / usual, dtype=np.float32)
            blocks = Blocks.pack(
                OrderedRows.of(images, ids, labels.astype(np.int32), clusters), most=0
            )
            # 2. Swap rows of neighbouring clusters while the exact trace falls.
            rows = X[blocks.ids]
            pairs, _ = blocks.pairs(graph, rng, farthest=turn % 2 == 0)
            visits = max(1, int(sizes.mean()) // ROWS_PER_VISIT)
            swap_between(pairs, blocks, rows, _means(X, labels, sizes), P, visits)
            # 3. Start again from the new clusters, if it was worthwhile.
            labels = np.empty_like(labels)
            labels[blocks.ids] = np.repeat(np.arange(clusters), sizes)
            P = np.linalg.inv(_scatter(_means(X, labels, sizes), sizes))
            if np.trace(P) > (1 - WORTHWHILE) * trace:
                break
    return labels


def _means(X: FloatArray, labels: IntArray, sizes: IntArray) -> FloatArray:
    return sums_of_clusters(X, labels, sizes.size) / sizes[:, None]


def _scatter(means: FloatArray, sizes: IntArray) -> FloatArray:
    return np.asarray((means * sizes[:, None]).T @ means)


@kernel
def swap_between(
    pairs: AnyArray, blocks: Blocks, rows: AnyArray, means: AnyArray, P: AnyArray, visits: int
) -> int:
    """Visit all pairs of clusters and make the swaps that lower tr(P); return how many.

    `rows`, and in the blocks their images (rows of X P, as P was at the start), stand cluster by
    cluster. Means and P are kept up to date.
    """
    features, sizes = rows.shape[1], blocks.sizes
    e, h, Pe, Ph = np.empty(features), np.empty(features), np.empty(features), np.empty(features)
    scratch = np.empty((4, sizes.max()), dtype=blocks.rows.dtype)
    silence = np.zeros(2, dtype=blocks.rows.dtype)  # no noise
    swaps = 0
    for t in range(pairs.shape[0]):
        a, b = pairs[t, 0], pairs[t, 1]
        for _ in range(visits):
            i, j = _best_swap(blocks, a, b, scratch, silence)
            if i < 0:
                break
            half = 0.5 * (1.0 / sizes[a] + 1.0 / sizes[b])
            for f in range(features):
                e[f] = rows[j, f] - rows[i, f]
                h[f] = means[a, f] - means[b, f] + half * e[f]
            if not change_inverse(P, e, h, Pe, Ph):
                break
            for f in range(features):
                means[a, f] += e[f] / sizes[a]
                means[b, f] -= e[f] / sizes[b]
                rows[i, f], rows[j, f] = rows[j, f], rows[i, f]
            swap_rows(blocks.rows, blocks.ids, i, j)
            settle(blocks, a)
            settle(blocks, b)
            swaps += 1
    return swaps


@kernel
def _best_swap(
    blocks: Blocks, a: int, b: int, scratch: AnyArray, silence: AnyArray
) -> tuple[int, int]:
    """Find the swap that gains most in k-means on the images; -1 if none gains."""
    images, _, starts, sizes, C, _ = blocks
    kind = images.dtype.type
    w = kind(1.0 / sizes[a] + 1.0 / sizes[b])
    _, far_a, _ = price_side(blocks, a, b, w, kind(-1), scratch[0], scratch[2])
    top_b, far_b, _ = price_side(blocks, b, a, w, kind(1), scratch[1], scratch[3])
    i, j = draw_swap(
        blocks, a, b, w, squared_distance(C, a, C, b), scratch[0], scratch[1], top_b,
        2 * w * far_a * far_b, kind(0), kind(0), silence, 0,
    )  # fmt: skip
    return (starts[a] + i, starts[b] + j) if i >= 0 else (-1, -1)


@kernel
def change_inverse(P: AnyArray, e: AnyArray, h: AnyArray, Pe: AnyArray, Ph: AnyArray) -> bool:
    """Update P by the change e h' + h e' of its inverse if its trace falls; say whether.

    With p = e'Pe, q = h'Ph, r = e'Ph, the trace changes by

        (q |Pe|^2 - 2 (1+r) (Pe).(Ph) + p |Ph|^2) / ((1+r)^2 - pq)

    and P by a rank-2 update (Woodbury).
    """
    size = e.size
    p, q, r, ee, eh, hh = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for f in range(size):
        first, second = 0.0, 0.0
        for g in range(size):
            first += P[f, g] * e[g]
            second += P[f, g] * h[g]
        Pe[f], Ph[f] = first, second
    for f in range(size):
        p += e[f] * Pe[f]
        q += h[f] * Ph[f]
        r += e[f] * Ph[f]
        ee += Pe[f] * Pe[f]
        eh += Pe[f] * Ph[f]
        hh += Ph[f] * Ph[f]
    determinant = (1.0 + r) * (1.0 + r) - p * q
    if determinant <= SINGULAR:
        return False
    change = (q * ee - 2.0 * (1.0 + r) * eh + p * hh) / determinant
    if not change < 0.0:
        return False
    for f in range(size):
        for g in range(size):
            P[f, g] += (
                q * Pe[f] * Pe[g] - (1.0 + r) * (Pe[f] * Ph[g] + Ph[f] * Pe[g]) + p * Ph[f] * Ph[g]
            ) / determinant
    return True
