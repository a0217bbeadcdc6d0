"""One label per bag: settled first, then told exactly where the rows are, then hidden here.

Noise is settled from public quantities (`settle_labels`), and nothing is drawn before it is charged
for. What is told of a bag is exact: a sum of whole steps, a count of classes, the label of one row.
In memory that happens at once. Of rows in parts it is done part by part, and noise is drawn in one
place from what comes back: nothing that may be done again draws anything.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

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
from bagwise.privacy.units import ProtectedUnits
from bagwise.requests.queries import Centring, Queries, Scores
from bagwise.requests.verbs import Choice
from bagwise.rows.labels import Bounds


class SizedBags(Protocol):
    """Bags, wherever their rows are."""

    def count_sizes(self) -> Mapping[int, int]:
        """Return how many bags there are of each size."""


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


def settle_labels(
    bags: SizedBags, units: ProtectedUnits, scores: Scores, centring: Centring, choice: Choice
) -> Labelling:
    """Settle the noise on the labels of bags, from public quantities alone."""
    if choice.calibration is None:
        return _without_noise(choice)
    events, bounds = _settle(choice.calibration, bags, units, scores, centring, choice)
    query, predicts = events[-1].of_bags, centring.limit is not None
    classes = len(choice.columns.classes or ())
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


def _settle(
    rule: ExactCalibration,
    bags: SizedBags,
    units: ProtectedUnits,
    scores: Scores,
    centring: Centring,
    choice: Choice,
) -> tuple[tuple[Mechanism, ...], Bounds]:
    """Return everything that is spent, the labels of bags last, and what these are clipped to."""
    rows, picked = units.largest, choice.label_kind == "pick"
    if choice.columns.classes is not None:
        if picked:
            query = ClassPicks(tuple(sorted(bags.count_sizes())), rows)
            return (rule.class_picks(query, len(choice.columns.classes)),), rule.bounds
        # Bags of classes follow from features, so that it is known where the rows of a unit are.
        shares = ClassShares.of(rule.bounds, rows=rows, square=units.square_in_bags(bags))
        event = rule.least(shares)
        if (least := _with_any_noise(rule)) is not None:
            _warn_of_noise(event, least.least(shares), bags)
        return (event,), rule.bounds
    if picked:
        return _settle_picks(rule, choice.bag_size, bags, units, scores), rule.bounds
    if reports_singly(rule):  # every row is a bag of its own
        return (*rule.prior, _hide_single(rule, units)), rule.bounds
    means = settle_means(rule, bags, units, scores, centring)
    return means, rule.bounds if centring.limit is None else centring.bounds


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
    rule: ExactCalibration,
    queries: Queries,
    bags: SizedBags | None,
    units: ProtectedUnits,
    *,
    label_kind: str,
    bag_size: int,
) -> tuple[Mechanism, ...]:
    """Return all events of a release before the first of them: what a ledger is charged for.

    `bags` are None where they follow from an answer. Then the noise on means allows for any bags,
    as it does in the end. Picks have the noise of the smallest bag that was asked for, whatever
    size they come from, and a larger one costs less.
    """
    label: Mechanism
    if label_kind == "pick":
        label = _hide_picks(rule, bag_size, bags, units, queries.spent)
    elif reports_singly(rule):
        label = _hide_single(rule, units)
    else:
        label = _hide_means(rule, bags, units, queries.spent)
    return (*rule.prior, *queries.spent, label)


def settle_means(
    rule: ExactCalibration,
    bags: SizedBags,
    units: ProtectedUnits,
    scores: Scores,
    centring: Centring,
) -> tuple[Mechanism, ...]:
    """Return everything that is spent, the noise on means last.

    It is said where somebody insists on more noise than is needed.
    """
    known = None if scores.events else bags
    spent = (*scores.events, *centring.events)
    means = _hide_means(rule, known, units, spent)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(means, _hide_means(least, known, units, spent), bags)
    if centring.limit is not None:
        means = means.on_grid(grid_step((-centring.limit, centring.limit)))
    return (*rule.prior, *spent, means)


def _settle_picks(
    rule: ExactCalibration,
    bag_size: int,
    bags: SizedBags,
    units: ProtectedUnits,
    scores: Scores,
) -> tuple[Mechanism, ...]:
    """Return everything that is spent, the noise on picks last.

    It is said where other noise, or means, would carry less.
    """
    spent = scores.events
    picks = _hide_picks(rule, bag_size, bags, units, spent)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(picks, _hide_picks(least, bag_size, bags, units, spent), bags)
    means = _hide_means(rule, None if spent else bags, units, spent)
    _warn_of_picks(picks, means, min(bags.count_sizes()))
    return (*rule.prior, *spent, picks)


def _hide_means(
    rule: ExactCalibration,
    bags: SizedBags | None,
    units: ProtectedUnits,
    spent: tuple[Mechanism, ...],
) -> Mechanism:
    """Return the noise on means: known bags are counted, others could hold all rows of a unit."""
    rows = units.largest
    square = rows**2 if bags is None else units.square_in_bags(bags)
    touched = rows if bags is None else units.bags_touched(bags)
    query = BagMeans.of(rule.bounds, rows=rows, square=square, touched=touched)
    return rule.least(query, spent)


def reports_singly(rule: ExactCalibration | None) -> bool:
    """Tell whether every label is reported by itself, by a table of chances."""
    return rule is not None and rule.noise in SINGLE_LABELS


def _hide_single(rule: ExactCalibration, units: ProtectedUnits) -> Mechanism:
    return rule.least(SingleLabels.of(rule.bounds, units.largest))


def _hide_picks(
    rule: ExactCalibration,
    bag_size: int,
    bags: SizedBags | None,
    units: ProtectedUnits,
    spent: tuple[Mechanism, ...],
) -> Mechanism:
    """Return the noise on picks; sizes that depend on scores all get that of the smallest."""
    counts = {bag_size: 1} if bags is None else bags.count_sizes()
    sizes = [*counts, bag_size] if spent else counts
    query = BagPicks.of(rule.bounds, sizes, units.largest)
    return rule.least(query, spent, counts=counts)


def _with_any_noise(calibration: ExactCalibration) -> ExactCalibration | None:
    """Return the rule that may choose its noise; None where it has chosen already."""
    return None if calibration.noise == "auto" else calibration.with_noise("auto")


def _warn_of_noise(chosen: Mechanism, free: Mechanism, bags: SizedBags) -> None:
    """Say so where somebody insists on more noise than the promise needs; all of it is public."""
    sizes, times = (np.array(list(some)) for some in zip(*bags.count_sizes().items(), strict=True))
    # In steps of the grid, since bounds may be so wide that squares overflow.
    noises = (
        np.linalg.norm(one.noise_sd(sizes) / one.grid_step * np.sqrt(times))
        for one in (chosen, free)
    )
    ratio = float(next(noises) / next(noises)) ** 2
    if ratio > 1 + WORTHWHILE:
        warnings.warn(
            f"noise={chosen.noise!r} has {ratio:.2g} times the variance that {free.noise} noise "
            "has under the same promise. Leave noise at 'auto' (--noise auto).",
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
            f"under the same promise a picked label carries {on_picks / on_means:.2g} times the "
            f"privacy noise of the mean of {smallest} labels, and tells less besides. Choose "
            "label_kind='mean' (--label-kind mean) unless the learner needs single labels.",
            DominatedWarning,
            stacklevel=2,
        )
