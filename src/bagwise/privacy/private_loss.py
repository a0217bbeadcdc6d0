"""The mean loss of a model on rows with secret labels, released with label privacy.

Features and the model are public, and so are the predictions. With prediction p_i, clipped to the
bounds, the loss of row i lies between 0 and its range

    r_i = min(C, max(p_i - lo, hi - p_i)^k),     k = 2 for squared and 1 for absolute loss,

whatever the label within the bounds is; C is the largest loss that is to count.

Guarantee: each loss becomes a whole number of steps of C / 2**24, and is then clipped, as an
integer, to 0..R_i, where R_i is r_i in the same steps. So however doubles round on the way, row i
adds an integer between 0 and R_i that depends on no other label. Replacing the labels of one unit
moves the integer sum by at most S, the sum of R_i over the unit's rows; the unit with the largest
sets the noise. Discrete Laplace noise of scale s changes the probability of any outcome by a factor
of at most exp(S / s) when what it hides moves by S, and s is at least S / epsilon. Dividing by the
number of rows, which is public, comes last.
"""

import math
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BoundsError, BudgetError, TableError, check_name
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.units import Units
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

POWERS = {"squared": 2, "absolute": 1}
"""The losses, and the power of the error that each is."""

MOST_ROWS = 2**62 // LOSS_STEPS
"""Sums of so many losses, and the noise on them, fit 64 bits."""


@dataclass(frozen=True, eq=False)
class LossDesign:
    """The map from each row's loss to a whole number of steps, determined by public data alone."""

    predictions: FloatArray  # (n,): clipped to the bounds
    bounds: Bounds
    power: int  # of the absolute error
    largest: float  # the largest loss that counts
    ranges: IntArray  # (n,): the largest loss that each row can have, in steps

    @property
    def step(self) -> float:
        """The width of one step; exact, since their number is a power of two."""
        return self.largest / LOSS_STEPS

    def sensitivity_steps(self, units: Units) -> int:
        """Return how far the labels of one unit can move the summed losses, in steps."""
        if units.index is None:
            return int(self.ranges.max())
        totals = np.zeros(int(units.index.max()) + 1, dtype=np.int64)
        np.add.at(totals, units.index, self.ranges)
        return int(totals.max())


def design_loss(
    predictions: FloatArray, *, bounds: Bounds, loss: str, clip: float | None = None
) -> LossDesign:
    """Find the largest possible loss of each row; labels are not needed.

    Parameters
    ----------
    predictions : (n,) floats
    bounds : (lo, hi)
        Public range of a label.
    loss : {"squared", "absolute"}
    clip : float, optional
        The largest loss that counts, in units of the loss. Default: what the bounds allow.

    Examples
    --------
    >>> design = design_loss(np.array([1.0, 4.0]), bounds=(0.0, 4.0), loss="squared")
    >>> design.largest, (design.ranges * design.step).tolist()
    (16.0, [9.0, 16.0])
    """
    check_name("loss", loss, POWERS, BudgetError)
    if predictions.ndim != 1:
        raise BudgetError(
            "a private evaluation needs a model that predicts one number per row. For a label with "
            "classes, fit one of a single class with target=NAME (--target NAME)."
        )
    bad = np.flatnonzero(~np.isfinite(predictions))
    if bad.size:
        raise TableError(
            f"the model's prediction is not a finite number in {bad.size} row(s), the first being "
            f"row {bad[0] + 1} (counting from 1). Look for extreme features there."
        )
    if predictions.size > MOST_ROWS:
        raise BudgetError(f"more than {MOST_ROWS} rows would overflow the integer sum of losses.")
    low, high = bounds
    power = POWERS[loss]
    largest = (high - low) ** power
    if clip is not None:
        if isinstance(clip, bool) or not isinstance(clip, int | float | np.number) or not clip > 0:
            raise BudgetError(
                f"clip is the largest loss that counts, a number above 0, got {clip!r}. For "
                "squared loss it is the square of an error."
            )
        largest = min(largest, float(clip))
    if largest / LOSS_STEPS * LOSS_STEPS != largest:
        raise BoundsError("clip is so small that no grid fits below it. Use other units.")
    inside = np.clip(predictions, low, high)
    ranges = _whole_steps(np.maximum(inside - low, high - inside) ** power, largest)
    return LossDesign(inside, bounds, power, largest, ranges)


def release_mean_loss(
    labels: FloatArray, *, design: LossDesign, event: Mechanism, source: NoiseSource
) -> float:
    """Return the noisy mean loss, as `event` describes; it may fall below 0."""
    errors = np.abs(np.clip(labels, *design.bounds) - design.predictions)
    # Doubles may have rounded a loss beyond the range that the noise was set for.
    steps = np.clip(_whole_steps(errors**design.power, design.largest), 0, design.ranges)
    noisy = int(steps.sum(dtype=np.int64)) + int(event.noise.draw(1, source)[0])
    return event.grid_step * noisy / labels.size


def half_width(event: Mechanism, *, n_rows: int, level: float) -> float:
    """Return how far the noise moves a mean loss at most, with probability `level` or a bit more.

    Continuous Laplace noise exceeds ``scale * log(1 / (1 - level))`` with probability 1 - level;
    discrete noise can lie up to one step further out.
    """
    scale = event.number_sd / math.sqrt(2)
    return (scale * math.log(1 / (1 - level)) + event.grid_step) / n_rows


def sensitivities(
    *, bounds: Bounds, loss: str, largest: float, unit_rows: int
) -> tuple[float, float]:
    """Return how far the largest unit, of so many rows, moves summed losses: at least and at most.

    This holds whatever is predicted: a prediction is at least half the width from one bound.

    >>> sensitivities(bounds=(0.0, 4.0), loss="squared", largest=16.0, unit_rows=3)
    (12.0, 48.0)
    """
    least = min(largest, ((bounds[1] - bounds[0]) / 2) ** POWERS[loss])
    return unit_rows * least, unit_rows * largest


def _whole_steps(losses: FloatArray, largest: float) -> IntArray:
    """Return losses in whole steps, each capped at the largest possible loss."""
    return np.rint(np.minimum(losses, largest) / (largest / LOSS_STEPS)).astype(np.int64)
