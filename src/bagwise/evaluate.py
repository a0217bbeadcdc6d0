"""How good a model is: on rows whose labels one may see, or on a release that has only bags."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.columns import as_text, find_column
from bagwise.errors import LabelError, ReleaseError
from bagwise.labels import label_vector
from bagwise.learn import RowModel
from bagwise.release import Release
from bagwise.table import read_table


@dataclass(frozen=True)
class RowScores:
    """Errors on single rows."""

    n_rows: int
    rmse: float
    mae: float
    r2: float

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class BagScores:
    """Errors on bag labels, as published and with the known privacy noise taken out.

    ``rmse`` compares published bag labels with mean predictions. ``rmse_without_noise`` and
    ``r2_without_noise`` subtract the variance that the privacy noise adds; they estimate what
    noiseless bag labels would show, and are None where noise leaves nothing to estimate.
    """

    n_bags: int
    rmse: float
    mean_noise_sd: float
    rmse_without_noise: float | None
    r2_without_noise: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return asdict(self)


def evaluate_rows(model: RowModel, table: Any, *, label: str | None = None) -> RowScores:
    """Score predictions on a labelled table. The result describes the labels: keep it with them."""
    data = read_table(table)
    labels = row_labels(data, label or model.label, model.target)
    residuals = labels - model.predict_encoded(model.encoder.transform(data))
    return RowScores(
        n_rows=labels.size,
        rmse=float(np.sqrt(np.mean(residuals**2))),
        mae=float(np.mean(np.abs(residuals))),
        r2=_r2(float(np.mean(residuals**2)), float(np.var(labels))),
    )


def evaluate_release(model: RowModel, release: Release) -> BagScores:
    """Score mean predictions on the bag labels of a release; no row label is needed."""
    if missing := set(model.encoder.inputs) - set(release.features.column_names):
        raise ReleaseError(f"the release lacks the model's feature(s) {sorted(missing)}.")
    rows = release.bags.mean(model.predict_encoded(model.encoder.transform(release.features)))
    labels = release.labels_of(model.target)
    squares = (labels - rows) ** 2
    noise = release.noise_sd**2
    weights = release.bags.sizes / release.bags.sizes.sum()
    error, noise_share = float(weights @ squares), float(weights @ noise)
    # The spread of m noisy values around their mean holds this much of the noise.
    spread = _weighted_variance(labels, weights) - float((weights * (1 - weights)) @ noise)
    clean = error - noise_share
    return BagScores(
        n_bags=release.bags.n_bags,
        rmse=float(np.sqrt(error)),
        mean_noise_sd=float(np.sqrt(noise_share)),
        rmse_without_noise=float(np.sqrt(clean)) if clean >= 0 else None,
        r2_without_noise=_r2(clean, spread) if clean >= 0 and spread > 0 else None,
    )


def row_labels(data: pa.Table, label: str, target: str | None) -> FloatArray:
    """Return the labels, or for a model of a class whether each row is of it."""
    if target is None:
        return label_vector(data, label)
    column = as_text(find_column(data, label, role="label"), name=label)
    if column.null_count:
        raise LabelError(f"label {label!r} is missing in {column.null_count} row(s). Drop them.")
    return np.array([value == target for value in column.to_pylist()], dtype=np.float64)


def _r2(error: float, variance: float) -> float:
    """Share of variance explained; 1 or 0 where there is none, as scikit-learn has it."""
    if variance > 0:
        return 1.0 - error / variance
    return 1.0 if error == 0 else 0.0


def _weighted_variance(values: FloatArray, weights: FloatArray) -> float:
    return float(weights @ (values - weights @ values) ** 2)
