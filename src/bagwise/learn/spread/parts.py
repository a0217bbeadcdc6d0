"""What goes to a chunk of bags, and what comes back: how it becomes a loss, and sums of that."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.learn.chunks import Chunk
from bagwise.learn.classes import ClassProblem
from bagwise.learn.design import Design
from bagwise.learn.offset import spread_by_exposure
from bagwise.learn.problems import BagProblem, Members, Problem, RowProblem
from bagwise.learn.weights import NOTHING, Trust, Unexplained


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

    def on(self, chunk: Chunk) -> Problem:
        """Return the loss on a chunk, without weights."""
        design = self.frame.about(chunk.rows, chunk.offset)
        ones, bags = np.ones(chunk.sizes.size), Bags(chunk.index)
        if self.of_rows:
            labels = spread_by_exposure(chunk.labels, chunk.offset, bags, self.family)
            return RowProblem(design, self.family, labels, fixed_weight=np.ones(labels.size))
        sizes = chunk.sizes.astype(np.float64)
        trust = Trust("known-noise", "mean", sizes, chunk.noise_sd, ones, None, self.unexplained)
        members = None if self.by_row else Members.of(bags)
        whole: Problem
        if self.family.has_classes:
            whole = ClassProblem(design, self.family, chunk.labels, trust, members=members)
        elif members is None:
            whole = RowProblem(design, self.family, chunk.labels, trust)
        else:
            whole = BagProblem(design, self.family, chunk.labels, trust, members=members)
        return (whole.at_centroids() if self.at_centroids else None) or whole


@dataclass(frozen=True)
class Weights:
    """What the weights of all bags follow from: variances at a beta, and the dispersion."""

    beta: FloatArray
    phi: float
    least_variance: float = 0.0
    least_omega: float = 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for the same weights."""
        return self.beta.tobytes(), self.phi, self.least_variance, self.least_omega

    def on(self, local: Problem) -> Problem:
        """Return the loss on a chunk with its weights."""
        return local.weighted(
            self.beta,
            self.phi,
            least_variance=self.least_variance,
            least_omega=self.least_omega,
        )


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
