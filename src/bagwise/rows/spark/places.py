"""Where rows go: the place of each row in the release, and its bag, written split by split.

Rows are dealt to buckets that fit a task, by a secret key or by what a strategy is about. Whoever
arranges a bucket says in which order its rows leave, and where one bag ends and the next begins:
rows of a bag stand together. The order of the buckets is drawn by the caller. What comes of it goes
back to the splits and is written there, so that every later step reads the same places.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import token_hex
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bagwise._types import IntArray
from bagwise.errors import EngineError
from bagwise.rows.keys import row_keys
from bagwise.rows.parts import FileParts, Split
from bagwise.rows.workers import split_rows

LEFT_OUT = -1

Route = Callable[[Split, NDArray[np.uint64], bytes], tuple[IntArray, pa.Table]]
"""From a split and the keys of its rows to the bucket of each, and what arranging them needs."""

Arrange = Callable[[int, NDArray[np.uint64], pa.Table], tuple[IntArray, IntArray]]
"""From a bucket, the keys of its rows, and what was routed with them, to the order in which rows
leave, and the bag of each row in that order: 0, 1, 2, … as they first appear, or -1."""


@dataclass(frozen=True)
class Bucket:
    """What came of a bucket: a file with its rows in order, and bags by size."""

    path: str
    rows: int
    sizes: dict[int, int]
    left_out: int


@dataclass(frozen=True)
class Places:
    """The place and the bag of every row.

    Attributes
    ----------
    paths : tuple of str
        A file for each split: two numbers for each row.
    sizes : dict of int to int
        How many bags have so many rows.
    left_out : int
        Rows in no bag.
    """

    paths: tuple[str, ...]
    sizes: dict[int, int]
    left_out: int

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return sum(self.sizes.values())

    @property
    def smallest(self) -> int:
        """Rows of the smallest bag."""
        return min(self.sizes)

    def count_sizes(self) -> dict[int, int]:
        """Return how many bags there are of each size."""
        return self.sizes

    def read(self, split: Split) -> tuple[IntArray, IntArray]:
        """Return place and bag of each row of a split."""
        return _read_numbers(self.paths[split.number])


def find_places(
    table: FileParts,
    route: Route,
    arrange: Arrange,
    *,
    order_buckets: Callable[[int], IntArray],
) -> Places:
    """Deal rows to buckets, arrange these, and write the places of all rows.

    `order_buckets` draws an order of so many buckets.
    """
    cluster = table.workers
    buckets = cluster.exchange(
        table.splits,
        partial(_deal, route=route),
        partial(_arranged, arrange=arrange, where=str(cluster.scratch.new_file("bucket"))),
    )
    numbers = sorted(buckets)
    made = [buckets[numbers[place]] for place in order_buckets(len(numbers))]
    starts, first_row, first_bag = [], 0, 0
    for bucket in made:
        starts.append((bucket.path, first_row, first_bag))
        first_row, first_bag = first_row + bucket.rows, first_bag + sum(bucket.sizes.values())
    if first_row != table.num_rows:
        raise AssertionError("every row is in one bucket")
    written = cluster.exchange(
        starts,
        partial(_send_back, firsts=np.array([one.first for one in table.splits])),
        partial(_written, splits=table.splits, where=str(cluster.scratch.new_file("places"))),
    )
    return Places(
        paths=tuple(written[split.number] for split in table.splits),
        sizes=dict(sorted(sum((Counter(bucket.sizes) for bucket in made), Counter()).items())),
        left_out=sum(bucket.left_out for bucket in made),
    )


def _deal(split: Split, secret: bytes, *, route: Route) -> Iterator[tuple[int, pa.Table]]:
    keys = row_keys(secret, "order", split.first, split.rows)
    targets, needed = route(split, keys, secret)
    rows = pa.array(np.arange(split.first, split.first + split.rows, dtype=np.int64))
    table = pa.table([rows, pa.array(keys), *needed.columns], names=_names(2 + needed.num_columns))
    yield from split_rows(targets, table)


def _arranged(
    target: int, dealt: pa.Table, _secret: bytes, *, arrange: Arrange, where: str
) -> Bucket:
    # In the order of their keys, so that nothing depends on which task was first.
    dealt = dealt.take(pa.array(np.argsort(dealt.column(1).to_numpy(), kind="stable")))
    keys = dealt.column(1).to_numpy()
    if np.any(keys[1:] == keys[:-1]):
        # Once in 2**24 buckets of 2**20 rows; to break the tie would favour an order.
        raise EngineError("two rows have drawn the same key. Nothing was released; start again.")
    order, bags = arrange(target, keys, dealt.select(range(2, dealt.num_columns)))
    sizes, times = np.unique(np.bincount(bags[bags >= 0]), return_counts=True)
    path = f"{where}.{target}.{token_hex(8)}"
    _write_numbers(path, dealt.column(0).to_numpy()[order], bags)
    counted = dict(zip(sizes.tolist(), times.tolist(), strict=True))
    return Bucket(path, order.size, counted, int((bags < 0).sum()))


def _send_back(
    bucket: tuple[str, int, int], _secret: bytes, *, firsts: IntArray
) -> Iterator[tuple[int, pa.Table]]:
    path, first_row, first_bag = bucket
    rows, bags = _read_numbers(path)
    places = first_row + np.arange(rows.size, dtype=np.int64)
    bags = np.where(bags < 0, LEFT_OUT, bags + first_bag)
    table = pa.table([rows, places, bags], names=_names(3))
    yield from split_rows(np.searchsorted(firsts, rows, side="right") - 1, table)


def _written(
    target: int, sent: pa.Table, _secret: bytes, *, splits: Sequence[Split], where: str
) -> str:
    split = splits[target]
    rows, places, bags = (column.to_numpy() for column in sent.columns)
    order = np.argsort(rows, kind="stable")
    if not np.array_equal(rows[order], np.arange(split.first, split.first + split.rows)):
        raise AssertionError("every row has one place")
    path = f"{where}.{target}.{token_hex(8)}"
    _write_numbers(path, places[order], bags[order])
    return path


def _write_numbers(path: str, *columns: IntArray) -> None:
    table = pa.table([pa.array(c, pa.int64()) for c in columns], names=_names(len(columns)))
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read_numbers(path: str) -> tuple[IntArray, IntArray]:
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    first, second = (np.asarray(column.to_numpy(), dtype=np.int64) for column in table.columns)
    return first, second


def _names(count: int) -> list[Any]:
    return [str(number) for number in range(count)]
