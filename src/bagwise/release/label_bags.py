"""Bag labels: budget settled first, sums computed exactly, then noise added.

Noise is settled from public quantities (`settle_labels`), and nothing is drawn before it is charged
for. What is told of a bag is exact: a sum of whole steps, a count of classes, the label of one row.
In memory that happens at once. Of rows in parts it is done part by part, and noise is drawn in one
place from what comes back: nothing that may be done again draws anything.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import DominatedWarning
from bagwise.privacy.calibrate import SINGLE_LABELS, WORTHWHILE, ExactCalibration
from bagwise.privacy.grid import grid_step, one_hot
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import centred_steps
from bagwise.privacy.queries import (
    BagLabels,
    BagMeans,
    BagPicks,
    ClassPicks,
    ClassShares,
    SingleLabels,
)
from bagwise.requests.answers import Answers
from bagwise.requests.queries import Queries
from bagwise.requests.verbs import Choice
from bagwise.rows.labels import Bounds


@dataclass(frozen=True)
class Reach:
    """What noise has to know of bags, and of the units whose rows are in them.

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
        """Return what holds of any bags of these sizes: one could hold all rows of a unit.

        Bags that follow from answers are not counted: the noise allows for any.
        """
        return cls(sizes, rows, rows**2, rows)


Measure = Callable[[AnyArray, FloatArray | None], AnyArray]
"""From labels and what a model expects of them to what is told of each row, one amount or more."""


@dataclass(frozen=True)
class Labelling:
    """How bags get their labels: settled, and nothing drawn.

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
    """

    events: tuple[Mechanism, ...]
    measure: Measure
    hide: Callable[[AnyArray, IntArray], FloatArray]
    combine: str = "sum"
    predicts: bool = False


def settle_labels(reach: Reach, answers: Answers, choice: Choice) -> Labelling:
    """Settle the noise on the labels of bags, from public quantities alone."""
    rule, classes = choice.calibration, len(choice.columns.classes or ())
    if rule is None:
        return _without_noise(choice)
    events = settle_events(
        rule,
        reach,
        answers,
        label_kind=choice.label_kind,
        bag_size=choice.bag_size,
        classes=classes,
    )
    query, predicts = events[-1].of_bags, answers.limit is not None
    bounds = answers.bounds if predicts else rule.bounds
    measure: Measure = partial(_measured, query=query, bounds=bounds, classes=classes)
    if predicts:
        measure = partial(_left_and_expected, bounds=bounds, step=query.grid_step)
    draw = partial(events[-1].hide, low=bounds[0], source=choice.noise_source)

    def hide(told: AnyArray, sizes: IntArray) -> FloatArray:
        # What a model expects is no secret.
        return draw(told[:1], sizes, expected=told[1]) if predicts else draw(told, sizes)

    return Labelling(events, measure, hide, query.combine, predicts)


def _without_noise(choice: Choice) -> Labelling:
    """Return how bags get exact labels."""
    combine = "pick" if choice.label_kind == "pick" else "mean"
    if choice.columns.classes is None:
        clip = partial(_clipped, bounds=choice.bounds)
        return Labelling((), clip, lambda told, _: told[0], combine)
    shares = partial(_one_hot, classes=len(choice.columns.classes))
    return Labelling((), shares, lambda told, _: np.asarray(told.T, dtype=np.float64), combine)


def _clipped(labels: AnyArray, _: FloatArray | None, *, bounds: Bounds | None) -> FloatArray:
    return labels if bounds is None else np.clip(labels, *bounds)


def _one_hot(labels: AnyArray, _: FloatArray | None, *, classes: int) -> IntArray:
    return one_hot(labels, classes).T


def _measured(
    labels: AnyArray, _: FloatArray | None, *, query: BagLabels, bounds: Bounds, classes: int
) -> AnyArray:
    return query.measure(labels, bounds, classes)


def _left_and_expected(
    labels: AnyArray, predictions: FloatArray | None, *, bounds: Bounds, step: float
) -> IntArray:
    """Return both from one prediction, so that machines which round otherwise do no harm."""
    if predictions is None:
        raise AssertionError("predictions are where the labels are")
    return np.stack(centred_steps(labels, predictions, bounds=bounds, step=step))


