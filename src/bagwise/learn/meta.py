"""Let any scikit-learn regressor learn from bags."""

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BiasWarning, StrategyError, check_name
from bagwise.glm.data import BagData
from bagwise.learn.bag_data import read_bags, read_weights
from bagwise.learn.bag_weights import bag_weights
from bagwise.learn.model_selection import BagRegressorMixin
from bagwise.privacy.noise import LabelKind, check_label_kind

_LOSSES = ("aggregate", "instance")


class BaggedRegressor(MetaEstimatorMixin, BagRegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fit any regressor to labels that are known per bag.

    The regressor is fitted to a table that it can understand: one row per bag (``"aggregate"``),
    or all rows with the labels of their bags (``"instance"``).

    Parameters
    ----------
    estimator : regressor, optional
        Anything with ``fit(X, y)`` and ``predict(X)``. The default is ``LinearRegression()``: it
        has nothing to tune and works with a handful of bags. Boosted trees, for example, predict
        a constant for less than some dozens of them.
    loss : {"aggregate", "instance"}
        What the regressor is trained on. "aggregate": one row per bag, its centroid, with the
        label of the bag. "instance": every row, with the label of its bag.
    label_kind : {"mean", "pick"}
        Whether bag labels are means or the label of one row; it decides how noisy they are.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor. It predicts rows.
    n_bags_ : int
    n_features_in_ : int
    feature_names_in_ : (d,) strings
        If X had column names.

    Notes
    -----
    **Which loss.** The centroid of a bag stands for its rows if they are alike, or if the model is
    linear; so "aggregate" suits compact bags, and any bags for linear models. "instance" suits
    bags whose rows share their expected label, such as sorted ones, and compact bags that are
    much smaller than what is to be learnt; it leaves a flexible regressor more rows to work with.
    On random bags "instance" learns something flat.

    **Weights.** With "aggregate", a bag counts by its size (all the same for picks), and less if
    its label is known to be noisy: by 1 / (s^2 / size + noise_sd^2), where s^2, the variance of
    one row's label, is estimated from fits to each half of the bags. `sample_weight` multiplies
    that. With "instance" all rows count the same unless `sample_weight` says otherwise. A
    regressor whose ``fit`` has no `sample_weight` (nearest neighbours, or a ``Pipeline``) counts
    all bags the same. To keep weights, put the pipeline outside:
    ``make_pipeline(StandardScaler(), BaggedRegressor(...))``.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> X = np.array([[0.0], [1.0], [4.0], [5.0], [8.0], [9.0]])
    >>> y = np.array([2.0, 2.0, 7.0, 7.0, 3.0, 3.0])     # the label of each row's bag
    >>> model = BaggedRegressor(DecisionTreeRegressor()).fit(X, y, bags=[0, 0, 1, 1, 2, 2])
    >>> model.predict([[0.5], [4.2], [8.8]])
    array([2., 7., 3.])
    """

    def __init__(
        self,
        estimator: Any = None,
        loss: str = "aggregate",
        *,
        label_kind: str = "mean",
    ) -> None:
        self.estimator = estimator
        self.loss = loss
        self.label_kind = label_kind

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
        bags : Bags or (n,) ids, optional
            Rows with the same id form a bag. Without it each row is its own bag.
        noise_sd : float or (n,) floats, optional
            Known standard deviation of the privacy noise on each row's bag label.
        sample_weight : (n,) floats, optional
            Constant inside a bag unless ``loss="instance"``.
        """
        check_name("loss", self.loss, _LOSSES)
        kind = check_label_kind(self.label_kind)
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        if sample_weight is not None:
            if not self._takes_weights():
                raise StrategyError(
                    f"sample_weight was given, but {type(self.estimator).__name__}.fit does not "
                    "accept it. Leave it out, or choose a regressor that accepts weights."
                )
            sample_weight = read_weights(sample_weight, len(X))
        data = read_bags(
            X,
            y,
            bags=bags,
            noise_sd=noise_sd,
            sample_weight=sample_weight,
            weights_differ=self.loss == "instance",
        )
        if self.loss == "aggregate":
            self._fit_centroids(data, kind)
        else:
            self.estimator_ = self._fitted(data.X, data.bags.repeat(data.labels), data.row_weight)
            if data.bags.sizes.max() > 1:
                _warn_of_random_bags(self.estimator_.predict(data.X), data.bags)
        self.n_bags_ = data.bags.n_bags
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the expected label of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(self.estimator_.predict(X))

    def _fit_centroids(self, data: BagData, kind: LabelKind) -> None:
        centroids = data.bags.mean(data.X)

        def predict_bags(chosen: FloatArray, weight: FloatArray) -> FloatArray:
            model = self._fitted(centroids[chosen], data.labels[chosen], weight[chosen])
            return np.asarray(model.predict(centroids))

        weight = None
        if self._takes_weights():
            weight = bag_weights(data, label_kind=kind, predict_bags=predict_bags)
        self.estimator_ = self._fitted(centroids, data.labels, weight)

    def _fitted(self, X: FloatArray, y: FloatArray, weight: FloatArray | None) -> Any:
        estimator = LinearRegression() if self.estimator is None else clone(self.estimator)
        return estimator.fit(X, y) if weight is None else estimator.fit(X, y, sample_weight=weight)

    def _takes_weights(self) -> bool:
        return self.estimator is None or has_fit_parameter(self.estimator, "sample_weight")


def _warn_of_random_bags(predictions: FloatArray, bags: Bags) -> None:
    total = float(np.var(predictions))
    kept = float(np.var(bags.repeat(bags.mean(predictions))))
    # Below this, predictions are constant but for rounding.
    if total > 1e-20 * float(np.mean(predictions**2)) and kept < total / 2:
        warnings.warn(
            "with these bags, instance loss gives predictions that vary too little: rows of a bag "
            "differ so much that bag means lose more than half of the variation of predictions. "
            "Use loss='aggregate', or BaggedBooster.",
            BiasWarning,
            stacklevel=3,
        )
