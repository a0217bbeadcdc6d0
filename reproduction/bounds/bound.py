"""What every bound is made of: the record, its conditions, and checks of what is given."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from bagwise._types import FloatArray
from bagwise.errors import BagsError, StrategyError

ANY_BAGS = "none: it holds for all bags, however they were formed"
AGNOSTIC = "the bags were formed without looking at the noise of the labels"


@dataclass(frozen=True)
class Bound:
    """A number that some quantity cannot exceed (or fall below), and when.

    Attributes
    ----------
    value : float
        Infinite where there is no finite bound, as with bags that do not determine theta.
    condition : str
        What has to hold.
    holds : bool or None
        Whether it does, for these arguments; None where they cannot tell, as they cannot tell how
        bags were formed.
    """

    value: float
    condition: str
    holds: bool | None


def as_matrix(X: FloatArray) -> FloatArray:
    """Check that X is a matrix of finite numbers."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.size == 0 or not np.isfinite(X).all():
        raise BagsError(f"X must be a matrix of finite numbers, got shape {X.shape}.")
    return X


def as_vector(values: FloatArray, d: int) -> FloatArray:
    """Check that there is one number for each of d columns."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (d,):
        raise StrategyError(f"expected {d} entries, one per column, got shape {values.shape}.")
    return values


def least_eigenvalue(matrix: FloatArray) -> float:
    """Return the least eigenvalue; 0 where it cannot be told from rounding."""
    values = linalg.eigvalsh(matrix)
    rounding = 64 * len(values) * np.finfo(np.float64).eps * values[-1]
    return float(values[0]) if values[0] > rounding else 0.0


def trace_of_inverse(X: FloatArray) -> float:
    """Return ``tr (X'X)^-1``; infinite where there is no inverse."""
    gram = X.T @ X
    return float(np.sum(1 / linalg.eigvalsh(gram))) if least_eigenvalue(gram) > 0 else math.inf


def divide(total: float, least: float) -> float:
    """Return the quotient; infinite where nothing is left to divide by."""
    return total / least if least > 0 else math.inf
