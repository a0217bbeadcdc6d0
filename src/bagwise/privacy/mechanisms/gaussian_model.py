"""Gaussian noise on the statistics of a linear model; its coefficients are published."""

from typing import ClassVar

from bagwise.privacy.mechanisms.gaussian import GaussianNoise
from bagwise.privacy.mechanisms.mechanism import Hides
from bagwise.rows.labels import Bounds


class GaussianModel(GaussianNoise, frozen=True, tag="gaussian-model"):
    """Gaussian noise on ``sum_i b_i y_i``, whose columns b_i have the same length.

    Sensitivity: `private_model` rounds columns and labels to integers before they meet, and states
    the length that one label moves the rounded sum by; r labels move it r times as far.
    """

    hides: ClassVar[Hides] = "model"

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Labels of a unit may all move the statistics the same way."""
        return bounds is not None and self.sensitivity >= rows * (bounds[1] - bounds[0]) * (
            1 - 1e-9
        )
