"""Annealed exchanges of rows between neighbouring clusters, with valid sizes at every step.

For clusters A and B with centres a and b, ``g = a - b`` and ``w = 1/|A| + 1/|B|``, swapping x in A
for y in B lowers the sum of squares by ``2 g.(y - x) + w |y - x|^2``. In terms of the rows' offsets
p = x - a and q = y - b that is

    w|p|^2 - (2-2w) p.g  +  w|q|^2 + (2-2w) q.g  -  (2-w)|g|^2  -  2w p.q

so one product with g per row prices all |A| |B| swaps but for the last term, which is computed only
where it can decide. A move of x to B lowers it by
``|A|/(|A|-1) |p|^2 - |B|/(|B|+1) |p + g|^2``, from the same numbers.

One change per visit is drawn by heat bath: every candidate, and no change, gets Gumbel noise of the
temperature's scale, and the largest wins.
"""

from typing import NamedTuple

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.arith import kernel, mix, squared_distance
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.state import CHUNK, OrderedRows, Search, geometric

FIRST_HEAT, LAST_HEAT = 0.7, 0.3  # in units of what one row has to gain
NEAREST = 8  # neighbours by centre that a cluster visits in a sweep
BY_ROW = 5  # and clusters that are nearest to one of its rows, its own perhaps among them
ROWS_PER_VISIT = 16  # for each so many rows of a cluster, one change per visit is allowed
PARTS = 16  # that clusters are dealt into; pairs of parts are visited side by side
ROWS_WORTH_PARTS = 30_000
NOISE = 4096  # entries of the table of random numbers, a power of two
WORTH_PACKING = 0.01

# Offsets of two clusters' rows are seldom parallel. While there is heat, candidates are screened as
# if the cosine were never larger; without, by the exact bound of one, so that no gain is missed.
COSINE = 0.25

# Of what is at stake: gains below these may be errors of single and double precision.
SINGLE_ROUNDING, DOUBLE_ROUNDING = 1e-6, 1e-14
SINGLE_BYTES = 4

STEP = 0x9E37  # odd, so that steps through the table of noise visit all of it


class Blocks(NamedTuple):
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
    def pack(cls, rows: OrderedRows, most: int) -> "Blocks":
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
        settle_all(blocks)
        return blocks

    def unpack(self, rows: OrderedRows) -> None:
        """Give the rows back."""
        taken = self.ids >= 0
        labels = np.repeat(np.arange(self.sizes.size, dtype=np.int32), np.diff(self.starts))
        rows.Z, rows.ids, rows.labels = self.rows, self.ids, labels
        if not taken.all():
            rows.Z, rows.ids, rows.labels = self.rows[taken], self.ids[taken], labels[taken]
        rows.settle()

    def share_full(self, most: int) -> float:
        """Share of the clusters that could grow if they had room."""
        room = np.diff(self.starts)
        return float(np.mean((self.sizes == room) & (room < most)))

    def pairs(
        self, graph: CentreGraph, rng: np.random.Generator, *, parts: int = 1, farthest: bool
    ) -> tuple[AnyArray, IntArray]:
        """List the pairs of clusters to visit, grouped by the parts that they are dealt into.

        A cluster visits the nearest by centre, and those that are nearest to one of its rows.
        """
        clusters = self.sizes.size
        # One row of each cluster asks: the one that fits worst, or any.
        places = (
            self.starts[:-1] + rng.integers(0, self.sizes) if not farthest else farthest_rows(self)
        )
        near_row = graph.refresh_with(self.centres, self.rows[places], min(BY_ROW, clusters))
        dealt = rng.integers(0, parts, size=clusters, dtype=np.int32)
        return list_pairs(graph.lists[:, :NEAREST], near_row, dealt, parts)


class Bath(NamedTuple):
    """The settings for changes: allowed sizes, temperature, changes per visit, table of noise."""

    least: int
    most: int
    heat: float
    visits: int
    gumbel: AnyArray
    seed: int


