"""Bags of rows with similar scores: the paper's label k-means, solved exactly."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging._cut import equal_sizes, group_index, optimal_sizes
from bagwise.bagging._parameters import check_choices
from bagwise.bagging._recognise import overlaps
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError

Cut = Literal["optimal", "equal"]


@dataclass(frozen=True)
class SortedBags:
    """Sort the rows by score and cut.

    Parameters
    ----------
    cut : {"optimal", "equal"}
        "optimal" minimises the spread of scores within bags of at least `bag_size` rows (sizes
        bag_size..2*bag_size-1). "equal" cuts every `bag_size` rows, with the rest spread over the
        last bags.

    Guarantee: both are optimal for instance loss under their size constraint, if the scores are the
    expected labels. Scores that contain the noise of the labels bias bag and aggregate loss
    (erratum E8).

    References
    ----------
    Thm 1 (thm:MIR-event), Prop 7 (event-MIR-k-means), Lemma 15 (l3). Status: corrected, E3.
    """

    name: ClassVar[str] = "sorted"
    summary: ClassVar[str] = "neighbours by score"
    accepts_sparse: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False
    uses_scores: ClassVar[bool] = True

    cut: Cut = "optimal"

    def __post_init__(self) -> None:
        check_choices(self, cut=Cut)

    def assign(
        self,
        X: FloatArray,  # noqa: ARG002 (only the scores matter)
        scores: FloatArray | None,
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Put rows with neighbouring scores together; equal scores are ordered at random."""
        if scores is None:
            raise StrategyError("sorted bags need scores.")
        order = sort_with_random_ties(scores, rng)
        cut = optimal_sizes if self.cut == "optimal" else _equal
        index = np.empty(scores.size, dtype=np.int64)
        index[order] = group_index(cut(scores[order], bag_size))
        return Bags(index)

    def contradiction(
        self,
        index: IntArray,
        *,
        X: FloatArray | None = None,  # noqa: ARG002 (blind to features)
        scores: FloatArray | None = None,
        rounding: float = 0.0,
    ) -> str | None:
        """Return what speaks against bags of rows that are neighbours by score."""
        return overlaps(index, scores, rounding, together=1)


def sort_with_random_ties(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return the order of the scores, equal ones shuffled: the input order may mean something.

    Sorting sees only values, so after a uniform shuffle every order of equal ones is as likely.
    """
    shuffled = rng.permutation(scores.size)
    return shuffled[np.argsort(scores[shuffled])]


def _equal(ordered: FloatArray, size: int) -> IntArray:
    return equal_sizes(ordered.size, size)
