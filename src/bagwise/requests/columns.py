"""The columns of a request: label, features, and other roles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from bagwise.bagging import Given
from bagwise.errors import ColumnError
from bagwise.requests.provenance import Provenance
from bagwise.requests.records import Bagging, Names, Reading
from bagwise.rows.columns import (
    exposure_vector,
    find_column,
    number_groups,
    refuse_duplicates,
    select_features,
)
from bagwise.rows.encode import DEFAULT_MAX_LEVELS, Encoder
from bagwise.rows.labels import check_classes
from bagwise.rows.summary import ColumnSummary
from bagwise.rows.table import Rows


@dataclass(frozen=True)
class Columns:
    """The role of each column, and how features become X."""

    label: str
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    id: str | None = None
    unit: str | None = None
    nulls: str = "indicator"
    max_levels: int = DEFAULT_MAX_LEVELS
    by: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    exposure: str | None = None

    @classmethod
    def of(
        cls,
        label: str,
        *,
        classes: Sequence[str] | None = None,
        features: Names = None,
        exclude: Names = (),
        id: str | None = None,
        unit: str | None = None,
        bagging: Bagging | None = None,
        reading: Reading | None = None,
    ) -> Self:
        """Check column names that a user gives.

        >>> Columns.of("rent", features="area").features
        ('area',)
        """
        bagging, reading = bagging or Bagging(), reading or Reading()
        roles = {"label": label, "id": id, "unit": unit, "exposure": reading.exposure}
        for role, name in roles.items():
            if not isinstance(name, str) and (name is not None or role == "label"):
                raise ColumnError(f"{role} must be the name of a column, got {name!r}.")
            if role in ("id", "unit") and name == label:
                raise ColumnError(f"{role} and label name the same column.")
        made = cls(
            label,
            check_classes(classes),
            None if features is None else _names(features),
            _names(exclude),
            id,
            unit,
            reading.nulls,
            reading.max_levels,
            _names(bagging.by),
            _names(bagging.within),
            reading.exposure,
        )
        if made.exposure is not None and made.classes is not None:
            raise ColumnError("classes have no exposure: it multiplies counts and amounts.")
        for role, names in made.followed.items():
            refuse_duplicates(names, f"{role} names")
            for part, name in made.reserved.items():
                if name in names:
                    raise ColumnError(
                        f"{role} and {part} name the same column, but the columns of {role} are "
                        f"published unchanged. Name another column for {role}."
                    )
        return made

    @property
    def reserved(self) -> dict[str, str]:
        """Columns that are not features, by role."""
        roles = {"label": self.label, "id": self.id, "unit": self.unit}
        return {role: name for role, name in roles.items() if name is not None}

    @property
    def followed(self) -> dict[str, tuple[str, ...]]:
        """Columns that bags follow or that measure a row, by role; they are published."""
        exposure = () if self.exposure is None else (self.exposure,)
        return {"by": self.by, "within": self.within, "exposure": exposure}

    @property
    def named(self) -> list[str]:
        """Columns that the caller named."""
        followed = [name for names in self.followed.values() for name in names]
        return [*self.reserved.values(), *(self.features or ()), *followed]

    def features_in(self, rows: Rows) -> list[str]:
        """Return the names of the features; raise an error if a named column does not exist."""
        for role, name in self.reserved.items():
            find_column(rows, name, role=role)
        for role, names in self.followed.items():
            for name in names:
                find_column(rows, name, role=role)
        if self.exposure is not None:
            exposure_vector(rows, self.exposure)
        # All rows of a group have the same value: as a feature it would only number the bags.
        groups = {*self.by, self.exposure} - {*(self.features or ())}
        return select_features(
            rows,
            reserved=[*self.reserved.values(), *(name for name in groups if name is not None)],
            features=self.features,
            exclude=self.exclude,
        )

    def encoder_from(self, facts: Mapping[str, ColumnSummary]) -> Encoder:
        """Return the encoder for features with these summaries."""
        named, levels = self.features or (), self.max_levels
        return Encoder.from_summaries(facts, named=named, max_levels=levels, nulls=self.nulls)


def _names(names: Names) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else tuple(names or ())
    if not all(isinstance(name, str) for name in listed):
        raise ColumnError("features and exclude must be names of columns.")
    return listed


def read_given(table: Any, *, by: Sequence[str], within: Sequence[str]) -> Given:
    """Return the groups and strata that columns define; like features, they are public."""
    return Given(
        number_groups(table, by, role="by") if by else None,
        number_groups(table, within, role="within") if within else None,
    )


def carried_columns(named: Columns | Provenance, features: Sequence[str]) -> list[str]:
    """Return the columns of groups, strata and exposure that are not features.

    They are published as well: `verify` compares bags with them, and a learner needs the exposure.
    """
    exposure = () if named.exposure is None else (named.exposure,)
    followed = dict.fromkeys((*named.by, *named.within, *exposure))
    return [name for name in followed if name not in features]
