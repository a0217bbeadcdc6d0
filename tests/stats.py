"""Tolerances derived from a false-alarm rate, never tuned.

A check that a mean is right passes for a true mean except with probability `alpha`. Each use has a
twin that must fail when the thing is wrong by a little, so that a check without power is noticed.
"""

import numpy as np
from scipy import stats

ALPHA = 1e-6


def mean_is(sample, expected, *, alpha=ALPHA):
    """Whether the sample mean lies within its normal-theory interval around `expected`."""
    sample = np.asarray(sample, dtype=float)
    error = sample.std(ddof=1) / np.sqrt(sample.size)
    return bool(abs(sample.mean() - expected) <= stats.norm.isf(alpha / 2) * error)


def sd_is(sample, expected, *, alpha=ALPHA):
    """Whether a Gaussian sample around zero has this standard deviation (chi-square interval)."""
    sample = np.asarray(sample, dtype=float)
    total = np.sum(sample**2) / expected**2
    low, high = stats.chi2.ppf([alpha / 2, 1 - alpha / 2], sample.size)
    return bool(low <= total <= high)


def is_uniform(counts, *, alpha=ALPHA):
    """Whether counts of equally likely outcomes pass a chi-square test."""
    return bool(stats.chisquare(np.asarray(counts)).pvalue > alpha)
