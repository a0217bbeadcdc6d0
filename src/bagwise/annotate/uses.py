"""What to do with a label that was bought: one model for each way to use it.

============  ==============================================================================
name          what a label is used for
============  ==============================================================================
rows          its own row: an ordinary model of the labelled rows
shrunk        its own row; slopes are shrunk in units of the covariance of all rows
covariance    its own row; the covariance of the features is that of all rows, known exactly
aggregate     the centroid of its bag
instance      every row of its bag
mixture       its bag: the likelihood of a label that is one of its rows'
============  ==============================================================================

"shrunk" and "covariance" are semi-supervised: they know all rows, and not only the labelled ones.

References
----------
Aggregate and instance: Defs. 2 and 3 of the paper, for picks. "covariance" solves the estimating
equations of a canonical link with the left side over all rows,

    ``mean over all rows of  x (mu(x theta) - ybar)  =  weighted mean over labels of  x (y - ybar)``

so that for the Gaussian family it is ``Sigma^-1 cov(x, y)`` with the known Sigma (Azriel et al.
2022, JASA 117; without labels' noise nothing is gained where the model is right).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.annotate.bought import Bought
from bagwise.errors import BagwiseError, BagwiseWarning
from bagwise.learn.estimator import BaggedGLM
from bagwise.learn.penalty import SlopePrior
from bagwise.learn.problems import Working
from bagwise.learn.shrinkage import choose
from bagwise.learn.weights import LabelVariance

LARGEST_BAGS = 20
"""Rows of a bag, on average, up to which its rows can be told apart by one label: beyond, a search
for the likeliest ones takes minutes and ends in one of many maxima."""

_STEPS, _SOLVED, _FARTHEST = 50, 1e-9, 2.0
_NO_INTERVALS = "No intervals: "


@dataclass(frozen=True)
class Fitted:
    """Coefficients for a row, and what is known of their errors.

    Where they were shrunk, standard errors belong to `unshrunk`: coefficients, then the intercept.
    """

    coef: FloatArray
    intercept: float | FloatArray
    standard_errors: FloatArray | None
    freedom: float
    note: str
    dispersion: float | None = None
    converged: bool = True
    unshrunk: FloatArray | None = None

    def predictor(self, X: FloatArray) -> FloatArray:
        """Return eta of each row."""
        return np.asarray(X @ self.coef.T + self.intercept)


@dataclass(frozen=True)
class Use:
    """A way to use labels.

    Attributes
    ----------
    name, summary : str
    needs_bags : bool
    fit : callable
        From all that was bought, and which of the labels to use, to a model.
    """

    name: str
    summary: str
    needs_bags: bool
    fit: Callable[[Bought, IntArray], Fitted]

    def objection(self, bought: Bought) -> str | None:
        """Say why it cannot be used for these labels, or return None."""
        if self.needs_bags and not bought.has_bags:
            return "some rows were not chosen from bags"
        if self.name == "covariance":
            return _objection_to_covariance(bought)
        if self.name == "mixture":
            return _objection_to_mixture(bought)
        return None


def _objection_to_covariance(bought: Bought) -> str | None:
    family = bought.family
    if family.has_classes or family.link != "canonical" or np.isfinite(family.eta_range).any():
        return "it is for one number, and a canonical link without limits"
    return None


def _objection_to_mixture(bought: Bought) -> str | None:
    if "mixture" not in bought.family.losses:
        return f"the family {bought.family.name} has no mixture"
    _, bag = bought.members(bought.bag_of)
    if bag.size > LARGEST_BAGS * bought.n_labels:
        return f"bags have more than {LARGEST_BAGS} rows"
    return None


def _fit_rows(bought: Bought, which: IntArray) -> Fitted:
    return _estimate(bought, bought.X[bought.rows[which]], bought.outcomes(which))


def _fit_aggregate(bought: Bought, which: IntArray) -> Fitted:
    return _estimate(bought, bought.centroids(which), bought.outcomes(which))


def _fit_instance(bought: Bought, which: IntArray) -> Fitted:
    bags, of_label = np.unique(bought.bag_of[which], return_inverse=True)
    y = bought.outcomes(which)
    total = np.zeros((bags.size, *y.shape[1:]))
    np.add.at(total, of_label, y)
    means = (total.T / np.bincount(of_label)).T  # a bag with several labels has their mean
    rows, bag = bought.members(bags)
    return _without_errors(
        _estimate(bought, bought.X[rows], means[bag], bags=bag, loss="instance"),
        "slopes are shrunk by what varies inside bags.",
    )


def _fit_mixture(bought: Bought, which: IntArray) -> Fitted:
    rows, label = bought.members(bought.bag_of[which])
    y = bought.outcomes(which)[label]
    return _estimate(bought, bought.X[rows], y, bags=label, loss="mixture")


def _estimate(
    bought: Bought,
    X: FloatArray,
    y: FloatArray,
    *,
    bags: IntArray | None = None,
    loss: str = "aggregate",
    ridge: float = 0.0,
) -> Fitted:
    """Fit a model to labels of rows, or of bags."""
    estimator = BaggedGLM(family=bought.family, loss=loss, label_kind="pick", ridge=ridge)
    ids = np.arange(len(y)) if bags is None else bags
    estimator.fit(X, y, bags=ids)
    errors = estimator.covariance_
    return Fitted(
        coef=estimator.coef_,
        intercept=estimator.intercept_,
        standard_errors=None if errors is None else np.sqrt(np.diag(errors)),
        freedom=float(estimator.freedom_),
        note=estimator.note_,
        dispersion=None if estimator.dispersion_ is None else float(estimator.dispersion_),
        converged=bool(estimator.converged_),
    )


def _without_errors(fitted: Fitted, why: str) -> Fitted:
    return replace(fitted, standard_errors=None, freedom=np.inf, note=_NO_INTERVALS + why)


def _fit_shrunk(bought: Bought, which: IntArray) -> Fitted:
    """Fit the labelled rows in white columns of all rows, with the ridge that labels suggest."""
    white, y = bought.white[bought.rows[which]], bought.outcomes(which)
    found = _estimate(bought, white, y, ridge=best_ridge(bought, which))
    return _in_own_units(bought, _without_errors(found, "slopes are shrunk."))


def best_ridge(bought: Bought, which: IntArray) -> float:
    """Return the penalty on white slopes by restricted likelihood, at the model that has none.

    There a generalised linear model is a linear one with equal variances v: of the labels' errors
    ``phi v`` and of the slopes ``tau^2``, in units of the labels, restricted likelihood chooses
    both. Slopes of the linear predictor are smaller by v, so that the penalty beside the mean loss
    is ``phi / (m tau_eta^2) = v * (phi v) / (m tau^2)``. For classes it is the geometric mean over
    their marks.
    """
    white, y = bought.white[bought.rows[which]], bought.outcomes(which)
    if not white.shape[1]:
        return 0.0
    variances = _variances_at_mean(bought, which)
    marks = y if y.ndim == 2 else y[:, None]
    found = [
        variance * _linear_ridge(white, mark)
        for variance, mark in zip(variances, marks.T, strict=True)
        if np.ptp(mark) > 0
    ]
    return float(np.exp(np.mean(np.log(found)))) if found else 1.0


def _variances_at_mean(bought: Bought, which: IntArray) -> FloatArray:
    mean = np.atleast_1d(bought.mean_label(which))
    if bought.n_classes:
        return np.asarray(mean * (1 - mean))
    inside = np.array([bought.family.interior(float(mean[0]))])
    return bought.family.slope(bought.family.predictor(inside))


def _linear_ridge(white: FloatArray, y: FloatArray) -> float:
    """Return sigma^2 / (m tau^2) of a linear model with a free intercept."""
    m, width = white.shape
    H = np.column_stack([white, np.ones(m)])
    slopes, intercept = np.eye(width + 1)[:, :width], np.eye(width + 1)[:, width:]
    nothing = np.zeros((width + 1, width + 1))
    prior = SlopePrior(slopes, slopes @ slopes.T, intercept, np.zeros(width + 1), nothing)
    spread = float(np.var(y))
    model = Working(H, y, LabelVariance(np.ones(m), np.zeros(m)))
    noise, chosen = choose(model, prior, least=1e-6 * spread)
    return float(noise / (m * chosen.variance))


def _fit_covariance(bought: Bought, which: IntArray) -> Fitted:
    """Solve the estimating equations whose left side knows all rows."""
    white, family = bought.white, bought.family
    y, weight = bought.outcomes(which), bought.weights[which]
    mean = family.interior(float(bought.mean_label(which)))
    Z = np.column_stack([white, np.ones(len(white))])
    chosen = white[bought.rows[which]]
    target = np.append(weight @ (chosen * (y - mean)[:, None]) / weight.sum(), 0.0)
    beta = np.zeros(Z.shape[1])
    beta[-1] = float(family.predictor(np.array(mean)))
    solved = False
    # A logarithm that moves by more than that is a step too far; numbers may move as they like.
    reach = np.inf if np.isinf(family.label_range).all() else _FARTHEST
    for _ in range(_STEPS):
        eta = Z @ beta
        score = Z.T @ (family.mean(eta) - mean) / len(Z) - target
        information = Z.T @ (Z * family.slope(eta)[:, None]) / len(Z)
        step = np.linalg.lstsq(information, score)[0]
        size = float(np.abs(step).max())
        beta -= step * min(1.0, reach / size if size > 0 else 1.0)
        if size < _SOLVED * (1 + float(np.abs(beta).max())):
            solved = True
            break
    found = Fitted(
        beta[:-1], float(beta[-1]), None, np.inf,
        _NO_INTERVALS + "the covariance of the features is taken from all rows.",
        converged=solved and bool(np.isfinite(beta).all()),
    )  # fmt: skip
    return _in_own_units(bought, found)


def _in_own_units(bought: Bought, white: Fitted) -> Fitted:
    """Return a model of white columns as one of the table's own."""
    columns = bought.columns
    coef = np.asarray(white.coef @ columns.axes.basis.T)
    return replace(white, coef=coef, intercept=white.intercept - coef @ columns.mean)


