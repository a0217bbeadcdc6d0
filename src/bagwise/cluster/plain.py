"""A search for compact clusters in NumPy, for few rows while the kernels are not compiled.

Bisection, then annealed exchanges between neighbouring clusters, as in `search`, but without rows
that move alone: all pairs of a matching are looked at together, so that one call of NumPy works on
many clusters. Clusters come out a few percent less compact than those of the kernels.
"""

from dataclasses import dataclass

import numpy as np

from bagwise._types import AnyArray, IntArray
from bagwise.cluster.state import SizeRange, effective_dimension, geometric

MOST_ROWS, MOST_CLUSTERS = 10_000, 2_000  # seconds of work; more rows are worth compiling for
POWER_STEPS, ROUNDS = 4, 3
NEIGHBOURS = 8
SWEEPS = {"fast": (0, 6), "default": (30, 6), "best": (100, 12)}  # annealed, then greedy ones
HOT, COLD = 1.5, 0.5  # temperatures, in units of what a row can gain
GREEDY = 1e-5  # of a row's usual square: less is rounding


def is_small(n_rows: int, sizes: SizeRange) -> bool:
    """Return whether a search without kernels is worthwhile; it cannot vary sizes."""
    near_equal = sizes.most - sizes.least <= 1
    return near_equal and n_rows <= MOST_ROWS and sizes.clusters <= MOST_CLUSTERS


def find_clusters_plainly(Z: AnyArray, sizes: SizeRange, *, effort: str, seed: int) -> IntArray:
    """Return the cluster of each row, of sizes as equal as can be.

    Guarantee: never less compact than the bisection that it begins with.
    """
    if sizes.clusters == 1:
        return np.zeros(Z.shape[0], dtype=np.int64)
    rng = np.random.default_rng(seed)
    starts = sizes.starts(Z.shape[0])
    order = bisect_plainly(Z, starts, rng)
    clusters = Members.cut(Z, order, starts)
    first, inertia = clusters.labels(), clusters.inertia
    annealed, greedy = SWEEPS[effort]
    scale = 2.0 / effective_dimension(Z[order], sizes.clusters)
    for heat in [*geometric(HOT, COLD, annealed), *np.zeros(greedy)]:
        if not _sweep(clusters, float(heat) * scale, rng) and heat == 0:
            break
    return clusters.labels() if clusters.inertia <= inertia else first


@dataclass
class Members:
    """Rows in clusters, one line of `members` for each; -1 fills the shorter lines."""

    Z: AnyArray
    members: IntArray
    centres: AnyArray

    @classmethod
    def cut(cls, Z: AnyArray, order: IntArray, starts: IntArray) -> "Members":
        """Make clusters of the rows that follow each other in an order."""
        sizes = np.diff(starts)
        places = starts[:-1, None] + np.arange(sizes.max())
        inside = np.arange(sizes.max()) < sizes[:, None]
        members = np.where(inside, order[np.where(inside, places, 0)], -1)
        centres = np.add.reduceat(Z[order], starts[:-1]) / sizes[:, None]
        return cls(Z, members, centres)

    @property
    def inertia(self) -> float:
        """Sum of squared distances of rows from their centres."""
        offsets, inside = self.offsets(np.arange(len(self.members)))
        return float(_squares(offsets, inside).sum(dtype=np.float64))

    def offsets(self, which: IntArray) -> tuple[AnyArray, AnyArray]:
        """Return rows minus their centres, (clusters, size, d), and which entries exist."""
        members = self.members[which]
        return self.Z[members] - self.centres[which, None], members >= 0

    def labels(self) -> IntArray:
        """Return the cluster of each row."""
        labels = np.empty(len(self.Z), dtype=np.int64)
        cluster, place = np.nonzero(self.members >= 0)
        labels[self.members[cluster, place]] = cluster
        return labels

    def swap(self, a: IntArray, i: IntArray, b: IntArray, j: IntArray) -> None:
        """Exchange the i-th row of each cluster a with the j-th of b; no cluster is named twice."""
        one, other = self.members[a, i], self.members[b, j]
        self.members[a, i], self.members[b, j] = other, one
        for changed in (a, b):  # from the rows: updates would gather rounding
            members = self.members[changed]
            inside = (members >= 0)[..., None]
            self.centres[changed] = (self.Z[members] * inside).sum(axis=1) / inside.sum(axis=1)


