"""What the search computes, computed again the slow way: plain NumPy, from scratch, in float64."""

import contextlib
import itertools

import numpy as np

from bagwise.cluster import arith, bisection, centre_graph, exchanging, moving, repair, swapping
from bagwise.cluster.exchanging import Blocks
from bagwise.cluster.search import find_clusters
from bagwise.cluster.state import OrderedRows, Threads

KERNEL_MODULES = (arith, bisection, centre_graph, exchanging, moving, repair, swapping)


def spread(X, labels):
    """Sum of squared distances from the means of the clusters."""
    X, labels = np.asarray(X, dtype=np.float64), np.asarray(labels)
    total = 0.0
    for cluster in np.unique(labels):
        rows = X[labels == cluster]
        total += float(np.sum((rows - rows.mean(axis=0)) ** 2))
    return total


def centres_of(X, labels, clusters):
    X = np.asarray(X, dtype=np.float64)
    return np.array([X[labels == a].mean(axis=0) for a in range(clusters)])


def trace_of(X, labels):
    """tr M^-1, with M the scatter of the cluster means weighted by size."""
    return float(np.trace(np.linalg.inv(scatter_of(X, labels))))


def scatter_of(X, labels):
    total = np.zeros((X.shape[1], X.shape[1]))
    for cluster in np.unique(labels):
        mean = X[labels == cluster].mean(axis=0)
        total += np.sum(labels == cluster) * np.outer(mean, mean)
    return total


def changes_of(labels, least, most):
    """All ways to swap two rows of the clusters 0 and 1, or to move one, with sizes in range."""
    sizes = np.bincount(labels, minlength=2)
    a, b = np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)
    for i, j in itertools.product(a, b):
        changed = labels.copy()
        changed[i], changed[j] = 1, 0
        yield changed
    for rows, source, target in ((a, 0, 1), (b, 1, 0)):
        if sizes[source] > least and sizes[target] < most:
            for i in rows:
                changed = labels.copy()
                changed[i] = target
                yield changed


def pack(Z, labels, clusters, most):
    """Blocks of the rows of Z, whose ids are their places in Z."""
    ids = np.arange(labels.size, dtype=np.int32)
    return Blocks.pack(OrderedRows.of(Z.copy(), ids, labels.astype(np.int32), clusters), most)


def labels_in(blocks, n):
    """Cluster of each row; every row is found in exactly one cluster."""
    labels = np.full(n, -1)
    for a, (start, size) in enumerate(zip(blocks.starts[:-1], blocks.sizes, strict=True)):
        for i in blocks.ids[start : start + size]:
            assert labels[i] == -1
            labels[i] = a
    assert labels.min() >= 0
    return labels


def search_labels(Z, sizes, *, seed=0, effort="default", threads=1, starts=()):
    """Labels from the search; Z is left alone."""
    return find_clusters(
        Z.copy(),
        sizes,
        effort=effort,
        seed=seed,
        threads=threads,
        starts=starts,
    )


@contextlib.contextmanager
def one_worker():
    with Threads(1, n_rows=1) as workers:
        yield workers


def interpret_kernels(monkeypatch):
    """Let every kernel run as plain Python, where a wrong index is an IndexError."""
    plain = {}
    for module in KERNEL_MODULES:
        for name, value in vars(module).items():
            if hasattr(value, "py_func"):
                plain[name] = value.py_func
    for module in KERNEL_MODULES:
        for name, function in plain.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, function)
