"""A scikit-learn regressor that learns row-level coefficients from bag labels."""

import dataclasses
import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bagwise._types import AnyArray, FloatArray
from bagwise.aggregate import LabelKind, check_label_kind
from bagwise.bags import Bags
from bagwise.errors import BagsError, RankWarning, StrategyError
from bagwise.families import Family, find_family
from bagwise.learn.losses import LOSSES, BagData, LeastSquares
from bagwise.learn.solver import Solution, solve
from bagwise.learn.weights import bag_variance, estimate_label_variance

_REWEIGHTINGS = 3  # sigma^2 changes weights only slowly; more rounds change nothing visible


class BaggedGLM(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a row-level model to labels that are known per bag.

    Parameters
    ----------
    family : {"gaussian"} or Family
        Distribution of a row's label.
    loss : {"bag", "instance", "aggregate"}
        What is compared with a bag's label: the mean prediction of its rows ("bag"), each row's
        prediction ("instance"), or the prediction at its centroid ("aggregate").
    label_kind : {"mean", "pick"}
        Whether bag labels are means or the label of one row; it decides how noisy they are.
    debias : bool
        With loss="instance": undo the shrinkage that random bags cause (estimator F3). The result
        is that of bag loss with bags weighted by size.
    weights : {"known-noise", "equal"}
        For bag and aggregate loss: trust bags by the variance of their labels, or all the same.
    ridge : float
        Adds ``ridge / 2 * |coef|^2`` to the mean loss; the intercept is not penalised.
    fit_intercept : bool

    Attributes
    ----------
    coef_ : (d,) floats
    intercept_ : float
    rank_ : int
        Number of directions of the features that the bags determine.
    n_bags_ : int
    label_noise_sd_ : float or None
        Estimated standard deviation of one row's label around the model, privacy noise taken out;
        for picks it includes the spread within bags. None for loss="instance".

    Notes
    -----
    With ``bags=None`` each row is a bag of its own and this is ordinary least squares.

    Guarantee: unbiased for bag and aggregate loss if the bags were formed without looking at the
    noise of the labels. Instance loss is biased towards zero unless rows of a bag share their
    expected label (erratum E9); sorting the labels that are then averaged biases bag loss (E8).

    References
    ----------
    Defs. 1-3, Thms 1-3. Exact errors are F1-F4 of the theory page.

    Examples
    --------
    >>> X = np.array([[0.0], [2.0], [4.0], [6.0]])
    >>> y = np.array([3.0, 3.0, 11.0, 11.0])      # the label of each row's bag: 1 + 2 * mean(x)
    >>> model = BaggedGLM(loss="bag").fit(X, y, bags=[0, 0, 1, 1])
    >>> model.coef_.round(6), round(model.intercept_, 6)
    (array([2.]), 1.0)
    """

    def __init__(
        self,
        family: str | Family = "gaussian",
        loss: str = "bag",
        *,
        label_kind: str = "mean",
        debias: bool = False,
        weights: str = "known-noise",
        ridge: float = 0.0,
        fit_intercept: bool = True,
    ) -> None:
        self.family = family
        self.loss = loss
        self.label_kind = label_kind
        self.debias = debias
        self.weights = weights
        self.ridge = ridge
        self.fit_intercept = fit_intercept

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit from rows X, (n, d), and y, (n,), the label of each row's bag.

        Parameters
        ----------
        bags : (n,) ids, optional
            Rows with the same id form a bag. Without it each row is its own bag.
        noise_sd : float or (n,) floats, optional
            Known standard deviation of the privacy noise on each row's bag label.
        sample_weight : (n,) floats, optional
            Constant inside a bag unless loss="instance".
        """
        kind = self._check_parameters()
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        partition = Bags.singletons(len(y)) if bags is None else _partition(bags, len(y))
        row_weight = None
        if sample_weight is not None:
            row_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        by_row = self.loss == "instance" and not self.debias
        if row_weight is not None and not by_row:
            _one_per_bag(row_weight, partition, "sample_weight")
        labels = _one_per_bag(y, partition, "y")
        noise = _noise_per_bag(noise_sd, partition)
        data = BagData(X, partition, labels, row_weight)
        if by_row:
            self.label_noise_sd_: float | None = None
            solution = self._solve(LOSSES["instance"](data))
        else:
            solution = self._fit_bags(LOSSES["bag"](data), partition, noise, kind)
        self.n_bags_ = partition.n_bags
        self.coef_, self.intercept_, self.rank_ = solution.coef, solution.intercept, solution.rank
        self._say_rank()
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the expected label of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        eta: FloatArray = X @ self.coef_ + self.intercept_
        return find_family(self.family).mean(eta)

    def _fit_bags(
        self, problem: LeastSquares, bags: Bags, noise_sd: FloatArray, kind: LabelKind
    ) -> Solution:
        """Solve for bags weighted by what is known of their variance."""
        share = 1.0 / bags.sizes if kind == "mean" else np.ones(bags.n_bags)
        base = problem.weight
        by_size = self.debias and self.loss == "instance"
        if by_size:
            start = base * bags.sizes
        elif self.weights == "equal":
            start = base
        else:
            start = base / share
        solution = self._solve(dataclasses.replace(problem, weight=start))
        variance = self._label_variance(problem, solution, share, noise_sd)
        settled = by_size or self.weights == "equal" or not noise_sd.any()
        for _ in range(0 if settled else _REWEIGHTINGS):
            omega = bag_variance(share, noise_sd, variance)
            # A label known without any error would get infinite weight; a millionth of the largest
            # variance is as good as none.
            omega = np.maximum(omega, 1e-12 * omega.max())
            solution = self._solve(dataclasses.replace(problem, weight=base / omega))
            variance = self._label_variance(problem, solution, share, noise_sd)
        self.label_noise_sd_ = float(np.sqrt(variance))
        return solution

    def _label_variance(
        self, problem: LeastSquares, solution: Solution, share: FloatArray, noise_sd: FloatArray
    ) -> float:
        residuals = problem.target - problem.design @ solution.coef - solution.intercept
        fitted = solution.rank + bool(self.fit_intercept)
        return estimate_label_variance(residuals, share, noise_sd, n_parameters=fitted)

    def _solve(self, problem: LeastSquares) -> Solution:
        return solve(problem, fit_intercept=self.fit_intercept, ridge=self.ridge)

    def _check_parameters(self) -> LabelKind:
        if find_family(self.family).name != "gaussian":
            raise StrategyError("this version fits the gaussian family only.")
        if self.loss not in LOSSES:
            raise StrategyError(f"unknown loss {self.loss!r}; known are {', '.join(LOSSES)}.")
        if self.weights not in ("known-noise", "equal"):
            raise StrategyError(f"weights must be known-noise or equal, got {self.weights!r}.")
        if not 0 <= self.ridge < np.inf:
            raise StrategyError(f"ridge must be finite and at least 0, got {self.ridge!r}.")
        if self.debias and self.loss != "instance":
            raise StrategyError(f"debias belongs to loss='instance', not to {self.loss!r}.")
        return check_label_kind(self.label_kind)

    def _say_rank(self) -> None:
        if self.rank_ < self.n_features_in_:
            warnings.warn(
                f"the bags determine {self.rank_} of {self.n_features_in_} coefficients (constant "
                "or duplicate columns, or too few bags); the rest follow by least norm. "
                "Predictions are unaffected on data like this; drop columns or set ridge > 0.",
                RankWarning,
                stacklevel=3,
            )


def _partition(bags: Any, n_rows: int) -> Bags:
    partition = bags if isinstance(bags, Bags) else Bags.from_labels(bags)
    if partition.n_rows != n_rows:
        raise BagsError(f"bags has {partition.n_rows} entries for {n_rows} rows.")
    if not partition.in_bag.all():
        raise BagsError("some rows are in no bag. Drop them first, as Release.training_data does.")
    return partition


def _one_per_bag(values: AnyArray, bags: Bags, what: str) -> FloatArray:
    """Return the one value that all rows of a bag carry, or say which bag disagrees."""
    per_bag = np.empty(bags.n_bags)
    per_bag[bags.index] = values
    wrong = per_bag[bags.index] != values
    if wrong.any():
        bag = int(bags.index[np.argmax(wrong)])
        raise BagsError(
            f"{what} differs inside bag {bag} (bags counted in order of appearance). "
            "Give every row of a bag the value of its bag."
        )
    return per_bag


def _noise_per_bag(noise_sd: Any, bags: Bags) -> FloatArray:
    if noise_sd is None:
        return np.zeros(bags.n_bags)
    noise = np.asarray(noise_sd, dtype=np.float64)
    if noise.ndim == 0:
        noise = np.full(bags.n_rows, float(noise))
    if noise.shape != (bags.n_rows,):
        raise BagsError(f"noise_sd must be one number or one per row, got shape {noise.shape}.")
    if not (np.isfinite(noise).all() and (noise >= 0).all()):
        raise BagsError("noise_sd must be finite and not negative.")
    return _one_per_bag(noise, bags, "noise_sd")
