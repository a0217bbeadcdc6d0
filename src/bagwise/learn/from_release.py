"""From a release to a row-level model, with the warnings that the combination deserves."""

import warnings
from typing import Any, Literal

import numpy as np

from bagwise._types import FloatArray
from bagwise.data.labels import label_codes, label_vector
from bagwise.data.table import read_table
from bagwise.errors import BagwiseWarning, BiasWarning, NotConvergedWarning, StrategyError
from bagwise.families import FAMILIES, Family, find_family
from bagwise.learn.convert import BaggedData, with_rows
from bagwise.learn.estimator import BaggedGLM
from bagwise.models.row_model import RowModel, TrainedOn
from bagwise.release.explain import Explanation
from bagwise.release.release import Release
from bagwise.theory.misfit import DEFAULT_MISFIT


def fit_release(
    release: Release,
    *,
    family: str | Family = "auto",
    link: str = "canonical",
    loss: str = "auto",
    target: str | None = None,
    debias: bool = False,
    ridge: float | Literal["auto"] = "auto",
    fit_intercept: bool = True,
    rows: Any = None,
    rows_noise_sd: float = 0.0,
) -> RowModel:
    """Fit a row-level model to a release and keep it with the release's encoder.

    Parameters
    ----------
    family : str
        Distribution of a row's label. "auto" is multinomial for a label with classes, unless
        `target` names one of them, and gaussian otherwise.
    loss : str
        "auto" is instance loss where rows were sorted by scores, and bag loss elsewhere.
    target : str, optional
        For a label with classes, the one whose share is to be predicted.
    ridge : float or "auto"
        Penalty on large coefficients. "auto" is what the noise of the release suggests, and none
        where there is no noise (`BaggedGLM`).
    rows : frame or path, optional
        A few rows with labels of their own, which the learner has: a table with the release's
        columns and its label. They count as bags of one row.
    rows_noise_sd : float
        Known noise on the labels of `rows`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> area = np.arange(20.0, 120.0)
    >>> table = pa.table({"area": area, "rent": 150 + 11 * area})
    >>> release = make_release(table, label="rent", bag_size=10, not_private=True)
    >>> fit_release(release).predict(table.slice(0, 3)).round(6).tolist()
    [370.0, 381.0, 392.0]
    """
    family = _family_name(release, family, target)
    if loss == "auto":
        loss = "bag" if release.provenance.scores == "none" else "instance"
    _check_family(release, family, target)
    _check_loss(release, loss)
    distorted = _warn_of_selection(release, loss=loss, debias=debias)
    if loss == "instance" and not debias and release.provenance.scores == "model":
        distorted = "No intervals: slopes are shrunk a little, as far as the sorting missed them."
    estimator = BaggedGLM(
        family=family,
        loss=loss,
        link=link,
        label_kind=release.label_kind,
        debias=debias,
        ridge=ridge,
        fit_intercept=fit_intercept,
        noise=release.noise_law,
        bounds=release.certificate.bounds,
    )
    data = _training_data(release, target)
    if rows is not None:
        data = with_rows(data, *_granular(release, rows, target), noise_sd=rows_noise_sd)
    with warnings.catch_warnings():
        if release.provenance.scores != "none":  # instance loss is made for these bags
            warnings.simplefilter("ignore", BiasWarning)
        estimator.fit(data.X, data.y, **data.fit_params())
    found = estimator.summary()
    return RowModel(
        family=family,
        link=link,
        loss=loss,
        label=release.provenance.label,
        target=target,
        classes=release.classes if find_family(family).has_classes else None,
        encoder=release.encoder,
        coef=estimator.coef_,
        intercept=estimator.intercept_,
        standard_errors=None if distorted else found.standard_error,
        unshrunk=None if distorted else found.unshrunk,
        freedom=found.freedom,
        note=distorted or found.note,
        trained_on=TrainedOn(
            privacy=release.certificate.headline,
            n_rows=release.bags.n_rows,
            n_bags=release.bags.n_bags,
            n_labelled_rows=data.X.shape[0] - int(release.bags.in_bag.sum()),
            label_kind=release.label_kind,
            strategy=release.provenance.strategy,
            dispersion=None if (phi := estimator.dispersion_) is None else float(phi),
            converged=bool(estimator.converged_),
        ),
    )


