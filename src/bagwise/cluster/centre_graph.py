"""The nearest centres of each centre and of each row.

For small problems they are exact (a matrix product and a selection). For larger ones, a graph over
the centres is grown from the leaves of bisection trees, updated through neighbours of neighbours
(Dong, Moses and Li 2011), and searched outwards from a row's own cluster.
"""

from typing import NamedTuple

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.arith import kernel, squared_distance
from bagwise.cluster.bisection import bisect
from bagwise.cluster.state import Threads

# A pair costs its features and a constant for being looked at; in these units exact lists of
# 50,000 rows and 5,000 centres in 32 dimensions (1.2e10) take about half a second of one core.
LOOK = 16
EXACT_ROWS = 1.3e10
EXACT_CENTRES = 1.5e9  # these lists are made anew in every sweep
BLOCK = 500_000  # products of rows and centres that are in memory at a time
EXPANSIONS = 16  # centres whose neighbours a search looks at
LEAF = 256
TREES = 3
FOLLOWERS = 24  # of a hub that are asked for their neighbours
SCAN = 64  # centres that are looked at together


class Lists(NamedTuple):
    """The nearest centres of each row, the nearest first, and how far they are."""

    ids: AnyArray
    distances: AnyArray


class CentreGraph:
    """The nearest other centres of each centre, kept up to date while the centres move."""

    def __init__(self, clusters: int, *, seed: int, workers: Threads, length: int = 16) -> None:
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
        pieces = self._workers.ranges(Z.shape[0])
        given = (Z, centres, labels, near, EXPANSIONS, lists)
        self._workers.run(search_lists, [(*given, *piece) for piece in pieces])

    def _improve(self, centres: AnyArray, queries: AnyArray, nearest: AnyArray) -> None:
        """Ask neighbours of neighbours, then look into the leaves of one more tree."""
        count, length = self.lists.shape
        shape = (count + queries.shape[0], length)
        lists = Lists(np.full(shape, -1, np.int32), np.full(shape, np.inf, centres.dtype))
        given = (centres, self.lists, *both_ways(self.lists), lists)
        pieces = self._workers.ranges(count)
        self._workers.run(refresh_graph, [(*given, *piece) for piece in pieces])
        points = np.concatenate([centres, queries])
        places = np.arange(points.shape[0], dtype=np.int32)
        leaves = max(1, points.shape[0] // LEAF)
        starts = np.arange(leaves + 1) * points.shape[0] // leaves
        self._trees += 1
        seed = self._seed + self._trees
        bisect(points, places, starts, rounds=1, seed=seed, workers=self._workers)
        pieces = self._workers.ranges(leaves, at_least=1)
        leafed = (points, places, starts, count, lists)
        self._workers.run(link_leaves, [(*leafed, *piece) for piece in pieces])
        self.lists = np.ascontiguousarray(lists.ids[:count])
        nearest[:] = lists.ids[count:, : nearest.shape[1]]


def exact_lists(
    points: AnyArray, centres: AnyArray, lists: AnyArray, workers: Threads, *, own: bool = False
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
            select_nearest(products[: stop - row], half_squares, row, lists, own)

    blocks = -(-points.shape[0] // step)
    workers.run(fill, workers.ranges(blocks, at_least=1))


def _work(points: AnyArray, centres: AnyArray) -> float:
    clusters, features = centres.shape
    return float(points.shape[0] * clusters * (features + LOOK))


@kernel
def insert_nearest(lists: Lists, row: int, new: int, distance: float) -> bool:
    """Insert `new` into the sorted list of `row` if it is near enough and new; return whether."""
    ids, distances = lists
    last = ids.shape[1] - 1
    if distance >= distances[row, last]:
        return False
    for t in range(last + 1):
        if ids[row, t] == new:
            return False
    t = last
    while t > 0 and distances[row, t - 1] > distance:
        distances[row, t] = distances[row, t - 1]
        ids[row, t] = ids[row, t - 1]
        t -= 1
    distances[row, t] = distance
    ids[row, t] = new
    return True


@kernel
def _count_near(products: AnyArray, half_squares: AnyArray, worst: float) -> int:
    """Count without a branch, which is several times faster than comparing one by one."""
    near = np.int32(0)
    for j in range(products.size):
        near += np.int32(1) if half_squares[j] - products[j] < worst else np.int32(0)
    return near  # type: ignore[return-value]


@kernel
def select_nearest(
    products: AnyArray, half_squares: AnyArray, first: int, ids: AnyArray, own: int
) -> None:
    """Keep the nearest centres of rows first.., given the products of rows and centres.

    |x - c|^2 orders like |c|^2/2 - x.c. What `ids` holds before is a guess: a good one saves time.
    With `own` the rows are the centres themselves, and a centre is not its own neighbour.
    """
    rows, centres = products.shape
    length = ids.shape[1]
    lists = Lists(np.empty((1, length), ids.dtype), np.empty((1, length), products.dtype))
    kept, best = lists
    for r in range(rows):
        best[:] = np.inf
        kept[:] = -1
        for t in range(length):
            j = ids[first + r, t]
            if j >= 0:
                insert_nearest(lists, 0, j, half_squares[j] - products[r, j])
        worst = best[0, length - 1]
        for start in range(0, centres, SCAN):
            stop = min(start + SCAN, centres)
            if _count_near(products[r, start:stop], half_squares[start:stop], worst) == 0:
                continue
            for j in range(start, stop):
                if half_squares[j] - products[r, j] < worst and not (own and j == first + r):
                    insert_nearest(lists, 0, j, half_squares[j] - products[r, j])
                    worst = best[0, length - 1]
        ids[first + r] = kept[0]


@kernel
def link_leaves(
    points: AnyArray, places: AnyArray, starts: IntArray, centres: int, lists: Lists,
    first: int, last: int,
) -> None:  # fmt: skip
    """Offer the centres in the leaves first..last to each other and to the queries among them.

    Points with a place below `centres` are centres, the others are queries.
    """
    for leaf in range(first, last):
        for i in range(starts[leaf], starts[leaf + 1]):
            for j in range(i + 1, starts[leaf + 1]):
                if places[i] >= centres and places[j] >= centres:
                    continue
                distance = squared_distance(points, i, points, j)
                if places[j] < centres:
                    insert_nearest(lists, places[i], places[j], distance)
                if places[i] < centres:
                    insert_nearest(lists, places[j], places[i], distance)


def both_ways(graph: AnyArray) -> tuple[IntArray, AnyArray]:
    """Return the graph with every edge in both directions, as starts and neighbours."""
    one, place = np.nonzero(graph >= 0)
    other = graph[one, place]
    ends = np.concatenate([one, other])
    neighbours = np.concatenate([other, one.astype(graph.dtype)])
    starts = np.cumsum(np.bincount(ends, minlength=graph.shape[0]))
    return np.concatenate([[0], starts]), neighbours[np.argsort(ends, kind="stable")]


@kernel
def refresh_graph(
    C: AnyArray, old: AnyArray, starts: IntArray, neighbours: AnyArray, new: Lists,
    first: int, last: int,
) -> None:  # fmt: skip
    """Rebuild the lists of the centres first..last from their neighbours and those' neighbours.

    `starts` and `neighbours` hold the old graph both ways; a hub's many followers are not all
    asked.
    """
    length = old.shape[1]
    seen = np.full(C.shape[0], -1, dtype=np.int32)
    for a in range(first, last):
        new.ids[a] = -1
        new.distances[a] = np.inf
        seen[a] = a
        for s in range(starts[a], min(starts[a + 1], starts[a] + FOLLOWERS)):
            b = neighbours[s]
            for t in range(-1, length):
                c = b if t < 0 else old[b, t]
                if c >= 0 and seen[c] != a:
                    seen[c] = a
                    insert_nearest(new, a, c, squared_distance(C, a, C, c))


@kernel
def search_lists(
    Z: AnyArray, C: AnyArray, labels: AnyArray, graph: AnyArray, expansions: int, lists: AnyArray,
    first: int, last: int,
) -> None:  # fmt: skip
    """Fill the lists of rows first..last by best-first search from each row's own cluster.

    What a list held before is where the search starts too, so lists improve from call to call.
    """
    length, degree = lists.shape[1], graph.shape[1]
    seen = np.full(C.shape[0], -1, dtype=np.int32)
    near, best = np.empty(length, dtype=np.int32), np.empty(length, dtype=C.dtype)
    is_open = np.empty(length, dtype=np.bool_)
    fresh = np.empty(max(length + 1, degree), dtype=np.int32)
    for i in range(first, last):
        best[:] = np.inf
        near[:] = -1
        is_open[:] = False
        new = 0
        for s in range(-1, length):
            c = labels[i] if s < 0 else lists[i, s]
            if c >= 0 and seen[c] != i:
                seen[c], fresh[new] = i, c
                new += 1
        nearest_open = _offer(Z, C, i, fresh, new, near, best, is_open, length)
        for _ in range(expansions):
            while nearest_open < length and not is_open[nearest_open]:
                nearest_open += 1
            if nearest_open == length:
                break
            is_open[nearest_open] = False
            centre = near[nearest_open]
            new = 0
            for t in range(degree):
                c = graph[centre, t]
                if c >= 0 and seen[c] != i:
                    seen[c], fresh[new] = i, c
                    new += 1
            nearest_open = _offer(Z, C, i, fresh, new, near, best, is_open, nearest_open)
        lists[i] = near


@kernel
def _offer(
    Z: AnyArray, C: AnyArray, i: int, fresh: AnyArray, new: int, near: AnyArray, best: AnyArray,
    is_open: AnyArray, nearest_open: int,
) -> int:  # fmt: skip
    """Insert the fresh centres that are near enough; return the first place that may be open."""
    last = near.size - 1
    for s in range(new):
        distance = squared_distance(Z, i, C, fresh[s])
        if distance >= best[last]:
            continue
        t = last
        while t > 0 and best[t - 1] > distance:
            best[t], near[t], is_open[t] = best[t - 1], near[t - 1], is_open[t - 1]
            t -= 1
        best[t], near[t], is_open[t] = distance, fresh[s], True
        nearest_open = min(nearest_open, t)
    return nearest_open
