"""How much each bag's label can be trusted, from what is known about its noise.

A bag's label varies by ``omega = share * sigma^2 + noise_sd^2``: the noise of its rows' labels,
averaged over the bag (share = 1/size for a mean, 1 for a pick), and the privacy noise. The best
linear estimate weights bags by 1/omega. The privacy noise is published; sigma^2 is estimated.

References
----------
Generalised least squares, F4 of the theory page.
"""

import numpy as np
from scipy.optimize import minimize_scalar

from bagwise._types import FloatArray


def bag_variance(share: FloatArray, noise_sd: FloatArray, label_variance: float) -> FloatArray:
    """Return omega for each bag."""
    return share * label_variance + noise_sd**2


def estimate_label_variance(
    residuals: FloatArray, share: FloatArray, noise_sd: FloatArray, *, n_parameters: int
) -> float:
    """Estimate sigma^2 >= 0 from bag residuals by maximum likelihood, given the privacy noise.

    Residuals are inflated by m / (m - p) for the p fitted parameters.
    """
    freedom = max(1, residuals.size - n_parameters)
    squares = residuals**2 * (residuals.size / freedom)
    largest = float(np.max(squares / share))
    if largest == 0.0:
        return 0.0
    if not noise_sd.any():
        return float(np.mean(squares / share))

    def minus_log_likelihood(log_variance: float) -> float:
        omega = bag_variance(share, noise_sd, np.exp(log_variance))
        return float(np.sum(np.log(omega) + squares / omega))

    high = np.log(largest)
    best = minimize_scalar(minus_log_likelihood, bounds=(high - 40, high), method="bounded")
    return float(np.exp(best.x))
