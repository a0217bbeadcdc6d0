"""Boosted trees for scikit-learn that learn from bags: a regressor and a classifier."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError, StrategyError, check_name
from bagwise.families import find_family
from bagwise.learn.bag_data import read_bags, read_weights
from bagwise.learn.bag_weights import bag_weights, class_weights, working_variance
from bagwise.learn.boosting import (
    STARTS,
    Boosting,
    lightgbm,
    shapes_of,
    table_of_bins,
)
from bagwise.learn.model_selection import BagRegressorMixin, TakesBags, bag_r2_score
from bagwise.learn.row_variance import row_variance
from bagwise.models.trees import SOFTMAX, Levels, committee_means, shares_of_gain
from bagwise.privacy.noise import check_label_kind

FAMILIES_OF_TREES = ("gaussian", "poisson", "gamma", "inverse_gaussian", "bernoulli")
_CELLS_WORTH_THREADS = 1_000_000
MANY_BAGS = 10_000
_FEW, _MANY = ((4, 8), 0.1, 50), ((8, 16), 0.5, 20)
"""Leaves, learning rate and patience. Many bags bear larger steps: 20,000 bags of 10 rows, or of 5
with much noise, were fitted better by them (errors of rows less by a half and by a third), and in a
third of the time."""


@dataclass(kw_only=True, eq=False, repr=False)
class BoostsTrees(TakesBags, BaseEstimator):  # type: ignore[misc]
    """Boost trees on a bag loss; subclasses define the labels."""

    leaves: int | Sequence[int] | None = None
    learning_rate: float | None = None
    max_rounds: int = 1000
    patience: int | None = None
    n_folds: int = 5
    start: str = "auto"
    label_kind: str = "mean"
    n_jobs: int | None = None
    random_state: Any = None

    _CHECKS: ClassVar[dict[str, bool]]  # of y, by scikit-learn

    @abstractmethod
    def _read_labels(self, y: AnyArray, *, has_noise: bool) -> tuple[str, FloatArray]:
        """Return the family and the labels in its form, or refuse them."""

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit from rows X, (n, d), and y, the label of each row's bag.

        Parameters
        ----------
        y : (n,), or (n, classes) for shares of classes
        bags : Bags or (n,) ids, optional
            Rows with the same id form a bag. Without it each row is its own bag.
        noise_sd : float or (n,) floats, optional
            Known standard deviation of the privacy noise on each row's bag label.
        sample_weight : (n,) floats, optional
            Constant inside a bag.
        """
        # 1. Check everything before any work.
        lightgbm()  # or say that it is missing
        kind = check_label_kind(self.label_kind)
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, **self._CHECKS)
        if sample_weight is not None:
            sample_weight = read_weights(sample_weight, len(X))
        has_noise = noise_sd is not None and bool(np.any(noise_sd))
        family, labels = self._read_labels(y, has_noise=has_noise)
        data = read_bags(X, labels, bags=bags, noise_sd=noise_sd, sample_weight=sample_weight)
        find_family(family).check_labels(data.labels[data.noise_sd == 0])
        # 2. Weigh the bags by a quick fit.
        named = {"gaussian": "identity", "bernoulli": "logit", "multinomial": SOFTMAX}
        self.family_, self.link_ = family, named.get(family, "log")
        self.levels_ = Levels.find(X)
        leaves, learning_rate, patience = _MANY if data.bags.n_bags >= MANY_BAGS else _FEW
        boosting = Boosting(
            data=data,
            family=family,
            link=self.link_,
            label_kind=kind,
            table=table_of_bins(X, self.levels_),
            learning_rate=self.learning_rate or learning_rate,
            threads=_threads(self.n_jobs, X),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            shapes=shapes_of(self._leaves() or leaves),
            starts=STARTS if self.start == "auto" else [self.start],
            most=self.max_rounds,
            patience=self.patience or patience,
            n_folds=self.n_folds,
        )
        predict_bags = boosting.predict_bags
        if self.link_ == SOFTMAX:
            weight = class_weights(data, label_kind=kind, predict_bags=predict_bags)
        else:
            variance = working_variance(family, data)
            weight = bag_weights(
                data, label_kind=kind, predict_bags=predict_bags, variance=variance
            )
        # 3. Try all ways, and blend. Errors are kept without what noise adds to all of them.
        self.members_, ways, blend = boosting.run(weight)
        by_bag = weight if weight.ndim == 1 else weight.sum(axis=1)
        noise = float(np.sum(by_bag * data.noise_sd**2) / np.sum(by_bag))
        self.ways_ = [
            {
                "start": way.start,
                "leaves": way.shape.leaves,
                "random_cuts": way.shape.random_cuts,
                "rounds": way.rounds,
                "error": way.error - noise,
                "weight": share,
            }
            for way, share in zip(ways, blend.tolist(), strict=True)
        ]
        # 4. How much rows vary, by bags that trees have not seen.
        self.n_bags_ = data.bags.n_bags
        self.row_variance_ = None
        if find_family(family).label_range[1] == np.inf:
            mean = committee_means(self.members_, self.levels_, X, self.link_)
            seen = data.bags.mean(mean)
            blended = sum(share * way.means for share, way in zip(blend, ways, strict=True))
            held_out = blended if ways else np.full_like(seen, np.nan)
            self.row_variance_ = row_variance(
                X,
                data.bags,
                data.labels - np.where(np.isnan(held_out), seen, held_out),
                mean,
                data.noise_sd,
                family=find_family(family),
                picked=kind == "pick",
            )
        return self

    @property
    def feature_importances_(self) -> FloatArray:
        """Share of each column of X in the total gain of the trees, without any linear start."""
        check_is_fitted(self)
        return shares_of_gain(self.members_, self.levels_)

    def _means(self, X: Any) -> FloatArray:
        """Return expected labels, (n,), or chances, (n, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return committee_means(self.members_, self.levels_, X, self.link_)

    def _leaves(self) -> list[int]:
        if self.leaves is None:
            return []
        return list(self.leaves) if isinstance(self.leaves, Sequence) else [self.leaves]

    def _check_parameters(self) -> None:
        check_name("start", self.start, ("auto", *STARTS))
        counts: list[tuple[str, Any, int]]
        counts = [("max_rounds", self.max_rounds, 1), ("n_folds", self.n_folds, 2)]
        counts += [("leaves", n, 2) for n in self._leaves()]
        counts += [] if self.patience is None else [("patience", self.patience, 1)]
        for name, value, least in counts:
            if not isinstance(value, Integral) or value < least:
                raise StrategyError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise StrategyError(
                f"learning_rate must be above 0 and at most 1, got {self.learning_rate!r}."
            )


def _threads(n_jobs: int | None, X: FloatArray) -> int:
    """Return how many threads grow trees, 0 for LightGBM's own choice; trees are the same.

    Threads wait for each other several times a tree. Where a tree takes less than a millisecond,
    waiting takes longer than growing, and a hundred times longer if another program has the cores.
    """
    if n_jobs is not None:
        return n_jobs
    return 1 if X.size < _CELLS_WORTH_THREADS else 0


@dataclass(eq=False, repr=False)
class BaggedBooster(BagRegressorMixin, BoostsTrees):
    """Boost regression trees of rows on labels that are known per bag.

    The mean prediction of each bag is compared with its label (`BagObjective`), so that trees see
    single rows and never a repeated label. Several ways to boost are tried on held-out bags and
    blended. It needs LightGBM: ``pip install "bagwise[boost]"``; to predict, nothing is needed.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma", "inverse_gaussian", "bernoulli"}
        What a row's label is. Trees add up to the expected label, to its logarithm, or for
        bernoulli to its log odds.
    leaves : int or sequence of int, optional
        Numbers of leaves to try; by default 4 and 8, and 8 and 16 for 10,000 bags or more. The
        largest trees get cuts that are drawn at random, the best of
        one per column; they follow noise less. A single number is tried with both kinds of cuts.
    learning_rate : float, optional
        By default 0.1, and 0.5 for 10,000 bags or more.
    max_rounds : int
        Most trees of one way to boost.
    patience : int, optional
        Rounds without a better prediction of held-out bags, after which a way is not followed on.
        By default 50, and 20 for 10,000 bags or more.
    n_folds : int
        Folds of whole bags, each held out once to choose the number of rounds and the blend; twice
        as many if folds would have fewer than 20 bags.
    start : {"auto", "constant", "glm"}
        What trees are added to: the mean label, or a linear fit that is shrunk as far as the labels
        suggest. "auto" tries both.
    label_kind : {"mean", "pick"}
        Whether bag labels are means or the label of one row; it decides how noisy they are.
    n_jobs : int or None
        Threads; None is one for a table of less than a million cells, where more are slower, and
        leaves it to LightGBM beyond.
    random_state : int, RandomState or None
        An integer gives the same trees every time.

    Attributes
    ----------
    members_ : tuple of Member
        The fits that are blended, as plain arrays.
    ways_ : list of dict
        Everything that was tried: start, leaves, rounds, weight in the blend, and the mean squared
        error on held-out bags, from which known noise was taken out.
    levels_ : Levels
        Which columns of X are seen as one category.
    feature_importances_ : (d,) floats
        Share of each column in what the trees have gained; a category's is divided equally.
    row_variance_ : float or None
        Variance of a label around its prediction, relative to the family's, from held-out bags.
    n_bags_ : int
    n_features_in_ : int
    feature_names_in_ : array of strings
        If X had column names.

    Notes
    -----
    Bags count by one over the variance of their labels. Of fewer than 20
    bags only the start is fitted: trees would follow chance.

    Neighbouring columns of zeros and ones of which no row has two are taken for the levels of one
    category. Trees then ask "is it this level?" also of the level that has no column.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.sort(rng.uniform(-3, 3, size=(1200, 1)), axis=0)
    >>> bags = np.arange(1200) // 6                          # neighbours share a bag
    >>> label = np.abs(X[:, 0]).reshape(200, 6).mean(axis=1)
    >>> model = BaggedBooster(random_state=0, n_jobs=1).fit(X, label[bags], bags=bags)
    >>> bool(np.mean((model.predict(X) - np.abs(X[:, 0])) ** 2) < 0.05)
    True
    """

    family: str = "gaussian"

    _CHECKS: ClassVar[dict[str, bool]] = {"y_numeric": True}

    def _read_labels(self, y: AnyArray, *, has_noise: bool) -> tuple[str, FloatArray]:
        del has_noise
        check_name("family of boosted trees", self.family, FAMILIES_OF_TREES)
        return self.family, y

    def predict(self, X: Any) -> FloatArray:
        """Return the expected label of each row."""
        return self._means(X)


@dataclass(eq=False, repr=False)
class BaggedClassifier(ClassifierMixin, BoostsTrees):  # type: ignore[misc]
    """Boost trees that predict the classes of rows, from labels that are known per bag.

    Like `BaggedBooster`, with one score per class (two classes share one). It needs LightGBM:
    ``pip install "bagwise[boost]"``; to predict, nothing is needed.

    Parameters
    ----------
    classes : sequence, optional
        What the columns of class shares are called; for one share per bag the two classes, the one
        that it is the share of coming last. By default 0, 1, ... Labels that are classes name
        themselves.
    leaves, learning_rate, max_rounds, patience, n_folds, start, label_kind, n_jobs, random_state
        As for `BaggedBooster`.

    Attributes
    ----------
    classes_ : (classes,)
    takes_shares_ : bool
        Whether y held shares of classes, and not classes.
    members_, ways_, levels_, n_bags_, n_features_in_, feature_names_in_
        As for `BaggedBooster`.

    Notes
    -----
    What `fit` takes as y, always one entry per row that repeats the label of its bag:

    * shares of all classes, (n, classes), with or without noise;
    * the mean of labels 0 and 1, (n,), with or without noise;
    * a class, (n,): with ``label_kind="pick"`` that of one row of the bag, drawn at random; without
      bags that of the row itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.sort(rng.uniform(-3, 3, size=(1200, 1)), axis=0)
    >>> bags = np.arange(1200) // 6                          # neighbours share a bag
    >>> share = (np.abs(X[:, 0]) > 1).reshape(200, 6).mean(axis=1)
    >>> model = BaggedClassifier(classes=["near", "far"], random_state=0, n_jobs=1)
    >>> model.fit(X, share[bags], bags=bags).predict([[-2.0], [0.0], [2.0]])
    array(['far', 'near', 'far'], dtype='<U4')
    """

    classes: Sequence[Any] | None = None

    _CHECKS: ClassVar[dict[str, bool]] = {"multi_output": True}

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the chance of every class, (n, classes)."""
        chances = self._means(X)
        return chances if chances.ndim == 2 else np.column_stack([1 - chances, chances])

    def predict(self, X: Any) -> AnyArray:
        """Return the most likely class of each row."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[np.argmax(chances, axis=1)])

    def score(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
    ) -> float:
        """Return the share of rows whose class is predicted; for bags, score their class shares.

        With `bags` it is `bag_r2_score` of the shares, known noise taken out.
        """
        if bags is None:
            return float(super().score(X, y, sample_weight=sample_weight))
        check_is_fitted(self)
        chances = self.predict_proba(X)
        shares = self._shares(np.asarray(y))
        return bag_r2_score(
            shares,
            chances if shares.ndim == 2 else chances[:, 1],
            bags=bags,
            noise_sd=noise_sd,
            sample_weight=sample_weight,
        )

    def _read_labels(self, y: AnyArray, *, has_noise: bool) -> tuple[str, FloatArray]:
        """Determine the classes; return shares, (n,) for two classes."""
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        named = None if self.classes is None else np.asarray(self.classes)
        # Numbers with noise are shares, even if all of them happened to be whole; and so are those
        # that are not called like a class.
        is_share = has_noise or y.ndim == 2 or type_of_target(y).startswith("continuous")
        unlike = named is not None and y.dtype.kind in "fiu" and not np.isin(y, named).all()
        is_share = is_share or unlike
        self.takes_shares_ = is_share
        if is_share and not has_noise and (np.any(y < 0) or np.any(y > 1)):
            raise LabelError(
                "y is continuous, and some labels are below 0 or above 1, so that they are neither "
                "classes nor shares of them. Give noise_sd if shares have noise, or use "
                "BaggedBooster for numbers."
            )
        if not is_share:
            check_classification_targets(y)
            self.classes_ = np.unique(y) if named is None else named
        else:
            count = y.shape[1] if y.ndim == 2 else 2
            self.classes_ = np.arange(count) if named is None else named
            if self.classes_.shape != (count,):
                raise LabelError(f"y has shares of {count} classes, but classes names others.")
        if self.classes_.size < 2:
            raise LabelError("a classifier needs two classes; here is one class only.")
        if not is_share and not np.isin(y, self.classes_).all():
            raise LabelError("some labels are none of the classes.")
        shares = self._shares(y)
        return "bernoulli" if shares.ndim == 1 else "multinomial", shares

    def _shares(self, y: AnyArray) -> FloatArray:
        """Return the share of the last of two classes, (n,), or of all classes, (n, classes)."""
        if y.ndim == 2:
            shares = y.astype(np.float64)
        elif self.takes_shares_:
            return y.astype(np.float64)
        else:
            shares = np.asarray(y[:, None] == self.classes_, dtype=np.float64)
        return shares[:, 1] if shares.shape[1] == 2 else shares
