"""Learn a row-level model from tables of label sums whose cells share rows.

A table says, for each cell of some public columns, the sum of the labels of its rows: buyers by
shop, buyers by age and region. With rows whose labels nobody has, that is enough for a generalised
linear model with one coefficient per cell. Under the canonical link the labels enter its likelihood
through these very sums. With x_i the cells of row i, T the sums and b the cumulant function,

    sum_i b(x_i' theta) - T' theta

is least where ``T = sum_i x_i mean_i(theta)``: each cell's sum is met. Pair sums add up to single
ones, so that these equations are singular, but never contradict each other without noise.

Log odds (or log rates) that tables of one order add are N(0, 1.5^2) over rows, so a coefficient is
N(0, 1 / precision) with ``precision = tables of its order / 1.5^2``. Known noise of variance s^2 on
a sum, beside its sampling variance a (the information of its cell), leaves ``a^2 / (a + s^2)`` of
the information. The same estimate results if the precision is multiplied by ``1 + s^2 / a``, cell
by cell; for overlapping cells this is an approximation that keeps the problem convex and sparse. No
matrix of all pairs of cells is ever made.

References
----------
McCullagh and Nelder (1989), Generalized Linear Models, 2.2: sufficient statistics. Gilotte, Yahmed
and Rohde (2022), arXiv 2204.05157: learning from aggregated data of one and two columns.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse, stats
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError, NotConvergedWarning, StrategyError
from bagwise.families import find_family
from bagwise.rows.columns import find_column
from bagwise.rows.table import read_table

_FAMILIES = ("bernoulli", "poisson")
_USUAL_SD = 1.5  # of log odds and log rates, over rows
_STEPS = 1000
_ROUNDS = 2  # of fitting again with the information at the last fit, where there is noise


@dataclass(frozen=True)
class LabelTable:
    """Sums of labels by the cells of public columns.

    Parameters
    ----------
    cells : table
        A row for each cell: the columns that define it, `sum` (of labels) and, optionally, `count`
        (of rows) and `noise_sd`. Cells that are absent, because they were small, are no cells of
        zero: of them nothing is known. Where counts differ from those of the rows that are fitted,
        sums are scaled to the rows.
    columns : sequence of str
        Those that define a cell. Text is compared as text, and so are numbers without cuts.
    cuts : mapping from column to increasing numbers
        Published cut points of a number. Its column in `cells` holds the bin: 0 for values up to
        the first cut, 1 for those above it and up to the second, and so on.
    noise_sd : float
        Known standard deviation of the noise on each sum, unless `cells` has a column of it.

    Examples
    --------
    >>> cells = {"shop": ["a", "b"], "sum": [30.0, 70.0], "count": [100, 100]}
    >>> LabelTable(pa.table(cells), ["shop"]).columns
    ['shop']
    """

    cells: Any
    columns: Sequence[str]
    cuts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    noise_sd: float = 0.0


@dataclass(frozen=True)
class _Cells:
    """The cells of one table, and where their coefficients are.

    Attributes
    ----------
    columns : tuple of (name, cuts or None, sorted levels)
    keys : (c,) ints
        Sorted; a cell's levels as one number.
    first : int
        Position of the first cell among all coefficients.
    """

    columns: tuple[tuple[str, AnyArray | None, AnyArray], ...]
    keys: AnyArray
    first: int

    def of(self, rows: pa.Table, *, binned: bool = False) -> AnyArray:
        """Return the coefficient of each row's cell, -1 where nothing is known of it."""
        key, known = np.zeros(rows.num_rows, dtype=np.int64), np.ones(rows.num_rows, dtype=bool)
        for name, cuts, levels in self.columns:
            values = _values(rows, name, None if binned else cuts)
            at = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
            known &= levels[at] == values
            key = key * len(levels) + at
        if not self.keys.size:
            return np.full(rows.num_rows, -1)
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(known & (self.keys[at] == key), at + self.first, -1)


