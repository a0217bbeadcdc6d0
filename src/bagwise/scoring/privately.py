"""The score of a model on rows with secret labels, released with label privacy."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from msgspec import Meta

from bagwise._version import SOFTWARE
from bagwise.errors import BoundsError, CertificateError, LabelError
from bagwise.files.atomic import new_file
from bagwise.files.json_files import LARGEST_STATEMENT, canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.ledger import Account, Ledger, open_account
from bagwise.models.model import Software
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.privacy import Certificate
from bagwise.privacy.certificate import promised_in
from bagwise.privacy.circumstances import EvaluatedModel, MeanLoss
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.private_loss import (
    POWERS,
    design_loss,
    half_width,
    release_mean_loss,
    sensitivities,
)
from bagwise.privacy.queries import MeanLoss as MeanLossQuery
from bagwise.requests.answers import ask_range
from bagwise.requests.budget import Budget, certify
from bagwise.requests.columns import Columns
from bagwise.requests.queries import Queries, price_bounds
from bagwise.requests.records import Privacy
from bagwise.rng import NoiseSource
from bagwise.rows.columns import find_column
from bagwise.rows.table import Rows, read_table
from bagwise.scoring.openly import row_labels
from bagwise.show import html
from bagwise.show.stages import OnStage, Stages, ignore_stage

SCHEMA: Final = "bagwise-evaluation/2"

LEVEL = 0.95
"""The probability with which an interval covers what the privacy noise hides."""

_COVERS: Final = "the privacy noise only, with probability 0.95"

_MEASURED = ("n_rows", "loss", "largest_loss", "mean_loss", "noise_sd", "interval")


class _EvaluationFile(Record, frozen=True):
    """The fields of an evaluation."""

    schema: Literal["bagwise-evaluation/2"]
    software: Software
    privacy: str
    n_rows: Annotated[int, Meta(ge=1, le=2**48)]
    loss: Literal["squared", "absolute"]
    largest_loss: Annotated[float, Meta(gt=0)]
    mean_loss: float
    rmse: float | None
    mae: float | None
    noise_sd: float
    interval: tuple[float, float]
    interval_covers: Literal["the privacy noise only, with probability 0.95"]
    certificate: dict[str, Any]


@dataclass(frozen=True)
class PrivateScores:
    """A mean loss with privacy noise on it, and the guarantee about the labels behind it.

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
    loss: Literal["squared", "absolute"]
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
        return to_plain(
            _EvaluationFile(
                schema=SCHEMA,
                software=SOFTWARE,
                privacy=self.certificate.headline,
                rmse=self.rmse,
                mae=self.mae,
                interval_covers=_COVERS,
                certificate=self.certificate.to_json(),
                **{name: getattr(self, name) for name in _MEASURED},
            )
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything but the certificate, which belongs to these very scores."""
        content = {**self.to_json(), "certificate": None, "software": None}
        return hashlib.sha256(canonical(content)).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read scores back, and refuse those that do not follow from their certificate."""
        file = read_file(
            _EvaluationFile,
            Path(path),
            schema=SCHEMA,
            error=CertificateError,
            what="an evaluation",
            limit=LARGEST_STATEMENT,
        )
        scores = cls(
            certificate=Certificate.from_json(file.certificate, sizes=()),
            **{name: getattr(file, name) for name in _MEASURED},
        )
        # The certificate was compared when it was read, to digits that every machine agrees on.
        kept = {"software": file.software, "certificate": file.certificate}
        if canonical({**scores.to_json(), **kept}) != canonical(to_plain(file)):
            raise CertificateError(f"{path} is damaged: its fields contradict each other.")
        scores.check()
        return scores

    def check(self) -> None:
        """Recompute what follows from the certificate; raise CertificateError if it differs."""
        if self.certificate.covers != self.digest:
            raise CertificateError("the certificate belongs to other scores.")
        losses = [e for e in self.certificate.events if e.hides == "mean loss"]
        others = [e.hides for e in self.certificate.events if e.hides != "mean loss"]
        if len(losses) != 1 or set(others) - {"bounds"}:
            raise CertificateError("the certificate does not account for a mean loss.")
        event, rows = losses[0], self.certificate.unit_rows
        low, high = self.certificate.bounds or (0.0, 0.0)
        if self.largest_loss > (high - low) ** POWERS[self.loss] * (1 + 1e-9):
            raise CertificateError("the largest loss is more than the bounds allow.")
        least, most = sensitivities(
            bounds=(low, high), loss=self.loss, largest=self.largest_loss, unit_rows=rows
        )
        rounding = rows * event.grid_step  # each row's loss is a whole number of steps
        if not least - rounding <= event.sensitivity <= most + rounding:
            raise CertificateError(
                f"the noise was not set for units of {rows} rows: their labels cannot move the "
                "sum of losses as far as the certificate says, or they move it farther."
            )
        margin = half_width(event, n_rows=self.n_rows, level=LEVEL)
        claimed = (self.largest_loss, self.noise_sd, *self.interval)
        derived = (
            event.grid_step * LOSS_STEPS,
            event.number_sd / self.n_rows,
            self.mean_loss - margin,
            self.mean_loss + margin,
        )
        if not all(map(math.isclose, claimed, derived)):
            raise CertificateError("the scores do not follow from their certificate.")
        about = [c for c in self.certificate.circumstances if isinstance(c, MeanLoss)]
        if about != [MeanLoss(loss=self.loss, n_rows=self.n_rows, largest=self.largest_loss)]:
            raise CertificateError("the certificate is about another loss.")

    def _repr_html_(self) -> str:
        low, high = self.interval
        return html.table(
            "Private scores",
            [
                ("rows", self.n_rows),
                (f"mean {self.loss} loss", f"{self.mean_loss:.4g}"),
                ("95 % interval, for the privacy noise", f"{low:.4g} to {high:.4g}"),
                ("privacy", self.certificate.headline),
            ],
        )

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the scores and their certificate as one JSON file; `force` replaces one."""
        with new_file(Path(path), force=force) as draft:
            write_json(self.to_json(), draft)
        return Path(path)


def evaluate_rows_privately(
    model: RowModel | TreeModel,
    table: Any,
    *,
    epsilon: float,
    bounds: Sequence[float] | Literal["auto"] | None = None,
    label: str | None = None,
    loss: str = "squared",
    clip: float | None = None,
    unit: str | None = None,
    noise_source: NoiseSource | None = None,
    ledger: Ledger | str | Path | None = None,
    on_stage: OnStage = ignore_stage,
) -> PrivateScores:
    """Score a model on a table whose labels are secret, with label privacy for the score.

    Parameters
    ----------
    model : RowModel or TreeModel
        It is taken as public, and so are its predictions.
    table : path or frame
    epsilon : float
        Label privacy to deliver, without a delta. Every evaluation spends it anew.
    bounds : (lo, hi) or "auto"
        Range that a label can have, known without looking at this table; labels and predictions
        outside are clipped to it. "auto" finds it privately, by 2 to 10 percent of epsilon. A model
        of a class, or a label of true and false, needs none: labels are 0 and 1.
    label : str, optional
        The secret column. Default: the one that the model was made for.
    loss : {"squared", "absolute"}
    clip : float, optional
        The largest loss that a row counts with, in units of the loss, chosen without looking at
        these labels. Noise is proportional to it; larger losses are cut off. Default: the largest
        that the bounds allow.
    unit : str, optional
        A column that names people with several rows: privacy then covers all labels of one.
    noise_source : NoiseSource, optional
        For experiments: with ``rng.SimulatedNoise(seed)`` the certificate says NOT PRIVATE.
    ledger : Ledger or path, optional
        Charged before noise is drawn, or the evaluation is refused.
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
    # 1. Check what is asked for, and that predictions cannot depend on the labels.
    columns = Columns.of(model.label if label is None else label, unit=unit)
    if columns.label in (*model.encoder.inputs, model.exposure):
        # The noise allows for public predictions only.
        raise LabelError(
            f"label {columns.label!r} is a feature of the model: its predictions would tell "
            "the labels. Evaluate a model that does without."
        )
    if model.target is not None and bounds is not None:
        raise BoundsError("the model predicts a class: a label is 0 or 1. Leave out the bounds.")
    budget = Budget.of(
        epsilon, 0.0, bounds=bounds, unit=unit, classes=model.target is not None,
        privacy=Privacy(noise_source=noise_source), family=model.family,
        not_private=noise_source is not None and not noise_source.is_secret, what="evaluation",
    )  # fmt: skip
    rule = budget.rule
    stage = Stages(on_stage)
    with stage("reading the table"):
        data = read_table(table, index_names=columns.named)
    budget = budget.of_type(find_column(data, columns.label, role="label").type, "evaluation")
    budget.check_rows(data.num_rows)
    account = Account()
    if ledger is not None:
        with stage("looking into the ledger"):
            account = open_account(
                ledger,
                Rows(data),
                verb="evaluate",
                request=[columns, budget, model.digest, loss, clip],
                label=columns.label,
                unit=unit,
                private=budget.noise_source.is_secret,
            )
        if (paid := account.stored(PrivateScores.load)) is not None:
            return paid
    units, noise = budget.units_in(data), budget.noise_source
    with stage("checking the labels"):
        labels = row_labels(data, columns.label, model)  # secret
    # 2. Bounds that nobody has stated are the first query. The loss gets what they leave, whatever
    # they are: it is charged with them.
    if budget.find_within is not None:
        queries = Queries(price_bounds(rule, n_rows=labels.size, unit_rows=units.largest))
        most = MeanLossQuery(1 / LOSS_STEPS, LOSS_STEPS * units.largest)
        account.charge((*queries.searches, rule.after(queries.bounds).least(most)))
        budget = ask_range(queries, labels, budget, stage)
        rule = budget.rule
    # 3. Set the noise on the loss: labels have no part in it but by bounds that were paid for.
    with stage("predicting"):
        predictions = model.predict_rows(data)
        design = design_loss(predictions, bounds=rule.bounds, loss=loss, clip=clip)
    event = rule.least(MeanLossQuery(design.step, design.sensitivity_steps(units)))
    # 4. Charge, then draw.
    account.charge((*rule.prior, event))
    with stage("measuring the loss"):
        mean = release_mean_loss(labels, design=design, event=event, source=noise)
    # 5. Say what is promised.
    kind: Literal["squared", "absolute"] = "squared" if loss == "squared" else "absolute"
    margin = half_width(event, n_rows=labels.size, level=LEVEL)
    spent, delta = promised_in(model.promise) or (None, None)
    scores = PrivateScores(
        n_rows=labels.size,
        loss=kind,
        largest_loss=design.largest,
        mean_loss=mean,
        noise_sd=event.number_sd / labels.size,
        interval=(mean - margin, mean + margin),
        certificate=certify(
            (*rule.prior, event),
            budget,
            unit_rows=units.largest,
            circumstances=(
                MeanLoss(loss=kind, n_rows=labels.size, largest=float(design.largest)),
                EvaluatedModel(epsilon=spent, delta=delta),
            ),
            mark=account.mark,
        ),
    )
    certificate = dataclasses.replace(scores.certificate, covers=scores.digest)
    return dataclasses.replace(scores, certificate=certificate)
