"""Bounds on the error of each loss, for bags that were formed without looking at labels."""

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import find_family
from bagwise.privacy.noise import check_label_kind
from bagwise.theory.exact import TrueModel, noise_per_bag, rows_in_bags
from reproduction.bounds.bound import (
    AGNOSTIC,
    ANY_BAGS,
    Bound,
    as_vector,
    divide,
    least_eigenvalue,
)
from reproduction.bounds.objective import spread


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
    within = spread(X @ as_vector(theta, d), bags)
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
