"""How many labels a release without noise reveals.

The figures come from the secret labels. They are for the operator, through
`operator_notes.tell_operator`, and never for a file, a log or the release.
"""

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import LeakWarning
from bagwise.show.operator_notes import tell_operator

CLOSE = 0.01  # of the spread of the labels
P_PERCENT = 10  # the p of the p% rule
_ROUNDING = 1e-12  # what a mean of equal numbers may be off, relative to them


@dataclass(frozen=True)
class Exposure:
    """Shares of rows, or of bags, whose labels a release without noise shows.

    Rows that are in no bag do not count.

    Attributes
    ----------
    fixed : float
        Share of rows whose label is certain to a reader who knows the range of the labels: those in
        bags whose mean is the smallest or the largest label, or in which one class has share 1
        (*group disclosure*, [1]_, chapter 5), and those alone in a bag.
    homogeneous : float
        Share of rows in bags whose labels are all equal: the *homogeneity attack* of [2]_. A reader
        has to guess that they are equal, but is right about all of them then.
    close : float
        Share of rows whose label is within 1 % of the spread (largest minus smallest label) of the
        label of their bag (*interval disclosure*, [1]_, chapter 3); for classes, whose class has a
        share of at least 99 %.
    guessed : float
        The same for the best single guess for all rows: what a reader is right about who only
        knows how labels are distributed.
    dominated : float
        Share of bags that fail the *p% rule* with p = 10 ([1]_, chapter 4): the second largest
        contributor to a total learns the largest to within 10 %, since the others add up to less
        than that. Labels are measured from the smallest one. The rule is about sums of amounts; it
        is 0 for picks, classes and labels with two values only.

    References
    ----------
    .. [1] A. Hundepool, J. Domingo-Ferrer, L. Franconi, S. Giessing, E. Schulte Nordholt, K. Spicer
       and P.-P. de Wolf. Statistical Disclosure Control. Wiley, 2012.
    .. [2] A. Machanavajjhala, D. Kifer, J. Gehrke and M. Venkitasubramaniam. l-Diversity: Privacy
       beyond k-anonymity. ACM Transactions on Knowledge Discovery from Data 1(1), 2007.

    Examples
    --------
    >>> bags = Bags(np.array([0, 0, 1, 1]))
    >>> labels = np.array([0.0, 0.0, 0.0, 1.0])
    >>> found = Exposure.of(labels, bags, bags.mean(labels))
    >>> found.fixed, found.homogeneous, found.close
    (0.5, 0.5, 0.5)
    """

    fixed: float
    homogeneous: float
    close: float
    guessed: float
    dominated: float

    @classmethod
    def of(cls, labels: AnyArray, bags: Bags, answers: FloatArray, *, picked: bool = False) -> Self:
        """Measure a release of bag means, (m,), or of the labels of picked rows, of labels, (n,).

        Labels are numbers of classes where the answers are their shares, (m, classes).
        """
        kept, runs = bags.in_bag, _Runs.of(labels.astype(np.float64), bags)
        alone, chosen = bags.sizes == 1, labels[kept]
        if answers.ndim == 2:
            certain, dominated = runs.alike, 0.0
            close = answers[bags.index[kept], chosen] >= 1 - CLOSE - _ROUNDING
            guessed = float(np.bincount(chosen).max() / chosen.size)
        else:
            extreme = (runs.smallest == runs.smallest.min()) | (runs.largest == runs.largest.max())
            certain, dominated = (runs.alike & extreme) | alone, float(np.mean(runs.dominated))
            close = np.abs(chosen - answers[bags.index[kept]]) <= _reach(chosen)
            guessed = _guessed(chosen)
        rows = bags.sizes.sum()
        return cls(
            fixed=float(bags.sizes[alone if picked else certain].sum() / rows),
            homogeneous=float(bags.sizes[runs.alike].sum() / rows),
            close=float(np.mean(close)),
            guessed=guessed,
            dominated=0.0 if picked else dominated,
        )

    @property
    def is_alarming(self) -> bool:
        """Whether more labels are exposed than whoever says NOT PRIVATE may expect.

        A label that is certain harms, even if one could have guessed it. One that is close does
        where a guess from the distribution of the labels would not have been as close.
        """
        learned = self.close > 0.5 and self.close > self.guessed + 0.1
        return self.fixed > 0.01 or self.dominated > 0.05 or learned

    def text(self) -> str:
        """Return the figures in words."""
        return (
            "this release has no noise. A reader can be certain of the labels of "
            f"{self.fixed:.1%} of its rows, and {self.homogeneous:.1%} are in bags whose labels "
            f"are all equal. For {self.close:.1%} of the rows the bag tells the label to within "
            "1 % of the labels' spread; one guess for all rows would do so for "
            f"{self.guessed:.1%}. In {self.dominated:.1%} of the bags, whoever has the second "
            "largest label learns the largest to within 10 %. These figures tell about the labels: "
            "they are shown here, and kept nowhere. To protect labels, give --epsilon and --delta."
        )