def exchange_rows(
    rows: OrderedRows, graph: CentreGraph, scale: float, sweeps: int, search: Search
) -> None:
    """Sweep over pairs of neighbouring clusters: `sweeps` times with falling heat, then without.

    A cluster that has used up its room to grow gets new room in between.
    """
    effort = search.effort
    heats = [*(scale * geometric(FIRST_HEAT, LAST_HEAT, sweeps)), *[0.0] * effort.greedy_sweeps]
    rng = np.random.default_rng(search.seed)
    blocks = Blocks.pack(rows, search.sizes.most)
    for turn, heat in enumerate(heats):
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
    least, most = search.sizes.least, search.sizes.most
    bath = Bath(least, most, heat, visits, noise, int(rng.integers(2**31)))
    changes = 0
    for round_ in tournament(n_parts):
        tasks = [
            (blocks, bath, pairs, groups[g], groups[g + 1])
            for g in (p * n_parts + q for p, q in round_)
            if groups[g] < groups[g + 1]
        ]
        changes += sum(search.workers.run(visit_pairs, tasks))
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


@kernel
def settle(blocks: Blocks, a: int) -> None:
    """Recompute the centre of cluster `a` and its rows' squared distances from it."""
    rows, _, starts, sizes, C, offsets = blocks
    features, start = rows.shape[1], starts[a]
    stop = start + sizes[a]
    for f in range(features):
        C[a, f] = 0.0
    for i in range(start, stop):
        for f in range(features):
            C[a, f] += rows[i, f]
    share = rows.dtype.type(1.0 / sizes[a])
    for f in range(features):
        C[a, f] *= share
    for i in range(start, stop):
        total = rows.dtype.type(0.0)
        for f in range(features):
            difference = rows[i, f] - C[a, f]
            total += difference * difference
        offsets[i] = total


@kernel
def settle_all(blocks: Blocks) -> None:
    """Settle all clusters."""
    for a in range(blocks.sizes.size):
        settle(blocks, a)


@kernel
def visit_pairs(blocks: Blocks, bath: Bath, pairs: AnyArray, first: int, last: int) -> int:
    """Visit pairs first..last, some changes each at most; return how many changes were made."""
    longest = 0  # clusters can grow while others are visited, to the room they have
    for a in range(blocks.sizes.size):
        longest = max(longest, blocks.starts[a + 1] - blocks.starts[a])
    scratch = np.empty((4, longest), dtype=blocks.rows.dtype)
    changes = 0
    for t in range(first, last):
        draw = mix(bath.seed, t)
        for turn in range(bath.visits):
            if not _visit(blocks, bath, pairs[t, 0], pairs[t, 1], draw + turn, scratch):
                break
            changes += 1
    return changes


