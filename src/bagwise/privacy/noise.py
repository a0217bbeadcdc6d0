"""Hide labels, bag sums and picks behind the noise of a mechanism, in whole numbers.

Labels become whole steps of a public grid (`grid`), which are added up as integers, and integer
noise is added to the integer sum. Only then is anything divided.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.data.labels import Bounds
from bagwise.privacy.aggregate import pick_labels
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps, one_hot
from bagwise.privacy.mechanisms import (
    GaussianLabels,
    HidesBagMeans,
    HidesPicks,
    LaplaceLabels,
    RandomisedPicks,
)
from bagwise.rng import NoiseSource


def noisy_labels(
    labels: FloatArray,
    *,
    bounds: Bounds,
    event: GaussianLabels | LaplaceLabels,
    source: NoiseSource,
) -> FloatArray:
    """Return every label with noise of its own, as `event` describes."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    noisy = steps + event.draw(labels.size, source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def private_bag_means(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: HidesBagMeans, source: NoiseSource
) -> FloatArray:
    """Return the noisy mean of each bag, as `event` describes."""
    sums = bags.sum(labels_to_steps(labels, bounds=bounds, step=event.grid_step))
    noisy = sums + event.draw(bags.n_bags, source)
    return bounds[0] + event.grid_step * noisy / bags.sizes


def private_picks(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: HidesPicks, source: NoiseSource
) -> FloatArray:
    """Return one label of each bag, picked in secret, with noise by the bag's size."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    picked = pick_labels(steps.astype(np.float64), bags, source).astype(np.int64)
    noisy = picked + event.draw(bags.sizes, source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def private_shares(
    codes: IntArray, bags: Bags, *, classes: int, event: HidesBagMeans, source: NoiseSource
) -> FloatArray:
    """Return the noisy share of each class in each bag, (m, classes).

    Every class is a label of 0 or 1 with bounds (0, 1). One row that changes its class changes two
    of them, which the sensitivity of `event` must allow for.
    """
    counts = bags.sum(one_hot(codes, classes)) * LABEL_STEPS
    noise = event.draw(counts.size, source).reshape(counts.shape)
    return (counts + noise) / LABEL_STEPS / bags.sizes[:, None]


def private_class_picks(
    codes: IntArray, bags: Bags, *, event: RandomisedPicks, source: NoiseSource
) -> FloatArray:
    """Return an unbiased estimate of each class's share from one randomised pick, (m, classes).

    The picked class has the largest entry of its row, so that nothing of the pick is lost; entries
    below 0 and above 1 undo the chance of a replaced class.
    """
    picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
    reported = event.randomise(picked, bags.sizes, source)
    keep = event.keep_chances(bags.sizes)
    other = (1 - keep) / (event.classes - 1)
    return (one_hot(reported, event.classes) - other[:, None]) / (keep - other)[:, None]
