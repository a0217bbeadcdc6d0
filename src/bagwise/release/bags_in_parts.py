"""Form bags of rows that are not all in memory, part by part, with the ordinary strategy.

On Spark every bag lives in one part. Rows are regrouped so that those which may share a bag meet:
for `random` and `super` by secret keys, for sorting strategies by ranges of the scores, for compact
ones by the cells of a balanced tree. In a part the strategy is the one that runs in memory, with a
generator that the secret of the run seeds: the same for every attempt of a task, and unknown to
whoever does not have the secret. Strategies see features and scores that were paid for.

For rows on disk, only compact bags have to be formed in cells that fit into memory. The tree is
learned on a sample, every row is routed to its cell, and the rows of each cell are brought together
on disk. Bags across the border of two cells are not considered; this costs little if a cell has
many bags, because the share of bags near a border falls with the size of the cells.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import BaggingStrategy, Given, assign_bags
from bagwise.bagging.assigning import check_strata
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.privacy.private_model import LinearScores
from bagwise.release.manifest import BAG_ID
from bagwise.requests.columns import Columns
from bagwise.rng import NoiseSource
from bagwise.rows import whitening
from bagwise.rows.columns import as_float, without_dictionary
from bagwise.rows.encode import Encoder
from bagwise.rows.facts import Strata
from bagwise.rows.labels import label_numbers
from bagwise.rows.matrix import EncodedRows, PartsMatrix, blocks_of, sampled_rows
from bagwise.rows.parts import Part, Parts, by_key
from bagwise.rows.table import Rows

SAMPLED = 2**17
"""Rows that a tree is learned on."""

SEARCHED = 1.25
"""How much more memory the search for bags takes for each row than arranging rows does: five times
the row, for X, points, and lists of neighbours."""

BUCKET = 2**20
"""Rows of a part, about, where bags need few numbers for each."""

CELL = 2**18
"""Rows of a part, about, in which bags of neighbours are searched for."""

_FULL = 8  # bags in a part at least, so that none is short of rows by chance


@dataclass(frozen=True)
class Moved:
    """The columns that travel with each row from part to part.

    Attributes
    ----------
    names : tuple of str
        Columns.
    label : str
        A number, or the number of its class, which is under a stream where it is written.
    classes : tuple of str, optional
    """

    names: tuple[str, ...]
    label: str
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, leaving: Sequence[str], columns: Columns) -> Self:
        """Return the published columns, the unit and the label as a `Moved`."""
        unit = () if columns.unit is None else (columns.unit,)
        return cls(tuple(dict.fromkeys((*leaving, *unit))), columns.label, columns.classes)

    @property
    def columns(self) -> list[str]:
        """All columns, the label last."""
        return [*self.names, self.label]

    def take(self, table: pa.Table, *, coded: bool) -> pa.Table:
        """Return the columns without lists of levels, and labels as numbers."""
        columns = [without_dictionary(table.column(name)) for name in self.names]
        labels = label_numbers(table, self.label, self.classes, coded=coded)
        return pa.table([*columns, pa.array(labels)], names=self.columns)


def in_secret_order(table: Parts, moved: Moved) -> Parts:
    """Return all rows in a uniformly random order, before anything is computed from the features.

    A table is often exported in the order of its labels. A sum of doubles depends on the order of
    its rows in the last bits, and so do the coefficients of a model, the score of a row and the
    direction in which cells are cut, all of which are published or show in bags. In memory rows are
    brought into another order first, too (`rows.row_order`).
    """
    parts = max(1, round(table.num_rows / CELL))
    return _regrouped(
        table, lambda part: by_key(part.keys("rows"), parts), lambda part: part.table, moved
    )


@dataclass(frozen=True)
class PartBags:
    """Rows in parts with their bags.

    Attributes
    ----------
    parts : Parts
        With a column of bags, counted from 0 in each part, and -1 where a row is left out. Rows of
        a bag stand together.
    counts : tuple of int
        Bags of each part.
    sizes : dict of int to int
        How many bags have so many rows.
    """

    parts: Parts
    counts: tuple[int, ...]
    sizes: dict[int, int]

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return sum(self.counts)

    @property
    def n_rows(self) -> int:
        """Number of rows, including those in no bag."""
        return self.parts.num_rows

    @property
    def firsts(self) -> IntArray:
        """Number of the first bag of each part, among all bags."""
        return np.cumsum([0, *self.counts[:-1]])

    def count_sizes(self) -> dict[int, int]:
        """Return how many bags there are of each size."""
        return self.sizes


def check_formable(strategy: BaggingStrategy) -> None:
    """Refuse a strategy that cannot work in parts."""
    if strategy.needs_features and not (strategy.compact or strategy.keeps_groups):
        raise StrategyError(
            f"the strategy {strategy.name!r} needs all rows in one place, but these are on Spark. "
            "Choose random, super, sorted, kmeans or optimal."
        )


def check_strata_of(strategy: BaggingStrategy, strata: Strata) -> None:
    """Refuse strata that a strategy would have to cut but cannot cut at random."""
    most, largest = _most_at_once(strategy), int(strata.rows.max())
    if most is not None and largest > most:
        raise StrategyError(
            f"not on Spark yet: bags by {strategy.name!r} within strata of more than {most} rows, "
            f"and one has {largest}. Choose random, or divide the strata by one more column."
        )


def _most_at_once(strategy: BaggingStrategy) -> int | None:
    """Return how many rows of a stratum can be kept together; None if they need not be."""
    if strategy.needs_features:
        return 2 * CELL
    return 2 * BUCKET if strategy.uses_scores else None


Route = Callable[[Part], IntArray]
"""From a part to the part that each of its rows goes to."""

Features = Callable[[pa.Table], tuple[FloatArray, FloatArray | None]]
"""From rows to the points and the scores that a strategy sees of them."""


def form_bags(
    strategy: BaggingStrategy,
    X: PartsMatrix,
    model: LinearScores | None,
    moved: Moved,
    *,
    bag_size: int,
    source: NoiseSource,
    strata: Strata | None = None,
    groups: Strata | None = None,
) -> PartBags:
    """Put all rows into bags; rows of a bag will stand together, in an order that is secret.

    Parameters
    ----------
    model : LinearScores or None
        Computes the scores. If a strategy needs scores and there is no model, rows are sorted by
        their labels.
    strata, groups : Strata or None
        Rows that must not share a bag, and rows that must.
    """
    n_rows = X.shape[0]
    # 1. Which rows may share a bag, from features, scores and secret keys. Strata have parts of
    #    their own.
    room = max(1, n_rows // (_FULL * bag_size)) if strata is None else 1
    buckets = min(room, max(1, round(n_rows / BUCKET)))
    if groups is not None:
        whole = groups if strata is None else strata
        together = merged_cells(whole.rows, max(bag_size, CELL))
        route, features = lambda part: together[whole.number(part.table)], _points(X.encoder)
    elif strategy.needs_features:
        strategy, route, features = _cells(strategy, X, model, bag_size, room)
    elif strategy.uses_scores:
        route, features = _ranges(X, model, buckets)
    else:
        route, features = lambda part: by_key(part.keys("order"), buckets), _no_features
    if strata is not None and groups is None:
        route = _within(strategy, strata, bag_size)
    # 2. They meet, and are bagged where they are.
    bagged = _bagging(strategy, bag_size, features, strata=strata, groups=groups)
    parts = _regrouped(X.parts, route, bagged, moved)
    # 3. The order of the parts is drawn here, so that it tells nothing of keys, scores or cells.
    parts = parts.reordered(source.permutation(len(parts.sizes)))

    def count(part: Part) -> Counter[int]:
        bags = part.table.column(0).to_numpy()
        return Counter(np.bincount(bags[bags >= 0]).tolist())

    found = parts.map(count, [BAG_ID])
    counts = tuple(sum(one.values()) for one in found)
    return PartBags(parts, counts, dict(sorted(sum(found, Counter[int]()).items())))


def _regrouped(
    table: Parts, route: Route, finish: Callable[[Part], pa.Table], moved: Moved
) -> Parts:
    """Send rows along the route with their other columns; the label is encrypted by a stream."""
    coded = table.masked == moved.label

    def deal(part: Part) -> tuple[IntArray, pa.Table]:
        return route(part), moved.take(part.table, coded=coded)

    return table.regroup(deal, finish, moved.columns, masked=moved.label)


def _no_features(table: pa.Table) -> tuple[FloatArray, None]:
    return np.empty((table.num_rows, 0)), None


def _bagging(
    strategy: BaggingStrategy,
    bag_size: int,
    features: Features,
    *,
    strata: Strata | None = None,
    groups: Strata | None = None,
) -> Callable[[Part], pa.Table]:
    """Return the function that forms the bags of a part, whose rows are in a secret order."""

    def bagged(part: Part) -> pa.Table:
        X, scores = features(part.table)
        given = Given(
            None if groups is None else groups.number(part.table),
            None if strata is None else strata.number(part.table),
        )
        rng = part.generator("bags")
        bags = assign_bags(strategy, X, scores, bag_size=bag_size, rng=rng, given=given)
        index = bags.renumbered().index
        # By bag, and in a bag by key: both orders are those of the secret keys.
        order = np.argsort(index, kind="stable")
        numbers = pa.array(index[order], pa.int64())
        return part.table.take(pa.array(order)).append_column(BAG_ID, numbers)

    return bagged


def _ranges(X: PartsMatrix, model: LinearScores | None, buckets: int) -> tuple[Route, Features]:
    """Return the route to ranges of scores that are about equally full, judged by a sample.

    Scores are those of a model, or the labels themselves.
    """
    encoder, label, share = X.encoder, X.label, min(1.0, SAMPLED / X.shape[0])

    def score(table: pa.Table) -> FloatArray:
        if model is None:
            return as_float(table.column(label))
        return by_block(table, encoder, model.predict)

    def some_scores(part: Part) -> FloatArray:
        rows = sampled_rows(part, share)
        return score(part.table.take(pa.array(rows))) if rows.size else np.empty(0)

    seen = X.parts.map(some_scores, [label] if model is None else encoder.inputs)
    cuts = np.quantile(np.concatenate(seen), np.arange(1, buckets) / buckets)

    def route(part: Part) -> IntArray:
        # Rows with a score at which several ranges meet are dealt to all of them.
        scores = score(part.table)
        low, high = (np.searchsorted(cuts, scores, side=side) for side in ("left", "right"))
        chance = (part.keys("order") >> np.uint64(11)).astype(np.float64) / 2**53
        return np.asarray(low + ((high - low + 1) * chance).astype(np.int64))

    return route, lambda table: (np.empty((table.num_rows, 0)), score(table))


def _cells(
    strategy: BaggingStrategy, X: PartsMatrix, model: LinearScores | None, bag_size: int, room: int
) -> tuple[BaggingStrategy, Route, Features]:
    """Return the strategy for points, the route to cells of neighbours, and the points."""
    to_points, inner = metric_of(strategy, X, None if model is None else model.predict)
    depth = max(0, int(np.ceil(np.log2(min(room, max(1, X.shape[0] / CELL))))))
    tree = Tree.learn(to_points(X.sampled(SAMPLED)), depth)

    def count(block: FloatArray) -> IntArray:
        return np.bincount(tree.route(to_points(block)), minlength=tree.cuts.size)

    groups = merged_cells(np.sum(X.over(count, np.add), axis=0), bag_size)
    points = _points(X.encoder, to_points)
    return inner, lambda part: groups[tree.route(points(part.table)[0])], points


def _points(
    encoder: Encoder, to_points: Callable[[FloatArray], FloatArray] = np.asarray
) -> Features:
    """Return the function that turns rows into points: the image of X under a metric."""
    return lambda table: (by_block(table, encoder, to_points), None)


def by_block(
    table: pa.Table, encoder: Encoder, work: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return what `work` makes of X, which never exists as a whole."""
    return np.concatenate([work(X) for X, _ in blocks_of(table, encoder)])


