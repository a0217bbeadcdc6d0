"""By how much squared errors vary around what theory expects of them."""

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import check_name
from bagwise.families import find_family
from bagwise.privacy.noise import check_label_kind
from bagwise.theory import exact


def squared_error_sd(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    label_kind: str,
    loss: str,
    noise_sd: float | FloatArray = 0.0,
    weights: str = "equal",
) -> float:
    """Return by how much ``|theta_hat - theta|^2`` varies around what `exact_risk` expects.

    A standard deviation, for errors that are Gaussian: exactly so for means of labels with Gaussian
    noise, and nearly for picks, whose errors are sums over many bags. Parameters as there.

    Examples
    --------
    >>> X, bags = np.ones((4, 1)), Bags(np.array([0, 0, 1, 1]))
    >>> known = {"theta": np.ones(1), "label_noise_sd": 1.0, "label_kind": "mean", "loss": "bag"}
    >>> risk, sd = exact.exact_risk(X, bags, **known).total, squared_error_sd(X, bags, **known)
    >>> round(risk, 6), round(sd, 6)   # a chi-square with one degree of freedom, times 0.25
    (0.25, 0.353553)
    """
    kind, phi = check_label_kind(label_kind), float(label_noise_sd) ** 2
    problem = exact.TrueModel.of(X, bags, theta, find_family("gaussian"), phi, kind, noise_sd)
    check_name("loss", loss, exact.ESTIMATORS)
    check_name("weights", weights, exact.WEIGHTS)
    lever, bias = exact.linearised(problem, loss, weights)
    return gaussian_square_sd(bias, lever.T @ (lever * problem.omega[:, None]))


def gaussian_square_sd(mean: FloatArray, covariance: FloatArray) -> float:
    """Return the standard deviation of ``|z|^2`` for a Gaussian z.

    Examples
    --------
    >>> round(gaussian_square_sd(np.zeros(1), np.eye(1)) ** 2, 6)   # of a chi-square
    2.0
    """
    variance = 2 * np.sum(covariance**2) + 4 * mean @ covariance @ mean
    return float(np.sqrt(variance))


def distance_to_least_squares(
    X: FloatArray,
    bags: Bags,
    *,
    labels: FloatArray,
    label_kind: str,
    noise_sd: float | FloatArray = 0.0,
) -> exact.Risk:
    """Return how far instance loss is expected to be from least squares on the row labels (F5).

    Only the pick and the privacy noise are random here, so that it holds for bags that depend on
    the labels in any way. The error to the truth is at most the sum of the two roots:
    ``sqrt(E|theta_hat - theta|^2) <= sqrt(E F5) + sigma sqrt(tr G^-1)``.

    **The result describes the labels: it is for whoever may see them.**

    Examples
    --------
    >>> X = np.array([[1.0], [1.0], [2.0], [2.0]])
    >>> labels = np.array([1.0, 3.0, 2.0, 2.0])
    >>> bags = Bags(np.array([0, 0, 1, 1]))
    >>> round(distance_to_least_squares(X, bags, labels=labels, label_kind="pick").choice, 6)
    0.04
    """
    kind = check_label_kind(label_kind)
    labels = np.asarray(labels, dtype=np.float64)[bags.in_bag]
    X, bags = exact.rows_in_bags(X, bags)
    inverse = exact._inverse(X.T @ X)
    sums = bags.sum(X)
    means = bags.mean(labels)
    bias = inverse @ (X.T @ (bags.repeat(means) - labels))
    squares = exact._squared_length(sums @ inverse, None)
    privacy = exact.noise_per_bag(noise_sd, bags) ** 2
    choice = bags.variance(labels) if kind == "pick" else np.zeros(bags.n_bags)
    return exact.Risk(
        bias=float(bias @ bias),
        choice=float(squares @ choice),
        label_noise=0.0,
        privacy=float(squares @ privacy),
    )
