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
from bagwise.bagging.bags import Bags
from bagwise.errors import DominatedWarning
from bagwise.privacy.calibrate import SINGLE_LABELS, WORTHWHILE, Calibration, ExactCalibration
from bagwise.privacy.grid import grid_step, labels_to_steps, one_hot
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import (
    centred_steps,
    hidden_class_picks,
    hidden_means,
    hidden_picks,
    hidden_shares,
    reported_labels,
)
from bagwise.privacy.units import ProtectedUnits
from bagwise.requests.queries import Centring, Queries, Scores
from bagwise.requests.verbs import Choice
from bagwise.rows.labels import Bounds


class SizedBags(Protocol):
    """Bags, wherever their rows are."""

    def count_sizes(self) -> Mapping[int, int]:
        """Return how many bags there are of each size."""


Pick = Callable[[Bags], IntArray]
"""From bags to one row of each, drawn in secret."""

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


def tell(
    measure: Measure,
    combine: str,
    labels: AnyArray,
    predictions: FloatArray | None,
    bags: Bags,
    pick: Pick,
) -> AnyArray:
    """Return what is told of each bag, exactly: (amounts, bags)."""
    measured = np.atleast_2d(measure(labels, predictions))
    if combine == "pick":
        return np.asarray(measured[:, pick(bags)])
    combined = bags.mean if combine == "mean" else bags.sum
    return np.stack([combined(amounts) for amounts in measured])


def settle_labels(
    bags: SizedBags, units: ProtectedUnits, scores: Scores, centring: Centring, choice: Choice
) -> Labelling:
    """Settle the noise on the labels of bags, from public quantities alone."""
    rule, source, picked = choice.calibration, choice.noise_source, choice.label_kind == "pick"
    if choice.columns.classes is not None:
        return _settle_classes(bags, units, choice, len(choice.columns.classes))
    hide: Callable[..., FloatArray]
    if rule is None:
        clip = partial(_clipped, bounds=choice.bounds)
        return Labelling((), clip, lambda told, _: told[0], "pick" if picked else "mean")
    if picked:
        picks, events = _settle_picks(rule, choice.bag_size, bags, units, scores)
        hide = partial(hidden_picks, bounds=rule.bounds, event=picks, source=source)
        steps = partial(_steps, bounds=rule.bounds, step=picks.grid_step)
        return Labelling(events, steps, lambda told, sizes: hide(told[0], sizes), "pick")
    if reports_singly(rule):  # every row is a bag of its own
        channel = _hide_single(rule, units)
        hide = partial(reported_labels, event=channel, source=source)
        as_it_is = partial(_clipped, bounds=None)
        return Labelling((*rule.prior, channel), as_it_is, lambda told, _: hide(told[0]), "mean")
    means, events = settle_means(rule, bags, units, scores, centring)
    if centring.limit is None:
        hide = partial(hidden_means, bounds=rule.bounds, event=means, source=source)
        steps = partial(_steps, bounds=rule.bounds, step=means.grid_step)
        return Labelling(events, steps, lambda told, sizes: hide(told[0], sizes))
    hide = partial(hidden_means, bounds=centring.bounds, event=means, source=source)
    return Labelling(
        events,
        partial(_left_and_expected, bounds=centring.bounds, step=means.grid_step),
        # What a model expects is no secret.
        lambda told, sizes: hide(told[0], sizes, expected=told[1]),
        predicts=True,
    )


def _settle_classes(
    bags: SizedBags, units: ProtectedUnits, choice: Choice, classes: int
) -> Labelling:
    """Settle how shares of classes are hidden, or picked classes."""
    rule, source, rows = choice.calibration, choice.noise_source, units.largest
    if choice.label_kind == "pick":
        if rule is None:
            shares = partial(one_hot, classes=classes)
            return Labelling((), _codes, lambda told, _: shares(told[0]).astype(np.float64), "pick")
        chosen = rule.class_picks(classes=classes, sizes=bags.count_sizes(), rows=rows)
        pick = partial(hidden_class_picks, event=chosen, source=source)
        return Labelling((chosen,), _codes, lambda told, sizes: pick(told[0], sizes), "pick")
    count = partial(_one_hot_columns, classes=classes)
    if rule is None:
        return Labelling((), count, lambda told, sizes: np.asarray(told.T / sizes[:, None]))
    square = units.square_in_bags(bags)  # bags of classes follow from features
    event = rule.shares(square=square, rows=rows)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(event, least.shares(square=square, rows=rows), bags)
    hide = partial(hidden_shares, event=event, source=source)
    return Labelling((event,), count, lambda told, sizes: hide(told.T, sizes))


