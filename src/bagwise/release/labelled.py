"""A table with its labels, as a build looks at it: checked, encoded, and in a secret order."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bagwise._types import AnyArray, IntArray
from bagwise.bagging import Given
from bagwise.errors import ColumnError, Shield
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.files.stored import StoredTable
from bagwise.privacy.units import Units
from bagwise.release.checks import CheckedTable, leaving_columns
from bagwise.requests.columns import Columns
from bagwise.requests.verbs import Choice, ReleaseRequest
from bagwise.rng import NoiseSource
from bagwise.rows import Rows
from bagwise.rows.encode import Encoder
from bagwise.rows.encoded import EncodedRows
from bagwise.rows.row_order import inverse_order, secret_order
from bagwise.show.stages import Stages


@dataclass(frozen=True)
class Labelled:
    """The rows of a table in the order in which they are looked at, with what belongs to them.

    Attributes
    ----------
    rows : Rows
    labels : (n,)
        Secret: numbers, or numbers of classes.
    names : list of str
        Of the features.
    encoder : Encoder
        From features to X.
    units : Units
        Who is protected.
    given : Given
        Groups and strata that bags have to follow.
    kept : (n,) or None
        Where each row was in the table, if the order is to be kept.
    """

    rows: Rows
    labels: AnyArray
    names: list[str]
    encoder: Encoder
    units: Units
    given: Given
    kept: IntArray | None = None

    @property
    def fits(self) -> bool:
        """Whether all rows may be in memory at once."""
        return self.rows.rows_at_once >= self.rows.num_rows

    def take(self, order: IntArray) -> "Labelled":
        """Reorder rows."""
        return dataclasses.replace(
            self,
            rows=self.rows.take(order),
            labels=self.labels[order],
            units=self.units.take(order),
            given=self.given.take(order),
            kept=None,
        )

    def encoded(self) -> Any:
        """Return X: whole if it fits, else in blocks of rows."""
        return self.encoder.transform(self.rows) if self.fits else self.in_blocks()

    def in_blocks(self) -> EncodedRows:
        """Return X in blocks of rows."""
        return EncodedRows(self.rows, self.encoder)

    def encoded_for(self, choice: Choice, *, centred: bool) -> Any:
        """Return X: whole only if it is needed so, sparse if that saves memory."""
        if not choice.strategy.needs_features:
            return self.in_blocks()
        modelled = choice.scores == "model" or centred
        sparse = self.encoder.is_mostly_zeros and choice.strategy.accepts_sparse
        if self.fits and sparse and not modelled:
            return self.encoder.transform_sparse(self.rows)
        return self.encoded()


def in_secret_order(
    rows: Rows, checked: CheckedTable, given: Given, request: ReleaseRequest, stage: Stages
) -> Labelled:
    """Put rows into another order than the source has: that may be the order of its labels."""
    budget, names = request.budget, checked.names
    with stage("ordering the rows"):
        if request.keep_order or request.seed is not None:
            order = rows.feature_order(names, budget.noise_source)
        else:
            order = secret_order(rows.num_rows, budget.noise_source)
    rows = rows.take(order)
    return Labelled(
        rows,
        checked.labels[order],
        names,
        checked.encoder,
        units=budget.units_in(rows),
        given=given.take(order),
        kept=order if request.keep_order else None,
    )


def leaving_order(table: Labelled, *, seed: int | None, source: NoiseSource) -> IntArray | None:
    """Return the order in which rows leave, in terms of the one in which they were looked at.

    None if it is the same one, a secret one. A seed tells that order, so that there is another.
    """
    if table.kept is not None:
        return inverse_order(table.kept)
    return None if seed is None else secret_order(table.labels.size, source)


def take_leaving(
    rows: Rows, names: list[str], columns: Columns
) -> tuple[pa.Table, StoredTable | None]:
    """Return the rows that leave, as their file will have them, and where they are on disk."""
    leaving = rows.hand_over(leaving_columns(names, columns))
    with Shield(
        lambda _: ColumnError("a column, perhaps the id, has a type that Parquet cannot hold.")
    ):
        return as_parquet_keeps_it(leaving), rows.stored
