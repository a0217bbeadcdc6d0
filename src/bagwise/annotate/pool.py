"""The rows that labels can be bought for, and what is believed of those labels."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.planner.prior import Prior
from bagwise.theory.belief import signal_root
from bagwise.theory.misfit import draw_misfit
from bagwise.theory.moments import Whitening

MOST_ROWS = 100_000
"""Rows that are looked at when labels are bought; of a larger table, some drawn at random."""

_SEED = 0  # of the functions that a linear model is thought to leave


@dataclass(frozen=True)
class Pool:
    """Rows to choose from.

    Attributes
    ----------
    X : (n, d)
    prior : Prior
    labelled : (l,) integers
        Those of the rows that were chosen before.
    predictions : (n,) or None
        What a model says so far.
    """

    X: FloatArray
    prior: Prior
    labelled: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    predictions: FloatArray | None = None

    @cached_property
    def white(self) -> Whitening:
        """The rows in white coordinates."""
        return Whitening.of(self.X)

    @cached_property
    def root(self) -> FloatArray:
        """Where the signal is thought to lie."""
        return signal_root(self.X)

    @cached_property
    def functions(self) -> FloatArray:
        """What a linear model may leave, in these rows."""
        return draw_misfit(self.white.rows, np.random.default_rng(_SEED))

    @cached_property
    def free(self) -> IntArray:
        """The rows that can still be chosen."""
        taken = np.zeros(len(self.X), dtype=bool)
        taken[self.labelled] = True
        return np.flatnonzero(~taken)


def draw_pool(n_rows: int, rng: np.random.Generator) -> IntArray:
    """Return the rows to look at: all of them, or as many as can be looked at.

    >>> draw_pool(3, np.random.default_rng(0))
    array([0, 1, 2])
    """
    if n_rows <= MOST_ROWS:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, MOST_ROWS, replace=False))
