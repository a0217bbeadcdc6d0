"""Bounds for super-bags that are split into halves at random."""

import math

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.theory.exact import rows_in_bags
from reproduction.bounds.bound import ANY_BAGS, Bound, as_matrix, divide, least_eigenvalue
from reproduction.bounds.objective import spread


def largest_eigenvalue_bound(X: FloatArray, bags: Bags) -> Bound:
    """Bound ``lambda_max(N)`` by ``lambda_max(G) / k_min``.

    References
    ----------
    Lemma 11 (lem:lambda_max_bound), which leaves out ``k_min``. Status: holds, and this is tighter.

    Examples
    --------
    >>> largest_eigenvalue_bound(np.ones((4, 1)), Bags(np.array([0, 0, 1, 1]))).value
    2.0
    """
    X, bags = rows_in_bags(X, bags)
    largest = float(linalg.eigvalsh(X.T @ X)[-1])
    return Bound(largest / int(bags.sizes.min()), ANY_BAGS, True)


def bag_norm_bound(X: FloatArray) -> Bound:
    """Bound ``lambda_max(c c')``, with c the centroid of any bag, by the largest ``|x_i|^2``.

    References
    ----------
    Lemma 12 bounds the Gram matrix of a bag's rows; the proof needs this instead. Status:
    corrected.

    Examples
    --------
    >>> bag_norm_bound(np.array([[3.0, 4.0], [0.0, 1.0]])).value
    25.0
    """
    return Bound(float(np.max(np.sum(as_matrix(X) ** 2, axis=1))), ANY_BAGS, True)


def super_bag_eigenvalue_bound(X: FloatArray, *, bag_size: int, t: float) -> Bound:
    """Bound ``lambda_min(N)`` from below for random halves of any super-bags.

    ``(1 - t) lambda_min(G) / (2k (2k - 1))``, except with the probability `super_bag_failure`.

    References
    ----------
    The random bags of Lemmas 11 and 12. Status: corrected; the paper has ``4 k^2``, which is true.

    Examples
    --------
    >>> super_bag_eigenvalue_bound(np.ones((24, 1)), bag_size=3, t=0.5).value
    0.4
    """
    X = as_matrix(X)
    condition, holds = _random_halves(X, bag_size)
    value = (1 - _share(t)) * least_eigenvalue(X.T @ X) / (2 * bag_size * (2 * bag_size - 1))
    return Bound(value, condition, holds)


def super_bag_failure(X: FloatArray, *, bag_size: int, t: float) -> Bound:
    """Bound the probability that `super_bag_eigenvalue_bound` does not hold; it may be useless.

    ``d (e^-t / (1-t)^(1-t))^(mu/beta)`` with ``mu = lambda_min(G) / (2k (2k-1))`` and beta the
    largest ``|x_i|^2``; 1 where that is more.

    References
    ----------
    Tropp (2012), Corollary 5.2, for ``c_l c_l'``. The paper divides the exponent by k for want of
    `bag_norm_bound`: true, and weaker.

    Examples
    --------
    >>> round(super_bag_failure(np.ones((2400, 1)), bag_size=3, t=0.5).value, 6)
    5e-06
    """
    X = as_matrix(X)
    mu = super_bag_eigenvalue_bound(X, bag_size=bag_size, t=0.0).value
    exponent = mu / bag_norm_bound(X).value
    log_base = -t - (1 - t) * math.log1p(-_share(t))
    value = min(1.0, X.shape[1] * math.exp(exponent * log_base))
    return Bound(value, *_random_halves(X, bag_size))


def super_bag_error_bound(
    X: FloatArray, *, bag_size: int, t: float, label_noise_sd: float, noise_sd: float = 0.0
) -> Bound:
    """Bound the error of bag loss on means for random halves of super-bags.

    ``2 (2k - 1) d (sigma^2 + k s^2) / ((1 - t) lambda_min(G))``, except with the probability
    `super_bag_failure`.

    References
    ----------
    The final display on random bags, ``16 sigma^2 n k^2 (lambda_max/lambda_min)^2 / (1-t)^2``.
    Status: corrected, E4.

    Examples
    --------
    >>> X = np.ones((24, 1))
    >>> round(super_bag_error_bound(X, bag_size=3, t=0.5, label_noise_sd=1.0).value, 9)
    0.833333333
    """
    least = super_bag_eigenvalue_bound(X, bag_size=bag_size, t=t)
    omega = label_noise_sd**2 / bag_size + noise_sd**2
    return Bound(divide(omega * as_matrix(X).shape[1], least.value), least.condition, least.holds)


def super_bag_spread_bound(values: FloatArray, super_bags: Bags, bags: Bags) -> Bound:
    """Bound the spread in bags by that in the super-bags which they split.

    References
    ----------
    Thm 20. Status: holds, for any way to split; each split in halves gains
    ``(sum of one - sum of the other)^2 / (2k)``, which may be 0.

    Examples
    --------
    >>> whole, halves = Bags(np.array([0, 0, 0, 0])), Bags(np.array([0, 0, 1, 1]))
    >>> super_bag_spread_bound(np.array([0.0, 0.0, 2.0, 2.0]), whole, halves).value
    4.0
    """
    pairs = np.unique(np.column_stack([bags.index, super_bags.index])[bags.in_bag], axis=0)
    inside = len(pairs) == bags.n_bags and bool(np.all(pairs[:, 1] >= 0))
    condition = "each bag lies inside one super-bag"
    return Bound(spread(values, super_bags), condition, inside)


def _random_halves(X: FloatArray, bag_size: int) -> tuple[str, bool | None]:
    n = X.shape[0]
    if bag_size < 1:
        raise StrategyError(f"bag_size must be positive, got {bag_size}.")
    condition = (
        f"super-bags of {2 * bag_size} rows that do not depend on labels, each split into halves "
        "at random, and both halves used"
    )
    return condition, None if n % (2 * bag_size) == 0 else False


def _share(t: float) -> float:
    if not 0 <= t < 1:
        raise StrategyError(f"t must be at least 0 and below 1, got {t:g}.")
    return t
