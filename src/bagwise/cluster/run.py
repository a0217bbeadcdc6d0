"""Run one search from points to labels: kernels, threads, time limit, progress."""

import warnings
from typing import Literal

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels import load_kernels
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Workers, patience
from bagwise.errors import StoppedEarlyWarning
from bagwise.stages import report_progress

EffortName = Literal["fast", "default", "best"]


def find_clusters(
    points: AnyArray,
    sizes: SizeRange | None,
    *,
    least: int,
    effort: EffortName,
    seed: int,
    time_budget: float | None = None,
    threads: int | None = None,
    start: IntArray | None = None,
) -> IntArray:
    """Return the cluster of each point; the array of points is used up.

    Without `sizes` there may be as many clusters of at least `least` rows as suits the data.
    """
    load_kernels()
    from bagwise.cluster.engine import find_effort, free_range, partition
    from bagwise.cluster.search import Search

    n = points.shape[0]
    with Workers(threads, n_rows=n) as workers, patience(time_budget) as waiting:
        if sizes is None:
            sizes = free_range(points, least, seed=seed, workers=workers)
        search = Search(sizes, find_effort(effort, n), seed, workers, waiting, report_progress)
        labels = partition(points, search, start=start)
    if waiting.interrupted:
        warnings.warn(
            "the search for compact clusters was stopped; the best so far is used, and every size "
            "is as asked.",
            StoppedEarlyWarning,
            stacklevel=2,
        )
    return labels
