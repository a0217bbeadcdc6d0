"""Coordinates in which one search suits all data: columns that are uncorrelated with spread 1."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import linalg

from bagwise._types import AnyArray, FloatArray
from bagwise.learn.mixture.likelihood import PickedBags
from bagwise.rows.whitening import FLAT, principal_axes, rounding


@dataclass(frozen=True)
class Whitening:
    """A linear map from columns to uncorrelated directions of spread 1, and back.

    Directions without spread drop out, so that constant and duplicate columns do no harm and their
    coefficients are those of least norm. theta holds one entry for each direction that is kept and,
    last, the intercept at the centre.

    Attributes
    ----------
    center : (d,)
    basis : (d, kept)
        Coefficients of each direction.
    back : (kept, d)
        Maps coefficients to directions.
    open : (d + 1,)
        Which coefficients, and whether the intercept, change along directions that dropped out.
    """

    center: FloatArray
    basis: FloatArray
    back: FloatArray
    open: AnyArray
    fit_intercept: bool

    @classmethod
    def of(cls, bags: PickedBags, *, fit_intercept: bool) -> Self:
        """Find the directions in which rows differ."""
        X, weight = bags.X, bags.chance
        center = weight @ X if fit_intercept else np.zeros(X.shape[1])
        gram = (X - center).T @ ((X - center) * weight[:, None])
        # A constant column has the spread of its rounding.
        flat = np.diag(gram) <= FLAT * (weight @ X**2)
        # As in the other learners (`solver`), all that can be told from rounding is learnt.
        axes = principal_axes(gram, constant=flat, tolerance=rounding(len(gram)))
        # Turned once more, so that |coef|^2 has no cross terms.
        basis = axes.basis @ linalg.eigh(axes.basis.T @ axes.basis)[1]
        own = np.vstack([np.diag(1 / axes.spread), -center / axes.spread])
        return cls(center, basis, basis.T @ gram, moves(own, axes.lost), fit_intercept)

    @property
    def kept(self) -> int:
        """Number of directions."""
        return int(self.basis.shape[1])

    @property
    def width(self) -> int:
        """Number of entries of theta."""
        return self.kept + self.fit_intercept

    def design(self, X: FloatArray) -> FloatArray:
        """Return the rows in these coordinates, with a column of ones for the intercept."""
        rows = (X - self.center) @ self.basis
        return np.column_stack([rows, np.ones(len(rows))]) if self.fit_intercept else rows

    def penalty(self, ridge: float) -> FloatArray:
        """Return the ridge penalty of each entry of theta; the intercept has none."""
        slopes = ridge * np.sum(self.basis**2, axis=0)
        return np.append(slopes, 0.0) if self.fit_intercept else slopes

    def theta(self, coef: FloatArray, intercept: float) -> FloatArray:
        """Return theta of coefficients in the columns' own units."""
        slopes = self.back @ coef
        return np.append(slopes, intercept + self.center @ coef) if self.fit_intercept else slopes

    def to_own_units(self) -> FloatArray:
        """Return the matrix that maps theta to coefficients and, last, the intercept."""
        change = np.zeros((len(self.center) + 1, self.width))
        change[:-1, : self.kept] = self.basis
        change[-1, : self.kept] = -self.center @ self.basis
        change[-1, self.kept :] = 1.0
        return change


def moves(change: FloatArray, directions: FloatArray) -> AnyArray:
    """Return which rows of a linear map change along some directions, beyond rounding."""
    moved = np.linalg.norm(change @ directions, axis=1)
    size = np.linalg.norm(change, axis=1)
    return np.asarray(moved > 1e-6 * np.where(size > 0, size, 1.0))
