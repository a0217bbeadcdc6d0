"""Random bags: the baseline, which ignores features and labels."""

from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from bagwise._types import AnyArray
from bagwise.bagging._cut import equal_sizes, group_index
from bagwise.bagging._recognise import follows_features
from bagwise.bagging.bags import Bags
from bagwise.bagging.strategy import BaggingStrategy, PublishedBags, Scores


@dataclass(frozen=True)
class RandomBags(BaggingStrategy):
    """A uniformly random partition; rows that do not fill another bag are spread one per bag.

    Guarantee: membership is independent of features and labels. Bag loss is unbiased; instance
    loss shrinks the slopes to about 1/bag_size of their size (erratum E9).

    References
    ----------
    Section "random bagging" of the paper (Lemmas 11 and 12); super-bags are in `SuperBags`.
    """

    name: ClassVar[str] = "random"
    summary: ClassVar[str] = "at random"
    accepts_sparse: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False

    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Put the rows into bags of `bag_size`, or one more."""
        del scores  # blind to them
        index = group_index(equal_sizes(X.shape[0], bag_size))
        rng.shuffle(index)  # in place: there may be very many rows
        return Bags.owning(index)

    def contradiction(self, bags: PublishedBags) -> str | None:
        """Return what speaks against bags that were drawn at random."""
        return follows_features(bags.index, bags.X)
