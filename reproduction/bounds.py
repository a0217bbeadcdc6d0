"""The theorems and lemmas of the paper, corrected, as functions that return numbers.

A bound is looser than the exact error of `bagwise.theory.exact`. It is there for what it shows: on
which few quantities an error depends, and so what bags should be like. Where the paper states an
identity the function returns a plain number, and otherwise a `Bound`, with its condition in words.

=======================================  ===========================================================
the paper                                here
=======================================  ===========================================================
Thms 1 and 4, Prop 10                    `instance_bound`, `sorted_instance_bound`, `picking_norm`
Thms 2 and 5                             `bag_bound`
Thm 3                                    `aggregate_bound`, `sorted_aggregate_bound`
Prop 7, Lemmas 8, 9, 13, 14, 17-19       `spread`, `pick_distance`, `pick_variance`, `noisy_spread`,
                                         `sorted_spread_bound`, `centroid_scatter`
Lemmas 11 and 12, the random bags        `largest_eigenvalue_bound`, `bag_norm_bound`,
                                         `super_bag_eigenvalue_bound`, `super_bag_failure`,
                                         `super_bag_error_bound`
Thm 20                                   `super_bag_spread_bound`
Lemma 21, Thms 22 and 23                 in `reproduction.gradients`
a lower bound, which the paper leaves    `error_floor`
=======================================  ===========================================================

Notation and proofs are on the theory page, section "Every statement of the paper". Rows that are in
no bag do not count.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError
from bagwise.families import find_family
from bagwise.privacy.noise import check_label_kind
from bagwise.theory.exact import TrueModel, noise_per_bag, rows_in_bags

ANY_BAGS = "none: it holds for all bags, however they were formed"
AGNOSTIC = "the bags were formed without looking at the noise of the labels"


@dataclass(frozen=True)
class Bound:
    """A number that some quantity cannot exceed (or fall below), and when.

    Attributes
    ----------
    value : float
        Infinite where there is no finite bound, as with bags that do not determine theta.
    condition : str
        What has to hold.
    holds : bool or None
        Whether it does, for these arguments; None where they cannot tell, as they cannot tell how
        bags were formed.
    """

    value: float
    condition: str
    holds: bool | None


def least_eigenvalue(matrix: FloatArray) -> float:
    """Return the least eigenvalue; 0 where it cannot be told from rounding."""
    values = linalg.eigvalsh(matrix)
    rounding = 64 * len(values) * np.finfo(np.float64).eps * values[-1]
    return float(values[0]) if values[0] > rounding else 0.0


def trace_of_inverse(X: FloatArray) -> float:
    """Return ``tr (X'X)^-1``; infinite where there is no inverse."""
    gram = X.T @ X
    return float(np.sum(1 / linalg.eigvalsh(gram))) if least_eigenvalue(gram) > 0 else math.inf


def divide(total: float, least: float) -> float:
    """Return the quotient; infinite where nothing is left to divide by."""
    return total / least if least > 0 else math.inf


# The k-means objective of bags, in the forms in which the paper meets it.


def spread(values: FloatArray, bags: Bags) -> float:
    """Return the k-means objective: the squared distances of values to the mean of their bag.

    For rows, (n, d), it is the sum over the columns, and over those of any orthonormal basis.

    References
    ----------
    Lemma 13 (l1) and Lemma 18. Status: both hold; the basis has to be orthonormal.

    Examples
    --------
    >>> spread(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])))
    2.0
    """
    variance = bags.variance(np.asarray(values, dtype=np.float64))
    return float(np.sum(bags.sizes @ variance))


def pick_distance(values: FloatArray, bags: Bags) -> float:
    """Return the expected squared distance of values to those picked in their bags: twice spread.

    References
    ----------
    Prop 7 (event-MIR-k-means) with Lemmas 8 and 9. Status: holds.

    Examples
    --------
    >>> pick_distance(np.array([1.0, 3.0]), Bags(np.array([0, 0])))
    4.0
    """
    return 2 * spread(values, bags)


def pick_variance(values: FloatArray, bags: Bags) -> float:
    """Return the variances of a picked value, added up over bags.

    References
    ----------
    Lemma 17. Status: holds.

    Examples
    --------
    >>> pick_variance(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])))
    1.0
    """
    return float(np.sum(bags.variance(np.asarray(values, dtype=np.float64))))


def noisy_spread(values: FloatArray, bags: Bags, *, noise_sd: float) -> float:
    """Return the expected spread of values plus noise, in bags that do not depend on the noise.

    References
    ----------
    Lemma 14 (noisyclustering). Status: holds under this condition; `sorted_spread_bound` else, E7.

    Examples
    --------
    >>> noisy_spread(np.array([1.0, 3.0, 5.0, 5.0]), Bags(np.array([0, 0, 1, 1])), noise_sd=2.0)
    10.0
    """
    rows = int(bags.in_bag.sum())
    return spread(values, bags) + (rows - bags.n_bags) * noise_sd**2


def centroid_scatter(X: FloatArray, bags: Bags, *, direction: FloatArray) -> float:
    """Return ``sum_l (z'c_l)^2`` from what is lost: ``(|Xz|^2 - spread(Xz)) / k``.

    References
    ----------
    Lemma 19, which prints ``1/k^2``. Status: corrected, E5. For bags of one size k.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [3.0], [-2.0], [-2.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> centroid_scatter(X, bags, direction=np.array([1.0]))
    8.0
    """
    X, bags = rows_in_bags(X, bags)
    if np.ptp(bags.sizes) > 0:
        raise BagsError("this identity is about bags of one size.")
    projected = X @ direction
    return (float(projected @ projected) - spread(projected, bags)) / int(bags.sizes[0])


# Bounds on the error of each loss, for bags that were formed without looking at labels.


def instance_bound(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    label_kind: str,
    noise_sd: float | FloatArray = 0.0,
) -> Bound:
    """Bound the error of instance loss by the spread of expected labels within bags.

    ``(2 spread + min(n, d k_max) sigma^2 + d max_l n_l s_l^2) / lambda_min(G)`` for picks, and
    ``(spread + d sigma^2 + d max_l n_l s_l^2) / lambda_min(G)`` for means.

    References
    ----------
    Thm 1 (thm:MIR-event); with noise on the labels also the label-agnostic form of Thm 4. Status:
    corrected, E3: a pick counts for every row of its bag.

    Examples
    --------
    >>> X, bags = np.ones((6, 1)), Bags(np.array([0, 0, 0, 1, 1, 1]))
    >>> setting = {"theta": np.array([2.0]), "label_noise_sd": 1.0, "label_kind": "pick"}
    >>> instance_bound(X, bags, **setting).value   # and this is the exact error, too
    0.5
    """
    X, bags = rows_in_bags(X, bags)
    noise = noise_per_bag(noise_sd, bags) ** 2
    d, variance = X.shape[1], label_noise_sd**2
    within = spread(X @ theta, bags)
    if check_label_kind(label_kind) == "pick":
        total = 2 * within + min(bags.n_rows, d * int(bags.sizes.max())) * variance
    else:
        total = within + d * variance
    total += d * float(np.max(bags.sizes * noise))
    return Bound(divide(total, least_eigenvalue(X.T @ X)), AGNOSTIC, None)


def bag_bound(
    X: FloatArray, bags: Bags, *, label_noise_sd: float, noise_sd: float | FloatArray = 0.0
) -> Bound:
    """Bound the error of bag loss on means by the least eigenvalue of the bags' centroids.

    ``min(d max_l omega_l, sum_l omega_l) / lambda_min(N)``, ``omega_l = sigma^2 / n_l + s_l^2``;
    for bags of one size k and no privacy noise ``sigma^2 d / (k lambda_min(N))``.

    References
    ----------
    Thm 2 (thm:LLP-bag-UB1), with noise Thm 5 (thm:bag-llp-loss-priv). Status: corrected, E4: no
    condition number.

    Examples
    --------
    >>> bag_bound(np.array([[1.0], [1.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1])),
    ...           label_noise_sd=1.0).value
    0.05
    """
    X, bags = rows_in_bags(X, bags)
    omega = label_noise_sd**2 / bags.sizes + noise_per_bag(noise_sd, bags) ** 2
    return Bound(_centroid_error(X, bags, omega), AGNOSTIC, None)


def aggregate_bound(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    noise_sd: float | FloatArray = 0.0,
) -> Bound:
    """Bound the error of aggregate loss on picks.

    ``min(d max_l omega_l, sum_l omega_l) / lambda_min(N)``, ``omega_l = v_l + sigma^2 + s_l^2``;
    for bags of one size k the sum is ``(spread + n (sigma^2 + s^2)) / k``.

    References
    ----------
    Thm 3 (thm:MIR-agg-UB1), with noise its private form for label-agnostic bags. Status: corrected,
    E4 and E6.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [1.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> aggregate_bound(X, bags, theta=np.array([2.0]), label_noise_sd=1.0).value
    0.1
    """
    gaussian = find_family("gaussian")
    found = TrueModel.of(X, bags, theta, gaussian, label_noise_sd**2, "pick", noise_sd)
    return Bound(_centroid_error(found.X, found.bags, found.omega), AGNOSTIC, None)


def distance_bound(
    X: FloatArray,
    bags: Bags,
    *,
    labels: FloatArray,
    label_kind: str,
    noise_sd: float | FloatArray = 0.0,
) -> Bound:
    """Bound how far instance loss is from least squares on the row labels, for any bags.

    ``(2 spread of the labels + d max_l n_l s_l^2) / lambda_min(G)`` for picks; for means the spread
    counts once. **The result describes the labels: it is for whoever may see them.**

    References
    ----------
    F5. With ``+ sigma sqrt(tr G^-1)`` for the roots it replaces Thm 1 where bags depend on labels.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [1.0], [2.0], [2.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> distance_bound(X, bags, labels=np.array([1.0, 3.0, 2.0, 2.0]), label_kind="pick")
    Bound(value=0.4, condition='none: it holds for all bags, however they were formed', holds=True)
    """
    labels = np.asarray(labels, dtype=np.float64)[bags.in_bag]
    X, bags = rows_in_bags(X, bags)
    times = 2 if check_label_kind(label_kind) == "pick" else 1
    noise = float(np.max(bags.sizes * noise_per_bag(noise_sd, bags) ** 2))
    total = times * spread(labels, bags) + X.shape[1] * noise
    return Bound(divide(total, least_eigenvalue(X.T @ X)), ANY_BAGS, True)


def picking_norm(X: FloatArray, bags: Bags) -> Bound:
    """Bound ``|G^-1 X' A|_F^2``, by which the noise of picked labels is multiplied.

    It is ``sum_l |G^-1 s_l|^2`` whatever is picked, at most ``min(n, d k_max) / lambda_min(G)``.

    References
    ----------
    Prop 10 (lem:exp_var_term_mir_event). Status: corrected, E3.

    Examples
    --------
    >>> picking_norm(np.ones((6, 1)), Bags(np.array([0, 0, 0, 1, 1, 1]))).value
    0.5
    """
    X, bags = rows_in_bags(X, bags)
    count = min(bags.n_rows, X.shape[1] * int(bags.sizes.max()))
    return Bound(divide(count, least_eigenvalue(X.T @ X)), ANY_BAGS, True)


def _centroid_error(X: FloatArray, bags: Bags, omega: FloatArray) -> float:
    """Bound ``sum_l |N^-1 c_l|^2 omega_l`` in two ways."""
    centroids = bags.mean(X)
    total = min(X.shape[1] * float(np.max(omega)), float(np.sum(omega)))
    return divide(total, least_eigenvalue(centroids.T @ centroids))


# Bounds for bags that are sorted by noisy labels, and so know the noise of the labels.


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
    d = X.shape[1]
    signal = X @ theta
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
    K = sorted_spread_bound(
        X @ theta,
        bag_size=bag_size,
        label_noise_sd=label_noise_sd,
        score_noise_sd=score_noise_sd,
    )
    bags = X.shape[0] / bag_size
    total = K.value / bag_size + bags * (label_noise_sd**2 + noise_sd**2)
    condition = f"{K.condition}; and lambda_min(N) is at least {least_eigenvalue:g} for all of them"
    return Bound(divide(total, least_eigenvalue), condition, K.holds)


# Bounds for super-bags that are split into halves at random.


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
    return Bound(float(np.max(np.sum(X**2, axis=1))), ANY_BAGS, True)


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
    condition, holds = _random_halves(X, bag_size)
    value = (1 - t) * least_eigenvalue(X.T @ X) / (2 * bag_size * (2 * bag_size - 1))
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
    mu = super_bag_eigenvalue_bound(X, bag_size=bag_size, t=0.0).value
    exponent = mu / bag_norm_bound(X).value
    log_base = -t - (1 - t) * math.log1p(-t)
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
    return Bound(divide(omega * X.shape[1], least.value), least.condition, least.holds)


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
    condition = (
        f"super-bags of {2 * bag_size} rows that do not depend on labels, each split into halves "
        "at random, and both halves used"
    )
    return condition, None if len(X) % (2 * bag_size) == 0 else False


# A bound from below, for whatever is learnt from private means of bags.


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
