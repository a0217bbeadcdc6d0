"""Boosted trees of rows that predict on tables, and are kept as JSON."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import ModelFileError
from bagwise.files.records import Record, to_plain
from bagwise.models.model import Model, Software, TrainedOn
from bagwise.models.trees import LINKS, SOFTMAX, Levels, Member, committee_means
from bagwise.rows.encode import Encoder


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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TreeModel(Model):
    """Boosted trees of rows that need nothing but a table with their feature columns.

    It predicts as `RowModel` does, and needs no other package for it.

    Attributes
    ----------
    levels : Levels
        Which columns of X the trees see as one category.
    members : tuple of Member
        Fits whose expected labels are blended.
    family, link, label, encoder, trained_on, target, classes, bounds
        As in `Model`.
    """

    levels: Levels
    members: tuple[Member, ...]

    SCHEMA: ClassVar[str] = "bagwise-trees/2"
    FILE: ClassVar[Any] = _TreesFile
    WHAT: ClassVar[str] = "a file of boosted trees"

    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded, and never clipped."""
        means = committee_means(self.members, self.levels, X, self.link)
        is_share = self.classes is not None and means.ndim == 1
        return np.column_stack([1 - means, means]) if is_share else means

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

    def _own_fields(self) -> dict[str, Any]:
        return {
            "levels": to_plain(self.levels),
            "members": [to_plain(member) for member in self.members],
        }

    @classmethod
    def _from_file(cls, file: _TreesFile, common: dict[str, Any]) -> Self:
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
        return cls(**common, levels=file.levels, members=file.members)
