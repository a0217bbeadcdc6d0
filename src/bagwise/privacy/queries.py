"""Queries on the labels, and how far one unit can move their answers.

A query is a frozen record of public numbers. It knows how far the labels of one protected unit move
its answer, in each norm for which somebody has worked that out, and what can be recomputed of it
from outside. The noise is a matter of the law that goes with it, and `Mechanism` has what follows
from both: most queries have one law for all numbers, and picks one for each size of bag.

All answers are whole multiples of a public grid (`grid`), so that moves are whole numbers of steps.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from operator import attrgetter
from typing import ClassVar, Literal, Self

import numpy as np

from bagwise._types import AnyArray
from bagwise.errors import BudgetError
from bagwise.files.records import Record
from bagwise.privacy.grid import LABEL_STEPS, LOSS_STEPS, grid_step, labels_to_steps, one_hot
from bagwise.privacy.laws.law import LARGEST_COUNT, Law, Move, Norm
from bagwise.rows.labels import Bounds

LARGEST_REACH = 2**62
"""Steps that a unit may move an answer by: noise is drawn on 64-bit integers."""

MOST_SIZES = 10_000
"""Sizes of bags that a query may list. So many different ones take fifty million rows."""

_UPWARDS = 1 + 2.0**-48
"""The logarithms of a cost are right to a few units in the last place; this is more than those."""


class Query(Record, frozen=True, kw_only=False, tag_field="kind"):
    """A map of the labels whose answer is hidden by a law."""

    labels_bags: ClassVar[bool] = False
    """Whether the answers are the labels of bags."""
    combine: ClassVar[Literal["sum", "mean", "pick"]] = "sum"
    """What a bag has of its rows."""
    of_classes: ClassVar[bool] = False
    """Whether labels are classes, and bag labels have a share for each."""
    bounds_groups: ClassVar[bool] = False
    """Whether several rows of a unit are covered by the bound for groups, with scores before it."""

    @classmethod
    def called(cls) -> str:
        """Return the name that certificates use for it."""
        return str(attrgetter("__struct_config__.tag")(cls))

    @property
    def hides(self) -> str:
        """The hidden quantity, in a word or two."""
        return self.called().replace("-", " ")

    @property
    def grid_step(self) -> float:
        """The width of a step of the answers, in their units."""
        return 1.0

    @property
    def unit_rows(self) -> int:
        """The number of rows of a unit that it allows for, by default its own `rows`."""
        return int(attrgetter("rows")(self))

    @property
    def bag_sizes(self) -> tuple[int, ...]:
        """Sizes of bags that have a law each; none if one law is for all."""
        return ()

    @property
    @abstractmethod
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the answer, in each norm with a known cost.

        That of a pick, if it shows the label.
        """

    @property
    def is_possible(self) -> bool:
        """Whether its numbers could be those of a table, the rows of a unit apart."""
        return all(move.steps * move.times <= LARGEST_REACH for move in self.moves.values())

    def fits(self, bounds: Bounds) -> bool:
        """Return whether its grid is that of labels within these bounds."""
        if "grid_step" not in self.__struct_fields__:
            return True
        return math.isclose(self.grid_step, (bounds[1] - bounds[0]) / LABEL_STEPS, rel_tol=1e-9)

    def measure(self, labels: AnyArray, bounds: Bounds, classes: int) -> AnyArray:
        """Return the contribution of each row to its bag, in one amount or more.

        Usually that is its label in whole steps. For shares of classes it is one whole label in
        the column of its class; a picked class is taken unchanged, and a single label as a share of
        the width of the bounds.
        """
        if self.of_classes:
            return LABEL_STEPS * one_hot(labels, classes).T if self.combine == "sum" else labels
        if self.combine == "mean":
            return np.asarray(np.clip(labels, *bounds) - bounds[0]) / (bounds[1] - bounds[0])
        return labels_to_steps(labels, bounds=bounds, step=self.grid_step)


def root_steps(square: int) -> int:
    """Return the root of a square, in label steps, rounded up in integers: no float ends below."""
    return math.isqrt(max(0, LABEL_STEPS**2 * square - 1)) + 1


