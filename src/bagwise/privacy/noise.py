"""Hide values behind noise that keeps its promise on a real computer.

Floating-point noise leaks: which of the 2**64 doubles can come out depends on the value that is
hidden (Mironov 2012). So labels are rounded to whole steps of a public grid, added up as integers,
and integer noise is added to the integer sum (`samplers`). Only then is anything divided.

The noise is a discrete Gaussian. With at least hundreds of steps in its standard deviation its
privacy curve agrees with that of the continuous one to about seven digits, and to more the larger
it is; the tests measure the gap.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.data.labels import Bounds
from bagwise.privacy.aggregate import pick_labels
from bagwise.privacy.calibrate import CHANCES
from bagwise.privacy.events import (
    LABEL_STEPS,
    GaussianBagMeans,
    GaussianLabels,
    LaplaceBagMeans,
    PickedLabels,
    RandomisedPicks,
)
from bagwise.privacy.samplers import discrete_gaussian, discrete_laplace
from bagwise.rng import NoiseSource


def labels_to_steps(labels: FloatArray, *, bounds: Bounds, step: float) -> IntArray:
    """Return each label, clipped to the bounds, as a whole number of steps above the lower one."""
    low, high = bounds
    steps = np.rint((np.clip(labels, low, high) - low) / step).astype(np.int64)
    # Rounding in the division must not widen the range that the noise was set for.
    clipped: IntArray = np.clip(steps, 0, round((high - low) / step))
    return clipped


def noisy_labels(
    labels: FloatArray, *, bounds: Bounds, event: GaussianLabels, source: NoiseSource
) -> FloatArray:
    """Return every label with noise of its own, as `event` describes."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    noise = discrete_gaussian(
        labels.size, scale=in_steps(event.noise_scale, event.grid_step), source=source
    )
    return bounds[0] + event.grid_step * (steps + noise).astype(np.float64)


def private_bag_means(
    labels: FloatArray,
    bags: Bags,
    *,
    bounds: Bounds,
    event: GaussianBagMeans | LaplaceBagMeans,
    source: NoiseSource,
) -> FloatArray:
    """Return the noisy mean of each bag, as `event` describes."""
    sums = bags.sum(labels_to_steps(labels, bounds=bounds, step=event.grid_step))
    draw = discrete_laplace if isinstance(event, LaplaceBagMeans) else discrete_gaussian
    scale = in_steps(event.noise_scale, event.grid_step)
    noisy = sums + draw(bags.n_bags, scale=scale, source=source)
    return bounds[0] + event.grid_step * noisy / bags.sizes


def private_picks(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: PickedLabels, source: NoiseSource
) -> FloatArray:
    """Return one label of each bag, picked in secret, with noise by the bag's size."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    noisy = pick_labels(steps.astype(np.float64), bags, source).astype(np.int64)
    for size, noise_scale in event.scales:
        here = np.flatnonzero(bags.sizes == size)
        scale = in_steps(noise_scale, event.grid_step)
        noisy[here] += discrete_gaussian(here.size, scale=scale, source=source)
    return bounds[0] + event.grid_step * noisy.astype(np.float64)


def private_shares(
    codes: IntArray,
    bags: Bags,
    *,
    classes: int,
    event: GaussianBagMeans | LaplaceBagMeans,
    source: NoiseSource,
) -> FloatArray:
    """Return the noisy share of each class in each bag, (m, classes).

    Every class is a label of 0 or 1 with bounds (0, 1). One row that changes its class changes two
    of them, which the sensitivity of `event` must allow for.
    """
    draw = discrete_laplace if isinstance(event, LaplaceBagMeans) else discrete_gaussian
    scale = in_steps(event.noise_scale, event.grid_step)
    counts = bags.sum(one_hot(codes, classes)) * LABEL_STEPS
    noise = draw(counts.size, scale=scale, source=source).reshape(counts.shape)
    return (counts + noise) / LABEL_STEPS / bags.sizes[:, None]


def private_class_picks(
    codes: IntArray, bags: Bags, *, event: RandomisedPicks, source: NoiseSource
) -> FloatArray:
    """Return an unbiased estimate of each class's share from one randomised pick, (m, classes).

    The picked class has the largest entry of its row, so that nothing of the pick is lost; entries
    below 0 and above 1 undo the chance of a replaced class.
    """
    picked = pick_labels(codes.astype(np.float64), bags, source).astype(np.int64)
    keep = keep_chances(event, bags.sizes)
    kept = source.index_below(np.full(bags.n_bags, CHANCES)) < np.rint(keep * CHANCES)
    step = 1 + source.index_below(np.full(bags.n_bags, event.classes - 1))
    reported = np.where(kept, picked, (picked + step) % event.classes)
    other = (1 - keep) / (event.classes - 1)
    return (one_hot(reported, event.classes) - other[:, None]) / (keep - other)[:, None]


def keep_chances(event: RandomisedPicks, sizes: IntArray) -> FloatArray:
    """Return the chance of keeping the class for each bag; NaN for a size that has none."""
    chances = dict(event.keeps)
    return np.array([chances.get(size, np.nan) for size in sizes.tolist()])


def one_hot(codes: IntArray, classes: int) -> IntArray:
    """Return 1 in the column of each row's class, (n, classes)."""
    return np.asarray(codes[:, None] == np.arange(classes)).astype(np.int64)


def in_steps(scale: float, step: float) -> int:
    """Return a noise scale as the whole number of grid steps that it is."""
    return round(scale / step)
