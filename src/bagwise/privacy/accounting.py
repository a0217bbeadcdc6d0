"""From a list of mechanisms to delta(epsilon) and epsilon(delta).

Each mechanism brings its own curve, and `loss_distributions` composes any list of them. Where a
closed form is exact it is used: one mechanism, Gaussian noise only (Dong, Roth and Su 2022,
Corollary 3.3), picks after Gaussian scores (P2 on the theory page), and nothing at all where no
mechanism needs a delta and their epsilons add up to what is asked.

Composition is of mechanisms whose parameters were fixed in advance; what they look at may depend on
what was released before.
"""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from bagwise.errors import BudgetError
from bagwise.privacy.curves import (
    Curve,
    GaussianCurve,
    composed_delta,
    delta_at,
    grouped,
    least_epsilon,
)
from bagwise.privacy.loss_distributions import composed_delta_of, composed_epsilon_of
from bagwise.privacy.mechanisms import Mechanism, is_known

# An uninstructed reader wants the curve at points people talk about.
CURVE_EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

_FINE_FOR_GROUPS = 1e-6
"""Share by which the epsilon of a group may be too large: it is there to be read, in few digits."""


def gaussian_part(mechanisms: Sequence[Mechanism]) -> float:
    """Return the mu of all Gaussian noise together."""
    curves = [mechanism.curve for mechanism in mechanisms]
    return math.hypot(*(curve.mu for curve in curves if isinstance(curve, GaussianCurve)))


def total_delta(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """Return the delta of all mechanisms together at `epsilon`."""
    pure = pure_total(mechanisms)
    if pure is not None and math.isfinite(epsilon) and pure <= Fraction(epsilon):
        return 0.0
    exact = _closed_form(mechanisms, epsilon)
    if exact is not None:
        return exact
    composed = composed_delta_of([m.curve for m in for_units(mechanisms)], epsilon)
    return min(composed, _off_the_top(mechanisms, epsilon))


def pure_total(mechanisms: Sequence[Mechanism]) -> Fraction | None:
    """Return what all mechanisms cost together without a delta, exactly; None if one needs it."""
    pure = [mechanism.pure_epsilon for mechanism in for_units(mechanisms)]
    known = [one for one in pure if one is not None]
    return sum(known, Fraction(0)) if len(known) == len(pure) else None


def delivered(mechanisms: Sequence[Mechanism], epsilon: float, delta: float) -> tuple[float, float]:
    """Return the guarantee of mechanisms that were calibrated for (epsilon, delta).

    It has no delta if no mechanism needs one. Epsilon is their cost, rounded up to three digits,
    since noise on whole steps costs a little less than it may; never more than was asked.

    >>> from bagwise.privacy.mechanisms import noisy_choice
    >>> delivered([noisy_choice("range", 0.12341)], 1.0, 1e-6)
    (0.124, 0.0)
    """
    pure = pure_total(mechanisms)
    if pure is not None:
        if pure <= Fraction(epsilon):
            return min(epsilon, _rounded_up(pure)), 0.0
        return epsilon, delta
    if total_delta(mechanisms, 0.99 * epsilon) > delta:  # the usual case, at the price of one look
        return epsilon, delta
    return min(epsilon, _rounded_up(Fraction(total_epsilon(mechanisms, delta)))), delta


def _rounded_up(value: Fraction) -> float:
    """Return a double with three digits, or hardly more, that is not below a fraction."""
    near = float(value)
    rounded = float(
        Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(math.nextafter(near, 0.0)))
    )
    while Fraction(rounded) < value:
        rounded = math.nextafter(rounded, math.inf)
    return rounded


def _closed_form(mechanisms: Sequence[Mechanism], epsilon: float) -> float | None:
    """Return delta if a formula gives it: for one curve, Gaussian noise, or picks after scores."""
    picks = [m for m in mechanisms if m.extremes is not None]
    others = [m for m in mechanisms if m.extremes is None]
    gaussian = all(isinstance(m.curve, GaussianCurve) for m in others)
    if len(picks) == 1 and gaussian and others:
        # Scores decide which size a row gets, so the worst size may differ from score to score. The
        # curve grows with mu and falls with the size: the extremes of both bound it everywhere.
        mu_scores, (mu, size) = gaussian_part(others), picks[0].extremes or (0.0, 1)
        one = partial(composed_delta, mu_scores=mu_scores, mu_pick=mu, size=size)
        return delta_at(grouped(_curve_of(one), picks[0].unit_rows), epsilon)
    if len(mechanisms) == 1 or (gaussian and not picks):
        return composed_delta_of([m.curve for m in mechanisms], epsilon)
    return None


