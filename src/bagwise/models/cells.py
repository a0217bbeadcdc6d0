"""Models with one coefficient for each cell of tables whose cells share rows."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from msgspec import Meta
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import ModelFileError, StrategyError
from bagwise.families import find_family
from bagwise.files.records import Record, to_plain
from bagwise.models.row_model import LinearFile, RowModel
from bagwise.rows.columns import find_column
from bagwise.rows.table import read_table

UNCERTIFIED = "no certificate: the privacy of these label sums is up to whoever made them"
_STEPS, CLOSE = 5000, 1e-6  # of a conjugate gradient
_MOST_CELLS = 2**62  # a key is one whole number


class CellColumn(Record, frozen=True):
    """A column that cells are made of.

    Attributes
    ----------
    cuts : (k,) floats or None
        Published cut points of a number; None for text.
    levels : tuple of str
        Sorted; of a number the bins that it falls into.
    """

    name: str
    cuts: tuple[float, ...] | None
    levels: tuple[str, ...]

    def values(self, rows: pa.Table, *, binned: bool = False) -> AnyArray:
        """Return the column as text; numbers as their bins, unless they are bins already."""
        column = find_column(rows, self.name, role="column of a table of sums")
        if self.cuts is None or binned:
            return np.asarray(pc.fill_null(column.cast(pa.string()), "")).astype(str)
        numbers = np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan), dtype=np.float64)
        return np.where(np.isnan(numbers), "", np.searchsorted(self.cuts, numbers).astype(str))


class Cells(Record, frozen=True):
    """The cells of one table.

    Attributes
    ----------
    keys : (c,) ints
        Sorted; the positions of a cell's levels as one number.
    """

    columns: tuple[CellColumn, ...]
    keys: tuple[int, ...]

    @property
    def widths(self) -> list[int]:
        """How many levels each column has."""
        return [len(column.levels) for column in self.columns]

    def places(self, rows: pa.Table, *, binned: bool = False) -> AnyArray:
        """Return the cell of each row, -1 where nothing is known of it."""
        key, known = np.zeros(rows.num_rows, dtype=np.int64), np.ones(rows.num_rows, dtype=bool)
        for column in self.columns:
            levels, values = np.array(column.levels), column.values(rows, binned=binned)
            at = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
            known &= levels[at] == values
            key = key * len(levels) + at
        if not self.keys:
            return np.full(rows.num_rows, -1)
        keys = np.array(self.keys)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        return np.where(known & (keys[at] == key), at, -1)

    def names(self) -> list[str]:
        """Return the names of the cells."""
        places = np.unravel_index(np.array(self.keys, dtype=np.int64), self.widths)
        parts = [
            [f"{column.name}={'' if column.cuts is None else 'bin '}{column.levels[i]}" for i in at]
            for column, at in zip(self.columns, places, strict=True)
        ]
        return [", ".join(of_cell) for of_cell in zip(*parts, strict=True)]

    def is_sound(self) -> bool:
        """Whether levels, cuts and keys are sorted, and keys are of cells."""
        ordered: list[tuple[Any, ...]] = [self.keys]
        ordered += [part for column in self.columns for part in (column.levels, column.cuts or ())]
        return (
            0 < math.prod(self.widths) < _MOST_CELLS
            and bool(self.columns)
            and all(list(values) == sorted(set(values)) for values in ordered)
            and all(0 <= key < math.prod(self.widths) for key in self.keys)
        )


class CellEncoder(Record, frozen=True):
    """The recipe from a table's columns to X, which has a column of ones for each cell."""

    tables: tuple[Cells, ...]

    @property
    def inputs(self) -> list[str]:
        """Names of the table columns that the recipe reads."""
        columns = (column.name for cells in self.tables for column in cells.columns)
        return list(dict.fromkeys(columns))

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        return [name for cells in self.tables for name in cells.names()]

    def transform(self, table: Any) -> sparse.csr_array:
        """Return X, sparse, for a frame or file that has the columns of the recipe."""
        rows = table if isinstance(table, pa.Table) else read_table(table)
        firsts = np.cumsum([0, *(len(cells.keys) for cells in self.tables)])
        at = np.stack([cells.places(rows) for cells in self.tables], axis=1)
        known, at = at >= 0, at + firsts[:-1]
        starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        entries = (np.ones(int(starts[-1])), at[known], starts)
        return sparse.csr_array(entries, shape=(rows.num_rows, int(firsts[-1])))

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain values for a JSON file."""
        return to_plain(self)


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums of labels near a fit: T = A beta + e with var e = A + S and beta ~ N(0, V).

    A is the information matrix of the rows, S the variance of the noise and V what is believed of
    coefficients; S and V are diagonal.

    Attributes
    ----------
    X : (n, c) sparse
        The cells of the fitted rows.
    information : (n,)
        Variances of labels at the fit.
    noise, believed : (c,)
        The diagonals of S and V.
    """

    X: sparse.csr_array
    information: FloatArray
    noise: FloatArray
    believed: FloatArray

    @cached_property
    def across(self) -> sparse.csr_array:
        """X transposed, row by row: twice as fast."""
        return sparse.csr_array(self.X.T)

    def apply(self, beta: FloatArray) -> FloatArray:
        """Return A beta."""
        return np.asarray(self.across @ (self.information * (self.X @ beta)))

    def solve(
        self, sums: FloatArray, start: FloatArray | None = None, *, close: float = CLOSE
    ) -> FloatArray:
        """Return (A V A + A + S)^-1 times sums; without noise, (A + V^-1)^-1 times them."""
        V, noisy = self.believed, bool(self.noise.any())
        inner, own = self.across @ self.information, self.noise if noisy else 1 / V
        about = own + inner + (inner**2 * V if noisy else 0.0)

        def form(v: FloatArray) -> FloatArray:
            inside = self.apply(v)
            return inside + own * v + (self.apply(V * inside) if noisy else 0.0)

        size = (len(V), len(V))
        back = LinearOperator(size, matvec=lambda v: v / about)
        found = LinearOperator(size, matvec=form)
        solved, _ = cg(found, sums, x0=start, rtol=close, maxiter=_STEPS, M=back)
        return np.asarray(solved)

    def coefficients(self, solved: FloatArray) -> FloatArray:
        """Return the best linear estimate of coefficients, given what `solve` returns."""
        return self.believed * self.apply(solved) if self.noise.any() else solved

    def deviation(self, direction: FloatArray) -> float:
        """Return the standard deviation of the coefficients along a direction, given the sums."""
        believed = self.believed * direction
        left = believed - self.coefficients(self.solve(self.apply(believed)))
        return math.sqrt(max(0.0, float(direction @ left)))


