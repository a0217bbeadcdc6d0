"""Facts about columns that add up over parts: what an encoder needs, and what labels must be."""

import dataclasses
import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray
from bagwise.errors import ColumnError, LabelError
from bagwise.rows.columns import as_float, check_exposure, count_unexposed, without_dictionary
from bagwise.rows.counts import deal_by_name
from bagwise.rows.encode import like_an_id
from bagwise.rows.label_copies import MOST_ROWS, is_copy
from bagwise.rows.labels import codes_of
from bagwise.rows.parts import Part, Parts
from bagwise.rows.summary import ColumnSummary

MOST_LEVELS = 2**20
"""Different values of a text column that the driver may count."""


@dataclass(frozen=True)
class _Part:
    """What one part tells.

    Attributes
    ----------
    columns : dict of str to ColumnSummary
        Without keys.
    different : set of str
        Columns of whole numbers or text that have no value twice.
    copies : set of str
        Columns that spell the label.
    bad : int
        Labels that are missing or not finite.
    first_bad : int or None
        The row of the first of them.
    unexposed : int
        Rows without a positive exposure.
    least, most : float
        Of the labels.
    sample : pyarrow.Table
        Rows with their labels, for a closer look by the operator.
    """

    columns: dict[str, ColumnSummary]
    different: frozenset[str]
    copies: frozenset[str]
    bad: int
    first_bad: int | None
    unexposed: int
    least: float
    most: float
    sample: pa.Table


@dataclass(frozen=True)
class Facts:
    """What is known of all rows; `sample` and `label_range` are secret."""

    columns: dict[str, ColumnSummary]
    copies: frozenset[str]
    label_range: tuple[float, float]
    sample: pa.Table


def gather_facts(
    table: Parts,
    features: Sequence[str],
    leaving: Sequence[str],
    *,
    label: str,
    key: str | None,
    named: Collection[str],
    classes: Sequence[str] | None = None,
    exposure: str | None = None,
) -> Facts:
    """Read all columns that leave, and the label, once, and again where something is missing.

    Parameters
    ----------
    key : str or None
        The column that must be there, and different, in every row.
    named : names
        Features that the caller asked for, and that may look like a key.
    classes : names, optional
        Of a label that has some: numbers of classes then stand for labels.
    exposure : str, optional
        A column that must be positive in every row.
    """
    look = partial(
        _look,
        features=features,
        leaving=leaving,
        label=label,
        classes=classes,
        coded=table.masked == label,
        exposure=exposure,
        share=min(1.0, MOST_ROWS / table.num_rows),
    )
    parts = table.map(look, list(dict.fromkeys([*leaving, label])))
    if bad := sum(part.bad for part in parts):
        first = min(part.first_bad for part in parts if part.first_bad is not None)
        what = "missing, NaN or infinite" if classes is None else "missing or none of the classes"
        raise LabelError(
            f"label {label!r} is {what} in {bad} row(s), the first being row "
            f"{first + 1} (counting from 1). Drop or repair those rows."
        )
    if exposure is not None:
        check_exposure(exposure, sum(part.unexposed for part in parts))
    different = frozenset.intersection(*(part.different for part in parts))
    if key is not None and (key not in different or not _no_value_twice(table, key)):
        raise ColumnError(f"id {key!r} is missing or repeated in some rows; a key is neither.")
    columns = {}
    for name in features:
        found = functools.reduce(operator.add, (part.columns[name] for part in parts))
        if found.levels is not None and found.levels.num_rows > MOST_LEVELS:
            raise ColumnError(f"feature {name!r} has more than {MOST_LEVELS} levels. Exclude it.")
        mostly_there = 2 * (found.rows - found.missing) > found.rows > 1
        suspicious = name in different and name not in named and mostly_there
        if suspicious and _no_value_twice(table, name):
            raise like_an_id(name)
        columns[name] = found
    return Facts(
        columns=columns | _totals(table, [n for n in features if columns[n].missing]),
        copies=frozenset.intersection(*(part.copies for part in parts)),
        label_range=(min(part.least for part in parts), max(part.most for part in parts)),
        sample=pa.concat_tables([part.sample for part in parts]),
    )


def _look(
    part: Part,
    *,
    features: Sequence[str],
    leaving: Sequence[str],
    label: str,
    classes: Sequence[str] | None,
    coded: bool,
    exposure: str | None,
    share: float,
) -> _Part:
    read = part.table
    if classes is None:
        labels, copies = as_float(read.column(label)), is_copy
    else:
        codes = codes_of(read, label, classes, coded=coded)
        labels, copies = np.where(codes < 0, np.nan, codes), partial(_spells_class, classes=classes)
    fine = np.isfinite(labels)
    bad = np.flatnonzero(~fine)
    columns = {name: ColumnSummary.of(name, read.column(name), whole=True) for name in features}
    count = min(read.num_rows, int(np.ceil(share * read.num_rows)))
    some = np.sort(part.generator("look").choice(read.num_rows, size=count, replace=False))
    return _Part(
        columns={name: dataclasses.replace(found, keys=None) for name, found in columns.items()},
        different=frozenset(n for n in leaving if _differs(read.column(n), columns.get(n))),
        copies=frozenset(name for name in leaving if copies(read.column(name), labels)),
        bad=bad.size,
        first_bad=part.first + int(bad[0]) if bad.size else None,
        unexposed=0 if exposure is None else count_unexposed(as_float(read.column(exposure))),
        least=float(labels[fine].min(initial=np.inf)),
        most=float(labels[fine].max(initial=-np.inf)),
        # Without lists of levels, which differ from part to part.
        sample=pa.table(
            {**{name: without_dictionary(read.column(name)) for name in leaving}, label: labels}
        ).take(pa.array(some)),
    )


def _spells_class(column: pa.ChunkedArray, labels: FloatArray, *, classes: Sequence[str]) -> bool:
    """Tell whether a column, or a part of one, spells the classes of the labels."""
    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        return False
    try:
        codes = codes_of(pa.table({"c": column}), "c", classes, coded=False)
    except ColumnError:
        return False  # what cannot be read as text cannot spell the classes
    return np.array_equal(codes, labels)


def _differs(column: pa.ChunkedArray, found: ColumnSummary | None) -> bool:
    """Tell whether no value is there twice: of a feature, what is there; of a key, all of it."""
    if found is not None:
        return found.keys is not None
    column = without_dictionary(column)
    return bool(column.null_count == 0 and pc.count_distinct(column).as_py() == len(column))


def _no_value_twice(table: Parts, name: str) -> bool:
    """Tell whether a column that has no value twice within a part has none twice at all."""

    def all_differ(part: Part) -> bool:
        column = part.table.column(0).drop_null()
        return bool(pc.count_distinct(column).as_py() == len(column))

    whole = len(table.sizes) == 1
    return whole or all(table.gather(deal_by_name(table, name), all_differ, [name]).values())


def _totals(table: Parts, names: Sequence[str]) -> dict[str, ColumnSummary]:
    """Return facts with exact sums, which take long: only where something is missing."""
    if not names:
        return {}

    def summarise(part: Part) -> dict[str, ColumnSummary]:
        found = {name: ColumnSummary.of(name, part.table.column(name)) for name in names}
        return {name: dataclasses.replace(one, keys=None) for name, one in found.items()}

    parts = table.map(summarise, names)
    return {name: functools.reduce(operator.add, (part[name] for part in parts)) for name in names}
