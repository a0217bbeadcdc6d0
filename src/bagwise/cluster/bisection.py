"""Cut rows into compact groups of given sizes, by halves; in how many directions rows differ."""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.workers import Workers

ROUNDS = 3  # of 2-means in each cut
SAMPLED_WINDOWS = 1000
SMALLEST_WINDOW, LARGEST_WINDOW = 10, 64
SUBTREES = 32  # nodes from which on each is one piece of work, together with all below it


def bisect(
    Z: AnyArray, ids: AnyArray, starts: IntArray, *, rounds: int, seed: int, workers: Workers
) -> None:
    """Reorder Z and ids so that the rows starts[g]..starts[g+1] form the compact group g."""
    keys, scratch = np.empty(Z.shape[0], dtype=Z.dtype), np.empty(Z.shape[0], dtype=Z.dtype)
    nodes = [(0, starts.size - 1)]
    while len(nodes) < SUBTREES and any(high - low > 1 for low, high in nodes):
        cuts = [(low, (low + high) // 2, high) for low, high in nodes if high - low > 1]
        workers.run(
            kernels.bisect.split,
            [(Z, ids, keys, scratch, *starts[list(cut)], rounds, seed) for cut in cuts],
        )
        nodes = [half for low, middle, high in cuts for half in ((low, middle), (middle, high))]
    workers.run(
        kernels.bisect.split_all,
        [(Z, ids, keys, scratch, starts, low, high, rounds, seed) for low, high in nodes],
    )


def effective_dimension(Z: AnyArray, clusters: int) -> float:
    """Estimate in how many directions neighbouring rows differ, as if all counted the same.

    For w rows with d such directions the participation ratio ``tr(G)^2 / |G|^2`` of their Gram
    matrix is about ``1 / (1/d + 1/(w-1))``. After bisection, neighbours stand side by side.
    """
    n, features = Z.shape
    window = min(n, int(np.clip(n // clusters, SMALLEST_WINDOW, LARGEST_WINDOW)))
    firsts = np.linspace(0, n - window, num=min(SAMPLED_WINDOWS, n // window), dtype=np.int64)
    local = Z[firsts[:, None] + np.arange(window)].astype(np.float64)
    local -= local.mean(axis=1, keepdims=True)
    gram = local @ local.transpose(0, 2, 1)
    squares, traces = np.einsum("bij,bij->b", gram, gram), np.einsum("bii->b", gram)
    differ = squares > 0
    if not differ.any():
        return float(features)
    ratio = float(np.mean(traces[differ] ** 2 / squares[differ]))
    rest = window - 1 - ratio
    dimension = ratio * (window - 1) / rest if rest > 0 else features
    return float(np.clip(dimension, min(2, features), features))
