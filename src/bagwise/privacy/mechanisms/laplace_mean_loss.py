"""Laplace noise on the summed losses of a model on rows, then divided by their number."""

import math
from typing import ClassVar

from bagwise.errors import CertificateError
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.mechanisms.laplace import LaplaceNoise
from bagwise.privacy.mechanisms.mechanism import Hides, impossible, is_whole
from bagwise.rows.labels import Bounds


class LaplaceMeanLoss(LaplaceNoise, frozen=True, tag="laplace-mean-loss"):
    """Laplace noise on a mean loss.

    All three numbers are in units of the loss, and `LOSS_STEPS` grid steps are the largest that a
    row counts with. Sensitivity: `private_loss` adds up what each row of a unit can lose at most.
    """

    hides: ClassVar[Hides] = "mean loss"

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no loss within these bounds could have."""
        values = (self.sensitivity, self.noise_scale, self.grid_step)
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise impossible(self.kind)
        if bounds is None:
            raise CertificateError("the certificate has an event and no bounds.")
        width, largest = bounds[1] - bounds[0], self.grid_step * LOSS_STEPS
        # The largest loss may have been set anywhere below the one that the bounds allow.
        on_grid = largest <= max(width, width**2) * (1 + 1e-9)
        if not on_grid or not all(is_whole(value / self.grid_step) for value in values[:2]):
            raise CertificateError(f"event {self.kind!r} is not on the grid of its bounds.")
        if not self.allows_units(1, bounds):
            raise CertificateError(f"event {self.kind!r} does not fit the bounds.")

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:  # noqa: ARG002
        """Tell by the least that rows can lose, whatever is predicted (`private_loss`).

        A prediction has a bound at least half the width away: a quarter of the largest square.
        """
        return self.sensitivity >= rows * self.grid_step * LOSS_STEPS / 4 * (1 - 1e-12)