@dataclass(frozen=True, eq=False)
class TablesModel:
    """A row-level model with one coefficient for each cell of tables.

    Attributes
    ----------
    family : str
    coef : (cells,)
    intercept : float
    n_cells : int
    uncovered : tuple of int
        For each table the number of fitted rows whose cell was absent.
    converged : bool
    """

    family: str
    coef: FloatArray
    intercept: float
    uncovered: tuple[int, ...]
    converged: bool
    _cells: tuple[_Cells, ...] = field(repr=False)
    _spread: "_Spread" = field(repr=False)

    @property
    def n_cells(self) -> int:
        """Number of coefficients beside the intercept."""
        return len(self.coef)

    def predict(self, rows: Any) -> FloatArray:
        """Return the expected label of each row; absent cells add nothing."""
        eta = _design(self._cells, read_table(rows), self.n_cells) @ self.coef + self.intercept
        return find_family(self.family).mean(eta)

    def interval(self, rows: Any, *, level: float = 0.95) -> tuple[float, float]:
        """Return an interval of the mean expected label of some rows.

        It holds the sampling of labels, the known noise, and what is believed of coefficients; that
        answers share rows is accounted for. It covers on average over coefficients as they are
        believed to be, not each of them.
        """
        family = find_family(self.family)
        X = _design(self._cells, read_table(rows), self.n_cells)
        eta = X @ self.coef + self.intercept
        mean, slope = float(family.mean(eta).mean()), family.variance(eta) / len(eta)
        error = self._spread.deviation(np.append(X.T @ slope, slope.sum()))
        reach = float(stats.norm.ppf(0.5 + level / 2)) * error
        low, high = family.label_range
        return max(low, mean - reach), min(high, mean + reach)


@dataclass(frozen=True, eq=False)
class _Spread:
    """How uncertain coefficients are: H^-1 (A + S + Q P^-1 Q) H^-1 with H = A + Q.

    A is the information of the rows, S the variance of the noise, P the precision of coefficients
    as they are believed to be, and Q that which the fit used. All but A are diagonal.
    """

    X: sparse.csr_array
    information: FloatArray
    noise: FloatArray
    believed: FloatArray
    used: FloatArray

    def deviation(self, direction: FloatArray) -> float:
        """Return the standard deviation of the coefficients along a direction."""
        held, bias = np.append(self.used, 0.0), np.append(self.used**2 / self.believed, 0.0)
        inner = self.X.T @ self.information
        diagonal = np.append(inner, self.information.sum()) + held
        size = len(held)
        form = LinearOperator((size, size), matvec=lambda v: self._apply(v) + held * v)
        inverse = LinearOperator((size, size), matvec=lambda v: v / diagonal)
        solved, _ = cg(form, direction, rtol=1e-6, maxiter=5 * _STEPS, M=inverse)
        noise = np.append(self.noise, 0.0)
        variance = solved @ self._apply(solved) + solved @ ((noise + bias) * solved)
        return float(np.sqrt(variance))

    def _apply(self, v: FloatArray) -> FloatArray:
        weighted = self.information * (self.X @ v[:-1] + v[-1])
        return np.append(self.X.T @ weighted, weighted.sum())


def fit_tables(
    rows: Any, tables: Sequence[LabelTable], *, family: str = "bernoulli"
) -> TablesModel:
    """Fit a row-level model to rows without labels and tables of label sums.

    Parameters
    ----------
    rows : table
        With all columns of the tables. No label is read.
    tables : sequence of LabelTable
        They may share rows: single columns and pairs of them, for example.
    family : {"bernoulli", "poisson"}

    Examples
    --------
    >>> rows = pa.table({"shop": ["a"] * 1000 + ["b"] * 1000})
    >>> cells = {"shop": ["a", "b"], "sum": [300.0, 700.0]}
    >>> model = fit_tables(rows, [LabelTable(pa.table(cells), ["shop"])])
    >>> model.predict(rows)[[0, -1]].round(2)
    array([0.3, 0.7])
    """
    kind = find_family(family)
    if kind.name not in _FAMILIES:
        raise StrategyError(f"tables of sums are for families {', '.join(_FAMILIES)}.")
    if not tables:
        raise StrategyError("there is no table to learn from.")
    table = read_table(rows)

    # 1. Find the cell of each row in each table, and each cell's sum for these rows.
    read: list[tuple[_Cells, FloatArray, FloatArray]] = []
    for each in tables:
        read.append(_read_cells(each, table, first=sum(len(sums) for _, sums, _ in read)))
    cells = tuple(found for found, _, _ in read)
    T, noise = (np.concatenate([entry[i] for entry in read]) for i in (1, 2))
    orders = Counter(len(each.columns) for each in tables)
    sizes = [orders[len(found.columns)] for found in cells]
    believed = np.repeat(sizes, [len(sums) for _, sums, _ in read]) / _USUAL_SD**2
    X = _design(cells, table, len(T))
    across, total = sparse.csr_array(X.T), _total(read, X)

    # 2. Solve the moment equations; noise counts by the information that cells have at the fit.
    mean = kind.interior(total / table.num_rows)
    beta = np.append(np.zeros(len(T)), float(kind.predictor(np.array(mean))))
    for _ in range(_ROUNDS if noise.any() else 1):
        inner = np.maximum(across @ kind.variance(X @ beta[:-1] + beta[-1]), 1e-9)
        used = believed * (1 + noise / inner)
        scale = 1 / np.sqrt(np.append(inner + used, inner.max()))  # cells differ in size by far

        def loss(
            scaled: FloatArray, scale: FloatArray = scale, used: FloatArray = used
        ) -> tuple[float, FloatArray]:
            at = scaled * scale
            eta = X @ at[:-1] + at[-1]
            expected, held = kind.mean(eta), used * at[:-1]
            value = np.sum(kind.cumulant(eta)) - T @ at[:-1] - total * at[-1] + held @ at[:-1] / 2
            gradient = np.append(across @ expected - T + held, expected.sum() - total)
            return float(value), gradient * scale

        options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS}
        found = minimize(loss, beta / scale, jac=True, method="L-BFGS-B", options=options)
        beta = found.x * scale
    if not found.success:
        warnings.warn(
            "the fit to tables of sums did not converge.", NotConvergedWarning, stacklevel=2
        )
    information = kind.variance(X @ beta[:-1] + beta[-1])
    return TablesModel(
        family=kind.name,
        coef=beta[:-1],
        intercept=float(beta[-1]),
        uncovered=tuple(int(np.sum(each.of(table) < 0)) for each in cells),
        converged=bool(found.success),
        _cells=cells,
        _spread=_Spread(X, information, noise, believed, used),
    )


