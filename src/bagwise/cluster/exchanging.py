"""Neighbouring clusters exchange rows, annealed; sizes are in range at every step."""

from dataclasses import dataclass

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.state import CHUNK, Rows, Search, geometric

FIRST_HEAT, LAST_HEAT = 0.7, 0.3  # in units of what one row has to gain
NEAREST = 8  # neighbours by centre that a cluster visits in a sweep
BY_ROW = 5  # and clusters that are nearest to one of its rows, its own perhaps among them
ROWS_PER_VISIT = 16  # for each so many rows of a cluster, one change per visit is allowed
PARTS = 16  # that clusters are dealt into; pairs of parts are visited side by side
ROWS_WORTH_PARTS = 30_000
NOISE = 4096  # entries of the table of random numbers, a power of two
WORTH_PACKING = 0.01


@dataclass
class Blocks:
    """The rows of each cluster side by side in memory, with room to grow; free places have id -1.

    ``starts[a] .. starts[a] + sizes[a]`` are the rows of cluster a, `offsets` their squared
    distances from its centre.
    """

    rows: AnyArray
    ids: AnyArray
    starts: IntArray
    sizes: IntArray
    centres: AnyArray
    offsets: AnyArray

    @classmethod
    def pack(cls, rows: Rows, most: int) -> "Blocks":
        """Copy the rows into blocks with room for `most` at most.

        They are taken away from `rows` to save memory.
        """
        sizes = rows.sizes.copy()
        room = np.maximum(sizes, np.minimum(most, sizes + np.maximum(2, sizes // 4)))
        starts = np.concatenate([[0], np.cumsum(room)])
        place = np.repeat(starts[:-1] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        order = np.argsort(rows.labels, kind="stable")
        packed = np.empty((starts[-1], rows.Z.shape[1]), dtype=rows.Z.dtype)
        for first in range(0, order.size, CHUNK):  # all at once would need a third copy
            part = slice(first, first + CHUNK)
            packed[place[part]] = rows.Z[order[part]]
        ids = np.full(starts[-1], -1, dtype=np.int32)
        ids[place] = rows.ids[order]
        rows.Z = rows.Z[:0]
        offsets = np.zeros(starts[-1], dtype=packed.dtype)
        blocks = cls(packed, ids, starts, sizes, np.empty_like(rows.centres), offsets)
        kernels.exchange.settle_range(*blocks.state, 0, sizes.size)
        return blocks

    @property
    def state(self) -> tuple[AnyArray, IntArray, IntArray, AnyArray, AnyArray]:
        """What the kernels work on, besides the ids."""
        return self.rows, self.starts, self.sizes, self.centres, self.offsets

    def unpack(self, rows: Rows) -> None:
        """Give the rows back."""
        taken = self.ids >= 0
        labels = np.repeat(np.arange(self.sizes.size, dtype=np.int32), np.diff(self.starts))
        rows.Z, rows.ids, rows.labels = self.rows, self.ids, labels
        if not taken.all():
            rows.Z, rows.ids, rows.labels = self.rows[taken], self.ids[taken], labels[taken]
        rows.settle()

    def share_full(self, most: int) -> float:
        """Share of the clusters that could grow but for want of room."""
        room = np.diff(self.starts)
        return float(np.mean((self.sizes == room) & (room < most)))

    def pairs(
        self, graph: CentreGraph, rng: np.random.Generator, *, parts: int = 1, farthest: bool
    ) -> tuple[AnyArray, IntArray]:
        """List the pairs of clusters to visit, grouped by the parts that they are dealt into.

        A cluster visits the nearest by centre, and those that are nearest to one of its rows.
        """
        clusters = self.sizes.size
        queries = self.query_rows(rng, farthest=farthest)
        near_row = graph.refresh_with(self.centres, queries, min(BY_ROW, clusters))
        dealt = rng.integers(0, parts, size=clusters, dtype=np.int32)
        nearest = min(NEAREST, clusters - 1)
        return kernels.exchange.list_pairs(graph.lists, nearest, near_row, dealt, parts)

    def query_rows(self, rng: np.random.Generator, *, farthest: bool) -> AnyArray:
        """One row of each cluster: the one that fits worst, or any."""
        if farthest:
            places = kernels.exchange.farthest_rows(self.offsets, self.starts, self.sizes)
        else:
            places = self.starts[:-1] + rng.integers(0, self.sizes)
        return np.asarray(self.rows[places])


def exchange_rows(
    rows: Rows, graph: CentreGraph, scale: float, sweeps: int, search: Search
) -> None:
    """Sweep over pairs of neighbouring clusters: `sweeps` times with falling heat, then without.

    A cluster that has used up its room to grow gets new room in between.
    """
    effort = search.effort
    heats = [*(scale * geometric(FIRST_HEAT, LAST_HEAT, sweeps)), *[0.0] * effort.greedy_sweeps]
    rng = np.random.default_rng(search.seed)
    blocks = Blocks.pack(rows, search.sizes.most)
    for turn, heat in enumerate(heats):
        if search.patience.is_over:
            break
        search.report("exchanging rows", turn / len(heats))
        changes = _sweep(blocks, graph, heat, rng, search, farthest=turn % 2 == 0)
        if heat == 0.0 and changes <= effort.idle * rows.labels.size:
            break
        if blocks.share_full(search.sizes.most) > WORTH_PACKING:
            blocks.unpack(rows)
            blocks = Blocks.pack(rows, search.sizes.most)
    blocks.unpack(rows)


def _sweep(
    blocks: Blocks,
    graph: CentreGraph,
    heat: float,
    rng: np.random.Generator,
    search: Search,
    *,
    farthest: bool,
) -> int:
    """Visit all pairs of neighbours once; return the number of changes."""
    n_rows = int(blocks.sizes.sum())
    n_parts = PARTS if n_rows >= ROWS_WORTH_PARTS else 1
    pairs, groups = blocks.pairs(graph, rng, parts=n_parts, farthest=farthest)
    noise = rng.gumbel(size=NOISE + 1).astype(blocks.rows.dtype)
    noise[0] = noise.max()
    visits = max(1, n_rows // blocks.sizes.size // ROWS_PER_VISIT)
    rule = (search.sizes.least, search.sizes.most, heat, visits, noise, int(rng.integers(2**31)))
    changes = 0
    for round_ in tournament(n_parts):
        tasks = [
            (pairs, groups[g], groups[g + 1], blocks.ids, *blocks.state, *rule)
            for g in (p * n_parts + q for p, q in round_)
            if groups[g] < groups[g + 1]
        ]
        changes += sum(search.workers.run(kernels.exchange.visit_pairs, tasks))
    return changes


def tournament(parts: int) -> list[list[tuple[int, int]]]:
    """Every pair of parts once, and every part with itself, in rounds that name no part twice.

    >>> tournament(4)[1:]
    [[(0, 3), (1, 2)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    """
    rounds = [[(p, p) for p in range(parts)]]
    seats = list(range(parts))
    for _ in range(parts - 1):
        games = [(seats[i], seats[-1 - i]) for i in range(parts // 2)]
        rounds.append([(min(game), max(game)) for game in games])
        seats = [seats[0], *seats[2:], seats[1]]
    return rounds
