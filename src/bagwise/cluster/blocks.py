"""Rows that are looked at some at a time: an array, or something that makes them when it is asked.

What is computed block by block is the same to the last digit, wherever the rows are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bagwise._types import FloatArray
from bagwise.cluster.state import CHUNK


class RowBlocks(Protocol):
    """A matrix whose rows are read by slices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows and of columns."""

    def __getitem__(self, rows: slice, /) -> FloatArray:
        """Return some rows, one after the other."""


def parts(rows: RowBlocks) -> list[slice]:
    """Return where each block begins and ends.

    >>> parts(np.zeros((70_000, 1)))
    [slice(0, 65536, None), slice(65536, 70000, None)]
    """
    n = rows.shape[0]
    return [slice(first, min(n, first + CHUNK)) for first in range(0, n, CHUNK)]


def mapped(rows: RowBlocks, function: Callable[[FloatArray], FloatArray], width: int) -> RowBlocks:
    """Return what `function` makes of the rows: at once for an array, else whenever it is asked.

    >>> mapped(np.array([[1.0], [2.0]]), lambda block: block * 2, 1)[1:]
    array([[4.]])
    """
    if not isinstance(rows, np.ndarray):
        return _Mapped(rows, function, width)
    made = np.empty((rows.shape[0], width))
    for part in parts(rows):
        made[part] = function(rows[part])
    return made


@dataclass(frozen=True)
class _Mapped:
    rows: RowBlocks
    function: Callable[[FloatArray], FloatArray]
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape[0], self.width

    def __getitem__(self, rows: slice, /) -> FloatArray:
        return self.function(self.rows[rows])
