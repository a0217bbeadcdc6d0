"""Run one search from points to labels: kernels, threads, time limit, progress."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels import load_kernels
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Patience, Workers, patience
from bagwise.errors import StoppedEarlyWarning
from bagwise.show.stages import report_progress

EffortName = Literal["fast", "default", "best"]


@contextmanager
def time_limit(seconds: float | None) -> Iterator[Patience]:
    """Say when to stop; afterwards, warn if it was Ctrl-C that stopped the search.

    The kernels are there before the clock starts.
    """
    load_kernels()
    if seconds is not None:
        few = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
        find_clusters(few, None, least=4, effort="default", seed=0, waiting=Patience())
    with patience(seconds) as waiting:
        yield waiting
    if waiting.interrupted:
        warnings.warn(
            "the search for compact clusters was stopped; the best so far is used, and every size "
            "is as asked.",
            StoppedEarlyWarning,
            stacklevel=4,
        )


def find_clusters(
    points: AnyArray,
    sizes: SizeRange | None,
    *,
    least: int,
    effort: EffortName,
    seed: int,
    waiting: Patience,
    threads: int | None = None,
    starts: Iterable[IntArray] = (),
) -> IntArray:
    """Return the cluster of each point; the array of points is used up.

    Without `sizes` there may be as many clusters of at least `least` rows as suits the data. The
    search is repeated from each of the `starts` as long as there is time; the best result counts.
    """
    load_kernels()
    from bagwise.cluster.engine import find_effort, free_range, partition
    from bagwise.cluster.state import Search

    n = points.shape[0]
    with Workers(threads, n_rows=n) as workers:
        if sizes is None:
            sizes = free_range(points, least, seed=seed, workers=workers)
        search = Search(sizes, find_effort(effort, n), seed, workers, waiting, report_progress)
        return partition(points, search, starts=starts)
