"""What hides the labels of bags: one query and its noise, settled from public quantities alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from bagwise.privacy.calibrate import SINGLE_LABELS, ExactCalibration
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import BagMeans, BagPicks, ClassPicks, ClassShares, SingleLabels


@dataclass(frozen=True)
class Reach:
    """The quantities that noise depends on: the bags, and the units whose rows are in them.

    Attributes
    ----------
    sizes : mapping
        How many bags there are of each size.
    rows : int
        Of the unit with the most.
    square : int
        The largest sum over bags of (rows of a unit in the bag)^2.
    touched : int
        The largest number of bags that the rows of one unit are in.
    """

    sizes: Mapping[int, int]
    rows: int
    square: int
    touched: int

    @classmethod
    def at_worst(cls, sizes: Mapping[int, int], rows: int) -> Self:
        """Return bounds for any bags of these sizes: one bag could hold all rows of a unit.

        Bags that follow from answers are not counted: the noise allows for any.
        """
        return cls(sizes, rows, rows**2, rows)


def reports_singly(rule: ExactCalibration | None) -> bool:
    """Tell whether every label is reported by itself, by a table of chances."""
    return rule is not None and rule.noise in SINGLE_LABELS


def price_labels(
    rule: ExactCalibration,
    reach: Reach,
    spent: tuple[Mechanism, ...] = (),
    *,
    label_kind: str = "mean",
    bag_size: int = 1,
    classes: int = 0,
) -> Mechanism:
    """Return the mechanism that hides the labels of bags after what was spent on queries.

    Where bags follow from an answer, picks have the noise of the smallest bag that was asked for,
    whatever size they come from, and a larger one costs less.
    """
    rows, counts, square = reach.rows, reach.sizes, reach.square
    if label_kind == "pick" and classes:
        return rule.least(ClassPicks(tuple(sorted(counts)), rows), classes=classes)
    if label_kind == "pick":
        picks = BagPicks.of(rule.bounds, [*counts, bag_size] if spent else counts, rows)
        return rule.least(picks, spent, counts=counts)
    if reports_singly(rule):  # every row is a bag of its own
        return rule.least(SingleLabels.of(rule.bounds, rows))
    if classes:
        return rule.least(ClassShares.of(rule.bounds, rows=rows, square=square))
    means = BagMeans.of(rule.bounds, rows=rows, square=square, touched=reach.touched)
    return rule.least(means, spent)
