"""Encode mixed columns as a numeric matrix, by a recipe in plain JSON.

Numbers keep their own units (strategies that need a scale bring their own). Text, booleans and
categories become one column per level, without the most frequent level; beyond `max_levels` the
rare ones share one column. Missing values follow a stated policy. The recipe holds only facts
about the features, which are public, so it may leave with a release; a learner replays it.
"""

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import (
    ColumnError,
    Refusals,
    ReleaseError,
    TextNumbersWarning,
    UnseenLevelWarning,
    check_name,
)
from bagwise.files.records import Record, read_record, to_plain
from bagwise.rows.columns import (
    as_float,
    as_text,
    find_column,
    is_numeric,
)
from bagwise.rows.summary import LARGEST, ColumnSummary
from bagwise.rows.table import read_table

NULLS: tuple[Literal["indicator", "error"], ...] = ("indicator", "error")

DEFAULT_MAX_LEVELS = 32
MANY_LEVELS = 256  # columns for levels, from which on X is mostly zeros
_ROWS_IN_CACHE = 4096
_TOGETHER = 16  # columns that are read before they are written: each may be a copy
_MISSING = "(missing)"
_POOLED = "(other)"

_PLAIN = r"[-+]?\d+([.,]\d+)?"
_GROUPED = r"[-+]?\d{1,3}([ ,.'\u2019\u00a0\u202f]\d{3})+([.,]\d+)?"
_MARKED = re.compile(
    rf"({_PLAIN}|{_GROUPED})\s*[%€$£¥]|[€$£¥]\s*({_PLAIN}|{_GROUPED})|{_GROUPED}"
    r"|\d{1,4}(?P<mark>[-/.])\d{1,2}(?P=mark)\d{1,4}"  # a date
)
_NUMBER = re.compile(_PLAIN)
_NEARLY_ALL = 0.9


class NumericColumn(Record, tag="numeric", tag_field="kind", kw_only=False, frozen=True):
    """A column of numbers; missing ones become `fill`, and are marked in a column of their own.

    A column without missing values has no fill: its mean would tell about every row, in bits that
    nobody needs.
    """

    name: str
    fill: float | None

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of X that this column becomes."""
        return [self.name] if self.fill is None else [self.name, f"{self.name}={_MISSING}"]

    def read(self, column: pa.ChunkedArray) -> list[AnyArray]:
        """Return the columns of X that this column becomes, each by itself."""
        if not (is_numeric(column.type) or pa.types.is_null(column.type)):
            raise ColumnError(
                f"column {self.name!r} was numeric in the release, but here it is {column.type}."
            )
        values = pc.cast(column, pa.float64(), safe=False).to_numpy()  # not a copy, if it can be
        if np.any(values > LARGEST) or np.any(values < -LARGEST):
            raise _has_huge_values(self.name)
        missing = np.isnan(values)
        if self.fill is not None:
            return [np.where(missing, self.fill, values), missing]
        if missing.any():
            raise ColumnError(
                f"column {self.name!r} is missing in {int(missing.sum())} row(s), but it was never "
                "missing in the release, so nothing is known about missing values. Fill them or "
                "drop those rows."
            )
        return [values]

    def to_sparse(self, column: pa.ChunkedArray) -> sparse.csr_array:
        """Return the output of `read` as a sparse matrix."""
        return sparse.csr_array(np.column_stack(self.read(column)).astype(np.float64))


class LevelsColumn(Record, tag="levels", tag_field="kind", kw_only=False, frozen=True):
    """A column of text, booleans or categories; `reference` is the level that gets no column."""

    name: str
    reference: str | None
    levels: tuple[str | None, ...]
    pooled: bool

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of X that this column becomes."""
        shown = [_MISSING if level is None else level for level in self.levels]
        return [f"{self.name}={level}" for level in [*shown, *([_POOLED] * self.pooled)]]

    def write(self, column: pa.ChunkedArray, out: FloatArray) -> None:
        """Fill ``out``, (n, len(outputs)); levels never seen go with the pooled ones."""
        position = self._positions(column)
        out[:] = 0.0
        rows = np.flatnonzero(position >= 0)
        out[rows, position[rows]] = 1.0

    def to_sparse(self, column: pa.ChunkedArray) -> sparse.csr_array:
        """Return the output of `write` as a sparse matrix: at most one entry in a row."""
        position = self._positions(column)
        here = position >= 0
        starts = np.concatenate([[0], np.cumsum(here)])
        shape = (position.size, len(self.outputs))
        return sparse.csr_array((np.ones(starts[-1]), position[here], starts), shape=shape)

    def _positions(self, column: pa.ChunkedArray) -> IntArray:
        """Return the output that is 1 in each row; -1 for the reference level."""
        known = pa.array([self.reference, *self.levels], type=pa.string())
        codes = pc.fill_null(
            pc.index_in(as_text(column, name=self.name), value_set=known), -1
        ).to_numpy()
        unseen = codes < 0
        if unseen.any() and not self.pooled:
            warnings.warn(
                f"column {self.name!r} has {int(unseen.sum())} row(s) with a level that the "
                "encoder has not seen; they are treated as its most frequent level.",
                UnseenLevelWarning,
                stacklevel=2,
            )
        pooled = len(self.levels) if self.pooled else -1
        return np.where(unseen, pooled, codes - 1).astype(np.int64)


