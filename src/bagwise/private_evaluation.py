"""How good a model is on rows whose labels are secret: one number, released with label privacy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bagwise._version import __version__
from bagwise.atomic import new_file
from bagwise.certify import certify_loss
from bagwise.columns import find_column
from bagwise.errors import BoundsError, BudgetError, ColumnError, LabelError
from bagwise.evaluate import row_labels
from bagwise.json_files import write_json
from bagwise.labels import Bounds, check_bounds
from bagwise.privacy import Certificate
from bagwise.privacy.calibrate import Calibration, ExactCalibration
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.privacy.curves import check_epsilon
from bagwise.privacy.events import NoisyChoice
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.privacy.private_loss import (
    LossDesign,
    design_loss,
    half_width,
    noise_sd,
    release_mean_loss,
)
from bagwise.privacy.units import Units, units_of
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.row_model import RowModel
from bagwise.stages import OnStage, Stages, ignore_stage
from bagwise.table import read_table

SCHEMA = "bagwise-evaluation/1"

LEVEL = 0.95
"""The probability with which an interval covers what the privacy noise hides."""


@dataclass(frozen=True)
class PrivateScores:
    """A mean loss with privacy noise on it, and what is promised about the labels behind it.

    Attributes
    ----------
    n_rows : int
    loss : {"squared", "absolute"}
    largest_loss : float
        What a single row counts at most.
    mean_loss : float
        Noise may take it below 0.
    noise_sd : float
        Standard deviation of the privacy noise on `mean_loss`.
    interval : (float, float)
        Covers, with probability 0.95, the mean loss of these rows without the noise. It accounts
        for the privacy noise only, not for which rows happened to be in the table.
    certificate : Certificate

    Examples
    --------
    >>> promise = Certificate(None, None, None, (), smallest_bag=None, noise_source="none")
    >>> scores = PrivateScores(80, "squared", 100.0, 4.0, 1.2, (1.5, 6.5), promise)
    >>> scores.rmse, scores.mae
    (2.0, None)
    """

    n_rows: int
    loss: str
    largest_loss: float
    mean_loss: float
    noise_sd: float
    interval: tuple[float, float]
    certificate: Certificate = field(repr=False)

    @property
    def rmse(self) -> float | None:
        """The root of the mean squared loss; None for another loss, or hidden by the noise."""
        return math.sqrt(self.mean_loss) if self.loss == "squared" and self.mean_loss >= 0 else None

    @property
    def mae(self) -> float | None:
        """The mean absolute loss; None for another loss, or hidden by the noise."""
        return self.mean_loss if self.loss == "absolute" and self.mean_loss >= 0 else None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values, the certificate last."""
        familiar = {"rmse": self.rmse} if self.loss == "squared" else {"mae": self.mae}
        return {
            "schema": SCHEMA,
            "software": f"bagwise {__version__}",
            "privacy": self.certificate.headline,
            "n_rows": self.n_rows,
            "loss": self.loss,
            "largest_loss": self.largest_loss,
            "mean_loss": self.mean_loss,
            **familiar,
            "noise_sd": self.noise_sd,
            "interval": list(self.interval),
            "interval_covers": f"the privacy noise only, with probability {LEVEL:g}",
            "certificate": self.certificate.to_json(),
        }

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the scores and their certificate as one JSON file; `force` replaces one."""
        with new_file(Path(path), force=force) as draft:
            write_json(self.to_json(), draft)
        return Path(path)


def evaluate_rows_privately(
    model: RowModel,
    table: Any,
    *,
    epsilon: float,
    bounds: Sequence[float] | PrivateBounds | None = None,
    label: str | None = None,
    loss: str = "squared",
    clip: float | None = None,
    unit: str | None = None,
    noise: NoiseSource | None = None,
    on_stage: OnStage = ignore_stage,
) -> PrivateScores:
    """Score a model on a table whose labels are secret, with label privacy for the score.

    Parameters
    ----------
    model : RowModel
        It is taken as public, and so are its predictions.
    table : path or frame
    epsilon : float
        Label privacy to deliver, without a delta. Every evaluation spends it anew.
    bounds : (lo, hi)
        Range that a label can have, known without looking at this table; labels and predictions
        outside are clipped to it. What `find_bounds` returns may be given too; what it spent is
        part of epsilon then. A model of a class needs none: its labels are 0 and 1.
    label : str, optional
        The secret column. Default: the one that the model was made for.
    loss : {"squared", "absolute"}
    clip : float, optional
        The largest loss that a row counts with, in units of the loss, chosen without looking at
        these labels. Noise is proportional to it; larger losses are cut off. Default: the largest
        that the bounds allow.
    unit : str, optional
        A column that names people with several rows: privacy then covers all labels of one.
    noise : NoiseSource, optional
        For experiments: with ``rng.SimulatedNoise(seed)`` the certificate says NOT PRIVATE.
    on_stage : callable, optional
        Called with the name of each stage as it begins.

    Returns
    -------
    PrivateScores

    Guarantee
    ---------
    (epsilon, 0)-differentially private for replacing one row's label, or all labels of one unit, by
    others within the bounds. Features, the model and the number of rows are public.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from bagwise import release_model
    >>> x = np.random.default_rng(0).uniform(0, 10, size=50_000)
    >>> table = pa.table({"x": x, "y": x + np.random.default_rng(1).normal(size=x.size)})
    >>> train, test = table.slice(0, 30_000), table.slice(30_000)
    >>> model = release_model(train, label="y", bounds=(-5, 15), epsilon=1.0, delta=1e-6)
    >>> scores = evaluate_rows_privately(model, test, bounds=(-5, 15), epsilon=0.5)
    >>> scores.certificate.headline, abs(scores.rmse - 1) < 0.5
    ('(0.5, 0)-label-DP', True)
    """
    label = model.label if label is None else label
    _check_columns(model, label, unit)
    check_epsilon(epsilon)
    limits, prior = _resolve_bounds(model, bounds, unit)
    calibration = ExactCalibration(float(epsilon), 0.0, limits, prior)
    source = SecureNoise() if noise is None else noise
    run = Stages(on_stage)
    names = [name for name in (label, unit) if name is not None]
    data = run("reading the table", read_table, table, index_names=names)
    # Everything that sets the noise comes before the labels, and so cannot depend on them.
    units = _find_units(data, unit, calibration)
    design = run("predicting", _design, model, data, bounds=limits, loss=loss, clip=clip)
    event = calibration.mean_loss(
        sensitivity_steps=design.sensitivity_steps(units), step=design.step
    )
    labels = run("checking the labels", row_labels, data, label, model)  # (n,), secret
    mean = run(
        "measuring the loss", release_mean_loss, labels, design=design, event=event, source=source
    )
    margin = half_width(event, n_rows=labels.size, level=LEVEL)
    return PrivateScores(
        n_rows=labels.size,
        loss=loss,
        largest_loss=design.largest,
        mean_loss=mean,
        noise_sd=noise_sd(event, n_rows=labels.size),
        interval=(mean - margin, mean + margin),
        certificate=certify_loss(
            (*prior, event),
            calibration,
            source,
            unit=unit,
            remarks=_remarks(model, design, loss, labels.size),
        ),
    )


def _check_columns(model: RowModel, label: str, unit: str | None) -> None:
    for role, name in (("label", label), ("unit", unit)):
        if name is not None and not isinstance(name, str):
            raise ColumnError(f"{role} must be the name of a column, got {name!r}.")
    if label in model.encoder.inputs:
        # Predictions would depend on the labels, and the noise allows for public ones only.
        raise LabelError(
            f"label {label!r} is a feature of the model: its predictions would tell the labels. "
            "Evaluate a model that does without."
        )
    if unit == label:
        raise ColumnError("unit and label name the same column.")


def _resolve_bounds(
    model: RowModel, bounds: Sequence[float] | PrivateBounds | None, unit: str | None
) -> tuple[Bounds, tuple[NoisyChoice, ...]]:
    """Return the public range of a label, and what was spent on finding it."""
    if model.target is not None:
        if bounds is not None:
            raise BoundsError(
                "the model predicts a class: a label is 0 or 1. Leave out the bounds."
            )
        return (0.0, 1.0), ()
    prior: tuple[NoisyChoice, ...] = ()
    if isinstance(bounds, PrivateBounds):
        if bounds.unit != unit:
            raise BoundsError(
                f"the bounds were found for unit {bounds.unit!r}, the evaluation protects "
                f"{unit!r}. Find them again with the same unit."
            )
        prior, bounds = (bounds.event,), bounds.bounds
    limits = check_bounds(bounds)
    if limits is None:
        raise BoundsError(
            "a private evaluation needs bounds=(lo, hi) (--bounds LO HI): the range a label can "
            "have, known without looking at these labels."
        )
    return limits, prior


def _find_units(data: pa.Table, unit: str | None, calibration: Calibration) -> Units:
    if unit is None:
        return Units()
    find_column(data, unit, role="unit")
    units = units_of(data, unit)
    if any(event.rows < units.largest for event in calibration.prior):
        raise BudgetError(
            f"the bounds were found for units of fewer than {units.largest} rows. "
            "Find them again on this table, with the same unit."
        )
    return units


def _design(
    model: RowModel, data: pa.Table, *, bounds: Bounds, loss: str, clip: float | None
) -> LossDesign:
    predictions = model.predict_encoded(model.encoder.transform(data))
    return design_loss(predictions, bounds=bounds, loss=loss, clip=clip)


def _remarks(model: RowModel, design: LossDesign, loss: str, n_rows: int) -> tuple[str, ...]:
    return (
        f"What is released is the mean {loss} error of a model on {n_rows} rows. Labels and "
        f"predictions were clipped to the bounds, and one row counts {design.largest:g} at most.",
        "Each evaluation of these labels spends its epsilon anew, and the epsilons add up. "
        + _about_the_model(model),
    )


def _about_the_model(model: RowModel) -> str:
    promise = model.certificate.headline if model.certificate else model.trained_on.get("privacy")
    if promise is None or promise == NOT_PRIVATE:
        return "What the model tells of labels that it was made from is not covered."
    return f"If the model was made from these labels too, what it spent, {promise}, is added."
