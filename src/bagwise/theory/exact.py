"""The expected error of an estimator, exactly, from the features and the bags.

Every estimator of a linear model in this package is linear in the bag labels, ``theta_hat = T b``,
and bag labels are independent given the bags. So its expected squared error is a squared bias plus
a sum of variances, and each part has a cause:

=============  ==================================================================================
bias           bags whose rows differ in their expected label, under a loss that ignores it
choice         for picks: which row it was
label_noise    the noise of the rows' labels
privacy        the noise that was added to the bag labels
misfit         what a linear model leaves of the expected labels, where it is thought of at all
=============  ==================================================================================

For other families the estimator is linear in the bag labels to first order, around the true theta.
Nothing here looks at a label: theta and the size of the label noise are given.

Guarantee: exact for the Gaussian family if the bags were formed without looking at the noise of
the labels. Cost O(n d^2).

References
----------
F1-F4 and the first-order form of the theory page; it replaces the bounds of Thms 1-3.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.privacy.aggregate import LabelKind, check_label_kind
from bagwise.rows.whitening import principal_axes, rounding

ESTIMATORS = ("bag", "aggregate", "instance", "debiased")
WEIGHTS = ("equal", "known-noise")
CAUSES = ("bias", "choice", "label_noise", "privacy", "misfit")


@dataclass(frozen=True)
class Risk:
    """An expected squared error, by cause.

    Attributes
    ----------
    total : float
        The sum of the parts.
    bias, choice, label_noise, privacy, misfit : float
    """

    total: float
    bias: float
    choice: float
    label_noise: float
    privacy: float
    misfit: float = 0.0

    @classmethod
    def of(
        cls,
        *,
        bias: float,
        choice: float,
        label_noise: float,
        privacy: float,
        misfit: float = 0.0,
    ) -> "Risk":
        """Add up the parts."""
        total = bias + choice + label_noise + privacy + misfit
        return cls(total, bias, choice, label_noise, privacy, misfit)

    def shares(self) -> Mapping[str, float]:
        """Return each part as a share of the whole, the largest first."""
        parts = {name: getattr(self, name) for name in CAUSES}
        ordered = sorted(parts.items(), key=lambda part: -part[1])
        return {name: value / self.total if self.total > 0 else 0.0 for name, value in ordered}


def exact_risk(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    label_noise_sd: float,
    label_kind: str,
    loss: str,
    noise_sd: float | FloatArray = 0.0,
    weights: str = "equal",
    error: str | FloatArray = "parameters",
) -> Risk:
    """Return the expected squared error of an estimator of theta for labels ``X theta + noise``.

    Parameters
    ----------
    X : (n, d)
        Used as it is: append a column of ones for an intercept.
    bags : Bags
        Rows that are in no bag do not count.
    theta : (d,)
        The true coefficients.
    label_noise_sd : float
        Standard deviation of a row's label around ``X theta``.
    label_kind : {"mean", "pick"}
    loss : {"bag", "aggregate", "instance", "debiased"}
        "debiased" is instance loss with ``debias=True``.
    noise_sd : float or (m,) floats
        Standard deviation of the privacy noise on each bag label.
    weights : {"equal", "known-noise"}
        For bag and aggregate loss: bags count alike (F2), or by the variance of their labels (F4).
    error : {"parameters", "predictions"} or (d, d) matrix Q
        ``|theta_hat - theta|^2``; the mean square of ``X (theta_hat - theta)`` over the rows; or
        ``(theta_hat - theta)' Q (theta_hat - theta)``.

    Examples
    --------
    >>> X = np.array([[1.0], [1.0], [3.0], [3.0]])
    >>> bags = Bags(np.array([0, 0, 1, 1]))
    >>> arguments = {"theta": np.array([2.0]), "label_noise_sd": 1.0, "label_kind": "mean"}
    >>> round(exact_risk(X, bags, loss="bag", **arguments).total, 6)
    0.05
    >>> round(exact_risk(X, bags, loss="bag", noise_sd=0.5, **arguments).privacy, 6)
    0.025
    """
    return first_order_risk(
        X,
        bags,
        theta=theta,
        family="gaussian",
        phi=float(label_noise_sd) ** 2,
        label_kind=label_kind,
        loss=loss,
        noise_sd=noise_sd,
        weights=weights,
        error=error,
    )


def first_order_risk(
    X: FloatArray,
    bags: Bags,
    *,
    theta: FloatArray,
    family: str | Family,
    label_kind: str,
    loss: str,
    phi: float = 1.0,
    noise_sd: float | FloatArray = 0.0,
    weights: str = "equal",
    error: str | FloatArray = "parameters",
    misfit: FloatArray | None = None,
) -> Risk:
    """Return the expected squared error for any family, to first order around the true theta.

    The estimating equations of each loss are linearised: what is left out are products of errors,
    so that the value is good where it is small. For the Gaussian family nothing is left out.
    Parameters as for `exact_risk`; `phi` is the dispersion (1 for bernoulli and poisson). An error
    in predictions is one in the linear predictor ``X theta``.

    `misfit`, (n, f), are f draws of what the model leaves of the expected label of each row, at
    right angles to the columns of X (`theory.beliefs`). An estimator takes their bag means for
    labels; the mean of the squared error that this makes is a part of its own.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 6)[:, None]
    >>> bags = Bags(np.array([0, 0, 1, 1, 2, 2]))
    >>> risk = first_order_risk(X, bags, theta=np.array([0.5]), family="poisson",
    ...                         label_kind="mean", loss="aggregate")
    >>> bool(0 < risk.bias < 0.01 * risk.label_noise)   # the mean is not the mean at the centroid
    True
    """
    kind = check_label_kind(label_kind)
    problem = TrueModel.of(X, bags, theta, find_family(family), phi, kind, noise_sd)
    check_name("loss", loss, ESTIMATORS)
    check_name("weights", weights, WEIGHTS)
    if isinstance(error, str):
        check_name("error", error, ("parameters", "predictions"))
    lever, bias = linearised(problem, loss, weights)
    metric = _metric(problem, error)
    squares = _squared_length(lever, metric)
    astray = 0.0
    if misfit is not None and misfit.shape[1]:
        means = problem.bags.mean(misfit[bags.in_bag])
        astray = float(np.mean(_squared_length(means.T @ lever, metric)))
    return Risk.of(
        bias=float(_squared_length(bias[None, :], metric)[0]),
        choice=float(squares @ problem.choice),
        label_noise=float(squares @ problem.label_noise),
        privacy=float(squares @ problem.privacy),
        misfit=astray,
    )


@dataclass(frozen=True)
class TrueModel:
    """Rows, bags, and the variance of each bag label by cause, at the true theta."""

    X: FloatArray
    bags: Bags
    eta: FloatArray
    family: Family
    choice: FloatArray
    label_noise: FloatArray
    privacy: FloatArray

    @classmethod
    def of(
        cls,
        X: FloatArray,
        bags: Bags,
        theta: FloatArray,
        family: Family,
        phi: float,
        label_kind: LabelKind,
        noise_sd: float | FloatArray,
    ) -> "TrueModel":
        """Check what is given, and leave out the rows that are in no bag."""
        theta = np.asarray(theta, dtype=np.float64)
        if family.has_classes:
            raise StrategyError("the risk of classes is not derived here. Name one class instead.")
        X, bags = rows_in_bags(X, bags)
        if theta.shape != (X.shape[1],):
            raise StrategyError(f"theta must have {X.shape[1]} entries, got shape {theta.shape}.")
        if not (phi >= 0 and np.isfinite(phi)):
            raise StrategyError("the label noise must be finite and not negative.")
        noise = noise_per_bag(noise_sd, bags)
        eta = X @ theta
        noisy = phi * bags.mean(family.variance(eta))
        picked = label_kind == "pick"
        return cls(
            X=X,
            bags=bags,
            eta=eta,
            family=family,
            choice=bags.variance(family.mean(eta)) if picked else np.zeros(bags.n_bags),
            label_noise=noisy if picked else noisy / bags.sizes,
            privacy=noise**2,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows in bags."""
        return self.bags.n_rows

    @property
    def gram(self) -> FloatArray:
        """``X'X``."""
        return np.asarray(self.X.T @ self.X)

    @property
    def omega(self) -> FloatArray:
        """Variance of each bag label."""
        return np.asarray(self.choice + self.label_noise + self.privacy)

    def bag_weights(self, weights: str, variance: FloatArray) -> FloatArray:
        """Return what each bag counts, given its mean variance function."""
        if weights == "equal":
            return np.asarray(1 / variance)
        omega = self.omega
        return (
            np.asarray(1 / np.maximum(omega, 1e-12 * omega.max())) if omega.any() else 1 / variance
        )