def foreseen_events(
    rule: ExactCalibration, queries: Queries, reach: Reach, *, label_kind: str, bag_size: int
) -> tuple[Mechanism, ...]:
    """Return all events of a release before the first of them: what a ledger is charged for.

    Where bags follow from an answer, `reach` is that of any bags: noise on means allows for them,
    as it does in the end. Picks have the noise of the smallest bag that was asked for, whatever
    size they come from, and a larger one costs less.
    """
    label = _settle_label(rule, reach, queries.spent, label_kind=label_kind, bag_size=bag_size)
    return (*rule.prior, *queries.spent, label)


def settle_events(
    rule: ExactCalibration,
    reach: Reach,
    answers: Answers,
    *,
    label_kind: str = "mean",
    bag_size: int = 1,
    classes: int = 0,
) -> tuple[Mechanism, ...]:
    """Return everything that is spent, the labels of bags last.

    It is said where somebody insists on more noise than is needed, or means would carry less.
    """
    spent, picked = answers.events, label_kind == "pick"
    settle = partial(_settle_label, reach=reach, spent=spent, bag_size=bag_size, classes=classes)
    label = settle(rule, label_kind=label_kind)
    if rule.noise != "auto" and not reports_singly(rule):
        free = settle(rule.with_noise("auto"), label_kind=label_kind)
        _warn_of_noise(label, free, reach.sizes)
    if picked and not classes:
        _warn_of_picks(label, settle(rule, label_kind="mean"), min(reach.sizes))
    if answers.limit is not None:
        label = label.on_grid(grid_step((-answers.limit, answers.limit)))
    return (*rule.prior, *spent, label)


def _settle_label(
    rule: ExactCalibration,
    reach: Reach,
    spent: tuple[Mechanism, ...],
    *,
    label_kind: str,
    bag_size: int,
    classes: int = 0,
) -> Mechanism:
    """Return the noise on the labels of bags.

    Sizes that depend on scores all get the noise on picks of the smallest.
    """
    rows, counts = reach.rows, reach.sizes
    if classes and label_kind == "pick":
        return rule.class_picks(ClassPicks(tuple(sorted(counts)), rows), classes)
    if label_kind == "pick":
        query = BagPicks.of(rule.bounds, [*counts, bag_size] if spent else counts, rows)
        return rule.least(query, spent, counts=counts)
    if reports_singly(rule):  # every row is a bag of its own
        return rule.least(SingleLabels.of(rule.bounds, rows))
    if classes:
        return rule.least(ClassShares.of(rule.bounds, rows=rows, square=reach.square))
    square, touched = reach.square, reach.touched
    return rule.least(BagMeans.of(rule.bounds, rows=rows, square=square, touched=touched), spent)


def reports_singly(rule: ExactCalibration | None) -> bool:
    """Tell whether every label is reported by itself, by a table of chances."""
    return rule is not None and rule.noise in SINGLE_LABELS


def _warn_of_noise(chosen: Mechanism, free: Mechanism, counts: Mapping[int, int]) -> None:
    """Say so where somebody insists on more noise than the promise needs; all of it is public."""
    sizes, times = (np.array(list(some)) for some in zip(*counts.items(), strict=True))
    # In steps of the grid, since bounds may be so wide that squares overflow.
    noises = (
        np.linalg.norm(one.noise_sd(sizes) / one.grid_step * np.sqrt(times))
        for one in (chosen, free)
    )
    ratio = float(next(noises) / next(noises)) ** 2
    if ratio > 1 + WORTHWHILE:
        warnings.warn(
            f"noise={chosen.noise!r} has {ratio:.2g} times the variance that {free.noise} noise "
            "has with the same guarantee. Use noise='auto' (--noise auto).",
            DominatedWarning,
            stacklevel=2,
        )


def _warn_of_picks(picks: Mechanism, means: Mechanism, smallest: int) -> None:
    """Say so if means would carry less noise: they also average the labels, and choose nothing.

    Both scales follow from the budget and the sizes of the bags, and not from a label.
    """
    size = np.array([smallest])
    (on_picks,), (on_means,) = picks.noise_sd(size), means.noise_sd(size)
    if on_picks > 1.01 * on_means:  # from bags of one row both may be the same but for rounding
        warnings.warn(
            f"with the same guarantee, a picked label has {on_picks / on_means:.2g} times the "
            f"privacy noise of the mean of {smallest} labels, and contains less information. "
            "Choose label_kind='mean' (--label-kind mean) unless the learner needs single labels.",
            DominatedWarning,
            stacklevel=2,
        )
