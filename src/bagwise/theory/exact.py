"""The exact expected error of an estimator, from the features and the bags.

Every estimator of a linear model in this package is linear in the bag labels, ``theta_hat = T b``,
and bag labels are independent given the bags. So its expected squared error is a squared bias plus
a sum of variances, and each part has a cause:

=============  ==================================================================================
bias           bags whose rows differ in their expected label, under a loss that ignores it
choice         for picks: which row it was
label_noise    the noise of the rows' labels
privacy        the noise that was added to the bag labels
misfit         the part of the expected labels outside the linear model, if it is considered
=============  ==================================================================================

For other families the estimator is linear in the bag labels to first order, around the true theta.
Nothing here looks at a label: theta and the size of the label noise are given.

Guarantee: exact for the Gaussian family if the bags were formed without looking at the noise of
the labels. Cost O(n d^2).

**Where theta is not known**, only how strong the signal is thought to be (`prior_risk`), everything
is computed in coordinates in which the features are uncorrelated with variance 1. There the error
of predictions is the squared length of the error of the coefficients, and "a signal of this size in
any direction" is a simple prior: theta ~ N(0, signal^2 / d I). Where some directions are thought to
carry less (`beliefs`), theta is drawn accordingly, and the fit, which does not know that, still
shrinks all alike. What a bag contributes is its size, the sum of its rows, how much its rows
differ, and its means of what a linear model leaves (`beliefs`).

Bag loss is then what the default fit does: the posterior mean under that very prior, with a free
intercept and the known noise of each bag,

    ``T = (C'WC + P)^-1 C'W``,   ``theta_hat - theta = (TC - I) theta + T (noise + misfit)``,

with C the bag means of the rows (and a one), W one over the variance of the bag labels, and P =
d / signal^2 on the slopes, 0 on the intercept. Averaged over the prior, the first term is the bias;
each cause of noise adds its variance through T. Without shrinkage (signal to infinity) it is F4.

References
----------
F1-F4 and the first-order form of the theory page; it replaces the bounds of Thms 1-3. The posterior
mean: Lindley and Smith (1972).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.privacy.noise import LabelKind, check_label_kind
from bagwise.rows.whitening import principal_axes, rounding

ESTIMATORS = ("bag", "aggregate", "instance", "debiased")
WEIGHTS = ("equal", "known-noise")
CAUSES = ("bias", "choice", "label_noise", "privacy", "misfit")
_NO_NOISE = 1e-12  # of the largest variance, or of the signal's: a bag label is never exact


@dataclass(frozen=True, kw_only=True)
class Risk:
    """An expected squared error, by cause."""

    bias: float
    choice: float
    label_noise: float
    privacy: float
    misfit: float = 0.0

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return self.bias + self.choice + self.label_noise + self.privacy + self.misfit

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
    label_kind: str,
    loss: str,
    family: str | Family = "gaussian",
    label_noise_sd: float = 1.0,
    noise_sd: float | FloatArray = 0.0,
    weights: str = "equal",
    error: str | FloatArray = "parameters",
    misfit: FloatArray | None = None,
) -> Risk:
    """Return the expected squared error of an estimator of theta.

    For the Gaussian family labels are ``X theta + noise``, and nothing is left out. For others the
    estimating equations of each loss are linearised around the true theta: what is left out are
    products of errors, so that the value is good where it is small.

    Parameters
    ----------
    X : (n, d)
        Used as it is: append a column of ones for an intercept.
    bags : Bags
        Rows that are in no bag do not count.
    theta : (d,)
        The true coefficients.
    label_kind : {"mean", "pick"}
    loss : {"bag", "aggregate", "instance", "debiased"}
        "debiased" is instance loss with ``debias=True``.
    label_noise_sd : float
        Standard deviation of a row's label around ``X theta``; for other families the root of the
        dispersion, which is 1 for bernoulli and poisson.
    noise_sd : float or (m,) floats
        Standard deviation of the privacy noise on each bag label.
    weights : {"equal", "known-noise"}
        For bag and aggregate loss: bags count alike (F2), or by the variance of their labels (F4).
    error : {"parameters", "predictions"} or (d, d) matrix Q
        ``|theta_hat - theta|^2``; the mean square of ``X (theta_hat - theta)``, the error in the
        linear predictor, over the rows; or ``(theta_hat - theta)' Q (theta_hat - theta)``.
    misfit : (n, f), optional
        Draws of what the model leaves of the expected label of each row, at right angles to the
        columns of X (`theory.beliefs`). An estimator takes their bag means for labels; the mean of
        the squared error that this makes is a part of its own.

    Examples
    --------
    >>> X = np.array([[1.0], [1.0], [3.0], [3.0]])
    >>> bags = Bags(np.array([0, 0, 1, 1]))
    >>> arguments = {"theta": np.array([2.0]), "label_kind": "mean", "loss": "bag"}
    >>> round(exact_risk(X, bags, **arguments).total, 6)
    0.05
    >>> round(exact_risk(X, bags, noise_sd=0.5, **arguments).privacy, 6)
    0.025
    """
    kind = check_label_kind(label_kind)
    phi = float(label_noise_sd) ** 2
    problem = TrueModel.of(X, bags, theta, find_family(family), phi, kind, noise_sd)
    check_name("loss", loss, ESTIMATORS)
    check_name("weights", weights, WEIGHTS)
    metric, d = None, problem.X.shape[1]
    if isinstance(error, str):
        check_name("error", error, ("parameters", "predictions"))
        if error == "predictions":
            metric = problem.X.T @ problem.X / len(problem.X)
    else:
        metric = np.asarray(error, dtype=np.float64)
        if metric.shape != (d, d):
            raise StrategyError(f"a metric of errors must be {(d, d)}, got {metric.shape}.")
    lever, bias = linearised(problem, loss, weights)
    squares = _squared_length(lever, metric)
    astray = 0.0
    if misfit is not None and misfit.shape[1]:
        means = problem.bags.mean(misfit[bags.in_bag])
        astray = float(np.mean(_squared_length(means.T @ lever, metric)))
    return Risk(
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
        """Check the arguments, and drop the rows that are in no bag."""
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
    def omega(self) -> FloatArray:
        """Variance of each bag label."""
        return np.asarray(self.choice + self.label_noise + self.privacy)


def linearised(problem: TrueModel, loss: str, weights: str) -> tuple[FloatArray, FloatArray]:
    """Return T, (m, d), with ``theta_hat = T' labels`` up to a constant, and the bias.

    Instance loss compares rows with their bag's label: off by the spread inside the bag (F1). Bag
    loss compares bags with the mean of their rows' means: no bias, also to first order; aggregate
    loss with the mean at their centroid: off by Jensen's gap (F2, F4). The debiased estimator has
    weights by size (F3).
    """
    X, eta, family, bags = problem.X, problem.eta, problem.family, problem.bags
    if loss == "instance":
        means, weighted = family.mean(eta), _scaled(X, family.natural_slope(eta))
        inverse = _inverse(weighted.T @ _scaled(X, family.slope(eta)))
        bias = inverse @ (weighted.T @ (bags.repeat(bags.mean(means)) - means))
        return bags.sum(weighted) @ inverse, bias
    if loss == "aggregate":
        middle = bags.mean(eta)
        jacobian = _scaled(bags.mean(X), family.slope(middle))
        variance = family.variance(middle)
        gap = bags.mean(family.mean(eta)) - family.mean(middle)
    else:
        jacobian = bags.mean(_scaled(X, family.slope(eta)))
        variance = bags.mean(family.variance(eta))
        gap = np.zeros(bags.n_bags)
    weight, omega = 1 / variance, problem.omega
    if loss == "debiased":
        weight = bags.sizes / variance
    elif weights == "known-noise" and omega.any():
        weight = 1 / np.maximum(omega, 1e-12 * omega.max())
    instruments = jacobian * weight[:, None]
    inverse = _inverse(instruments.T @ jacobian)
    return instruments @ inverse, inverse @ (instruments.T @ gap)


def _inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse; raise an error if some direction is not determined at all."""
    matrix = (matrix + matrix.T) / 2
    axes = principal_axes(matrix, tolerance=rounding(len(matrix)))
    if not axes.units.all():
        raise BagsError("some columns are zero in every bag: their coefficients cannot be learnt.")
    if axes.rank < len(matrix):
        raise BagsError(
            f"the bags do not determine all {len(matrix)} coefficients: there are too few, or "
            "columns depend on each other. Without shrinkage, the expected error is infinite."
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
    """Check X and drop the rows that are in no bag; bags keep their numbers."""
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


# --- theta drawn from a belief -----------------------------------------------------------------


@dataclass(frozen=True)
class BagMoments:
    """The moments that bags keep of rows in white coordinates, and of the misfit of a linear model.

    Attributes
    ----------
    sizes : (m,)
    centroids : (m, r + 1)
        Mean of each bag's rows and, last, a one.
    spread : (m,)
        Variance inside the bag, averaged over the directions.
    signal_spread : (m,)
        Variance of a signal of variance 1 inside the bag, averaged over what is believed of it.
    misfit : (m, f)
        Bag means of f functions that a linear model does not explain.
    misfit_spread : (m,)
        Variance of these inside the bag, averaged over the functions.
    root : (r, k)
        Slopes of a signal of variance 1 are this times standard normal numbers.
    """

    sizes: FloatArray
    centroids: FloatArray
    spread: FloatArray
    signal_spread: FloatArray
    misfit: FloatArray
    misfit_spread: FloatArray
    root: FloatArray

    @classmethod
    def of(
        cls,
        white: FloatArray,
        bags: Bags,
        functions: FloatArray | None = None,
        root: FloatArray | None = None,
    ) -> "BagMoments":
        """Add up the white rows of each bag; rows that are in no bag do not count.

        Without a `root` the signal is thought to lie in all directions alike.
        """
        width = white.shape[1]
        if root is None:
            root = np.eye(width) / np.sqrt(max(1, width))
        rows, inside = rows_in_bags(white, bags)
        left = np.empty((len(rows), 0)) if functions is None else functions[bags.in_bag]
        sizes = inside.sizes.astype(np.float64)
        sums, spread = _sums_and_spread(inside, rows, sizes)
        misfit, misfit_spread = _sums_and_spread(inside, left, sizes)
        _, per_column = _sums_and_spread(inside, rows @ root, sizes)
        return cls(
            sizes=sizes,
            centroids=np.column_stack([sums / sizes[:, None], np.ones(len(sizes))]),
            spread=spread,
            signal_spread=per_column * max(1, root.shape[1]),
            misfit=misfit / sizes[:, None],
            misfit_spread=misfit_spread,
            root=root,
        )

    def grown(self, times: float) -> "BagMoments":
        """Return the moments of as many bags with `times` as many rows of the same kind each.

        A mean of few rows differs from that of its kind by chance: by the variance inside over
        their number. So means of more rows differ less from each other, by just that.
        """
        if times == 1:
            return self
        shrink, spread = _grow(self.centroids[:, :-1], self.spread, self.sizes, times)
        misfit_shrink, misfit_spread = _grow(self.misfit, self.misfit_spread, self.sizes, times)
        centroids = self.centroids.copy()
        centroids[:, :-1] *= shrink
        return replace(
            self,
            sizes=self.sizes * times,
            centroids=centroids,
            spread=spread,
            signal_spread=_grow(self.misfit, self.signal_spread, self.sizes, times)[1],
            misfit=self.misfit * misfit_shrink,
            misfit_spread=misfit_spread,
        )


def _sums_and_spread(
    bags: Bags, values: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of bags, (m, c), and the variance inside, averaged over the columns."""
    sums = bags.sum(values)
    squares = bags.sum(np.einsum("ij,ij->i", values, values))
    within = squares - np.einsum("ij,ij->i", sums, sums) / sizes
    return sums, np.maximum(within, 0.0) / sizes / max(1, values.shape[1])


def _grow(
    means: FloatArray, spread: FloatArray, sizes: FloatArray, times: float
) -> tuple[float, FloatArray]:
    """Return the factor by which bag means shrink, and the new variance inside bags."""
    # Of the kind of a bag's rows, not of the few that are there.
    inside = spread * sizes / np.maximum(sizes - 1, 1)
    between = float(sizes @ np.einsum("ij,ij->i", means, means))
    by_chance = means.shape[1] * float(np.sum(inside)) * (1 - 1 / times)
    left = max(0.0, 1 - by_chance / between) if between > 0 else 0.0
    return float(np.sqrt(left)), inside * (1 - 1 / (sizes * times))


def prior_risk(
    moments: BagMoments,
    *,
    signal_sd: float,
    label_noise_sd: float,
    label_kind: LabelKind,
    misfit: float = 0.0,
    noise_sd: float | FloatArray = 0.0,
    repeats: float = 1.0,
) -> Risk:
    """Return the expected squared error of predictions by bag loss, theta drawn from the prior.

    Weights are from the known variances (F4), and the fit shrinks as the prior says.

    Parameters
    ----------
    signal_sd : float
        Standard deviation of the expected labels ``X theta``.
    misfit : float
        Variance of what a linear model leaves, as a share of the signal's.
    repeats : float
        How often each bag is there, where the rows are a sample: other bags of its kind, of which
        each has its own noise.

    Examples
    --------
    >>> from bagwise.rows.whitening import Columns
    >>> X = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    >>> moments = BagMoments.of(Columns(X).white_rows(), Bags(np.array([0, 0, 1, 1])))
    >>> risk = prior_risk(moments, signal_sd=1e6, label_noise_sd=2.0, label_kind="mean")
    >>> round(risk.total, 6)    # sigma^2 p / n for two coefficients
    2.0
    >>> risk = prior_risk(moments, signal_sd=1.0, label_noise_sd=2.0, label_kind="mean")
    >>> round(risk.total, 6)    # a slope of the size of its error is worth half: 1 + 1/2
    1.5
    """
    # 1. The variance of each bag label, by cause.
    centroids, sizes = moments.centroids, moments.sizes
    misfit_variance, choice = misfit * signal_sd**2, np.zeros_like(sizes)
    if label_kind == "pick":
        choice = moments.signal_spread * signal_sd**2 + moments.misfit_spread * misfit_variance
    noise = label_noise_sd**2 / (np.ones_like(sizes) if label_kind == "pick" else sizes)
    privacy = np.broadcast_to(np.asarray(noise_sd, dtype=np.float64) ** 2, noise.shape)
    omega = choice + noise + privacy

    # 2. T', (m, r + 1), and the expected squared bias. In units of the prior's standard deviation
    #    the precision of the prior is one, so that neither a signal of 0 nor fewer bags than
    #    coefficients need a case of their own.
    slopes = centroids.shape[1] - 1
    least = _NO_NOISE * max(float(omega.max()), signal_sd**2)
    instruments = centroids / np.maximum(omega, least or 1.0)[:, None]
    units = np.append(np.full(slopes, signal_sd / np.sqrt(max(1, slopes))), 1.0)
    precision = repeats * (instruments.T @ centroids) * np.outer(units, units)
    precision[np.arange(slopes), np.arange(slopes)] += 1.0
    inverse = np.linalg.inv(precision) * units[:, None]
    lever = instruments @ (inverse * units).T
    # The fit takes slopes to be alike; they are drawn by the root, in units of what it takes.
    lost = inverse[:, :-1] @ moments.root * np.sqrt(max(1, slopes))

    # 3. What a misfit of variance 1 adds, averaged over its draws. Repeated bags are other bags
    #    with the same expected misfit. What their means have by chance, a variance inside over a
    #    size, is another draw in each and averages out as noise does.
    squares, astray = repeats * np.einsum("ij,ij->i", lever, lever), 0.0
    if moments.misfit.shape[1]:
        moved = repeats * (lever.T @ moments.misfit)  # (r + 1, f)
        astray = float(np.sum(moved**2)) / moments.misfit.shape[1]
        if repeats != 1:
            by_chance = float(squares @ (moments.misfit_spread / np.maximum(sizes - 1, 1)))
            astray = max(0.0, astray - repeats * by_chance) + by_chance
    return Risk(
        bias=float(np.sum(lost**2)),
        choice=float(squares @ choice),
        label_noise=float(squares @ noise),
        privacy=float(squares @ privacy),
        misfit=misfit_variance * astray,
    )
