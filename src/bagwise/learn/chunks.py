"""Bags in chunks, each of them whole, that may be on many machines.

Nothing about a fit asks for more of them than sums, and the least and the most of something.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.rows.whitening import Axes, Moments

T = TypeVar("T")


@dataclass(frozen=True)
class Chunk:
    """Some bags with all of their rows.

    Attributes
    ----------
    first : int
        The number of the first bag; others follow without gaps.
    rows : (r, d)
        The rows of the bags; for a linear mean their centroids are enough, one for each.
    index : (r,)
        The bag of each row, counted from the first.
    sizes, labels, noise_sd : (u,)
        Of each bag; labels with classes are (u, classes).
    offset : (r,) or None
        What is known of each row's linear predictor.
    """

    first: int
    rows: FloatArray
    index: IntArray
    sizes: IntArray
    labels: FloatArray
    noise_sd: FloatArray
    offset: FloatArray | None = None


class Chunks(Protocol):
    """Bags in chunks; `work` is pickled on its way to them."""

    def over(self, work: Callable[[Chunk], T], merge: Callable[[T, T], T]) -> T:
        """Return what work makes of each chunk, merged."""


@dataclass(frozen=True)
class HeldChunks:
    """Chunks that are here."""

    chunks: Sequence[Chunk]

    @classmethod
    def of(cls, chunks: Chunks) -> Self:
        """Have all chunks sent here."""
        return cls(chunks.over(_alone, operator.add))

    def over(self, work: Callable[[Chunk], T], merge: Callable[[T, T], T]) -> T:
        """Return what work makes of each chunk, merged."""
        return functools.reduce(merge, map(work, self.chunks))


def _alone(chunk: Chunk) -> list[Chunk]:
    return [chunk]


class ColumnFacts(NamedTuple):
    """Moments, and the least and the most of each column, of rows; their bags; if with offsets."""

    moments: Moments
    low: FloatArray
    high: FloatArray
    bags: int
    exposed: bool

    def merged(self, other: "ColumnFacts") -> "ColumnFacts":
        """Return the facts about both."""
        return ColumnFacts(
            self.moments + other.moments,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.bags + other.bags,
            self.exposed or other.exposed,
        )


@dataclass(frozen=True)
class SpreadBags:
    """What a fit knows of bags in chunks.

    Attributes
    ----------
    chunks : Chunks
    facts : ColumnFacts
        Of the rows in the chunks.
    axes : Axes
        The directions in which rows differ, also where chunks have centroids.
    """

    chunks: Chunks
    facts: ColumnFacts
    axes: Axes

    @classmethod
    def of(cls, chunks: Chunks, axes: Axes | None = None) -> Self:
        """Look at all rows once."""
        facts = chunks.over(_facts_of, ColumnFacts.merged)
        return cls(chunks, facts, facts.moments.axes if axes is None else axes)


def _facts_of(chunk: Chunk) -> ColumnFacts:
    rows = chunk.rows
    low, high, exposed = rows.min(axis=0), rows.max(axis=0), chunk.offset is not None
    return ColumnFacts(Moments.of(rows), low, high, chunk.sizes.size, exposed)
