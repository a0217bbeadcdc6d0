"""Randomised response on bins: single labels under pure label privacy, as a peer for bags.

The possible labels are cut into intervals. A label is replaced by a number that stands for its
interval, or, by chance, by that of another interval. Which cut and which numbers have the least
expected squared error depends on how labels are distributed; that is estimated first, from a
histogram with Laplace noise, which costs a share of epsilon. There is no delta.

References
----------
Ghazi, Kamath, Kumar, Manurangsi, Sekhari and Zhang, "Regression with Label Differential Privacy",
ICLR 2023: the optimal mechanism for a known distribution is randomised response on intervals, found
by dynamic programming.
"""

import math
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.privacy.samplers import discrete_laplace
from bagwise.rng import NoiseSource

CHANCES = 2**32
"""Chances are whole multiples of one in this many, so that they are drawn exactly."""

PRIOR_SHARE = 0.1
"""Share of epsilon for the histogram."""

_STEPS = 2**10  # noise on counts is drawn on a grid of so many steps for each row


@dataclass(frozen=True)
class Bins:
    """Intervals of possible labels, and what is reported for each."""

    bin_of: IntArray  # the interval of each possible label; never falls
    outputs: FloatArray  # the number that stands for each, of the least squared error
    means: FloatArray  # mean label in each, by the prior
    shares: FloatArray  # chance of each, by the prior
    loss: float  # expected squared error of a reported label

    @property
    def count(self) -> int:
        """Number of intervals."""
        return self.outputs.size


@dataclass(frozen=True)
class RandomisedLabels:
    """What is published: the intervals, and one of them for each row."""

    bins: Bins
    reported: IntArray
    keep: int  # chance that an interval is the true one, out of `CHANCES`

    @property
    def labels(self) -> FloatArray:
        """Labels of least squared error, as published. They lean towards the mean."""
        return self.bins.outputs[self.reported]

    @property
    def unbiased(self) -> FloatArray:
        """Labels whose expected value is the mean of the true interval: more noise, no bias."""
        return self._undone()[self.reported]

    @property
    def unbiased_noise_sd(self) -> float:
        """Standard deviation of `unbiased` around the mean of the true interval, by the prior."""
        undone, chances = self._undone(), transition(self.bins.count, self.keep)
        spread = (undone[None, :] - self.bins.means[:, None]) ** 2
        return math.sqrt(float(self.bins.shares @ (chances * spread).sum(axis=1)))

    def _undone(self) -> FloatArray:
        if self.bins.count == 1:
            return self.bins.means
        kept, other = transition(self.bins.count, self.keep)[0, :2]
        undone: FloatArray = (self.bins.means - other * self.bins.means.sum()) / (kept - other)
        return undone


def randomise_labels(
    labels: FloatArray,
    *,
    values: FloatArray,
    epsilon: float,
    source: NoiseSource,
    prior_share: float = PRIOR_SHARE,
) -> RandomisedLabels:
    """Report every label under epsilon label privacy, by randomised response on the best bins.

    `labels` count as the nearest of `values`, which are public and rising. The histogram takes a
    `prior_share` of epsilon.
    """
    if not (epsilon > 0 and 0 < prior_share < 1):
        raise BudgetError("epsilon must be positive, and the prior's share between 0 and 1.")
    codes = nearest(labels, values)
    prior = noisy_prior(codes, values.size, epsilon=prior_share * epsilon, source=source)
    left = (1 - prior_share) * epsilon
    bins = best_bins(values, prior, epsilon=left)
    keep = keep_chance(bins.count, left)
    return RandomisedLabels(bins, respond(bins.bin_of[codes], bins.count, keep, source), keep)


def nearest(labels: FloatArray, values: FloatArray) -> IntArray:
    """Return the place of the value nearest to each label."""
    middles = (values[1:] + values[:-1]) / 2
    return np.searchsorted(middles, labels)


def noisy_prior(codes: IntArray, count: int, *, epsilon: float, source: NoiseSource) -> FloatArray:
    """Return how often each of `count` labels occurs, by a histogram with Laplace noise."""
    # Another label for one row moves two counts by one each.
    scale = math.ceil(2 * _STEPS / epsilon)
    counts = np.bincount(codes, minlength=count) * _STEPS
    noisy = np.maximum(counts + discrete_laplace(count, scale=scale, source=source), 0)
    total = noisy.sum()
    return noisy / total if total else np.full(count, 1 / count)