class _TablesFile(LinearFile[Literal["bagwise-tables/2"], CellEncoder], frozen=True):
    """The fields of a file of such a model: those of every linear model, and of its cells."""

    noise: list[Annotated[float, Meta(ge=0)]]
    believed: list[Annotated[float, Meta(gt=0)]]
    sha256: str


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TablesModel(RowModel):
    """A row-level model with one coefficient for each cell of tables.

    It predicts as `RowModel` does. Cells that were absent add nothing.

    Attributes
    ----------
    family, coef, intercept, label, encoder, trained_on
        As in `RowModel`.
    noise, believed : (c,)
        Variances of the known noise on each cell's sum, and of its coefficient as it is believed to
        be.
    uncovered : tuple of int
        For each table the number of fitted rows whose cell was absent; not kept in a file.
    fitted : (n, c) sparse or None
        The cells of the fitted rows; not kept in a file.
    """

    encoder: CellEncoder
    noise: FloatArray
    believed: FloatArray
    uncovered: tuple[int, ...] = ()
    fitted: sparse.csr_array | None = None

    SCHEMA: ClassVar[str] = "bagwise-tables/2"
    FILE: ClassVar[Any] = _TablesFile
    WHAT: ClassVar[str] = "a model of label sums"

    def interval(
        self, rows: Any, *, level: float = 0.95, fitted: Any = None
    ) -> tuple[float, float]:
        """Return an interval of the mean expected label of some rows.

        It holds the sampling of labels, the known noise, and what is believed of coefficients; that
        answers share rows is accounted for. It covers on average over coefficients as they are
        believed to be, not each of them. A model from a file needs the rows that it was fitted to,
        without their labels, as `fitted`.
        """
        known = self.fitted if fitted is None else self.encoder.transform(fitted)
        if known is None or known.shape[0] != self.trained_on.n_rows:
            raise StrategyError(
                "intervals of a model from a file need all rows that it was fitted to: interval("
                "rows, fitted=...)."
            )
        family, X = find_family(self.family), self.encoder.transform(rows)
        information = family.variance(known @ self.coef + self.intercept)
        sums = NoisySums(known, information, self.noise, self.believed)
        eta = X @ self.coef + self.intercept
        mean, slope = float(family.mean(eta).mean()), family.variance(eta) / len(eta)
        error = sums.deviation(X.T @ slope)
        reach = float(scipy.stats.norm.ppf(0.5 + level / 2)) * error
        low, high = family.label_range
        return max(low, mean - reach), min(high, mean + reach)

    @property
    def promise(self) -> str:
        """The promise about labels: none that this package could know of."""
        return UNCERTIFIED

    def _own_fields(self) -> dict[str, Any]:
        cells = {"noise": self.noise.tolist(), "believed": self.believed.tolist()}
        return {**super()._own_fields(), **cells}

    @classmethod
    def _from_file(cls, file: LinearFile[Any, Any], common: dict[str, Any]) -> Self:
        if not file.encoder.tables or not all(cells.is_sound() for cells in file.encoder.tables):
            raise ModelFileError("the cells of the model are malformed.")
        cells = {name: np.array(getattr(file, name)) for name in ("noise", "believed")}
        if any(values.shape != (len(file.coef),) for values in cells.values()):
            raise ModelFileError("the number of cells does not fit the coefficients.")
        return super()._from_file(file, {**common, **cells})
