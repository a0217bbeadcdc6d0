"""Laplace noise on every label; the noisy labels then decide which rows share a bag."""

from typing import ClassVar

from bagwise.privacy.mechanisms.laplace import LaplaceNoise, allows_rows
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.rows.labels import Bounds


class LaplaceLabels(LaplaceNoise, frozen=True, tag="laplace-labels"):
    """Laplace noise on every label.

    Sensitivity: the r labels of a unit move by the width of the bounds each, so by r times it in
    L1. What is done with noisy labels is post-processing.
    """

    hides: ClassVar[Hides] = "labels"

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Each label of a unit counts in full."""
        return allows_rows(self, rows, bounds)
