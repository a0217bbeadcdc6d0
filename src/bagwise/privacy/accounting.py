"""From events to (epsilon, delta), by the exact curve of the Gaussian mechanism.

A Gaussian mechanism is described by one number, ``mu = sensitivity / standard deviation``; several
that act on the same labels compose to ``hypot(mu_1, mu_2, …)``.

References
----------
Balle and Wang (2018), Theorem 8, for the curve; Dong, Roth and Su (2022), Corollary 3.3, for the
composition. They replace the constants of Thms 4 and 5, which are too small (erratum E1).
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from bagwise.errors import BudgetError
from bagwise.privacy.events import Event, GaussianBagMeans

# Outside this range noise could not be drawn in 64 bits, or would hardly be noise.
_SMALLEST_MU, _LARGEST_MU = 1e-9, 1e3


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which a mu-Gaussian mechanism is (epsilon, delta)-private.

    Guarantee: exact, ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, for every
    real epsilon; computed in logarithms, so that small values keep their digits.

    >>> round(gaussian_delta(1.0, 0.5), 12)
    0.006829594983
    """
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(upper) * -math.expm1(min(0.0, lower - upper))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian mechanism is (epsilon, delta)-private.

    Guarantee: on the private side, ``gaussian_delta(epsilon, result) <= delta``.

    >>> round(gaussian_mu(1.0, 1e-5), 10)
    0.2680511232
    """
    check_budget(epsilon, delta)

    def excess(log_mu: float) -> float:
        value = gaussian_delta(epsilon, math.exp(log_mu))
        return (math.log(value) if value > 0 else -1e4) - math.log(delta)

    low, high = math.log(_SMALLEST_MU), math.log(_LARGEST_MU)
    if excess(low) > 0:
        raise BudgetError(
            f"epsilon {epsilon:g} with delta {delta:g} is too small to calibrate noise for."
        )
    if excess(high) <= 0:
        raise BudgetError(
            f"epsilon {epsilon:g} with delta {delta:g} asks for hardly any noise. Lower it."
        )
    mu = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16))
    while gaussian_delta(epsilon, mu) > delta:  # the root search may end on either side
        mu *= 1 - 1e-14
    return mu


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon >= 0 at which a mu-Gaussian mechanism is (epsilon, delta)-private.

    >>> round(gaussian_epsilon(1e-5, gaussian_mu(1.0, 1e-5)), 9)
    1.0
    """
    if not 0 < delta < 1:
        raise BudgetError(f"delta must be between 0 and 1, got {delta:g}.")
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    epsilon = float(brentq(lambda e: gaussian_delta(e, mu) - delta, 0.0, high, xtol=1e-14))
    while gaussian_delta(epsilon, mu) > delta:
        epsilon += 1e-14 * max(1.0, epsilon)
    return epsilon


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse an (epsilon, delta) that no Gaussian noise can meet."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise BudgetError(f"{name} must be a number, got {value!r}.")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BudgetError(f"epsilon must be a positive finite number, got {epsilon:g}.")
    if not 0 <= delta < 1:
        raise BudgetError(f"delta must be at least 0 and below 1, got {delta:g}.")
    if delta == 0:
        raise BudgetError(
            "delta = 0 asks for Laplace noise, which this version does not offer. "
            "Give a small positive delta, below 1/n, for example 1e-6."
        )


def total_mu(events: Sequence[Event]) -> float:
    """Return the mu of all events together."""
    return math.hypot(*(_mu(event) for event in events))


def total_delta(events: Sequence[Event], epsilon: float) -> float:
    """Return the delta of all events together at `epsilon`."""
    return gaussian_delta(epsilon, total_mu(events))


def total_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the epsilon of all events together at `delta`."""
    return gaussian_epsilon(delta, total_mu(events))


def _mu(event: Event) -> float:
    # A label is in one bag only, so all bags together cost what the worst one costs, not the sum;
    # one noise scale on every sum means that they all cost the same.
    if isinstance(event, GaussianBagMeans):
        return event.sensitivity / event.noise_scale
    raise BudgetError(f"no accounting for event {type(event).__name__}.")
