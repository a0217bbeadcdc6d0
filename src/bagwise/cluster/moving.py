"""Rows move to nearer clusters; sizes outside the range cost a penalty that grows.

The cost of a partition is its sum of squares plus ``weight / 2`` times the squared distance of
each cluster's size from the range it should lie in. The change of the sum of squares is exact, with
the centre moving along (Hartigan 1975), which matters for clusters of ten rows. Choices are made in
batches from frozen centres, and carried out one after the other where they still pay.
"""

import itertools
from typing import NamedTuple

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.arith import joining, kernel, leaving, transfer
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.repair import repair_sizes
from bagwise.cluster.state import Clusters, OrderedRows, Search, geometric

REFRESH_EVERY = 4  # passes between two looks at which clusters are near
BATCHES = 32  # of a pass; each sees the centres as the ones before have left them
# The price of sizes out of range rises over the passes, in units of what one row has to gain.
FIRST_WEIGHT, LAST_WEIGHT = 0.05, 3.0
USUAL_SIZE = 10.0  # a price per row counts for less in large clusters
STAY = -1
STRIP = 16  # rows side by side in memory that belong to the same batch


class Rule(NamedTuple):
    """The sizes that clusters should have, the penalty for missing them, and whether they may."""

    least: int
    most: int
    weight: float
    strict: bool


def move_rows(rows: OrderedRows, graph: CentreGraph, scale: float, search: Search) -> None:
    """Let rows move while the price of sizes out of range rises, then repair what is left.

    Sizes that may float first find the dense regions; squeezing them slowly keeps what was found.
    """
    n, sizes, count = rows.labels.size, search.sizes, search.effort.passes
    lists = np.full((n, min(search.effort.list_length, sizes.clusters)), -1, dtype=np.int32)
    wanted = np.empty(n, dtype=np.int32)
    batches = batches_of(n, BATCHES)
    turns = itertools.count()

    def offer(price: float, *, strict: bool) -> int:
        """Offer every row its best cluster of those in its list; return how many moved."""
        if next(turns) % REFRESH_EVERY == 0:
            graph.fill_rows(rows.Z, rows.centres, rows.labels, lists)
        moved, state, rule = 0, rows.state, Rule(sizes.least, sizes.most, price, strict)
        for batch in batches:
            pieces = search.workers.ranges(batch.size, at_least=64 * STRIP)
            search.workers.run(
                choose_moves, [(state, rule, lists, wanted, batch[a:b]) for a, b in pieces]
            )
            moved += carry_out(state, rule, wanted, batch)
        rows.settle()
        return moved

    for turn, weight in enumerate(geometric(FIRST_WEIGHT, LAST_WEIGHT, count)):
        search.report("moving rows", turn / count)
        price = weight * scale * (USUAL_SIZE / (n / sizes.clusters)) * rows.inertia / n
        offer(price, strict=False)
    repair_sizes(rows, graph, search)
    for _ in range(count if sizes.least < sizes.most else 0):
        if offer(0.0, strict=True) == 0:
            break


def batches_of(n_rows: int, count: int) -> list[IntArray]:
    """Deal the rows to batches, strip by strip.

    >>> [batch.size for batch in batches_of(70, 3)]
    [32, 22, 16]
    """
    batch_of = np.arange(n_rows) // STRIP % count
    return [np.flatnonzero(batch_of == batch) for batch in range(count)]


@kernel
def cost_of_growing(size: int, least: int, most: int, weight: float) -> float:
    """Change of the penalty when a cluster of `size` takes one more row."""
    penalty = 0.0
    if size + 1 > most:
        penalty += weight * (size + 0.5 - most)
    if size < least:
        penalty -= weight * (least - size - 0.5)
    return penalty


@kernel
def choose_moves(
    state: Clusters, rule: Rule, lists: AnyArray, wanted: AnyArray, batch: IntArray
) -> None:
    """Write the best cluster of each row of a batch into `wanted`."""
    _, _, sizes, labels = state
    least, most, weight, strict = rule
    for i in batch:
        a = labels[i]
        wanted[i] = STAY
        if sizes[a] < 2 or (strict and sizes[a] <= least):
            continue
        lowest = leaving(state, i) + cost_of_growing(sizes[a] - 1, least, most, weight)
        for t in range(lists.shape[1]):
            b = lists[i, t]
            if b < 0 or b == a or (strict and sizes[b] >= most):
                continue
            cost = joining(state, i, b) + cost_of_growing(sizes[b], least, most, weight)
            if cost < lowest:
                lowest = cost
                wanted[i] = b


@kernel
def carry_out(state: Clusters, rule: Rule, wanted: AnyArray, batch: IntArray) -> int:
    """Move the rows of a batch where it still pays, and return how many; centres follow."""
    _, _, sizes, labels = state
    least, most, weight, strict = rule
    moved = 0
    for i in batch:
        b = wanted[i]
        if b < 0:
            continue
        a = labels[i]
        if sizes[a] < 2 or (strict and (sizes[a] <= least or sizes[b] >= most)):
            continue
        before = leaving(state, i) + cost_of_growing(sizes[a] - 1, least, most, weight)
        if joining(state, i, b) + cost_of_growing(sizes[b], least, most, weight) < before:
            transfer(state, i, b)
            moved += 1
    return moved
