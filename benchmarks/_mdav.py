"""MDAV (Domingo-Ferrer and Mateo-Sanz 2002), the usual heuristic of microaggregation, as a peer."""

import numpy as np


def mdav(X, size):
    """Return the group of each row, every group with `size` rows, the last with up to 2*size-1."""
    X = np.ascontiguousarray(X, dtype=np.float32)
    left = np.arange(X.shape[0])
    groups = np.empty(X.shape[0], dtype=np.int64)
    rows, total, group = X, X.sum(axis=0, dtype=np.float64), 0
    while left.size >= 3 * size:
        far = _distances(rows, (total / left.size).astype(np.float32)).argmax()
        opposite = _distances(rows, rows[far]).argmax()
        for seed in (rows[far].copy(), rows[opposite].copy()):
            near = np.argpartition(_distances(rows, seed), size - 1)[:size]
            groups[left[near]] = group
            total -= rows[near].sum(axis=0, dtype=np.float64)
            kept = np.ones(left.size, dtype=bool)
            kept[near] = False
            rows, left, group = rows[kept], left[kept], group + 1
    if left.size >= 2 * size:
        far = _distances(rows, (total / left.size).astype(np.float32)).argmax()
        near = np.argpartition(_distances(rows, rows[far]), size - 1)[:size]
        groups[left[near]] = group
        left, group = np.delete(left, near), group + 1
    groups[left] = group
    return groups


def _distances(rows, point):
    return np.einsum("ij,ij->i", rows - point, rows - point)