def bisect_plainly(Z: AnyArray, starts: IntArray, rng: np.random.Generator) -> IntArray:
    """Return an order of the rows in which starts[g]..starts[g+1] are the compact group g.

    Every part is halved, all parts of a level together: along its principal axis, then by rounds of
    2-means with fixed sizes.
    """
    order = np.arange(Z.shape[0])
    bounds = np.array([0, starts.size - 1])
    while np.any(np.diff(bounds) > 1):
        middles = (bounds[:-1] + bounds[1:]) // 2
        edges = starts[bounds]
        part = np.repeat(np.arange(edges.size - 1), np.diff(edges))
        rank = np.arange(order.size) - edges[part]
        left = rank < (starts[middles] - edges[:-1])[part]
        order = order[_halve(Z[order], part, edges[:-1], left, rng)]
        bounds = np.unique(np.concatenate([bounds, middles]))
    return order


def _halve(
    Z: AnyArray, part: IntArray, firsts: IntArray, left: AnyArray, rng: np.random.Generator
) -> IntArray:
    """Return an order in which the rows `left` of each part are one side of a compact cut."""
    counts = np.bincount(part)[:, None]
    centred = Z - (np.add.reduceat(Z, firsts) / counts)[part]
    axis = rng.normal(size=(firsts.size, Z.shape[1])).astype(Z.dtype)
    for _ in range(POWER_STEPS):
        along = np.einsum("ij,ij->i", centred, axis[part])
        axis = np.add.reduceat(centred * along[:, None], firsts)
        axis /= np.maximum(np.linalg.norm(axis, axis=1, keepdims=True), np.finfo(Z.dtype).tiny)
    on_left = np.bincount(part, weights=left)[part]
    on_right = counts[part, 0] - on_left
    # The mean of the right side less that of the left; parts that are done have one side only.
    pull = np.where(left, -1.0 / np.maximum(on_left, 1), 1.0 / np.maximum(on_right, 1))
    for _ in range(ROUNDS):
        weights = np.empty(part.size, dtype=Z.dtype)
        weights[_ordered(centred, axis, part)] = pull
        axis = np.add.reduceat(centred * weights[:, None], firsts)
    return _ordered(centred, axis, part)


def _ordered(centred: AnyArray, axis: AnyArray, part: IntArray) -> IntArray:
    """Return the order of the rows along the axis of their part, one part after the other."""
    return np.lexsort((np.einsum("ij,ij->i", centred, axis[part]), part))


def _sweep(clusters: Members, heat: float, rng: np.random.Generator) -> int:
    """Look at all pairs of neighbouring clusters once; return how many rows were exchanged."""
    edges = _neighbours(clusters.centres)
    edges = edges[rng.permutation(len(edges))]
    swapped = 0
    while len(edges):
        chosen = _matching(edges, len(clusters.members))
        swapped += _exchange(clusters, edges[chosen, 0], edges[chosen, 1], heat, rng)
        edges = edges[~chosen]
    return swapped


def _neighbours(centres: AnyArray) -> IntArray:
    """Return pairs of clusters, (pairs, 2), each cluster with those nearest to it."""
    m = len(centres)
    count = min(NEIGHBOURS, m - 1)
    squares = np.einsum("ij,ij->i", centres, centres)
    distances = squares - 2 * centres @ centres.T  # up to what is the same in a whole row
    np.fill_diagonal(distances, np.inf)
    near = np.argpartition(distances, count - 1, axis=1)[:, :count]
    pairs = np.sort(np.column_stack([np.repeat(np.arange(m), count), near.ravel()]), axis=1)
    return np.unique(pairs, axis=0)


