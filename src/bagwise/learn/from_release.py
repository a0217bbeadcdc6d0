"""From a release to a row-level model, with the warnings that the combination deserves."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from tempfile import gettempdir
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import scipy.optimize
import scipy.stats

from bagwise._types import FloatArray
from bagwise.errors import BagwiseWarning, BiasWarning, NotConvergedWarning, StrategyError
from bagwise.families import FAMILIES, Family, find_family
from bagwise.glm.design import read_offset
from bagwise.glm.problems import FAR
from bagwise.learn.convert import BaggedData, with_rows
from bagwise.learn.estimator import BaggedGLM
from bagwise.models.row_model import Estimates, RowModel
from bagwise.privacy import Certificate
from bagwise.release.explain import Explanation, explain_release
from bagwise.release.release import Release, check_release, sorted_by_scores
from bagwise.requests.provenance import Provenance
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import label_codes, label_vector
from bagwise.rows.matrix import encode_to_disk
from bagwise.rows.memory import Memory, needed
from bagwise.rows.roles import exposure_vector
from bagwise.rows.table import read_table
from bagwise.show.stages import Stages
from bagwise.theory.beliefs import DEFAULT_MISFIT

_ROWS_OF_MEAN = 20_000  # that stand for all, where the mean of all labels was asked for
_QUICK = 2e7  # numbers in a table that is looked through in a second or two


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
    memory_limit: str | int | None = None,
) -> RowModel:
    """Fit a row-level model to a release and keep it with the release's encoder.

    Parameters
    ----------
    family : str
        Distribution of a row's label. "auto" is multinomial for a label with classes, unless
        `target` names one of them, poisson for one with an exposure, and gaussian otherwise.
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
    memory_limit : str or int, optional
        Such as "8GB": encoded features beyond it are in a file without a name, which is mapped.
        Without it, half of the machine's memory.

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
    check_release(release)
    family = family_name(release, family, target)
    if loss == "auto":
        loss = "instance" if release.is_sorted else "bag"
    check_family(release, family, target)
    _check_loss(release, loss)
    distorted = why_no_intervals(
        release.provenance,
        largest=int(release.bags.sizes.max()),
        loss=loss,
        debias=debias,
    )
    estimator = BaggedGLM(
        family=family,
        loss=loss,
        link=link,
        label_kind=release.label_kind,
        debias=debias,
        ridge=ridge,
        fit_intercept=fit_intercept,
        noise=release.noise_law,
        bounds=release.certificate.clipped_to,
    )
    data, exposure = _data_to_fit(release, target, Memory.of(memory_limit, gettempdir()))
    if rows is not None:
        own = read_table(rows)
        data = with_rows(data, *granular_rows(release, own, target), noise_sd=rows_noise_sd)
        if release.provenance.exposure is not None:
            own_exposure = exposure_vector(own, release.provenance.exposure)
            exposure = np.concatenate([exposure, own_exposure])
    with warnings.catch_warnings():
        if release.is_sorted:  # instance loss is made for these bags
            warnings.simplefilter("ignore", BiasWarning)
        estimator.fit(data.X, data.y, exposure=exposure, **data.fit_params())
    kept = estimator.fitted_.kept(classes=find_family(family).has_classes)
    if release.mean_label is not None and fit_intercept:
        known = read_offset(len(data.X), find_family(family), exposure=exposure)
        kept = at_mean(kept, data.X, known, find_family(family, link), release)
    return model_of_release(
        kept,
        release.provenance,
        release.certificate,
        release.encoder,
        n_rows=release.bags.n_rows,
        n_bags=release.bags.n_bags,
        n_labelled_rows=data.X.shape[0] - int(release.bags.in_bag.sum()),
        label_kind=release.label_kind,
        distorted=distorted,
        family=family,
        link=link,
        loss=loss,
        target=target,
    )


