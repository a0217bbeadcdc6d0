"""What is held against large coefficients: a ridge that somebody chose, or a belief about slopes.

Both are quadratic forms that are added to the mean loss. A ridge leaves the intercept alone.
"""

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.families import Family
from bagwise.learn.problems import Problem
from bagwise.rows.whitening import Axes, Columns
from bagwise.theory.importance import mean_square, root_of
from bagwise.theory.restricted import ANY, Size

_SEVERAL = 2  # slopes, one of which may be stronger than others
_ENOUGH = 4  # labels for each slope; with fewer, one odd label looks like a strong feature
_ENOUGH_WITHIN_BOUNDS = 1  # where both ends are the family's own, no label can be odd
_USUAL_LOG_RATE_SD = 0.5  # one row in twenty has a rate 2.7 times the usual, or below 1 / 2.7
_USUAL_LOG_ODDS_SD = 1.5
_LOG_SD = 3.0  # a factor of twenty for a rate or for odds, from what is usual or from row to row


class Penalty(Protocol):
    """A quadratic form in beta, around a center."""

    @property
    def center(self) -> FloatArray | float:
        """Where nothing is held against beta."""

    def matrix(self, problem: Problem) -> FloatArray:
        """Return the form, (p, p), in units of the mean loss as the problem weighs it."""


@dataclass(frozen=True)
class Ridge:
    """``ridge / 2 * |coef|^2`` beside the mean loss, coefficients being in the columns' units."""

    ridge: float
    center: float = 0.0

    def matrix(self, problem: Problem) -> FloatArray:
        """Return the form; it does not depend on the weights."""
        return np.diag(problem.penalty(self.ridge))


@dataclass(frozen=True)
class Coordinates:
    """White coordinates with a name: one for each feature, as close to it as they can be.

    Attributes
    ----------
    features : (d, r)
        ``b = features @ a`` for slopes a of one class in white columns; columns are orthonormal.
    back : (q * r, p)
        ``a = back @ beta``.
    """

    features: FloatArray
    back: FloatArray


