"""Assign rows to fixed centres, each of which takes a number of rows in a range."""

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.cluster import _neighbours, _repair
from bagwise.cluster.neighbours import CentreGraph
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Workers

ROUNDS = 10_000


def assign_in_range(
    points: FloatArray,
    centres: FloatArray,
    nearest: IntArray,
    limits: SizeRange,
    workers: Workers,
) -> IntArray:
    """Hand rows on from their `nearest` centre, cheapest first, until all sizes are in range."""
    labels: AnyArray = nearest.astype(np.int32)
    sizes = np.bincount(labels, minlength=limits.clusters)
    targets = limits.nearest(sizes)
    if limits.clusters > 1 and not np.array_equal(sizes, targets):
        graph = CentreGraph(limits.clusters, seed=0, workers=workers)
        starts, neighbours = _neighbours.both_ways(graph.refresh(centres))
        _repair.reach_targets(
            points, centres, sizes, targets, labels, starts, neighbours, ROUNDS, True
        )
    return labels.astype(np.int64)