def at_mean(
    fit: Estimates, X: FloatArray, offset: FloatArray | None, family: Family, release: Release
) -> Estimates:
    """Move the intercept until rows are predicted the mean label that was asked for, on average.

    Bags know that mean as well, with the noise that all of them have together. Both are weighed by
    their noise, and what noise has carried out of the family's range is brought back into it.
    """
    if release.mean_label is None or not np.isinf(family.eta_range).all():
        return fit
    (asked, noise_sd), bags = release.mean_label, release.bags
    rows = np.random.default_rng(0).permutation(len(X))[:_ROWS_OF_MEAN]
    eta = X[rows] @ fit.coef + fit.intercept
    eta = eta if offset is None else eta + offset[rows]
    now = float(family.mean(eta).mean())
    # 1. Weigh both by their noise.
    by_bags = float(np.linalg.norm(release.noise_sd * bags.sizes)) / bags.n_rows
    share = by_bags**2 / (by_bags**2 + noise_sd**2)
    mean, error = share * asked + (1 - share) * now, np.sqrt(share) * noise_sd
    # 2. What is expected of it, being within the range.
    ends = (np.array(family.label_range) - mean) / error
    mean = family.interior(float(scipy.stats.truncnorm.mean(*ends, loc=mean, scale=error)))
    # 3. Move the intercept, and what it would be without shrinking. Its standard error stays that
    # of the bags, which is the larger one.
    shift = mean - now
    if family.name != "gaussian":
        shift = scipy.optimize.brentq(lambda by: family.mean(eta + by).mean() - mean, -FAR, FAR)
    unshrunk = None if fit.unshrunk is None else fit.unshrunk.copy()
    if unshrunk is not None:
        unshrunk[-1] += shift
    return replace(fit, intercept=fit.intercept + shift, unshrunk=unshrunk)


