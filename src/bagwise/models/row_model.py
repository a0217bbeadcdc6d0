"""A fitted model together with its encoder: predicts on tables, and is kept as JSON."""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
from msgspec import Meta

from bagwise._types import FloatArray
from bagwise._version import SOFTWARE, SOFTWARE_PATTERN
from bagwise.errors import ModelFileError, StrategyError, shielded
from bagwise.families import find_family
from bagwise.files.atomic import new_file
from bagwise.files.json_files import canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.privacy import Certificate
from bagwise.privacy.certificate import HEADLINE_PATTERN
from bagwise.rows.columns import find_column
from bagwise.rows.encode import Encoder
from bagwise.rows.exposure import exposure_vector
from bagwise.rows.labels import Bounds
from bagwise.rows.table import read_table
from bagwise.show import charts

SCHEMA: Final = "bagwise-model/4"

RELEASED_DIRECTLY: Final = "none: released directly"
"""The loss of a model that was not fitted to bags."""

NO_ERRORS: Final = "No standard errors were kept with this model."

Software = Annotated[str, Meta(pattern=rf"^{SOFTWARE_PATTERN}\Z")]


class TrainedOn(Record, frozen=True, omit_defaults=True):
    """What a model was made from.

    Attributes
    ----------
    n_rows : int
    privacy : str or None
        The headline of the release's certificate; None for a model with one of its own.
    n_bags, n_labelled_rows : int or None
        Bags, and rows of the learner's own.
    label_kind, strategy : str or None
    dispersion : float or None
        Variance of single labels around the model, relative to the family's.
    converged : bool
        Whether the fit found what it looked for.
    """

    n_rows: Annotated[int, Meta(ge=1, le=2**48)]
    privacy: Annotated[str, Meta(pattern=HEADLINE_PATTERN)] | None = None
    n_bags: int | None = None
    n_labelled_rows: int | None = None
    label_kind: Literal["mean", "pick"] | None = None
    strategy: str | None = None
    dispersion: float | None = None
    converged: bool = True


class _ModelFile(Record, frozen=True):
    """The fields of a model file."""

    schema: Literal["bagwise-model/4"]
    software: Software
    family: str
    link: str
    loss: str
    label: str
    bounds: tuple[float, float] | None
    target: str | None
    coefficients: dict[str, float]
    classes: tuple[str, ...] | None
    coef: list[Any]
    intercept: float | list[float]
    exposure: str | None
    unshrunk: list[float] | None
    standard_errors: list[float | None] | None
    freedom: float | None
    note: str
    encoder: Encoder
    trained_on: TrainedOn
    certificate: dict[str, Any] | None
    sha256: str


