"""Bags of rows on many machines: a strategy runs in buckets that fit one task.

`random` and `super` draw their buckets by secret keys, sorting ones cut the scores into ranges, and
compact ones route rows by a balanced tree. In a bucket the strategy is the one that runs in memory,
with a generator that the keys of its rows seed: the same for every attempt of a task, and unknown
to whoever does not have the secret. Strategies see features and scores that were paid for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import BaggingStrategy, Given, assign_bags
from bagwise.bagging._strata import NOTHING_GIVEN, check_strata
from bagwise.errors import StrategyError
from bagwise.privacy.private_model import LinearScores
from bagwise.release.cells import SAMPLED, Tree, merged_cells, metric_of
from bagwise.rng import NoiseSource
from bagwise.rows.encode import Encoder
from bagwise.rows.parts import Reader, Split, by_key
from bagwise.rows.spark.matrix import SparkMatrix, blocks_of
from bagwise.rows.spark.places import Arrange, Places, Route, find_places
from bagwise.rows.spark.strata import Strata

BUCKET = 2**20
"""Rows of a bucket, about; a task holds a few numbers for each."""

CELL = 2**18
"""Rows of a cell, about, in which bags of neighbours are searched for."""

_FULL = 8  # bags in a bucket at least, so that none is short of rows by chance


def check_formable(strategy: BaggingStrategy) -> None:
    """Refuse a strategy that cannot work in buckets."""
    if strategy.needs_features and strategy.uses_scores:
        raise StrategyError(
            "not on Spark yet: bags by the metric of a model (use scale='whiten'). Or leave out "
            "the engine."
        )
    if strategy.needs_features and not strategy.compact:
        raise StrategyError(
            f"the strategy {strategy.name!r} needs all rows in one place, and these are on Spark. "
            "Choose random, super, sorted or kmeans."
        )


def check_strata_of(strategy: BaggingStrategy, strata: Strata) -> None:
    """Refuse strata that a strategy would have to cut, and cannot cut at random."""
    most, largest = _most_at_once(strategy), int(strata.rows.max())
    if most is not None and largest > most:
        raise StrategyError(
            f"not on Spark yet: bags by {strategy.name!r} within strata of more than {most} rows, "
            f"and one has {largest}. Choose random, or cut the strata by one more column."
        )


def _most_at_once(strategy: BaggingStrategy) -> int | None:
    """Return how many rows of a stratum can be kept together; None where they need not be."""
    if strategy.needs_features:
        return 2 * CELL
    return 2 * BUCKET if strategy.uses_scores else None


def form_bags(
    strategy: BaggingStrategy,
    X: SparkMatrix,
    model: LinearScores | None,
    *,
    bag_size: int,
    source: NoiseSource,
    strata: Strata | None = None,
) -> Places:
    """Put all rows into bags; rows of a bag will stand together, in an order that is secret."""
    n_rows = X.shape[0]
    # Strata have buckets of their own.
    room = max(1, n_rows // (_FULL * bag_size)) if strata is None else 1
    buckets = min(room, max(1, round(n_rows / BUCKET)))
    inner: BaggingStrategy = strategy
    if strategy.uses_scores:
        if model is None:
            raise AssertionError("scores on Spark are those of a model")
        route = _ranges(X, model, buckets)
    elif not strategy.needs_features:
        route = partial(_at_random, buckets=buckets)
    else:
        inner, route = _cells(strategy, X, bag_size, room)
    if strata is not None:
        route = _within(strategy, route, strata, X.table.reader, bag_size)
    arrange: Arrange = partial(
        _assigned, strategy=inner, bag_size=bag_size, within=strata is not None
    )
    return find_places(X.table, route, arrange, order_buckets=source.permutation)


def _within(
    strategy: BaggingStrategy, inner: Route, strata: Strata, reader: Reader, bag_size: int
) -> Route:
    """Return the way to buckets of whole strata, or to parts of one that is too large for one."""
    check_strata(int(strata.rows.min()), bag_size)
    check_strata_of(strategy, strata)
    rows = strata.rows
    parts = np.ones(rows.size, dtype=np.int64)
    most = BUCKET
    if _most_at_once(strategy) is None:
        room = np.maximum(1, rows // (_FULL * bag_size))
        parts = np.minimum(room, np.maximum(1, np.rint(rows / BUCKET).astype(np.int64)))
    elif strategy.needs_features:
        most = CELL
    first = _first_buckets(rows, parts, most)
    return partial(_in_stratum, inner=inner, strata=strata, reader=reader, first=first, parts=parts)


def _first_buckets(rows: IntArray, parts: IntArray, most: int) -> IntArray:
    """Return the first bucket of each stratum; small ones share a bucket with the next.

    >>> _first_buckets(np.array([3, 4, 5, 30, 2]), np.array([1, 1, 1, 3, 1]), 10)
    array([0, 0, 1, 2, 5])
    """
    first, bucket, held = np.empty(rows.size, dtype=np.int64), 0, 0
    for stratum, (count, part) in enumerate(zip(rows.tolist(), parts.tolist(), strict=True)):
        if held and (part > 1 or held + count > most):
            bucket, held = bucket + 1, 0
        first[stratum] = bucket
        if part > 1:
            bucket, held = bucket + part, 0
        else:
            held += count
    return first


def _in_stratum(
    split: Split,
    keys: NDArray[np.uint64],
    secret: bytes,
    *,
    inner: Route,
    strata: Strata,
    reader: Reader,
    first: IntArray,
    parts: IntArray,
) -> tuple[IntArray, pa.Table]:
    number = strata.number(reader.read(split, strata.names, secret))
    routed = inner(split, keys, secret)[1]
    needed = pa.table([*routed.columns, number], names=[*routed.column_names, "stratum"])
    part = (keys >> np.uint64(32)) * parts[number].astype(np.uint64) >> np.uint64(32)
    return first[number] + part.astype(np.int64), needed


def _at_random(
    _split: Split, keys: NDArray[np.uint64], _secret: bytes, *, buckets: int
) -> tuple[IntArray, pa.Table]:
    return by_key(keys, buckets), pa.table({})


def _ranges(X: SparkMatrix, model: LinearScores, buckets: int) -> Route:
    """Return the way to ranges of scores that are about as full, as far as a sample tells."""
    scores = model.predict(X.sampled(SAMPLED))
    cuts = np.quantile(scores, np.arange(1, buckets) / buckets)
    return partial(_in_range, reader=X.table.reader, encoder=X.encoder, model=model, cuts=cuts)


def _in_range(
    split: Split,
    keys: NDArray[np.uint64],
    secret: bytes,
    *,
    reader: Reader,
    encoder: Encoder,
    model: LinearScores,
    cuts: FloatArray,
) -> tuple[IntArray, pa.Table]:
    scores = np.concatenate(
        [model.predict(block) for block, _ in blocks_of(split, secret, reader, encoder)]
    )
    # Rows with a score at which several ranges meet are dealt to all of them.
    low, high = (np.searchsorted(cuts, scores, side=side) for side in ("left", "right"))
    share = (keys >> np.uint64(11)).astype(np.float64) / 2**53
    return low + ((high - low + 1) * share).astype(np.int64), pa.table({"score": scores})


def _cells(
    strategy: BaggingStrategy, X: SparkMatrix, bag_size: int, room: int
) -> tuple[BaggingStrategy, Route]:
    """Return the way to cells of neighbours, and the strategy for what is in them."""
    to_points, inner = metric_of(strategy, X)
    cells = min(room, max(1, X.shape[0] / CELL))
    depth = max(0, int(np.ceil(np.log2(cells))))
    tree = Tree.learn(to_points(X.sampled(SAMPLED)), depth)
    go = _InCell(X.table.reader, X.encoder, to_points, tree)
    counts = np.sum(X.over_blocks(go.count, np.add), axis=0)
    return inner, partial(_in_cell, go=go, groups=_groups(counts, bag_size))


def _groups(counts: IntArray, least: int) -> IntArray:
    """Return the group of each cell; cells that are short of rows go together with the next.

    >>> _groups(np.array([0, 3, 9, 8, 2]), 5)
    array([0, 0, 0, 1, 1])
    """
    ends = np.cumsum(merged_cells(counts, least))
    return np.minimum(np.searchsorted(ends, np.cumsum(counts), side="left"), ends.size - 1)


@dataclass(frozen=True)
class _InCell:
    reader: Reader
    encoder: Encoder
    to_points: Callable[[FloatArray], FloatArray]
    tree: Tree

    def count(self, block: FloatArray) -> IntArray:
        return np.bincount(self.tree.route(self.to_points(block)), minlength=self.tree.cuts.size)


def _in_cell(
    split: Split, _keys: NDArray[np.uint64], secret: bytes, *, go: _InCell, groups: IntArray
) -> tuple[IntArray, pa.Table]:
    points = np.concatenate(
        [go.to_points(block) for block, _ in blocks_of(split, secret, go.reader, go.encoder)]
    )
    columns = {str(number): column for number, column in enumerate(points.T)}
    return groups[go.tree.route(points)], pa.table(columns)


def _assigned(
    _bucket: int,
    keys: NDArray[np.uint64],
    routed: pa.Table,
    *,
    strategy: BaggingStrategy,
    bag_size: int,
    within: bool = False,
) -> tuple[IntArray, IntArray]:
    """Form the bags of a bucket, whose rows are in the order of their keys.

    `within` says that the last column that was routed is the stratum of each row.
    """
    rng = np.random.default_rng(keys[:8].tolist())
    given = NOTHING_GIVEN
    if within:
        given = Given(strata=routed.column(routed.num_columns - 1).to_numpy())
        routed = routed.select(range(routed.num_columns - 1))
    scores, X = None, np.empty((keys.size, 0))
    if strategy.uses_scores:
        scores = routed.column(0).to_numpy()
    elif routed.num_columns:
        X = np.column_stack([column.to_numpy() for column in routed.columns])
    bags = assign_bags(strategy, X, scores, bag_size=bag_size, rng=rng, given=given).renumbered()
    # By bag, and in a bag by key: both orders are those of the secret keys.
    order = np.argsort(bags.index, kind="stable")
    return order, bags.index[order]
