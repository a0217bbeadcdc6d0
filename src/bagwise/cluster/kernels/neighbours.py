"""Which centres are near: to each other, and to each row.

Exact where that is cheap (a matrix product and a selection). Elsewhere a graph over the centres is
grown from the leaves of bisection trees, kept fresh by looking at neighbours of neighbours (Dong,
Moses and Li 2011), and searched from a row's own cluster outwards.
"""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels.arith import insert_nearest, kernel, squared_distance

SCAN = 64  # centres that are looked at together


@kernel
def _count_near(products: AnyArray, half_squares: AnyArray, worst: float) -> int:
    """Count without a branch, which is several times faster than to compare one by one."""
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
    best = np.empty((1, length), dtype=products.dtype)
    kept = np.empty((1, length), dtype=ids.dtype)
    for r in range(rows):
        best[:] = np.inf
        kept[:] = -1
        for t in range(length):
            j = ids[first + r, t]
            if j >= 0:
                insert_nearest(kept, best, 0, j, half_squares[j] - products[r, j])
        worst = best[0, length - 1]
        for start in range(0, centres, SCAN):
            stop = min(start + SCAN, centres)
            if _count_near(products[r, start:stop], half_squares[start:stop], worst) == 0:
                continue
            for j in range(start, stop):
                if half_squares[j] - products[r, j] < worst and not (own and j == first + r):
                    insert_nearest(kept, best, 0, j, half_squares[j] - products[r, j])
                    worst = best[0, length - 1]
        ids[first + r] = kept[0]


@kernel
def link_leaves(
    points: AnyArray,
    places: AnyArray,
    starts: IntArray,
    first: int,
    last: int,
    centres: int,
    ids: AnyArray,
    distances: AnyArray,
) -> None:
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
                    insert_nearest(ids, distances, places[i], places[j], distance)
                if places[i] < centres:
                    insert_nearest(ids, distances, places[j], places[i], distance)


@kernel
def both_ways(graph: AnyArray) -> tuple[IntArray, AnyArray]:
    """Return the graph with every edge in both directions, as starts and neighbours."""
    count = graph.shape[0]
    starts = np.zeros(count + 1, dtype=np.int64)
    for a in range(count):
        for t in range(graph.shape[1]):
            if graph[a, t] >= 0:
                starts[a + 1] += 1
                starts[graph[a, t] + 1] += 1
    for a in range(count):
        starts[a + 1] += starts[a]
    filled = starts[:-1].copy()
    neighbours = np.empty(starts[count], dtype=np.int32)
    for a in range(count):
        for t in range(graph.shape[1]):
            b = graph[a, t]
            if b >= 0:
                neighbours[filled[a]] = b
                neighbours[filled[b]] = a
                filled[a] += 1
                filled[b] += 1
    return starts, neighbours


@kernel
def refresh_graph(
    C: AnyArray,
    old: AnyArray,
    starts: IntArray,
    neighbours: AnyArray,
    first: int,
    last: int,
    new: AnyArray,
    distances: AnyArray,
) -> None:
    """Rebuild the lists of the centres first..last from their neighbours and those' neighbours.

    `starts` and `neighbours` hold the old graph both ways; a hub's many followers are not all
    asked.
    """
    length = old.shape[1]
    seen = np.full(C.shape[0], -1, dtype=np.int32)
    for a in range(first, last):
        new[a] = -1
        distances[a] = np.inf
        seen[a] = a
        for s in range(starts[a], min(starts[a + 1], starts[a] + 24)):
            b = neighbours[s]
            for t in range(-1, length):
                c = b if t < 0 else old[b, t]
                if c >= 0 and seen[c] != a:
                    seen[c] = a
                    insert_nearest(new, distances, a, c, squared_distance(C, a, C, c))


@kernel
def search_lists(
    Z: AnyArray,
    C: AnyArray,
    labels: AnyArray,
    graph: AnyArray,
    first: int,
    last: int,
    expansions: int,
    lists: AnyArray,
) -> None:
    """Fill the lists of rows first..last by best-first search from each row's own cluster.

    What a list held before is where the search starts too, so lists improve from call to call.
    """
    length, degree = lists.shape[1], graph.shape[1]
    seen = np.full(C.shape[0], -1, dtype=np.int32)
    found, best = np.empty(length, dtype=np.int32), np.empty(length, dtype=C.dtype)
    is_open = np.empty(length, dtype=np.bool_)
    fresh = np.empty(max(length + 1, degree), dtype=np.int32)
    for i in range(first, last):
        best[:] = np.inf
        found[:] = -1
        is_open[:] = False
        new = 0
        for s in range(-1, length):
            c = labels[i] if s < 0 else lists[i, s]
            if c >= 0 and seen[c] != i:
                seen[c], fresh[new] = i, c
                new += 1
        nearest_open = _offer(Z, C, i, fresh, new, found, best, is_open, length)
        for _ in range(expansions):
            while nearest_open < length and not is_open[nearest_open]:
                nearest_open += 1
            if nearest_open == length:
                break
            is_open[nearest_open] = False
            centre = found[nearest_open]
            new = 0
            for t in range(degree):
                c = graph[centre, t]
                if c >= 0 and seen[c] != i:
                    seen[c], fresh[new] = i, c
                    new += 1
            nearest_open = _offer(Z, C, i, fresh, new, found, best, is_open, nearest_open)
        lists[i] = found


@kernel
def _offer(
    Z: AnyArray,
    C: AnyArray,
    i: int,
    fresh: AnyArray,
    new: int,
    found: AnyArray,
    best: AnyArray,
    is_open: AnyArray,
    nearest_open: int,
) -> int:
    """Insert the fresh centres that are near enough; return the first place that may be open."""
    last = found.size - 1
    for s in range(new):
        distance = squared_distance(Z, i, C, fresh[s])
        if distance >= best[last]:
            continue
        t = last
        while t > 0 and best[t - 1] > distance:
            best[t], found[t], is_open[t] = best[t - 1], found[t - 1], is_open[t - 1]
            t -= 1
        best[t], found[t], is_open[t] = distance, fresh[s], True
        nearest_open = min(nearest_open, t)
    return nearest_open
