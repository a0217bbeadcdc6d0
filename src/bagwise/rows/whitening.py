"""Whitening: columns with mean 0, variance 1 and no correlation.

`Columns` adds up moments block by block, of dense and sparse X. `principal_axes` starts from a Gram
matrix that is at hand. Both bring columns to unit size first, so that neither the rank nor the
coordinates depend on the units of the columns.

Rank: a direction counts if its variance is above `RANK_TOLERANCE` times the largest, all columns
being in standard deviations. 1e-10 of the variance is 1e-5 of the spread: where columns follow from
others but for the five or so digits that they were written with, no more is left than that, and
privacy noise, a distance or a prior must not take it for a direction of its own. Rounding itself is
farther below (`rounding`). Only those who solve equations go down to there, since what they are
asked for is the solution, with intervals that say how little it is worth.

Blocks: a matrix in memory, or one that is encoded block by block, is processed here
(`over_blocks`). One whose rows are in parts (`matrix`) is processed where the rows are, and the
results come back, combined by `merge` as far as they are on one machine; so the result for a block
must be small.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self, TypeVar

import numpy as np
from scipy import linalg, sparse

from bagwise._types import AnyArray, FloatArray, IntArray

T = TypeVar("T")

RowValues = FloatArray | Callable[[FloatArray], FloatArray]
"""Values of rows, (n,), or a function that finds those of some rows."""

BLOCK = 65_536  # rows that are looked at together
RANK_TOLERANCE = 1e-10
# Of the squared mean: a variance up to this is rounding, and the column is constant. That of a
# sparse column is a difference of two large numbers.
FLAT, FLAT_SPARSE = 1e-24, 1e-12


class BlockedRows(ABC):
    """X, and the labels of its rows, in parts; `work` is pickled on its way to them."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of X."""

    @abstractmethod
    def over(
        self, work: Callable[..., T], merge: Callable[[T, T], T], *, labelled: bool = False
    ) -> Iterable[T]:
        """Return what work makes of blocks of X, and of their labels if it is asked for them."""

    @abstractmethod
    def sampled(self, count: int) -> FloatArray:
        """Return about so many rows from everywhere."""


def blocks(n_rows: int) -> Iterator[slice]:
    """Yield where each block of rows begins and ends."""
    for first in range(0, n_rows, BLOCK):
        yield slice(first, min(first + BLOCK, n_rows))


def over_blocks(
    X: Any,
    work: Callable[..., T],
    merge: Callable[[T, T], T] = operator.add,
    *labels: FloatArray | None,
) -> Iterable[T]:
    """Return the result of `work` for each block of X, or for several blocks, merged.

    With `labels`, `work` gets those of the block, too; X in parts has its own.

    >>> [part.tolist() for part in over_blocks(np.ones((3, 2)), np.sum)]
    [6.0]
    """
    if isinstance(X, BlockedRows):
        return X.over(work, merge, labelled=bool(labels))
    vectors: Any = labels
    return (work(X[rows], *(vector[rows] for vector in vectors)) for rows in blocks(X.shape[0]))


def rounding(size: int) -> float:
    """Return the rounding error of an eigenvalue of such a matrix, relative to the largest one.

    >>> rounding(10) < RANK_TOLERANCE / 500
    True
    """
    return 64 * max(1, size) * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Axes:
    """The directions in which columns differ, in units of the columns' standard deviations.

    Attributes
    ----------
    units : (d,)
        One over the spread of each column; 0 for those that do not differ.
    values : (r,)
        Variances along the directions, rising, for columns of variance 1.
    vectors : (d, r)
        The directions, orthonormal.
    lost : (d, d - r)
        All other directions.
    """

    units: FloatArray
    values: FloatArray
    vectors: FloatArray
    lost: FloatArray

    @property
    def rank(self) -> int:
        """Number of directions."""
        return int(self.values.size)

    @property
    def spread(self) -> FloatArray:
        """The divisors of the columns: their standard deviations, and 1 for constant columns."""
        return np.divide(1.0, self.units, out=np.ones_like(self.units), where=self.units > 0)

    @property
    def basis(self) -> FloatArray:
        """The map to white coordinates, (d, r): ``basis' gram basis`` is the identity."""
        return np.asarray(self.units[:, None] * self.vectors / np.sqrt(self.values))

    @property
    def inverse(self) -> FloatArray:
        """The inverse of the Gram matrix, (d, d), on the directions that are not lost."""
        return (self.vectors / self.values) @ self.vectors.T * np.outer(self.units, self.units)


