"""Model selection with bag labels: splits that keep bags whole, and scores of bags.

A row's label is never needed. `BagKFold` holds out bags; the scores compare a bag's label with the
mean prediction of its rows, and take out what known noise on the labels adds.

scikit-learn passes bags and noise on to splitter, estimator and scorer if its metadata routing is
enabled: ``sklearn.set_config(enable_metadata_routing=True)``. Give bags as ids, one per row (of
`Bags` its ``index``): it has to cut them into folds with the rows.
"""

import heapq
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
from sklearn import config_context
from sklearn.base import RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BagsError, BagwiseError, LabelError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.glm.data import BagData
from bagwise.learn.bag_data import finite_floats, read_bags, read_weights


class BagKFold(BaseCrossValidator):  # type: ignore[misc]
    """Deal whole bags into folds of about as many rows each; every bag is tested once.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2.
    shuffle : bool
        Deal the bags in random order. Otherwise the largest come first, which balances best.
    random_state : int, RandomState or None
        Of the shuffling; an integer makes the same folds every time.

    Notes
    -----
    Guarantee: no two folds differ by more rows than the largest bag has.

    Examples
    --------
    >>> bags = ["a", "a", "b", "b", "c", "c"]
    >>> for train, test in BagKFold(3, shuffle=False).split(np.zeros((6, 1)), bags=bags):
    ...     print(train, test)
    [2 3 4 5] [0 1]
    [0 1 4 5] [2 3]
    [0 1 2 3] [4 5]
    """

    __metadata_request__split: ClassVar = {"bags": True}

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None
    ) -> None:
        whole = isinstance(n_splits, int | np.integer) and not isinstance(n_splits, bool)
        if not whole or n_splits < 2:
            raise StrategyError(f"n_splits must be a whole number of at least 2, got {n_splits!r}.")
        self.n_splits = int(n_splits)
        self.shuffle = shuffle
        self.random_state = random_state

    def split(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn passes it to every splitter
        groups: Any = None,
        *,
        bags: Any = None,
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Return pairs of row numbers, of the rows to train on and of those to test on.

        The bag of each row arrives as `bags` by metadata routing, as `groups` without it.
        """
        if bags is None and groups is None:
            raise BagsError(
                "bags are missing. Enable metadata routing, and pass params={'bags': ids}. Without "
                "routing, pass groups=ids for the folds and params={'bags': ids} for the fit."
            )
        n_rows = _num_samples(X)
        given, other = (
            read_bags(np.empty((n_rows, 0)), np.zeros(n_rows), bags=ids).bags
            for ids in (groups if bags is None else bags, bags if groups is None else groups)
        )
        if not np.array_equal(given.index, other.index):
            raise BagsError("bags and groups describe different bags. Pass one of them.")
        if given.n_bags < self.n_splits:
            raise BagsError(
                f"BagKFold needs at least {self.n_splits} bags, got {given.n_bags}. Make fewer "
                "splits, or more and smaller bags."
            )
        rng, sizes = check_random_state(self.random_state), given.sizes
        order = rng.permutation(sizes.size) if self.shuffle else np.argsort(-sizes, kind="stable")
        # Each bag goes to the fold with the fewest rows.
        fold_of = np.empty(sizes.size, dtype=np.int64)
        folds = [(0, number) for number in range(self.n_splits)]  # rows so far, already a heap
        for bag in order:
            rows, number = folds[0]
            fold_of[bag] = number
            heapq.heapreplace(folds, (rows + int(sizes[bag]), number))
        fold = fold_of[given.index]
        return (
            (np.flatnonzero(fold != number), np.flatnonzero(fold == number))
            for number in range(self.n_splits)
        )

    def get_n_splits(self, *_data: Any, **_metadata: Any) -> int:
        """Return the number of splits, whatever the data."""
        return self.n_splits


def bag_r2_score(
    y_true: Any, y_pred: Any, *, bags: Any = None, noise_sd: Any = None, sample_weight: Any = None
) -> float:
    """Return the share of the variance of bag labels that mean predictions explain.

    Bags count by their number of rows. The known variance of noise on the labels is subtracted
    both from the error and from the spread of the labels, so that the score estimates what labels
    without noise would show.

    Parameters
    ----------
    y_true : (n,) or (n, outputs) floats
        The label of each row's bag.
    y_pred : (n,) or (n, outputs) floats
        A prediction for each row.
    bags : (n,) ids or Bags, optional
        Without it each row is a bag of its own.
    noise_sd : float or (n,) floats, optional
        Known standard deviation of the noise on the bag labels.
    sample_weight : (n,) floats, optional
        A bag counts by the sum of its rows' weights.

    Returns
    -------
    float
        At best about 1: by chance it exceeds 1 where noise was subtracted. Where noise leaves no
        spread to explain it is NaN, with an `UndefinedMetricWarning`. Of several outputs it is
        the mean.

    Notes
    -----
    Without bags and noise this is scikit-learn's ``r2_score``. If most of the spread of the labels
    is noise, dividing by what is left makes the score jump; choose models by
    `bag_mean_squared_error` or `bag_deviance` then, which do not divide.

    Examples
    --------
    >>> bag_r2_score([1, 1, 3, 3], [0, 2, 2, 4], bags=["a", "a", "b", "b"])
    1.0
    >>> bag_r2_score([1, 1, 3, 3], [0, 2, 2, 4])  # as row labels they would be badly predicted
    0.0
    """
    data, means, weights = _compare(y_true, y_pred, bags, noise_sd, sample_weight)
    if not data.noise_sd.any():
        return float(r2_score(data.labels, means, sample_weight=weights))
    # The spread of m noisy values around their mean holds this much of the noise.
    noise_in_spread = (weights * (1 - weights)) @ data.noise_sd**2
    spread = weights @ (data.labels - weights @ data.labels) ** 2 - noise_in_spread
    if (spread <= 0).any():
        warnings.warn(
            "R^2 is undefined: the labels of these bags vary no more than their noise does. "
            "Score more bags at a time, or use bag_mean_squared_error.",
            UndefinedMetricWarning,
            stacklevel=2,
        )
        return float("nan")
    return float(np.mean(1 - _squared_errors(data, means, weights) / spread))


def bag_mean_squared_error(
    y_true: Any, y_pred: Any, *, bags: Any = None, noise_sd: Any = None, sample_weight: Any = None
) -> float:
    """Return the mean squared error of mean predictions on bag labels, known noise taken out.

    Parameters are those of `bag_r2_score`. Bags count by their number of rows. The known variance
    of the noise is subtracted, so that the result is unbiased for the error on labels without
    noise, and may be negative by chance.

    Examples
    --------
    >>> y, bags = [1, 1, 3, 3], ["a", "a", "b", "b"]
    >>> bag_mean_squared_error(y, [2, 2, 2, 4], bags=bags)
    0.5
    >>> bag_mean_squared_error(y, [2, 2, 2, 4], bags=bags, noise_sd=0.5)
    0.25
    """
    found = _compare(y_true, y_pred, bags, noise_sd, sample_weight)
    return float(np.mean(_squared_errors(*found)))


def bag_deviance(
    y_true: Any,
    y_pred: Any,
    *,
    family: str | Family = "gaussian",
    bags: Any = None,
    noise_sd: Any = None,
    sample_weight: Any = None,
) -> float:
    """Return the mean deviance of bag labels at mean predictions, without its label-only part.

    For a bag with label y and mean prediction mu it is ``2 (b(eta) - y eta)``, where ``eta`` is
    the natural parameter of mu and b the cumulant of the family. The deviance itself adds a term
    that depends on the label only, so that both rank models alike.

    Parameters
    ----------
    y_true : (n,) floats, or (n, classes) for the multinomial family
        The label of each row's bag, or the shares of the classes in it.
    y_pred : the same shape
        The predicted mean of each row, or its probability of each class.
    family : str or Family
        A name from ``bagwise.FAMILIES``, or an instance.
    bags, noise_sd, sample_weight
        As for `bag_r2_score`.

    Notes
    -----
    It is linear in the labels, so that noise of mean zero leaves it unbiased: nothing has to be
    subtracted, and `noise_sd` is only checked. A noisy label may leave the range of the family;
    no logarithm is taken of it.

    Probabilities of 0 and 1 count as the closest number above 0 or below 1, as in scikit-learn's
    ``log_loss``.

    Examples
    --------
    >>> shares, bags = [0.5, 0.5, 1.0, 1.0], ["a", "a", "b", "b"]
    >>> round(bag_deviance(shares, [0.2, 0.8, 0.9, 0.9], family="bernoulli", bags=bags), 3)
    0.799
    >>> round(bag_deviance(shares, [0.9, 0.9, 0.5, 0.5], family="bernoulli", bags=bags), 3)
    1.897
    """
    fitted = find_family(family)
    data, means, weights = _compare(y_true, y_pred, bags, noise_sd, sample_weight)
    _check_predictions(data.X, fitted)
    every = slice(None) if fitted.has_classes else 0
    return float(2 * weights @ fitted.loss_by_mean(data.labels[:, every], means[:, every]))


def bag_scorer(metric: str = "r2", *, family: str | Family = "gaussian") -> Any:
    """Return a scikit-learn scorer of bags; larger is better for every metric.

    It asks for `bags`, `noise_sd` and `sample_weight` as metadata. They reach it if metadata
    routing is enabled; without bags it refuses to score, since single rows compared with bag
    labels would favour models that are too flat.

    Parameters
    ----------
    metric : {"r2", "mse", "deviance"}
        `bag_r2_score`, minus `bag_mean_squared_error`, or minus `bag_deviance`. With much noise on
        the labels take one of the latter two.
    family : str or Family
        Of the deviance.

    Notes
    -----
    Classifiers are scored by ``predict_proba``, other models by ``predict``. To weight the fit, but
    not the score, call ``set_score_request(bags=True, noise_sd=True)`` on the scorer.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.model_selection import cross_val_score
    >>> from bagwise import BaggedGLM
    >>> X = np.arange(24.0)[:, None]
    >>> bags = np.repeat(np.arange(12), 2)
    >>> y = 3 * np.repeat(X.reshape(12, 2).mean(axis=1), 2)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = BaggedGLM().set_fit_request(bags=True)
    ...     scores = cross_val_score(
    ...         model, X, y, params={"bags": bags}, cv=BagKFold(3), scoring=bag_scorer("r2")
    ...     )
    >>> scores.round(6)
    array([1., 1., 1.])
    """
    check_name("metric", metric, _METRICS)
    find_family(family)
    options = {"family": family} if metric == "deviance" else {}
    scorer = make_scorer(
        _score_bags,
        response_method=("predict_proba", "predict"),
        greater_is_better=metric == "r2",
        metric=metric,
        **options,
    )
    # Requests can be set only while routing is enabled; they count whenever it is.
    with config_context(enable_metadata_routing=True):
        return scorer.set_score_request(bags=True, noise_sd=True, sample_weight=True)


_METRICS: dict[str, Callable[..., float]] = {
    "r2": bag_r2_score,
    "mse": bag_mean_squared_error,
    "deviance": bag_deviance,
}


def _score_bags(
    y_true: Any, y_pred: Any, *, metric: str, bags: Any = None, **options: Any
) -> float:
    if bags is None:
        raise BagsError(
            "a bag scorer got no bags. Enable routing with "
            "sklearn.set_config(enable_metadata_routing=True), and pass bags with the data, as in "
            "cross_validate(..., params={'bags': bags}) or GridSearchCV(...).fit(..., bags=bags)."
        )
    if np.ndim(y_pred) == 2 and np.shape(y_pred)[1] == 2 and np.ndim(y_true) == 1:
        y_pred = np.asarray(y_pred)[:, 1]  # chances of 0 and 1, whose labels are shares of 1
    return _METRICS[metric](y_true, y_pred, bags=bags, **options)


def _compare(
    y_true: Any, y_pred: Any, bags: Any, noise_sd: Any, sample_weight: Any
) -> tuple[BagData, FloatArray, FloatArray]:
    """Return predictions (as X) beside bag labels, their means, and weights that add up to 1."""
    labels = _by_output(finite_floats(y_true, "y_true", error=LabelError), "y_true")
    predictions = _by_output(finite_floats(y_pred, "y_pred", error=BagwiseError), "y_pred")
    if labels.shape != predictions.shape:
        raise BagsError(
            f"y_true and y_pred must have one entry per row each, got shapes {labels.shape} and "
            f"{predictions.shape}."
        )
    weight = None if sample_weight is None else read_weights(sample_weight, len(labels))
    data = read_bags(
        predictions, labels, bags=bags, noise_sd=noise_sd, sample_weight=weight, weights_differ=True
    )
    counts = data.bags.sizes * data.weight
    return data, data.bags.mean(predictions), counts / counts.sum()


def _squared_errors(data: BagData, means: FloatArray, weights: FloatArray) -> FloatArray:
    """Return for each output the mean squared error minus the contribution of noise."""
    return np.asarray(weights @ (data.labels - means) ** 2 - weights @ data.noise_sd**2)


def _by_output(values: FloatArray, what: str) -> FloatArray:
    if values.ndim not in (1, 2) or values.size == 0:
        raise BagsError(f"{what} must have one entry or one line per row, got {values.shape}.")
    return values.reshape(len(values), -1)


def _check_predictions(predictions: FloatArray, family: Family) -> None:
    n_outputs = predictions.shape[1]
    if (n_outputs > 1) != family.has_classes:
        expected = "a share per class" if family.has_classes else "one label"
        raise BagsError(f"the {family.name} family has {expected} per bag, got {n_outputs}.")
    wrong = ~family.can_expect(predictions)
    if wrong.any():
        low, high = family.label_range
        named = {(0.0, 1.0): "probabilities", (0.0, np.inf): "positive numbers"}
        expected = named.get((low, high), f"numbers above {low:g} and below {high:g}")
        raise BagwiseError(
            f"the {family.name} family predicts {expected}; {int(wrong.sum())} of "
            f"{wrong.size} predictions are not. Score a model with its own family."
        )
    # A float32 softmax is off by a millionth.
    if family.has_classes and np.abs(predictions.sum(axis=1) - 1).max() > 1e-4:
        raise BagwiseError("the predicted probabilities of a row's classes must add up to 1.")


class TakesBags:
    """Make pipelines and searches pass bag arguments on without being asked to."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"bags": True, "noise_sd": True}


class BagRegressorMixin(TakesBags, RegressorMixin):  # type: ignore[misc]
    """Take bags, and score on bag labels."""

    def score(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
        **known: Any,
    ) -> float:
        """Return the share of the bag labels' variance that mean predictions explain.

        Without `bags` that is the usual R^2 of rows. Known privacy noise is taken out. What is
        `known` of rows beside X goes to `predict`: exposure and offset of `BaggedGLM`.
        """
        return bag_r2_score(
            self._as_predicted(y),
            self.predict(X, **known),
            bags=bags,
            noise_sd=noise_sd,
            sample_weight=sample_weight,
        )

    def __sklearn_tags__(self) -> Any:
        """Declare labels non-negative if the family requires it: other checks would fail."""
        tags = super().__sklearn_tags__()
        family = getattr(self, "family", "gaussian")
        tags.target_tags.positive_only = find_family(family).label_range[0] >= 0
        return tags

    def _as_predicted(self, y: AnyArray) -> AnyArray:
        """Return labels in the form of predictions: unchanged, unless they are names of classes."""
        return y
