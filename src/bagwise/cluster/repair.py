"""Turn almost valid sizes into valid sizes at little cost.

Clusters with too many rows hand their cheapest row to a neighbour that is one step nearer to a
cluster with too few, until all have what they should. Handing on along neighbours keeps rows
local; a row sent all the way to the needy cluster would cost far more.

Text columns with many levels put rows on islands: clusters that are near each other, and far from
all others. One island may have too many rows and another too few, with no way between them, or one
of very many steps. So rows are handed on for some rounds. What is left goes to the need directly,
the cheapest rows first: those of clusters with too many are compared with all clusters with too
few, or with the nearest of them where that would be too much work.
"""

from typing import NamedTuple

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.arith import joining, kernel, leaving, transfer
from bagwise.cluster.bisection import ROUNDS, bisect
from bagwise.cluster.centre_graph import CentreGraph, both_ways
from bagwise.cluster.state import Clusters, OrderedRows, Search

HANDINGS_ON = 20  # rounds: what neighbours lead to is mostly reached by then
BRIDGES = 8  # clusters with too few that a row is offered to, at least
PAIRS = 2e7  # of rows and such clusters that are compared at once
_AT_ONCE = 1_000  # clusters whose distances are computed together
MUCH = 0.05  # of the rows in clusters that are full: too many to be handed on one by one


class Way(NamedTuple):
    """The way in which rows should move: target sizes, neighbours, and steps to the next need."""

    targets: IntArray
    starts: IntArray
    neighbours: AnyArray
    steps: IntArray


def repair_sizes(rows: OrderedRows, graph: CentreGraph, search: Search) -> None:
    """Bring all sizes into the allowed range."""
    targets = search.sizes.nearest(rows.sizes)
    if np.array_equal(targets, rows.sizes):
        return
    if replace_the_nearly_empty(rows, targets, search):
        targets = search.sizes.nearest(rows.sizes)
    near = graph.refresh(rows.centres)
    reach_targets(rows.state, targets, near)
    rows.settle()


