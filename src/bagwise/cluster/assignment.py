"""Assign rows to fixed centres, each of which takes a number of rows in a range.

Up to `EXACT_CLUSTERS` centres exactly, as a flow of least cost: rows start at their nearest centre,
and one row after the other is pushed along the cheapest chain of centres, from one with too many
rows to one with room. Each chain keeps the assignment optimal for the sizes it has (successive
shortest paths, Busacker and Gowen 1960). Beyond, rows are handed on between neighbours
(`kernels.repair`).
"""

from itertools import pairwise

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.repairing import reach_targets
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Workers

EXACT_CLUSTERS = 300
EXACT_DISTANCES = 2e7
ROUNDING = 1e-12  # of the largest distance: a chain is cheaper only by more than this


def assign_in_range(
    points: FloatArray,
    centres: FloatArray,
    nearest: IntArray,
    limits: SizeRange,
    workers: Workers,
) -> IntArray:
    """Return the centre of each row, all sizes in range, at the least or nearly least distance."""
    sizes = np.bincount(nearest, minlength=limits.clusters)
    if limits.clusters == 1 or np.array_equal(sizes, limits.nearest(sizes)):
        return nearest
    distances = points.shape[0] * limits.clusters
    if limits.clusters <= EXACT_CLUSTERS and distances <= EXACT_DISTANCES:
        return _Chains(points, centres, nearest).bring_into(limits)
    labels: AnyArray = nearest.astype(np.int32)
    graph = CentreGraph(limits.clusters, seed=0, workers=workers)
    targets = limits.nearest(sizes)
    near = graph.refresh(centres)
    reach_targets(points, centres, sizes, targets, labels, near, fixed=True)
    return labels.astype(np.int64)


class _Chains:
    """An assignment that is optimal for its sizes, and the cheapest way to change them."""

    def __init__(self, points: FloatArray, centres: FloatArray, nearest: IntArray) -> None:
        squares = np.einsum("ij,ij->i", centres, centres)
        # |x|^2 is the same for all centres, so it does not matter who gets the row.
        self._distances = squares - 2 * points @ centres.T
        self._rounding = ROUNDING * float(np.abs(self._distances).max())
        self._labels = nearest.copy()
        self._sizes = np.bincount(nearest, minlength=centres.shape[0])
        # [a, b]: what the cheapest row of a to go to b costs, and which one that is.
        self._price = np.full((centres.shape[0],) * 2, np.inf)
        self._row = np.zeros_like(self._price, dtype=np.int64)
        for a in range(centres.shape[0]):
            self._look_at(a)

    def bring_into(self, limits: SizeRange) -> IntArray:
        """Push rows until all sizes are in range."""
        while self._sizes.max() > limits.most:
            self._push(self._sizes > limits.most, self._sizes < limits.most)
        while self._sizes.min() < limits.least:
            self._push(self._sizes > limits.least, self._sizes < limits.least)
        return self._labels

    def _push(self, sources: AnyArray, sinks: AnyArray) -> None:
        """Move one row along the cheapest chain from any source to any sink."""
        cost = np.where(sources, 0.0, np.inf)
        before = np.full(cost.size, -1)
        while True:  # Bellman and Ford; without negative cycles it ends
            through = cost[:, None] + self._price
            best = through.argmin(axis=0)
            found = through[best, np.arange(cost.size)]
            shorter = found < cost - self._rounding
            if not shorter.any():
                break
            cost[shorter], before[shorter] = found[shorter], best[shorter]
        target = int(np.where(sinks, cost, np.inf).argmin())
        chain = [target]
        while before[chain[-1]] >= 0:
            chain.append(int(before[chain[-1]]))
        for b, a in pairwise(chain):
            self._labels[self._row[a, b]] = b
        self._sizes[chain[-1]] -= 1
        self._sizes[target] += 1
        for a in chain:
            self._look_at(a)

    def _look_at(self, a: int) -> None:
        members = np.flatnonzero(self._labels == a)
        self._price[a] = np.inf
        if members.size == 0:
            return
        costs = self._distances[members] - self._distances[members, a][:, None]
        cheapest = costs.argmin(axis=0)
        self._price[a] = costs[cheapest, np.arange(cheapest.size)]
        self._row[a] = members[cheapest]
        self._price[a, a] = np.inf
