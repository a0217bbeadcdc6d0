"""Scores of a model on labelled rows, or on the bags of a release."""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import roc_auc_score

from bagwise._types import FloatArray
from bagwise.errors import LabelError, ReleaseError
from bagwise.learn.model_selection import bag_mean_squared_error, bag_r2_score
from bagwise.models.model import open_in_parts
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.release.release import Release, check_release
from bagwise.rows.columns import as_text, find_column
from bagwise.rows.labels import label_codes, label_vector
from bagwise.show import html


@dataclass(frozen=True)
class RowScores:
    """Errors on single rows, or of class probabilities. They are exact: NOT PRIVATE.

    ``rmse`` is the typical error of one prediction, and ``rmse_of_mean`` that of predicting the
    mean label. ``accuracy``, ``log_loss``, ``log_loss_of_mean`` (of the base rates) and ``auc``
    (the mean over classes, one against the others) are for classes and yes-or-no labels.
    """

    n_rows: int
    rmse: float
    mae: float
    r2: float
    rmse_of_mean: float | None = None
    accuracy: float | None = None
    log_loss: float | None = None
    log_loss_of_mean: float | None = None
    auc: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values, marked as NOT PRIVATE."""
        scores = {name: value for name, value in asdict(self).items() if value is not None}
        return {"privacy": "NOT PRIVATE", **scores}

    def text(self) -> str:
        """Return a sentence that explains the error.

        >>> RowScores(n_rows=9, rmse=3.0, mae=2.0, r2=0.5, rmse_of_mean=4.0).text()
        'The typical error of one prediction is 3; of predicting the mean label, 4.'
        """
        mine, base, what = self.rmse, self.rmse_of_mean, "typical error"
        if self.log_loss is not None:
            mine, base, what = self.log_loss, self.log_loss_of_mean, "log loss"
        other = "" if base is None else f"; of predicting the mean label, {base:.4g}"
        return f"The {what} of one prediction is {mine:.4g}{other}."

    def _repr_html_(self) -> str:
        return html.table("Scores on rows", [(k, _shown(v)) for k, v in self.to_json().items()])


@dataclass(frozen=True)
class BagScores:
    """Errors on bag labels, as published and without the known privacy noise.

    ``rmse`` compares published bag labels with mean predictions. ``rmse_without_noise`` and
    ``r2_without_noise`` subtract the variance that the privacy noise adds; they estimate the
    result for noiseless bag labels, and are None if the noise hides it.
    """

    n_bags: int
    rmse: float
    mean_noise_sd: float
    rmse_without_noise: float | None
    r2_without_noise: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return html.table("Scores on bags", [(k, _shown(v)) for k, v in self.to_json().items()])


def _shown(score: float | int | str | None) -> str:
    if score is None:
        return "hidden by the privacy noise"
    return f"{score:.4g}" if isinstance(score, float) else str(score)


def evaluate_rows(
    model: RowModel | TreeModel, table: Any, *, label: str | None = None
) -> RowScores:
    """Score predictions on a labelled table. Keep the result as confidential as the labels.

    Large Parquet files are read some rows at a time.
    """
    name = label or model.label
    rows = open_in_parts(table, spill=Path(gettempdir()), named=[name])
    labels = row_labels(pa.table({name: find_column(rows, name, role="label")}), name, model)
    needed = model.columns_needed(rows.column_names, id=None, rate=False)
    predicted = np.concatenate([model.predict_rows(part) for part in rows.scan(needed)])
    residuals = labels - predicted
    error, variance = float(np.mean(residuals**2)), float(np.mean(np.var(labels, axis=0)))
    return RowScores(
        n_rows=len(labels),
        rmse=float(np.sqrt(error)),
        mae=float(np.mean(np.abs(residuals))),
        # Where labels do not vary, 1 or 0 as scikit-learn has it.
        r2=1.0 - error / variance if variance > 0 else float(error == 0),
        rmse_of_mean=float(np.sqrt(variance)),
        **_class_scores(labels, predicted),
    )


def _class_scores(labels: FloatArray, chances: FloatArray) -> dict[str, float]:
    """Return scores of classes, or of labels that are 0 and 1; none for other labels."""
    if labels.ndim == 1:
        if not np.isin(labels, (0.0, 1.0)).all() or np.any((chances < 0) | (chances > 1)):
            return {}
        labels, chances = (np.column_stack([1 - one, one]) for one in (labels, chances))
    right = labels.argmax(axis=1)
    chance = np.take_along_axis(chances, right[:, None], axis=1)
    # A chance of exactly zero for what happened would be infinitely bad.
    losses = -np.log(np.maximum(chance, np.finfo(float).tiny))
    rates = labels.mean(axis=0)
    seen = (rates > 0) & (rates < 1)  # of the others nobody can tell whether they are ranked well
    areas = [roc_auc_score(labels[:, i], chances[:, i]) for i in np.flatnonzero(seen)]
    return {
        "accuracy": float(np.mean(chances.argmax(axis=1) == right)),
        "log_loss": float(np.mean(losses)),
        "log_loss_of_mean": float(-np.sum(rates[rates > 0] * np.log(rates[rates > 0]))),
        **({"auc": float(np.mean(areas))} if areas else {}),
    }


def evaluate_release(model: RowModel | TreeModel, release: Release) -> BagScores:
    """Score mean predictions on the bag labels of a release, without row labels."""
    check_release(release)
    if missing := set(model.encoder.inputs) - set(release.features.column_names):
        raise ReleaseError(f"the release lacks the model's feature(s) {sorted(missing)}.")
    kept = release.bags.in_bag
    predicted = model.predict_rows(release.instances.filter(pa.array(kept)))
    bags = {name: release.fit_params()[name] for name in ("bags", "noise_sd")}
    labels = release.labels_of(model.target)[bags["bags"]]
    clean = bag_mean_squared_error(labels, predicted, **bags)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # said by None
        r2 = bag_r2_score(labels, predicted, **bags)
    return BagScores(
        n_bags=release.bags.n_bags,
        rmse=float(np.sqrt(bag_mean_squared_error(labels, predicted, bags=bags["bags"]))),
        mean_noise_sd=float(np.sqrt(np.mean(bags["noise_sd"] ** 2))),
        rmse_without_noise=float(np.sqrt(clean)) if clean >= 0 else None,
        r2_without_noise=r2 if clean >= 0 and np.isfinite(r2) else None,
    )


def row_labels(data: pa.Table, label: str, model: RowModel | TreeModel) -> FloatArray:
    """Return the labels as the model predicts them: numbers, or marks for classes."""
    if model.classes is not None:
        return np.eye(len(model.classes))[label_codes(data, label, model.classes)]
    if model.target is None:
        return label_vector(data, label)
    column = as_text(find_column(data, label, role="label"), name=label)
    if column.null_count:
        raise LabelError(f"label {label!r} is missing in {column.null_count} row(s). Drop them.")
    return np.array([value == model.target for value in column.to_pylist()], dtype=np.float64)