def _matching(edges: IntArray, m: int) -> AnyArray:
    """Choose edges that share no cluster: each that comes before all others at both its ends."""
    place = np.arange(len(edges))
    earliest = np.full(m, len(edges))
    np.minimum.at(earliest, edges[:, 0], place)
    np.minimum.at(earliest, edges[:, 1], place)
    return np.asarray(np.all(earliest[edges] == place[:, None], axis=1))


def swap_gains(A: AnyArray, B: AnyArray, g: AnyArray, w: AnyArray) -> AnyArray:
    """Return by how much inertia falls if rows i and j of two clusters change places, (…, i, j).

    Parameters
    ----------
    A, B : (…, k, d)
        Rows of either cluster, less its centre.
    g : (…, d)
        The centre of the first less that of the second.
    w : (…)
        The sum of one over their sizes.

    Notes
    -----
    Let s be row j less row i. The first cluster gains s in its sum and the second loses it, so that
    their centres p and q move by s/|A| and -s/|B|. The squares of the rows stay what they are
    together, and the inertia is those squares less |A| |p|^2 + |B| |q|^2. This grows by
    ``2 s·(p - q) + w |s|^2``, with ``s = b_j - a_i - g``.
    """
    size_a, size_b = (np.einsum("...id,...id->...i", rows, rows) for rows in (A, B))
    along_a, along_b = (np.einsum("...id,...d->...i", rows, g) for rows in (A, B))
    apart = np.einsum("...d,...d->...", g, g)[..., None, None]
    along = along_b[..., None, :] - along_a[..., :, None] - apart  # s·g
    between = size_a[..., :, None] + size_b[..., None, :] - 2 * A @ np.swapaxes(B, -1, -2)
    # |b - a - g|^2 = |b - a|^2 - 2 (b - a)·g + |g|^2, and (b - a)·g = s·g + |g|^2
    gains: AnyArray = 2 * along + w[..., None, None] * (between - 2 * along - apart)
    return gains


def _exchange(
    clusters: Members, a: IntArray, b: IntArray, heat: float, rng: np.random.Generator
) -> int:
    """Let each pair of clusters exchange two rows, or none: a heat bath at this temperature."""
    A, in_a = clusters.offsets(a)
    B, in_b = clusters.offsets(b)
    size_a, size_b = in_a.sum(axis=1), in_b.sum(axis=1)
    w = (1 / size_a + 1 / size_b).astype(A.dtype)
    gains = swap_gains(A, B, clusters.centres[a] - clusters.centres[b], w)
    usual = (_squares(A, in_a) + _squares(B, in_b)) / (size_a + size_b)
    least = GREEDY * usual
    if heat > 0:
        gains += (heat * usual)[:, None, None] * _gumbel(rng, gains.shape)
        least = heat * usual * _gumbel(rng, least.shape)
    gains[~(in_a[:, :, None] & in_b[:, None, :])] = -np.inf
    i, j = np.divmod(gains.reshape(len(a), -1).argmax(axis=1), gains.shape[2])
    better = gains[np.arange(len(a)), i, j] > least
    clusters.swap(a[better], i[better], b[better], j[better])
    return int(better.sum())


def _squares(offsets: AnyArray, inside: AnyArray) -> AnyArray:
    squares: AnyArray = np.einsum("cid,cid,ci->c", offsets, offsets, inside.astype(offsets.dtype))
    return squares


def _gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> AnyArray:
    """Return Gumbel variables, faster than the generator's own: less logarithms of exponentials."""
    drawn = rng.standard_exponential(shape, dtype=np.float32)
    return np.asarray(-np.log(np.maximum(drawn, np.finfo(np.float32).tiny)))
