"""Cut rows into compact groups of given sizes, by halves."""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.workers import Workers

ROUNDS = 3  # of 2-means in each cut
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