def report_exposure(
    labels: AnyArray,
    bags: Bags,
    bag_labels: FloatArray,
    *,
    label_kind: str,
    bounds: tuple[float, float] | None = None,
    warn: bool = True,
) -> None:
    """Tell the operator what a release without noise exposes, and warn, without figures, of much.

    Parameters
    ----------
    labels : (n,)
        Numbers, or numbers of classes where `bag_labels` are shares.
    bag_labels : (m,), or (m, c) for classes
        What is released.
    bounds : (lo, hi), optional
        What labels were clipped to: the release tells about clipped ones.
    warn : bool
        False where a stronger warning was given already.
    """
    clipped = labels if bounds is None else np.clip(labels, *bounds)
    found = Exposure.of(clipped, bags, bag_labels, picked=label_kind == "pick")
    tell_operator(found.text())
    if warn and found.is_alarming:
        warnings.warn(
            "this release reveals labels of single rows, exactly or nearly: it is NOT PRIVATE. On "
            "a terminal, a note says how many. To protect them, set epsilon (--epsilon) instead "
            "of not_private; larger bags reveal fewer.",
            LeakWarning,
            stacklevel=2,
        )


@dataclass(frozen=True)
class _Runs:
    """What sorting the labels within each bag shows, (m,) each."""

    smallest: FloatArray
    largest: FloatArray
    dominated: AnyArray

    @property
    def alike(self) -> AnyArray:
        return np.equal(self.smallest, self.largest)

    @classmethod
    def of(cls, labels: FloatArray, bags: Bags) -> Self:
        kept = np.flatnonzero(bags.in_bag)
        order = kept[np.lexsort((labels[kept], bags.index[kept]))]
        ends = np.cumsum(bags.sizes)
        starts, by_bag = ends - bags.sizes, labels[order]
        amounts = by_bag - by_bag.min()
        others = amounts.copy()
        # Zeroed, and not subtracted from the total, which would leave rounding errors.
        others[ends - 1] = 0.0
        others[np.maximum(ends - 2, starts)] = 0.0
        rest = np.add.reduceat(others, starts)
        dominated = 100 * rest < P_PERCENT * amounts[ends - 1]
        if np.isin(amounts, (0.0, amounts.max())).all():
            dominated = np.zeros_like(dominated)  # they count something, and have no amounts
        return cls(by_bag[starts], by_bag[ends - 1], dominated)


def _guessed(labels: FloatArray) -> float:
    """Share of labels in the fullest interval of twice the reach, which one number is close to."""
    ordered = np.sort(labels)
    ends = np.searchsorted(ordered, ordered + 2 * _reach(labels), side="right")
    return float((ends - np.arange(labels.size)).max() / labels.size)


def _reach(labels: FloatArray) -> float:
    return float(CLOSE * np.ptp(labels) + _ROUNDING * np.abs(labels).max())
