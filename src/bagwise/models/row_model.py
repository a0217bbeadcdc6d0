"""A generalised linear model that predicts on tables and is saved as JSON."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import ModelFileError, StrategyError
from bagwise.families import find_family
from bagwise.files.records import Record
from bagwise.models.coefficients import INTERCEPT, Coefficients
from bagwise.models.model import Model, Software, TrainedOn
from bagwise.privacy import Certificate
from bagwise.rows.encode import Encoder
from bagwise.show import charts

RELEASED_DIRECTLY: Final = "none: released directly"
"""The loss of a model that was not fitted to bags."""

NO_ERRORS: Final = "No standard errors were kept with this model."


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The estimates of a linear predictor, and all that a fit says about them.

    Attributes
    ----------
    table : (q, d + 1)
        Coefficients and, last, the intercept; one row, or one for each class but the first.
    standard_errors : (p,) or None
        Of all entries, row by row, as they are without shrinking; None where no honest ones can be
        given. NaN where the data do not determine one.
    unshrunk : (p,) or None
        Where coefficients were shrunk: what they would be without, for intervals.
    freedom : float
        Degrees of freedom behind intervals.
    note : str
        Where the standard errors come from, or why there are none.
    dispersion : float or None
        None where a loss says nothing about it.
    converged : bool
    threshold : float or None
        The chance above which a row counts as 1, where that is not a half.
    rank : int
        Directions of the features that the data determine.
    covariance, posterior : (p, p) or None
        Behind the standard errors; and of slopes that are as small as a shrunken fit takes them.
    slope_variance : float or None
        Of slopes in white columns, as it is believed to be.
    """

    table: FloatArray
    standard_errors: FloatArray | None = None
    unshrunk: FloatArray | None = None
    freedom: float = np.inf
    note: str = NO_ERRORS
    dispersion: float | None = None
    converged: bool = True
    threshold: float | None = None
    rank: int = 0
    covariance: FloatArray | None = None
    posterior: FloatArray | None = None
    slope_variance: float | None = None

    def split(self, *, classes: bool) -> tuple[FloatArray, Any]:
        """Return coefficients and intercepts, those of classes with a row or entry for each."""
        table = self.table if classes else self.table[0]
        return table[..., :-1], table[:, -1] if classes else float(table[-1])


SchemaName = TypeVar("SchemaName")
Recipe = TypeVar("Recipe")


class LinearFile(Record, Generic[SchemaName, Recipe], frozen=True):
    """The fields of the file of a linear model, without its hash, which comes last."""

    schema: SchemaName
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
    encoder: Recipe
    trained_on: TrainedOn
    certificate: dict[str, Any] | None


class _ModelFile(LinearFile[Literal["bagwise-model/4"], Encoder], frozen=True):
    """The fields of a model file."""

    sha256: str


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RowModel(Model):
    """A row-level generalised linear model that needs nothing but a table with its feature columns.

    Attributes
    ----------
    coef : (d,) floats, in the order of the encoder's features; (classes - 1, d) for classes
    intercept : float, or (classes - 1,) floats
    standard_errors, unshrunk, freedom, note
        As in `Estimates`.
    family, link, loss, label, encoder, trained_on, target, classes, exposure, bounds, certificate
        As in `Model`.
    """

    coef: FloatArray
    intercept: float | FloatArray
    standard_errors: FloatArray | None = None
    freedom: float = np.inf
    note: str = NO_ERRORS
    unshrunk: FloatArray | None = None

    SCHEMA: ClassVar[str] = "bagwise-model/4"
    FILE: ClassVar[Any] = _ModelFile
    WHAT: ClassVar[str] = "a model file"

    @classmethod
    def of(
        cls,
        fit: Estimates,
        *,
        n_rows: int,
        made_of: Mapping[str, Any] = MappingProxyType({}),
        **known: Any,
    ) -> Self:
        """Return the model of a fit to n rows.

        Parameters
        ----------
        made_of : mapping
            What else `TrainedOn` says.
        known
            What `Model` has: family, label, encoder and the rest.
        """
        coef, intercept = fit.split(classes=known.get("classes") is not None)
        about = TrainedOn(
            n_rows=n_rows,
            dispersion=fit.dispersion,
            converged=fit.converged,
            threshold=fit.threshold,
            **made_of,
        )
        names = ("standard_errors", "unshrunk", "freedom", "note")
        kept = {name: getattr(fit, name) for name in names}
        return cls(trained_on=about, coef=coef, intercept=intercept, **kept, **known)

    def certified(self, certificate: Certificate) -> Self:
        """Return the model with a certificate that belongs to these very coefficients."""
        return dataclasses.replace(
            self, certificate=dataclasses.replace(certificate, covers=self.digest)
        )

    def predict_encoded(self, X: Any) -> FloatArray:
        """Return the expected label of each row of X, already encoded, and never clipped."""
        eta: FloatArray = X @ self.coef.T + self.intercept
        return find_family(self.family, self.link).mean(eta)

    def predict_class(self, table: Any) -> AnyArray:
        """Return 1 for each row of a table or file whose chance is above the threshold, else 0.

        The threshold is a half, unless the fit has set another (`TrainedOn`).
        """
        if self.family != "bernoulli":
            raise StrategyError(f"predict_class is for family bernoulli, not for {self.family}.")
        threshold = self.trained_on.threshold
        return np.asarray(self.predict(table) > (0.5 if threshold is None else threshold), int)

    def coefficients(self) -> dict[str, float]:
        """Return the coefficient of each column of X, and the intercept, by name."""
        summary = self.summary()
        return dict(zip(summary.names, summary.estimate.tolist(), strict=True))

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

    def _own_fields(self) -> dict[str, Any]:
        errors = self.standard_errors
        stated = None if errors is None else [None if np.isnan(e) else e for e in errors.tolist()]
        return {
            "coefficients": self.coefficients(),
            "coef": self.coef.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "unshrunk": None if self.unshrunk is None else self.unshrunk.tolist(),
            "standard_errors": stated,
            "freedom": float(self.freedom) if np.isfinite(self.freedom) else None,
            "note": self.note,
        }

    @classmethod
    def _from_file(cls, file: LinearFile[Any, Any], common: dict[str, Any]) -> Self:
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
            **{**common, "family": family.name},
            loss=file.loss,
            exposure=file.exposure,
            coef=coef,
            intercept=intercept if file.classes else float(intercept),
            standard_errors=None if errors is None else np.array(errors, dtype=np.float64),
            unshrunk=None if file.unshrunk is None else np.array(file.unshrunk, dtype=np.float64),
            freedom=np.inf if file.freedom is None else file.freedom,
            note=file.note,
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