Column = NumericColumn | LevelsColumn


class Encoder(Record, kw_only=False, frozen=True):
    """The recipe from a table's columns to X.

    >>> import pyarrow as pa
    >>> table = pa.table({"age": [31, 45, 45], "city": ["Bonn", "Pune", "Bonn"]})
    >>> encoder = Encoder.for_table(table, ["age", "city"])
    >>> encoder.feature_names
    ['age', 'city=Pune']
    >>> Encoder.from_json(encoder.to_json()).transform(table)
    array([[31., 0.],
           [45., 1.],
           [45., 0.]])
    """

    columns: tuple[Column, ...]
    nulls: Literal["indicator", "error"]

    @classmethod
    def for_table(
        cls,
        table: pa.Table,
        names: Sequence[str],
        *,
        named: Collection[str] = (),
        max_levels: int = DEFAULT_MAX_LEVELS,
        nulls: str = "indicator",
    ) -> Self:
        """Write the recipe for columns `names`; `named` are those the user asked for by name."""
        facts = {
            name: ColumnSummary.of_all(name, find_column(table, name, role="feature"))
            for name in names
        }
        return cls.from_summaries(facts, named=named, max_levels=max_levels, nulls=nulls)

    @classmethod
    def from_summaries(
        cls,
        facts: Mapping[str, ColumnSummary],
        *,
        named: Collection[str] = (),
        max_levels: int = DEFAULT_MAX_LEVELS,
        nulls: str = "indicator",
    ) -> Self:
        """Write the recipe from facts about columns, which may come from parts of a table."""
        check_name("nulls", nulls, NULLS, ColumnError)
        policy = NULLS[NULLS.index(nulls)]
        if max_levels < 1:
            raise ColumnError(f"max_levels must be at least 1, got {max_levels}.")
        columns, wrong = [], Refusals()
        for name, fact in facts.items():
            with wrong:
                if name not in named and fact.looks_like_a_key:
                    raise like_an_id(name)
                columns.append(_describe(name, fact, max_levels=max_levels, nulls=nulls))
        wrong.raise_all()
        encoder = cls(tuple(columns), policy)
        outputs = encoder.feature_names
        if doubled := sorted({name for name in outputs if outputs.count(name) > 1}):
            raise ColumnError(
                f"two features would both be called {doubled[0]!r}. Rename the column or the "
                "category."
            )
        return encoder

    @property
    def inputs(self) -> list[str]:
        """Names of the table columns that the recipe reads."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        return [output for column in self.columns for output in column.outputs]

    def transform(self, table: Any) -> FloatArray:
        """Return X, (n, d), for a frame or file that has the columns of the recipe."""
        table = _as_table(table)
        X = np.empty((table.num_rows, len(self.feature_names)))
        start, waiting = 0, dict[int, AnyArray]()
        for recipe in self.columns:
            stop, column = start + len(recipe.outputs), self._find(table, recipe)
            if isinstance(recipe, LevelsColumn):
                recipe.write(column, X[:, start:stop])
            else:
                waiting.update(enumerate(recipe.read(column), start))
            if len(waiting) >= _TOGETHER:
                _write_columns(X, waiting)
            start = stop
        _write_columns(X, waiting)
        return X

    def transform_sparse(self, table: Any) -> sparse.csr_array:
        """Return X as a sparse matrix, for tables whose text columns have very many levels."""
        table = _as_table(table)
        parts = [recipe.to_sparse(self._find(table, recipe)) for recipe in self.columns]
        if not parts:
            return sparse.csr_array((table.num_rows, 0))
        return sparse.csr_array(sparse.hstack(parts, format="csr"))

    @property
    def is_mostly_zeros(self) -> bool:
        """Whether X has so many columns for levels that it should not be made dense."""
        levels = sum(len(c.outputs) for c in self.columns if isinstance(c, LevelsColumn))
        return levels >= MANY_LEVELS

    def _find(self, table: pa.Table, recipe: Column) -> pa.ChunkedArray:
        column = find_column(table, recipe.name, role="feature")
        if self.nulls == "error":
            floating = pa.types.is_floating(column.type)
            if column.null_count or (floating and np.isnan(as_float(column)).any()):
                raise _has_gaps(recipe.name)
        return column

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain values for a JSON file."""
        return to_plain(self)

    @classmethod
    def from_json(cls, spec: Mapping[str, Any]) -> Self:
        """Read a recipe back."""
        return read_record(cls, spec, error=ReleaseError, what="the encoder recipe")


