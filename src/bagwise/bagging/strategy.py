"""The base class of strategies, with defaults for all but `name` and `assign`."""

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from numpy.random import Generator

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError, check_name
from bagwise.rows.whitening import Columns

Scores = FloatArray | None
"""One number for each row that was paid for; None for strategies that read none."""


@dataclass(frozen=True, eq=False)
class PublishedBags:
    """The public part of bags: everything that anybody can see of them.

    Attributes
    ----------
    index : (n,) integers
        The bag of each row.
    X : (n, d) or None
    scores : (n,) or None
        Another machine may have computed them, with an error of `rounding`. With X, they are a
        metric for the features.
    """

    index: IntArray
    X: AnyArray | None = None
    scores: Scores = None
    rounding: float = 0.0


class BaggingStrategy(ABC):
    """A frozen dataclass whose fields are its parameters.

    Whatever chooses, lists or explains strategies reads the class variables below and no names.

    Attributes
    ----------
    name : str
        Its name on the command line and in manifests.
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
        Whether the planner tries it where nobody names strategies. Among those that read scores
        it ranks only those that take a metric from them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    accepts_sparse: ClassVar[bool] = False
    needs_features: ClassVar[bool] = True
    compact: ClassVar[bool] = False
    free_sizes: ClassVar[bool] = False
    planned: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "summary" not in vars(cls):
            cls.summary = (inspect.getdoc(cls) or "").partition("\n")[0].rstrip(".")

    @property
    def uses_scores(self) -> bool:
        """Whether `assign` reads the scores; False means that it is label-agnostic."""
        return False

    @abstractmethod
    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Put the n rows of X into bags of at least `bag_size`; needs n >= bag_size."""

    def assign_groups(
        self, X: AnyArray, groups: IntArray, *, bag_size: int, rng: Generator
    ) -> Bags:
        """Put groups, numbered by row, into bags; none is split.

        Nor are two merged that have `bag_size` rows each: `verify` looks for both. Most strategies
        take no groups.
        """
        del X, groups, bag_size, rng
        raise StrategyError(
            f"strategy {self.name!r} takes no groups; use 'groups', or strata to keep bags "
            "within groups."
        )

    def contradiction(self, bags: PublishedBags) -> str | None:
        """Return why this strategy cannot have made these bags, in words, or None."""
        del bags
        return None

    def shared_metric(
        self, columns: Columns, scores: Scores = None
    ) -> "tuple[FloatArray, BaggingStrategy] | None":
        """Return the map from centred rows to points, (d, r), and the strategy for points.

        So more rows than the strategy sees can say what is near. None takes X as it is. Scores, one
        per row, are for a strategy that reads them.
        """
        del columns, scores
        return None

    @property
    def keeps_groups(self) -> bool:
        """Whether it keeps groups of rows together."""
        return type(self).assign_groups is not BaggingStrategy.assign_groups

    @property
    def recognises_its_bags(self) -> bool:
        """Whether it can detect, from published data, bags that it cannot have made."""
        return type(self).contradiction is not BaggingStrategy.contradiction

    def check_choices(self, **kinds: Any) -> None:
        """Refuse a parameter whose value is not in its Literal type."""
        for name, kind in kinds.items():
            check_name(name, getattr(self, name), get_args(kind))


def measures_by_scores(strategy: BaggingStrategy) -> bool:
    """Return whether scores define distances between rows instead of their order.

    >>> from bagwise.bagging.kmeans_bags import KMeansBags
    >>> measures_by_scores(KMeansBags(scale="model")), measures_by_scores(KMeansBags())
    (True, False)
    """
    return strategy.uses_scores and strategy.compact
