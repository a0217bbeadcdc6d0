"""Lower the expected error of a linear model, ``tr M^-1``, by exchanging rows between clusters."""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.exchanging import Blocks
from bagwise.cluster.state import Rows, sums_of_clusters
from bagwise.cluster.workers import Patience, Workers
from bagwise.show.stages import report_progress

WORTHWHILE = 1e-4  # relative improvement that a sweep must bring to be followed by another
ROWS_PER_VISIT = 8


def lower_trace(
    X: FloatArray,
    labels: IntArray,
    *,
    sweeps: int,
    seed: int,
    waiting: Patience,
    threads: int | None = None,
) -> IntArray:
    """Swap rows of X between clusters while ``tr M^-1`` falls; return the new labels.

    M is the size-weighted scatter of the cluster means. X should be centred and of full column
    rank. Each sweep looks at neighbours by the metric in which k-means is the gradient of the
    trace; a swap is made only if the exact trace falls, so no sweep makes it worse.
    """
    kernels.load_kernels()
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
    with Workers(threads, n_rows=X.shape[0]) as workers:
        graph = CentreGraph(clusters, seed=seed, workers=workers)
        for turn in range(sweeps):
            if waiting.is_over:
                break
            report_progress("lowering the expected error", turn / sweeps)
            trace = np.trace(P)
            ids = np.arange(X.shape[0], dtype=np.int32)
            images = X @ (P / trace)
            # Squares must not overflow or vanish in float32; a common factor changes nothing.
            size = np.abs(images).max(axis=1)
            usual = float(np.median(size)) or float(size.max()) or 1.0
            images = np.ascontiguousarray(images / usual, dtype=np.float32)
            blocks = Blocks.pack(Rows.of(images, ids, labels.astype(np.int32), clusters), most=0)
            rows = X[blocks.ids]
            pairs, _ = blocks.pairs(graph, rng, farthest=turn % 2 == 0)
            kernels.trace.lower_trace_by_swaps(
                pairs, blocks.ids, *blocks.state, rows, _means(X, labels, sizes), P,
                max(1, int(sizes.mean()) // ROWS_PER_VISIT),
            )  # fmt: skip
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