def linearised(problem: TrueModel, loss: str, weights: str) -> tuple[FloatArray, FloatArray]:
    """Return T, (m, d), with ``theta_hat = T' labels`` up to a constant, and the bias."""
    if loss == "instance":
        return _instance(problem)
    if loss == "aggregate":
        return _aggregate(problem, weights)
    return _bag(problem, "size" if loss == "debiased" else weights)


def _bag(problem: TrueModel, weights: str) -> tuple[FloatArray, FloatArray]:
    """Compare bags with the mean of their rows' means: no bias, also to first order (F2, F4).

    The debiased estimator has weights by size (F3).
    """
    family, bags = problem.family, problem.bags
    jacobian = bags.mean(_scaled(problem.X, family.slope(problem.eta)))
    variance = bags.mean(family.variance(problem.eta))
    by_size = weights == "size"
    weight = bags.sizes / variance if by_size else problem.bag_weights(weights, variance)
    return _solve(jacobian * weight[:, None], jacobian)


def _aggregate(problem: TrueModel, weights: str) -> tuple[FloatArray, FloatArray]:
    """Compare bags with the mean at their centroid: off by Jensen's gap (F2, F4)."""
    family, bags = problem.family, problem.bags
    centroids, eta = bags.mean(problem.X), bags.mean(problem.eta)
    jacobian = _scaled(centroids, family.slope(eta))
    weight = problem.bag_weights(weights, family.variance(eta))
    gap = bags.mean(family.mean(problem.eta)) - family.mean(eta)
    return _solve(jacobian * weight[:, None], jacobian, expected=gap)