USES: dict[str, Use] = {
    use.name: use
    for use in (
        Use("rows", "its own row", False, _fit_rows),
        Use("shrunk", "its own row, shrunk by all rows' covariance", False, _fit_shrunk),
        Use("covariance", "its own row, with all rows' covariance", False, _fit_covariance),
        Use("aggregate", "the centroid of its bag", True, _fit_aggregate),
        Use("instance", "every row of its bag", True, _fit_instance),
        Use("mixture", "its bag, by likelihood", True, _fit_mixture),
    )
}


def with_intervals(fitted: Fitted, bought: Bought) -> Fitted:
    """Return shrunk coefficients with the intervals of those without shrinking, if there are any.

    They cover each coefficient whatever it is; around shrunk ones they would not. Coefficients that
    these labels do not determine, such as that of a level that no labelled row has, have none.
    """
    rows = try_fit(USES["rows"], bought, np.arange(bought.n_labels))
    if rows is None or rows.standard_errors is None or not rows.converged:
        return fitted
    if not np.isfinite(rows.standard_errors).any():
        return replace(
            fitted, note=f"{_NO_INTERVALS}these labels determine no coefficient without shrinking."
        )
    table = np.column_stack([np.atleast_2d(rows.coef), np.atleast_1d(rows.intercept)])
    return replace(
        fitted,
        standard_errors=rows.standard_errors,
        freedom=rows.freedom,
        note=f"Slopes are shrunk; intervals are those of the unshrunk slopes. {rows.note}",
        unshrunk=table.ravel(),
    )


def try_fit(use: Use, bought: Bought, which: IntArray) -> Fitted | None:
    """Fit without a word of warning; None where there is no model at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)
        try:
            return use.fit(bought, which)
        except BagwiseError:
            return None