def _as_table(source: Any) -> pa.Table:
    """Return a frame or file as a table; a table, or rows of an engine, unchanged."""
    return source if hasattr(source, "num_rows") else read_table(source)


def _write_columns(X: FloatArray, columns: dict[int, AnyArray]) -> None:
    """Write columns to their places, some rows at a time: rows of X are in the cache then."""
    for first in range(0, X.shape[0], _ROWS_IN_CACHE):
        rows = slice(first, first + _ROWS_IN_CACHE)
        for place, values in columns.items():
            X[rows, place] = values[rows]
    columns.clear()


def _describe(name: str, fact: ColumnSummary, *, max_levels: int, nulls: str) -> Column:
    kind = fact.type.value_type if pa.types.is_dictionary(fact.type) else fact.type
    if fact.missing == fact.rows:
        raise ColumnError(f"feature {name!r} has no values at all. Exclude it.")
    if nulls == "error" and fact.missing:
        raise _has_gaps(name)
    if fact.is_huge:
        raise _has_huge_values(name)
    if is_numeric(fact.type):
        # The exact sum, rounded once: the order of the rows cannot show in its last bits.
        return NumericColumn(name, fill=fact.mean if fact.missing else None)
    if fact.levels is not None:
        return _describe_levels(name, fact.levels.to_pylist(), max_levels)
    if pa.types.is_temporal(kind):
        raise ColumnError(
            f"feature {name!r} is of type {kind}: a moment in time has no natural unit. Replace it "
            "with meaningful numbers, such as age in years, month or weekday, or exclude it."
        )
    raise ColumnError(f"feature {name!r} is of type {kind}, which cannot be encoded. Exclude it.")


def _describe_levels(
    name: str, counts: Sequence[Mapping[str, Any]], max_levels: int
) -> LevelsColumn:
    # Most frequent first; ties in alphabetical order, missing last, so that the recipe is unique.
    ordered = sorted(counts, key=lambda c: (-c["counts"], c["values"] is None, c["values"] or ""))
    levels = [entry["values"] for entry in ordered]
    if len(levels) > max_levels and _are_numbers_with_marks(levels[:max_levels]):
        warnings.warn(
            f"column {name!r} is text, though its cells look like numbers with marks (such as % or "
            f"between thousands) or like dates: only the {max_levels} most frequent ones are told "
            "apart. Make it plain numbers, or leave it out (--exclude).",
            TextNumbersWarning,
            stacklevel=2,
        )
    return LevelsColumn(
        name,
        reference=levels[0],
        levels=tuple(levels[1:max_levels]),
        pooled=len(levels) > max_levels,
    )


def _are_numbers_with_marks(levels: Sequence[str | None]) -> bool:
    """Distinguish numbers that a CSV reader takes for text from names and from codes of digits."""
    told = [level.strip() for level in levels if level is not None]
    marked = sum(bool(_MARKED.fullmatch(level)) for level in told)
    alike = sum(bool(_MARKED.fullmatch(level) or _NUMBER.fullmatch(level)) for level in told)
    return marked > 0 and alike >= _NEARLY_ALL * len(told)


def like_an_id(name: str) -> ColumnError:
    """Return the message about a column whose values are all different."""
    typed = quote(name)
    return ColumnError(
        f"column {name!r} is different in every row, like an id. Drop it with exclude=[{name!r}] "
        f"(--exclude {typed}), publish it as a key with id={name!r} (--id {typed}), or name it in "
        "features if it is a real feature."
    )


def _has_gaps(name: str) -> ColumnError:
    return ColumnError(
        f"feature {name!r} has missing values and nulls='error'. "
        "Fill them, or use nulls='indicator' (--nulls indicator)."
    )


def _has_huge_values(name: str) -> ColumnError:
    return ColumnError(f"feature {name!r} holds infinite or huge values. Replace or rescale them.")
