"""Bag labels: budget settled first, sums computed exactly, then noise added.

Noise is settled from public quantities (`settle_labels`), and nothing is drawn before it is charged
for. What is told of a bag is exact: a sum of whole steps, a count of classes, the label of one row.
In memory that happens at once. Of rows in parts it is done part by part, and noise is drawn in one
place from what comes back: nothing that may be done again draws anything.

What a release without noise gives away is measured here, too. The figures come from the secret
labels: they are for the operator, and never for a file, a log or the release.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import DominatedWarning, LeakWarning
from bagwise.privacy.calibrate import WORTHWHILE
from bagwise.privacy.grid import grid_step, one_hot
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import centred_steps
from bagwise.requests.answers import Answers
from bagwise.requests.bag_labels import Reach, price_labels, reports_singly
from bagwise.requests.verbs import Choice
from bagwise.rows.labels import Bounds
from bagwise.show.operator_notes import tell_operator

Measure = Callable[[AnyArray, FloatArray | None], AnyArray]
"""From labels and what a model expects of them to what is told of each row, one amount or more."""


@dataclass(frozen=True)
class Labelling:
    """How bags get their labels: everything is settled, and nothing is drawn yet.

    Attributes
    ----------
    events : tuple of Mechanism
        Everything that is spent on the way.
    measure : callable
        What counts of each row.
    hide : callable
        From what is told of some bags, (amounts, bags), and their sizes, to their labels; it draws
        the noise.
    combine : {"sum", "mean", "pick"}
        What a bag has of its rows.
    predicts : bool
        Whether a model's predictions are measured as well.
    report : callable or None
        Tells the operator what bags without noise show; None where there is noise.
    """

    events: tuple[Mechanism, ...]
    measure: Measure
    hide: Callable[[AnyArray, IntArray], FloatArray]
    combine: str = "sum"
    predicts: bool = False
    report: Callable[[AnyArray, Bags, FloatArray], None] | None = None


def settle_labels(reach: Reach, answers: Answers, choice: Choice) -> Labelling:
    """Settle the noise on the labels of bags, from public quantities alone."""
    budget, classes = choice.budget, len(choice.columns.classes or ())
    rule, bounds = budget.calibration, budget.bounds
    if rule is None:
        return _without_noise(choice, classes)
    settle = partial(
        price_labels,
        reach=reach,
        spent=answers.events,
        bag_size=choice.bag_size,
        classes=classes,
    )
    label = settle(rule, label_kind=choice.label_kind)
    if rule.noise != "auto" and not reports_singly(rule):
        free = settle(rule.with_noise("auto"), label_kind=choice.label_kind)
        _warn_of_noise(label, free, reach.sizes)
    if choice.label_kind == "pick" and not classes:
        _warn_of_picks(label, settle(rule, label_kind="mean"), min(reach.sizes))
    within, predicts, step = rule.bounds, answers.limit is not None, 0.0
    if answers.limit is not None and bounds is not None:
        within, step = bounds, grid_step((-answers.limit, answers.limit))
        label = label.on_grid(step)
    query = label.query
    draw = partial(label.hide, low=within[0], source=budget.noise_source)

    def measure(labels: AnyArray, predictions: FloatArray | None) -> AnyArray:
        if not predicts:
            return query.measure(labels, within, classes)
        if predictions is None:
            raise AssertionError("predictions are where the labels are")
        # Both from one prediction, so that machines which round otherwise do no harm.
        return np.stack(centred_steps(labels, predictions, bounds=within, step=step))

    def hide(told: AnyArray, sizes: IntArray) -> FloatArray:
        # What a model expects is no secret.
        return draw(told[:1], sizes, expected=told[1]) if predicts else draw(told, sizes)

    events = (*rule.prior, *answers.events, label)
    return Labelling(events, measure, hide, query.combine, predicts)


def _without_noise(choice: Choice, classes: int) -> Labelling:
    """Return exact labels, of which the operator gets a report."""
    # What is measured goes to where the rows are, so that it knows no more of the choice than this.
    bounds = choice.budget.bounds

    def measure(labels: AnyArray, _: FloatArray | None) -> AnyArray:
        if classes:
            return one_hot(labels, classes).T
        return labels if bounds is None else np.clip(labels, *bounds)

    report = partial(
        report_exposure,
        label_kind=choice.label_kind,
        bounds=bounds,
        warn=choice.scores != "labels",  # of which the scores have warned already
    )
    return Labelling(
        (),
        measure,
        lambda told, _: np.asarray(told.T, dtype=np.float64) if classes else told[0],
        "pick" if choice.label_kind == "pick" else "mean",
        report=report,
    )


def _warn_of_noise(chosen: Mechanism, free: Mechanism, counts: Mapping[int, int]) -> None:
    """Warn if the user insists on more noise than the promise needs; all of it is public."""
    if (ratio := _noise_ratio(chosen, free, counts) ** 2) > 1 + WORTHWHILE:
        warnings.warn(
            f"noise={chosen.law.kind!r} has {ratio:.2g} times the variance that {free.law.kind} "
            "noise has with the same guarantee. Use noise='auto' (--noise auto).",
            DominatedWarning,
            stacklevel=2,
        )


def _warn_of_picks(picks: Mechanism, means: Mechanism, smallest: int) -> None:
    """Warn if means would carry less noise: they also average the labels, and choose nothing."""
    # From bags of one row both may be the same but for rounding.
    if (ratio := _noise_ratio(picks, means, {smallest: 1})) > 1.01:
        warnings.warn(
            f"with the same guarantee, a picked label has {ratio:.2g} times the privacy noise of "
            f"the mean of {smallest} labels, and contains less information. Choose "
            "label_kind='mean' (--label-kind mean) unless the learner needs single labels.",
            DominatedWarning,
            stacklevel=2,
        )


def _noise_ratio(one: Mechanism, other: Mechanism, counts: Mapping[int, int]) -> float:
    """Return how many times as much noise one of two mechanisms has: public, as what decides it."""
    sizes, times = (np.array(list(some)) for some in zip(*counts.items(), strict=True))
    # In steps of the grid, since bounds may be so wide that squares overflow.
    noise, least = (
        np.linalg.norm(each.noise_sd(sizes) / each.grid_step * np.sqrt(times))
        for each in (one, other)
    )
    return float(noise / least)


# -- what bags without noise show ------------------------------------------------------------------

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
        """Measure what bag means, (m,), or labels of picked rows disclose of the labels, (n,).

        Labels are numbers of classes where the answers are their shares, (m, classes).
        """
        kept, alone = bags.in_bag, bags.sizes == 1
        least, most, fails = _sorted_in_bags(labels.astype(np.float64), bags)
        alike, chosen = np.equal(least, most), labels[kept]
        if answers.ndim == 2:
            certain, dominated = alike, 0.0
            close = answers[bags.index[kept], chosen] >= 1 - CLOSE - _ROUNDING
            guessed = float(np.bincount(chosen).max() / chosen.size)
        else:
            extreme = (least == least.min()) | (most == most.max())
            certain, dominated = (alike & extreme) | alone, float(np.mean(fails))
            near = float(CLOSE * np.ptp(chosen) + _ROUNDING * np.abs(chosen).max())
            close = np.abs(chosen - answers[bags.index[kept]]) <= near
            # All labels in the fullest interval of twice that length are close to one number.
            ordered = np.sort(chosen)
            ends = np.searchsorted(ordered, ordered + 2 * near, side="right")
            guessed = float((ends - np.arange(ordered.size)).max() / ordered.size)
        rows = bags.sizes.sum()
        return cls(
            fixed=float(bags.sizes[alone if picked else certain].sum() / rows),
            homogeneous=float(bags.sizes[alike].sum() / rows),
            close=float(np.mean(close)),
            guessed=guessed,
            dominated=0.0 if picked else dominated,
        )

    @property
    def is_alarming(self) -> bool:
        """Whether more labels are exposed than someone who states NOT PRIVATE may expect.

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
    bounds: Bounds | None = None,
    warn: bool = True,
) -> None:
    """Tell the operator what a release without noise exposes; warn, without figures, if it is much.

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


def _sorted_in_bags(labels: FloatArray, bags: Bags) -> tuple[FloatArray, FloatArray, AnyArray]:
    """Return the least and the largest label of each bag, and whether it fails the p% rule."""
    kept = np.flatnonzero(bags.in_bag)
    by_bag = labels[kept[np.lexsort((labels[kept], bags.index[kept]))]]
    ends = np.cumsum(bags.sizes)
    starts, amounts = ends - bags.sizes, by_bag - by_bag.min()
    others = amounts.copy()
    # Zeroed, and not subtracted from the total, which would leave rounding errors.
    others[ends - 1] = 0.0
    others[np.maximum(ends - 2, starts)] = 0.0
    dominated = 100 * np.add.reduceat(others, starts) < P_PERCENT * amounts[ends - 1]
    if np.isin(amounts, (0.0, amounts.max())).all():
        dominated = np.zeros_like(dominated)  # they count something, and have no amounts
    return by_bag[starts], by_bag[ends - 1], dominated