def for_units(mechanisms: Sequence[Mechanism]) -> list[Mechanism]:
    """Return the equivalent of each mechanism for a protected unit; refuse those of others.

    Where picks bring the bound for groups, scores were set for single rows (`calibrate`).
    """
    for mechanism in mechanisms:
        if not is_known(mechanism):
            raise BudgetError(f"no accounting for event {type(mechanism).__name__}.")
    rows = max((m.unit_rows for m in mechanisms if m.query.bounds_groups), default=1)
    return [m.widened(rows) if m.hides in ("labels", "model") else m for m in mechanisms]


def _off_the_top(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """Bound delta by taking pure epsilons off: they change likelihoods by e^epsilon at most."""
    units = for_units(mechanisms)
    pure = [m for m in units if m.pure_epsilon is not None]
    # Gaussian picks bring the bound for groups for the scores before them; others do not.
    by_rows = any(m.extremes is not None for m in mechanisms)
    rest = [m for m in (mechanisms if by_rows else units) if m.pure_epsilon is None]
    if not rest:  # the last one may keep its own curve
        pure, rest = pure[:-1], pure[-1:]
    spent = math.fsum(float(m.pure_epsilon or 0) for m in pure)
    found = _closed_form(rest, epsilon - spent)
    return math.inf if found is None else found


def total_epsilon(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Return the epsilon of all mechanisms together at `delta`."""
    if delta == 0 and (pure := pure_total(mechanisms)) is not None:
        near = float(pure)
        return near if Fraction(near) >= pure else math.nextafter(near, math.inf)
    return least_epsilon(lambda epsilon: total_delta(mechanisms, epsilon), delta)


def epsilon_of_releases(releases: Sequence[Sequence[Mechanism]], delta: float) -> float:
    """Return the epsilon of several releases of one table together, each with its mechanisms.

    Guarantee: an upper bound if all parameters were fixed in advance. Which rows of a unit a
    mechanism allows for is a matter of its own release, so that each is widened with its own.

    >>> from bagwise.privacy.mechanisms import noisy_choice
    >>> epsilon_of_releases([[noisy_choice("range", e)] for e in (0.5, 0.25)], 0.0)
    0.75
    """
    spending = [events for events in releases if events]
    if delta == 0:  # said of nothing that needs a delta, however small it is
        pure = [pure_total(events) for events in spending]
        known = [one for one in pure if one is not None]
        return float(sum(known)) if len(known) == len(pure) else math.inf
    if len(spending) == 1:
        return total_epsilon(spending[0], delta)
    units = [mechanism for events in spending for mechanism in for_units(events)]
    return composed_epsilon_of([mechanism.curve for mechanism in units], delta)


# A certificate is written, read and compared by these numbers, several times over in one run.
@lru_cache(maxsize=256)
def privacy_curve(mechanisms: tuple[Mechanism, ...]) -> tuple[tuple[float, float], ...]:
    """Return (epsilon, delta) at a dozen points."""
    return tuple((epsilon, total_delta(mechanisms, epsilon)) for epsilon in CURVE_EPSILONS)


@lru_cache(maxsize=256)
def group_epsilon(mechanisms: tuple[Mechanism, ...], delta: float, rows: int) -> float:
    """Return an epsilon for the labels of `rows` units together, at `delta`.

    Exact for Gaussian and Laplace noise, where `rows` labels move the hidden value at most `rows`
    times as far. For picks and staircases by the general bound: (epsilon, delta) for one row is
    (rows * epsilon, delta * (e^(rows*epsilon) - 1) / (e^epsilon - 1)) for `rows` of them.
    """
    if any(mechanism.query.bounds_groups for mechanism in mechanisms):
        together = grouped(_curve_of(partial(total_delta, mechanisms)), rows)
        return least_epsilon(partial(delta_at, together), delta, precision=_FINE_FOR_GROUPS)
    widened = [mechanism.widened(rows) for mechanism in mechanisms]
    if delta == 0 and pure_total(widened) is not None:
        return total_epsilon(widened, delta)
    return least_epsilon(partial(total_delta, widened), delta, precision=_FINE_FOR_GROUPS)


def _curve_of(one: Callable[[float], float]) -> Curve:
    """Return the curve of a function that knows delta at one epsilon."""
    return np.vectorize(one, otypes=[float])
