"""The paper's bounds as they are printed, to be put beside those that hold.

The errors, norms and gradients have their corrected forms in `reproduction.bounds`, under the
same arguments. Where the paper has constants "independent of the bags", those of its full versions
in the appendix are used. Errata are those of the theory page.
"""

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family, find_family
from reproduction.bounds import spread


def printed_instance_error(
    X: FloatArray, bags: Bags, *, theta: FloatArray, label_noise_sd: float
) -> float:
    """Return the bound on the error of instance loss on picks.

    References
    ----------
    Thm 1 (thm:MIR-event) with Prop 7 and Prop 10: ``(2 spread + d sigma^2) / lambda_min(G)``.
    Status: false, E3.

    Examples
    --------
    >>> X, bags = np.ones((6, 1)), Bags(np.array([0, 0, 0, 1, 1, 1]))
    >>> round(printed_instance_error(X, bags, theta=np.array([2.0]), label_noise_sd=1.0), 6)
    0.166667
    """
    least, _ = _ends(X.T @ X)
    return (2 * spread(X @ theta, bags) + int(X.shape[1]) * label_noise_sd**2) / least


def printed_picking_norm(X: FloatArray) -> float:
    """Return the bound on the norm by which the noise of picked labels is multiplied.

    References
    ----------
    Prop 10 (lem:exp_var_term_mir_event): ``d / lambda_min(G)``. Status: false, E3.

    Examples
    --------
    >>> printed_picking_norm(np.ones((4, 1)))
    0.25
    """
    return int(X.shape[1]) / _ends(X.T @ X)[0]


def printed_bag_error(X: FloatArray, bags: Bags, *, label_noise_sd: float) -> float:
    """Return the bound on the error of bag loss on means.

    References
    ----------
    Thm 2 (thm:LLP-bag-UB1): ``sigma^2 (lambda_max/lambda_min)^2 sum_l 1/n_l`` with the eigenvalues
    of N. Status: false, E4.

    Examples
    --------
    >>> printed_bag_error(np.ones((4, 1)), Bags(np.array([0, 0, 1, 1])), label_noise_sd=1.0)
    1.0
    """
    return _condition(X, bags) ** 2 * label_noise_sd**2 * float(np.sum(1 / bags.sizes))


def printed_aggregate_error(
    X: FloatArray, bags: Bags, *, theta: FloatArray, label_noise_sd: float
) -> float:
    """Return the bound of the appendix on the error of aggregate loss on picks.

    References
    ----------
    Thm 3 (thm:MIR-agg-UB1), full version: ``(sum_l v_l + n sigma^2) / lambda_min(N)``. Status:
    holds, and is too large by about k, E6.

    Examples
    --------
    >>> X, bags = np.ones((4, 1)), Bags(np.array([0, 0, 1, 1]))
    >>> printed_aggregate_error(X, bags, theta=np.array([1.0]), label_noise_sd=1.0)
    2.0
    """
    chosen = float(np.sum(bags.variance(X @ theta)))
    centroids = bags.mean(X)
    return (chosen + len(X) * label_noise_sd**2) / _ends(centroids.T @ centroids)[0]


def printed_aggregate_condition_error(
    X: FloatArray, bags: Bags, *, theta: FloatArray, label_noise_sd: float
) -> float:
    """Return the bound of the main text on the error of aggregate loss on picks.

    References
    ----------
    Thm 3 (thm:MIR-agg-UB1): ``C1 (lambda_max/lambda_min)^2 (C2 + spread)`` with the eigenvalues of
    N, here with ``C1 = 1/k`` and ``C2 = n k sigma^2``. Status: false, E4.

    Examples
    --------
    >>> X, bags = np.ones((4, 1)), Bags(np.array([0, 0, 1, 1]))
    >>> printed_aggregate_condition_error(X, bags, theta=np.array([1.0]), label_noise_sd=1.0)
    4.0
    """
    size = int(bags.sizes.max())
    noise = len(X) * size * label_noise_sd**2
    return _condition(X, bags) ** 2 * (noise + spread(X @ theta, bags)) / size


