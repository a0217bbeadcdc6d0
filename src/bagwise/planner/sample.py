"""A sample of the rows for trying bags: small enough to be quick, and always the same.

The sample depends only on the features (sorted) and a fixed seed. The table may be sorted by its
labels, and a sample by position would reveal this.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.privacy.units import Units, units_of
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
    encoder : Encoder
        From the features to X.
    n_rows : int
    unit : str or None
        The column whose values are protected together.
    largest_unit : int
        Rows of the unit with the most.
    smallest_stratum : int or None
        Rows of the smallest stratum that bags must not cross.
    """

    encoder: Encoder
    n_rows: int
    unit: str | None = None
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
    facts = {str(j): X[:, j] for j in range(X.shape[1])}
    order = feature_order(pa.table(facts), list(facts), SecureNoise())
    places = np.random.default_rng(SEED).permutation(order.size)[:MOST_ROWS]
    chosen = order[np.sort(places)]
    return Sample(np.ascontiguousarray(X[chosen]), copies=n_rows / len(chosen))


def sample_rows(rows: Rows, everyone: Population) -> Sample:
    """Return a sample of the features of a table, of which `rows` may be a larger sample."""
    # Rows that have the same features may belong to different units: these decide as well.
    who = [] if everyone.unit is None else [everyone.unit]
    order = feature_order(rows, [*everyone.encoder.inputs, *who], SecureNoise())
    rng = np.random.default_rng(SEED)
    if everyone.unit is None:
        units, places = Units(), np.sort(rng.permutation(order.size)[:MOST_ROWS])
    else:
        # Whole units, among them the largest, which determines the noise.
        units = units_of(rows.take(order), everyone.unit)
        if units.index is None:
            raise AssertionError("units are numbered where a column names them")
        counts = np.bincount(units.index)
        drawn, largest = rng.permutation(counts.size), np.argmax(counts)
        drawn = np.concatenate([[largest], drawn[drawn != largest]])
        enough = int(np.searchsorted(np.cumsum(counts[drawn]), MOST_ROWS)) + 1
        places = np.flatnonzero(np.isin(units.index, drawn[:enough]))
    X = everyone.encoder.transform(rows.take(order[places]))
    copies = everyone.n_rows / len(X)
    return Sample(X, units.take(places), everyone.largest_unit, copies)
