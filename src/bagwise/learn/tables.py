"""Learn a row-level model from tables of label sums whose cells share rows.

A table says, for each cell of some public columns, the sum of the labels of its rows: buyers by
shop, buyers by age and region. With rows whose labels nobody has, that is enough for a generalised
linear model with one coefficient per cell. Under the canonical link the labels enter its likelihood
through these very sums. With x_i the cells of row i, T the sums and b the cumulant function,

    sum_i b(x_i' theta) - T' theta

is least where ``T = sum_i x_i mean_i(theta)``: each cell's sum is met. Pair sums add up to single
ones, so that these equations are singular, but never contradict each other without noise.

Log odds (or log rates) that tables of single columns add are N(0, 1.5^2) over rows, so that a
coefficient is N(0, 1.5^2 / number of these tables). For pairs the variance is a quarter of that,
and so on: effects of more columns are usually smaller (Wu and Hamada 2000, effect hierarchy). Near
a fit the sums are linear in coefficients, with the sampling of labels and the known noise on top,
and the best linear estimate of coefficients follows. It knows that cells share rows, so that each
of many noisy tables says something of the others' cells. Fits go from one such estimate to the
next; without noise they end where the equations above, with the prior, are solved. No matrix of all
pairs of cells is ever made.

References
----------
McCullagh and Nelder (1989), Generalized Linear Models, 2.2: sufficient statistics. Robinson (1991),
Statistical Science 6: best linear estimates of random effects. Gilotte, Yahmed and Rohde (2022),
arXiv 2204.05157: learning from aggregated data of one and two columns.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from bagwise._types import FloatArray
from bagwise.errors import LabelError, NotConvergedWarning, StrategyError
from bagwise.families import find_family
from bagwise.models.cells import CLOSE, CellColumn, CellEncoder, Cells, NoisySums, TablesModel
from bagwise.models.model import TrainedOn
from bagwise.rows.columns import find_column
from bagwise.rows.table import read_table

_FAMILIES = ("bernoulli", "poisson")
_USUAL_SD = 1.5  # of log odds and log rates, over rows
_FALL = 4.0  # how much less variance each further column of a cell adds
_ROUNDS, _LESS = 100, 0.9  # turns of a fit, and how much smaller a step must be than the last
_SHORTEST = 1e-6  # part of a step
_NEARLY = 1e-3  # of the sums, for each unit of log odds
_FAR, _STILL = 3.0, 1e-4  # changes of log odds or log rates: the largest, and one for nobody


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


def fit_tables(
    rows: Any, tables: Sequence[LabelTable], *, family: str = "bernoulli", label: str = "label"
) -> TablesModel:
    """Fit a row-level model to rows without labels and tables of label sums.

    Parameters
    ----------
    rows : table
        With all columns of the tables. No label is read.
    tables : sequence of LabelTable
        They may share rows: single columns and pairs of them, for example.
    family : {"bernoulli", "poisson"}
    label : str
        What the labels are called, for the model file.

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
    read = [_read_cells(each, table) for each in tables]
    encoder = CellEncoder(tables=tuple(cells for cells, _, _ in read))
    T, noise = (np.concatenate([entry[i] for entry in read]) for i in (1, 2))
    X = encoder.transform(table)
    if X.nnz == 0:
        raise LabelError("no row is in a cell of the tables.")
    orders = np.array([len(cells.columns) for cells in encoder.tables])
    shared = np.bincount(orders)[orders] * _FALL ** (orders - 1)
    believed = np.repeat(_USUAL_SD**2 / shared, [len(cells.keys) for cells in encoder.tables])

    # 2. From the same mean for all rows, go where the sums near the fit point, until nothing moves.
    intercept = float(kind.predictor(np.array(kind.interior(T.sum() / X.sum()))))
    beta, eta, converged = np.zeros(len(T)), np.full(table.num_rows, intercept), False
    far, damped, solved = np.inf, 1.0, np.zeros(len(T))

    def loss(beta: FloatArray, eta: FloatArray) -> float:
        held = beta @ (beta / believed) / 2
        return float(np.sum(kind.cumulant(eta)) - T @ beta + held)

    for _ in range(_ROUNDS):
        near = NoisySums(X, kind.variance(eta), noise, believed)
        close = max(CLOSE, min(_FAR, far) * _NEARLY)  # far from the fit, steps may be rough
        solved = near.solve(
            T - near.across @ kind.mean(eta) + near.apply(beta), solved, close=close
        )
        step = near.coefficients(solved) - beta
        change = X @ step
        last, far = far, float(np.abs(change).max())
        damped = damped if far < _LESS * last or not noise.any() else damped / 2
        length = damped * _FAR / max(far, _FAR)
        while not noise.any() and far > _STILL and length > _SHORTEST:
            if loss(beta + length * step, eta + length * change) <= loss(beta, eta):
                break
            length /= 2
        beta, eta = beta + length * step, eta + length * change
        converged = far < _STILL
        if converged:
            break
    if not converged:
        warnings.warn(
            "the fit to tables of sums did not converge.", NotConvergedWarning, stacklevel=2
        )
    return TablesModel(
        family=kind.name,
        loss="sums",
        label=label,
        encoder=encoder,
        trained_on=TrainedOn(n_rows=table.num_rows, converged=converged),
        coef=beta,
        intercept=intercept,
        note="No standard errors of single cells: `interval` has those of means over rows.",
        noise=noise,
        believed=believed,
        uncovered=tuple(int(np.sum(cells.places(table) < 0)) for cells in encoder.tables),
        fitted=X,
    )


def _read_cells(table: LabelTable, rows: pa.Table) -> tuple[Cells, FloatArray, FloatArray]:
    """Return the cells that some row is in, their sums for these rows, and the noise's variance."""
    stated = read_table(table.cells)
    columns = []
    for name in table.columns:
        cuts = tuple(map(float, table.cuts[name])) if name in table.cuts else None
        if cuts is not None and not (np.diff(cuts) > 0).all():
            raise StrategyError(f"the cut points of {name!r} must increase.")
        column = CellColumn(name=name, cuts=cuts, levels=())
        levels = np.unique(column.values(rows)).tolist()
        columns.append(replace(column, levels=tuple(levels)))

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
    cells = Cells(columns=tuple(columns), keys=())
    every = replace(cells, keys=tuple(range(int(np.prod(cells.widths)))))
    stated_at, counts = every.places(stated, binned=True), np.bincount(every.places(rows))
    used = (stated_at >= 0) & (np.append(counts, 0)[np.minimum(stated_at, len(counts))] > 0)
    keys, where, times = np.unique(stated_at[used], return_index=True, return_counts=True)
    if (times > 1).any():
        raise LabelError(f"a table by {', '.join(table.columns)} states a cell twice.")
    sums, noise, ratio = sums[used][where], noise[used][where], np.ones(len(keys))
    if "count" in stated.column_names:
        ratio = counts[keys] / np.maximum(numbers("count")[used][where], 1.0)
    return replace(cells, keys=tuple(keys.tolist())), sums * ratio, (noise * ratio) ** 2
