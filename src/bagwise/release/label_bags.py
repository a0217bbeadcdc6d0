"""One label per bag: aggregated, and hidden behind noise where a calibration asks for it."""

import warnings

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.data.labels import Bounds
from bagwise.errors import ClippingWarning, DominatedWarning
from bagwise.privacy.aggregate import AGGREGATES, pick_labels
from bagwise.privacy.calibrate import WORTHWHILE, Calibration, ExactCalibration
from bagwise.privacy.grid import one_hot
from bagwise.privacy.mechanisms import HidesBagMeans, HidesPicks, Mechanism
from bagwise.privacy.noise import (
    private_bag_means,
    private_class_picks,
    private_picks,
    private_shares,
)
from bagwise.privacy.units import Units
from bagwise.release.request import Choice
from bagwise.release.scores import Scores


def label_bags(
    labels: AnyArray, bags: Bags, units: Units, scores: Scores, choice: Choice
) -> tuple[FloatArray, tuple[Mechanism, ...]]:
    """Return one label per bag, and everything that was spent on the way."""
    calibration, source, classes = choice.calibration, choice.noise_source, choice.columns.classes
    if classes is not None:
        return _class_labels(labels, bags, units, choice, len(classes))
    if calibration is None:
        if choice.bounds is not None:
            labels = _clip_openly(labels, choice.bounds)
        return AGGREGATES[choice.label_kind](labels, bags, source), ()
    spent, rows, bounds = scores.events, units.largest, calibration.bounds
    if choice.label_kind == "pick":
        # Sizes that depend on scores could have been any from the smallest on: all get its noise.
        smallest = choice.bag_size if spent else None
        sizes = bags.sizes.tolist()
        picks = calibration.picks(sizes=sizes, rows=rows, spent=spent, smallest=smallest)
        if (least := _with_any_noise(calibration)) is not None:
            fewer = least.picks(sizes=sizes, rows=rows, spent=spent, smallest=smallest)
            _warn_of_noise(picks, fewer, bags.sizes)
        square = rows**2 if spent else units.square_in_bags(bags)
        means = calibration.bag_means(square=square, rows=rows, numbers=rows, spent=spent)
        _warn_of_picks(picks, means, bags.sizes)
        values = private_picks(labels, bags, bounds=bounds, event=picks, source=source)
        return values, (*calibration.prior, *spent, picks)
    # Bags that depend on labels could hold all rows of a unit; others are known, and counted.
    square = rows**2 if spent else units.square_in_bags(bags)
    numbers = rows if spent else units.bags_touched(bags)
    means = calibration.bag_means(square=square, rows=rows, numbers=numbers, spent=spent)
    if (least := _with_any_noise(calibration)) is not None:
        free = least.bag_means(square=square, rows=rows, numbers=numbers, spent=spent)
        _warn_of_noise(means, free, bags.sizes)
    values = private_bag_means(labels, bags, bounds=bounds, event=means, source=source)
    return values, (*calibration.prior, *spent, means)


def _class_labels(
    codes: IntArray, bags: Bags, units: Units, choice: Choice, classes: int
) -> tuple[FloatArray, tuple[Mechanism, ...]]:
    """Return one row of class shares per bag, and everything that was spent on the way."""
    calibration, source = choice.calibration, choice.noise_source
    if calibration is None:
        if choice.label_kind == "mean":
            return bags.mean(one_hot(codes, classes)), ()
        picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
        return one_hot(picked, classes).astype(np.float64), ()
    rows = units.largest
    if choice.label_kind == "pick":
        picks = calibration.class_picks(classes=classes, sizes=bags.sizes.tolist(), rows=rows)
        return private_class_picks(codes, bags, event=picks, source=source), (picks,)
    # A row that changes its class changes two counts by one: sqrt(2) in L2, and 2 in L1.
    square = 2 * units.square_in_bags(bags)
    shares = calibration.bag_means(square=square, rows=2 * rows, numbers=2 * rows)
    if (least := _with_any_noise(calibration)) is not None:
        free = least.bag_means(square=square, rows=2 * rows, numbers=2 * rows)
        _warn_of_noise(shares, free, bags.sizes)
    values = private_shares(codes, bags, classes=classes, event=shares, source=source)
    return values, (shares,)


def _with_any_noise(calibration: Calibration) -> ExactCalibration | None:
    """Return the rule that may choose its noise; None where it has chosen already."""
    if not isinstance(calibration, ExactCalibration) or calibration.noise == "auto":
        return None
    return calibration.with_noise("auto")


def _warn_of_noise(
    chosen: HidesBagMeans | HidesPicks, free: HidesBagMeans | HidesPicks, sizes: IntArray
) -> None:
    """Say so where somebody insists on more noise than the promise needs; all of it is public."""
    # In steps of the grid, since bounds may be so wide that squares overflow.
    noises = (np.linalg.norm(one.noise_sd(sizes) / one.grid_step) for one in (chosen, free))
    ratio = float(next(noises) / next(noises)) ** 2
    if ratio > 1 + WORTHWHILE:
        warnings.warn(
            f"noise={chosen.noise!r} has {ratio:.2g} times the variance that {free.noise} noise "
            "has under the same promise. Leave noise at 'auto' (--noise auto).",
            DominatedWarning,
            stacklevel=2,
        )


def _warn_of_picks(picks: HidesPicks, means: HidesBagMeans, sizes: IntArray) -> None:
    """Say so if means would carry less noise: they also average the labels, and choose nothing.

    Both scales follow from the budget and the sizes of the bags, and not from a label.
    """
    smallest = sizes[[int(np.argmin(sizes))]]
    (on_picks,), (on_means,) = picks.noise_sd(smallest), means.noise_sd(smallest)
    if on_picks > 1.01 * on_means:  # from bags of one row both may be the same but for rounding
        warnings.warn(
            f"under the same promise a picked label carries {on_picks / on_means:.2g} times the "
            f"privacy noise of the mean of {smallest[0]} labels, and tells less besides. Choose "
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