def _instance(problem: TrueModel) -> tuple[FloatArray, FloatArray]:
    """Compare rows with their bag's label: off by the spread inside the bag (F1)."""
    family, bags = problem.family, problem.bags
    lever = family.natural_slope(problem.eta)
    means = family.mean(problem.eta)
    weighted = _scaled(problem.X, lever)
    inverse = _inverse(weighted.T @ _scaled(problem.X, family.slope(problem.eta)))
    bias = inverse @ (weighted.T @ (bags.repeat(bags.mean(means)) - means))
    return bags.sum(weighted) @ inverse, bias


def _solve(
    instruments: FloatArray, jacobian: FloatArray, *, expected: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return T, (m, d), and the bias, of the equations ``sum Z (label - mean) = 0``."""
    matrix = instruments.T @ jacobian
    inverse = _inverse(matrix)
    bias = np.zeros(matrix.shape[0])
    if expected is not None and np.any(expected):
        bias = inverse @ (instruments.T @ expected)
    return instruments @ inverse, bias


def _inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse; raise where some direction is not determined at all."""
    matrix = (matrix + matrix.T) / 2
    axes = principal_axes(matrix, tolerance=rounding(len(matrix)))
    if not axes.units.all():
        raise BagsError("some columns are zero in every bag: their coefficients cannot be learnt.")
    if axes.rank < len(matrix):
        raise BagsError(
            f"the bags do not determine all {len(matrix)} coefficients: there are too few, or "
            "columns depend on each other. The expected error is infinite."
        )
    return axes.inverse


def _squared_length(vectors: FloatArray, metric: FloatArray | None) -> FloatArray:
    """Return ``v' metric v`` of each row v."""
    turned = vectors if metric is None else vectors @ metric
    return np.asarray(np.einsum("ij,ij->i", turned, vectors))


def _scaled(rows: FloatArray, values: FloatArray) -> FloatArray:
    """Return rows times values; the rows themselves where all values are 1."""
    return rows if np.all(values == 1.0) else rows * values[:, None]


def rows_in_bags(X: FloatArray, bags: Bags) -> tuple[FloatArray, Bags]:
    """Check X and leave out the rows that are in no bag; bags keep their numbers."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[0] != bags.n_rows:
        raise BagsError(f"X must have one row for each of {bags.n_rows} rows, got {X.shape}.")
    if not np.isfinite(X).all():
        raise BagsError("X holds NaN or infinite values.")
    return (X, bags) if bags.in_bag.all() else (X[bags.in_bag], Bags(bags.index[bags.in_bag]))


def noise_per_bag(noise_sd: float | FloatArray, bags: Bags) -> FloatArray:
    """Return one standard deviation for each bag."""
    noise = np.asarray(noise_sd, dtype=np.float64)
    if noise.shape not in ((), (bags.n_bags,)):
        raise BagsError(f"noise_sd must be one number or one per bag, got shape {noise.shape}.")
    return np.broadcast_to(noise, (bags.n_bags,))


def _metric(problem: TrueModel, error: str | FloatArray) -> FloatArray | None:
    if isinstance(error, str):
        return None if error == "parameters" else problem.gram / problem.n_rows
    metric = np.asarray(error, dtype=np.float64)
    if metric.shape != problem.gram.shape:
        raise StrategyError(f"a metric of errors must be {problem.gram.shape}, got {metric.shape}.")
    return metric
