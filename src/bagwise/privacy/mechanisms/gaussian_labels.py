"""Gaussian noise on every label; the noisy labels then decide which rows share a bag."""

import math
from typing import ClassVar

from bagwise.privacy.mechanisms.gaussian import GaussianNoise
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.rows.labels import Bounds


class GaussianLabels(GaussianNoise, frozen=True, tag="gaussian-labels"):
    """Gaussian noise on every label.

    Sensitivity: the r labels of a unit move by the width of the bounds each, so by root r times it
    in length. What is done with noisy labels is post-processing.
    """

    hides: ClassVar[Hides] = "labels"

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Labels of a unit move apart: their number counts by its root."""
        return allows_root(self, rows, bounds)


def allows_root(mechanism: GaussianNoise, rows: int, bounds: Bounds | None) -> bool:
    """Tell whether noise allows for `rows` numbers that each move by the width of the bounds."""
    if bounds is None:
        return False
    return mechanism.sensitivity >= math.sqrt(rows) * (bounds[1] - bounds[0]) * (1 - 1e-9)
