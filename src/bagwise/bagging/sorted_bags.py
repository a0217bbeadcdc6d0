"""Bags of rows with similar scores: the paper's label k-means, solved exactly."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from bagwise._types import AnyArray, FloatArray, IntArray, index_type
from bagwise.bagging._cut import InOrder, equal_sizes, optimal_sizes, rows_in_groups
from bagwise.bagging._recognise import overlaps
from bagwise.bagging.bags import Bags
from bagwise.bagging.strategy import BaggingStrategy, PublishedBags, Scores
from bagwise.errors import StrategyError

Cut = Literal["optimal", "equal"]

_AT_ONCE = 2**22  # scores that are sorted together
_MOST_PARTS = 2**8
_SAMPLED = 2**16  # scores that tell where parts end


@dataclass(frozen=True)
class SortedBags(BaggingStrategy):
    """Sort the rows by score and cut.

    Parameters
    ----------
    cut : {"optimal", "equal"}
        "optimal" minimises the spread of scores within bags of at least `bag_size` rows (sizes
        bag_size..2*bag_size-1). "equal" cuts every `bag_size` rows, with the rest spread over the
        last bags.

    Guarantee
    ---------
    Both are optimal for instance loss under their size constraint, if the scores are the
    expected labels. Scores that contain the noise of the labels bias bag and aggregate loss
    (erratum E8).

    References
    ----------
    Thm 1 (thm:MIR-event), Prop 7 (event-MIR-k-means), Lemma 15 (l3). Status: corrected, E3.
    """

    name: ClassVar[str] = "sorted"
    summary: ClassVar[str] = "rows with similar scores"
    planned: ClassVar[bool] = False  # a fit to them has no intervals; a released model does as well
    accepts_sparse: ClassVar[bool] = True
    needs_features: ClassVar[bool] = False

    cut: Cut = "optimal"

    def __post_init__(self) -> None:
        self.check_choices(cut=Cut)

    @property
    def uses_scores(self) -> bool:
        """Scores are what rows are sorted by."""
        return True

    def assign(self, X: AnyArray, scores: Scores, *, bag_size: int, rng: Generator) -> Bags:
        """Put rows with neighbouring scores together; equal scores are ordered at random."""
        del X  # only the scores matter
        if scores is None:
            raise StrategyError("sorted bags need scores.")
        order = sort_with_random_ties(scores, rng)
        if self.cut == "optimal":
            sizes = optimal_sizes(InOrder(scores, order), bag_size)
        else:
            sizes = equal_sizes(order.size, bag_size)
        return Bags.owning(rows_in_groups(order, sizes))

    def contradiction(self, bags: PublishedBags) -> str | None:
        """Return the evidence against bags of rows that are neighbours by score."""
        return overlaps(bags, together=1)


def sort_with_random_ties(scores: FloatArray, rng: Generator) -> IntArray:
    """Return the order of the scores, equal ones shuffled: the input order may mean something.

    Sorting sees only values, so after a uniform shuffle every order of equal ones is as likely.
    """
    shuffled = np.arange(scores.size, dtype=index_type(scores.size))
    rng.shuffle(shuffled)
    if scores.size <= _AT_ONCE:
        return shuffled[np.argsort(scores[shuffled])]
    return _sort_by_parts(scores, shuffled)


def _sort_by_parts(scores: FloatArray, rows: IntArray) -> IntArray:
    """Return rows in the order of their scores, sorted part by part.

    Scores in the order of the rows, and places that refer to them, would be there for all rows at
    once, sixteen bytes for each; so they are there for one part.
    """
    parts = min(_MOST_PARTS, -(-rows.size // _AT_ONCE))
    few = np.sort(scores[rows[:_SAMPLED]])  # rows are in a random order
    edges = np.unique(few[np.arange(1, parts) * few.size // parts])
    part_of = np.empty(rows.size, dtype=np.uint8)
    blocks = [slice(start, start + _AT_ONCE) for start in range(0, rows.size, _AT_ONCE)]
    for block in blocks:
        part_of[block] = np.searchsorted(edges, scores[rows[block]], side="right")
    ends = np.cumsum(np.bincount(part_of, minlength=edges.size + 1))
    order, free = np.empty_like(rows), np.concatenate([[0], ends[:-1]])
    for block in blocks:
        dealt = rows[block][np.argsort(part_of[block], kind="stable")]
        counts = np.bincount(part_of[block], minlength=ends.size)
        for start, some in zip(free, np.split(dealt, np.cumsum(counts)[:-1]), strict=True):
            order[start : start + some.size] = some
        free += counts
    for part in np.split(order, ends[:-1]):
        values = scores[part]
        if part.size and values.min() < values.max():  # one that many rows have may fill a part
            part[:] = part[np.argsort(values)]
    return order
