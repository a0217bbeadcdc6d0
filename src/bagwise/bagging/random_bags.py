"""Random bags, which ignore features and labels; and random halves of larger groups."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from bagwise._types import AnyArray
from bagwise.bagging._cut import equal_sizes, group_index
from bagwise.bagging._recognise import follows_features, overlaps
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.bagging.sorted_bags import sort_with_random_ties
from bagwise.bagging.strategy import BaggingStrategy, PublishedBags, Scores
from bagwise.errors import StrategyError

Order = Literal["random", "sorted"]


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
        """Return the evidence against bags that were drawn at random."""
        return follows_features(bags.index, bags.X)


@dataclass(frozen=True)
class SuperBags(BaggingStrategy):
    """Group rows into super-bags of ``2 * bag_size`` and split each into random halves.

    Parameters
    ----------
    order : {"random", "sorted"}
        How rows come together in a super-bag: at random, or as neighbours by score.
    half : bool
        Output only one half of each super-bag and leave the other rows out, as the paper's
        algorithm is printed. By default both halves are bags.

    Notes
    -----
    Rows that do not fill another super-bag are spread over the last ones; a table too small for one
    super-bag becomes a single bag.

    References
    ----------
    Algorithm in "random bagging" (Lemmas 11 and 12) and the super-bag algorithm for aggregate loss
    (Thm 20). Status: corrected; the complements are needed for n = m * bag_size.
    """

    name: ClassVar[str] = "super"
    summary: ClassVar[str] = "random halves of groups twice as large"
    planned: ClassVar[bool] = False  # for learners, random bags are the same
    accepts_sparse: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False

    order: Order = "random"
    half: bool = False

    def __post_init__(self) -> None:
        self.check_choices(order=Order)

    @property
    def uses_scores(self) -> bool:
        """Only sorted super-bags read scores."""
        return self.order == "sorted"

    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Put the rows into pairs of bags drawn from the same super-bag."""
        n = X.shape[0]
        if n < 2 * bag_size:
            return Bags(np.zeros(n, dtype=np.int64))
        if self.order == "random":
            order = rng.permutation(n)
        elif scores is None:
            raise StrategyError("sorted super-bags need scores.")
        else:
            order = sort_with_random_ties(scores, rng)
        sizes = equal_sizes(n, 2 * bag_size)
        super_bag = group_index(sizes)
        # Shuffle inside each super-bag, then the first half of it is one bag, the rest the other.
        order = order[np.argsort(super_bag + rng.random(n))]
        place = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        second = place >= (sizes // 2)[super_bag]
        index = np.empty(n, dtype=np.int64)
        if self.half:
            index[order] = np.where(second, LEFT_OUT, super_bag)
        else:
            index[order] = 2 * super_bag + second
        return Bags(index)

    def contradiction(self, bags: PublishedBags) -> str | None:
        """Return the evidence against bags that are halves of super-bags."""
        if self.order == "random":
            return follows_features(bags.index, bags.X)
        return overlaps(bags, together=1 if self.half else 2)
