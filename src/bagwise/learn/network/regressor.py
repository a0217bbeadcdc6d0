"""A scikit-learn regressor that trains a network on bag labels."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from types import ModuleType
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._types import FloatArray
from bagwise.errors import LabelError, MissingExtraError, StrategyError
from bagwise.families import find_family
from bagwise.learn.bag_data import read_bags
from bagwise.learn.bag_weights import bag_weights, class_weights, working_variance
from bagwise.learn.convert import read_weights
from bagwise.learn.regressor import BagRegressorMixin
from bagwise.privacy.aggregate import LabelKind, check_label_kind


class BaggedNetwork(BagRegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Train a neural network of rows to labels that are known per bag.

    The mean prediction of each bag is compared with the label of the bag (`BagMeanLoss`), in
    mini-batches of whole bags. It needs PyTorch: ``pip install "bagwise[torch]"``.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the hidden layers of the usual network, with rectifiers between them.
    module : callable, optional
        Makes another network: called with the number of features, returns a ``torch.nn.Module``
        that puts out one number per row, or one for each class. It is given standardised features.
    family : {"gaussian", "poisson", "bernoulli", "multinomial"}
        Distribution of a row's label. The network puts out the expected label, its logarithm, its
        log odds, or one score for each class. For classes y has their shares, (n, classes), or one
        class per row, (n,), and predictions are chances.
    epochs : int
        Most passes over the bags.
    bags_per_batch : int
    learning_rate : float
    weight_decay : float
    validation_share : float
        Share of the bags that is held out to notice when to stop. If that is fewer than 20 bags,
        all bags are trained on for all epochs.
    patience : int
        Stop after so many epochs in which the held-out bags did not get better; the weights are
        those of the best epoch.
    random_state : int, RandomState or None
        The same number gives the same network on the same machine and version of PyTorch.
    label_kind : {"mean", "pick"}
        Whether bag labels are means or the label of one row; it decides how noisy they are.

    Attributes
    ----------
    network_ : torch.nn.Module
        From features as they come, (n, d) in double precision, to the linear predictor, (n,).
    classes_ : (classes,)
        For the multinomial family.
    n_epochs_ : int
        Passes that were made.
    n_bags_ : int
    n_features_in_ : int
    feature_names_in_ : (d,) strings
        If X had column names.

    Notes
    -----
    Bags count by one over the variance of their labels: by size for means, all the same for picks,
    and less if noise is known. What that takes, the variance of one row's label, is found by
    training on each half of the bags first, if noise differs between bags or the family's variance
    depends on the mean.

    Training runs on one thread of the processor. For large networks, or on a GPU, write a loop of
    your own around `BagMeanLoss`.

    Labels that privacy noise has moved out of the family's range are used as they are.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.sort(rng.uniform(-3, 3, size=(600, 1)), axis=0)
    >>> bags = np.arange(600) // 6                          # neighbours share a bag
    >>> label = np.array([np.abs(X[bags == bag]).mean() for bag in range(100)])
    >>> model = BaggedNetwork(random_state=0).fit(X, label[bags], bags=bags)
    >>> bool(np.mean((model.predict(X) - np.abs(X[:, 0])) ** 2) < 0.01)
    True
    """

    def __init__(
        self,
        hidden: Sequence[int] = (64, 64),
        *,
        module: Callable[[int], Any] | None = None,
        family: str = "gaussian",
        epochs: int = 200,
        bags_per_batch: int = 64,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-4,
        validation_share: float = 0.2,
        patience: int = 50,
        random_state: Any = None,
        label_kind: str = "mean",
    ) -> None:
        self.hidden = hidden
        self.module = module
        self.family = family
        self.epochs = epochs
        self.bags_per_batch = bags_per_batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_share = validation_share
        self.patience = patience
        self.random_state = random_state
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
            Constant inside a bag.
        """
        training_module = _load_training()
        criterion = training_module.BagMeanLoss(self.family)
        kind = self._check_parameters()
        X, y = self._read(X, y)
        if sample_weight is not None:
            sample_weight = read_weights(sample_weight, len(X))
        data = read_bags(X, y, bags=bags, noise_sd=noise_sd, sample_weight=sample_weight)
        find_family(self.family).check_labels(data.labels[data.noise_sd == 0])
        training = training_module.Training(
            data=data,
            make_body=self.module
            or partial(
                training_module.make_layers,
                hidden=self.hidden,
                outputs=1 if data.labels.ndim == 1 else data.labels.shape[1],
            ),
            criterion=criterion,
            epochs=self.epochs,
            bags_per_batch=self.bags_per_batch,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            validation_share=self.validation_share,
            patience=self.patience,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        if data.labels.ndim == 2:
            weight = class_weights(data, label_kind=kind, predict_bags=training.predict_bags)
        else:
            weight = bag_weights(
                data,
                label_kind=kind,
                predict_bags=training.predict_bags,
                variance=working_variance(self.family, data),
            )
        self.network_, self.n_epochs_ = training.run(weight)
        self.n_bags_ = data.bags.n_bags
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the expected label of each row; for classes their chances, (n, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        predictions: FloatArray = _load_training().predict_rows(
            self.network_, X, family=self.family
        )
        return predictions

    def _read(self, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
        if self.family != "multinomial":
            X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
            return X, y
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True)
        self.classes_ = np.unique(y) if y.ndim == 1 else np.arange(y.shape[1])
        if self.classes_.size < 2:
            raise LabelError("the multinomial family needs two classes; n_samples=1 has only one.")
        return X, self._as_predicted(y)

    def _as_predicted(self, y: Any) -> FloatArray:
        """Return shares of classes; a class is a share of one."""
        y = np.asarray(y)
        if self.family != "multinomial" or y.ndim == 2:
            return np.asarray(y, dtype=np.float64)
        return np.asarray(y[:, None] == self.classes_, dtype=np.float64)

    def _check_parameters(self) -> LabelKind:
        for name in ("epochs", "bags_per_batch", "patience"):
            _check_count(getattr(self, name), name)
        for width in self.hidden:
            _check_count(width, "each width in hidden")
        if not 0 < self.learning_rate < np.inf:
            raise StrategyError(f"learning_rate must be above 0, got {self.learning_rate!r}.")
        if not 0 <= self.weight_decay < np.inf:
            raise StrategyError(f"weight_decay must be at least 0, got {self.weight_decay!r}.")
        if not 0 <= self.validation_share < 1:
            raise StrategyError(
                f"validation_share must be at least 0 and below 1, got {self.validation_share!r}."
            )
        return check_label_kind(self.label_kind)


def _load_training() -> ModuleType:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("BaggedNetwork", "torch")
    return importlib.import_module("bagwise.learn.network.training")


def _check_count(value: Any, name: str) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise StrategyError(f"{name} must be a whole number of at least 1, got {value!r}.")
