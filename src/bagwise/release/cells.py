"""Compact bags of rows that do not fit into memory, formed within coarse cells that do.

A balanced tree, learned on a sample, cuts the rows into cells of neighbours. Every row is routed to
its cell, the rows of each cell are brought together on disk, and the search for bags runs cell by
cell. Bags that would cross the border of two cells are lost, which is little where a cell has many
bags: the share of bags near a border falls with the size of the cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import BaggingStrategy, assign_bags
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.rows.matrix import EncodedRows
from bagwise.rows.table import Rows
from bagwise.rows.whitening import Columns

SAMPLED = 2**17
"""Rows that a tree is learned on."""

SEARCHED = 1.25
"""How much more memory the search for bags takes for each row than arranging rows does: five times
the row, for X, points, and lists of neighbours."""


@dataclass(frozen=True)
class Tree:
    """Cuts along a direction each; leaf number ``node - leaves`` of the last level is a cell.

    Attributes
    ----------
    directions : (leaves, d)
        Of node i; its children are 2i and 2i + 1, and the root is 1.
    cuts : (leaves,)
        Rows whose product with the direction is at least that go to 2i + 1.
    """

    directions: FloatArray
    cuts: FloatArray

    @classmethod
    def learn(cls, points: FloatArray, depth: int) -> "Tree":
        """Cut points in half, along the direction of their largest spread, `depth` times."""
        leaves = 2**depth
        tree = cls(np.zeros((leaves, points.shape[1])), np.zeros(leaves))
        node = np.ones(points.shape[0], dtype=np.int64)
        for parent in range(1, leaves):
            here = np.flatnonzero(node == parent)
            if here.size < 2:
                continue
            part = points[here] - points[here].mean(axis=0)
            tree.directions[parent] = np.linalg.eigh(part.T @ part)[1][:, -1]
            along = points[here] @ tree.directions[parent]
            tree.cuts[parent] = np.median(along)
            node[here] = 2 * parent + (along >= tree.cuts[parent])
        return tree

    def route(self, points: FloatArray) -> IntArray:
        """Return the cell of each point."""
        node = np.ones(points.shape[0], dtype=np.int64)
        while node.size and node[0] < self.cuts.size:
            along = np.einsum("ij,ij->i", points, self.directions[node])
            node = 2 * node + (along >= self.cuts[node])
        return node - self.cuts.size


def assign_by_cells(
    strategy: BaggingStrategy,
    X: EncodedRows,
    rows: Rows,
    *,
    bag_size: int,
    rng: np.random.Generator,
    scores: FloatArray | None = None,
) -> Bags:
    """Form bags cell by cell; every bag has at least `bag_size` rows.

    Parameters
    ----------
    X : EncodedRows
        Of `rows`, whose order must tell nothing of labels.
    scores : (n,) floats, optional
        For a strategy whose metric they decide.
    """
    if not strategy.compact:
        raise StrategyError(
            f"the strategy {strategy.name!r} needs all rows in memory at once, but these do not "
            "fit. Choose random, sorted, super, kmeans or optimal, or raise the limit "
            "(memory_limit, --memory-limit)."
        )
    n = X.shape[0]
    to_points, inner = metric_of(strategy, X, scores)
    most = max(rows.rows_at_once / SEARCHED, 2 * bag_size)
    depth = max(0, int(np.ceil(np.log2(n / most))))
    step = max(1, n // SAMPLED)  # rows from everywhere, as many of each block as of any other
    tree = Tree.learn(to_points(np.concatenate([block[::step] for block in X])), depth)
    cells = np.concatenate([tree.route(to_points(block)) for block in X]).astype(np.int32)
    order = np.argsort(cells, kind="stable")
    sizes = merged_cells(np.bincount(cells, minlength=2**depth), bag_size)
    del cells
    near = EncodedRows(rows.take(order), X.encoder)
    index, start, bags_before = np.empty(n, dtype=np.int64), 0, 0
    for size in sizes.tolist():
        part = to_points(near[start : start + size])
        found = assign_bags(inner, part, None, bag_size=bag_size, rng=rng)
        index[order[start : start + size]] = found.index + bags_before
        start, bags_before = start + size, bags_before + found.n_bags
    return Bags(index)


def metric_of(
    strategy: BaggingStrategy, X: Any, scores: Any = None
) -> tuple[Callable[[FloatArray], FloatArray], BaggingStrategy]:
    """Return the map from X to points, and the strategy for these.

    What is near is told by all rows: the same in every cell. A strategy that does not say gets X as
    it is. Scores are those of the rows, or a function that finds them.
    """
    columns = Columns(X)
    metric = strategy.shared_metric(columns, scores)
    if metric is None:
        return (lambda block: block), strategy
    center, (W, inner) = columns.mean, metric
    return (lambda block: np.asarray((block - center) @ W)), inner


def merged_cells(sizes: IntArray, least: int) -> IntArray:
    """Put cells together with the next one, until each has enough rows.

    >>> merged_cells(np.array([0, 3, 9, 8, 2]), 5)
    array([12, 10])
    """
    merged = [0]
    for size in sizes.tolist():
        if merged[-1] >= least:
            merged.append(0)
        merged[-1] += size
    if len(merged) > 1 and merged[-1] < least:
        last = merged.pop()
        merged[-1] += last
    return np.array(merged)
