"""Annealed exchanges between pairs of neighbouring clusters; sizes stay in range at every step.

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

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.kernels.arith import kernel, mix, squared_distance

# Offsets of two clusters' rows are seldom parallel. While there is heat, candidates are screened as
# if the cosine were never larger; without, by the exact bound of one, so that no gain is missed.
COSINE = 0.25

# Of what is at stake: gains below these may be errors of single and double precision.
SINGLE_ROUNDING, DOUBLE_ROUNDING = 1e-6, 1e-14
SINGLE_BYTES = 4

STEP = 0x9E37  # odd, so that steps through the table of noise visit all of it


@kernel
def settle(
    rows: AnyArray, starts: IntArray, sizes: IntArray, C: AnyArray, offsets: AnyArray, a: int
) -> None:
    """Recompute the centre of cluster `a` and its rows' squared distances from it."""
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
def settle_range(
    rows: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    C: AnyArray,
    offsets: AnyArray,
    first: int,
    last: int,
) -> None:
    """Settle the clusters first..last."""
    for a in range(first, last):
        settle(rows, starts, sizes, C, offsets, a)


@kernel
def visit_pairs(
    pairs: AnyArray,
    first: int,
    last: int,
    ids: AnyArray,
    rows: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    C: AnyArray,
    offsets: AnyArray,
    least: int,
    most: int,
    heat: float,
    visits: int,
    gumbel: AnyArray,
    seed: int,
) -> int:
    """Visit pairs first..last, up to `visits` changes each; return how many changes were made."""
    longest = 0  # clusters can grow while others are visited, to the room they have
    for a in range(sizes.size):
        longest = max(longest, starts[a + 1] - starts[a])
    scratch = np.empty((4, longest), dtype=rows.dtype)
    changes = 0
    for t in range(first, last):
        draw = mix(seed, t)
        for turn in range(visits):
            if not _visit(
                rows, ids, starts, sizes, C, offsets, pairs[t, 0], pairs[t, 1], least, most, heat,
                gumbel, draw + turn, scratch,
            ):  # fmt: skip
                break
            changes += 1
    return changes


@kernel
def _visit(
    rows: AnyArray,
    ids: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    C: AnyArray,
    offsets: AnyArray,
    a: int,
    b: int,
    least: int,
    most: int,
    heat: float,
    gumbel: AnyArray,
    draw: int,
    scratch: AnyArray,
) -> bool:
    """Draw one change of the clusters a and b, and make it; False if it was none."""
    kind = rows.dtype.type
    size_a, size_b, start_a, start_b = sizes[a], sizes[b], starts[a], starts[b]
    w = kind(1.0 / size_a + 1.0 / size_b)
    apart = squared_distance(C, a, C, b)
    gains_a, gains_b, along_a, along_b = scratch[0], scratch[1], scratch[2], scratch[3]
    _, far_a, mean_a = price_side(
        rows, offsets, C, a, b, start_a, size_a, w, kind(-1), gains_a, along_a
    )
    top_b, far_b, mean_b = price_side(
        rows, offsets, C, b, a, start_b, size_b, w, kind(1), gains_b, along_b
    )
    # The geometric mean: next to an outlier, an ordinary cluster should not melt.
    scale = kind(heat) * np.sqrt(mean_a * mean_b)
    best = scale * gumbel[1 + (draw & (gumbel.size - 2))]
    if scale == 0:  # gains that are rounding would swap equal rows for ever
        rounding = SINGLE_ROUNDING if rows.itemsize == SINGLE_BYTES else DOUBLE_ROUNDING
        best = kind(rounding) * (w * (mean_a + mean_b) + apart)
    from_a, from_b = -1, -1
    if size_a > least and size_b < min(most, starts[b + 1] - start_b):
        best, from_a = _draw_move(
            offsets, along_a, start_a, size_a, size_b, kind(2), apart, best, scale, gumbel, draw + 1
        )
    if size_b > least and size_a < min(most, starts[a + 1] - start_a):
        best, from_b = _draw_move(
            offsets,
            along_b,
            start_b,
            size_b,
            size_a,
            kind(-2),
            apart,
            best,
            scale,
            gumbel,
            draw + 2,
        )
        if from_b >= 0:
            from_a = -1
    reach = 2 * w * far_a * far_b * (kind(COSINE) if scale > 0 else kind(1.0))
    i, j = draw_swap(
        rows, C, a, b, start_a, size_a, start_b, size_b, w, apart, gains_a, gains_b, top_b, reach,
        best, scale, gumbel, draw + 3,
    )  # fmt: skip
    if i >= 0:
        from_a, from_b = i, j
    if from_a < 0 and from_b < 0:
        return False
    _change(rows, ids, starts, sizes, a, b, from_a, from_b)
    settle(rows, starts, sizes, C, offsets, a)
    settle(rows, starts, sizes, C, offsets, b)
    return True


