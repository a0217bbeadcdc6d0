"""A scikit-learn regressor that learns row-level coefficients from bag labels."""

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError, StrategyError, check_name
from bagwise.families import Family, find_family
from bagwise.glm.data import BagData
from bagwise.glm.design import read_offset
from bagwise.glm.inference import COVARIANCES
from bagwise.learn.bag_data import read_bags
from bagwise.learn.doubt import warn_of_shrinkage
from bagwise.learn.few_bags import fit_few_bags, share_threshold
from bagwise.learn.fitting import LOSSES, Setting, fit_equations
from bagwise.learn.mixture import fit_mixture
from bagwise.learn.model_selection import BagRegressorMixin
from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.models.row_model import Estimates
from bagwise.privacy.laws import Law
from bagwise.privacy.noise import LabelKind, check_label_kind
from bagwise.privacy.noise_laws import find_law
from bagwise.rows.labels import check_bounds
from bagwise.show import charts

NO_OFFSETS = "loss='mixture' knows neither exposure nor offsets. Use loss='bag' (--loss bag)."
POSTERIOR = (
    "Intervals: posterior, for slopes as small as the fit takes them to be. They cover on average "
    "over such slopes, and not each of them."
)


def check_ridge(ridge: float | Literal["auto"]) -> None:
    """Refuse an invalid penalty."""
    if ridge != "auto" and not 0 <= ridge < np.inf:
        raise StrategyError(f"ridge must be finite and at least 0, or 'auto', got {ridge!r}.")


def fit_bags(
    setting: Setting,
    loss: str,
    *,
    covariance: str = "auto",
    threshold: float | Literal["auto", "shares"] = "auto",
) -> Estimates:
    """Fit a loss as the bags require; return the fit and the threshold for labels of 1."""
    data, family = setting.data, setting.family
    if data.single_rows:  # there is nothing to shrink or to choose from
        loss = "aggregate"
    few = loss == "bag" and setting.has_few_bags and setting.tells_chances
    if loss == "mixture":
        fitted = fit_mixture(setting)
    elif few:
        fitted = fit_few_bags(setting)
    else:
        fitted = fit_equations(setting, loss, covariance=covariance)
    if family.name != "bernoulli" or (threshold == "auto" and not few):
        return fitted
    if threshold in ("auto", "shares"):
        coef, intercept = fitted.split(classes=False)
        eta = data.X @ coef + intercept
        chance = family.mean(eta if data.offset is None else eta + data.offset)
        share = float(np.average(data.labels, weights=data.weight * data.sizes))
        threshold = share_threshold(chance, share, data.row_weights)
    return replace(fitted, threshold=float(threshold))


