"""Bounds for generalised linear models, by the gradient of the loss at the true theta."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family, find_family
from bagwise.privacy.noise import check_label_kind
from bagwise.theory.exact import TrueModel, rows_in_bags
from reproduction.bounds import AGNOSTIC, Bound, divide


def distance_from_gradient(
    gradient: FloatArray, *, least_curvature: float, largest_curvature: float = math.inf
) -> tuple[Bound, Bound]:
    """Bound ``|theta_hat - theta|`` from below and above by the gradient of the loss at theta.

    ``|gradient| / largest_curvature`` and ``|gradient| / least_curvature``.

    References
    ----------
    Lemma 21 (lem:min_grad_strongly_convex), which prints the loss in place of its gradient. Status:
    corrected, E11. Few families have such curvatures everywhere; the segment is enough.

    Examples
    --------
    >>> low, high = distance_from_gradient(np.array([3.0, 4.0]), least_curvature=2.0,
    ...                                    largest_curvature=10.0)
    >>> low.value, high.value
    (0.5, 2.5)
    """
    length = float(np.linalg.norm(gradient))
    condition = "between theta and the minimum, the eigenvalues of the loss's Hessian are at "
    return (
        Bound(length / largest_curvature, f"{condition}most {largest_curvature:g}", None),
        Bound(divide(length, least_curvature), f"{condition}least {least_curvature:g}", None),
    )


def expected_squared_gradient(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    family: str | Family,
    label_kind: str,
    loss: str,
    phi: float = 1.0,
    noise_sd: float | FloatArray = 0.0,
) -> float:
    """Return the exact expectation of ``|grad L(theta)|^2`` at the true theta.

    L is the mean negative log likelihood: over rows that got their bag's label for
    ``loss="instance"``, over centroids for ``loss="aggregate"``.

    References
    ----------
    What Thms 22 and 23 bound (T6 of the theory page).

    Examples
    --------
    >>> X, bags = np.array([[1.0], [1.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> expected_squared_gradient(X, bags, theta=np.array([0.0]), family="poisson",
    ...                           label_kind="mean", loss="instance")
    1.25
    """
    parts = _Gradient.of(X, bags, theta, family, phi, label_kind, loss, noise_sd)
    systematic = parts.expected @ parts.units
    return (
        float(systematic @ systematic)
        + float(np.sum(parts.levers**2, axis=1) @ parts.label_variance)
    ) / len(parts.units) ** 2


def gradient_bound(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    family: str | Family,
    label_kind: str,
    loss: str,
    phi: float = 1.0,
    noise_sd: float | FloatArray = 0.0,
) -> Bound:
    """Bound the expected squared gradient at the true theta by what depends on the bags.

    For picks and a canonical link:

    - instance: ``lambda_max(G) (2 spread(mu) + sum_i Var y_i + sum_l n_l s_l^2) / (phi n)^2``;
    - aggregate: ``lambda_max(G) / k_min * sum_l (Var b_l + gap_l^2) / (phi m)^2``, where
      ``Var b_l = v_l(mu) + mean Var y_i + s_l^2``, and gap_l is the mean of mu in the bag less mu
      at its centroid.

    References
    ----------
    Thm 22 (thm:glm-mir-event-loss) and Thm 23 (thm:glm-agg-mir). Status: corrected, E11.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [1.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> gradient_bound(X, bags, theta=np.array([0.0]), family="poisson", label_kind="pick",
    ...                loss="instance").value
    5.0
    """
    parts = _Gradient.of(X, bags, theta, family, phi, label_kind, loss, noise_sd)
    total = float(np.sum(parts.expected**2) + parts.counts @ parts.label_variance)
    return Bound(parts.squared_norm * total / len(parts.units) ** 2, AGNOSTIC, None)


def range_objective(
    X: FloatArray, bags: Bags, *, theta: FloatArray, family: str | Family
) -> FloatArray:
    """Return, per bag, the squared difference of its largest and smallest expected label.

    Sorting by the expected label and cutting every k rows minimises the sum, among bags of k rows.

    References
    ----------
    The objective that follows Thm 23. The expected label is monotone in eta for every family, so
    that no further assumption is needed.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [2.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> range_objective(X, bags, theta=np.array([2.0]), family="gaussian")
    array([4., 0.])
    """
    X, bags = rows_in_bags(X, bags)
    means = find_family(family).mean(X @ theta)
    order = np.lexsort((means, bags.index))
    last = np.cumsum(bags.sizes) - 1
    ordered = means[order]
    return np.asarray((ordered[last] - ordered[last - bags.sizes + 1]) ** 2)


def range_bound(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    family: str | Family,
    phi: float = 1.0,
    noise_sd: float | FloatArray = 0.0,
) -> Bound:
    """Bound the expected squared gradient of aggregate loss on picks by the ranges within bags.

    Both what bags can change in `gradient_bound` are bounded by the range r of the expected labels:
    the gap by r, their variance by ``r^2 / 4``.

    References
    ----------
    Thm 23 (thm:glm-agg-mir) with the objective that follows it. Status: corrected, E11.

    Examples
    --------
    >>> X, bags = np.array([[1.0], [1.0], [3.0], [3.0]]), Bags(np.array([0, 0, 1, 1]))
    >>> range_bound(X, bags, theta=np.array([0.0]), family="poisson").value
    5.0
    """
    parts = _Gradient.of(X, bags, theta, family, phi, "pick", "aggregate", noise_sd)
    ranges = range_objective(X, bags, theta=theta, family=family)
    total = float(np.sum(1.25 * ranges + parts.label_variance - parts.choice))
    return Bound(parts.squared_norm * total / len(parts.units) ** 2, AGNOSTIC, None)


@dataclass(frozen=True)
class _Gradient:
    """The gradient of a loss at the true theta, as ``-(1/u) units' (labels - means)``."""

    units: FloatArray  # (u, d), rows or centroids, times the derivative of the loss
    levers: FloatArray  # (m, d), what each bag label is multiplied with
    counts: FloatArray  # (m,), units behind each bag label
    expected: FloatArray  # (u,), expected labels less means
    label_variance: FloatArray  # (m,), of each bag label
    choice: FloatArray  # (m,), the part of it that comes from the choice of a row
    squared_norm: float  # a bound on the squared operator norm of `units`

    @classmethod
    def of(
        cls,
        X: FloatArray,
        bags: Bags,
        theta: FloatArray,
        family: str | Family,
        phi: float,
        label_kind: str,
        loss: str,
        noise_sd: float | FloatArray,
    ) -> "_Gradient":
        kind, family = check_label_kind(label_kind), find_family(family)
        at_truth = TrueModel.of(X, bags, theta, family, phi, kind, noise_sd)
        bags, eta, means = at_truth.bags, at_truth.eta, family.mean(at_truth.eta)
        if loss == "instance":
            units = at_truth.X * (family.natural_slope(eta) / phi)[:, None]
            norm = float(linalg.eigvalsh(units.T @ units)[-1])
            expected = bags.repeat(bags.mean(means)) - means
            levers, counts = bags.sum(units), bags.sizes.astype(np.float64)
        else:
            centre = bags.mean(eta)
            scale = family.natural_slope(centre) / phi
            units = levers = bags.mean(at_truth.X) * scale[:, None]
            largest = float(linalg.eigvalsh(at_truth.X.T @ at_truth.X)[-1])
            norm = float(np.max(scale**2)) * largest / int(bags.sizes.min())
            expected, counts = bags.mean(means) - family.mean(centre), np.ones(bags.n_bags)
        return cls(units, levers, counts, expected, at_truth.omega, at_truth.choice, norm)
