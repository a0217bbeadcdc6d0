"""Rows in an order that nobody knows, before anything is computed from their features.

A table is often exported in the order of its labels. A sum of doubles depends on the order of its
rows in the last bits, and so do the coefficients of a model, the score of a row and the direction
in which cells are cut, all of which are published or show in bags. In memory rows are brought into
another order first (`data.row_order`). Here they are written once more, by keys of their numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes, token_hex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise.errors import EngineError
from bagwise.files.atomic import create_private
from bagwise.rows.columns import as_float, without_dictionary
from bagwise.rows.keys import row_keys, stream_key, under_stream
from bagwise.rows.parts import FileParts, Reader, Split, by_key
from bagwise.rows.spark.table import GROUP, codes_of
from bagwise.rows.workers import split_rows


@dataclass(frozen=True)
class _Written:
    path: str
    rows: int
    nonce: bytes


def in_secret_order(
    table: FileParts, names: Sequence[str], *, label: str, classes: Sequence[str] | None = None
) -> FileParts:
    """Return these columns, and the label, of all rows, in a uniformly random order.

    Labels are masked in the files that are written, as those of a DataFrame are.
    """
    cluster = table.workers
    empty = table.schema.empty_table()
    plain = pa.schema([(name, without_dictionary(empty.column(name)).type) for name in names])
    deal = partial(
        _deal,
        reader=table.reader,
        names=tuple(names),
        label=label,
        classes=classes,
        buckets=max(1, round(table.num_rows / GROUP)),
    )
    write = partial(_write, names=(*names, label), where=str(cluster.scratch.new_file("ordered")))
    written = cluster.exchange(table.splits, deal, write)
    splits, first = list[Split](), 0
    for bucket in sorted(written):
        part = written[bucket]
        splits.append(Split(len(splits), part.path, 0, first, part.rows, part.nonce))
        first += part.rows
    if first != table.num_rows:
        raise AssertionError("every row is in one bucket")
    kept = plain.append(pa.field(label, pa.int64()))  # as it is under its mask
    kinds = plain.append(table.schema.field(label))
    return FileParts(cluster, Reader(kept, masked=label), tuple(splits), kinds, stable=False)


def _deal(
    split: Split,
    secret: bytes,
    *,
    reader: Reader,
    names: Sequence[str],
    label: str,
    classes: Sequence[str] | None,
    buckets: int,
) -> Iterator[tuple[int, pa.Table]]:
    read = reader.read(split, [*names, label], secret)
    keys = row_keys(secret, "rows", split.first, split.rows)
    columns = [without_dictionary(read.column(name)) for name in names]
    if classes is None:
        labels = as_float(read.column(label))
    else:  # numbers of classes, which were found to be such before
        coded = reader.masked == label
        labels = codes_of(read, label, classes, coded=coded).astype(np.float64)
    columns += [pa.array(labels), pa.array(keys)]
    dealt = pa.table(columns, names=[str(number) for number in range(len(columns))])
    yield from split_rows(by_key(keys, buckets), dealt)


def _write(
    target: int, dealt: pa.Table, secret: bytes, *, names: Sequence[str], where: str
) -> _Written:
    keys = dealt.column(dealt.num_columns - 1).to_numpy()
    order = np.argsort(keys, kind="stable")
    if np.any(np.diff(keys[order]) == 0):
        # Once in 2**28 buckets of 2**18 rows; to break the tie would favour an order.
        raise EngineError("two rows have drawn the same key. Nothing was released; start again.")
    rows = dealt.take(pa.array(order))
    *columns, labels = rows.columns[:-1]
    nonce, key = token_bytes(16), stream_key(secret)
    hidden = under_stream(key, nonce, labels.to_numpy().astype("<f8").tobytes())
    columns = [*columns, pa.array(np.frombuffer(hidden, dtype="<i8"))]
    path = create_private(Path(f"{where}.{target}.{token_hex(8)}"))
    pq.write_table(
        pa.table(columns, names=list(names)), path, compression="lz4", row_group_size=rows.num_rows
    )
    return _Written(str(path), rows.num_rows, nonce)
