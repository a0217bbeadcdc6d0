"""Facts about rows in parts: summaries of columns, counts of units and strata, and samples.

Facts add up over parts, without rounding. Rows that belong together are brought together by a hash
of their name, so that a count covers all of them, wherever they are. Hashes follow from cells
alone and depend neither on the order of the rows nor on how they are cut into parts.
"""

import dataclasses
import functools
import hashlib
import operator
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bagwise._types import IntArray
from bagwise.errors import ColumnError, LabelError
from bagwise.rows.columns import (
    as_float,
    as_text,
    check_exposure,
    count_unexposed,
    is_numeric,
    is_text,
    number_groups,
    repeated,
    without_dictionary,
)
from bagwise.rows.encode import like_an_id
from bagwise.rows.labels import MOST_ROWS, label_numbers, spells
from bagwise.rows.parts import Deal, Part, Parts
from bagwise.rows.summary import ColumnSummary

MOST_LEVELS = 2**20
"""Different values of a text column that the driver may count."""

MOST_OF_ONE = 2**31
"""Rows of a unit whose square is a whole number of 64 bits."""

ROWS_OF_ONE = 2**17
"""Rows of a unit that one process may hold with their features."""

MOST_STRATA = 2**16
"""Strata whose names everyone has to know who works on a part."""

_COUNTED = 2**20  # rows that are counted together
_ROW, _FIRST, _SECOND, _UNIT, _BAG, _HASH = "row", "first", "second", "unit", "bag", "hash"