@dataclass(frozen=True, eq=False)
class RowModel:
    """A row-level model that needs nothing but a table with its feature columns.

    Attributes
    ----------
    family, link, loss : str
    label : str
        Name of the label it predicts.
    target : str or None
        The class whose share it predicts, for a label with classes.
    encoder : Encoder
    coef : (d,) floats, in the order of ``encoder.feature_names``; (classes - 1, d) for classes
    intercept : float, or (classes - 1,) floats
    trained_on : TrainedOn
        The release it came from: number of rows and bags, and its privacy.
    certificate : Certificate or None
        What is promised, for a model that was released directly.
    classes : tuple of str or None
        What the multinomial family tells apart.
    standard_errors : (p,) floats or None
        One for each of `coefficients`; None where no honest ones can be given.
    unshrunk : (p,) floats or None
        Where coefficients were shrunk: what they would be without, for intervals.
    freedom : float
        Degrees of freedom behind intervals.
    note : str
        Where the standard errors come from, or why there are none.
    exposure : str or None
        The column that expected labels are multiplied by: what is modelled is a rate.
    bounds : (low, high) or None
        What a label can be, as the custodian has stated it; predictions are clipped to it.
    """

    family: str
    loss: str
    label: str
    encoder: Encoder
    coef: FloatArray
    intercept: float | FloatArray
    trained_on: TrainedOn
    certificate: Certificate | None = None
    target: str | None = None
    link: str = "canonical"
    classes: tuple[str, ...] | None = None
    standard_errors: FloatArray | None = None
    freedom: float = np.inf
    note: str = NO_ERRORS
    unshrunk: FloatArray | None = None
    exposure: str | None = None
    bounds: Bounds | None = None

    def certified(self, certificate: Certificate) -> Self:
        """Return the model with a certificate that belongs to these very coefficients."""
        return dataclasses.replace(
            self, certificate=dataclasses.replace(certificate, covers=self.digest)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the model consists of, but for its certificate."""
        content = {**self._to_json(), "certificate": None}
        del content["software"]  # another version may write the same model
        return _digest(content)

    def predict(self, table: Any, *, rate: bool = False, clip: bool = True) -> FloatArray:
        """Return the expected label of each row of a table or file; of classes their chances.

        A model of a rate multiplies it by the exposure in the table, unless `rate` is asked for.
        Predictions are clipped to the stated `bounds` of a label, unless `clip` is False; a rate
        has no bounds.
        """
        return self.predict_rows(read_table(table), rate=rate, clip=clip)

    def predict_rows(self, table: pa.Table, *, rate: bool = False, clip: bool = True) -> FloatArray:
        """Do what `predict` does, for a table that was read."""
        predicted = self.predict_encoded(self.encoder.transform(table))
        if rate and self.exposure is None:
            raise StrategyError("this model has no exposure, and so no rate: leave out rate.")
        if rate:
            return predicted
        if self.exposure is not None:
            predicted = predicted * exposure_vector(table, self.exposure)
        return np.clip(predicted, *self.bounds) if clip and self.bounds else predicted

    def predict_table(
        self, table: pa.Table, *, id: str | None = None, rate: bool = False, clip: bool = True
    ) -> pa.Table:
        """Return a column `prediction`, beside the column `id` if one is named.

        For classes there is a column ``prediction=NAME`` with the chance of each.
        """
        key = {} if id is None else {id: find_column(table, id, role="id")}
        predicted = self.predict_rows(table, rate=rate, clip=clip)
        if self.classes is None:
            return pa.table({**key, "prediction": predicted})
        names = [f"prediction={name}" for name in self.classes]
        return pa.table({**key, **dict(zip(names, predicted.T, strict=True))})

    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded, and never clipped.

        It is that of an exposure of one.
        """
        eta: FloatArray = X @ self.coef.T + self.intercept
        return find_family(self.family, self.link).mean(eta)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as one JSON file; `force` replaces an existing one.

        A fit that did not converge is not written either, unless `force` says so.
        """
        if not self.trained_on.converged and not force:
            raise ModelFileError(
                f"the fit did not converge, so {path} was not written. Choose another family or "
                "loss, or more epsilon; force=True (--force) writes it all the same."
            )
        content = self._to_json()
        with new_file(Path(path), force=force) as draft:
            write_json({**content, "sha256": _digest(content)}, draft)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file, and refuse one that is damaged, edited or of another version."""
        if Path(path).is_dir():
            raise ModelFileError(
                f"{path} is a directory, not a model file. If it is a release, fit it first: "
                f"bagwise fit {path} -o model.json"
            )
        file = read_file(
            _ModelFile, Path(path), schema=SCHEMA, error=ModelFileError, what="a model file"
        )
        content = to_plain(file)
        del content["sha256"]
        if file.sha256 != _digest(content):
            raise ModelFileError(f"{path} was changed after it was written. Fit the model again.")
        model = shielded(
            lambda: cls._from_file(file),
            lambda _: ModelFileError(f"{path} is damaged: a field is malformed."),
        )
        # The certificate was compared when it was read, to digits that every machine agrees on.
        kept = {"software": file.software, "certificate": file.certificate}
        if canonical({**model._to_json(), **kept}) != canonical(content):
            raise ModelFileError(f"{path} is damaged: its fields contradict each other.")
        return model

    def coefficients(self) -> dict[str, float]:
        """Return the coefficient of each column of X, and the intercept, by name."""
        found = self.summary()
        return dict(zip(found.names, found.estimate.tolist(), strict=True))

    def summary(self, *, level: float = 0.95) -> Coefficients:
        """Return coefficients with standard errors, intervals and p-values, where there are any."""
        names = [*self.encoder.feature_names, INTERCEPT]
        if self.classes is not None:
            names = [f"{label}: {name}" for label in self.classes[1:] for name in names]
        table = np.column_stack([np.atleast_2d(self.coef), np.atleast_1d(self.intercept)])
        of_class = "" if self.target is None else f"={self.target}"
        return Coefficients(
            names=tuple(names),
            estimate=table.ravel(),
            standard_error=self.standard_errors,
            freedom=self.freedom,
            title=f"{self.label}{of_class}: {self.family}, {self.loss} loss",
            note=self.note,
            level=level,
            unshrunk=self.unshrunk,
        )

    def _to_json(self) -> dict[str, Any]:
        errors = self.standard_errors
        stated = None if errors is None else [None if np.isnan(e) else e for e in errors.tolist()]
        return {
            "schema": SCHEMA,
            "software": SOFTWARE,
            "family": self.family,
            "link": self.link,
            "loss": self.loss,
            "label": self.label,
            "bounds": None if self.bounds is None else list(self.bounds),
            "target": self.target,
            "coefficients": self.coefficients(),
            "classes": None if self.classes is None else list(self.classes),
            "coef": self.coef.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "exposure": self.exposure,
            "unshrunk": None if self.unshrunk is None else self.unshrunk.tolist(),
            "standard_errors": stated,
            "freedom": float(self.freedom) if np.isfinite(self.freedom) else None,
            "note": self.note,
            "encoder": self.encoder.to_json(),
            "trained_on": to_plain(self.trained_on),
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }

    @classmethod
    def _from_file(cls, file: _ModelFile) -> Self:
        coef = np.array(file.coef, dtype=np.float64)
        outputs = () if file.classes is None else (len(file.classes) - 1,)
        intercept = np.array(file.intercept, dtype=np.float64)
        width = len(file.encoder.feature_names)
        if coef.shape != (*outputs, width) or intercept.shape != outputs:
            raise ModelFileError("the number of coefficients does not fit the encoder.")
        family = find_family(file.family, file.link)
        if family.has_classes != (file.classes is not None):
            raise ModelFileError("the family of the model does not fit its classes.")
        if file.exposure is not None and not family.has_log_link:
            raise ModelFileError("the link of the model does not fit its exposure.")
        errors = file.standard_errors
        for listed in (errors, file.unshrunk):
            if listed is not None and len(listed) != coef.size + intercept.size:
                raise ModelFileError("the number of standard errors does not fit the coefficients.")
        model = cls(
            family=find_family(file.family, file.link).name,
            link=file.link,
            loss=file.loss,
            label=file.label,
            bounds=read_stated(file.bounds),
            encoder=file.encoder,
            coef=coef,
            intercept=intercept if file.classes else float(intercept),
            trained_on=file.trained_on,
            target=file.target,
            classes=file.classes,
            standard_errors=None if errors is None else np.array(errors, dtype=np.float64),
            freedom=np.inf if file.freedom is None else file.freedom,
            note=file.note,
            exposure=file.exposure,
            unshrunk=None if file.unshrunk is None else np.array(file.unshrunk, dtype=np.float64),
        )
        if file.certificate is None:
            return model
        certificate = Certificate.from_json(file.certificate, sizes=())
        if certificate.covers != model.digest or certificate.stated_bounds != model.bounds:
            raise ModelFileError("the certificate belongs to another model.")
        return dataclasses.replace(model, certificate=certificate)

    def plot(self) -> charts.Chart:
        """Draw each coefficient with its interval; needs the extra ``bagwise[plot]``."""
        return self.summary().plot()

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def read_stated(bounds: Bounds | None) -> Bounds | None:
    """Return the stated bounds of a file, or refuse them."""
    if bounds is not None and not (bounds[0] < bounds[1] and np.isfinite(bounds).all()):
        raise ModelFileError("the bounds of the model are impossible.")
    return bounds


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(content)).hexdigest()
