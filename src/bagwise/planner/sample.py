"""A sample of the rows for trying bags: small enough to be quick, and always the same.

The sample depends only on the features (sorted) and a fixed seed. The table may be sorted by its
labels, and a sample by position would reveal this.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.units import Units
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.rng import SecureNoise
from bagwise.rows.encode import Encoder
from bagwise.rows.row_order import feature_order
from bagwise.rows.table import Rows

SEED = 0

MOST_ROWS = 15_000
"""Rows that bags are tried on: a release should not wait for its plan."""


@dataclass(frozen=True)
class Population:
    """Facts about all rows of a table.

    Attributes
    ----------
    names : tuple of str
        Of the features.
    encoder : Encoder
        From them to X.
    n_rows, largest_unit : int
        Of the table.
    smallest_stratum : int or None
        Rows of the smallest stratum that bags must not cross.
    """

    names: tuple[str, ...]
    encoder: Encoder
    n_rows: int
    largest_unit: int = 1
    smallest_stratum: int | None = None


@dataclass(frozen=True)
class Sample:
    """Some rows of a table, in an order that the features decide.

    Attributes
    ----------
    X : (n, d)
    units : Units
        Who the rows belong to; all rows of a unit are there, or none.
    largest : int
        Rows of the largest unit of the whole table.
    copies : float
        Rows of the table that each of these stands for.
    """

    X: FloatArray
    units: Units = field(default_factory=Units)
    largest: int = 1
    copies: float = 1.0

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return round(len(self.X) * self.copies)


def sample_matrix(X: FloatArray, *, n_rows: int) -> Sample:
    """Return a sample of the rows of X, which stand for `n_rows`."""
    names = [str(j) for j in range(X.shape[1])]
    rows = Rows(pa.table({name: X[:, j] for j, name in enumerate(names)}))
    chosen = _few(feature_order(rows, names, SecureNoise()))
    return Sample(np.ascontiguousarray(X[chosen]), copies=n_rows / len(chosen))


def sample_rows(
    rows: Rows,
    columns: Columns,
    budget: Budget,
    *,
    names: list[str],
    population: Population | None = None,
) -> Sample:
    """Return a sample of the features of a table, or of a larger sample of it."""
    if population is None:
        encoder, n_rows = columns.encoder_for(rows, names), rows.num_rows
    else:
        encoder, n_rows = population.encoder, population.n_rows
    if budget.unit is None:
        order = feature_order(rows, names, SecureNoise())
        X = encoder.transform(rows.take(_few(order)))
        return Sample(X, copies=n_rows / len(X))
    # Rows that have the same features may belong to different units: these decide as well.
    ordered = rows.take(feature_order(rows, [*names, budget.unit], SecureNoise()))
    units = budget.units_in(ordered)
    chosen = _few_units(units)
    X = encoder.transform(ordered.take(chosen))
    largest = units.largest if population is None else population.largest_unit
    return Sample(X, units.take(chosen), largest, n_rows / len(X))


def _few(order: IntArray) -> IntArray:
    """Return some of the rows, in their order."""
    places = np.random.default_rng(SEED).permutation(order.size)[:MOST_ROWS]
    return order[np.sort(places)]


def _few_units(units: Units) -> IntArray:
    """Return the rows of some units, including the largest, which determines the noise."""
    if units.index is None:
        raise AssertionError("units are numbered where a column names them")
    rows = np.bincount(units.index)
    drawn = np.random.default_rng(SEED).permutation(rows.size)
    drawn = np.concatenate([[np.argmax(rows)], drawn[drawn != np.argmax(rows)]])
    enough = int(np.searchsorted(np.cumsum(rows[drawn]), MOST_ROWS)) + 1
    wanted = np.zeros(rows.size, dtype=bool)
    wanted[drawn[:enough]] = True
    return np.flatnonzero(wanted[units.index])
