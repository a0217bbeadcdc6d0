"""From (epsilon, delta) to noise: the events that will be carried out."""

import math

from bagwise.errors import BoundsError, BudgetError
from bagwise.privacy.accounting import gaussian_mu, total_delta
from bagwise.privacy.events import GaussianBagMeans
from bagwise.table import Bounds

LABEL_STEPS = 2**18
"""Whole steps between the bounds. Rounding a label moves it by 2e-6 of the range at most, far below
the noise of any meaningful epsilon, and sums of 2**44 labels still fit 64 bits."""


def calibrate_bag_means(bounds: Bounds, *, epsilon: float, delta: float) -> GaussianBagMeans:
    """Return the least noise on bag sums that makes their means (epsilon, delta)-private.

    Guarantee: the delivered delta at `epsilon` is at most `delta`; the scale is rounded up to a
    whole number of grid steps. The noise of a bag's mean is this divided by the bag's own size.

    References
    ----------
    Thm 5 (thm:bag-llp-loss-priv). Status: corrected, E1; its noise is short by a factor of 2 in
    variance, and the formula it rests on is not proved beyond epsilon = 1.
    """
    low, high = bounds
    step = (high - low) / LABEL_STEPS  # exact: the number of steps is a power of two
    if step * LABEL_STEPS != high - low:
        raise BoundsError(f"bounds ({low:g}, {high:g}) are too narrow to put a grid between them.")
    scale_in_steps = math.ceil(LABEL_STEPS / gaussian_mu(epsilon, delta))
    event = GaussianBagMeans(
        sensitivity=LABEL_STEPS * step, noise_scale=scale_in_steps * step, grid_step=step
    )
    if total_delta([event], epsilon) > delta:
        raise BudgetError("calibration ended on the wrong side of the budget; please report this.")
    return event