@dataclass(frozen=True)
class SlopePrior:
    """Slopes drawn from a normal distribution whose size is the only thing that is not known.

    In columns that were made uncorrelated with variance 1 every slope is N(0, variance). So the
    linear predictor ``x'theta`` of a row has variance ``d * variance`` over the rows, whichever way
    theta points, and the penalty is its mean square: neither the units of the columns nor their
    correlations matter. For classes the coefficients of all of them are drawn, and those of the
    first are subtracted, so that no class is special. What the labels tell of single features may
    make some slopes larger than others (`weighed`, `importance`).

    Of the intercept nothing is believed, but for one case: a chance or a rate that noise has
    carried out of its range has no finite logarithm. Where the link is such a one, the intercept is
    N(start, 3^2), which moves an estimate by less than a hundredth of its standard error unless
    that is above 0.1.

    Attributes
    ----------
    basis : (p, r)
        ``beta = basis @ a`` for slopes a in white columns.
    precision : (p, p)
        Inverse covariance of beta for variance 1; zero for the intercept.
    free : (p, q)
        The directions of beta about which nothing is believed: the intercepts.
    center : (p,)
    loose : (p, p)
        Inverse covariance of the intercepts.
    size : Size
        What is believed of the variance of slopes.
    variance : float
    white : Coordinates or None
        None where features are not told apart.
    importance : (d,) or None
        How much larger the variance is for each feature; None where it is the same for all.
    """

    basis: FloatArray
    precision: FloatArray
    free: FloatArray
    center: FloatArray
    loose: FloatArray
    size: Size = ANY
    variance: float = 1.0
    white: Coordinates | None = None
    importance: FloatArray | None = None
    _even: "SlopePrior | None" = None

    @classmethod
    def of(
        cls,
        problem: Problem,
        X: FloatArray | Axes,
        start: FloatArray,
        *,
        width_of_labels: float = np.inf,
    ) -> Self:
        """Take the directions from the rows X, (n, d), whose coefficients are sought.

        `start` is the beta that predicts the mean label for every row. Labels in bounds have a
        standard deviation of half their width at most (Popoviciu 1935), and so have expected ones.
        """
        design, axes = problem.design, X if isinstance(X, Axes) else Columns(X).axes
        width, outputs = axes.units.size, problem.outputs
        slopes = np.zeros((design.width, axes.rank))
        varies = axes.units > 0  # rounding must not give constant columns a belief of their own
        slopes[:width] = (varies * design.scale)[:, None] * axes.basis
        inverse = np.zeros((design.width, design.width))
        # The pseudo-inverse of basis basis'. Along directions without spread, such as a level that
        # no row has, rounding would be all that decides: there slopes are believed to be 0 as well.
        apart = varies * axes.spread / design.scale
        back = np.sqrt(axes.values)[:, None] * axes.vectors.T * apart
        lost = axes.lost.T * axes.spread / design.scale
        inverse[:width, :width] = back.T @ back + lost.T @ lost
        free = np.eye(design.width)[:, width:].astype(np.float64)
        among = np.eye(outputs) + (1.0 if outputs > 1 else 0.0)
        root = np.linalg.cholesky(among)
        to_white = np.zeros((axes.rank, design.width))
        to_white[:, :width] = back
        white = None
        bounded = np.isfinite(problem.family.label_range).all()
        enough = _ENOUGH_WITHIN_BOUNDS if bounded else _ENOUGH
        if axes.rank >= _SEVERAL and problem.n_units >= enough * axes.rank:
            back = np.asarray(np.kron(np.linalg.inv(root), to_white), dtype=np.float64)
            white = Coordinates(axes.vectors, back)
        free = np.asarray(np.kron(np.eye(outputs), free), dtype=np.float64)
        return cls(
            basis=np.kron(root, slopes),
            precision=np.kron(np.linalg.inv(among), inverse),
            free=free,
            center=free @ (free.T @ start),
            loose=free @ free.T / _LOG_SD**2 * _has_ends(problem.family),
            size=_size_of_predictors(problem.family, width_of_labels).over(max(1, axes.rank)),
            white=white,
        )

    @property
    def even(self) -> "SlopePrior":
        """The belief that no feature matters more than another."""
        return self if self._even is None else self._even

    def weighed(self, importance: FloatArray) -> Self:
        """Return the belief that slopes have this times the variance, feature by feature."""
        even, white = self.even, self.white
        if white is None:
            raise AssertionError("features are not told apart")
        classes = even.basis.shape[1] // white.features.shape[1]
        root = root_of(importance, white.features, classes)
        inverse = np.linalg.inv(root)
        more = inverse.T @ inverse - np.eye(len(root))
        return replace(
            self,
            basis=even.basis @ root,
            precision=even.precision + white.back.T @ more @ white.back,
            size=even.size.over(mean_square(root)),
            importance=importance,
            _even=even,
        )

    def scaled(self, variance: float) -> Self:
        """Return the belief that slopes have this variance."""
        return replace(self, variance=variance)

    @property
    def form(self) -> FloatArray:
        """The inverse covariance of beta."""
        return np.asarray(self.precision / self.variance + self.loose)

    def matrix(self, problem: Problem) -> FloatArray:
        """Return the form; the mean loss is the sum over bags, divided by the problem's total."""
        return np.asarray(self.form / problem.total)


def _size_of_predictors(family: Family, width_of_labels: float) -> Size:
    """Return what is believed of how much linear predictors vary over the rows.

    Rates of rows far out grow with the exponential of noise that is taken for a signal, and so do
    small chances. So log rates and log odds that vary much take more evidence than those that vary
    as they mostly do.
    """
    if family.name == "gaussian":
        return Size((width_of_labels / 2) ** 2)
    usual = _USUAL_LOG_RATE_SD if family.has_log_link else _USUAL_LOG_ODDS_SD
    if _has_ends(family):
        return Size(_LOG_SD**2, usual**2)
    return Size(usual=usual**2 if family.has_log_link else np.inf)


def _has_ends(family: Family) -> bool:
    """Tell whether the link takes an end of the range of labels to infinity."""
    bounded = bool(np.isfinite(family.label_range).any())
    return bounded and bool(np.isinf(family.eta_range).all())