class BagMeans(Query, frozen=True, tag="bag-means"):
    """The label sum of every bag, later divided by the bag's size.

    Sensitivity: bags are disjoint. The r labels of a unit move the sums by r times the width of the
    bounds in L1, however they are spread over bags, and in L2 by the width times the root of the
    sum over bags of the unit's squared rows there. One number moves by r widths if all of a unit's
    rows are in one bag; else r numbers move by one width each.
    """

    labels_bags: ClassVar[bool] = True
    numbers_moved: ClassVar[int] = 1
    """Sums that one row moves: the move of a unit is so many times as large, or as many."""

    grid_step: float
    rows: int = 1  # rows of a unit, at most
    square: int = 1  # sum over bags of the squared number of a unit's rows in each, at most
    together: bool = True  # whether all rows of a unit are in one bag

    @classmethod
    def of(
        cls, bounds: Bounds, *, rows: int = 1, square: int = 1, touched: int | None = None
    ) -> Self:
        """Return the query for units of `rows` rows in at most `touched` bags (None: `rows`)."""
        if square > rows**2:  # an L2 length is at most that in L1
            raise BudgetError(f"a unit of {rows} rows moves bag sums by {rows} labels at most.")
        together = (rows if touched is None else touched) == 1
        return cls(grid_step(bounds), rows, max(square, rows), together)

    @property
    def unit_rows(self) -> int:
        """Rows of a unit; in different bags they count by the root of their number."""
        return min(self.rows, self.square)

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sums."""
        moved = self.numbers_moved * self.rows
        one_number = self.together and self.numbers_moved == 1
        return {
            "L1": Move(LABEL_STEPS * moved),
            "L2": Move(root_steps(self.numbers_moved * self.square)),
            "number": Move(LABEL_STEPS * moved) if one_number else Move(LABEL_STEPS, moved),
        }

    @property
    def is_possible(self) -> bool:
        """Whether so many rows can have such a square, and one row is in one bag."""
        return self.rows <= self.square <= self.rows**2 and (self.rows > 1 or self.together)


class ClassShares(BagMeans, frozen=True, tag="class-shares"):
    """The count of every class in every bag, later divided by the bag's size.

    Sensitivity: a count is the sum of a label that is 0 or 1. A row that changes its class moves
    two of them by one: twice as far in L1, root 2 times as far in L2, and two numbers.
    """

    of_classes: ClassVar[bool] = True
    numbers_moved: ClassVar[int] = 2


class Labels(Query, frozen=True, tag="labels"):
    """Every label, to sort rows by; any use of the noisy labels is post-processing.

    Sensitivity: the r labels of a unit move by the width of the bounds each: r times it in L1, root
    r times it in L2.
    """

    grid_step: float
    rows: int = 1

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move."""
        return {"L1": Move(LABEL_STEPS * self.rows), "L2": Move(root_steps(self.rows))}


class Statistic(Query, frozen=True, tag="model"):
    """The statistics ``sum_i b_i y_i`` of a model, whose columns b_i have length one in a norm.

    Sensitivity: `private_model` rounds columns and labels to integers before they meet, and states
    how far one label moves the rounded sum in the norm of its columns. The labels of a unit may all
    move it the same way.
    """

    grid_step: float
    reach: int  # how far all labels of a unit move the sum, in grid steps
    norm: Literal["L1", "L2"]  # in which the columns have length one

    @property
    def unit_rows(self) -> int:
        """Rows of a unit: each moves the sum by a label at least."""
        return self.reach // LABEL_STEPS

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sum; columns are made for one norm."""
        return {self.norm: Move(self.reach)}


class MeanLoss(Query, frozen=True, tag="mean-loss"):
    """The summed losses of a model on rows, later divided by their number.

    Its grid is in units of the loss, and `LOSS_STEPS` steps are the largest that a row counts with.
    Sensitivity: `private_loss` adds up what each row of a unit can lose at most.
    """

    grid_step: float
    reach: int  # how far the labels of a unit move the sum, in grid steps

    @property
    def unit_rows(self) -> int:
        """Rows of a unit, by the least that they can lose, whatever is predicted (`private_loss`).

        A prediction has a bound at least half the width away: a quarter of the largest square.
        """
        return 4 * self.reach // LOSS_STEPS

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far the labels of one unit move the sum: one number."""
        return {"L1": Move(self.reach)}

    def fits(self, bounds: Bounds) -> bool:
        """Tell whether its largest loss is at most the one that the bounds allow."""
        width = bounds[1] - bounds[0]
        return 0 < self.grid_step * LOSS_STEPS <= max(width, width**2) * (1 + 1e-9)


