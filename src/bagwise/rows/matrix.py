"""X of rows in parts: encoded where they are, block by block, and never in one place as a whole."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.rows.blocks import BLOCK, BlockedRows
from bagwise.rows.columns import as_float
from bagwise.rows.encode import Encoder
from bagwise.rows.parts import Part, Parts

T = TypeVar("T")


@dataclass(frozen=True)
class PartsMatrix(BlockedRows):
    """X, (n, d), of rows in parts and a recipe, with the labels of the rows."""

    parts: Parts
    encoder: Encoder
    label: str

    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of X."""
        return self.parts.num_rows, len(self.encoder.feature_names)

    def over_blocks(self, work: Callable[[FloatArray], T], merge: Callable[[T, T], T]) -> list[T]:
        """Return what work makes of each part, block by block."""
        go = partial(_over_part, encoder=self.encoder, work=work, merge=merge, label=None)
        return self.parts.map(go, self.encoder.inputs)

    def over_labelled_blocks(
        self, work: Callable[[FloatArray, FloatArray], T], merge: Callable[[T, T], T]
    ) -> list[T]:
        """Return what work makes of each part and its labels, block by block."""
        go = partial(_over_part, encoder=self.encoder, work=work, merge=merge, label=self.label)
        return self.parts.map(go, [*self.encoder.inputs, self.label])

    def sampled(self, count: int) -> FloatArray:
        """Return about `count` rows, or all if there are few, drawn by the secret of the run.

        Which they are does not change from one attempt of a task to the next. It is a secret, since
        places in the table may follow from labels, and what is learnt from these rows shows in the
        bags. Each row is drawn by itself, wherever it stands.
        """
        share = min(1.0, count / self.shape[0])
        draw = partial(_draw, encoder=self.encoder, share=share)
        return np.concatenate(self.parts.map(draw, self.encoder.inputs))


def blocks_of(
    table: pa.Table, encoder: Encoder, label: str | None = None
) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield X of a table, block by block, and one more column, if it is named."""
    labels = None if label is None else as_float(table.column(label))
    for start in range(0, table.num_rows, BLOCK):
        X = encoder.transform(table.slice(start, BLOCK))
        yield X, None if labels is None else labels[start : start + BLOCK]


def _over_part(
    part: Part,
    *,
    encoder: Encoder,
    work: Callable[..., T],
    merge: Callable[[T, T], T],
    label: str | None,
) -> T:
    def results() -> Iterator[T]:
        for X, labels in blocks_of(part.table, encoder, label):
            arguments: tuple[Any, ...] = (X,) if labels is None else (X, labels)
            yield work(*arguments)

    return functools.reduce(merge, results())


def sampled_rows(part: Part, share: float) -> IntArray:
    """Return the places of about this share of the rows, each drawn by itself."""
    return np.flatnonzero(part.keys("sample") >> np.uint64(11) < share * 2.0**53)


def _draw(part: Part, *, encoder: Encoder, share: float) -> FloatArray:
    return encoder.transform(part.table.take(pa.array(sampled_rows(part, share))))
