"""Summaries of columns that add up over parts, for encoders and checks of labels."""

import dataclasses
import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise.errors import ColumnError, LabelError
from bagwise.rows.columns import as_float, check_exposure, count_unexposed, without_dictionary
from bagwise.rows.counts import deal_by_name
from bagwise.rows.encode import like_an_id
from bagwise.rows.label_copies import MOST_ROWS, spells
from bagwise.rows.labels import codes_of
from bagwise.rows.parts import Part, Parts
from bagwise.rows.summary import ColumnSummary

MOST_LEVELS = 2**20
"""Different values of a text column that the driver may count."""


@dataclass(frozen=True)
class Facts:
    """What is known of all rows, or of those of a part; facts of two parts add up with ``+``.

    `label_range` and `sample` are secret.

    Attributes
    ----------
    columns : dict of str to ColumnSummary
        Without keys.
    different : set of str
        Columns of whole numbers or text that have no value twice in a part.
    copies : set of str
        Columns that spell the label.
    bad : int
        Labels that are missing or not finite.
    first_bad : int or None
        The row of the first of them.
    unexposed : int
        Rows without a positive exposure.
    label_range : (float, float)
    sample : pyarrow.Table
        Rows with their labels, for a closer look by the operator.
    """

    columns: dict[str, ColumnSummary]
    different: frozenset[str]
    copies: frozenset[str]
    bad: int
    first_bad: int | None
    unexposed: int
    label_range: tuple[float, float]
    sample: pa.Table

    def __add__(self, other: "Facts") -> "Facts":
        least, most = zip(self.label_range, other.label_range, strict=True)
        return Facts(
            columns={name: one + other.columns[name] for name, one in self.columns.items()},
            different=self.different & other.different,
            copies=self.copies & other.copies,
            bad=self.bad + other.bad,
            first_bad=other.first_bad if self.first_bad is None else self.first_bad,
            unexposed=self.unexposed + other.unexposed,
            label_range=(min(least), max(most)),
            sample=pa.concat_tables([self.sample, other.sample]),
        )


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
    facts = functools.reduce(operator.add, table.map(look, list(dict.fromkeys([*leaving, label]))))
    if facts.first_bad is not None:
        what = "missing, NaN or infinite" if classes is None else "missing or none of the classes"
        raise LabelError(
            f"label {label!r} is {what} in {facts.bad} row(s), the first being row "
            f"{facts.first_bad + 1} (counting from 1). Drop or repair those rows."
        )
    if exposure is not None:
        check_exposure(exposure, facts.unexposed)
    if key is not None and (key not in facts.different or not _no_value_twice(table, key)):
        raise ColumnError(f"id {key!r} is missing or repeated in some rows; a key is neither.")
    for name, found in facts.columns.items():
        if found.levels is not None and found.levels.num_rows > MOST_LEVELS:
            raise ColumnError(f"feature {name!r} has more than {MOST_LEVELS} levels. Exclude it.")
        mostly_there = 2 * (found.rows - found.missing) > found.rows > 1
        suspicious = name in facts.different and name not in named and mostly_there
        if suspicious and _no_value_twice(table, name):
            raise like_an_id(name)
    # Exact sums take long: only where something is missing.
    gaps = [name for name, found in facts.columns.items() if found.missing]
    totals: list[dict[str, ColumnSummary]] = []
    if gaps:
        totals = table.map(partial(_summaries, names=gaps, whole=False), gaps)
    summed = {name: functools.reduce(operator.add, (one[name] for one in totals)) for name in gaps}
    return dataclasses.replace(facts, columns=facts.columns | summed)


def _summaries(part: Part, *, names: Sequence[str], whole: bool) -> dict[str, ColumnSummary]:
    return {name: ColumnSummary.of(name, part.table.column(name), whole=whole) for name in names}


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
) -> Facts:
    read = part.table
    if classes is None:
        labels = as_float(read.column(label))
    else:
        codes = codes_of(read, label, classes, coded=coded)
        labels = np.where(codes < 0, np.nan, codes)
    fine = np.isfinite(labels)
    bad = np.flatnonzero(~fine)
    columns = _summaries(part, names=features, whole=True)
    count = min(read.num_rows, int(np.ceil(share * read.num_rows)))
    some = np.sort(part.generator("look").choice(read.num_rows, size=count, replace=False))
    return Facts(
        columns={name: dataclasses.replace(found, keys=None) for name, found in columns.items()},
        different=frozenset(n for n in leaving if _differs(read.column(n), columns.get(n))),
        copies=frozenset(n for n in leaving if spells(read.column(n), labels, classes)),
        bad=bad.size,
        first_bad=part.first + int(bad[0]) if bad.size else None,
        unexposed=0 if exposure is None else count_unexposed(as_float(read.column(exposure))),
        label_range=(labels[fine].min(initial=np.inf), labels[fine].max(initial=-np.inf)),
        # Without lists of levels, which differ from part to part.
        sample=pa.table(
            {**{name: without_dictionary(read.column(name)) for name in leaving}, label: labels}
        ).take(pa.array(some)),
    )


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
