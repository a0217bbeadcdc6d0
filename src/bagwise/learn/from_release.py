"""Fit a row-level model to a release, with warnings about unsuitable combinations."""

import operator
import warnings
from dataclasses import replace
from tempfile import gettempdir
from typing import Any, Literal

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import (
    BagwiseError,
    BagwiseWarning,
    BiasWarning,
    ColumnError,
    NoEvidenceWarning,
    NotConvergedWarning,
    StrategyError,
    check_name,
)
from bagwise.families import FAMILIES, Family, find_family
from bagwise.glm.data import BagData
from bagwise.glm.design import read_offset
from bagwise.glm.shrinkage import has_ends
from bagwise.learn.bag_data import finite_floats, read_bags
from bagwise.learn.doubt import level
from bagwise.learn.estimator import NO_OFFSETS, BaggedGLM, check_ridge
from bagwise.learn.fitting import LOSSES, Setting
from bagwise.learn.row_variance import row_variance
from bagwise.models.coefficients import INTERCEPT
from bagwise.models.row_model import Estimates, RowModel
from bagwise.privacy import Certificate
from bagwise.privacy.laws import Law
from bagwise.release.explain import Explanation, explain_release
from bagwise.release.manifest import Manifest
from bagwise.release.release import Release, check_release
from bagwise.requests.provenance import Provenance
from bagwise.rows.columns import exposure_vector
from bagwise.rows.labels import Bounds, label_codes, label_vector
from bagwise.rows.matrix import encode_to_disk
from bagwise.rows.opening import Memory, spilled
from bagwise.rows.table import read_table
from bagwise.show.stages import Stages
from bagwise.theory.accuracy import shrunk

_UNSURE = 0.02  # of a mean: bags that know it better need no help
_HIDDEN = 0.1  # of a mean: of counts, that is a good part of what features say
_ROUNDS = 5
_QUICK = 2e7  # numbers in a table that is looked through in a second or two


