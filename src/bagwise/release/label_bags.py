"""One label per bag: aggregated, and hidden behind noise where a calibration asks for it."""

import warnings
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import ClippingWarning, DominatedWarning
from bagwise.privacy.aggregate import AGGREGATES, pick_labels
from bagwise.privacy.calibrate import SINGLE_LABELS, WORTHWHILE, Calibration, ExactCalibration
from bagwise.privacy.grid import grid_step, one_hot
from bagwise.privacy.mechanisms import BeforeDraw, Mechanism
from bagwise.privacy.noise import (
    private_bag_means,
    private_centred_means,
    private_class_picks,
    private_picks,
    private_shares,
    reported_labels,
)
from bagwise.privacy.units import ProtectedUnits, Units
from bagwise.requests.queries import Centring, Queries, Scores
from bagwise.requests.verbs import Choice
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


class SizedBags(Protocol):
    """Bags, wherever their rows are."""

    def count_sizes(self) -> Mapping[int, int]:
        """Return how many bags there are of each size."""


def label_bags(
    labels: AnyArray,
    bags: Bags,
    units: Units,
    scores: Scores,
    centring: Centring,
    choice: Choice,
    *,
    before_draw: BeforeDraw,
) -> tuple[FloatArray, tuple[Mechanism, ...]]:
    """Return one label per bag, and everything that was spent on the way."""
    calibration, source, classes = choice.calibration, choice.noise_source, choice.columns.classes
    if classes is not None:
        return _class_labels(labels, bags, units, choice, len(classes), before_draw)
    if calibration is None:
        if choice.bounds is not None:
            labels = _clip_openly(labels, choice.bounds)
        return AGGREGATES[choice.label_kind](labels, bags, source), ()
    bounds = calibration.bounds
    if choice.label_kind == "pick":
        picks, events = settle_picks(calibration, choice.bag_size, bags, units, scores)
        before_draw(events)
        return private_picks(labels, bags, bounds=bounds, event=picks, source=source), events
    if reports_singly(calibration):
        return _single_labels(labels, bags, units, calibration, source, before_draw)
    means, events = settle_means(calibration, bags, units, scores, centring)
    before_draw(events)
    if centring.limit is None:
        return private_bag_means(labels, bags, bounds=bounds, event=means, source=source), events
    if centring.predictions is None:
        raise AssertionError("predictions are where the labels are")
    values = private_centred_means(
        labels, centring.predictions, bags, bounds=centring.bounds, event=means, source=source
    )
    return values, events


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


def settle_picks(
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


def _single_labels(
    labels: FloatArray,
    bags: Bags,
    units: ProtectedUnits,
    rule: Calibration,
    source: NoiseSource,
    before_draw: BeforeDraw,
) -> tuple[FloatArray, tuple[Mechanism, ...]]:
    """Return every label as it is reported; each is a bag of its own."""
    event = _hide_single(rule, units)
    events: tuple[Mechanism, ...] = (*rule.prior, event)
    before_draw(events)
    in_order = np.empty(bags.n_bags)
    in_order[bags.index] = labels
    return reported_labels(in_order, event=event, source=source), events


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


def _class_labels(
    codes: IntArray,
    bags: Bags,
    units: ProtectedUnits,
    choice: Choice,
    classes: int,
    before_draw: BeforeDraw,
) -> tuple[FloatArray, tuple[Mechanism, ...]]:
    """Return one row of class shares per bag, and everything that was spent on the way."""
    calibration, source = choice.calibration, choice.noise_source
    if calibration is None:
        if choice.label_kind == "mean":
            return bags.mean(one_hot(codes, classes)), ()
        picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
        return one_hot(picked, classes).astype(np.float64), ()
    if choice.label_kind == "pick":
        picks = settle_class_picks(calibration, bags, units, classes)
        before_draw((picks,))
        return private_class_picks(codes, bags, event=picks, source=source), (picks,)
    shares = settle_shares(calibration, bags, units)
    before_draw((shares,))
    values = private_shares(codes, bags, classes=classes, event=shares, source=source)
    return values, (shares,)


def settle_class_picks(
    rule: Calibration, bags: SizedBags, units: ProtectedUnits, classes: int
) -> Mechanism:
    """Return the chances of keeping a picked class."""
    return rule.class_picks(classes=classes, sizes=bags.count_sizes(), rows=units.largest)


def settle_shares(rule: Calibration, bags: SizedBags, units: ProtectedUnits) -> Mechanism:
    """Return the noise on shares of classes; bags of classes follow from features."""
    rows = units.largest
    square = units.square_in_bags(bags)
    shares = rule.shares(square=square, rows=rows)
    if (least := _with_any_noise(rule)) is not None:
        _warn_of_noise(shares, least.shares(square=square, rows=rows), bags)
    return shares


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


def _clip_openly(labels: FloatArray, bounds: Bounds) -> FloatArray:
    """Clip, and say how many: allowed here only because nothing is promised."""
    clipped = np.clip(labels, *bounds)
    if outside := int((clipped != labels).sum()):
        warnings.warn(
            f"{outside} label(s) lie outside the bounds and were clipped to them.",
            ClippingWarning,
            stacklevel=2,
        )
    return clipped
