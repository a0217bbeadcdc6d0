"""The encoded matrix of rows, computed block by block."""

import functools
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.files.atomic import allocate
from bagwise.rows.columns import as_float
from bagwise.rows.encode import Encoder
from bagwise.rows.parts import Part, Parts
from bagwise.rows.table import Rows
from bagwise.rows.whitening import BlockedRows, blocks

T = TypeVar("T")

KEPT = 2**28
"""Bytes of X that are encoded once and kept: encoding again for each pass would cost more time."""


class EncodedRows:
    """X, (n, d), defined by rows and a recipe, and encoded block by block when it is read.

    Blocks of a large X are encoded anew each time, so that it never exists as a whole.

    It has what a private model needs of a matrix: its shape, slices of rows, and its product with
    a vector.

    >>> import pyarrow as pa
    >>> from bagwise.rows.table import Rows
    >>> table = pa.table({"x": [1.0, 2.0, 6.0]})
    >>> X = EncodedRows(Rows(table), Encoder.for_table(table, ["x"]))
    >>> X.shape, X[1:].tolist(), X @ np.array([2.0])
    ((3, 1), [[2.0], [6.0]], array([ 2., 4., 12.]))
    """

    def __init__(self, rows: Rows, encoder: Encoder) -> None:
        self._rows, self.encoder = rows, encoder
        self.shape = (rows.num_rows, len(encoder.feature_names))

    @cached_property
    def _small(self) -> FloatArray | None:
        n, d = self.shape
        if 8 * n * d > KEPT or self._rows.rows_at_once < n:
            return None
        return self.encoder.transform(self._rows.block(self.encoder.inputs, 0, n))

    def __getitem__(self, rows: slice) -> FloatArray:
        start, stop, _ = rows.indices(self.shape[0])
        if self._small is not None:
            return self._small[start:stop]
        return self.encoder.transform(self._rows.block(self.encoder.inputs, start, stop))

    def __iter__(self) -> Iterator[FloatArray]:
        return (self[rows] for rows in blocks(self.shape[0]))

    def __matmul__(self, vector: FloatArray) -> FloatArray:
        return np.concatenate([block @ vector for block in self])


def encode_to_disk(rows: Rows, encoder: Encoder, folder: Path) -> FloatArray:
    """Return X as a memory-mapped array.

    It can be used like any other array; the system reads the parts that are used, and drops them
    when it needs the memory. The file has no name, and disappears with the array.

    >>> table = pa.table({"x": [1.0, 2.0, 6.0]})
    >>> encoder = Encoder.for_table(table, ["x"])
    >>> encode_to_disk(Rows(table), encoder, Path(tempfile.gettempdir())).ravel().tolist()
    [1.0, 2.0, 6.0]
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        shape = (rows.num_rows, len(encoder.feature_names))
        allocate(file.fileno(), 8 * math.prod(shape))  # a full disk would end the process later
        X = np.memmap(file, dtype=np.float64, mode="w+", shape=shape)
    for place in blocks(rows.num_rows):
        X[place] = encoder.transform(rows.block(encoder.inputs, place.start, place.stop))
    return X


@dataclass(frozen=True)
class PartsMatrix(BlockedRows):
    """X, (n, d), of rows in parts and a recipe, with the labels of the rows."""

    parts: Parts
    encoder: Encoder
    label: str

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of X."""
        return self.parts.num_rows, len(self.encoder.feature_names)

    def over(
        self, work: Callable[..., T], merge: Callable[[T, T], T], *, labelled: bool = False
    ) -> list[T]:
        """Return the results of `work` for each part, block by block, with labels or without."""
        encoder, label = self.encoder, self.label if labelled else None

        def on_part(part: Part) -> T:
            blocks = blocks_of(part.table, encoder, label)
            results = (work(X) if labels is None else work(X, labels) for X, labels in blocks)
            return functools.reduce(merge, results)

        return self.parts.map(on_part, [*encoder.inputs, *([] if label is None else [label])])

    def sampled(self, count: int) -> FloatArray:
        """Return about `count` rows, or all if there are few, drawn by the secret of the run.

        The choice is the same in every attempt of a task. It is secret, since places in the table
        may depend on labels, and what is learned from these rows shows in the bags. Each row is
        drawn independently.
        """
        share = min(1.0, count / self.shape[0])
        draw = partial(_draw, encoder=self.encoder, share=share)
        return np.concatenate(self.parts.map(draw, self.encoder.inputs))


def blocks_of(
    table: pa.Table, encoder: Encoder, label: str | None = None
) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield X of a table, block by block, and one more column, if it is named."""
    labels = None if label is None else as_float(table.column(label))
    for rows in blocks(table.num_rows):
        X = encoder.transform(table.slice(rows.start, rows.stop - rows.start))
        yield X, None if labels is None else labels[rows]


def sampled_rows(part: Part, share: float) -> IntArray:
    """Return the places of about this share of the rows, each drawn by itself."""
    return np.flatnonzero(part.keys("sample") >> np.uint64(11) < share * 2.0**53)


def _draw(part: Part, *, encoder: Encoder, share: float) -> FloatArray:
    return encoder.transform(part.table.take(pa.array(sampled_rows(part, share))))
