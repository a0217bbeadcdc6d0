"""Bags in parts, each of them whole, that may be on many machines.

Nothing about a fit asks for more of them than sums, and the least and the most of something. Here
is what goes to a part and what comes back: how it becomes a loss, and sums of that.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.glm.classes import ClassProblem
from bagwise.glm.design import Design, spread_by_exposure
from bagwise.glm.problems import Members, NumberProblem, UnitsAtHand
from bagwise.glm.weights import NOTHING, Trust, Unexplained
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
class BagParts:
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


@dataclass(frozen=True)
class Recipe:
    """How a chunk becomes a loss.

    Attributes
    ----------
    frame : Design
        The standardisation, without rows.
    by_row : bool
        Whether a bag has one row in its chunk.
    at_centroids : bool
        Whether the easier loss is meant, at centroids (`Problem.at_centroids`).
    of_rows : bool
        Whether instance loss is meant: every row with the label of its bag.
    exposed : bool
        Whether rows have offsets.
    unexplained : Unexplained
        What the labels' variance may hold beside what is known.
    """

    frame: Design
    family: Family
    by_row: bool
    at_centroids: bool = False
    of_rows: bool = False
    exposed: bool = False
    unexplained: Unexplained = NOTHING

    def on(self, chunk: Chunk) -> UnitsAtHand:
        """Return the loss on a chunk, without weights."""
        design = self.frame.about(chunk.rows, chunk.offset)
        ones, bags = np.ones(chunk.sizes.size), Bags(chunk.index)
        if self.of_rows:
            labels = spread_by_exposure(chunk.labels, chunk.offset, bags, self.family)
            return NumberProblem(design, self.family, labels, mean_variance=np.ones(labels.size))
        sizes = chunk.sizes.astype(np.float64)
        trust = Trust("known-noise", "mean", sizes, chunk.noise_sd, ones, None, self.unexplained)
        members = None if self.by_row else Members.of(bags)
        kind = ClassProblem if self.family.has_classes else NumberProblem
        whole: UnitsAtHand = kind(design, self.family, chunk.labels, trust, members=members)
        return (whole.at_centroids() if self.at_centroids else None) or whole


@dataclass(frozen=True)
class Weights:
    """What the weights of all bags follow from: variances at a beta, and the dispersion."""

    beta: FloatArray
    phi: float
    least: tuple[float, float] = (0.0, 0.0)

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for the same weights."""
        return self.beta.tobytes(), self.phi, self.least

    def on(self, local: UnitsAtHand) -> UnitsAtHand:
        """Return the loss on a chunk with its weights."""
        return local.weighted(self.beta, self.phi, self.least)


class Reach(NamedTuple):
    """The least and the most, each (2,), over some bags."""

    eta: FloatArray
    variance: FloatArray
    omega: FloatArray
    ratio: FloatArray

    def __or__(self, other: "Reach") -> "Reach":
        both = (np.stack(pair) for pair in zip(self, other, strict=True))
        return Reach(*(np.array([pair[:, 0].min(), pair[:, 1].max()]) for pair in both))


class Sums(NamedTuple):
    """Loss, weights, squares of residuals over variances, score and information, added up."""

    loss: float
    total: float
    pearson: float
    score: FloatArray
    information: FloatArray
    reach: Reach

    def over(self, phi: float) -> "Sums":
        """Return the sums where all variances are phi times as large."""
        added = (self.loss / phi, self.total / phi, self.pearson / phi)
        reach = self.reach._replace(omega=self.reach.omega * phi)
        return Sums(*added, self.score / phi, self.information / phi, reach)

    def merged(self, other: "Sums") -> "Sums":
        """Return the sums over both."""
        return Sums(
            self.loss + other.loss,
            self.total + other.total,
            self.pearson + other.pearson,
            self.score + other.score,
            self.information + other.information,
            self.reach | other.reach,
        )


def all_added(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what two chunks have sent, added up one by one."""
    return tuple(a + b for a, b in zip(one, other, strict=True))
