"""From a list of events to delta(epsilon) and epsilon(delta).

Gaussian events compose exactly, ``mu = hypot(mu_1, mu_2, …)`` (Dong, Roth and Su 2022, Corollary
3.3). At most one event may be picks, after any Gaussian ones (P2). Laplace noise on bag means
stands alone. A noisy choice, such as private bounds, randomised response, and a mean loss beside
anything else take their epsilon off the top. Anything else is refused: a combination nobody has
worked out gets no certificate.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np

from bagwise.errors import BudgetError
from bagwise.privacy.curves import (
    composed_delta,
    gaussian_delta,
    laplace_delta,
    least_epsilon,
    worst_pick_delta,
)
from bagwise.privacy.events import (
    Event,
    GaussianBagMeans,
    GaussianLabels,
    GaussianModel,
    LaplaceBagMeans,
    LaplaceMeanLoss,
    NoisyChoice,
    PickedLabels,
    RandomisedPicks,
)

# An uninstructed reader wants the curve at points people talk about.
CURVE_EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def gaussian_part(events: Sequence[Event]) -> float:
    """Return the mu of all Gaussian events together."""
    gaussian = (GaussianLabels, GaussianModel, GaussianBagMeans)
    return math.hypot(
        *(event.sensitivity / event.noise_scale for event in events if isinstance(event, gaussian))
    )


def total_delta(events: Sequence[Event], epsilon: float) -> float:
    """Return the delta of all events together at `epsilon`."""
    for event in events:
        if not isinstance(event, get_args(Event)):
            raise BudgetError(f"no accounting for event {type(event).__name__}.")
    rest = [event for event in events if not isinstance(event, NoisyChoice | RandomisedPicks)]
    if len(rest) > 1:  # on its own a mean loss has an exact curve; beside others its epsilon counts
        rest = [event for event in rest if not isinstance(event, LaplaceMeanLoss)]
    pure = math.fsum(pure_epsilon(event) for event in events if event not in rest)
    if not rest:
        # The worst pure mechanism is a coin that lies with probability 1 / (1 + e^pure).
        return -math.expm1(min(0.0, epsilon - pure)) / (1 + math.exp(-pure))
    # Pure events change likelihoods by e^pure at most; the rest has to make do with epsilon - pure.
    return _noise_delta(rest, epsilon - pure)


def pure_epsilon(event: Event) -> float:
    """Return the epsilon of an event that needs no delta; 0 for the others.

    A class that is kept with probability p or replaced by one of c - 1 others has the epsilon
    ``log(p (c - 1) / (1 - p))``. Picking its row in secret among `size` brings that down to
    ``log(1 + (e^epsilon - 1) / size)``: attained when all other rows of the bag agree. A mean loss
    has the epsilon ``sensitivity / scale`` of its Laplace noise.
    """
    if isinstance(event, NoisyChoice):
        return event.epsilon
    if isinstance(event, RandomisedPicks):
        return event.rows * max(
            math.log1p((keep * (event.classes - 1) / (1 - keep) - 1) / size)
            for size, keep in event.keeps
        )
    if isinstance(event, LaplaceMeanLoss):
        shift, scale = _shift_and_scale(event)
        return shift / scale
    return 0.0


def _noise_delta(events: Sequence[Event], epsilon: float) -> float:
    picks = [event for event in events if isinstance(event, PickedLabels)]
    laplace = [event for event in events if isinstance(event, LaplaceBagMeans | LaplaceMeanLoss)]
    if laplace:
        if len(events) > 1:
            raise BudgetError("Laplace noise is accounted for only on its own.")
        shift, scale = _shift_and_scale(laplace[0])
        return laplace_delta(epsilon, shift=shift, scale=scale)
    if len(picks) > 1:
        raise BudgetError("several picks from the same labels are not accounted for.")
    mu = gaussian_part(events)
    if not picks:
        return gaussian_delta(epsilon, mu)
    return group_delta(lambda e: _picks_delta(picks[0], e, mu), epsilon, picks[0].rows)


def total_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the epsilon of all events together at `delta`."""
    return least_epsilon(lambda epsilon: total_delta(events, epsilon), delta)


def privacy_curve(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Return (epsilon, delta) at a dozen points."""
    return [(epsilon, total_delta(events, epsilon)) for epsilon in CURVE_EPSILONS]


def group_epsilon(events: Sequence[Event], delta: float, rows: int) -> float:
    """Return an epsilon for the labels of `rows` rows together, at `delta`.

    Exact for Gaussian and Laplace noise, where `rows` labels move the hidden value at most `rows`
    times as far. For picks by the general bound: (epsilon, delta) for one row is
    (rows * epsilon, delta * (e^(rows*epsilon) - 1) / (e^epsilon - 1)) for `rows` of them.
    """
    if not any(isinstance(event, PickedLabels) for event in events):
        return total_epsilon([_widened(event, rows) for event in events], delta)

    def curve(epsilon: float) -> float:
        return group_delta(lambda e: total_delta(events, e), epsilon, rows)

    return least_epsilon(curve, delta)


def group_delta(curve: Callable[[float], float], epsilon: float, rows: int) -> float:
    """Return the delta for `rows` rows together, from the curve for one of them."""
    if rows == 1:
        return curve(epsilon)
    if epsilon < 0:  # exchange the two data sets, as in the curves themselves
        return -math.expm1(epsilon) + math.exp(epsilon) * group_delta(curve, -epsilon, rows)
    if epsilon == 0:
        return min(1.0, rows * curve(0.0))
    # In logarithms: the growth overflows where the delta of one row is 0 anyway.
    one = curve(epsilon / rows)
    if one <= 0:
        return 0.0
    growth = _log_expm1(epsilon) - _log_expm1(epsilon / rows)
    return math.exp(min(0.0, math.log(one) + growth))


def _log_expm1(x: float) -> float:
    """Return log(e^x - 1) without overflow."""
    return x + math.log(-math.expm1(-x))


def _picks_delta(event: PickedLabels, epsilon: float, mu_scores: float) -> float:
    # A label is in one bag only, so all bags together cost what the worst one costs, not the sum.
    if mu_scores == 0:
        sizes, scales = np.array(event.scales).T
        return worst_pick_delta(epsilon, event.sensitivity / scales, sizes)
    # Scores decide which size a row gets, so the worst size may differ from score to score. The
    # curve grows with mu and falls with the size: the extremes of both bound it everywhere.
    largest_mu = max(event.sensitivity / scale for _, scale in event.scales)
    smallest = min(size for size, _ in event.scales)
    return composed_delta(epsilon, mu_scores, largest_mu, smallest)


def _shift_and_scale(event: LaplaceBagMeans | LaplaceMeanLoss) -> tuple[int, int]:
    """Return the sensitivity and the noise scale as the whole numbers of grid steps they are."""
    return round(event.sensitivity / event.grid_step), round(event.noise_scale / event.grid_step)


def _widened(event: Event, rows: int) -> Event:
    if isinstance(event, PickedLabels):
        raise BudgetError("picks have no widened form.")
    if isinstance(event, NoisyChoice):
        return NoisyChoice(event.epsilon * rows, event.rows * rows)
    if isinstance(event, RandomisedPicks):
        return dataclasses.replace(event, rows=event.rows * rows)
    return type(event)(event.sensitivity * rows, event.noise_scale, event.grid_step)
