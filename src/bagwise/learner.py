"""Public functions of the learner: load a release, fit a model, and evaluate it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bagwise.errors import StrategyError, check_name
from bagwise.learn.boosters import BaggedBooster, BaggedClassifier
from bagwise.learn.frames import FrameModel, fit_estimator
from bagwise.learn.from_release import family_to_fit, fit_release
from bagwise.learn.tables import LabelTable, fit_tables
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.release.files import MANIFEST
from bagwise.release.release import Release
from bagwise.scoring.openly import BagScores, RowScores, evaluate_release, evaluate_rows
from bagwise.scoring.privately import PrivateScores, evaluate_rows_privately


def load_release(path: str | Path, *, key: str | Path | None = None) -> Release:
    """Load a release, and check that files, noise and guarantee agree.

    Parameters
    ----------
    key : path, optional
        Public key (Ed25519) that must have signed the release.
    """
    release = Release.load(path, key=key)
    release.verify()
    return release


def fit(
    release: Any,
    *,
    model: Literal["glm", "boosted"] = "glm",
    tables: Sequence[LabelTable] | None = None,
    **options: Any,
) -> RowModel | TreeModel:
    """Fit a row-level model to a release, or to unlabelled rows and tables of label sums.

    Parameters
    ----------
    release : Release or path; with `tables`, a table of rows
        A release given as a path is verified first (`load_release`).
    model : {"glm", "boosted"}
        A generalised linear model with error bars, or boosted trees (extra ``boost``).
    tables : sequence of LabelTable, optional
        Sums of labels by public columns; cells may share rows. `release` is then the table of rows.
    **options
        `family`, `target`, `rows` and `rows_noise_sd` for both models; for "glm" also the other
        options of `bagwise.learn.fit_release`. With `tables`: `family` (bernoulli or poisson) and
        `label`.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from bagwise import make_release
    >>> x = np.random.default_rng(0).normal(size=2000)
    >>> noise = np.random.default_rng(1).normal(size=2000)
    >>> table = pa.table({"x": x, "y": 1 + 2 * x + noise})
    >>> release = make_release(table, label="y", bounds=(-9, 11), epsilon=4.0)
    >>> abs(fit(release).coefficients()["x"] - 2) < 0.5
    True
    """
    check_name("model", model, ("glm", "boosted"))
    if tables is not None:
        check_name("model of tables of sums", model, ("glm",))
        for name in options:
            check_name("option of tables of sums", name, ("family", "label"), StrategyError)
        return fit_tables(release, tables, **options)
    if not isinstance(release, Release | str | Path):
        raise StrategyError(
            f"fit takes a release or its path, not {type(release).__name__}. Make one with "
            "make_release, pass tables= with rows, or use an estimator such as BaggedGLM."
        )
    loaded = release if isinstance(release, Release) else load_release(release)
    if model == "glm":
        return fit_release(loaded, **options)
    allowed = ("family", "target", "rows", "rows_noise_sd")
    for name in options:
        check_name("option of boosted trees", name, allowed, StrategyError)
    return fit_trees(loaded, **options).to_trees()


def fit_trees(
    release: Release,
    *,
    family: str = "auto",
    target: str | None = None,
    rows: Any = None,
    rows_noise_sd: float = 0.0,
) -> FrameModel:
    """Fit boosted trees to a release, and return the estimator."""
    name = family_to_fit(release.provenance, release.certificate, family, target)
    if family == "auto" and release.classes and target is not None:
        name = "bernoulli"  # the share of one class
    estimator = (
        BaggedClassifier(random_state=0)
        if name == "multinomial"
        else BaggedBooster(name, random_state=0)
    )
    return fit_estimator(release, estimator, target=target, rows=rows, rows_noise_sd=rows_noise_sd)


def evaluate(
    model: RowModel | TreeModel, data: Any, *, epsilon: float | None = None, **options: Any
) -> RowScores | BagScores | PrivateScores:
    """Score a model on labelled rows, on the bags of a release, or privately on secret labels.

    Parameters
    ----------
    data : table, Release, or path of either
        A release has only bag labels, which are already public.
    epsilon : float, optional
        Score secret labels privately; every call spends this epsilon. Without it, scores on rows
        are exact: NOT PRIVATE.
    **options
        `label` for tables; with an epsilon also the other options of
        `bagwise.scoring.privately.evaluate_rows_privately`.
    """
    if not hasattr(model, "predict"):
        raise StrategyError("evaluate takes the model first: evaluate(model, data).")
    model = model.to_trees() if hasattr(model, "to_trees") else model
    if epsilon is not None:
        return evaluate_rows_privately(model, data, epsilon=epsilon, **options)
    if isinstance(data, str | Path) and (Path(data) / MANIFEST).is_file():
        data = load_release(data)
    if isinstance(data, Release):
        return evaluate_release(model, data, **options)
    return evaluate_rows(model, data, **options)
