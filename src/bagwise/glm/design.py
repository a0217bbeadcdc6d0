"""The design matrix, standardised so that computations are well conditioned.

Coefficients are sought for columns that were centred and divided by their spread; X itself is
never copied. A vector beta holds one entry per column and, last, the intercept at the centre.

An offset is the part of a row's linear predictor that is known. A count y_i over an exposure e_i,
such as claims over years, has the mean ``e_i mu_i`` with a rate ``mu_i = exp(x_i'theta)``, which is
``exp(x_i'theta + log e_i)``: exposure is an offset of log e_i under a logarithmic link (McCullagh
and Nelder 1989, 6.3). The mean label of a bag is then the mean of ``e_i mu_i`` over its rows, whose
variance is phi times the mean variance function of these, divided by their number: nothing but eta
changes, and bag loss holds as it stands.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError
from bagwise.families import Family
from bagwise.rows.whitening import Moments

T = TypeVar("T")

_ROUNDING = 1e-12  # of its size: a column whose entries differ by less is a constant
CHUNK = 4096  # rows that stay in the processor's cache


@dataclass(frozen=True)
class Design:
    """Rows with an implicit standardisation.

    Attributes
    ----------
    rows : (u, d)
    center, scale : (d,)
    fit_intercept : bool
    offset : (u,) or None
        What is known of each row's linear predictor, and is added to it.
    flat : (d,) bools or None
        Columns that are constant but for rounding, which standard units would blow up.
    """

    rows: FloatArray
    center: FloatArray
    scale: FloatArray
    fit_intercept: bool
    offset: FloatArray | None = None
    flat: AnyArray | None = None
    _last: dict[bytes, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        rows: FloatArray,
        weight: FloatArray,
        *,
        fit_intercept: bool,
        offset: FloatArray | None = None,
    ) -> Self:
        """Standardise by the weighted mean and spread of each column, in one pass."""
        total, first = float(weight.sum()), rows[0].copy()
        mean, square = np.zeros(first.size), np.zeros(first.size)
        # Around the first row: a constant column has no spread then, whatever its size.
        for part in chunks(len(rows)):
            off = rows[part] - first
            mean += weight[part] @ off
            square += weight[part] @ np.square(off, out=off)
        mean, square = mean / total, square / total
        flat = np.sqrt(square) <= _ROUNDING * np.abs(first)
        center, variance = np.where(flat, first, first + mean), square - mean**2
        frame = cls._standardised(center, variance, flat, fit_intercept=fit_intercept)
        return replace(frame, rows=rows, offset=offset)

    @classmethod
    def of_moments(cls, moments: Moments, *, fit_intercept: bool) -> Self:
        """Standardise by the moments of rows stored elsewhere; the design itself has no rows."""
        mean, variance = moments.mean, np.diag(moments.squares) / moments.count
        flat = np.sqrt(variance) <= _ROUNDING * np.abs(mean)
        return cls._standardised(mean, variance, flat, fit_intercept=fit_intercept)

    @classmethod
    def _standardised(
        cls, mean: FloatArray, variance: FloatArray, flat: AnyArray, *, fit_intercept: bool
    ) -> Self:
        center, square = mean if fit_intercept else np.zeros_like(mean), np.maximum(variance, 0.0)
        spread = np.sqrt(square if fit_intercept else square + mean**2)
        # What is rounding of a column far from zero is no spread. Nothing is dropped here, so that
        # less than in `rows.whitening` is enough for a column to get units of its own.
        flat = flat & fit_intercept
        varies = (spread > 8 * np.finfo(float).eps * np.abs(center)) & ~flat
        scale = np.where(varies, spread, 1.0)
        return cls(np.zeros((0, mean.size)), center, scale, fit_intercept, None, flat)

    def about(self, rows: FloatArray, offset: FloatArray | None = None) -> "Design":
        """Return other rows under the same standardisation."""
        return Design(rows, self.center, self.scale, self.fit_intercept, offset, self.flat)

    @property
    def width(self) -> int:
        """Number of entries of beta."""
        return int(self.rows.shape[1]) + self.fit_intercept

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return the linear predictor of every row; beta is (p,) or (p, q)."""

        def make() -> FloatArray:
            coef, intercept = self.coefficients(beta)
            eta = np.asarray(self.rows @ coef + intercept)
            eta = eta if self.offset is None else eta + self.offset
            eta.flags.writeable = False
            return eta

        # Loss, weights and equations ask for the same eta one after the other.
        return remember(self._last, beta.tobytes(), make)

    def coefficients(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients and intercept in the columns' own units."""
        slopes = beta[: self.rows.shape[1]]
        coef = slopes / (self.scale if beta.ndim == 1 else self.scale[:, None])
        intercept = (beta[-1] if self.fit_intercept else 0.0) - self.center @ coef
        return coef, np.asarray(intercept)

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps beta to coefficients and, last, the intercept."""
        width = self.rows.shape[1]
        change = np.zeros((width + 1, self.width))
        change[:width, :width] = np.diag(1 / self.scale)
        change[width, :width] = -self.center / self.scale
        if self.fit_intercept:
            change[width, width] = 1.0
        return change

    def penalty(self, ridge: float) -> FloatArray:
        """Return the ridge penalty of each entry of beta; the intercept has none."""
        slopes = ridge / self.scale**2
        return np.append(slopes, 0.0) if self.fit_intercept else slopes

    def standardise(self, rows: FloatArray) -> FloatArray:
        """Return rows in standard units, with a column of ones for the intercept."""
        out = np.empty((len(rows), self.width))
        np.subtract(rows, self.center, out=out[:, : rows.shape[1]])
        out[:, : rows.shape[1]] /= self.scale
        if self.flat is not None:
            out[:, : rows.shape[1]][:, self.flat] = 0.0
        if self.fit_intercept:
            out[:, -1] = 1.0
        return out

    def standardise_sums(self, sums: FloatArray, count: FloatArray) -> FloatArray:
        """Return sums of standardised rows, given sums of rows and of their weights."""
        slopes = (sums - np.outer(count, self.center)) / self.scale
        if self.flat is not None:
            slopes[:, self.flat] = 0.0
        return np.column_stack([slopes, count]) if self.fit_intercept else slopes


def remember(cache: dict[Any, T], key: Any, make: Callable[[], T], *, most: int = 1) -> T:
    """Return what was made for a key, or make it; the oldest results are forgotten."""
    if key not in cache:
        for old in list(cache)[: len(cache) + 1 - most]:
            del cache[old]
        cache[key] = make()
    return cache[key]


def chunks(n: int, length: int = CHUNK) -> list[slice]:
    """Cut n rows into slices."""
    return [slice(start, start + length) for start in range(0, n, length)]


def read_offset(
    n_rows: int, family: Family, *, exposure: Any = None, offset: Any = None
) -> FloatArray | None:
    """Return the checked offset of each row's linear predictor; None if there is none.

    >>> from bagwise.families import find_family
    >>> read_offset(2, find_family("poisson"), exposure=[1.0, np.e], offset=0.5)
    array([0.5, 1.5])
    """
    if exposure is None and offset is None:
        return None
    total = np.zeros(n_rows)
    if exposure is not None:
        if not family.has_log_link:
            raise StrategyError(
                f"exposure multiplies expected labels, and the link of {family.name} is not the "
                "logarithm. Choose poisson, gamma or inverse_gaussian."
            )
        times = _one_per_row(exposure, n_rows, "exposure")
        if not (times > 0).all():
            raise BagsError("exposure must be positive in every row.")
        total = np.log(times)
    if offset is not None:
        if family.has_classes:
            raise StrategyError("an offset needs one linear predictor, and classes have several.")
        total = total + _one_per_row(offset, n_rows, "offset")
    return total


def _one_per_row(values: Any, n_rows: int, what: str) -> FloatArray:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim == 0:
        numbers = np.full(n_rows, float(numbers))
    if numbers.shape != (n_rows,):
        raise BagsError(f"{what} must be one number or one per row, got shape {numbers.shape}.")
    if not np.isfinite(numbers).all():
        raise BagsError(f"{what} must be finite.")
    return numbers


def centroids_of(
    rows: FloatArray,
    offset: FloatArray | None,
    average: Callable[[FloatArray], FloatArray],
    family: Family,
) -> tuple[FloatArray, FloatArray | None]:
    """Return the centroid of each bag, and its offset.

    Rows count by their exposure, so that to first order in the slopes the centroid is expected to
    have the mean label of the bag: ``mean(e_i exp(x_i'theta))`` is about
    ``mean(e) exp(sum(e_i x_i)'theta / sum(e))``.
    """
    if offset is None:
        return average(rows), None
    share = family.slope(offset)
    weighted: FloatArray = average(rows * share[:, None]) / average(share)[:, None]
    return weighted, family.predictor(average(family.mean(offset)))


def spread_by_exposure(
    labels: FloatArray, offset: FloatArray | None, bags: Bags, family: Family
) -> FloatArray:
    """Return the label of each row's bag, divided among its rows by their exposure."""
    repeated: FloatArray = bags.repeat(labels)
    if offset is None:
        return repeated
    if not family.has_log_link:
        raise StrategyError("instance loss takes offsets with a logarithmic link only: use 'bag'.")
    times = family.mean(offset)
    return repeated * times / bags.repeat(bags.mean(times))