def principal_axes(
    gram: FloatArray, *, constant: AnyArray | None = None, tolerance: float = RANK_TOLERANCE
) -> Axes:
    """Return the directions of columns with this Gram matrix, (d, d), or covariance.

    Parameters
    ----------
    constant : (d,) bools, optional
        Columns whose entries are rounding.
    tolerance : float
        Of the largest variance along a direction: up to this a direction does not count.

    Examples
    --------
    >>> axes = principal_axes(np.array([[4.0, 4.0], [4.0, 4.0]]))
    >>> axes.rank, axes.values.round(9).tolist(), axes.units.tolist()
    (1, [2.0], [0.5, 0.5])
    """
    varies = np.diag(gram) > 0
    if constant is not None:
        varies &= ~constant
    units = _inverse_roots(np.diag(gram), varies)
    solver = linalg if gram.size else np.linalg  # older versions of scipy need an entry at least
    values, vectors = solver.eigh(gram * np.outer(units, units))
    kept = values > tolerance * values.max(initial=0.0)
    return Axes(units, values[kept], vectors[:, kept], vectors[:, ~kept])


@dataclass(frozen=True)
class Moments:
    """Count, mean and squares of rows; those of two sets of rows add up with ``+``.

    Attributes
    ----------
    count : int
    mean : (d,)
    squares : (d, d)
        Sum of the products of centred rows.

    References
    ----------
    Chan, Golub and LeVeque (1983), The American Statistician 37: no digits are lost on the way.
    """

    count: int
    mean: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> Self:
        """Return the moments of a non-empty block of rows."""
        mean = X.mean(axis=0)
        return cls(X.shape[0], mean, _products(X, mean=mean))

    def __add__(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        apart = other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * (other.count / count),
            self.squares
            + other.squares
            + np.outer(apart, apart) * (self.count * other.count / count),
        )

    @property
    def axes(self) -> Axes:
        """The directions in which the rows differ.

        >>> X = np.array([[1.0, 7.0], [3.0, 7.0], [3.0, 7.0]])
        >>> both = Moments.of(X[:1]) + Moments.of(X[1:])
        >>> np.allclose(both.axes.basis, Columns(X).axes.basis)
        True
        """
        covariance = self.squares / self.count
        flat = np.diag(covariance) <= FLAT * self.mean**2
        return principal_axes(covariance, constant=flat)