def fit_release(
    release: Release,
    *,
    family: str | Family = "auto",
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
    certificate = release.certificate
    glm = estimator_of(
        release, certificate, law=release.noise_law, family=family, loss=loss, target=target,
        debias=debias, ridge=ridge, fit_intercept=fit_intercept,
    )  # fmt: skip
    memory = Memory.of(memory_limit, gettempdir())
    data, exposure = data_to_fit(release, target, rows, rows_noise_sd, memory)
    offset = read_offset(len(data.X), find_family(glm.family), exposure=exposure)
    if offset is not None and glm.loss == "mixture":
        raise StrategyError(NO_OFFSETS)
    own_rows, data = len(data.X) - int(release.bags.in_bag.sum()), replace(data, offset=offset)
    return fit_to(release, certificate, glm, data, target=target, n_labelled_rows=own_rows)


def at_level(fit: Estimates, setting: Setting, bounds: Bounds | None) -> Estimates:
    """Adjust the intercept if noise hides even the mean, so that rows match what bags suggest."""
    data, family, most = setting.data, setting.family, setting.family.label_range[1]
    if family.has_classes or not has_ends(family) or setting.label_kind != "mean":
        return fit
    if not setting.fit_intercept or setting.ridge != "auto" or not data.noise_sd.all():
        return fit

    # 1. What a mean of one is multiplied by, bag by bag.
    def mean_exposure(part: BagData) -> dict[int, FloatArray]:
        return {part.first: part.means(part.exposure)}

    by_chunk = data.over(mean_exposure, operator.or_)
    shares = np.concatenate([by_chunk[first] for first in sorted(by_chunk)])
    told = level(data.labels, shares, data.noise_sd, setting.law, unsure=_UNSURE, most=most)
    if told is None:
        return fit
    factor, error = told
    if error > _HIDDEN * factor:
        what = "label" if data.offset is None else "rate"
        warnings.warn(
            f"noise hides even the mean {what}, which bags tell as {factor:.2g} with a standard "
            f"error of {error:.1g}: a prediction may be worse than the true mean. Ask for larger "
            "bags (bagwise release without --bag-size chooses them), or more epsilon.",
            NoEvidenceWarning,
            stacklevel=4,
        )
    # 2. Predictions end at the bounds, so rows far out count as these.
    highest, (coef, before) = np.inf if bounds is None else bounds[1], fit.split(classes=False)
    intercept = float(before)
    n_rows = int(data.bags.sizes.sum())
    wanted = float(family.predictor(factor * np.array(shares @ data.bags.sizes) / n_rows))
    for _ in range(_ROUNDS):

        def expected(part: BagData, intercept: float = intercept) -> float:
            mean = family.mean(part.X @ coef + intercept) * part.exposure
            return float(np.minimum(mean, highest).sum())

        intercept += wanted - float(
            family.predictor(np.array(data.over(expected, operator.add) / n_rows))
        )
    moved = np.append(np.zeros(coef.size), intercept - before)
    unshrunk = None if fit.unshrunk is None else fit.unshrunk + moved
    return replace(fit, table=fit.table + moved, unshrunk=unshrunk)


def estimator_of(
    release: Release | Manifest,
    certificate: Certificate,
    *,
    law: Law,
    family: str | Family,
    loss: str,
    target: str | None,
    debias: bool = False,
    ridge: float | Literal["auto"] = "auto",
    fit_intercept: bool = True,
) -> BaggedGLM:
    """Return the estimator of a release, settings resolved, or refuse what labels cannot have."""
    made = release.provenance
    kind = find_family(family_to_fit(made, certificate, family, target))
    check_ridge(ridge)
    if loss == "auto":
        loss = "instance" if made.is_sorted else "bag"
    check_name("loss", loss, LOSSES)
    if debias and loss != "instance":
        raise StrategyError(f"debias belongs to loss='instance', not to {loss!r}.")
    if loss == "mixture" and made.classes and certificate.is_private:
        raise StrategyError(
            "loss='mixture' cannot fit private picks of classes, which are randomised and not "
            "noisy. Use loss='bag' (--loss bag)."
        )
    if loss == "mixture" and release.label_kind != "pick":
        raise StrategyError(
            "loss='mixture' is for picked labels, but this release has mean labels. Use "
            "loss='bag' (--loss bag)."
        )
    return BaggedGLM(
        kind, loss, label_kind=release.label_kind, debias=debias, ridge=ridge,
        fit_intercept=fit_intercept, noise=law, bounds=certificate.clipped_to,
    )  # fmt: skip


def why_no_intervals(glm: BaggedGLM, made: Provenance, data: BagData) -> str:
    """Return why a fit has no honest intervals, or an empty string; warn if it is biased."""
    plain = glm.loss == "instance" and not glm.debias
    if made.scores in ("labels", "noisy-labels") and data.bags.sizes.max() > 1:
        if not plain:
            warnings.warn(
                f"{'debiased ' if glm.debias else ''}{glm.loss} loss on bags that were "
                "sorted by the same labels makes the slopes too steep, since rows were also "
                "grouped by their noise. Use loss='instance' (--loss instance).",
                BiasWarning,
                stacklevel=4,
            )
        return "No intervals: rows were put together by the labels that are now averaged."
    if plain and made.is_sorted and made.scores == "model":
        return "No intervals: slopes are shrunk a little, as far as the sorting missed them."
    return ""


def fit_to(
    release: Release | Manifest,
    certificate: Certificate,
    glm: BaggedGLM,
    data: BagData,
    *,
    target: str | None,
    n_labelled_rows: int = 0,
    note: str = "",
) -> RowModel:
    """Fit data of a release, wherever its rows are, and warn of unsuitable combinations.

    `n_labelled_rows` are the learner's own among them; `note` is added to the fit's note.
    """
    # 1. Fit.
    family, made, kind = find_family(glm.family), release.provenance, release.label_kind
    distorted = why_no_intervals(glm, made, data)
    names = (*release.encoder.feature_names, INTERCEPT)
    if family.has_classes:
        names = tuple(f"{label}: {n}" for label in (made.classes or ())[1:] for n in names)
    with warnings.catch_warnings():
        if made.is_sorted:  # instance loss is made for these bags
            warnings.simplefilter("ignore", BiasWarning)
        setting, fit = glm.fit_data(data, kind, names)
    # 2. Correct its level, and what it says of its errors.
    fit = replace(fit, note=fit.note + note)
    if glm.loss == "bag":
        fit = at_level(fit, setting, certificate.clipped_to)
    if distorted:
        fit = replace(fit, standard_errors=None, unshrunk=None, note=distorted)
    # 3. How much single labels vary around predictions, for intervals.
    varies = None
    if data.parts is None and fit.converged and np.isinf(family.label_range[1]):
        coef, intercept = fit.split(classes=False)
        mean = family.mean(data.X @ coef + intercept) * data.exposure
        off, picked = data.labels - data.bags.mean(mean), kind == "pick"
        varies = row_variance(
            data.X, data.bags, off, mean, data.noise_sd, family=family, picked=picked
        )
    # 4. Keep what predicts, and where it comes from.
    return RowModel.of(
        fit,
        n_rows=release.n_rows,
        made_of={
            "privacy": certificate.headline,
            "n_bags": data.bags.n_bags - n_labelled_rows,
            "n_labelled_rows": n_labelled_rows,
            "label_kind": kind,
            "strategy": made.strategy,
            "row_variance": varies,
        },
        family=family.name,
        link=family.link,
        loss=glm.loss,
        label=made.label,
        target=target,
        classes=made.classes if family.has_classes else None,
        encoder=release.encoder,
        exposure=made.exposure,
        bounds=certificate.stated_bounds,
    )


def explain_by_fit(release: Release, *, family: str = "auto") -> Explanation:
    """Explain the expected error of a release, with coefficients from a fit to the release.

    `family` is as for `fit_release`. Where the fit is lost in the noise, all coefficients are taken
    to be zero.

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
    if release.classes:
        raise StrategyError("the error to expect is that of numbers, and this label has classes.")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", BagwiseWarning)
        model = fit_release(release, family=family, loss="bag")
    varies = model.trained_on
    loss = "instance" if release.provenance.is_sorted else "bag"
    if release.provenance.is_sorted:
        # Bags sorted by a score tell bag loss one direction of the features. What it finds in the
        # others is noise, which would be taken for a signal that instance loss then misses.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            model = fit_release(release, family=family, loss=loss)
    if any(issubclass(warning.category, NotConvergedWarning) for warning in said):
        # A fit that ran away in the noise would be taken for a strong signal.
        mean = find_family(model.family).interior(float(np.mean(release.labels)))
        intercept = float(find_family(model.family).predictor(np.array(mean)))
        model = replace(model, coef=np.zeros_like(model.coef), intercept=intercept)
    model = replace(model, trained_on=varies)
    return _explain(model, release, loss)


def _explain(model: RowModel, release: Release, loss: str) -> Explanation:
    """Explain a model; residuals say how much single labels vary around it."""
    made = model.trained_on
    intercept = float(model.intercept)
    if release.exposure is not None:  # as if every row had the mean of all
        intercept += float(np.log(release.exposure.mean()))
    explained = explain_release(
        release,
        theta=model.coef,
        sigma=float(np.sqrt(made.dispersion or 0.0)),
        intercept=intercept,
        family=model.family,
        loss=loss,
        is_fitted=loss != "instance",
    )
    if explained.noise is None:
        return explained
    # Residuals show the whole error of a prediction, with what the fit is off by. Shares of classes
    # have no one mean that labels lie around.
    seen = None if release.classes is not None else made.row_variance
    excess = shrunk(explained.predictions.total, explained.signal)
    return replace(explained, noise=None if seen is None else max(0.0, seen - excess))


def error_to_expect(model: Any, release: Release) -> str | None:
    """Return a sentence on how well a model fitted to a release should predict single rows.

    None for models that this is not worked out for: of several classes, trees, or of other columns
    than the release has; for bags that do not determine its coefficients; and for releases that
    take longer to look through than a fit.
    """
    same = isinstance(model, RowModel) and model.encoder.feature_names == (
        release.encoder.feature_names
    )
    if not same or model.classes is not None or release.bags.n_rows * model.coef.size > _QUICK:
        return None
    loss = "instance" if model.loss == "instance" and release.provenance.is_sorted else "bag"
    try:
        return f"The model {_explain(model, release, loss).accuracy}."
    except BagwiseError:  # bags that do not determine all coefficients have no such error
        return None


def family_to_fit(
    made: Provenance, certificate: Certificate, family: str | Family, target: str | None
) -> str:
    """Return the name of a family that a model file can keep and that the labels can have."""
    classes = made.classes
    if family == "auto":
        family = "multinomial" if classes and target is None else "gaussian"
        family = family if made.exposure is None else "poisson"
    kind = find_family(family)
    if kind.name not in FAMILIES:
        raise StrategyError(
            f"family {kind.name!r} is not registered in bagwise.FAMILIES, so a model file "
            "cannot name it. Register it, or fit BaggedGLM directly."
        )
    if kind.has_classes and (classes is None or target is not None):
        raise StrategyError(
            f"family {kind.name} is for a label with classes, all of them at once: "
            "leave out target (--target), or choose another family."
        )
    if not kind.has_classes and classes is not None and target is None:
        raise StrategyError(
            f"family {kind.name} predicts one number. Name one of the classes "
            f"{', '.join(classes)} as target (--target), or use family='multinomial'."
        )
    bounds = (0.0, 1.0) if classes else certificate.bounds
    low, high = kind.label_range
    if bounds is not None and not low <= bounds[0] < bounds[1] <= high:
        raise StrategyError(
            f"the labels of this release lie between {bounds[0]:g} and {bounds[1]:g}, and those of "
            f"the family {kind.name} between {low:g} and {high:g}. {kind.advice}"
        )
    return kind.name


def data_to_fit(
    release: Release,
    target: str | None,
    rows: Any = None,
    rows_noise_sd: float = 0.0,
    memory: Memory | None = None,
) -> tuple[BagData, FloatArray | None]:
    """Return rows in bags with their labels, and the exposure; on disk if X is too large.

    The learner's own `rows` are encoded as the release is, and added as bags of one row.
    """
    # 1. The release's rows.
    n, d = release.bags.n_rows, len(release.encoder.feature_names)
    params = release.fit_params()
    exposure, noise_sd = params.get("exposure"), params["noise_sd"]
    if memory is None or memory.needed(n, 8 * n * d) <= memory.limit:
        X, y, bags = release.training_data(target)
    else:
        # Bag by bag, so that sums over bags go through the file from its beginning to its end.
        kept, bags = np.flatnonzero(release.bags.in_bag), params["bags"]
        order, encoder = np.argsort(bags, kind="stable"), release.encoder
        with Stages()("writing the features to disk"):
            features = spilled(release.features, encoder.inputs, memory).take(kept[order])
            X = encode_to_disk(features, encoder, memory.spill)
        y, bags, noise_sd = release.labels_of(target)[bags[order]], bags[order], noise_sd[order]
        exposure = None if exposure is None else exposure[order]
    if rows is None:
        return read_bags(X, y, bags=bags, noise_sd=noise_sd), exposure

    # 2. The learner's own.
    own, made = read_table(rows), release.provenance
    if made.classes is None:
        labels = label_vector(own, made.label)
    else:
        labels = np.eye(len(made.classes))[label_codes(own, made.label, made.classes)]
        labels = labels if target is None else labels[:, made.classes.index(target)]
    first = int(bags.max()) + 1
    bags = np.concatenate([bags, first + np.arange(own.num_rows)])
    noise_sd = np.concatenate([noise_sd, np.full(own.num_rows, float(rows_noise_sd))])
    mine = finite_floats(release.encoder.transform(own), "rows", error=ColumnError)
    X, y = np.concatenate([X, mine]), np.concatenate([y, labels])
    if exposure is not None and made.exposure is not None:
        exposure = np.concatenate([exposure, exposure_vector(own, made.exposure)])
    return read_bags(X, y, bags=bags, noise_sd=noise_sd), exposure
