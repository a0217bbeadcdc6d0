"""Laplace noise on the statistics of a linear model; its coefficients are published."""

from typing import ClassVar

from bagwise.privacy.mechanisms.laplace import LaplaceNoise, allows_rows
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.rows.labels import Bounds


class LaplaceModel(LaplaceNoise, frozen=True, tag="laplace-model"):
    """Laplace noise on ``sum_i b_i y_i``, whose columns b_i have the same length in L1.

    Sensitivity: `private_model` rounds columns and labels to integers before they meet, and states
    how far one label moves the rounded sum in L1; r labels move it r times as far. It needs no
    delta.
    """

    hides: ClassVar[Hides] = "model"

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Labels of a unit may all move the statistics the same way."""
        return allows_rows(self, rows, bounds)
