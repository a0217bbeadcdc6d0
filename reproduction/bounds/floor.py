"""A bound from below, for whatever is learnt from private means of bags."""

import math

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from reproduction.bounds.bound import Bound, as_matrix, trace_of_inverse

_MOST_ROUNDS = 300


def error_floor(
    X: FloatArray, *, label_noise_sd: float, label_range: float = 0.0, mu: float = math.inf
) -> Bound:
    """Bound from below the error of whatever is learnt, without bias, from private means of bags.

    ``sigma^2 tr G^-1 + (range/mu)^2 tr(Q^(2/3))^3 / (sum_i |Q x_i|)^2`` for any positive definite
    Q; the best one is found by iteration. The second part is attained by releasing coefficients
    directly.

    Parameters
    ----------
    label_range : float
        ``hi - lo``, by which one label can change.
    mu : float
        Strength of the Gaussian privacy: a bag of n_l rows carries noise ``range / (n_l mu)``.

    References
    ----------
    "Bags cannot beat it" on the theory page; the paper names lower bounds as an open question.

    Examples
    --------
    >>> round(error_floor(np.ones((100, 1)), label_noise_sd=1.0, label_range=2.0, mu=0.5).value, 6)
    0.0116
    """
    X = as_matrix(X)
    condition = (
        "bags by features or by chance, means of bags with Gaussian noise, and a linear decoder "
        "without bias"
    )
    trace = trace_of_inverse(X)
    if math.isinf(trace):
        return Bound(math.inf, condition, None)
    value = label_noise_sd**2 * trace
    if label_range > 0 and math.isfinite(mu):
        value += (label_range / mu) ** 2 * _least_trace(X)
    return Bound(value, condition, None)


def _least_trace(X: FloatArray) -> float:
    """Return ``max over Q of tr(Q^(2/3))^3 / (sum_i |Q x_i|)^2``, or a little less.

    Whatever the iteration does, the value is that of some Q, and so a valid lower bound.
    """
    A = X.T @ X
    for _ in range(_MOST_ROUNDS):
        own, axes = linalg.eigh(A)
        lengths = np.linalg.norm(X @ (axes * own**-0.75), axis=1)
        weights = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        new = (X * weights[:, None]).T @ X
        # The map multiplies a scale c of A by c^(3/4): setting it right at once saves rounds.
        growth = float(np.trace(linalg.solve(A, new, assume_a="pos"))) / len(own)
        new *= growth**3
        settled = np.abs(new - A).max() <= 1e-12 * np.abs(A).max()
        A = (new + new.T) / 2
        if settled:
            break
    own, axes = linalg.eigh(A)
    lengths = np.linalg.norm(X @ (axes * own**-0.75), axis=1)
    return float(np.sum(own**-0.5)) ** 3 / float(np.sum(lengths)) ** 2
