"""Hide labels, bag sums and picks behind the noise of a mechanism, in whole numbers.

Labels become whole steps of a public grid (`grid`), which are added up as integers, and integer
noise is added to the integer sum. Only then is anything divided.
"""

from typing import cast

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.privacy.aggregate import pick_labels
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps, one_hot
from bagwise.privacy.laws import Unbiased
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import BagPicks, ClassPicks, SingleLabels
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds


def noisy_labels(
    labels: FloatArray,
    *,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
) -> FloatArray:
    """Return every label with noise of its own, as `event` describes."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    noisy = steps + event.draw(labels.size, source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def private_bag_means(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return the noisy mean of each bag, as `event` describes."""
    sums = bags.sum(labels_to_steps(labels, bounds=bounds, step=event.grid_step))
    return hidden_means(sums, bags.sizes, bounds=bounds, event=event, source=source)


def hidden_means(
    sums: IntArray,
    sizes: IntArray,
    *,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
    expected: IntArray | int = 0,
) -> FloatArray:
    """Return noisy means of bags with these sums of label steps: all of them, or some at a time.

    If the sums are of what predictions leave, `expected` has those of the predictions.
    """
    noisy = sums + event.draw(sums.size, source)
    return bounds[0] + event.grid_step * (noisy + expected) / sizes


def private_centred_means(
    labels: FloatArray,
    predictions: FloatArray,
    bags: Bags,
    *,
    bounds: Bounds,
    event: Mechanism,
    source: NoiseSource,
) -> FloatArray:
    """Return the noisy mean of each bag: of predictions, and of what they leave of the labels."""
    left, expected = centred_steps(labels, predictions, bounds=bounds, step=event.grid_step)
    return hidden_means(
        bags.sum(left),
        bags.sizes,
        bounds=bounds,
        event=event,
        source=source,
        expected=bags.sum(expected),
    )


def centred_steps(
    labels: FloatArray, predictions: FloatArray, *, bounds: Bounds, step: float
) -> tuple[IntArray, IntArray]:
    """Return what predictions leave of labels, and the predictions, in whole steps.

    Predictions are rounded to label steps before they are subtracted, so that what is left is a
    whole number of them too. It is clipped to half of LABEL_STEPS on either side, which is as far
    as the sensitivity of the noise allows, and a label moves it by that at most.
    """
    half = LABEL_STEPS // 2
    expected = labels_to_steps(predictions, bounds=bounds, step=step)
    left = np.clip(labels_to_steps(labels, bounds=bounds, step=step) - expected, -half, half)
    return left, expected


def private_picks(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return one label of each bag, picked in secret, with noise by the bag's size."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    picked = pick_labels(steps.astype(np.float64), bags, source).astype(np.int64)
    return hidden_picks(picked, bags.sizes, bounds=bounds, event=event, source=source)


def hidden_picks(
    picked: IntArray, sizes: IntArray, *, bounds: Bounds, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return picked label steps of bags of these sizes with noise: all, or some at a time."""
    query = cast(BagPicks, event.query)
    noisy = picked + query.draw(event.laws, sizes, source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def private_shares(
    codes: IntArray, bags: Bags, *, classes: int, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return the noisy share of each class in each bag, (m, classes).

    Every class is a label of 0 or 1 with bounds (0, 1). One row that changes its class changes two
    of them, which the sensitivity of `event` must allow for.
    """
    counts = bags.sum(one_hot(codes, classes))
    return hidden_shares(counts, bags.sizes, event=event, source=source)


def hidden_shares(
    counts: IntArray, sizes: IntArray, *, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return noisy shares of bags with these counts, (bags, classes): all, or some at a time."""
    steps = counts * LABEL_STEPS
    noise = event.draw(steps.size, source).reshape(steps.shape)
    return (steps + noise) / LABEL_STEPS / sizes[:, None]


def private_class_picks(
    codes: IntArray, bags: Bags, *, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return an unbiased estimate of each class's share from one randomised pick, (m, classes)."""
    picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
    return hidden_class_picks(picked, bags.sizes, event=event, source=source)


def hidden_class_picks(
    picked: IntArray, sizes: IntArray, *, event: Mechanism, source: NoiseSource
) -> FloatArray:
    """Return estimates of shares from the picked classes of bags: all, or some at a time."""
    query = cast(ClassPicks, event.query)
    reported = query.randomise(event.laws, picked, sizes, source)
    return query.estimates(event.laws, reported, sizes)


def reported_labels(labels: FloatArray, *, event: Mechanism, source: NoiseSource) -> FloatArray:
    """Return what is reported of each label, by a table of chances."""
    query, law = cast(SingleLabels, event.query), cast(Unbiased, event.law)
    points = law.round(query.scaled(labels), source)
    return query.reported(event.laws)[law.randomise(points, source)]
