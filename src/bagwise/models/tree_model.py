"""Boosted trees together with their encoder: they predict on tables, and are kept as JSON."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise._version import SOFTWARE
from bagwise.errors import ModelFileError, StrategyError, shielded
from bagwise.files.atomic import new_file
from bagwise.files.json_files import canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.models.links import LINKS, SOFTMAX
from bagwise.models.row_model import Software, TrainedOn, read_stated
from bagwise.models.trees import Levels, Member, committee_means
from bagwise.privacy import Certificate
from bagwise.rows.columns import find_column
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import Bounds
from bagwise.rows.table import read_table

SCHEMA: Final = "bagwise-trees/2"
LARGEST: Final = 512 * 2**20  # bytes: a thousand trees take about a megabyte


class _TreesFile(Record, frozen=True):
    """The fields of a file of boosted trees."""

    schema: Literal["bagwise-trees/2"]
    software: Software
    family: str
    link: str
    label: str
    bounds: tuple[float, float] | None
    target: str | None
    classes: tuple[str, ...] | None
    levels: Levels
    members: tuple[Member, ...]
    encoder: Encoder
    trained_on: TrainedOn
    sha256: str


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Boosted trees of rows that need nothing but a table with their feature columns.

    It predicts as `RowModel` does, and needs no other package for it.

    Attributes
    ----------
    family, link : str
    label : str
        Name of the label it predicts.
    encoder : Encoder
    levels : Levels
        Which columns of X the trees see as one category.
    members : tuple of Member
        Fits whose expected labels are blended.
    trained_on : TrainedOn
    target : str or None
        The class whose share it predicts, for a label with classes.
    classes : tuple of str or None
        What it tells apart.
    bounds : (low, high) or None
        What a label can be, as the custodian has stated it; predictions are clipped to it.
    """

    family: str
    link: str
    label: str
    encoder: Encoder
    levels: Levels
    members: tuple[Member, ...]
    trained_on: TrainedOn
    target: str | None = None
    classes: tuple[str, ...] | None = None
    bounds: Bounds | None = None

    loss: ClassVar[str] = "bag"
    certificate: ClassVar[Certificate | None] = None
    exposure: ClassVar[str | None] = None

    def predict(self, table: Any, *, clip: bool = True) -> FloatArray:
        """Return the expected label of each row of a table or file; of classes their chances.

        Predictions are clipped to the stated `bounds` of a label, unless `clip` is False.
        """
        return self.predict_rows(read_table(table), clip=clip)

    def predict_rows(self, table: pa.Table, *, rate: bool = False, clip: bool = True) -> FloatArray:
        """Return the expected label of each row; trees know no exposure, and so no rate."""
        if rate:
            raise StrategyError("this model has no exposure, and so no rate: leave out rate.")
        predicted = self.predict_encoded(self.encoder.transform(table))
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
        """Return the expected label of each row of X, already encoded, and never clipped."""
        means = committee_means(self.members, self.levels, X, self.link)
        is_share = self.classes is not None and means.ndim == 1
        return np.column_stack([1 - means, means]) if is_share else means

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the model consists of."""
        content = self._to_json()
        del content["software"]  # another version may write the same model
        return _digest(content)

    @property
    def n_trees(self) -> int:
        """Number of trees in all members."""
        return sum(len(trees) for member in self.members for trees in member.trees)

    def importance(self) -> dict[str, float]:
        """Return how often trees ask about each feature, weighted by the blend, as shares.

        Which features trees ask about says little about how much they matter.
        """
        owners = [name for column in self.encoder.columns for name in [column.name] * len(
            column.outputs)]  # fmt: skip
        asked = dict.fromkeys(self.encoder.inputs, 0.0)
        for member in self.members:
            for tree in sum(member.trees, ()):
                for column in tree.column:
                    asked[owners[self.levels.runs[column][0]]] += member.weight
        total = sum(asked.values()) or 1.0
        return {name: count / total for name, count in asked.items()}

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as one JSON file; `force` replaces an existing one."""
        content = self._to_json()
        with new_file(Path(path), force=force) as draft:
            write_json({**content, "sha256": _digest(content)}, draft)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file of trees, and refuse one that is damaged, edited or of another version."""
        file = read_file(
            _TreesFile,
            Path(path),
            schema=SCHEMA,
            error=ModelFileError,
            what="a file of boosted trees",
            limit=LARGEST,
        )
        content = to_plain(file)
        del content["sha256"]
        if file.sha256 != _digest(content):
            raise ModelFileError(f"{path} was changed after it was written. Fit the model again.")
        return shielded(
            lambda: cls._from_file(file),
            lambda _: ModelFileError(f"{path} is damaged: its fields contradict each other."),
        )

    def _to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "software": SOFTWARE,
            "family": self.family,
            "link": self.link,
            "label": self.label,
            "bounds": None if self.bounds is None else list(self.bounds),
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            "levels": to_plain(self.levels),
            "members": [to_plain(member) for member in self.members],
            "encoder": self.encoder.to_json(),
            "trained_on": to_plain(self.trained_on),
        }

    @classmethod
    def _from_file(cls, file: _TreesFile) -> Self:
        width = len(file.encoder.feature_names)
        ends = [0, *(end for _, end in file.levels.runs)]
        starts = [*(first for first, _ in file.levels.runs), width]
        if ends != starts or any(first >= end for first, end in file.levels.runs):
            raise ModelFileError("the columns of the trees do not fit the encoder.")
        if file.link not in (*LINKS, SOFTMAX) or (file.link == SOFTMAX and not file.classes):
            raise ModelFileError("the link of the model is unknown or does not fit its classes.")
        outputs = len(file.classes or ()) if file.link == SOFTMAX else 1
        for member in file.members:
            member.check(width, len(file.levels.runs), outputs)
        if not file.members or abs(sum(member.weight for member in file.members) - 1) > 1e-6:
            raise ModelFileError("the weights of the members do not add up to 1.")
        return cls(
            family=file.family,
            link=file.link,
            label=file.label,
            bounds=read_stated(file.bounds),
            encoder=file.encoder,
            levels=file.levels,
            members=file.members,
            trained_on=file.trained_on,
            target=file.target,
            classes=file.classes,
        )


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(content)).hexdigest()
