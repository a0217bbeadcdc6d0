"""Rows move to nearer clusters: first with sizes that float, then with sizes in range.

Sizes are then repaired, also where neighbours do not lead. Text columns with many levels put rows
on islands: clusters that are near each other, and far from all others. One island may have too many
rows and another too few, with no way between them, or one of very many steps. So rows are handed on
along neighbours for some rounds. What is left goes to the need directly, the cheapest rows first:
those of clusters with too many are compared with all clusters with too few, or with the nearest of
them where that would be too much work.
"""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.bisection import ROUNDS, bisect
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.state import Rows, Search, geometric

REFRESH_EVERY = 4  # passes between two looks at which clusters are near
BATCHES = 32  # of a pass; each sees the centres as the ones before have left them
# The price of sizes out of range rises over the passes, in units of what one row has to gain.
FIRST_WEIGHT, LAST_WEIGHT = 0.05, 3.0
USUAL_SIZE = 10.0  # a price per row counts for less in large clusters
HANDINGS_ON = 20  # rounds: what neighbours lead to is mostly reached by then
BRIDGES = 8  # clusters with too few that a row is offered to, at least
PAIRS = 2e7  # of rows and such clusters that are compared at once
_AT_ONCE = 1_000  # clusters whose distances are computed together
MUCH = 0.05  # of the rows in clusters that are full: too many to be handed on one by one


def move_rows(rows: Rows, graph: CentreGraph, scale: float, search: Search) -> None:
    """Let rows move while the price of sizes out of range rises, then repair what is left.

    Sizes that may float first find the dense regions; squeezing them slowly keeps what was found.
    """
    n, sizes = rows.labels.size, search.sizes
    mean_size = n / sizes.clusters
    passes = _Passes(rows, graph, search)
    for turn, weight in enumerate(geometric(FIRST_WEIGHT, LAST_WEIGHT, search.effort.passes)):
        if search.patience.is_over:
            break
        search.report("moving rows", turn / search.effort.passes)
        price = weight * scale * (USUAL_SIZE / mean_size) * rows.spread / n
        passes.run(price, strict=False)
    repair_sizes(rows, graph, search)
    if sizes.least == sizes.most:
        return
    for _ in range(search.effort.passes):
        if search.patience.is_over or passes.run(0.0, strict=True) == 0:
            break


class _Passes:
    """Passes over all rows, with the lists of clusters that each row considers."""

    def __init__(self, rows: Rows, graph: CentreGraph, search: Search) -> None:
        self._rows, self._graph, self._search = rows, graph, search
        length = min(search.effort.list_length, search.sizes.clusters)
        self._lists: AnyArray = np.full((rows.labels.size, length), -1, dtype=np.int32)
        self._wanted: AnyArray = np.empty(rows.labels.size, dtype=np.int32)
        self._turn = 0

    def run(self, price: float, *, strict: bool) -> int:
        """Offer every row its best cluster; return how many moved."""
        rows, sizes = self._rows, self._search.sizes
        if self._turn % REFRESH_EVERY == 0:
            self._graph.fill_rows(rows.Z, rows.centres, rows.labels, self._lists)
        self._turn += 1
        moved = 0
        strips = kernels.moves.strips_of(rows.labels.size, BATCHES)
        state = (rows.Z, rows.centres, rows.sizes, rows.labels)
        rule = (sizes.least, sizes.most, price, strict)
        for batch in range(BATCHES):
            self._search.workers.run(
                kernels.moves.choose_moves,
                [
                    (*state, self._lists, self._wanted, batch, BATCHES, low, high, *rule)
                    for low, high in self._search.workers.ranges(strips)
                ],
            )
            moved += kernels.moves.carry_out(*state, self._wanted, batch, BATCHES, *rule)
        rows.settle()
        return moved


def replace_the_nearly_empty(rows: Rows, targets: IntArray, search: Search) -> int:
    """Make clusters of what others have too many, in place of clusters that few rows are left in.

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


def _farthest(rows: Rows, counts: IntArray) -> IntArray:
    """Return so many rows of each cluster, those that are farthest from its centre."""
    affected = np.flatnonzero(counts[rows.labels])
    label = rows.labels[affected]
    offsets = rows.Z[affected] - rows.centres[label]
    order = np.lexsort((-np.einsum("ij,ij->i", offsets, offsets), label))
    sizes = np.bincount(label, minlength=counts.size)
    place = np.arange(label.size) - (np.cumsum(sizes) - sizes)[label[order]]
    return affected[order[place < counts[label[order]]]]


def repair_sizes(rows: Rows, graph: CentreGraph, search: Search) -> None:
    """Bring all sizes into range."""
    targets = search.sizes.nearest(rows.sizes)
    if np.array_equal(targets, rows.sizes):
        return
    if replace_the_nearly_empty(rows, targets, search):
        targets = search.sizes.nearest(rows.sizes)
    near = graph.refresh(rows.centres)
    reach_targets(rows.Z, rows.centres, rows.sizes, targets, rows.labels, near)
    rows.settle()


def reach_targets(
    Z: AnyArray,
    centres: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
    graph: AnyArray,
) -> None:
    """Hand rows on until ``sizes == targets``; all but `targets` and `graph` are changed in place.

    Parameters
    ----------
    graph : (clusters, length) ints
        Neighbours of each cluster; -1 is none.
    """
    starts, neighbours = kernels.neighbours.both_ways(graph)
    kernels.repair.hand_on(Z, centres, sizes, targets, labels, starts, neighbours, HANDINGS_ON)
    while not np.array_equal(sizes, targets):  # the cheapest offer is taken, so this ends
        rows, to = _offers(Z, centres, sizes, targets, labels)
        kernels.repair.hand_over(Z, centres, sizes, targets, labels, rows, to)


def _offers(
    Z: AnyArray,
    centres: AnyArray,
    sizes: IntArray,
    targets: IntArray,
    labels: AnyArray,
) -> tuple[IntArray, IntArray]:
    """Return rows of clusters with too many, and clusters with too few: the cheapest pairs first.

    A pair costs what `kernels.repair` takes for a row that is handed on.
    """
    needy = np.flatnonzero(sizes < targets)
    rows = np.flatnonzero((sizes > targets)[labels])
    own = labels[rows]
    count = int(np.clip(PAIRS // rows.size, BRIDGES, needy.size))
    bridges = _bridges(centres, sizes, targets, count)[own]
    left = np.where(sizes[own] > 1, sizes[own] / np.maximum(sizes[own] - 1, 1), 1.0)
    right = sizes / (sizes + 1.0)
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
