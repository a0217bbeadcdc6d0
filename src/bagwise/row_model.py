"""A fitted model together with its encoder: predicts on tables, and is kept as JSON."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from bagwise import _html
from bagwise._types import FloatArray
from bagwise._version import __version__
from bagwise.atomic import new_file
from bagwise.columns import find_column
from bagwise.encode import Encoder
from bagwise.errors import ModelFileError, shielded
from bagwise.families import find_family
from bagwise.privacy import Certificate
from bagwise.table import read_table

SCHEMA = "bagwise-model/1"


@dataclass(frozen=True, eq=False)
class RowModel:
    """A row-level model that needs nothing but a table with its feature columns.

    Attributes
    ----------
    family, loss : str
    label : str
        Name of the label it predicts.
    target : str or None
        The class whose share it predicts, for a label with classes.
    encoder : Encoder
    coef : (d,) floats, in the order of ``encoder.feature_names``
    intercept : float
    trained_on : dict
        The release it came from: number of rows and bags, and its privacy.
    certificate : Certificate or None
        What is promised, for a model that was released directly.
    """

    family: str
    loss: str
    label: str
    encoder: Encoder
    coef: FloatArray
    intercept: float
    trained_on: dict[str, Any]
    certificate: Certificate | None = None
    target: str | None = None

    def predict(self, table: Any) -> FloatArray:
        """Return the expected label of each row of a table or file."""
        return self.predict_encoded(self.encoder.transform(read_table(table)))

    def predict_table(self, table: pa.Table, *, id: str | None = None) -> pa.Table:
        """Return a column `prediction`, beside the column `id` if one is named."""
        key = {} if id is None else {id: find_column(table, id, role="id")}
        return pa.table({**key, "prediction": self.predict_encoded(self.encoder.transform(table))})

    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded."""
        return find_family(self.family).mean(X @ self.coef + self.intercept)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as one JSON file; `force` replaces an existing one."""
        content = self._to_json()
        text = json.dumps({**content, "sha256": _digest(content)}, indent=2, allow_nan=False)
        with new_file(Path(path), force=force) as draft:
            draft.write_text(text + "\n", encoding="utf-8")
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file, and refuse one that is damaged, edited or of another version."""
        content = shielded(
            lambda: json.loads(Path(path).read_text(encoding="utf-8")),
            lambda _: ModelFileError(f"{path} does not exist or is not readable JSON."),
        )
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise ModelFileError(f"{path} is not a model file that this version reads ({SCHEMA}).")
        recorded = content.pop("sha256", None)
        if recorded != _digest(content):
            raise ModelFileError(f"{path} was changed after it was written. Fit the model again.")
        return shielded(
            lambda: cls._from_json(content),
            lambda _: ModelFileError(f"{path} is damaged: a field is missing or malformed."),
        )

    def coefficients(self) -> dict[str, float]:
        """Return the intercept and the coefficient of each column of X by name."""
        names = ["(intercept)", *self.encoder.feature_names]
        return dict(zip(names, [self.intercept, *self.coef.tolist()], strict=True))

    def _to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "software": f"bagwise {__version__}",
            "family": self.family,
            "loss": self.loss,
            "label": self.label,
            "target": self.target,
            "coefficients": self.coefficients(),
            "coef": self.coef.tolist(),
            "intercept": self.intercept,
            "encoder": self.encoder.to_json(),
            "trained_on": self.trained_on,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }

    @classmethod
    def _from_json(cls, content: Mapping[str, Any]) -> Self:
        encoder = Encoder.from_json(content["encoder"])
        coef = np.array(content["coef"], dtype=np.float64)
        if coef.shape != (len(encoder.feature_names),):
            raise ModelFileError("the number of coefficients does not fit the encoder.")
        promise = content["certificate"]
        return cls(
            family=find_family(content["family"]).name,
            loss=content["loss"],
            label=content["label"],
            encoder=encoder,
            coef=coef,
            intercept=float(content["intercept"]),
            trained_on=dict(content["trained_on"]),
            certificate=None if promise is None else Certificate.from_json(promise),
            target=content["target"],
        )

    def _repr_html_(self) -> str:
        return _html.table(
            f"Model of {self.label}", [(n, f"{v:.6g}") for n, v in self.coefficients().items()]
        )


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
