"""What to expect of bags that depend on the labels, and of labels that were clipped.

The exact errors of `bagwise.theory.exact` are for bags formed without looking at the noise of the
labels. Bags that are sorted by the labels themselves break that rule: rows with high noise come
together, and their average keeps it. Which slopes the losses then estimate has a closed form if
features and noise are Gaussian and each bag is a small part of all rows:

================  ================================================================================
loss              slopes are multiplied by
================  ================================================================================
bag, aggregate    `selection_factor`, at least 1
instance          `sorting_shrinkage`, at most 1
================  ================================================================================

Throughout, ``signal_sd`` is the standard deviation of ``x'theta`` over rows, ``label_noise_sd``
that of a label around it, and rows are sorted by the label plus independent noise of standard
deviation ``score_noise_sd``. With 0 they are sorted by the labels. Features are centred, or the
model has an intercept: the factors are those of slopes.

References
----------
E7, E8 and E9 of the theory page, with proofs.
"""

import math

import numpy as np
from scipy import stats

from bagwise._types import FloatArray
from bagwise.errors import BagsError
from bagwise.rows.labels import Bounds


def selection_factor(
    *, signal_sd: float, label_noise_sd: float, bag_size: int, score_noise_sd: float = 0.0
) -> float:
    """Return by what bag and aggregate loss multiply slopes if rows were sorted by the labels.

    ``1 + (1 - 1/k) s^2 / ((1 - 1/k) t^2 + (t^2 + s^2 + a) / k)``, with t^2, s^2 and a the variances
    of signal, label noise and score noise; ``(t^2 + s^2) / (t^2 + s^2/k)`` without score noise.

    Examples
    --------
    >>> selection_factor(signal_sd=1.0, label_noise_sd=1.0, bag_size=2)
    1.3333333333333333
    >>> selection_factor(signal_sd=1.0, label_noise_sd=0.0, bag_size=2)
    1.0
    """
    signal, noise, added = signal_sd**2, label_noise_sd**2, score_noise_sd**2
    share = 1 / bag_size
    kept = (1 - share) * signal + (signal + noise + added) * share
    return 1 + (1 - share) * noise / kept


