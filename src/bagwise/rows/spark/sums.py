"""Sums by bag: added up by Spark in whole numbers, and sealed in files that the driver can open."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import IntArray
from bagwise.rows.keys import SealedBox, row_blocks, seal
from bagwise.rows.parts import FileParts, Split
from bagwise.rows.spark.places import Places
from bagwise.rows.spark.tasks import cluster_of

BAGS_AT_ONCE = 2**16
"""Bags whose sums are in one file, and in the memory of the driver together."""

Measure = Callable[[Split, bytes], Sequence[IntArray]]
"""From a split and the secret to whole numbers of its rows, each of which is added up exactly."""


@dataclass(frozen=True)
class SealedSums:
    """Sums in files, in the order of the bags."""

    paths: tuple[str, ...]
    box: SealedBox
    n_bags: int

    def chunks(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the sums, (amounts, bags), and the sizes, of some bags after the other."""
        for number, path in enumerate(self.paths):
            content = np.frombuffer(self.box.open(Path(path).read_bytes()), dtype="<i8")
            bags = min(BAGS_AT_ONCE, self.n_bags - number * BAGS_AT_ONCE)
            found = content.reshape(-1, bags).astype(np.int64)
            yield found[1:], found[0]

    def discard(self) -> None:
        """Remove the files."""
        for path in self.paths:
            Path(path).unlink(missing_ok=True)


def add_up(table: FileParts, places: Places, measure: Measure, *, amounts: int = 1) -> SealedSums:
    """Add up whole numbers by bag, so many for each row, and write the sums."""
    from pyspark.sql import functions

    names = [f"a{i}" for i in range(amounts)]
    produce = partial(_measured, places=places, measure=measure, names=names)
    schema = ", ".join(f"{name} long" for name in ("bag", *names))
    rows = cluster_of(table.workers).columns(table.splits, produce, schema)
    sums = rows.groupBy("bag").agg(
        functions.count("*").alias("size"), *(functions.sum(name).alias(name) for name in names)
    )
    return _seal_up(table, places, sums, partial(_by_name, names=["size", *names]))


def count_kinds(table: FileParts, places: Places, measure: Measure, *, kinds: int) -> SealedSums:
    """Count the rows of each kind in each bag; what is measured is the number of the kind."""
    from pyspark.sql import functions

    produce = partial(_measured, places=places, measure=measure, names=["kind"])
    rows = cluster_of(table.workers).columns(table.splits, produce, "bag long, kind long")
    counts = rows.groupBy("bag", "kind").agg(functions.count("*").alias("rows"))
    return _seal_up(table, places, counts, partial(_by_kind, kinds=kinds))


def pick_one(table: FileParts, places: Places, measure: Measure) -> SealedSums:
    """Take what is measured of one row of each bag, the one whose block of the secret is least.

    The block is a function of the secret and the number of the row: whoever asks again, because a
    task failed or was slow, gets the same row. Which one it is goes into no file.
    """
    from pyspark.sql import functions

    produce = partial(_drawn, places=places, measure=measure)
    schema = "bag long, high long, low long, amount long"
    rows = cluster_of(table.workers).columns(table.splits, produce, schema)
    least = functions.min(functions.struct("high", "low", "amount"))
    picked = rows.groupBy("bag").agg(
        functions.count("*").alias("size"), least.getField("amount").alias("amount")
    )
    return _seal_up(table, places, picked, partial(_by_name, names=["size", "amount"]))


def _seal_up(
    table: FileParts, places: Places, sums: Any, arrange: Callable[[pa.Table, IntArray], IntArray]
) -> SealedSums:
    """Write what there is of each bag, sealed for this process."""
    from pyspark.sql import functions

    cluster, box = cluster_of(table.workers), SealedBox()
    where = str(cluster.scratch.new_file("sums"))
    seal_up = partial(
        _sealed, arrange=arrange, n_bags=places.n_bags, public=box.public, where=where
    )
    at_once = functions.floor(functions.col("bag") / functions.lit(BAGS_AT_ONCE))
    found = cluster.gather(sums, at_once, seal_up)
    numbers = range(-(-places.n_bags // BAGS_AT_ONCE))
    if sorted(found) != list(numbers):
        raise AssertionError("every bag has a sum")
    return SealedSums(tuple(found[number] for number in numbers), box, places.n_bags)


def _measured(
    split: Split, secret: bytes, *, places: Places, measure: Measure, names: Sequence[str]
) -> Iterable[pa.Table]:
    bags = places.read(split)[1]
    kept = bags >= 0
    amounts = {name: one[kept] for name, one in zip(names, measure(split, secret), strict=True)}
    yield pa.table({"bag": bags[kept], **amounts})


def _drawn(split: Split, secret: bytes, *, places: Places, measure: Measure) -> Iterable[pa.Table]:
    (measured,) = _measured(split, secret, places=places, measure=measure, names=["amount"])
    kept = places.read(split)[1] >= 0
    blocks = row_blocks(secret, "pick", split.first, split.rows).view(np.int64)[kept]
    columns = [measured.column(0), *blocks.T.copy(), measured.column(1)]
    yield pa.table(columns, names=["bag", "high", "low", "amount"])


def _by_name(rows: pa.Table, bags: IntArray, *, names: Sequence[str]) -> IntArray:
    """Return the numbers of each bag, (names, bags); every bag has one row."""
    columns = [np.asarray(rows.column(name).to_numpy(), dtype=np.int64) for name in ("bag", *names)]
    order = np.argsort(columns[0])
    if not np.array_equal(columns[0][order], bags):
        raise AssertionError("every bag has one sum")
    return np.stack([column[order] for column in columns[1:]])


def _by_kind(rows: pa.Table, bags: IntArray, *, kinds: int) -> IntArray:
    """Return the size of each bag, and how many it has of each kind, (1 + kinds, bags)."""
    bag, kind, count = (
        np.asarray(rows.column(name).to_numpy(), dtype=np.int64) for name in ("bag", "kind", "rows")
    )
    found = np.zeros((1 + kinds, bags.size), dtype=np.int64)
    if kind.min() < 0 or kind.max() >= kinds:
        raise AssertionError("every row is of a kind that there is")
    found[1 + kind, bag - bags[0]] = count
    found[0] = found[1:].sum(axis=0)
    if not found[0].all() or found.sum() != 2 * count.sum():
        raise AssertionError("every bag is counted once")
    return found


def _sealed(
    target: int,
    rows: pa.Table,
    *,
    arrange: Callable[[pa.Table, IntArray], IntArray],
    n_bags: int,
    public: bytes,
    where: str,
) -> str:
    first = target * BAGS_AT_ONCE
    found = arrange(rows, np.arange(first, min(first + BAGS_AT_ONCE, n_bags)))
    path = Path(f"{where}.{target}.{token_hex(8)}")
    path.write_bytes(seal(public, found.astype("<i8").tobytes()))
    return str(path)