class Columns:
    """The columns of X, (n, d), dense or scipy sparse; moments are added up over blocks of rows.

    With `order`, sums run over the rows in that order, so that even rounding does not depend on how
    X was ordered.

    Examples
    --------
    >>> X = np.array([[1.0, 7.0], [3.0, 7.0]])
    >>> columns = Columns(X)
    >>> columns.mean.tolist(), columns.units.tolist()
    ([2.0, 7.0], [1.0, 0.0])
    >>> np.abs(columns.white_rows()).tolist()    # a direction has no sign
    [[1.0], [1.0]]
    """

    def __init__(self, X: Any, order: IntArray | None = None) -> None:
        self.is_sparse = sparse.issparse(X)
        self.n_rows = X.shape[0]
        self._X, self._order = X, order
        if self.is_sparse:
            self._X = sparse.csr_array(X) if order is None else sparse.csr_array(X)[order]

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield the place of each block, and its rows."""
        for place in blocks(self.n_rows):
            # Dense rows come into their order as they are read.
            order = None if self.is_sparse else self._order
            yield place, self._X[place if order is None else order[place]]

    def _over(self, work: Callable[[Any], T]) -> Iterable[T]:
        """Return what work makes of each block."""
        if isinstance(self._X, BlockedRows):
            return self._X.over(work, operator.add)
        return (work(block) for _, block in self.blocks())

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of each column."""
        total = sum(self._over(lambda block: np.asarray(block.sum(axis=0)).ravel()))
        return np.asarray(total / self.n_rows, dtype=np.float64)

    @cached_property
    def units(self) -> FloatArray:
        """One over the standard deviation of each column, and zero for constant ones.

        The covariance is not needed: there may be too many columns for it.
        """
        if self.is_sparse:
            variances = np.asarray(self._X.multiply(self._X).mean(axis=0)).ravel() - self.mean**2
        else:
            mean = self.mean
            squares = sum(self._over(lambda block: ((block - mean) ** 2).sum(axis=0)))
            variances = np.asarray(squares / self.n_rows)
        return _inverse_roots(variances, ~self._constant(variances))

    @cached_property
    def covariance(self) -> FloatArray:
        """The population covariance matrix, (d, d)."""
        if self.is_sparse:
            moments = (self._X.T @ self._X).toarray() / self.n_rows
            return np.asarray(moments - np.outer(self.mean, self.mean))
        return np.asarray(sum(self._over(partial(_products, mean=self.mean))) / self.n_rows)

    def spread_of(self, values: RowValues) -> float:
        """Return the standard deviation of values of the rows."""
        if not callable(values):
            return float(np.std(values))
        find: Callable[[FloatArray], FloatArray] = values
        mean = sum(self._over(lambda block: float(np.sum(find(block))))) / self.n_rows
        squares = self._over(lambda block: float(np.sum((find(block) - mean) ** 2)))
        return float(np.sqrt(sum(squares) / self.n_rows))

    def covariance_with(self, values: RowValues) -> FloatArray:
        """Return the population covariance of each column with values of the rows, (d,).

        With `order`, values are those of the rows before they were ordered, as X is. A function of
        rows is asked for their values where they are.

        >>> X, values = np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([0.0, 4.0])
        >>> Columns(X).covariance_with(values).tolist()
        [2.0, 0.0]
        """
        if callable(values):  # centred columns need no centred values, but for rounding
            mean, find = self.mean, values
            sums = self._over(lambda block: np.asarray((block - mean).T @ find(block)))
            return np.asarray(sum(sums) / self.n_rows)
        values = values if self._order is None else values[self._order]
        centred = values - values.mean()
        total = np.zeros(self.mean.size)
        for (
            place,
            rows,
        ) in self.blocks():  # centred values need no centred columns, but for rounding
            moved = rows if self.is_sparse else rows - self.mean
            total += np.asarray(moved.T @ centred[place]).ravel()
        return np.asarray(total / self.n_rows)

    @cached_property
    def axes(self) -> Axes:
        """The directions in which the rows differ."""
        return principal_axes(self.covariance, constant=self._constant(np.diag(self.covariance)))

    def white_rows(self) -> FloatArray:
        """Return the rows, dense ones, in white coordinates, (n, r)."""
        return np.asarray((self._X - self.mean) @ self.axes.basis)

    def _constant(self, variances: FloatArray) -> AnyArray:
        return variances <= (FLAT_SPARSE if self.is_sparse else FLAT) * self.mean**2


def _products(block: Any, *, mean: FloatArray) -> FloatArray:
    centred = block - mean
    return np.asarray(centred.T @ centred)


def _inverse_roots(variances: FloatArray, varies: AnyArray) -> FloatArray:
    roots = np.sqrt(np.where(varies, variances, 1.0))
    return np.where(varies, 1.0 / roots, 0.0)
