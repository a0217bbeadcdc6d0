"""X on many machines: encoded by tasks, block by block, and never sent anywhere as a whole."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from bagwise._types import FloatArray
from bagwise.rows.blocks import BLOCK
from bagwise.rows.columns import as_float
from bagwise.rows.encode import Encoder
from bagwise.rows.keys import row_keys
from bagwise.rows.parts import FileParts, Reader, Split

T = TypeVar("T")


@dataclass(frozen=True)
class SparkMatrix:
    """X, (n, d), of a table and a recipe, with the labels of its rows."""

    table: FileParts
    encoder: Encoder
    label: str

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of X."""
        return self.table.num_rows, len(self.encoder.feature_names)

    def over_blocks(self, work: Callable[[FloatArray], T], merge: Callable[[T, T], T]) -> list[T]:
        """Return what work makes of each split, block by block."""
        go = partial(
            _over_split, reader=self.table.reader, encoder=self.encoder, work=work, merge=merge
        )
        return self.table.workers.each(self.table.splits, go)

    def over_labelled_blocks(
        self, work: Callable[[FloatArray, FloatArray], T], merge: Callable[[T, T], T]
    ) -> list[T]:
        """Return what work makes of each split and its labels, block by block."""
        go = partial(
            _over_split,
            reader=self.table.reader,
            encoder=self.encoder,
            work=work,
            merge=merge,
            label=self.label,
        )
        return self.table.workers.each(self.table.splits, go)

    def sampled(self, count: int) -> FloatArray:
        """Return about `count` rows, or all if there are few, drawn by the secret of the run.

        Which they are does not change from one attempt of a task to the next. It is a secret, since
        places in the table may follow from labels, and what is learnt from these rows shows in the
        bags. Each row is drawn by itself, wherever it stands.
        """
        share = min(1.0, count / self.shape[0])
        draw = partial(_draw, reader=self.table.reader, encoder=self.encoder, share=share)
        return np.concatenate(self.table.workers.each(self.table.splits, draw))


def blocks_of(
    split: Split, secret: bytes, reader: Reader, encoder: Encoder, label: str | None = None
) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield X of a split, block by block, and the labels if they are named."""
    names = encoder.inputs if label is None else [*encoder.inputs, label]
    table = reader.read(split, names, secret)
    labels = None if label is None else as_float(table.column(len(names) - 1))
    for start in range(0, split.rows, BLOCK):
        X = encoder.transform(table.slice(start, BLOCK))
        yield X, None if labels is None else labels[start : start + BLOCK]


def _over_split(
    split: Split,
    secret: bytes,
    *,
    reader: Reader,
    encoder: Encoder,
    work: Callable[..., T],
    merge: Callable[[T, T], T],
    label: str | None = None,
) -> T:
    def results() -> Iterator[T]:
        for X, labels in blocks_of(split, secret, reader, encoder, label):
            arguments: tuple[Any, ...] = (X,) if labels is None else (X, labels)
            yield work(*arguments)

    return functools.reduce(merge, results())


def _draw(
    split: Split, secret: bytes, *, reader: Reader, encoder: Encoder, share: float
) -> FloatArray:
    keys = row_keys(secret, "sample", split.first, split.rows)
    rows = np.flatnonzero(keys >> np.uint64(11) < share * 2.0**53)
    table = reader.read(split, encoder.inputs, secret)
    return encoder.transform(table.take(rows))
