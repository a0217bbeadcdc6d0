"""The public grid on which labels, losses and noise are whole numbers.

Floating-point noise leaks: which of the 2**64 doubles can come out depends on the value that is
hidden (Mironov 2012). So labels are rounded to whole steps between their bounds, added up as
integers, and integer noise is added to the integer sum. Only then is anything divided.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BoundsError
from bagwise.rows.labels import Bounds

LABEL_STEPS = 2**18
"""Whole steps between the bounds. Rounding a label moves it by 2e-6 of the range at most, far below
the noise of any meaningful epsilon, and sums of 2**44 labels still fit 64 bits."""

LOSS_STEPS = 2**24
"""Whole steps between no loss and the largest. Finer than labels, since the squared loss of a good
model is a small part of the largest, and sums of 2**38 losses still fit 64 bits."""


_AT_ONCE = 2**20  # labels


def grid_step(bounds: Bounds) -> float:
    """Return the width of one step; exact, since the number of steps is a power of two."""
    low, high = bounds
    step = (high - low) / LABEL_STEPS
    if step * LABEL_STEPS != high - low:
        raise BoundsError(f"bounds ({low:g}, {high:g}) are too narrow to put a grid between them.")
    return step


def labels_to_steps(labels: FloatArray, *, bounds: Bounds, step: float) -> IntArray:
    """Return each label, clipped to the bounds, as a whole number of steps above the lower one."""
    low, high = bounds
    steps = np.empty(labels.shape, dtype=np.int64)
    for first in range(0, labels.shape[0], _AT_ONCE):  # all at once would need four copies
        part = slice(first, first + _AT_ONCE)
        steps[part] = np.rint((np.clip(labels[part], low, high) - low) / step)
    # Rounding in the division must not widen the range that the noise was set for.
    return np.clip(steps, 0, round((high - low) / step), out=steps)


def one_hot(codes: IntArray, classes: int) -> IntArray:
    """Return 1 in the column of each row's class, (n, classes)."""
    return np.asarray(codes[:, None] == np.arange(classes)).astype(np.int64)