def model_of_release(
    fit: Estimates,
    made: Provenance,
    certificate: Certificate,
    encoder: Encoder,
    *,
    n_rows: int,
    n_bags: int,
    n_labelled_rows: int,
    label_kind: str,
    distorted: str,
    family: str,
    link: str,
    loss: str,
    target: str | None,
) -> RowModel:
    """Return the model of a fit to a release; `distorted` says why it has no intervals, if so."""
    if distorted:
        fit = replace(fit, standard_errors=None, unshrunk=None, note=distorted)
    return RowModel.of(
        fit,
        n_rows=n_rows,
        made_of={
            "privacy": certificate.headline,
            "n_bags": n_bags,
            "n_labelled_rows": n_labelled_rows,
            "label_kind": label_kind,
            "strategy": made.strategy,
        },
        family=family,
        link=link,
        loss=loss,
        label=made.label,
        target=target,
        classes=made.classes if find_family(family).has_classes else None,
        encoder=encoder,
        exposure=made.exposure,
        bounds=certificate.stated_bounds,
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
        loss = "instance" if release.is_sorted else "bag"
    if loss == "instance" and release.is_sorted:
        # Bags sorted by a score tell bag loss one direction of the features. What it finds in the
        # others is noise, which would be taken for a signal that instance loss then misses.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            model = fit_release(release, family=family, link=link, loss=loss, target=target)
    if any(issubclass(warning.category, NotConvergedWarning) for warning in said):
        # A fit that ran away in the noise would be taken for a strong signal.
        mean = find_family(model.family).interior(float(np.mean(release.labels_of(target))))
        intercept = float(find_family(model.family, model.link).predictor(np.array(mean)))
        model = replace(model, coef=np.zeros_like(model.coef), intercept=intercept)
    return _explain(model, release, loss=loss, sigma=sigma, misfit=misfit)


def _explain(
    model: RowModel, release: Release, *, loss: str, sigma: float, misfit: float = DEFAULT_MISFIT
) -> Explanation:
    intercept = float(model.intercept)
    if release.exposure is not None:  # as if every row had the mean of all
        intercept += float(np.log(release.exposure.mean()))
    return explain_release(
        release,
        theta=model.coef,
        sigma=sigma,
        intercept=intercept,
        family=model.family,
        link=model.link,
        loss=loss,
        misfit=misfit,
        is_shrunk=loss != "instance",
    )


def error_to_expect(model: Any, release: Release) -> str | None:
    """Return in one sentence how well a model fitted to a release should predict single rows.

    None for models that this is not worked out for: of several classes, trees, or of other columns
    than the release has; and for releases that take longer to look through than a fit.
    """
    same = isinstance(model, RowModel) and model.encoder.feature_names == (
        release.encoder.feature_names
    )
    if not same or model.classes is not None or release.bags.n_rows * model.coef.size > _QUICK:
        return None
    loss = "instance" if model.loss == "instance" and release.is_sorted else "bag"
    sigma = float(np.sqrt(model.trained_on.dispersion or 0.0))
    return f"The model {_explain(model, release, loss=loss, sigma=sigma).accuracy}."


def family_name(release: Release, family: str | Family, target: str | None) -> str:
    """Return the name of a family that a model file can keep."""
    if family == "auto":
        if release.provenance.exposure is not None:
            return "poisson"
        return "multinomial" if release.classes and target is None else "gaussian"
    name = find_family(family).name
    if name not in FAMILIES:
        raise StrategyError(
            f"family {name!r} is not registered in bagwise.FAMILIES, so that a model file could "
            "not say what it is. Register it, or fit BaggedGLM itself."
        )
    return name


def check_family(release: Release, family: str, target: str | None) -> None:
    """Refuse a family that the labels of a release cannot have."""
    check_classes(release.classes, release.certificate.bounds, family, target)


def check_classes(
    classes: Sequence[str] | None,
    bounds: tuple[float, float] | None,
    family: str,
    target: str | None,
) -> None:
    """Refuse a family that labels with or without these classes cannot have."""
    several = find_family(family).has_classes
    if several and (classes is None or target is not None):
        raise StrategyError(
            f"family {family} is for a label with classes, all of them at once: "
            "leave out target (--target), or choose another family."
        )
    if not several and classes is not None and target is None:
        raise StrategyError(
            f"family {family} predicts one number. Name one of the classes "
            f"{', '.join(classes)} as target (--target), or use family='multinomial'."
        )
    bounds = (0.0, 1.0) if classes else bounds
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


def _data_to_fit(
    release: Release, target: str | None, memory: Memory
) -> tuple[BaggedData, FloatArray | None]:
    """Return rows with the labels of their bags, and the exposure; on disk if X is too large."""
    n, d = release.bags.n_rows, len(release.encoder.feature_names)
    params = release.fit_params()
    if needed(n, 8 * n * d) <= memory.limit:
        return training_data(release, target), params.get("exposure")
    # Bag by bag, so that sums over bags go through the file from its beginning to its end.
    kept, bags = np.flatnonzero(release.bags.in_bag), params["bags"]
    order = np.argsort(bags, kind="stable")
    features = release.features
    if kept.size < n:
        features = features.take(pa.array(kept))
    at_once = max(1, memory.at_once(n) // (8 * max(1, len(release.encoder.inputs))))
    with Stages()("writing the features to disk"):
        X = encode_to_disk(features, release.encoder, order, memory.spill, rows_at_once=at_once)
    y = release.labels_of(target)[bags[order]]
    data = BaggedData(X, y, bags[order], noise_sd=params["noise_sd"][order])
    return data, params["exposure"][order] if "exposure" in params else None


def training_data(release: Release, target: str | None) -> BaggedData:
    """Return the rows of a release with the labels of their bags, checked."""
    X, y, bags = release.training_data(target)
    return BaggedData(X, y, bags, noise_sd=release.fit_params()["noise_sd"])


def granular_rows(
    release: Release, table: pa.Table, target: str | None
) -> tuple[FloatArray, FloatArray]:
    """Return X and y of the learner's own rows, encoded as the release is."""
    label = release.provenance.label
    X = release.encoder.transform(table)
    if release.classes is None:
        return X, label_vector(table, label)
    marks = np.eye(len(release.classes))[label_codes(table, label, release.classes)]
    return X, marks if target is None else marks[:, release.classes.index(target)]


def why_no_intervals(made: Provenance, *, largest: int, loss: str, debias: bool = False) -> str:
    """Return why a fit has no honest intervals, or nothing; `largest` is the size of a bag."""
    distorted = _warn_of_selection(made.scores, largest, loss=loss, debias=debias)
    if loss == "instance" and not debias and sorted_by_scores(made) and made.scores == "model":
        distorted = "No intervals: slopes are shrunk a little, as far as the sorting missed them."
    return distorted


def _warn_of_selection(scores: str, largest: int, *, loss: str, debias: bool) -> str:
    """Warn if rows were sorted by the labels that are now averaged; return why intervals fail."""
    if scores not in ("labels", "noisy-labels") or largest == 1:
        return ""
    if loss != "instance" or debias:
        warnings.warn(
            f"{'debiased ' if debias else ''}{loss} loss on bags that were sorted by the same "
            "labels exaggerates the slopes: rows were grouped by their noise as well. "
            "Use plain loss='instance' (--loss instance).",
            BiasWarning,
            stacklevel=4,
        )
    return "No intervals: rows were put together by the labels that are now averaged."