class SingleLabels(Query, frozen=True, tag="single-labels"):
    """Every label by itself, as the label of a bag of one row.

    Sensitivity: any label becomes any other; the labels of a unit are reported one by one.
    """

    labels_bags: ClassVar[bool] = True
    combine: ClassVar[Literal["sum", "mean", "pick"]] = "mean"

    # What labels are clipped to.
    low: float
    high: float
    rows: int = 1  # rows of a unit, at most

    @classmethod
    def of(cls, bounds: Bounds, rows: int) -> Self:
        """Return the query for labels within bounds, for units of so many rows."""
        return cls(float(bounds[0]), float(bounds[1]), rows)

    @property
    def grid_step(self) -> float:
        """The width of the bounds: its laws are about labels from 0 to 1."""
        return self.high - self.low

    @property
    def moves(self) -> dict[Norm, Move]:
        """The change of this many labels into any others."""
        return {"label": Move(times=self.rows)}

    def fits(self, bounds: Bounds) -> bool:
        """Tell whether labels are clipped to these bounds."""
        return (self.low, self.high) == (float(bounds[0]), float(bounds[1]))


class Picks(Query, frozen=True):
    """One label of each bag, drawn in secret; each size of bag has a law of its own.

    Curve: a label that is shown with probability 1/k, and costs what a curve c says if it is, costs
    ``c(log(1 + k (e^epsilon - 1))) / k`` (P1 on the theory page): attained when all other rows of
    the bag agree. Without a delta that is ``log(1 + (e^epsilon - 1) / k)``. A label is in one bag
    only, so all bags together cost what the worst one costs. Several rows of a unit are covered by
    the bound for groups.
    """

    labels_bags: ClassVar[bool] = True
    combine: ClassVar[Literal["sum", "mean", "pick"]] = "pick"

    sizes: tuple[int, ...]  # the sizes of bags that occur, in order
    rows: int  # rows of a unit, at most

    @property
    def bag_sizes(self) -> tuple[int, ...]:
        """The sizes of bags."""
        return self.sizes

    @property
    def is_possible(self) -> bool:
        """Whether these are sizes of bags, each once."""
        if not 1 <= len(self.sizes) <= MOST_SIZES or list(self.sizes) != sorted(set(self.sizes)):
            return False
        return 1 <= self.sizes[0] <= self.sizes[-1] <= LARGEST_COUNT

    def cost(self, law: Law, size: int) -> float:
        """Return what a pick among so many rows costs without a delta; rounded up."""
        return math.log1p(law.growth(self.moves[law.norm]) / size) * _UPWARDS


class BagPicks(Picks, frozen=True, tag="bag-picks"):
    """One label of each bag, with noise by the bag's size."""

    bounds_groups: ClassVar[bool] = True

    grid_step: float

    @classmethod
    def of(cls, bounds: Bounds, sizes: Iterable[int], rows: int) -> Self:
        """Return the query for labels within bounds, and bags of these sizes."""
        return cls(tuple(sorted(set(sizes))), rows, grid_step(bounds))

    @property
    def moves(self) -> dict[Norm, Move]:
        """How far one label moves: the width of the bounds."""
        return {"L1": Move(LABEL_STEPS), "L2": Move(LABEL_STEPS)}


class ClassPicks(Picks, frozen=True, tag="class-picks"):
    """The class of one row of each bag, kept by a chance that depends on the bag's size."""

    of_classes: ClassVar[bool] = True

    @property
    def moves(self) -> dict[Norm, Move]:
        """The change of one class into any other."""
        return {"class": Move()}


class RangeCounts(Query, frozen=True, tag="range-counts"):
    """Counts of values beyond each of several public candidates, one of which is chosen.

    Sensitivity: one label moves all counts the same way, by one at most (`private_range`, with the
    proof); the epsilon of its law is for all rows of a unit together.
    """

    # What is chosen: bounds of the labels, a range within stated bounds that labels are clipped to,
    # a limit for what a private model leaves of labels.
    of: Literal["bounds", "range", "limit"]
    rows: int = 1  # rows of a unit that it was set for

    @property
    def hides(self) -> str:
        """What is chosen."""
        return self.of

    @property
    def moves(self) -> dict[Norm, Move]:
        """One choice."""
        return {"choice": Move()}


_OF_BAGS = (BagMeans, ClassShares, SingleLabels, BagPicks, ClassPicks)

QUERIES: dict[str, type[Query]] = {
    query.called(): query for query in (*_OF_BAGS, Labels, Statistic, RangeCounts, MeanLoss)
}
"""All that is ever asked of labels, by name."""
