"""How well theory predicts the minimisers, and the protocol explains the printed values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from reproduction.cells import APPENDIX, Cell
from reproduction.draws import MIXINGS
from reproduction.measured import LEVEL, Estimate, Measured, printed_means

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Explained:
    """How near a column comes to the printed values of some tables.

    Intervals are 95 %, over which cells the paper might have had (bootstrap over cells).
    """

    cells: int
    rms_log_ratio: float
    rms_interval: tuple[float, float]
    correlation: float
    correlation_interval: tuple[float, float]
    # What the rms log ratio would be if the protocol were what was done: both columns are means
    # over runs, with errors of their own.
    by_chance: float
    rms_z: float  # differences in units of that error; 1 if they are chance alone


def explain_printed(
    measured: Measured,
    name: str,
    *,
    tables: Sequence[int] = APPENDIX,
    kinds: Sequence[str] = tuple(MIXINGS),
) -> Explained | None:
    """Compare the values of one name with what tables print, for some kinds of features.

    None if cells are missing, or have one run and so no error of their own.
    """
    printed = {cell: value for cell, value in printed_means(tables).items() if cell.data in kinds}
    if not all(cell in measured and measured.runs(cell, name).size > 1 for cell in printed):
        return None
    estimates = [Estimate.of(measured.runs(cell, name)) for cell in printed]
    ours = np.array([estimate.mean for estimate in estimates])
    theirs = np.array([mean for mean, _ in printed.values()])
    log_ratio = np.log(ours / theirs)
    own_error = np.array([estimate.standard_error for estimate in estimates]) / ours
    their_error = np.array([error for _, error in printed.values()]) / theirs
    error = np.hypot(own_error, their_error)
    draws = np.random.default_rng(0).integers(ours.size, size=(_RESAMPLES, ours.size))
    return Explained(
        cells=ours.size,
        rms_log_ratio=_rms(log_ratio),
        rms_interval=_interval(np.sqrt(np.mean(log_ratio[draws] ** 2, axis=1))),
        correlation=float(_correlations(ours[None], theirs[None])[0]),
        correlation_interval=_interval(_correlations(ours[draws], theirs[draws])),
        by_chance=_rms(error),
        rms_z=_rms(log_ratio / error),
    )


def _interval(resampled: FloatArray) -> tuple[float, float]:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _correlations(ours: FloatArray, theirs: FloatArray) -> FloatArray:
    """Return Pearson's correlation of each row with the same row of the other."""
    ours = ours - ours.mean(axis=1, keepdims=True)
    theirs = theirs - theirs.mean(axis=1, keepdims=True)
    squares = np.sum(ours**2, axis=1) * np.sum(theirs**2, axis=1)
    return np.asarray(np.sum(ours * theirs, axis=1) / np.sqrt(squares))


def _rms(values: FloatArray) -> float:
    return math.sqrt(float(np.mean(values**2)))


@dataclass(frozen=True)
class Predicted:
    """How near theory comes to what the minimisers have, over some cells."""

    what: str
    cells: int
    runs: int
    ratio: float  # median over cells of the mean over runs of error / expected error
    # Of the cells' differences, in units of the standard deviation that theory gives them. 1 if
    # theory holds; cells of one run share their data, so not exactly.
    rms_z: float
    beyond_three: int  # cells that are off by more than three of them


def compare_with_theory(
    measured: Measured, what: str, cells: Sequence[Cell], name: str, expected: str
) -> Predicted:
    """Compare errors with their expectation: both know the same features, coefficients and bags."""
    found, theory, sd = (
        np.array([measured.runs(cell, column) for cell in cells])
        for column in (name, expected, f"{expected}_sd")
    )
    # In units of each run's own expectation: one ill-conditioned draw must not hide the others.
    z = np.sum(found / theory - 1, axis=1) / np.sqrt(np.sum((sd / theory) ** 2, axis=1))
    ratio = float(np.median(np.mean(found / theory, axis=1)))
    beyond = int(np.sum(np.abs(z) > 3))
    return Predicted(what, len(cells), found.shape[1], ratio, _rms(z), beyond)