def best_bins(values: FloatArray, prior: FloatArray, *, epsilon: float) -> Bins:
    """Return the intervals of `values` with the least expected squared error under `prior`.

    A reported number r_b is right with weight e^eps and wrong with weight 1, over e^eps + d - 1
    for d intervals. So with d fixed the expected error is a sum over intervals of

        sum_y prior(y) * (e^eps if y in b else 1) * (r_b - y)^2,

    whose best r_b is a weighted mean, and whose best intervals follow from those of fewer labels.
    """
    costs = _interval_costs(values, prior, epsilon)
    k = values.size
    before = np.full(k + 1, np.inf)  # least cost of the labels below i in so many intervals
    before[0] = 0.0
    starts, totals = [], []
    for _ in range(k):
        paths = before[:-1, None] + costs  # [first label of the last interval, its last label]
        starts.append(paths.argmin(axis=0))
        before = np.concatenate([[np.inf], paths.min(axis=0)])
        totals.append(before[-1])
    losses = np.array(totals) / (np.arange(k) + math.exp(epsilon))
    count = int(losses.argmin()) + 1
    # Read the intervals backwards from the last one, and describe them.
    bin_of = np.empty(k, dtype=np.int64)
    end = k
    for number in range(count - 1, -1, -1):
        start = int(starts[number][end - 1])
        bin_of[start:end] = number
        end = start
    growth = math.expm1(epsilon)
    shares = np.bincount(bin_of, weights=prior, minlength=count)
    sums = np.bincount(bin_of, weights=prior * values, minlength=count)
    plain = np.bincount(bin_of, weights=values, minlength=count) / np.bincount(bin_of)
    means = np.where(shares > 0, sums / np.where(shares > 0, shares, 1.0), plain)
    outputs = (prior @ values + growth * sums) / (1 + growth * shares)
    return Bins(bin_of, outputs, means, shares, float(losses[count - 1]))


def _interval_costs(values: FloatArray, prior: FloatArray, epsilon: float) -> FloatArray:
    """Return the cost of the interval from label i to label j at [i, j]; infinite for j < i."""
    middle = float(prior @ values)
    offset = values - middle  # around the mean: differences of large squares lose digits
    inside = [_sums(prior * offset**power) for power in range(3)]
    outside = [float(prior @ offset**power) for power in range(3)]
    growth = math.expm1(epsilon)
    weight, first, second = (
        total + growth * part for total, part in zip(outside, inside, strict=True)
    )
    costs: FloatArray = second - first**2 / weight
    costs[np.tril_indices(values.size, -1)] = np.inf
    return costs


def _sums(parts: FloatArray) -> FloatArray:
    """Return the sum of parts i to j at [i, j]; below the diagonal it means nothing."""
    upto = np.concatenate([[0.0], np.cumsum(parts)])
    return np.triu(upto[None, 1:] - upto[:-1, None])


def keep_chance(count: int, epsilon: float) -> int:
    """Return the chance of reporting the true one of `count` intervals, out of `CHANCES`."""
    odds = math.exp(epsilon)
    # Rounded down, and one less for the rounding of exp itself: less truth, more privacy.
    return CHANCES if count == 1 else math.floor(odds / (odds + count - 1) * CHANCES) - 1


def transition(count: int, keep: int) -> FloatArray:
    """Return the chance to report each interval (columns) given the true one (rows)."""
    if count == 1:
        return np.ones((1, 1))
    other = (CHANCES - keep) / CHANCES / (count - 1)
    chances = np.full((count, count), other)
    np.fill_diagonal(chances, keep / CHANCES)
    return chances


def respond(true: IntArray, count: int, keep: int, source: NoiseSource) -> IntArray:
    """Draw the interval to report for each row: the true one, or any other, all alike."""
    if count == 1:
        return np.zeros_like(true)
    kept = source.index_below(np.full(true.size, CHANCES)) < keep
    step = 1 + source.index_below(np.full(true.size, count - 1))
    return np.where(kept, true, (true + step) % count)
