"""What a strategy is: what it must have, and what else it may say about itself."""

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.rows.whitening import Columns


@runtime_checkable
class BaggingStrategy(Protocol):
    """A frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]

    @property
    def uses_scores(self) -> bool:
        """Whether `assign` reads the scores; False means that it is label-agnostic."""

    def assign(
        self,
        X: FloatArray,
        scores: FloatArray | None,
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Put the n rows of X into bags of at least `bag_size`; needs n >= bag_size."""


@runtime_checkable
class RecognisesItsBags(Protocol):
    """A strategy that can tell, from what is published, bags that it cannot have made."""

    name: ClassVar[str]

    def contradiction(
        self,
        index: IntArray,
        *,
        X: FloatArray | None = None,
        scores: FloatArray | None = None,
        rounding: float = 0.0,
    ) -> str | None:
        """Return what speaks against it in words, or None.

        Given are the bag of each row, and the features, or the scores, which another machine may
        have computed with an error of `rounding`; or both, if scores are a metric for the features.
        """


@runtime_checkable
class KeepsGroups(Protocol):
    """A strategy that takes groups of rows which have to stay together."""

    name: ClassVar[str]

    def assign_groups(
        self, X: FloatArray, groups: IntArray, *, bag_size: int, rng: np.random.Generator
    ) -> Bags:
        """Put groups, numbered by row, into bags; none is split.

        Nor are two merged that have `bag_size` rows each: `verify` looks for both.
        """


@runtime_checkable
class SharesItsMetric(Protocol):
    """A strategy that can be told what is near by more rows than it sees."""

    name: ClassVar[str]

    def shared_metric(
        self, columns: Columns, scores: FloatArray | None = None
    ) -> tuple[FloatArray, BaggingStrategy]:
        """Return the map from centred rows to points, (d, r), and the strategy for points.

        Scores, one per row, are for a strategy that reads them.
        """


@dataclass(frozen=True)
class Traits:
    """What a strategy may say about itself, as class variables of the same names.

    Whatever chooses, lists or explains strategies reads these and no names. The values here are
    those of a strategy that does not say.

    Attributes
    ----------
    summary : str
        What it does, in a few words, for help and tables; without it, the first line of its
        docstring.
    accepts_sparse : bool
        Whether X may be a scipy sparse matrix too.
    needs_features : bool
        Whether `assign` reads more of X than its shape; if not, a release never makes X as a whole.
    compact : bool
        Whether the rows of a bag have similar features, so that a bag's mean keeps most of what
        tells rows apart.
    free_sizes : bool
        Whether bags are as large as the strategy likes, `bag_size` being only the least: with more
        rows its bags grow, where those of others become more.
    planned : bool
        Whether the planner tries it where nobody names strategies. One that reads scores is tried
        under privacy, with the predictions of a private model.
    """

    summary: str = ""
    accepts_sparse: bool = False
    needs_features: bool = True
    compact: bool = False
    free_sizes: bool = False
    planned: bool = True


def measures_by_scores(strategy: BaggingStrategy) -> bool:
    """Tell whether scores say how far rows are apart, instead of which come after each other.

    >>> from bagwise.bagging.kmeans_bags import KMeansBags
    >>> measures_by_scores(KMeansBags(scale="model")), measures_by_scores(KMeansBags())
    (True, False)
    """
    return strategy.uses_scores and traits_of(strategy).compact


def traits_of(strategy: BaggingStrategy | type[BaggingStrategy]) -> Traits:
    """Return what a strategy says about itself.

    >>> from bagwise.bagging.group_bags import GroupBags
    >>> traits_of(GroupBags()).free_sizes
    True
    """
    said: dict[str, Any] = {
        field.name: getattr(strategy, field.name)
        for field in dataclasses.fields(Traits)
        if hasattr(strategy, field.name)
    }
    if not said.get("summary"):
        said["summary"] = (inspect.getdoc(strategy) or "").partition("\n")[0].rstrip(".")
    return Traits(**said)