def printed_private_instance_error(
    X: FloatArray,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    bag_size: int,
    alpha: float,
) -> float:
    """Return the bound on the error of instance loss on private picks from bags by noisy labels.

    References
    ----------
    Thm 4 (thm:instance-mir-loss-priv), full version: ``(2 (OPT + n (1 - 1/k) alpha^2) + d (sigma^2
    + alpha^2/k^2)) / lambda_min(G)``. Status: false, E3 and E7, besides the noise, E1 and E2.

    Examples
    --------
    >>> printed_private_instance_error(np.ones((4, 1)), theta=np.array([1.0]), label_noise_sd=0.0,
    ...                                bag_size=2, alpha=1.0)
    1.0625
    """
    n, d = int(X.shape[0]), int(X.shape[1])
    best = spread(np.sort(X @ theta), Bags(np.arange(n) // bag_size))
    placed = printed_noisy_spread(best, n=n, bag_size=bag_size, alpha=alpha)
    noise = d * (label_noise_sd**2 + (alpha / bag_size) ** 2)
    return (2 * placed + noise) / _ends(X.T @ X)[0]


def printed_private_bag_error(
    X: FloatArray, bags: Bags, *, label_noise_sd: float, alpha: float
) -> float:
    """Return the error of bag loss on private means.

    References
    ----------
    Thm 5 (thm:bag-llp-loss-priv), full version: ``(lambda_max/lambda_min)^2 (sigma^2 + alpha^2/k)
    m/k`` with the eigenvalues of N, as an equation. Status: false, E4.

    Examples
    --------
    >>> printed_private_bag_error(np.ones((4, 1)), Bags(np.array([0, 0, 1, 1])),
    ...                           label_noise_sd=1.0, alpha=1.0)
    1.5
    """
    size = int(bags.sizes.max())
    noise = label_noise_sd**2 + alpha**2 / size
    return _condition(X, bags) ** 2 * noise * bags.n_bags / size


def printed_noisy_spread(best: float, *, n: int, bag_size: int, alpha: float) -> float:
    """Return the spread of expected labels in bags that were sorted by noisy ones.

    References
    ----------
    Lemma 14 (noisyclustering) as Thm 4 uses it: ``OPT + n (1 - 1/k) alpha^2``. Status: false, E7.

    Examples
    --------
    >>> printed_noisy_spread(1.0, n=10, bag_size=2, alpha=2.0)
    21.0
    """
    return best + n * (1 - 1 / bag_size) * alpha**2


def printed_pick_noise(bags: Bags, *, label_noise_sd: float) -> float:
    """Return the expected squared length of the noise of picked labels, one per bag.

    References
    ----------
    Proof of Thm 3: ``n sigma^2``. Status: false, E6: there are m of them.

    Examples
    --------
    >>> printed_pick_noise(Bags(np.array([0, 0, 1, 1])), label_noise_sd=1.0)
    4.0
    """
    return float(bags.n_rows * label_noise_sd**2)


def printed_largest_eigenvalue(X: FloatArray) -> float:
    """Return the bound on the largest eigenvalue of N.

    References
    ----------
    Lemma 11 (lem:lambda_max_bound): ``lambda_max(G)``. Status: holds, and is too large by k.

    Examples
    --------
    >>> printed_largest_eigenvalue(np.ones((4, 1)))
    4.0
    """
    return _ends(X.T @ X)[1]


def printed_bag_norm(X: FloatArray, *, bag_size: int) -> float:
    """Return the bound on ``lambda_max`` of a bag's matrix ``X_l' X_l``.

    References
    ----------
    Lemma 12: ``k beta`` with beta the largest ``|x_i|^2``. Status: holds for the Gram matrix of the
    rows. The proof uses it for ``s_l s_l'``, which can be ``k^2 beta``.

    Examples
    --------
    >>> printed_bag_norm(np.ones((4, 1)), bag_size=2)
    2.0
    """
    return bag_size * float(np.max(np.sum(X**2, axis=1)))


def printed_pair_probability(*, bag_size: int) -> float:
    """Return the probability that two given rows of a super-bag are in its first half.

    References
    ----------
    Before Lemma 12: ``(k-1)/(2k-1)``. Status: false by a factor of 2; the next line is right again.

    Examples
    --------
    >>> printed_pair_probability(bag_size=2)   # of 4 rows, 6 pairs: one in six
    0.3333333333333333
    """
    return (bag_size - 1) / (2 * bag_size - 1)


def printed_random_error(X: FloatArray, *, bag_size: int, t: float, label_noise_sd: float) -> float:
    """Return the bound on the error of bag loss for random halves of super-bags.

    References
    ----------
    After Lemma 12: ``16 sigma^2 n k^2 (lambda_max/lambda_min)^2 / (1-t)^2`` with the eigenvalues of
    G. Status: false, E4.

    Examples
    --------
    >>> printed_random_error(np.ones((4, 1)), bag_size=1, t=0.0, label_noise_sd=1.0)
    64.0
    """
    least, largest = _ends(X.T @ X)
    noise = 16 * label_noise_sd**2 * len(X) * bag_size**2
    return noise * (largest / least / (1 - t)) ** 2


def printed_centroid_scatter(X: FloatArray, bags: Bags, *, direction: FloatArray) -> float:
    """Return the scatter of centroids along a direction.

    References
    ----------
    Lemma 19: ``(|Xz|^2 - spread(Xz)) / k^2``. Status: false, E5.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [3.0], [-2.0], [-2.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> printed_centroid_scatter(X, bags, direction=np.array([1.0]))   # 4 + 4 in truth
    4.0
    """
    projected = X @ direction
    return float(projected @ projected - spread(projected, bags)) / int(bags.sizes[0]) ** 2


def printed_distance(loss: float, *, least_curvature: float) -> float:
    """Return the bound on ``|theta_hat - theta|`` by the loss at theta.

    References
    ----------
    Lemma 21 (lem:min_grad_strongly_convex): ``|L(theta)| / mu``. Status: false, E11.

    Examples
    --------
    >>> printed_distance(-2.0, least_curvature=4.0)
    0.5
    """
    return abs(loss) / least_curvature


def printed_instance_gradient(
    X: FloatArray, bags: Bags, *, theta: FloatArray, family: str | Family, phi: float = 1.0
) -> float:
    """Return the bound on the expected length of the gradient of instance loss on picks.

    References
    ----------
    Thm 22 (thm:glm-mir-event-loss): ``m (|mu|^2 + sum_i Var y_i) + |(S-I) mu|^2 - |S mu|^2``.
    Status: false, E11: nothing in it depends on the length of X.

    Examples
    --------
    >>> X, bags = np.ones((2, 1)), Bags(np.array([0, 0]))
    >>> printed_instance_gradient(X, bags, theta=np.array([0.0]), family="poisson")
    2.0
    """
    means, total = _printed_labels(X, bags, theta, family, phi)
    kept = bags.mean(means)
    return total + spread(means, bags) - float(bags.sizes @ kept**2)


def printed_aggregate_gradient(
    X: FloatArray, bags: Bags, *, theta: FloatArray, family: str | Family, phi: float = 1.0
) -> float:
    """Return the bound on the expected length of the gradient of aggregate loss on picks.

    References
    ----------
    Thm 23 (thm:glm-agg-mir): ``n lambda_max(G) (m (|mu|^2 + sum_i Var y_i) + sum_l gap_l^2
    - sum_l mu_l^2)``. Status: false, E11: a length is compared with a square.

    Examples
    --------
    >>> X, bags = np.ones((2, 1)), Bags(np.array([0, 0]))
    >>> printed_aggregate_gradient(X, bags, theta=np.array([0.0]), family="poisson")
    12.0
    """
    means, total = _printed_labels(X, bags, theta, family, phi)
    kept = bags.mean(means)
    gap = kept - find_family(family).mean(bags.mean(X @ theta))
    return len(X) * _ends(X.T @ X)[1] * float(total + gap @ gap - kept @ kept)


def _printed_labels(
    X: FloatArray, bags: Bags, theta: FloatArray, family: str | Family, phi: float
) -> tuple[FloatArray, float]:
    found, eta = find_family(family), X @ theta
    means = found.mean(eta)
    return means, bags.n_bags * float(means @ means + phi * np.sum(found.variance(eta)))


def _condition(X: FloatArray, bags: Bags) -> float:
    centroids = bags.mean(X)
    least, largest = _ends(centroids.T @ centroids)
    return largest / least


def _ends(matrix: FloatArray) -> tuple[float, float]:
    values = linalg.eigvalsh(matrix)
    return float(values[0]), float(values[-1])
