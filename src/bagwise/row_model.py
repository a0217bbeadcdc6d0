"""A fitted model together with its encoder: predicts on tables, and is kept as JSON."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise._version import __version__
from bagwise.atomic import new_file
from bagwise.coefficients import INTERCEPT, Coefficients
from bagwise.columns import find_column
from bagwise.encode import Encoder
from bagwise.errors import ModelFileError, shielded
from bagwise.families import find_family
from bagwise.json_files import read_json, write_json
from bagwise.privacy import Certificate
from bagwise.table import read_table

SCHEMA = "bagwise-model/2"


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
    trained_on : dict
        The release it came from: number of rows and bags, and its privacy.
    certificate : Certificate or None
        What is promised, for a model that was released directly.
    classes : tuple of str or None
        What the multinomial family tells apart.
    standard_errors : (p,) floats or None
        One for each of `coefficients`; None where no honest ones can be given.
    freedom : float
        Degrees of freedom behind intervals.
    note : str
        Where the standard errors come from, or why there are none.
    """

    family: str
    loss: str
    label: str
    encoder: Encoder
    coef: FloatArray
    intercept: float | FloatArray
    trained_on: dict[str, Any]
    certificate: Certificate | None = None
    target: str | None = None
    link: str = "canonical"
    classes: tuple[str, ...] | None = None
    standard_errors: FloatArray | None = None
    freedom: float = np.inf
    note: str = "No standard errors were kept with this model."

    def predict(self, table: Any) -> FloatArray:
        """Return the expected label of each row of a table or file; of classes their chances."""
        return self.predict_encoded(self.encoder.transform(read_table(table)))

    def predict_table(self, table: pa.Table, *, id: str | None = None) -> pa.Table:
        """Return a column `prediction`, beside the column `id` if one is named.

        For classes there is a column ``prediction=NAME`` with the chance of each.
        """
        key = {} if id is None else {id: find_column(table, id, role="id")}
        predicted = self.predict_encoded(self.encoder.transform(table))
        if self.classes is None:
            return pa.table({**key, "prediction": predicted})
        names = [f"prediction={name}" for name in self.classes]
        return pa.table({**key, **dict(zip(names, predicted.T, strict=True))})

    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded."""
        eta: FloatArray = X @ self.coef.T + self.intercept
        return find_family(self.family, self.link).mean(eta)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as one JSON file; `force` replaces an existing one."""
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
        content = read_json(Path(path), error=ModelFileError, what="a model file")
        if content.get("schema") != SCHEMA:
            raise ModelFileError(f"{path} is not a model file that this version reads ({SCHEMA}).")
        recorded = content.pop("sha256", None)
        if recorded != _digest(content):
            raise ModelFileError(f"{path} was changed after it was written. Fit the model again.")
        return shielded(
            lambda: cls._from_json(content),
            lambda _: ModelFileError(f"{path} is damaged: a field is missing or malformed."),
        )

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
        return Coefficients(
            names=tuple(names),
            estimate=table.ravel(),
            standard_error=self.standard_errors,
            freedom=self.freedom,
            title=f"{self.label}: {self.family}, {self.loss} loss",
            note=self.note,
            level=level,
        )

    def _to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "software": f"bagwise {__version__}",
            "family": self.family,
            "link": self.link,
            "loss": self.loss,
            "label": self.label,
            "target": self.target,
            "coefficients": self.coefficients(),
            "classes": None if self.classes is None else list(self.classes),
            "coef": self.coef.tolist(),
            "intercept": np.asarray(self.intercept).tolist(),
            "standard_errors": self._errors_to_json(),
            "freedom": self.freedom if np.isfinite(self.freedom) else None,
            "note": self.note,
            "encoder": self.encoder.to_json(),
            "trained_on": self.trained_on,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }

    def _errors_to_json(self) -> list[float | None] | None:
        if self.standard_errors is None:
            return None
        return [None if np.isnan(error) else error for error in self.standard_errors.tolist()]

    @classmethod
    def _from_json(cls, content: Mapping[str, Any]) -> Self:
        encoder = Encoder.from_json(content["encoder"])
        coef = np.array(content["coef"], dtype=np.float64)
        classes = None if content["classes"] is None else tuple(content["classes"])
        outputs = () if classes is None else (len(classes) - 1,)
        intercept = np.array(content["intercept"], dtype=np.float64)
        if coef.shape != (*outputs, len(encoder.feature_names)) or intercept.shape != outputs:
            raise ModelFileError("the number of coefficients does not fit the encoder.")
        promise, errors = content["certificate"], content["standard_errors"]
        return cls(
            family=find_family(content["family"], content["link"]).name,
            link=content["link"],
            loss=content["loss"],
            label=content["label"],
            encoder=encoder,
            coef=coef,
            intercept=intercept if classes else float(intercept),
            trained_on=dict(content["trained_on"]),
            certificate=None if promise is None else Certificate.from_json(promise),
            target=content["target"],
            classes=classes,
            standard_errors=None if errors is None else np.array(errors, dtype=np.float64),
            freedom=np.inf if content["freedom"] is None else float(content["freedom"]),
            note=content["note"],
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
