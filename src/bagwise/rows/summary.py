"""Summaries of columns for encoders, which add up exactly over the parts of a table.

A table may come as many files, and be counted on many machines. Everything here is counted or added
without rounding, so that the result depends neither on the parts nor on their order.
"""

import functools
import operator
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray
from bagwise.rows.columns import as_float, as_text, is_numeric, is_text, without_dictionary

LARGEST = 1e100  # what is larger cannot be squared safely
MOST_VALUES = 10_000  # different values that are counted; beyond, there are just many
_UNIT_BITS = 1126  # every double is a whole multiple of 2**-1126, its 53 bits included
_TOGETHER = 2**22  # rows that are summarised together
_BLOCK = 2**24  # so many halves of a double's bits add up to less than 2**53


@dataclass(frozen=True)
class ColumnSummary:
    """Facts about one column, or about part of it; those of two parts add up with ``+``.

    Attributes
    ----------
    type : pyarrow.DataType
    rows, missing : int
        A number that is NaN is missing.
    total : int
        Sum of the numbers that are not missing, in units of 2**-1126.
    is_huge : bool
        Whether a number is infinite, or too large to compute with.
    levels : pyarrow.Table or None
        How often each level of a column of text, booleans or categories occurs.
    keys : pyarrow.ChunkedArray or None
        The values, as long as they are integers or text and all of them different.
    values : pyarrow.Array or None
        The different values of a column without levels; None if there are more than `MOST_VALUES`.
    low, high : float
        The smallest and the largest number.

    Examples
    --------
    >>> parts = [ColumnSummary.of("x", pa.chunked_array([[v]])) for v in (1e100, 1.0, -1e100)]
    >>> (parts[0] + parts[1] + parts[2]).mean
    0.3333333333333333
    """

    type: pa.DataType
    rows: int
    missing: int
    total: int = 0
    is_huge: bool = False
    levels: pa.Table | None = None
    keys: pa.ChunkedArray | None = None
    values: pa.Array | None = None
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray, *, whole: bool = False) -> Self:
        """Summarise a column; the sum of a `whole` one is only computed if something is missing."""
        kind, rows, missing, total, huge = column.type, len(column), column.null_count, 0, False
        levels, low, high = None, np.inf, -np.inf
        if is_numeric(kind):
            values = as_float(column)
            there = values[~np.isnan(values)]
            missing = rows - there.size
            low, high = float(there.min(initial=low)), float(there.max(initial=high))
            huge = bool(there.size and max(high, -low) > LARGEST)
            if not huge and (missing or not whole):
                total = exact_sum(there)
        elif has_levels(kind):
            counted = pc.value_counts(as_text(column, name=name))
            levels = pa.table(counted.flatten(), names=["values", "counts"])
        plain = without_dictionary(column)
        counted = None if levels is not None else _few_values(plain)
        return cls(kind, rows, missing, total, huge, levels, _keys(plain), counted, low, high)

    @classmethod
    def of_all(cls, name: str, column: pa.ChunkedArray) -> Self:
        """Summarise all of a column; its sum, which takes long, only if something is missing."""
        slices = [column.slice(at, _TOGETHER) for at in range(0, len(column) or 1, _TOGETHER)]
        facts = functools.reduce(operator.add, (cls.of(name, s, whole=True) for s in slices))
        if facts.missing:
            facts = functools.reduce(operator.add, (cls.of(name, some) for some in slices))
        return facts

    def __add__(self, other: Self) -> Self:
        keys = levels = values = None
        if self.values is not None and other.values is not None:
            values = _few_values(pa.chunked_array([self.values, other.values]))
        if self.keys is not None and other.keys is not None:
            keys = _keys(pa.chunked_array([*self.keys.chunks, *other.keys.chunks], self.keys.type))
        if self.levels is not None and other.levels is not None:
            both = pa.concat_tables([self.levels, other.levels]).group_by("values")
            levels = both.aggregate([("counts", "sum")]).rename_columns(["values", "counts"])
        return type(self)(
            type=self.type,
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            total=self.total + other.total,
            is_huge=self.is_huge or other.is_huge,
            levels=levels,
            keys=keys,
            values=values,
            low=min(self.low, other.low),
            high=max(self.high, other.high),
        )

    @property
    def mean(self) -> float:
        """Mean of the numbers that are not missing: their exact sum over their count."""
        return float(self.total / 2**_UNIT_BITS) / (self.rows - self.missing)

    @property
    def distinct(self) -> int | None:
        """Number of different values, missing ones aside; None if there are very many."""
        if self.levels is not None:
            return len(self.levels) - int(self.levels["values"].null_count)
        return None if self.values is None else len(self.values)

    @property
    def looks_like_a_key(self) -> bool:
        """Whether the column has a value in most rows, and a different one in each of them."""
        return self.keys is not None and 2 * len(self.keys) > self.rows > 1


def has_levels(kind: pa.DataType) -> bool:
    """Tell whether a type holds levels: text, booleans, or categories, be they numbers."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    categories = pa.types.is_dictionary(kind) and is_numeric(plain)
    return bool(categories or is_text(plain) or pa.types.is_boolean(plain))


def exact_sum(values: FloatArray) -> int:
    """Return the sum of finite doubles, exactly, in units of 2**-1126.

    >>> exact_sum(np.array([1e16, 1.0, -1e16])) == 2**1126
    True
    """
    total = 0
    for start in range(0, values.size, _BLOCK):
        fraction, exponent = np.frexp(values[start : start + _BLOCK])
        bits = np.ldexp(fraction, 53).astype(np.int64)  # all 53 of them
        shift = exponent + (_UNIT_BITS - 53)
        # By exponent, in two halves: each is a sum of doubles that stays exact.
        for half, place in ((bits >> 27, 27), (bits & (2**27 - 1), 0)):
            sums = np.bincount(shift, weights=half)
            for power in np.flatnonzero(sums):
                total += int(sums[power]) << (int(power) + place)
    return total


def _few_values(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the different values, missing ones aside, unless there are more than `MOST_VALUES`."""
    if pa.types.is_nested(column.type):
        return None
    # A first stretch settles it for most columns of measurements.
    for some in (column.slice(0, 4 * MOST_VALUES), column):
        values = pc.unique(some).drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.invert(pc.is_nan(values)))
        if len(values) > MOST_VALUES:
            return None
    return values


def _keys(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the values if they are integers or text and no two of them are equal."""
    if not (pa.types.is_integer(column.type) or is_text(column.type)):
        return None
    there = column.drop_null()
    return there if pc.count_distinct(there).as_py() == len(there) else None
