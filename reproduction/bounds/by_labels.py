"""Bounds for bags that are sorted by noisy labels, and so know the noise of the labels."""

import math

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from reproduction.bounds.bound import (
    Bound,
    as_matrix,
    as_vector,
    divide,
    least_eigenvalue,
    trace_of_inverse,
)
from reproduction.bounds.objective import noisy_spread


def sorted_spread_bound(
    values: FloatArray, *, bag_size: int, label_noise_sd: float, score_noise_sd: float
) -> Bound:
    """Bound the expected spread of noisy labels in bags that were sorted by them, plus more noise.

    With the best bags for the values, of spread OPT, it is at most
    ``(sqrt(OPT + (n - m)(sigma^2 + a)) + sqrt(n a))^2``, a the variance of the added noise; and at
    most the expected spread in one large bag. With ``label_noise_sd=0`` it is about the values.

    References
    ----------
    Lemma 14 (noisyclustering) as Thm 4 uses it. Status: corrected, E7.

    Examples
    --------
    >>> bound = sorted_spread_bound(np.arange(6.0), bag_size=2, label_noise_sd=0.0,
    ...                             score_noise_sd=0.0)
    >>> round(bound.value, 9)
    1.5
    """
    values = np.asarray(values, dtype=np.float64)
    n = values.size
    if not 1 <= bag_size <= n:
        raise StrategyError(f"bag_size must be between 1 and {n}, got {bag_size}.")
    divides = n % bag_size == 0
    ordered = Bags(np.minimum(np.arange(n) // bag_size, n // bag_size - 1))
    noise = label_noise_sd**2 + score_noise_sd**2
    best = noisy_spread(np.sort(values), ordered, noise_sd=math.sqrt(noise))
    sorted_by_noise = (math.sqrt(best) + math.sqrt(n) * score_noise_sd) ** 2
    anyhow = n * float(values.var()) + (n - 1) * label_noise_sd**2
    condition = (
        f"bags of {bag_size} rows each: the labels, plus noise that is independent of all else, "
        "sorted and cut"
    )
    return Bound(min(sorted_by_noise, anyhow), condition, None if divides else False)


def sorted_instance_bound(
    X: FloatArray,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    bag_size: int,
    score_noise_sd: float = 0.0,
    noise_sd: float = 0.0,
) -> Bound:
    """Bound the error of instance loss on picks from bags that are sorted by the noisy labels.

    ``(sqrt((2 K + d k s^2) / lambda_min(G)) + sigma sqrt(tr G^-1))^2``, where K bounds the expected
    spread of the labels (`sorted_spread_bound`).

    References
    ----------
    Thm 4 (thm:instance-mir-loss-priv). Status: corrected, E3 and E7. Which noise is private is
    another matter: E1 and E2.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> bound = sorted_instance_bound(X, theta=np.array([1.0]), label_noise_sd=0.1, bag_size=10)
    >>> 0 < bound.value < 0.1
    True
    """
    X = as_matrix(X)
    d = X.shape[1]
    signal = X @ as_vector(theta, d)
    K = sorted_spread_bound(
        signal, bag_size=bag_size, label_noise_sd=label_noise_sd, score_noise_sd=score_noise_sd
    )
    from_bags = divide(2 * K.value + d * bag_size * noise_sd**2, least_eigenvalue(X.T @ X))
    from_labels = label_noise_sd**2 * trace_of_inverse(X)
    return Bound((math.sqrt(from_bags) + math.sqrt(from_labels)) ** 2, K.condition, K.holds)


def sorted_aggregate_bound(
    X: FloatArray,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    bag_size: int,
    least_eigenvalue: float,
    score_noise_sd: float = 0.0,
    noise_sd: float = 0.0,
) -> Bound:
    """Bound the error of aggregate loss on picks from bags that are sorted by the noisy labels.

    ``(K / k + m (sigma^2 + s^2)) / lambda`` where K bounds the expected spread of the labels and
    all bags that can come about have ``lambda_min(N) >= lambda``. It does not vanish with more
    rows, and neither does the error: see `reproduction.selection.selection_factor`.

    References
    ----------
    The private form of Thm 3 with bags by noisy labels. Status: corrected, E6, E7 and E8.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> bound = sorted_aggregate_bound(X, theta=np.array([1.0]), label_noise_sd=0.1, bag_size=10,
    ...                                least_eigenvalue=5.0)
    >>> 0 < bound.value < 0.1
    True
    """
    X = as_matrix(X)
    K = sorted_spread_bound(
        X @ as_vector(theta, X.shape[1]),
        bag_size=bag_size,
        label_noise_sd=label_noise_sd,
        score_noise_sd=score_noise_sd,
    )
    bags = X.shape[0] / bag_size
    total = K.value / bag_size + bags * (label_noise_sd**2 + noise_sd**2)
    condition = f"{K.condition}; and lambda_min(N) is at least {least_eigenvalue:g} for all of them"
    return Bound(divide(total, least_eigenvalue), condition, K.holds)