def explain_by_fit(
    release: Release,
    *,
    family: str = "auto",
    link: str = "canonical",
    loss: str = "auto",
    target: str | None = None,
    sigma: float | None = None,
    misfit: float = DEFAULT_MISFIT,
) -> Explanation:
    """Explain the error to expect of a release, with coefficients from a fit to the release.

    Parameters as for `fit_release`; `sigma` replaces the fitted standard deviation of a label, and
    `misfit` is believed of the labels (`Release.explain`).
    Where the fit is lost in the noise, all coefficients are taken to be zero.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=1000)
    >>> table = pa.table({"x": x, "y": x + rng.normal(size=1000)})
    >>> release = make_release(table, label="y", bag_size=10, not_private=True)
    >>> explain_by_fit(release).predictions.shares()["label_noise"] > 0.99
    True
    """
    if release.classes and target is None:
        raise StrategyError(f"name one of the classes {', '.join(release.classes)} (--target).")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", BagwiseWarning)
        model = fit_release(release, family=family, link=link, loss="bag", target=target)
    if sigma is None:
        sigma = float(np.sqrt(model.trained_on.dispersion or 0.0))
    if loss == "auto":
        loss = "bag" if release.provenance.scores == "none" else "instance"
    coef, intercept = model.coef, float(model.intercept)
    if any(issubclass(warning.category, NotConvergedWarning) for warning in said):
        # A fit that ran away in the noise would be taken for a strong signal.
        mean = find_family(model.family).interior(float(np.mean(release.labels_of(target))))
        coef = np.zeros_like(coef)
        intercept = float(find_family(model.family, model.link).predictor(np.array(mean)))
    return release.explain(
        theta=coef,
        sigma=sigma,
        intercept=intercept,
        family=model.family,
        link=model.link,
        loss=loss,
        misfit=misfit,
    )


def _family_name(release: Release, family: str | Family, target: str | None) -> str:
    """Return the name of a family that a model file can keep."""
    if family == "auto":
        return "multinomial" if release.classes and target is None else "gaussian"
    name = find_family(family).name
    if name not in FAMILIES:
        raise StrategyError(
            f"family {name!r} is not registered in bagwise.FAMILIES, so that a model file could "
            "not say what it is. Register it, or fit BaggedGLM itself."
        )
    return name


def _check_family(release: Release, family: str, target: str | None) -> None:
    several = find_family(family).has_classes
    if several and (release.classes is None or target is not None):
        raise StrategyError(
            f"family {family} is for a label with classes, all of them at once: "
            "leave out target (--target), or choose another family."
        )
    if not several and release.classes is not None and target is None:
        raise StrategyError(
            f"family {family} predicts one number. Name one of the classes "
            f"{', '.join(release.classes)} as target (--target), or use family='multinomial'."
        )

    bounds = (0.0, 1.0) if release.classes else release.certificate.bounds
    low, high = find_family(family).label_range
    if bounds is not None and not low <= bounds[0] < bounds[1] <= high:
        raise StrategyError(
            f"the labels of this release lie between {bounds[0]:g} and {bounds[1]:g}, and those of "
            f"the family {family} between {low:g} and {high:g}. {find_family(family).advice}"
        )


def _check_loss(release: Release, loss: str) -> None:
    if loss == "mixture" and release.classes and release.certificate.is_private:
        raise StrategyError(
            "private picks of classes are replaced by chance, not noisy: loss='mixture' does not "
            "fit them. Use loss='bag' (--loss bag)."
        )
    if loss == "mixture" and release.label_kind != "pick":
        raise StrategyError(
            "loss='mixture' is for labels picked from their bags, and this release holds means. "
            "Use loss='bag' (--loss bag)."
        )


def _training_data(release: Release, target: str | None) -> BaggedData:
    X, y, bags = release.training_data(target)
    return BaggedData(X, y, bags, noise_sd=release.fit_params()["noise_sd"])


def _granular(release: Release, rows: Any, target: str | None) -> tuple[FloatArray, FloatArray]:
    """Return X and y of the learner's own rows, encoded as the release is."""
    table, label = read_table(rows), release.provenance.label
    X = release.encoder.transform(table)
    if release.classes is None:
        return X, label_vector(table, label)
    marks = np.eye(len(release.classes))[label_codes(table, label, release.classes)]
    return X, marks if target is None else marks[:, release.classes.index(target)]


def _warn_of_selection(release: Release, *, loss: str, debias: bool) -> str:
    """Warn if rows were sorted by the labels that are now averaged; return why intervals fail."""
    scores = release.provenance.scores
    if scores not in ("labels", "noisy-labels") or release.bags.sizes.max() == 1:
        return ""
    if loss != "instance" or debias:
        warnings.warn(
            f"{'debiased ' if debias else ''}{loss} loss on bags that were sorted by the same "
            "labels exaggerates the slopes: rows were grouped by their noise as well. "
            "Use plain loss='instance' (--loss instance).",
            BiasWarning,
            stacklevel=3,
        )
    return "No intervals: rows were put together by the labels that are now averaged."
