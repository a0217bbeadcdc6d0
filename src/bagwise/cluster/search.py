"""The stages of the search for compact clusters with sizes in a given range.

1. Recursive balanced bisection (`bisection`). From here on a valid partition is at hand.
2. Single rows move, with sizes that float first and are squeezed then; repair to sizes in range
   (`moving`).
3. Annealed exchanges between neighbouring clusters, sizes in range at every step (`exchanging`).

Two scales adapt all of it to the data: the mean squared distance to the centre, and the effective
dimension, since a row in d dimensions has about d/2 times less to gain than its distance suggests.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import compile as kernels
from bagwise.cluster.bisection import ROUNDS, bisect
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.exchanging import exchange_rows
from bagwise.cluster.moving import move_rows
from bagwise.cluster.plain import find_clusters_plainly, is_small
from bagwise.cluster.repair import repair_sizes
from bagwise.cluster.state import (
    EFFORTS,
    Effort,
    EffortName,
    OrderedRows,
    Search,
    SizeRange,
    Threads,
    effective_dimension,
)
from bagwise.show.stages import report_progress

# Above this effective dimension, or this size, annealing hardly finds what moves have not.
ROUGH_DIMENSION, ROUGH_SIZE = 6.0, 64.0
# Entries of all rows that annealed sweeps look at, together: more would take minutes. Rows whose
# text columns have many levels have many entries that say little.
MOST_WORK = 4e8
# Fewer rows than these get up to so many times the sweeps, as they cost so little.
MANY_ROWS = {"fast": (1, 1), "default": (20_000, 4), "best": (50_000, 5)}
FEW_ROWS, TRIES = 5_000, 8  # and with "best", few rows several tries
COMPILED_FOR = 2_000  # rows: enough to need every stage, repair among them
SEED_STEP = 1000  # more than the seeds that one attempt uses


def find_clusters(
    points: AnyArray,
    sizes: SizeRange,
    *,
    effort: EffortName,
    seed: int,
    threads: int | None = None,
    starts: Iterable[IntArray] = (),
) -> IntArray:
    """Return the cluster of each point; the array of points is used up.

    The search is repeated from each of the `starts`; the best result counts. Where kernels would
    have to be compiled first, few rows do without.
    """
    n = points.shape[0]
    if starts == () and is_small(n, sizes) and not kernels.are_compiled():
        kernels.compile_in_background()
        return find_clusters_plainly(points, sizes, effort=effort, seed=seed)
    kernels.load_kernels()
    if kernels.are_to_be_kept():
        compile_kernels()
    with Threads(threads, n_rows=n) as workers:
        search = Search(sizes, find_effort(effort, n), seed, workers, report_progress)
        return partition(points, search, starts=starts)


def compile_kernels() -> None:
    """Search once among rows that need every kernel, and note on disk that all are there."""
    points = np.random.default_rng(0).normal(size=(COMPILED_FOR, 8)).astype(np.float32)
    sizes = SizeRange.near_equal(COMPILED_FOR, 10)
    with Threads(1, n_rows=COMPILED_FOR) as workers:
        search = Search(sizes, EFFORTS["default"], 0, workers, lambda *_: None)
        partition(points, search)
    kernels.mark_compiled()


def find_effort(name: str, n_rows: int) -> Effort:
    """Return the effort of that name for so many rows."""
    effort = EFFORTS[name]
    many, most_times = MANY_ROWS[name]
    sweeps = int(effort.sweeps * np.clip(many / n_rows, 1, most_times))
    tries = TRIES if name == "best" and n_rows <= FEW_ROWS else 1
    return replace(effort, sweeps=sweeps, restarts=tries)


def partition(Z: AnyArray, search: Search, *, starts: Iterable[IntArray] = ()) -> IntArray:
    """Return the cluster of each row of Z, which may be reordered in the process.

    The search begins from the bisection, with another seed each time if the effort says so, and
    then from each of the `starts` (labels, brought into range). The best counts; it is never worse
    than the bisection.
    """
    if search.sizes.clusters == 1:
        return np.zeros(Z.shape[0], dtype=np.int64)
    once = search.effort.restarts == 1 and starts == ()
    best, best_inertia = np.empty(0, dtype=np.int64), np.inf
    for attempt, start in enumerate(chain([None] * search.effort.restarts, starts)):
        seeded = replace(search, seed=search.seed + SEED_STEP * attempt)
        labels, inertia = _attempt(Z if once else Z.copy(), seeded, start)
        if inertia < best_inertia:
            best, best_inertia = labels, inertia
    return best


def _attempt(Z: AnyArray, search: Search, start: IntArray | None) -> tuple[IntArray, float]:
    # 1. Cut into compact groups of the right sizes: from here on a valid partition is at hand.
    starts = search.sizes.starts(Z.shape[0])
    ids = np.arange(Z.shape[0], dtype=np.int32)
    bisect(Z, ids, starts, rounds=ROUNDS, seed=search.seed, workers=search.workers)
    labels = np.repeat(np.arange(search.sizes.clusters, dtype=np.int32), np.diff(starts))
    rows = OrderedRows.of(Z, ids, labels, search.sizes.clusters)
    first, first_inertia = _in_order(rows), rows.inertia
    if first_inertia == 0:
        return first, first_inertia
    # 2. Let single rows move, with sizes in range at the end.
    dimension = effective_dimension(rows.Z, search.sizes.clusters)
    scale = 2.0 / dimension
    graph = CentreGraph(search.sizes.clusters, seed=search.seed, workers=search.workers)
    if start is not None:
        rows.labels = start[rows.ids].astype(np.int32)
        rows.settle()
        repair_sizes(rows, graph, search)
    if search.effort.passes:
        move_rows(rows, graph, scale, search)
    # 3. Exchange rows between neighbours, as long as the landscape is rough enough for it to pay.
    roughness = min(1.0, ROUGH_DIMENSION / dimension) ** 2
    roughness *= min(1.0, ROUGH_SIZE * search.sizes.clusters / rows.labels.size)
    sweeps = min(search.effort.sweeps * roughness, MOST_WORK / rows.Z.size)
    exchange_rows(rows, graph, scale, round(sweeps), search)
    inertia = rows.inertia
    return (_in_order(rows), inertia) if inertia <= first_inertia else (first, first_inertia)


def _in_order(rows: OrderedRows) -> IntArray:
    labels = np.empty(rows.ids.size, dtype=np.int64)
    labels[rows.ids] = rows.labels
    return labels