def _targets_for(table: Parts) -> int:
    """Return the number of parts in which rows are counted."""
    return max(1, -(-table.num_rows // _COUNTED))


@dataclass(frozen=True)
class Facts:
    """Facts about all rows, or about those of a part; facts of two parts add up with ``+``.

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
    """Read all published columns and the label once, and once more if something is missing.

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
    coded, share = table.masked == label, min(1.0, MOST_ROWS / table.num_rows)

    def look(part: Part) -> Facts:
        read = part.table
        labels = label_numbers(read, label, classes, coded=coded)
        fine = np.isfinite(labels)
        bad = np.flatnonzero(~fine)
        columns = {n: ColumnSummary.of(n, read.column(n), whole=True) for n in features}
        count = min(read.num_rows, int(np.ceil(share * read.num_rows)))
        some = np.sort(part.generator("look").choice(read.num_rows, size=count, replace=False))
        # Without lists of levels, which differ from part to part.
        plain = {name: without_dictionary(read.column(name)) for name in leaving}
        return Facts(
            columns={name: dataclasses.replace(one, keys=None) for name, one in columns.items()},
            different=frozenset(n for n in leaving if _differs(read.column(n), columns.get(n))),
            copies=frozenset(n for n in leaving if spells(read.column(n), labels, classes)),
            bad=bad.size,
            first_bad=part.first + int(bad[0]) if bad.size else None,
            unexposed=0 if exposure is None else count_unexposed(as_float(read.column(exposure))),
            label_range=(labels[fine].min(initial=np.inf), labels[fine].max(initial=-np.inf)),
            sample=pa.table({**plain, label: labels}).take(pa.array(some)),
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
        raise repeated(key)
    for name, found in facts.columns.items():
        if found.levels is not None and found.levels.num_rows > MOST_LEVELS:
            raise ColumnError(f"feature {name!r} has more than {MOST_LEVELS} levels. Exclude it.")
        mostly_there = 2 * (found.rows - found.missing) > found.rows > 1
        suspicious = name in facts.different and name not in named and mostly_there
        if suspicious and _no_value_twice(table, name):
            raise like_an_id(name)
    # Exact sums take long: only where something is missing.
    gaps = [name for name, found in facts.columns.items() if found.missing]

    def add_up(part: Part) -> dict[str, ColumnSummary]:
        return {name: ColumnSummary.of(name, part.table.column(name)) for name in gaps}

    totals = table.map(add_up, gaps) if gaps else []
    summed = {name: functools.reduce(operator.add, (one[name] for one in totals)) for name in gaps}
    return dataclasses.replace(facts, columns=facts.columns | summed)


def _differs(column: pa.ChunkedArray, found: ColumnSummary | None) -> bool:
    """Return whether no value occurs twice; a feature, unlike a key, may have missing values."""
    if found is not None:
        return found.keys is not None
    column = without_dictionary(column)
    return bool(column.null_count == 0 and pc.count_distinct(column).as_py() == len(column))


def _no_value_twice(table: Parts, name: str) -> bool:
    """Return whether a column without repeated values within a part has none across all parts."""
    return len(table.sizes) == 1 or _rows_of_one(table, name)[0] <= 1


def _rows_of_one(table: Parts, column: str) -> tuple[int, bool]:
    """Return the most rows with the same value, and whether some rows have none."""

    def count(part: Part) -> tuple[int, bool]:
        names = part.table.column(0)
        counts = pc.value_counts(names.drop_null()).field("counts")
        return pc.max(counts).as_py() or 0, bool(names.null_count)

    found = table.gather(deal_by_name(table, column), count, [column]).values()
    most, missing = zip(*found, strict=True)
    return max(most), any(missing)


# -- units -----------------------------------------------------------------------------------------


def largest_unit(table: Parts, column: str) -> int:
    """Return the number of rows in the largest unit; refuse rows that belong to no unit."""
    kind = without_dictionary(table.schema.empty_table().column(column)).type
    known = is_numeric(kind) or is_text(kind) or pa.types.is_temporal(kind)
    if not (known or pa.types.is_boolean(kind)):
        raise ColumnError(
            f"Spark cannot compare unit {column!r} of type {kind}. Convert it to text or to whole "
            "numbers."
        )
    largest, missing = _rows_of_one(table, column)
    if missing:
        raise ColumnError(f"unit {column!r} is missing in some rows: whose labels are they?")
    if largest >= MOST_OF_ONE:
        raise ColumnError(f"a unit of {column!r} has {largest} rows: nothing can be told of it.")
    return largest


def reach_of_units(table: Parts, column: str, bag: str) -> tuple[int, int]:
    """Return the largest sum of squared rows per bag, and the most bags, of any unit.

    Rows that are left out of bags, whose number is below zero, are not counted. A bag is in one
    part, and `bag` has its number there.
    """
    parts = _targets_for(table)

    def deal(part: Part) -> tuple[IntArray, pa.Table]:
        names, bags = spelled(part.table.column(column)), part.table.column(bag).to_numpy()
        kept = np.flatnonzero(bags >= 0)
        numbers = (np.int64(part.number) << np.int64(32)) + bags[kept]
        units = pa.table({_UNIT: names.take(pa.array(kept)), _BAG: numbers})
        return _targets(units[_UNIT], parts), units

    def reach(part: Part) -> tuple[int, int]:
        in_bags = part.table.group_by([_UNIT, _BAG]).aggregate([([], "count_all")])
        rows = in_bags["count_all"]
        squared = in_bags.append_column("square", pc.multiply(rows, rows))
        by_unit = squared.group_by(_UNIT).aggregate([("square", "sum"), ([], "count_all")])
        most = [pc.max(by_unit[name]).as_py() or 0 for name in ("square_sum", "count_all")]
        return int(most[0]), int(most[1])

    found = list(table.gather(deal, reach, [column, bag]).values())
    return max(square for square, _ in found), max(touched for _, touched in found)


def sample_units(
    table: Parts, names: Sequence[str], column: str, count: int, *, largest: int
) -> pa.Table:
    """Return all rows of some units, the largest among them: about `count` rows, or all.

    Hashes of the names of the units decide which ones.
    """
    if largest > ROWS_OF_ONE:
        raise ColumnError(
            f"a unit of {column!r} has {largest} rows, too many for a plan. Name a strategy and a "
            "bag size."
        )

    def first_units(part: Part) -> pa.Table:
        """Return the units with the lowest hashes, as many as could be wanted, and the largest."""
        found = pc.value_counts(part.table.column(0))
        units = pa.table({_UNIT: found.field("values"), "rows": found.field("counts")})
        units = units.append_column(_HASH, pa.array(_name_hashes(units[_UNIT])))
        order = np.argsort(units[_HASH].to_numpy(), kind="stable")
        kept = np.unique(np.append(order[:count], np.argmax(units["rows"].to_numpy())))
        return units.take(pa.array(kept))

    counted = table.gather(deal_by_name(table, column), first_units, [column]).values()
    units = pa.concat_tables(counted).sort_by([(_HASH, "ascending"), (_UNIT, "ascending")])
    rows = units["rows"].to_numpy()
    chosen = np.cumsum(rows) - rows < count
    chosen[np.argmax(rows)] = True
    wanted = units[_UNIT].filter(pa.array(chosen)).combine_chunks()

    def take(part: Part) -> pa.Table:
        kept = part.table.filter(pc.is_in(spelled(part.table.column(column)), value_set=wanted))
        return pa.table({name: without_dictionary(kept.column(name)) for name in [*names, column]})

    return pa.concat_tables(table.map(take, [*names, column]))


def deal_by_name(table: Parts, column: str) -> Deal:
    """Send all rows with the same value in a column to the same part, together with that name."""
    parts = _targets_for(table)

    def deal(part: Part) -> tuple[IntArray, pa.Table]:
        names = spelled(part.table.column(column))
        return _targets(names, parts), pa.table({_UNIT: names})

    return deal


def spelled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the names of values: equal values have equal names, in whichever part they are."""
    column = without_dictionary(column)
    if pa.types.is_floating(column.type):
        # There is one zero. NaN is a name like any other, and a missing value is none.
        whole = pa.array(as_float(column) + 0.0)
        column = pc.if_else(pc.is_valid(column), whole, pa.scalar(None, pa.float64()))
    return pc.cast(column, pa.string())


def _targets(names: pa.ChunkedArray, parts: int) -> IntArray:
    return (_name_hashes(names) % np.uint64(parts)).astype(np.int64)


def _name_hashes(names: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return 64 bits for each name; a missing one has its own."""
    coded = pc.dictionary_encode(names)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    digests = b"".join(
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for name in coded.dictionary.to_pylist()
    )
    hashes = np.append(np.frombuffer(digests, dtype="<u8"), np.uint64(0)).astype(np.uint64)
    places = pc.fill_null(coded.indices, hashes.size - 1).to_numpy(zero_copy_only=False)
    return np.asarray(hashes[places])


# -- strata ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strata:
    """Strata, in an order of their names.

    Attributes
    ----------
    names : tuple of str
        Columns; rows that agree in all of them are of one stratum.
    keys : pyarrow.Array
        What each stratum is called.
    rows : (strata,) integers
    """

    names: tuple[str, ...]
    keys: pa.Array
    rows: IntArray

    def number(self, table: pa.Table) -> IntArray:
        """Return the stratum of each row of a table."""
        numbers = pc.index_in(_stratum_names(table, self.names), value_set=self.keys)
        if numbers.null_count:
            raise AssertionError("every row is of a stratum that was counted")
        return np.asarray(numbers.to_numpy(), dtype=np.int64)


def count_strata(table: Parts, names: Sequence[str], *, role: str) -> Strata:
    """Count the rows of each stratum."""
    number_groups(table.schema.empty_table(), names, role=role)  # refuses what has no levels
    names, counts = tuple(names), Counter[str]()

    def count(part: Part) -> dict[str, int]:
        found = pc.value_counts(_stratum_names(part.table, names))
        some = found.slice(0, MOST_STRATA + 1)  # more are too many, however many they are
        columns = (some.field(name).to_pylist() for name in ("values", "counts"))
        return dict(zip(*columns, strict=True))

    for found in table.map(count, names):
        counts.update(found)
        if len(counts) > MOST_STRATA:
            raise ColumnError(
                f"columns {', '.join(map(repr, names))} have more than {MOST_STRATA} groups or "
                "strata. Merge similar ones."
            )
    keys = sorted(counts)
    rows = np.array([counts[key] for key in keys], dtype=np.int64)
    return Strata(names, pa.array(keys, pa.string()), rows)


def _stratum_names(table: pa.Table, names: Sequence[str]) -> Any:
    """Return the name of each row's stratum: its cells, each after its length.

    A missing value is a value like any other.
    """
    parts = []
    for name in names:
        text = as_text(table.column(name), name=name)
        length = pc.cast(pc.binary_length(text), pa.string())
        parts.append(pc.fill_null(pc.binary_join_element_wise(length, text, ":"), "-"))
    return pc.binary_join_element_wise(*parts, "")


# -- rows that are alike ---------------------------------------------------------------------------


def sample_rows(table: Parts, names: Sequence[str], count: int) -> pa.Table:
    """Return about `count` rows with these columns, or all if there are fewer.

    Rows that are equal in all columns are counted, and of each kind its share is taken, rounded up
    or down by a hash of the cells: as many as the share says on average, and of few rows all.
    """
    names, share = tuple(names), min(1.0, count / table.num_rows)
    parts = np.uint64(_targets_for(table))

    def deal(part: Part) -> tuple[IntArray, pa.Table]:
        # Two hashes, so that rows which differ are not taken for equal.
        first, second = (cell_hashes(part.table, names, seed=seed) for seed in (1, 2))
        rows = np.arange(part.first, part.first + part.table.num_rows, dtype=np.int64)
        return (first % parts).astype(np.int64), pa.table(
            {_FIRST: first, _SECOND: second, _ROW: rows}
        )

    def share_of_alike(part: Part) -> tuple[IntArray, IntArray]:
        """Return numbers of rows, and how often each is taken."""
        alike = part.table.group_by([_FIRST, _SECOND]).aggregate([(_ROW, "min"), ([], "count_all")])
        first, rows, counts = (
            alike[name].to_numpy() for name in (_FIRST, f"{_ROW}_min", "count_all")
        )
        # Other bits than those that sent them here, as a number from 0 up to 1.
        part_of_one = (first >> np.uint64(11)).astype(np.float64) / 2.0**53
        times = np.floor(counts * share + part_of_one).astype(np.int64)
        return rows[times > 0], times[times > 0]

    found = table.gather(deal, share_of_alike, names).values()
    rows, times = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.argsort(rows)
    rows, times = rows[order], times[order]

    def take(part: Part) -> pa.Table:
        start, stop = np.searchsorted(rows, [part.first, part.first + part.table.num_rows])
        chosen = np.repeat(rows[start:stop] - part.first, times[start:stop])
        read = part.table.take(pa.array(chosen))
        return pa.table({name: without_dictionary(read.column(name)) for name in names})

    return pa.concat_tables(table.map(take, names))


def cell_hashes(table: pa.Table, names: Sequence[str], *, seed: int) -> NDArray[np.uint64]:
    """Return 64 bits for each row, computed from its cells: numbers as doubles, others as text.

    >>> one, other = pa.table({"x": [1, 2]}), pa.table({"x": [2.0, -0.0]})
    >>> bool(cell_hashes(one, ["x"], seed=1)[1] == cell_hashes(other, ["x"], seed=1)[0])
    True
    """
    hashes = np.full(table.num_rows, seed, dtype=np.uint64)
    for name in names:
        column = without_dictionary(table.column(name))
        if is_numeric(column.type) or pa.types.is_boolean(column.type):
            values = as_float(column) + 0.0  # there is one zero
            values[np.isnan(values)] = np.nan  # and one NaN
            cells = values.view(np.uint64)
        else:
            try:
                cells = _name_hashes(as_text(column, name=name).cast(pa.string()))
            except ColumnError:  # nobody can compare a list or a picture
                cells = np.zeros(table.num_rows, dtype=np.uint64)
        hashes = _mixed(hashes ^ _mixed(cells))
    return hashes


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in which every bit depends on all input bits: the finalizer of SplitMix64.

    Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators, OOPSLA.
    """
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))