@kernel
def _visit(blocks: Blocks, bath: Bath, a: int, b: int, draw: int, scratch: AnyArray) -> bool:
    """Draw one change of the clusters a and b, and make it; return False if there is none."""
    # 1. Price each row of both sides by what a product with ``g = a - b`` tells.
    rows, _, starts, sizes, C, offsets = blocks
    least, most, heat, _, gumbel, _ = bath
    kind = rows.dtype.type
    size_a, size_b, start_a, start_b = sizes[a], sizes[b], starts[a], starts[b]
    w = kind(1.0 / size_a + 1.0 / size_b)
    apart = squared_distance(C, a, C, b)
    gains_a, gains_b, along_a, along_b = scratch[0], scratch[1], scratch[2], scratch[3]
    _, far_a, mean_a = price_side(blocks, a, b, w, kind(-1), gains_a, along_a)
    top_b, far_b, mean_b = price_side(blocks, b, a, w, kind(1), gains_b, along_b)
    # 2. What no change is worth: like every candidate, it has noise. Its scale is a geometric mean:
    # next to an outlier, an ordinary cluster should not melt.
    scale = kind(heat) * np.sqrt(mean_a * mean_b)
    best = scale * gumbel[1 + (draw & (gumbel.size - 2))]
    if scale == 0:  # gains that are rounding would swap equal rows for ever
        rounding = SINGLE_ROUNDING if rows.itemsize == SINGLE_BYTES else DOUBLE_ROUNDING
        best = kind(rounding) * (w * (mean_a + mean_b) + apart)
    # 3. The best move, to either side.
    from_a, from_b = -1, -1
    if size_a > least and size_b < min(most, starts[b + 1] - start_b):
        best, from_a = _draw_move(
            offsets[start_a : start_a + size_a], along_a, size_b, kind(2), apart,
            best, scale, gumbel, draw + 1,
        )  # fmt: skip
    if size_b > least and size_a < min(most, starts[a + 1] - start_a):
        best, from_b = _draw_move(
            offsets[start_b : start_b + size_b], along_b, size_a, kind(-2), apart,
            best, scale, gumbel, draw + 2,
        )  # fmt: skip
        if from_b >= 0:
            from_a = -1
    # 4. The best swap, if one may beat that; then make the change.
    reach = 2 * w * far_a * far_b * (kind(COSINE) if scale > 0 else kind(1.0))
    i, j = draw_swap(
        blocks, a, b, w, apart, gains_a, gains_b, top_b, reach, best, scale, gumbel, draw + 3
    )
    if i >= 0:
        from_a, from_b = i, j
    if from_a < 0 and from_b < 0:
        return False
    _change(blocks, a, b, from_a, from_b)
    settle(blocks, a)
    settle(blocks, b)
    return True


@kernel
def _draw_move(
    offsets: AnyArray, alongs: AnyArray, other_size: int, sign: float, apart: float,
    best: float, scale: float, gumbel: AnyArray, draw: int,
) -> tuple[float, int]:  # fmt: skip
    """Find the move out of a cluster that beats `best`, noise included; -1 if none does.

    The squared distance to the other centre is ``|p|^2 + sign p.g + |g|^2``, with sign 2 from A to
    B and -2 from B to A.
    """
    kind, size = offsets.dtype.type, offsets.size
    leave, join = kind(size / (size - 1.0)), kind(other_size / (other_size + 1.0))
    chosen, mask = -1, gumbel.size - 2
    for i in range(size):
        draw += STEP
        e = offsets[i]
        gain = leave * e - join * (e + sign * alongs[i] + apart) + scale * gumbel[1 + (draw & mask)]
        if gain > best:
            best, chosen = gain, i
    return best, chosen


@kernel
def draw_swap(
    blocks: Blocks, a: int, b: int, w: float, apart: float, gains_a: AnyArray, gains_b: AnyArray,
    top_b: float, reach: float, best: float, scale: float, gumbel: AnyArray, draw: int,
) -> tuple[int, int]:  # fmt: skip
    """Find the swap that beats `best`, noise included; -1 if none does.

    `reach` bounds the term that is not known before the product of the two offsets is taken. The
    first entry of the table of noise is its largest.
    """
    rows, _, starts, sizes, C, _ = blocks
    kind, start_a, start_b = rows.dtype.type, starts[a], starts[b]
    base, mask = -(2 - w) * apart, gumbel.size - 2
    highest = base + reach + scale * gumbel[0]
    best_i, best_j = -1, -1
    for i in range(sizes[a]):
        if gains_a[i] + top_b + highest <= best:
            continue
        for j in range(sizes[b]):
            draw += STEP
            known = gains_a[i] + gains_b[j]
            if known + highest <= best:
                continue
            noisy = known + base + scale * gumbel[1 + (draw & mask)]
            if noisy + reach <= best:
                continue
            cross = kind(0.0)
            for f in range(rows.shape[1]):
                cross += (rows[start_a + i, f] - C[a, f]) * (rows[start_b + j, f] - C[b, f])
            if noisy - 2 * w * cross > best:
                best, best_i, best_j = noisy - 2 * w * cross, i, j
    return best_i, best_j


