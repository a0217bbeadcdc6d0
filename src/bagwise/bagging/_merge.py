"""Groups that are too small come together with their neighbours until none is."""

import numpy as np

from bagwise._types import FloatArray, IntArray

CELL = 1024
"""Groups that are compared with each other; more are divided first, since pairs grow as squares."""

_SAME = 1e-9  # relative: costs that differ by less are equal, and the smaller group is taken


def merge_small(
    centres: FloatArray, sizes: IntArray, bag_size: int, rng: np.random.Generator
) -> IntArray:
    """Return the bag of each group, so that every bag has `bag_size` rows or is the only one.

    The smallest group is merged with the one that makes the bags least less compact: by Ward's
    criterion, the squared distance of their centres times ``a b / (a + b)`` for sizes a and b. Each
    merger has a part that is too small, so no two groups that are large enough come together.

    References
    ----------
    Ward (1963), Hierarchical grouping to optimize an objective function.

    >>> centres = np.array([[0.0], [1.0], [9.0], [8.0]])
    >>> merge_small(centres, np.array([2, 2, 3, 7]), 4, np.random.default_rng(0)).tolist()
    [0, 0, 1, 1]
    """
    bag = np.arange(sizes.size)
    while sizes.size > 1 and sizes.min() < bag_size:
        # Merge within cells of neighbours; a cell with too few rows becomes one group. Ties go to
        # whoever comes first, and the first groups may be those of the first rows.
        joined = np.empty(sizes.size, dtype=np.int64)
        for cell in _cells(centres, rng.permutation(sizes.size)):
            joined[cell] = cell[_merge_cell(centres[cell].copy(), sizes[cell].copy(), bag_size)]
        merged = np.unique(joined, return_inverse=True)[1].astype(np.int64)
        total = np.bincount(merged, weights=sizes)
        sums = np.zeros((total.size, centres.shape[1]))
        np.add.at(sums, merged, centres * sizes[:, None])
        centres, sizes = sums / total[:, None], np.rint(total).astype(np.int64)
        bag = merged[bag]
    return bag


def _cells(centres: FloatArray, groups: IntArray) -> list[IntArray]:
    """Halve along the widest column until there are few enough groups in each part."""
    waiting, found = [groups], []
    while waiting:
        part = waiting.pop()
        if part.size <= CELL:
            found.append(part)
            continue
        widest = int(np.argmax(centres[part].var(axis=0)))
        ordered = part[np.argsort(centres[part, widest], kind="stable")]
        waiting.extend([ordered[: part.size // 2], ordered[part.size // 2 :]])
    return found


def _merge_cell(centres: FloatArray, sizes: IntArray, bag_size: int) -> IntArray:
    """Return, for each group of a cell, the one that it ended up with."""
    into, left = np.arange(sizes.size), np.ones(sizes.size, dtype=bool)
    while left.sum() > 1 and np.any(small := left & (sizes < bag_size)):
        one = int(np.flatnonzero(small)[np.argmin(sizes[small])])
        gaps = np.sum((centres - centres[one]) ** 2, axis=1)
        cost = np.where(left, gaps * (sizes * sizes[one] / (sizes + sizes[one])), np.inf)
        cost[one] = np.inf
        near = np.flatnonzero(cost <= cost.min() * (1 + _SAME))
        other = int(near[np.argmin(sizes[near])])
        both = sizes[one] + sizes[other]
        centres[one] += (centres[other] - centres[one]) * (sizes[other] / both)
        sizes[one], left[other] = both, False
        into[into == other] = one
    return into