def _clipped(labels: AnyArray, _: FloatArray | None, *, bounds: Bounds | None) -> FloatArray:
    return labels if bounds is None else np.clip(labels, *bounds)


def _codes(labels: AnyArray, _: FloatArray | None) -> IntArray:
    return labels


def _one_hot_columns(labels: AnyArray, _: FloatArray | None, *, classes: int) -> IntArray:
    if labels.min() < 0 or labels.max() >= classes:
        raise AssertionError("labels were found to be classes before")
    return one_hot(labels, classes).T


def _steps(labels: AnyArray, _: FloatArray | None, *, bounds: Bounds, step: float) -> IntArray:
    return labels_to_steps(labels, bounds=bounds, step=step)


def _left_and_expected(
    labels: AnyArray, predictions: FloatArray | None, *, bounds: Bounds, step: float
) -> IntArray:
    """Return both from one prediction, so that machines which round otherwise do no harm."""
    if predictions is None:
        raise AssertionError("predictions are where the labels are")
    return np.stack(centred_steps(labels, predictions, bounds=bounds, step=step))


def foreseen_events(
    rule: Calibration,
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
    rule: Calibration,
    bags: SizedBags,
    units: ProtectedUnits,
    scores: Scores,
    centring: Centring,
) -> tuple[Mechanism, tuple[Mechanism, ...]]:
    """Return the noise on means, and everything that is spent with it.

    It is said where somebody insists on more noise than is needed.
    """
    known = None if scores.events else bags
    spent = (*scores.events, *centring.events)
    means = _hide_means(rule, known, units, spent)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(means, _hide_means(least, known, units, spent), bags)
    if centring.limit is not None:
        means = means.on_grid(grid_step((-centring.limit, centring.limit)))
    return means, (*rule.prior, *spent, means)


def _settle_picks(
    rule: Calibration,
    bag_size: int,
    bags: SizedBags,
    units: ProtectedUnits,
    scores: Scores,
) -> tuple[Mechanism, tuple[Mechanism, ...]]:
    """Return the noise on picks, and everything that is spent with it.

    It is said where other noise, or means, would carry less.
    """
    spent = scores.events
    picks = _hide_picks(rule, bag_size, bags, units, spent)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(picks, _hide_picks(least, bag_size, bags, units, spent), bags)
    means = _hide_means(rule, None if spent else bags, units, spent)
    _warn_of_picks(picks, means, min(bags.count_sizes()))
    return picks, (*rule.prior, *spent, picks)


def _hide_means(
    rule: Calibration, bags: SizedBags | None, units: ProtectedUnits, spent: tuple[Mechanism, ...]
) -> Mechanism:
    """Return the noise on means: known bags are counted, others could hold all rows of a unit."""
    rows = units.largest
    square = rows**2 if bags is None else units.square_in_bags(bags)
    numbers = rows if bags is None else units.bags_touched(bags)
    return rule.bag_means(square=square, rows=rows, numbers=numbers, spent=spent)


def reports_singly(rule: Calibration | None) -> bool:
    """Tell whether every label is reported by itself, by a table of chances."""
    return isinstance(rule, ExactCalibration) and rule.noise in SINGLE_LABELS


def _hide_single(rule: Calibration, units: ProtectedUnits) -> Mechanism:
    if not isinstance(rule, ExactCalibration):
        raise AssertionError("single labels have the exact rule")
    return rule.single_labels(rule.noise, rows=units.largest)


def _hide_picks(
    rule: Calibration,
    bag_size: int,
    bags: SizedBags | None,
    units: ProtectedUnits,
    spent: tuple[Mechanism, ...],
) -> Mechanism:
    """Return the noise on picks; sizes that depend on scores all get that of the smallest."""
    sizes = {bag_size: 1} if bags is None else bags.count_sizes()
    smallest = bag_size if spent else None
    return rule.picks(sizes=sizes, rows=units.largest, spent=spent, smallest=smallest)


def _with_any_noise(calibration: Calibration) -> ExactCalibration | None:
    """Return the rule that may choose its noise; None where it has chosen already."""
    if not isinstance(calibration, ExactCalibration) or calibration.noise == "auto":
        return None
    return calibration.with_noise("auto")


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