def _values(rows: pa.Table, name: str, cuts: AnyArray | None) -> AnyArray:
    """Return a column as text, or as numbers of bins written as text."""
    column = find_column(rows, name, role="column of a table of sums")
    if cuts is None:
        return np.asarray(pc.fill_null(column.cast(pa.string()), "")).astype(str)
    numbers = np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan), dtype=np.float64)
    return np.where(np.isnan(numbers), "", np.searchsorted(cuts, numbers).astype(str))


def _read_cells(
    table: LabelTable, rows: pa.Table, *, first: int
) -> tuple[_Cells, FloatArray, FloatArray]:
    """Return the cells that some row is in, their sums for these rows, and the noise's variance."""
    stated = read_table(table.cells)
    columns = []
    for name in table.columns:
        cuts = np.asarray(table.cuts[name], dtype=np.float64) if name in table.cuts else None
        if cuts is not None and not (np.diff(cuts) > 0).all():
            raise StrategyError(f"the cut points of {name!r} must increase.")
        columns.append((name, cuts, np.unique(_values(rows, name, cuts))))

    def numbers(name: str) -> FloatArray:
        column = find_column(stated, name, role="column of a table of sums")
        return np.asarray(column.cast(pa.float64()), dtype=np.float64)

    sums = numbers("sum")
    noise = np.full(len(sums), float(table.noise_sd))
    if "noise_sd" in stated.column_names:
        noise = numbers("noise_sd")
    if not (np.isfinite(sums).all() and np.isfinite(noise).all() and (noise >= 0).all()):
        raise LabelError("sums of a table must be numbers, and noise_sd not negative.")

    # Every combination of levels is a cell at first; then those that are stated and have rows stay.
    widths = [len(levels) for *_, levels in columns]
    every = _Cells(tuple(columns), np.arange(int(np.prod(widths))), 0)
    stated_at, counts = every.of(stated, binned=True), np.bincount(every.of(rows))
    used = (stated_at >= 0) & (np.append(counts, 0)[np.minimum(stated_at, len(counts))] > 0)
    keys, where, times = np.unique(stated_at[used], return_index=True, return_counts=True)
    if (times > 1).any():
        raise LabelError(f"a table by {', '.join(table.columns)} states a cell twice.")
    sums, noise, ratio = sums[used][where], noise[used][where], np.ones(len(keys))
    if "count" in stated.column_names:
        ratio = counts[keys] / np.maximum(numbers("count")[used][where], 1.0)
    return _Cells(tuple(columns), keys, first), sums * ratio, (noise * ratio) ** 2


def _design(cells: Sequence[_Cells], rows: pa.Table, width: int) -> sparse.csr_array:
    """Return which cells each row is in, (rows, cells)."""
    at = np.stack([each.of(rows) for each in cells], axis=1)
    known = at >= 0
    starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    entries = (np.ones(int(starts[-1])), at[known], starts)
    return sparse.csr_array(entries, shape=(rows.num_rows, width))


def _total(read: Sequence[tuple[_Cells, FloatArray, FloatArray]], X: sparse.csr_array) -> float:
    """Return the sum of all labels, by the tables that miss the fewest rows."""
    counts = np.asarray(X.sum(axis=0)).ravel()
    covered = [counts[c.first : c.first + len(sums)].sum() for c, sums, _ in read]
    most = max(covered)
    if most == 0:
        raise LabelError("no row is in a cell of the tables.")
    totals = np.array([sums.sum() for _, sums, _ in read])[np.equal(covered, most)]
    doubt = np.array([noise.sum() for *_, noise in read])[np.equal(covered, most)]
    return float(np.average(totals, weights=1 / (doubt + 1e-9)) * X.shape[0] / most)