def _within(strategy: BaggingStrategy, strata: Strata, bag_size: int) -> Route:
    """Return the route to parts of whole strata; a stratum too large for one part gets several."""
    check_strata(int(strata.rows.min()), bag_size)
    check_strata_of(strategy, strata)
    rows = strata.rows
    parts = np.ones(rows.size, dtype=np.int64)
    if _most_at_once(strategy) is None:
        room = np.maximum(1, rows // (_FULL * bag_size))
        parts = np.minimum(room, np.maximum(1, np.rint(rows / BUCKET).astype(np.int64)))
    first = _first_parts(rows, parts, CELL if strategy.needs_features else BUCKET)

    def route(part: Part) -> IntArray:
        number, keys = strata.number(part.table), part.keys("order")
        share = (keys >> np.uint64(32)) * parts[number].astype(np.uint64) >> np.uint64(32)
        return np.asarray(first[number] + share.astype(np.int64))

    return route


def _first_parts(rows: IntArray, parts: IntArray, most: int) -> IntArray:
    """Return the first part of each stratum; small ones share a part with the next.

    >>> _first_parts(np.array([3, 4, 5, 30, 2]), np.array([1, 1, 1, 3, 1]), 10)
    array([0, 0, 1, 2, 5])
    """
    first, part, held = np.empty(rows.size, dtype=np.int64), 0, 0
    for stratum, (count, several) in enumerate(zip(rows.tolist(), parts.tolist(), strict=True)):
        if held and (several > 1 or held + count > most):
            part, held = part + 1, 0
        first[stratum] = part
        if several > 1:
            part, held = part + several, 0
        else:
            held += count
    return first


def leaving_rows(part: Part, *, schema: pa.Schema, firsts: Sequence[int]) -> pa.Table:
    """Return the rows of a part as they are published: with release types and their bags."""
    bags = part.table.column(BAG_ID).to_numpy()
    numbers = pa.array(bags + firsts[part.number], pa.int64(), mask=bags < 0)
    columns = [part.table.column(field.name).cast(field.type) for field in schema]
    return pa.table([*columns, numbers], names=[*schema.names, BAG_ID])


# -- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """Cuts, each along a direction; a cell is leaf number ``node - leaves`` of the last level.

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
        """Halve sets of points along their direction of largest spread, `depth` times."""
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
    counts = np.bincount(cells, minlength=2**depth)
    sizes = np.bincount(merged_cells(counts, bag_size), weights=counts).astype(np.int64)
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

    All rows together determine what is near, so that it is the same in every cell. A strategy that
    defines no metric gets X unchanged. Scores are those of the rows, or a function that finds them.
    """
    columns = whitening.Columns(X)
    metric = strategy.shared_metric(columns, scores)
    if metric is None:
        return (lambda block: block), strategy
    center, (W, inner) = columns.mean, metric
    return (lambda block: np.asarray((block - center) @ W)), inner


def merged_cells(counts: IntArray, least: int) -> IntArray:
    """Return the group of each cell; cells with too few rows are merged with the next.

    >>> merged_cells(np.array([0, 3, 9, 8, 2]), 5)
    array([0, 0, 0, 1, 1])
    """
    groups, group, held = np.empty(counts.size, dtype=np.int64), 0, 0
    for cell, count in enumerate(counts.tolist()):
        if held >= least:
            group, held = group + 1, 0
        groups[cell] = group
        held += count
    if group and held < least:
        groups[groups == group] -= 1
    return groups