class BaggedGLM(BagRegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a row-level generalised linear model to labels that are known per bag.

    Parameters
    ----------
    family : str or Family
        Distribution of a row's label: a name from ``bagwise.FAMILIES``, or an instance.
    loss : {"bag", "instance", "aggregate", "mixture"}
        What is compared with a bag's label: the mean of its rows' expected labels ("bag"), each
        row's expected label ("instance"), the expected label at its centroid ("aggregate"), or, for
        picked labels of the Gaussian family, the distribution of each row that it may have come
        from ("mixture").
    label_kind : {"mean", "pick"}
        Whether bag labels are means or the label of one row; it decides how noisy they are.
    debias : bool
        With loss="instance": undo the shrinkage that random bags cause (estimator F3). The result
        is that of bag loss with bags weighted by size.
    weights : {"known-noise", "equal"}
        For bag and aggregate loss: trust bags by the variance of their labels, or all the same.
    ridge : float or "auto"
        Adds ``ridge / 2 * |coef|^2`` to the mean loss; the intercept is not penalised. "auto" means
        0 where no noise is known. Where it is (`noise_sd`), slopes are shrunk in white columns as
        far as the labels suggest, by restricted likelihood, for bag and aggregate loss with
        weights by the known noise.
    fit_intercept : bool
    covariance : {"auto", "model", "robust", "cautious"}
        Whether intervals take the variance of bag labels from the model or from their residuals.
        "cautious" is the larger of the two for each coefficient. "auto" is "model" for the Gaussian
        family, and "cautious" for all others.
    noise : {"gaussian", "laplace"} or Law
        The kind of noise that `noise_sd` is the size of; `Release.noise_law` is that of a release.
        With ``ridge="auto"``, bag loss and enough bags its own likelihood takes the place of least
        squares.
    bounds : (lo, hi), optional
        Public range of a row's label. With ``ridge="auto"`` it limits what slopes are believed to
        be; predictions are not clipped.
    threshold : float, "shares" or "auto"
        For family "bernoulli": the chance above which `predict_class` says 1. "shares" puts it
        where as many of the rows that were fitted are 1 as the bags say. "auto" is "shares" for
        few large bags (see the notes), and 0.5 for all others.

    Attributes
    ----------
    coef_ : (d,) floats, or (classes - 1, d)
    intercept_ : float, or (classes - 1,) floats
    rank_ : int
        Number of directions of the features that the bags determine.
    n_bags_ : int
    dispersion_ : float or None
        phi: the variance of a row's label is phi times the family's variance function. Privacy
        noise, and for picks the spread inside bags, are taken out. None for loss="instance".
    label_noise_sd_ : float or None
        Its square root for the Gaussian family: the standard deviation of one row's label.
    covariance_ : (d + 1, d + 1) floats or None
        Of the coefficients and, last, the intercept, as they are without shrinking. None where no
        honest one can be given.
    unshrunk_ : (d + 1,) floats or None
        For a fit that was shrunk: coefficients and intercept without that.
    posterior_covariance_ : (d + 1, d + 1) floats or None
        For a fit that was shrunk: what is left to doubt if slopes are as small as it takes them.
    converged_ : bool
    threshold_ : float or None
        The chance above which `predict_class` says 1; None but for family "bernoulli".

    Notes
    -----
    With ``bags=None`` each row is a bag of its own and this is an ordinary GLM.

    **Few large bags.** Where bags of several rows are fewer than five for each coefficient, carry
    no noise and tell of chances (bernoulli, multinomial; ``loss="bag"``, ``ridge="auto"``), slopes
    are held back, and the fit also asks which bag each row is in: rows of different classes are
    then often in different bags. There are no intervals for such a fit. Few bags of counts
    (poisson) have their slopes shrunk as far as sampling hides them. ``ridge=0`` does without.

    Guarantee: bag loss is consistent for every family, and aggregate loss for the Gaussian one, if
    the bags were formed without looking at the noise of the labels. Instance loss is biased towards
    zero unless rows of a bag share their expected label (erratum E9); sorting the labels that are
    then averaged biases bag loss (E8).

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

    __metadata_request__fit: ClassVar[dict[str, bool]] = {
        "counts": True,
        "exposure": True,
        "offset": True,
    }
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"exposure": True, "offset": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"exposure": True, "offset": True}

    def __init__(
        self,
        family: str | Family = "gaussian",
        loss: str = "bag",
        *,
        label_kind: str = "mean",
        debias: bool = False,
        weights: str = "known-noise",
        ridge: float | Literal["auto"] = "auto",
        fit_intercept: bool = True,
        covariance: str = "auto",
        noise: str | Law = "gaussian",
        bounds: tuple[float, float] | None = None,
        threshold: float | Literal["auto", "shares"] = "auto",
    ) -> None:
        self.family = family
        self.loss = loss
        self.label_kind = label_kind
        self.debias = debias
        self.weights = weights
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.covariance = covariance
        self.noise = noise
        self.bounds = bounds
        self.threshold = threshold

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        bags: Any = None,
        noise_sd: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        offset: Any = None,
        counts: Any = None,
    ) -> Self:
        """Fit from rows X, (n, d), and y, (n,), the label of each row's bag.

        Parameters
        ----------
        bags : (n,) ids, optional
            Rows with the same id form a bag. Without it each row is its own bag.
        noise_sd : float or (n,) floats, optional
            Known standard deviation of the privacy noise on each row's bag label.
        sample_weight : (n,) floats, optional
            Prior weights: a label of weight w varies as the mean of w labels would. Constant inside
            a bag unless loss="instance".
        exposure : float or (n,) floats, optional
            How long or how often each row was observed: its expected label is so many times the
            rate that is modelled, under a logarithmic link. A bag's label is the mean of counts,
            not of rates.
        offset : float or (n,) floats, optional
            What is added to each row's linear predictor.
        counts : (n,) floats, optional
            How many rows of its bag each row stands for, such as the members of a group in a
            district; for bag and aggregate loss. A weight says how sure a bag's label is; a count
            says what it is the mean of.
        """
        kind = self._check_parameters()
        family = find_family(self.family)
        X, y = self._read(X, y, family)
        by_row = self.loss == "instance" and not self.debias
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        offset = read_offset(len(X), family, exposure=exposure, offset=offset)
        if offset is not None and self.loss == "mixture":
            raise StrategyError(NO_OFFSETS)
        if counts is not None and self.loss not in ("bag", "aggregate"):
            raise StrategyError(f"counts belong to loss='bag' and 'aggregate', not {self.loss!r}.")
        data = read_bags(
            X, y, bags=bags, noise_sd=noise_sd, sample_weight=sample_weight, weights_differ=by_row,
            offset=offset, counts=counts,
        )  # fmt: skip
        self.fit_data(data, kind, tuple(self._names()))
        return self

    def fit_data(
        self, data: BagData, kind: LabelKind, names: tuple[str, ...] = ()
    ) -> tuple[Setting, Estimates]:
        """Fit rows and bags that are checked, wherever they are."""
        # 1. Settle everything about the fit.
        family, rule, loss = find_family(self.family), self.weights, self.loss
        if not data.noise_sd.any():
            family.check_labels(data.labels)
        if loss == "instance":
            rule, loss = ("size", "bag") if self.debias else ("equal", loss)
        width = np.inf if self.bounds is None else self.bounds[1] - self.bounds[0]
        law = find_law(self.noise)
        setting = Setting(
            data, family, kind, rule, self.fit_intercept, self.ridge, names, law, width
        )
        # 2. Fit, and keep what the fit says.
        made = fit_bags(setting, loss, covariance=self.covariance, threshold=self.threshold)
        self.estimates_, self.n_bags_ = made, data.bags.n_bags
        self.coef_: FloatArray
        self.coef_, self.intercept_ = made.split(classes=family.has_classes)
        self.rank_, self.converged_ = made.rank, bool(made.converged)
        self.dispersion_, self.label_noise_sd_ = made.dispersion, None
        if self.dispersion_ is not None and family.name == "gaussian":
            self.label_noise_sd_ = float(np.sqrt(self.dispersion_))
        self.covariance_, self.freedom_, self.note_ = made.covariance, made.freedom, made.note
        self.unshrunk_, self.posterior_covariance_ = made.unshrunk, made.posterior
        self.threshold_: float | None = None
        if family.name == "bernoulli":
            self.threshold_ = 0.5 if made.threshold is None else made.threshold
        if made.dispersion is None and data.parts is None:  # as instance loss has it
            warn_of_shrinkage(data, self.coef_)
        return setting, made

    def predict(self, X: Any, *, exposure: Any = None, offset: Any = None) -> FloatArray:
        """Return the expected label of each row; for classes their chances, (n, classes).

        Without an exposure that is the rate: what is expected of an exposure of one.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        family = find_family(self.family)
        eta: FloatArray = X @ self.coef_.T + self.intercept_
        known = read_offset(len(X), family, exposure=exposure, offset=offset)
        return family.mean(eta if known is None else eta + known)

    @available_if(  # type: ignore[untyped-decorator]
        lambda self: find_family(self.family).label_range == (0.0, 1.0)
    )
    def predict_proba(self, X: Any) -> FloatArray:
        """Return the chance of every class, (n, classes); for bernoulli of 0 and of 1."""
        chances = self.predict(X)
        return chances if chances.ndim == 2 else np.column_stack([1 - chances, chances])

    @available_if(  # type: ignore[untyped-decorator]
        lambda self: find_family(self.family).name == "bernoulli"
    )
    def predict_class(self, X: Any) -> AnyArray:
        """Return 1 for each row whose chance is above `threshold_`, and 0 for the others."""
        return np.asarray(self.predict(X) > float(self.threshold_ or 0.0), dtype=np.int64)

    def summary(self, *, level: float = 0.95, intervals: str = "confidence") -> Coefficients:
        """Return estimates, standard errors, intervals and p-values.

        They hold aggregation, label noise and privacy noise. Where a loss estimates something else
        than the row-level coefficients there are none, and the note says why.

        Parameters
        ----------
        level : float
        intervals : {"confidence", "posterior"}
            Where estimates were shrunk (``ridge="auto"``), "confidence" intervals are those of the
            estimates without shrinking: they cover each coefficient whatever it is. "posterior"
            ones are shorter and lie around the estimates; they cover on average over coefficients
            that are as small as the fit takes them to be.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(400, 1))
        >>> bags = np.arange(400) // 4
        >>> y = (1 + 2 * X[:, 0] + rng.normal(size=400)).reshape(100, 4).mean(axis=1)
        >>> print(BaggedGLM().fit(X, y[bags], bags=bags).summary())
        gaussian, bag loss, 100 bags
                     estimate  std. error      t        p  95 % interval
        x0             2.0539      0.0983  20.90  <0.0001  1.859 to 2.249
        (intercept)   0.98619      0.0516  19.13  <0.0001  0.8839 to 1.089
        Standard errors: model, over 100 bags.
        """
        check_is_fitted(self)
        check_name("intervals", intervals, ("confidence", "posterior"))
        covariance, freedom, unshrunk, note = (
            self.covariance_, self.freedom_, self.unshrunk_, self.note_,
        )  # fmt: skip
        if intervals == "posterior":
            if self.posterior_covariance_ is None:
                raise StrategyError("posterior intervals need a shrunken fit (ridge='auto').")
            covariance, freedom, unshrunk = self.posterior_covariance_, np.inf, None
            note = POSTERIOR
        errors = None if covariance is None else np.sqrt(np.diag(covariance))
        family = find_family(self.family)
        return Coefficients(
            names=tuple(self._names()),
            estimate=self.estimates_.table.ravel(),
            standard_error=errors,
            freedom=freedom,
            title=f"{family.name}, {self.loss} loss, {self.n_bags_} bags",
            note=note,
            level=level,
            unshrunk=unshrunk,
        )

    def conf_int(self, *, level: float = 0.95, intervals: str = "confidence") -> FloatArray:
        """Return intervals of the coefficients and, last, the intercept, (d + 1, 2)."""
        return self.summary(level=level, intervals=intervals).interval

    def plot(self, *, level: float = 0.95, intervals: str = "confidence") -> charts.Chart:
        """Draw each coefficient with its interval; needs the extra ``bagwise[plot]``."""
        return self.summary(level=level, intervals=intervals).plot()

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's box and, once fitted, the coefficients below it."""
        box = str(super()._repr_html_inner())
        return box + self.summary()._repr_html_() if hasattr(self, "coef_") else box

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def _read(self, X: Any, y: Any, family: Family) -> tuple[FloatArray, AnyArray]:
        if not family.has_classes:
            X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
            return X, y
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True)
        if y.ndim == 1 and not type_of_target(y).startswith("continuous"):
            self.classes_ = np.unique(y)
        elif y.ndim == 2 and y.shape[1] > 1:
            self.classes_ = np.arange(y.shape[1])
        else:
            raise LabelError("the multinomial family takes classes, (n,), or shares, (n, classes).")
        if self.classes_.size < 2:
            raise LabelError("the multinomial family needs two classes; n_samples=1 has only one.")
        return X, self._shares(y)

    def _as_predicted(self, y: AnyArray) -> AnyArray:
        return self._shares(y) if hasattr(self, "classes_") else y

    def _shares(self, y: AnyArray) -> FloatArray:
        """Return shares of classes; a class is a share of one."""
        y = np.asarray(y)
        if y.ndim == 2:
            return y.astype(np.float64)
        return np.asarray(y[:, None] == self.classes_, dtype=np.float64)

    def _names(self) -> list[str]:
        default = [f"x{i}" for i in range(self.n_features_in_)]
        names = [*getattr(self, "feature_names_in_", default), INTERCEPT]
        if not hasattr(self, "classes_"):
            return names
        return [f"{label}: {name}" for label in self.classes_[1:] for name in names]

    def _check_parameters(self) -> LabelKind:
        check_name("loss", self.loss, LOSSES)
        check_name("weights", self.weights, ("known-noise", "equal"))
        check_name("covariance", self.covariance, COVARIANCES)
        check_ridge(self.ridge)
        if self.debias and self.loss != "instance":
            raise StrategyError(f"debias belongs to loss='instance', not to {self.loss!r}.")
        if not (self.threshold in ("auto", "shares") or 0 <= float(self.threshold) <= 1):
            raise StrategyError(
                f"threshold must be from 0 to 1, 'auto' or 'shares', got {self.threshold!r}."
            )
        check_bounds(self.bounds)
        kind = check_label_kind(self.label_kind)
        if self.loss == "mixture" and kind != "pick":
            raise StrategyError(
                "loss='mixture' is the likelihood of a label picked from its bag. "
                "Set label_kind='pick', or loss='bag' for means."
            )
        return kind
