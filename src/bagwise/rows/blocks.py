"""Work on blocks of rows, in memory or elsewhere.

A matrix in memory, or one that is encoded block by block, is gone through here. One whose rows are
in parts (`matrix`) does the work where they are, and hands back what came of it, put together by
`merge` as far as it is in one place: so what is asked of a block must be small.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from bagwise._types import FloatArray

T = TypeVar("T")

BLOCK = 65_536  # rows that are looked at together


class BlockedRows(ABC):
    """X, and the labels of its rows, in parts; `work` is pickled on its way to them."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of X."""

    @abstractmethod
    def over(
        self, work: Callable[..., T], merge: Callable[[T, T], T], *, labelled: bool = False
    ) -> Iterable[T]:
        """Return what work makes of blocks of X, and of their labels if it is asked for them."""

    @abstractmethod
    def sampled(self, count: int) -> FloatArray:
        """Return about so many rows from everywhere."""


def over_blocks(
    X: Any, work: Callable[[FloatArray], T], merge: Callable[[T, T], T] = operator.add
) -> Iterator[T]:
    """Yield what work makes of each block of X, or of several, merged.

    >>> import numpy as np
    >>> [part.tolist() for part in over_blocks(np.ones((3, 2)), np.sum)]
    [6.0]
    """
    if isinstance(X, BlockedRows):
        yield from X.over(work, merge)
        return
    for start in range(0, X.shape[0], BLOCK):
        yield work(X[start : start + BLOCK])


def over_labelled_blocks(
    X: Any,
    labels: FloatArray | None,
    work: Callable[[FloatArray, FloatArray], T],
    merge: Callable[[T, T], T] = operator.add,
) -> Iterator[T]:
    """Yield what work makes of blocks of X and their labels; X on many machines has its own."""
    if isinstance(X, BlockedRows):
        yield from X.over(work, merge, labelled=True)
        return
    if labels is None:
        raise AssertionError("labels are with their rows, or at hand")
    for start in range(0, X.shape[0], BLOCK):
        rows = slice(start, start + BLOCK)
        yield work(X[rows], labels[rows])