def replace_the_nearly_empty(rows: OrderedRows, targets: IntArray, search: Search) -> int:
    """Replace clusters that have few rows left by clusters made of the surplus of others.

    In many dimensions rows far from all others keep clusters to themselves, which nobody else
    finds. To fill them, rows would have to be handed on over many clusters, one by one. Return how
    many clusters were replaced.
    """
    surplus = np.maximum(rows.sizes - targets, 0)
    empty = np.flatnonzero(rows.sizes < targets / 2)
    empty = empty[np.argsort(rows.sizes[empty], kind="stable")][: surplus.sum() // targets.max()]
    if empty.size == 0 or surplus.sum() <= MUCH * rows.labels.size:
        return 0
    gone = np.zeros(targets.size, dtype=bool)
    gone[empty] = True
    spare = np.concatenate([_farthest(rows, surplus), np.flatnonzero(gone[rows.labels])])
    Z, ids = rows.Z[spare], np.arange(spare.size, dtype=np.int32)
    starts = np.arange(empty.size + 1) * spare.size // empty.size
    bisect(Z, ids, starts, rounds=ROUNDS, seed=search.seed, workers=search.workers)
    rows.labels[spare[ids]] = np.repeat(empty, np.diff(starts))
    rows.settle()
    return int(empty.size)


def _farthest(rows: OrderedRows, counts: IntArray) -> IntArray:
    """Return so many rows of each cluster, those that are farthest from its centre."""
    affected = np.flatnonzero(counts[rows.labels])
    label = rows.labels[affected]
    offsets = rows.Z[affected] - rows.centres[label]
    order = np.lexsort((-np.einsum("ij,ij->i", offsets, offsets), label))
    sizes = np.bincount(label, minlength=counts.size)
    place = np.arange(label.size) - (np.cumsum(sizes) - sizes)[label[order]]
    return affected[order[place < counts[label[order]]]]


def reach_targets(state: Clusters, targets: IntArray, graph: AnyArray) -> None:
    """Hand rows on until ``sizes == targets``; `graph` has each cluster's neighbours, or -1."""
    way = Way(targets, *both_ways(graph), np.empty(targets.size, dtype=np.int64))
    hand_on(state, way, HANDINGS_ON)
    while not np.array_equal(state.sizes, targets):  # the cheapest offer is taken, so this ends
        hand_over(state, targets, *_offers(state, targets))


def _offers(state: Clusters, targets: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows of clusters with too many, and clusters with too few: the cheapest pairs first.

    A pair costs what it takes to hand a row on. Clusters with too many rows have two at least.
    """
    Z, centres, sizes, labels = state
    needy = np.flatnonzero(sizes < targets)
    rows = np.flatnonzero((sizes > targets)[labels])
    own = labels[rows]
    count = int(np.clip(PAIRS // rows.size, BRIDGES, needy.size))
    bridges = _bridges(centres, sizes, targets, count)[own]
    left, right = sizes[own] / (sizes[own] - 1.0), sizes / (sizes + 1.0)
    prices = np.empty(bridges.shape, dtype=np.float32)
    for first in range(0, rows.size, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        x, to = Z[rows[part]], bridges[part]
        here = x - centres[own[part]]
        here = np.einsum("ij,ij->i", here, here)
        apart = x[:, None] - centres[to]
        prices[part] = right[to] * np.einsum("ijk,ijk->ij", apart, apart)
        prices[part] -= (left[part] * here)[:, None]
    order = np.argsort(prices, axis=None, kind="stable")
    row, place = np.divmod(order, bridges.shape[1])
    return rows[row], bridges[row, place].astype(np.int64)


def _bridges(centres: AnyArray, sizes: IntArray, targets: IntArray, count: int) -> IntArray:
    """Return the nearest clusters with too few rows, for those with too many; -1 for others."""
    needy, rich = np.flatnonzero(sizes < targets), np.flatnonzero(sizes > targets)
    count = min(count, needy.size)
    bridges = np.full((len(centres), count), -1)
    squares = np.einsum("ij,ij->i", centres[needy], centres[needy])
    for first in range(0, rich.size, _AT_ONCE):
        part = rich[first : first + _AT_ONCE]
        distances = squares - 2 * centres[part] @ centres[needy].T  # up to what a row has in common
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        bridges[part] = needy[nearest]
    return bridges


@kernel
def hand_on(state: Clusters, way: Way, rounds: int) -> None:
    """Hand rows on until ``sizes == targets``, as far as neighbours lead in so many rounds."""
    Z, C, sizes, labels = state
    count = C.shape[0]
    head = np.full(count, -1, dtype=np.int64)
    following = np.empty(Z.shape[0], dtype=np.int64)
    for i in range(Z.shape[0] - 1, -1, -1):
        following[i] = head[labels[i]]
        head[labels[i]] = i
    queue = np.empty(count, dtype=np.int64)
    best = np.empty(Z.shape[0], dtype=np.float64)
    to = np.empty(Z.shape[0], dtype=np.int64)
    handed = 1
    while rounds > 0 and handed > 0:
        rounds -= 1
        handed = 0
        _count_steps(sizes, way, queue)
        for a in range(count):
            if sizes[a] > way.targets[a] and way.steps[a] > 0:
                handed += _hand_on(state, way, head, following, best, to, a)


@kernel
def hand_over(state: Clusters, targets: IntArray, rows: IntArray, to: IntArray) -> None:
    """Hand rows over, one offer after the other, wherever that helps both sides."""
    sizes = state.sizes
    for t in range(rows.size):
        row, b = rows[t], to[t]
        a = state.labels[row]
        if sizes[a] > targets[a] and sizes[b] < targets[b]:
            transfer(state, row, b)


@kernel
def _hand_on(
    state: Clusters, way: Way, head: IntArray, following: IntArray, best: AnyArray, to: IntArray,
    a: int,
) -> int:  # fmt: skip
    """Let cluster `a` hand on its surplus, as far as neighbours need it; return how many rows.

    Every row is priced once, and again only where the neighbour that it was for is full: to price
    all rows for each that goes would take the square of what is too many.
    """
    sizes, targets = state.sizes, way.targets
    row = head[a]
    while row >= 0:
        to[row] = _price_row(state, way, row, a, best)
        row = following[row]
    handed = 0
    while sizes[a] > targets[a]:
        cheapest, before_it = -1, -1
        before, row = -1, head[a]
        while row >= 0:
            if to[row] >= 0 and (cheapest < 0 or best[row] < best[cheapest]):
                cheapest, before_it = row, before
            before, row = row, following[row]
        if cheapest < 0:
            break
        b = to[cheapest]
        if way.steps[b] == 0 and sizes[b] >= targets[b]:
            to[cheapest] = _price_row(state, way, cheapest, a, best)
            continue
        if before_it < 0:
            head[a] = following[cheapest]
        else:
            following[before_it] = following[cheapest]
        following[cheapest] = head[b]
        head[b] = cheapest
        transfer(state, cheapest, b)
        handed += 1
    return handed


@kernel
def _price_row(state: Clusters, way: Way, row: int, a: int, best: AnyArray) -> int:
    """Return the neighbour one step nearer to the need that is cheapest for a row, -1 if none."""
    sizes, (targets, starts, neighbours, steps) = state.sizes, way
    cheapest = -1
    best[row] = np.inf
    saved = leaving(state, row)
    for t in range(starts[a], starts[a + 1]):
        b = neighbours[t]
        if steps[b] != steps[a] - 1 or (steps[b] == 0 and sizes[b] >= targets[b]):
            continue
        price = joining(state, row, b) - saved
        if price < best[row]:
            best[row] = price
            cheapest = b
    return cheapest


@kernel
def _count_steps(sizes: IntArray, way: Way, queue: IntArray) -> None:
    """Count the steps from each cluster to the nearest one with too few rows, -1 if none leads."""
    targets, starts, neighbours, steps = way
    filled = 0
    for a in range(sizes.size):
        steps[a] = -1
        if sizes[a] < targets[a]:
            steps[a] = 0
            queue[filled] = a
            filled += 1
    done = 0
    while done < filled:
        a = queue[done]
        done += 1
        for t in range(starts[a], starts[a + 1]):
            b = neighbours[t]
            if steps[b] < 0:
                steps[b] = steps[a] + 1
                queue[filled] = b
                filled += 1
