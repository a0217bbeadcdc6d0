"""Noise that keeps its promise on a real computer.

Floating-point Gaussians leak: which of the 2**64 doubles can come out depends on the value that is
hidden (Mironov 2012). So labels are rounded to whole steps of a public grid, added up as integers,
and a discrete Gaussian (Canonne, Kamath and Steinke 2020) is added to the integer sum by OpenDP's
vetted sampler, seeded by the operating system. Only then is anything divided.

At the scales used here, at least hundreds of steps, the curve of the discrete Gaussian and the
continuous one agree to far more digits than a certificate prints; the tests measure the gap.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bags import Bags
from bagwise.errors import BudgetError, MissingExtraError
from bagwise.privacy.events import GaussianBagMeans
from bagwise.table import Bounds

NOISE_SOURCE = "OpenDP discrete Gaussian"

_SMALLEST_SCALE = 100  # in steps; below, the discrete and continuous curves begin to differ
_LARGEST_SCALE = 2**50  # in steps; above, sums and noise might not fit 64 bits


def private_bag_means(
    labels: FloatArray, bags: Bags, *, bounds: Bounds, event: GaussianBagMeans
) -> FloatArray:
    """Return the noisy mean of each bag, as `event` describes. Labels are clipped to the bounds."""
    steps = labels_to_steps(labels, bounds=bounds, step=event.grid_step)
    sums = bags.sum(steps)
    noisy = add_discrete_gaussian(sums, scale=round(event.noise_scale / event.grid_step))
    return bounds[0] + event.grid_step * noisy / bags.sizes


def labels_to_steps(labels: FloatArray, *, bounds: Bounds, step: float) -> IntArray:
    """Return each label, clipped to the bounds, as a whole number of steps above the lower one."""
    low, high = bounds
    steps = np.rint((np.clip(labels, low, high) - low) / step).astype(np.int64)
    # Rounding in the division must not widen the range that the noise was set for.
    clipped: IntArray = np.clip(steps, 0, round((high - low) / step))
    return clipped


def add_discrete_gaussian(values: IntArray, *, scale: int) -> IntArray:
    """Add independent discrete Gaussian noise of standard deviation `scale` to integers."""
    if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise BudgetError(
            f"a noise scale of {scale} grid steps cannot be drawn safely. "
            "Choose a more usual epsilon and delta."
        )
    try:
        # Not opendp.prelude, which imports ten times as much.
        from opendp.domains import atom_domain, vector_domain  # noqa: PLC0415
        from opendp.measurements import make_gaussian  # noqa: PLC0415
        from opendp.metrics import l2_distance  # noqa: PLC0415
        from opendp.mod import enable_features  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("noise for a private release", "opendp") from None
    enable_features("contrib")
    mechanism = make_gaussian(
        vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=float(scale)
    )
    return np.asarray(mechanism(np.ascontiguousarray(values, dtype=np.int64)), dtype=np.int64)
