"""A table is checked before anything is computed from it: all that is wrong is said at once."""

import warnings
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import ColumnError, DominatedWarning, Refusals
from bagwise.privacy.promise import warn_of_strong_promise
from bagwise.release.preview import Preview, preview_columns
from bagwise.release.release import BAG_ID
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns, carried_columns
from bagwise.rows import Rows
from bagwise.rows.columns import find_column, refuse_lookalikes, without_dictionary
from bagwise.rows.encode import Encoder
from bagwise.rows.label_copies import (
    note_likely_copies,
    refuse_copies_of_class,
    refuse_copies_of_label,
)
from bagwise.rows.labels import Bounds, label_codes, label_vector
from bagwise.show.operator_notes import tell_operator

_LEAST_USED = 0.01  # of the width of the bounds


@dataclass(frozen=True)
class CheckedTable:
    """What is known of a table that nothing is wrong with.

    Attributes
    ----------
    labels : (n,)
        Numbers, or numbers of classes, in the order of the table; secret.
    names : list of str
        The features.
    preview : Preview
        Every column that will be published.
    """

    labels: AnyArray
    names: list[str]
    encoder: Encoder
    preview: Preview


def check_table(rows: Rows, columns: Columns, budget: Budget) -> CheckedTable:
    """Read the labels and the facts about columns; refuse a table with all that is wrong with it.

    What is refused may depend on labels that are missing or no numbers, and on exact copies of
    them; nothing else that is said here does, but for notes to the operator.
    """
    names, leaving = name_columns(rows, columns)
    facts = rows.summarise(leaving)
    wrong = Refusals()
    with wrong:
        labels = _read_labels(rows, columns, budget)
        with wrong:  # only of labels that can be read
            if columns.classes is not None:
                refuse_copies_of_class(rows, leaving, label=columns.label)
            else:
                refuse_copies_of_label(rows, leaving, labels, label=columns.label)
    with wrong:
        _check_key(rows, columns.id)
    with wrong:
        encoder = columns.encoder_from({name: facts[name] for name in names})
    wrong.raise_all()
    classes = columns.classes is not None
    note_likely_copies(rows, leaving, labels, label=columns.label, classes=classes)
    return CheckedTable(labels, names, encoder, preview_columns(facts, encoder, columns))


def check_promise_of(budget: Budget, n_rows: int) -> None:
    """Refuse an empty promise, and warn of one that leaves nothing; experiments are left alone."""
    budget.check_rows(n_rows)
    rule = budget.calibration
    if rule is not None and rule.is_exact and budget.noise_source.is_secret:
        warn_of_strong_promise(rule.epsilon, n_rows=n_rows)


def name_columns(table: Rows, columns: Columns) -> tuple[list[str], list[str]]:
    """Return the features, and all columns that leave; refuse names that must not."""
    names = columns.features_in(table)
    leaving = leaving_columns(names, columns)
    refuse_lookalikes(leaving, label=columns.label)
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    return names, leaving


def leaving_columns(names: list[str], columns: Columns) -> list[str]:
    """Return the columns that leave: the id, what bags follow, and the features."""
    key = [] if columns.id is None else [columns.id]
    return [*key, *carried_columns(columns, names), *names]


def _read_labels(table: Rows, columns: Columns, budget: Budget) -> AnyArray:
    """Return labels as numbers, or as numbers of classes."""
    if columns.classes is not None:
        return label_codes(table, columns.label, columns.classes)
    column = find_column(table, columns.label, role="label")  # read once: it may be on disk
    kind, labels = column.type, label_vector(pa.table({columns.label: column}), columns.label)
    del column
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


def _check_key(table: Rows, name: str | None) -> None:
    if name is None:
        return
    key = without_dictionary(table.column(name))
    if key.null_count or pc.count_distinct(key).as_py() != len(key):
        raise ColumnError(f"id {name!r} is missing or repeated in some rows; a key is neither.")
