"""A table with its labels, as a build looks at it: checked, encoded, and in a secret order."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import Given
from bagwise.errors import ColumnError, DominatedWarning, Shield
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.files.stored import StoredTable
from bagwise.privacy.promise import warn_of_strong_promise
from bagwise.privacy.units import Units
from bagwise.release.release import BAG_ID
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns, carried_columns
from bagwise.requests.verbs import Choice, ReleaseRequest
from bagwise.rng import NoiseSource
from bagwise.rows import Rows
from bagwise.rows.columns import find_column, refuse_lookalikes, without_dictionary
from bagwise.rows.encode import Encoder
from bagwise.rows.encoded import EncodedRows
from bagwise.rows.label_copies import (
    note_likely_copies,
    refuse_copies_of_class,
    refuse_copies_of_label,
)
from bagwise.rows.labels import Bounds, label_codes, label_vector
from bagwise.rows.row_order import inverse_order, secret_order
from bagwise.show.operator_notes import tell_operator
from bagwise.show.stages import Stages

_LEAST_USED = 0.01  # of the width of the bounds


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


def read_labelled(rows: Rows, given: Given, request: ReleaseRequest, stage: Stages) -> Labelled:
    """Check labels and columns, and put rows into the order in which they are looked at."""
    columns, budget = request.columns, request.budget
    labels, names = check_table(rows, columns, budget, stage)
    # The source may be sorted by its label: rows are looked at in another order.
    with stage("ordering the rows"):
        if request.keep_order or request.seed is not None:
            order = rows.feature_order(names, budget.noise_source)
        else:
            order = secret_order(rows.num_rows, budget.noise_source)
    rows, labels = rows.take(order), labels[order]
    return Labelled(
        rows,
        labels,
        names,
        encoder=columns.encoder_for(rows, names),
        units=budget.units_in(rows),
        given=given.take(order),
        kept=order if request.keep_order else None,
    )


def check_table(
    rows: Rows, columns: Columns, budget: Budget, stage: Stages
) -> tuple[AnyArray, list[str]]:
    """Return the labels, secret, and the names of the features; refuse what must not leave."""
    check_promise_of(budget, rows.num_rows)
    with stage("checking the labels"):
        labels = _read_labels(rows, columns, budget)
    with stage("checking the columns"):
        names = _check_columns(rows, labels, columns)
    return labels, names


def check_promise_of(budget: Budget, n_rows: int) -> None:
    """Refuse an empty promise, and warn of one that leaves nothing; experiments are left alone."""
    budget.check_rows(n_rows)
    rule = budget.calibration
    if rule is not None and rule.is_exact and budget.noise_source.is_secret:
        warn_of_strong_promise(rule.epsilon, n_rows=n_rows)


def _read_labels(rows: Rows, columns: Columns, budget: Budget) -> AnyArray:
    """Return labels as numbers, or as numbers of classes."""
    if columns.classes is not None:
        return label_codes(rows, columns.label, columns.classes)
    column = find_column(rows, columns.label, role="label")  # read once: it may be on disk
    kind, labels = column.type, label_vector(pa.table({columns.label: column}), columns.label)
    if budget.calibration is not None:
        remark_on_wide_bounds(kind, labels, bounds=budget.calibration.bounds)
    return labels


def remark_on_wide_bounds(kind: pa.DataType, labels: FloatArray, *, bounds: Bounds) -> None:
    """Warn of bounds far wider than a label can be: noise grows with them, and nothing else tells.

    What the type of the column says, everybody may know, and so it is a warning. What the labels
    say, which are secret, goes to the operator alone: a warning would tell about them.
    """
    low, high = bounds
    if pa.types.is_boolean(kind):
        if high - low > 1:
            warnings.warn(
                f"the label is true or false, that is 1 or 0, and bounds from {low:g} to {high:g} "
                f"ask for {high - low:g} times the noise that it needs. Give bounds=(0, 1) "
                "(--bounds 0 1).",
                DominatedWarning,
                stacklevel=2,
            )
    elif np.ptp(np.clip(labels, low, high)) < _LEAST_USED * (high - low):
        tell_operator(
            "all labels lie in less than a hundredth of the width of their bounds, so that there "
            "is a hundred times the noise that tight bounds would need. Which bounds are right "
            "should be known without this table (0 and 1 for yes and no), or be found privately: "
            "`bagwise bounds`. This note tells about the labels: it is shown here, and kept "
            "nowhere."
        )


def _check_columns(rows: Rows, labels: AnyArray, columns: Columns) -> list[str]:
    """Return the names of the features; refuse a key that is none, and copies of the label."""
    names, leaving = name_columns(rows, columns)
    if columns.id is not None:
        key = without_dictionary(rows.column(columns.id))
        if key.null_count or pc.count_distinct(key).as_py() != len(key):
            raise ColumnError(
                f"id {columns.id!r} is missing or repeated in some rows; a key is neither."
            )
    classes = columns.classes is not None
    if classes:
        refuse_copies_of_class(rows, leaving, label=columns.label)
    else:
        refuse_copies_of_label(rows, leaving, labels, label=columns.label)
    note_likely_copies(rows, leaving, labels, label=columns.label, classes=classes)
    return names


def name_columns(rows: Rows, columns: Columns) -> tuple[list[str], list[str]]:
    """Return the features, and all columns that leave; refuse names that must not."""
    names = columns.features_in(rows)
    leaving = leaving_columns(names, columns)
    refuse_lookalikes(leaving, label=columns.label)
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    return names, leaving


def leaving_columns(names: list[str], columns: Columns) -> list[str]:
    """Return the columns that leave: the id, what bags follow, and the features."""
    key = [] if columns.id is None else [columns.id]
    return [*key, *carried_columns(columns, names), *names]


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
