"""Few large clusters whose sums determine a linear model best: rows that point the same way.

Where the noise of a cluster's *sum* does not grow with its size, as privacy noise does not, the
information about the coefficients is ``A = sum s s'``, with s the sum of a cluster's rows. The
search lowers ``tr(W A^-1)``.

It starts from the directions of a regular simplex: each row joins the direction along which it
lies farthest. Then come sweeps of moves. To first order a row x belongs to the cluster with the
largest ``x'K s`` with K = A^-1 W A^-1, since -2 K s is the gradient of the trace. If all rows were
assigned at once, as in k-means, they would overshoot: directions in which A is small attract rows
until they are the large ones. So K is renewed after each block of rows, and each change is checked
against the exact trace.

Rows are read in blocks, one after the other, once for each sweep: they need not be in memory.
"""

from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.cluster import kernels
from bagwise.cluster.blocks import RowBlocks, mapped, parts
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.state import sums_of_clusters
from bagwise.cluster.workers import Patience, Workers
from bagwise.show.stages import report_progress

BLOCKS, LARGEST_BLOCK = 32, 2048  # K is renewed this often in a sweep, or after so many rows
WORTHWHILE = 1e-13  # relative change of the trace: less is rounding
RIDGE = 1e-12  # of the trace of A: sums of equal rows may be collinear at the start


@dataclass(frozen=True)
class Effort:
    """How long to try."""

    starts: int  # rotations of the simplex, of which the best counts
    sweeps: int  # at most, from each start
    enough: float  # a sweep that lowers the trace by less than this share is the last one


def align_rows(
    X: RowBlocks,
    weights: FloatArray,
    limits: SizeRange,
    effort: Effort,
    *,
    rng: np.random.Generator,
    waiting: Patience,
) -> IntArray:
    """Return the cluster of each row of X, all sizes in range.

    Parameters
    ----------
    X : (n, r)
        Rows in coordinates in which they are centred, and spread about equally in all directions.
    weights : (r,)
        How much the squared error of each coefficient counts. That of the intercept does not.
    limits : SizeRange
        There must be more clusters than r: their sums have to determine an intercept as well.
    """
    kernels.load_kernels()
    rows = mapped(X, _with_constant, X.shape[1] + 1)
    weights = np.append(weights / weights.max(), 0.0)
    best, found = np.inf, np.empty(0, dtype=np.int64)
    with Workers(1, n_rows=X.shape[0]):
        for start in range(effort.starts):
            labels = _within(limits, X, _simplex(limits.clusters, X.shape[1], rng))
            trace = _lower_trace(rows, labels, weights, limits, effort, waiting)
            if start == 0 or trace < best:
                best, found = trace, labels
    return found


def _with_constant(block: FloatArray) -> FloatArray:
    return np.column_stack([block, np.ones(block.shape[0])])


def _lower_trace(
    rows: RowBlocks,
    labels: IntArray,
    weights: FloatArray,
    limits: SizeRange,
    effort: Effort,
    waiting: Patience,
) -> float:
    """Change labels in place until no sweep is worth another one; return the trace."""
    trace = np.inf
    for turn in range(effort.sweeps):
        if waiting.is_over:
            break
        report_progress("aligning rows", turn / effort.sweeps)
        before, trace = trace, _sweep(rows, labels, weights, limits)
        if trace >= (1 - effort.enough) * before:
            break
    return trace


def _sweep(rows: RowBlocks, labels: IntArray, weights: FloatArray, limits: SizeRange) -> float:
    """Look at every row once, and change labels in place; return the trace."""
    sizes = np.bincount(labels, minlength=limits.clusters)
    sums = _sums(rows, labels, limits.clusters)  # anew in each sweep: updates gather rounding
    step = min(-(-rows.shape[0] // BLOCKS), LARGEST_BLOCK)
    for part in parts(rows):
        block, theirs = rows[part], labels[part]
        for first in range(0, theirs.size, step):
            some = slice(first, first + step)
            P = _inverse(sums)
            pulled = block[some] @ ((P * weights) @ P)
            selves = np.einsum("ij,ij->i", pulled, block[some])
            worthwhile = WORTHWHILE * float(weights @ np.diag(P))
            kernels.align.exchange(
                block[some], pulled @ sums.T, selves, theirs[some], sizes, sums, P, weights,
                limits.least, limits.most, worthwhile,
            )  # fmt: skip
    return float(weights @ np.diag(_inverse(sums)))


def _sums(rows: RowBlocks, labels: IntArray, clusters: int) -> FloatArray:
    total = np.zeros((clusters, rows.shape[1]))
    for part in parts(rows):
        total += sums_of_clusters(rows[part], labels[part], clusters)
    return total


def _inverse(sums: FloatArray) -> FloatArray:
    scatter = sums.T @ sums
    scatter[np.diag_indices_from(scatter)] += RIDGE * np.trace(scatter)
    return np.asarray(np.linalg.inv(scatter), dtype=np.float64)


def _simplex(clusters: int, dimensions: int, rng: np.random.Generator) -> FloatArray:
    """Return random directions, (clusters, dimensions), whose sum is zero and scatter the identity.

    With one cluster more than dimensions they are the corners of a regular simplex.
    """
    drawn = rng.normal(size=(clusters, dimensions))
    return np.linalg.qr(np.column_stack([np.ones(clusters), drawn]))[0][:, 1:]


def _within(limits: SizeRange, X: RowBlocks, directions: FloatArray) -> IntArray:
    """Let each row join the direction along which it lies farthest, as far as sizes allow."""
    labels, along = np.empty(X.shape[0], dtype=np.int64), np.empty(X.shape[0])
    for part in parts(X):
        found = X[part] @ directions.T
        labels[part], along[part] = found.argmax(axis=1), found.max(axis=1)
    sizes = np.bincount(labels, minlength=limits.clusters)
    for b in np.flatnonzero(sizes < limits.least).tolist():
        spare = np.maximum(np.bincount(labels, minlength=limits.clusters) - limits.least, 0)
        _fill(labels, b, limits.least - sizes[b], spare, along - _along(X, directions[b]))
    for b in range(limits.clusters):
        sizes = np.bincount(labels, minlength=limits.clusters)
        spare = np.maximum(sizes - limits.most, 0)
        wanted = min(limits.most - sizes[b], spare.sum())
        if wanted > 0:
            _fill(labels, b, wanted, spare, along - _along(X, directions[b]))
    return labels


def _along(X: RowBlocks, direction: FloatArray) -> FloatArray:
    return np.concatenate([X[part] @ direction for part in parts(X)])


def _fill(labels: IntArray, b: int, wanted: int, spare: IntArray, regret: FloatArray) -> None:
    """Bring `wanted` rows into b, at the least regret, none from where there are none to spare."""
    order = np.lexsort((regret, labels))
    givers = labels[order]
    rank = np.arange(order.size) - np.searchsorted(givers, givers)
    free = order[rank < spare[givers]]
    labels[free[np.argsort(regret[free], kind="stable")[:wanted]]] = b
