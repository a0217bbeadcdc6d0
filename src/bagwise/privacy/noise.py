"""The exact answer of each bag, a mean or the label of one row, and the noise that hides it.

Labels become whole steps of a public grid (`grid`), which are added up as integers, and integer
noise is added to the integer sum. Only then is anything divided.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import check_name
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps
from bagwise.privacy.mechanisms import Mechanism
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

LabelKind = Literal["mean", "pick"]


def pick_rows(bags: Bags, source: NoiseSource) -> IntArray:
    """Draw one row of each bag, uniformly and in secret (multiple-instance regression).

    It is drawn by its index: drawing by value would favour nobody only while labels are distinct,
    and a known index undoes the protection of the bag.
    """
    by_bag = np.argsort(bags.index, kind="stable")[(~bags.in_bag).sum() :]
    first = np.cumsum(bags.sizes) - bags.sizes
    return np.asarray(by_bag[first + source.index_below(bags.sizes)])


def check_label_kind(label_kind: str) -> LabelKind:
    """Return the kind of bag label, or list the known ones."""
    check_name("label_kind", label_kind, get_args(LabelKind))
    return "mean" if label_kind == "mean" else "pick"


def noisy_labels(
    labels: FloatArray,
    *,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
) -> FloatArray:
    """Return every label with noise of its own, as `event` describes."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    noisy = event.law.hide(steps, source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def centred_steps(
    labels: FloatArray, predictions: FloatArray, *, bounds: Bounds, step: float
) -> tuple[IntArray, IntArray]:
    """Return labels minus their predictions, and the predictions, in whole steps.

    Predictions are rounded to label steps before they are subtracted, so that what is left is a
    whole number of them too. It is clipped to half of LABEL_STEPS on either side, which is as far
    as the sensitivity of the noise allows, and a label moves it by that at most.
    """
    half = LABEL_STEPS // 2
    expected = labels_to_steps(predictions, bounds=bounds, step=step)
    left = np.clip(labels_to_steps(labels, bounds=bounds, step=step) - expected, -half, half)
    return left, expected


def tell(
    measured: AnyArray, combine: str, bags: Bags, pick: Callable[[Bags], IntArray]
) -> AnyArray:
    """Return the exact answers of all bags: (amounts, bags).

    Rows are `measured` by one amount or more; `pick` draws one of each bag.
    """
    measured = np.atleast_2d(measured)
    if combine == "pick":
        return np.asarray(measured[:, pick(bags)])
    combined = bags.mean if combine == "mean" else bags.sum
    return np.stack([combined(amounts) for amounts in measured])


def noisy_bag_labels(
    labels: AnyArray,
    bags: Bags,
    *,
    event: Mechanism,
    source: NoiseSource,
    bounds: Bounds = (0.0, 1.0),
    classes: int = 0,
) -> FloatArray:
    """Return noisy bag labels, as `event` describes."""
    measured = event.query.measure(labels, bounds, classes)
    told = tell(measured, event.query.combine, bags, lambda among: pick_rows(among, source))
    return event.hide(told, bags.sizes, low=bounds[0], source=source)