@kernel
def _draw_move(
    offsets: AnyArray,
    alongs: AnyArray,
    start: int,
    size: int,
    other_size: int,
    sign: float,
    apart: float,
    best: float,
    scale: float,
    gumbel: AnyArray,
    draw: int,
) -> tuple[float, int]:
    """Find the move out of a cluster that beats `best`, noise included; -1 if none does.

    The squared distance to the other centre is ``|p|^2 + sign p.g + |g|^2``, with sign 2 from A to
    B and -2 from B to A.
    """
    kind = offsets.dtype.type
    leave, join = kind(size / (size - 1.0)), kind(other_size / (other_size + 1.0))
    chosen, mask = -1, gumbel.size - 2
    for i in range(size):
        draw += STEP
        e = offsets[start + i]
        gain = leave * e - join * (e + sign * alongs[i] + apart) + scale * gumbel[1 + (draw & mask)]
        if gain > best:
            best, chosen = gain, i
    return best, chosen


@kernel
def draw_swap(
    rows: AnyArray,
    C: AnyArray,
    a: int,
    b: int,
    start_a: int,
    size_a: int,
    start_b: int,
    size_b: int,
    w: float,
    apart: float,
    gains_a: AnyArray,
    gains_b: AnyArray,
    top_b: float,
    reach: float,
    best: float,
    scale: float,
    gumbel: AnyArray,
    draw: int,
) -> tuple[int, int]:
    """Find the swap that beats `best`, noise included; -1 if none does.

    `reach` bounds the term that is not known before the product of the two offsets is taken. The
    first entry of the table of noise is its largest.
    """
    kind = rows.dtype.type
    base, mask = -(2 - w) * apart, gumbel.size - 2
    highest = base + reach + scale * gumbel[0]
    best_i, best_j = -1, -1
    for i in range(size_a):
        if gains_a[i] + top_b + highest <= best:
            continue
        for j in range(size_b):
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
    rows: AnyArray,
    offsets: AnyArray,
    C: AnyArray,
    own: int,
    other: int,
    start: int,
    size: int,
    w: float,
    sign: float,
    gains: AnyArray,
    alongs: AnyArray,
) -> tuple[float, float, float]:
    """Fill each row's part of a swap's gain and its offset along g; return max, reach, mean.

    `sign` is -1 for the side of A, where g points away from the other cluster, and 1 for B.
    """
    kind = rows.dtype.type
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
def _change(
    rows: AnyArray,
    ids: AnyArray,
    starts: IntArray,
    sizes: IntArray,
    a: int,
    b: int,
    from_a: int,
    from_b: int,
) -> None:
    """Swap two rows, or move one (the other index is -1), in place."""
    if from_a >= 0 and from_b >= 0:
        i, j = starts[a] + from_a, starts[b] + from_b
        swap_rows(rows, ids, i, j)
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
def farthest_rows(offsets: AnyArray, starts: IntArray, sizes: IntArray) -> IntArray:
    """Place of each cluster's row that is farthest from its centre."""
    places = np.empty(sizes.size, dtype=np.int64)
    for a in range(sizes.size):
        place = starts[a]
        for i in range(starts[a], starts[a] + sizes[a]):
            if offsets[i] > offsets[place]:
                place = i
        places[a] = place
    return places


@kernel
def list_pairs(
    graph: AnyArray, nearest: int, extra: AnyArray, parts: AnyArray, n_parts: int
) -> tuple[AnyArray, IntArray]:
    """Return the pairs to visit, grouped by the parts their clusters belong to, and the groups.

    A pair that is in both lists is visited once. Pairs of parts p <= q form group p * n_parts + q:
    groups without a common part touch different clusters and can run side by side.
    """
    count = graph.shape[0]
    groups = np.zeros(n_parts * n_parts + 1, dtype=np.int64)
    pairs = np.empty((0, 2), dtype=np.int32)
    for filling in range(2):
        if filling == 1:
            for g in range(n_parts * n_parts):
                groups[g + 1] += groups[g]
            pairs = np.empty((groups[n_parts * n_parts], 2), dtype=np.int32)
        place = groups[:-1].copy()
        for a in range(count):
            for t in range(nearest + extra.shape[1]):
                b = graph[a, t] if t < nearest else extra[a, t - nearest]
                if b < 0 or b == a or _came_before(graph, nearest, extra, a, b, t):
                    continue
                p, q = min(parts[a], parts[b]), max(parts[a], parts[b])
                group = p * n_parts + q
                if filling == 0:
                    groups[group + 1] += 1
                else:
                    pairs[place[group], 0], pairs[place[group], 1] = a, b
                    place[group] += 1
    return pairs, groups


@kernel
def _came_before(
    graph: AnyArray, nearest: int, extra: AnyArray, a: int, b: int, place: int
) -> bool:
    """Whether the pair of `a` with the b at this place of its lists stands elsewhere too.

    Of two places, that among the nearest counts, and then that of the smaller cluster.
    """
    if place < nearest:
        return b < a and _lists(graph, nearest, b, a)
    if _lists(graph, nearest, a, b) or _lists(graph, nearest, b, a):
        return True
    return b < a and _lists(extra, extra.shape[1], b, a)


@kernel
def _lists(lists: AnyArray, length: int, a: int, b: int) -> bool:
    found = False
    for t in range(length):
        found = found or lists[a, t] == b
    return found
