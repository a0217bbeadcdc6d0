"""X as it is needed: encoded block by block, and never there as a whole."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from bagwise._types import FloatArray
from bagwise.data.encode import Encoder
from bagwise.engines import Rows

BLOCK = 65_536

KEPT = 2**28
"""Bytes of X that are encoded once and kept: encoding again for each pass would cost more time."""


class EncodedRows:
    """X, (n, d), of rows and a recipe, for whoever reads it in blocks.

    Blocks of a large X are encoded anew each time, so that it is never there as a whole.

    It has what a private model asks of a matrix: its shape, slices of rows, the mean and standard
    deviation of columns, and its product with a vector. All go through the rows in their order.

    >>> import pyarrow as pa
    >>> from bagwise.engines.local import LocalRows
    >>> table = pa.table({"x": [1.0, 2.0, 6.0]})
    >>> X = EncodedRows(LocalRows(table), Encoder.for_table(table, ["x"]))
    >>> X.shape, X[1:].tolist(), X.mean(axis=0), X @ np.array([2.0])
    ((3, 1), [[2.0], [6.0]], array([3.]), array([ 2., 4., 12.]))
    """

    ndim = 2

    def __init__(self, rows: Rows, encoder: Encoder) -> None:
        self._rows, self._encoder = rows, encoder
        self.shape = (rows.num_rows, len(encoder.feature_names))

    @cached_property
    def _small(self) -> FloatArray | None:
        n, d = self.shape
        if 8 * n * d > KEPT:
            return None
        return self._encoder.transform(self._rows.block(self._encoder.inputs, 0, n))

    def __getitem__(self, rows: slice) -> FloatArray:
        start, stop, _ = rows.indices(self.shape[0])
        if self._small is not None:
            return self._small[start:stop]
        return self._encoder.transform(self._rows.block(self._encoder.inputs, start, stop))

    def __iter__(self) -> Iterator[FloatArray]:
        for start in range(0, self.shape[0], BLOCK):
            yield self[start : start + BLOCK]

    def mean(self, axis: int = 0) -> FloatArray:
        """Return the mean of each column."""
        total = np.sum([block.sum(axis=axis) for block in self], axis=0)
        return np.asarray(total / self.shape[0])

    def std(self, axis: int = 0) -> FloatArray:
        """Return the standard deviation of each column."""
        center = self.mean(axis)
        squares = np.sum([((block - center) ** 2).sum(axis=axis) for block in self], axis=0)
        return np.asarray(np.sqrt(squares / self.shape[0]))

    def __matmul__(self, vector: FloatArray) -> FloatArray:
        return np.concatenate([block @ vector for block in self])