@kernel
def price_side(
    blocks: Blocks, own: int, other: int, w: float, sign: float, gains: AnyArray, alongs: AnyArray
) -> tuple[float, float, float]:
    """Fill each row's part of a swap's gain and its offset along g; return max, reach, mean.

    `sign` is -1 for the side of A, where g points away from the other cluster, and 1 for B.
    """
    rows, _, starts, sizes, C, offsets = blocks
    kind, start, size = rows.dtype.type, starts[own], sizes[own]
    top, far, total = kind(-np.inf), kind(0.0), kind(0.0)
    for i in range(size):
        along = kind(0.0)
        for f in range(rows.shape[1]):
            along += (rows[start + i, f] - C[own, f]) * (C[own, f] - C[other, f])
        along *= -sign
        e = offsets[start + i]
        gain = w * e + sign * (2 - 2 * w) * along
        gains[i], alongs[i] = gain, along
        top, far, total = max(top, gain), max(far, e), total + e
    return top, np.sqrt(far), total / kind(size)


@kernel
def _change(blocks: Blocks, a: int, b: int, from_a: int, from_b: int) -> None:
    """Swap two rows, or move one (the other index is -1), in place."""
    rows, ids, starts, sizes, _, _ = blocks
    if from_a >= 0 and from_b >= 0:
        swap_rows(rows, ids, starts[a] + from_a, starts[b] + from_b)
        return
    source, target, place = (a, b, from_a) if from_a >= 0 else (b, a, from_b)
    last = starts[source] + sizes[source] - 1
    swap_rows(rows, ids, starts[source] + place, last)
    end = starts[target] + sizes[target]
    rows[end] = rows[last]
    ids[end] = ids[last]
    ids[last] = -1
    sizes[source] -= 1
    sizes[target] += 1


@kernel
def swap_rows(rows: AnyArray, ids: AnyArray, i: int, j: int) -> None:
    """Let two rows change places, and their ids with them."""
    ids[i], ids[j] = ids[j], ids[i]
    for f in range(rows.shape[1]):
        rows[i, f], rows[j, f] = rows[j, f], rows[i, f]


@kernel
def farthest_rows(blocks: Blocks) -> IntArray:
    """Place of each cluster's row that is farthest from its centre."""
    _, _, starts, sizes, _, offsets = blocks
    places = np.empty(sizes.size, dtype=np.int64)
    for a in range(sizes.size):
        place = starts[a]
        for i in range(starts[a], starts[a] + sizes[a]):
            if offsets[i] > offsets[place]:
                place = i
        places[a] = place
    return places


def list_pairs(
    near: AnyArray, extra: AnyArray, parts: AnyArray, n_parts: int
) -> tuple[AnyArray, IntArray]:
    """Return the pairs to visit, grouped by the parts their clusters belong to, and the groups.

    Both lists have a row for each cluster; a pair that they name twice is visited once. Pairs of
    parts p <= q form group p * n_parts + q: groups without a common part touch different clusters
    and can run side by side.
    """
    count, others = near.shape[0], np.concatenate([near, extra], axis=1)
    one, other = np.repeat(np.arange(count), others.shape[1]), others.ravel().astype(np.int64)
    listed = (other >= 0) & (other != one)
    one, other = one[listed], other[listed]
    keys = np.sort(np.minimum(one, other) * count + np.maximum(one, other))
    keys = keys[np.diff(keys, prepend=-1) > 0]
    pairs = np.column_stack(np.divmod(keys, count)).astype(np.int32)
    first, second = np.sort(parts[pairs], axis=1).T
    group = (first * n_parts + second).astype(np.int16)
    starts = np.cumsum(np.bincount(group, minlength=n_parts**2))
    return pairs[np.argsort(group, kind="stable")], np.concatenate([[0], starts])