def sorted_moments(
    *,
    theta: FloatArray,
    covariance: FloatArray,
    label_noise_sd: float,
    bag_size: int,
    n_bags: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the bias and the covariance of bag loss on means of bags sorted by the labels.

    With f the `selection_factor`, ``t^2 = theta' S theta``, ``v = t^2 + s^2`` and
    ``C = S/k + (1 - 1/k) S theta theta' S / v`` the covariance of a centroid, the bias is
    ``(f - 1) theta`` and the covariance ``f s^2/k C^-1 / (m - d - 1)``: centroid and mean label are
    jointly Gaussian, and the label's variance around its regression on the centroid is ``f s^2/k``.
    The expected squared error is ``|bias|^2`` and the trace together.

    Parameters
    ----------
    theta : (d,)
    covariance : (d, d)
        S, of a row; the features are centred and Gaussian, and there is no intercept.
    n_bags : int
        m, each of `bag_size` rows that are neighbours by label, or a random part of such.

    Examples
    --------
    >>> bias, covariance = sorted_moments(theta=np.ones(1), covariance=np.eye(1),
    ...                                   label_noise_sd=1.0, bag_size=2, n_bags=1_000)
    >>> bias.round(6), covariance.round(6)   # f is 4/3
    (array([0.333333]), array([[0.000891]]))
    """
    if n_bags <= theta.size + 1:
        raise BagsError(f"the error is finite from {theta.size + 2} bags on, got {n_bags}.")
    pull = covariance @ theta
    signal = float(theta @ pull)
    factor = selection_factor(
        signal_sd=math.sqrt(signal), label_noise_sd=label_noise_sd, bag_size=bag_size
    )
    noise = label_noise_sd**2
    centroid = covariance / bag_size + (1 - 1 / bag_size) / (signal + noise) * np.outer(pull, pull)
    left = factor * noise / bag_size / (n_bags - theta.size - 1)
    return (factor - 1) * theta, left * np.asarray(np.linalg.inv(centroid))


def sorting_shrinkage(
    *, signal_sd: float, label_noise_sd: float, bag_size: int, score_noise_sd: float
) -> float:
    """Return by what instance loss multiplies slopes if rows were sorted by noisy labels.

    ``1/k + (1 - 1/k) (t^2 + s^2) / (t^2 + s^2 + a)``: 1 without score noise, since such bags show
    the labels; and 1/k, as for random bags, with very much of it.

    Examples
    --------
    >>> setting = {"signal_sd": 1.0, "label_noise_sd": 0.0, "bag_size": 4}
    >>> sorting_shrinkage(**setting, score_noise_sd=0.0)
    1.0
    >>> sorting_shrinkage(**setting, score_noise_sd=1.0)
    0.625
    """
    signal, noise, added = signal_sd**2, label_noise_sd**2, score_noise_sd**2
    share = 1 / bag_size
    return share + (1 - share) * (signal + noise) / (signal + noise + added)


def sorted_spread(
    *, n: int, bag_size: int, signal_sd: float, score_noise_sd: float, score_spread: float = 0.0
) -> float:
    """Return the expected spread within bags of values that were sorted by noisy versions.

    ``n (1 - 1/k) t^2 a / (t^2 + a) + (t^2 / (t^2 + a))^2 * score_spread`` for Gaussian values of
    variance t^2 and noise of variance a. `score_spread` is the spread of the noisy versions in the
    same bags: small after sorting, and 0 is near enough for large n. Under privacy a is the
    variance of the label noise and of the privacy noise together.

    Examples
    --------
    >>> sorted_spread(n=100, bag_size=10, signal_sd=1.0, score_noise_sd=1.0)
    45.0
    >>> round(sorted_spread(n=100, bag_size=10, signal_sd=1.0, score_noise_sd=1e6), 6)   # random
    90.0
    """
    signal, added = signal_sd**2, score_noise_sd**2
    known = signal / (signal + added)
    return (n - n / bag_size) * known * added + known**2 * score_spread


def random_shrinkage(*, n: int, bag_size: int) -> float:
    """Return rho, by which instance loss multiplies slopes on average over random bags.

    ``(n - k) / (k (n - 1))``, about 1/k.

    Examples
    --------
    >>> random_shrinkage(n=10, bag_size=1), random_shrinkage(n=10, bag_size=10)
    (1.0, 0.0)
    >>> round(random_shrinkage(n=10_000, bag_size=10), 4)
    0.0999
    """
    return (n - bag_size) / (bag_size * (n - 1))


def expected_scatter(X: FloatArray, *, bag_size: int) -> FloatArray:
    """Return the mean of ``M = sum_l s_l s_l' / n_l`` over all partitions into bags of one size.

    ``rho G + (1 - rho) n xbar xbar'``, exactly: in the direction of the mean row nothing is lost,
    so that an intercept is never shrunk.

    Examples
    --------
    >>> expected_scatter(np.array([[1.0], [1.0], [1.0], [1.0]]), bag_size=2)
    array([[4.]])
    >>> expected_scatter(np.array([[1.0], [-1.0], [1.0], [-1.0]]), bag_size=2).round(3)
    array([[1.333]])
    """
    n = X.shape[0]
    rho = random_shrinkage(n=n, bag_size=bag_size)
    total = X.sum(axis=0)
    return np.asarray(rho * (X.T @ X) + (1 - rho) / n * np.outer(total, total))


def clipping_factor(bounds: Bounds, *, label_mean: float, label_sd: float) -> float:
    """Return by what clipping labels to bounds multiplies slopes: the share of labels inside.

    For labels that are jointly Gaussian with the features, with this mean and standard deviation:
    ``Cov(x, clip(y)) = P(lo < y < hi) Cov(x, y)`` (Stein's lemma).

    Examples
    --------
    >>> round(clipping_factor((-2.0, 2.0), label_mean=0.0, label_sd=1.0), 4)
    0.9545
    """
    ends = stats.norm.cdf(bounds, loc=label_mean, scale=label_sd)
    return float(ends[1] - ends[0])
