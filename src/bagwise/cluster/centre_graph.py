"""Lists of the nearest centres, exact where that is cheap and nearly so elsewhere."""

import numpy as np

from bagwise._types import AnyArray
from bagwise.cluster import kernels
from bagwise.cluster.bisection import bisect
from bagwise.cluster.workers import Workers

# A pair costs its features and a constant for being looked at; in these units exact lists of
# 50,000 rows and 5,000 centres in 32 dimensions (1.2e10) take about half a second of one core.
LOOK = 16
EXACT_ROWS = 1.3e10
EXACT_CENTRES = 1.5e9  # these lists are made anew in every sweep
BLOCK = 500_000  # products of rows and centres that are in memory at a time
EXPANSIONS = 16  # centres whose neighbours a search looks at
LEAF = 256
TREES = 3


class CentreGraph:
    """The nearest other centres of each centre, kept up to date while the centres move."""

    def __init__(self, clusters: int, *, seed: int, workers: Workers, length: int = 16) -> None:
        self._seed = seed
        self._workers = workers
        self._trees = 0
        self._is_new = True
        self.lists = np.full((clusters, min(length, clusters - 1)), -1, dtype=np.int32)

    def refresh(self, centres: AnyArray) -> AnyArray:
        """Bring the lists up to date; places that could not be filled hold -1."""
        self.refresh_with(centres, centres[:0], 0)
        return self.lists

    def refresh_with(self, centres: AnyArray, queries: AnyArray, length: int) -> AnyArray:
        """Bring the lists up to date; return the `length` nearest centres of each query."""
        nearest = np.full((queries.shape[0], length), -1, dtype=np.int32)
        if _work(centres, centres) <= EXACT_CENTRES:
            exact_lists(centres, centres, self.lists, self._workers, own=True)
            guessed = min(length, self.lists.shape[1])
            nearest[:, :guessed] = self.lists[: nearest.shape[0], :guessed]
            exact_lists(queries, centres, nearest, self._workers)
            return nearest
        for _ in range(TREES if self._is_new else 0):
            self._improve(centres, queries[:0], nearest[:0])
        self._is_new = False
        self._improve(centres, queries, nearest)
        return nearest

    def fill_rows(self, Z: AnyArray, centres: AnyArray, labels: AnyArray, lists: AnyArray) -> None:
        """Bring the lists of nearest centres of all rows up to date."""
        if _work(Z, centres) <= EXACT_ROWS:
            exact_lists(Z, centres, lists, self._workers)
            return
        near = self.refresh(centres)
        self._workers.run(
            kernels.neighbours.search_lists,
            [
                (Z, centres, labels, near, low, high, EXPANSIONS, lists)
                for low, high in self._workers.ranges(Z.shape[0])
            ],
        )

    def _improve(self, centres: AnyArray, queries: AnyArray, nearest: AnyArray) -> None:
        """Ask neighbours of neighbours, then look into the leaves of one more tree."""
        count, length = self.lists.shape
        starts, neighbours = kernels.neighbours.both_ways(self.lists)
        ids = np.full((count + queries.shape[0], length), -1, dtype=np.int32)
        distances = np.full(ids.shape, np.inf, dtype=centres.dtype)
        self._workers.run(
            kernels.neighbours.refresh_graph,
            [
                (centres, self.lists, starts, neighbours, low, high, ids, distances)
                for low, high in self._workers.ranges(count)
            ],
        )
        points = np.concatenate([centres, queries])
        places = np.arange(points.shape[0], dtype=np.int32)
        leaves = max(1, points.shape[0] // LEAF)
        starts = np.arange(leaves + 1) * points.shape[0] // leaves
        self._trees += 1
        seed = self._seed + self._trees
        bisect(points, places, starts, rounds=1, seed=seed, workers=self._workers)
        self._workers.run(
            kernels.neighbours.link_leaves,
            [
                (points, places, starts, low, high, count, ids, distances)
                for low, high in self._workers.ranges(leaves, at_least=1)
            ],
        )
        self.lists = np.ascontiguousarray(ids[:count])
        nearest[:] = ids[count:, : nearest.shape[1]]


def exact_lists(
    points: AnyArray, centres: AnyArray, lists: AnyArray, workers: Workers, *, own: bool = False
) -> None:
    """Fill `lists` with the nearest centres of each point; `own` if the points are the centres.

    What the lists hold before is taken as a guess.
    """
    if lists.size == 0:
        return
    half_squares = 0.5 * np.einsum("ij,ij->i", centres, centres)
    step = max(16, BLOCK // centres.shape[0])

    def fill(first: int, last: int) -> None:
        products = np.empty((step, centres.shape[0]), dtype=centres.dtype)
        # Blocks begin at fixed rows, so that no number depends on how the rows were handed out.
        for block in range(first, last):
            row, stop = block * step, min((block + 1) * step, points.shape[0])
            np.matmul(points[row:stop], centres.T, out=products[: stop - row])
            kernels.neighbours.select_nearest(products[: stop - row], half_squares, row, lists, own)

    blocks = -(-points.shape[0] // step)
    workers.run(fill, workers.ranges(blocks, at_least=1))


def _work(points: AnyArray, centres: AnyArray) -> float:
    clusters, features = centres.shape
    return float(points.shape[0] * clusters * (features + LOOK))
