"""Bring sizes to where they should be, also where neighbours do not lead.

Text columns with many levels put rows on islands: clusters that are near each other, and far from
all others. One island may have too many rows and another too few, with no way between them, or one
of very many steps. So rows are handed on along neighbours for some rounds. What is left goes to the
need directly, the cheapest rows first: those of clusters with too many are compared with all
clusters with too few, or with the nearest of them where that would be too much work.
"""

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import kernels

ROUNDS = 20  # of handing on: what neighbours lead to is mostly reached by then
BRIDGES = 8  # clusters with too few that a row is offered to, at least
PAIRS = 2e7  # of rows and such clusters that are compared at once
_AT_ONCE = 1_000  # clusters whose distances are computed together


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
    kernels.repair.hand_on(Z, centres, sizes, targets, labels, starts, neighbours, ROUNDS)
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
    found = np.full((len(centres), count), -1)
    squares = np.einsum("ij,ij->i", centres[needy], centres[needy])
    for first in range(0, rich.size, _AT_ONCE):
        part = rich[first : first + _AT_ONCE]
        distances = squares - 2 * centres[part] @ centres[needy].T  # up to what a row has in common
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        found[part] = needy[nearest]
    return found
