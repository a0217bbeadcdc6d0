"""Privacy filters: whether a request fits a budget if it may depend on earlier releases.

`accounting` adds up mechanisms whose parameters were fixed in advance. Requests that come one after
the other are not: whoever read the first release may ask for the second one because of what it
said. A *privacy filter* (Rogers, Roth, Ullman and Vadhan 2016) decides about each request before it
is answered, by what it and those before it cost, and promises (epsilon, delta) for all of them
together, however they were chosen.

**Why sums do.** Let each request, given all that came before it, cost at most ``b_i`` in a measure
in which costs of independent releases add up, and let the sum of what is answered never exceed B.
Then all together cost at most B. By induction on the number of requests: the first one's cost is
known before anything is read, so that B minus it is a constant, and whatever came out, the rest
costs at most that; both compose. Measures with that property are

=========  ================================  =====================================================
measure    what adds up                      from B to (epsilon, delta)
=========  ================================  =====================================================
pure       epsilon                           (B, 0)
gaussian   mu squared of Gaussian DP         the curve of Gaussian noise (Dong, Roth and Su 2022);
                                             adaptively by Smith and Thakurta 2022, and Koskela,
                                             Tobaben and Honkela 2023
renyi      the Rényi divergence of one       Canonne, Kamath and Steinke 2020, Proposition 12;
           order                             adaptively by Feldman and Zrnic 2021
=========  ================================  =====================================================

**Why several at once.** A request is answered if *any* of them allows it. Where a history fits the
pure measure, no outcome has a loss above epsilon, so it adds nothing to delta. Any other history
that was answered fits the Gaussian or the Rényi measure from its first to its last request, since
sums only grow; so it occurs under that filter alone as well, and what both add to delta is at most
the sum of their deltas. Each gets half. The order of the Rényi measure is fixed by the budget.
A first request may have the whole delta by its own curve: nothing was read before it, and if
neither half allows it, then no later one fits. `docs/ledger/filter.md` has the proofs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from operator import attrgetter

import numpy as np
from scipy.special import ndtri

from bagwise.privacy.accounting import for_units, pure_total, total_epsilon
from bagwise.privacy.curves import (
    Curve,
    GaussianCurve,
    check_delta,
    check_epsilon,
    delta_at,
    gaussian_epsilon,
    least_epsilon,
)
from bagwise.privacy.loss_distributions import LossDistribution
from bagwise.privacy.mechanisms import Mechanism

TOLERANCE = 1e-9
"""Budgets are compared to nine digits: ten requests of 0.1 fit into 1, whatever doubles make of it.
"""

_HALF = 0.5  # of delta, for the Gaussian and for the Rényi measure
_BEYOND = 1e-6  # of the Rényi half, for losses that are beyond every grid
_POINTS = 4096  # of a curve on either side of 0, for its Rényi divergence
_UPWARDS = 1 + 1e-12  # more than what a handful of roundings take away


@dataclass(frozen=True)
class Cost:
    """What the mechanisms of one release cost a protected unit, in each measure that adds up."""

    pure: Fraction | None  # epsilon without a delta; None if there is none
    mu_square: float | None  # of a Gaussian mechanism that is no more private; None if every one is
    renyi: float  # Rényi divergence of the filter's order, for all losses but those beyond
    beyond: float  # chance of a loss that is counted as infinite
    events: tuple[Mechanism, ...] = ()  # the mechanisms behind the cost, if they are known

    def alone(self, delta: float) -> float:
        """Return the epsilon at `delta` if nothing else is ever released."""
        if delta > 0 and self.events:
            return total_epsilon(self.events, delta)
        if self.pure is not None:
            return float(self.pure)
        # Without a delta nothing is promised, also where doubles are too coarse to tell.
        known = delta > 0 and self.mu_square is not None
        return gaussian_epsilon(delta, math.sqrt(self.mu_square or 0.0)) if known else math.inf

    def covers(self, other: "Cost") -> bool:
        """Return whether this is at least as large in every measure.

        >>> pair = [Cost.of_pure(epsilon, order=8.0) for epsilon in (1.0, 0.9)]
        >>> pair[0].covers(pair[1]), pair[1].covers(pair[0])
        (True, False)
        """
        measures = attrgetter("pure", "mu_square", "renyi", "beyond")
        return all(
            mine is None or (theirs is not None and float(theirs) <= float(mine) * (1 + TOLERANCE))
            for mine, theirs in zip(measures(self), measures(other), strict=True)
        )

    @classmethod
    def of(cls, events: Sequence[Mechanism], *, order: float) -> "Cost":
        """Return what the mechanisms of one release cost together."""
        return _cost_of(tuple(events), order)

    @classmethod
    def of_pure(cls, epsilon: float, *, order: float) -> "Cost":
        """Return the cost of anything that is private without a delta."""
        return cls(Fraction(epsilon), pure_mu(epsilon) ** 2, pure_renyi(epsilon, order=order), 0.0)

    @classmethod
    def of_gaussian(cls, mu: float, *, order: float) -> "Cost":
        """Return the cost of Gaussian noise."""
        return cls(None, mu**2, order * mu**2 / 2, 0.0)


def pure_mu(epsilon: float) -> float:
    """Return the mu of Gaussian noise that is no more private than an epsilon-private mechanism.

    The worst epsilon-private mechanism is a coin that lies with probability 1 / (1 + e^epsilon)
    (Kairouz, Oh and Viswanath 2015). Its trade-off between the errors of a test is two straight
    lines that meet where both are that probability; the convex one of Gaussian noise ends where
    they do, so it is below if it is below there: ``Phi(-mu/2) <= 1 / (1 + e^epsilon)``.

    >>> round(pure_mu(1.0), 6)
    1.232035
    """
    # log-odds to normal quantiles; the lie is far from 0 for any epsilon that is allowed here.
    if epsilon > 30:  # where 1 / (1 + e^epsilon) is e^-epsilon to the last digit
        return math.inf if epsilon > 700 else float(-2 * ndtri(math.exp(-epsilon))) * _UPWARDS
    return float(-2 * ndtri(1 / (1 + math.exp(epsilon)))) * _UPWARDS + 1e-15


def pure_renyi(epsilon: float, *, order: float) -> float:
    """Return the largest Rényi divergence that an epsilon-private mechanism can have.

    That of the lying coin, and at most ``order epsilon^2 / 2`` (Bun and Steinke 2016, Proposition
    3.3), which small epsilons take, since the coin's formula loses their digits.

    >>> round(pure_renyi(1.0, order=2.0), 6), round(pure_renyi(0.001, order=2.0), 12)
    (0.735326, 1e-06)
    """
    simple = order * epsilon**2 / 2
    if epsilon <= 1e-3:
        return simple
    moment = np.logaddexp(epsilon * order, epsilon * (1 - order)) - np.logaddexp(0.0, epsilon)
    return min(simple, epsilon, float(moment) / (order - 1) * _UPWARDS + 1e-15)


@lru_cache(maxsize=256)
def curve_renyi(curve: Curve, order: float) -> tuple[float, float]:
    """Return the Rényi divergence of a privacy curve, and the chance of losses beyond it.

    A Rényi divergence is an average of values of the curve in both directions (Sason and Verdú
    2016), so that a curve above has a larger one: straight lines between points of this one do.
    """
    if isinstance(curve, GaussianCurve):
        return order * curve.mu**2 / 2, 0.0
    end = least_epsilon(partial(delta_at, curve), 1e-40)
    if not math.isfinite(end):
        return math.inf, 1.0
    found = LossDistribution.from_curve(curve, step=max(end, 1e-12) / _POINTS)
    return found.log_moment(order - 1) / (order - 1) * _UPWARDS + 1e-15, found.infinite


@lru_cache(maxsize=1024)
def _cost_of(events: tuple[Mechanism, ...], order: float) -> Cost:
    squares: list[float | None] = []
    renyi = beyond = 0.0
    for event in for_units(events):
        pure, curve = event.pure_epsilon, event.curve
        divergence, infinite = curve_renyi(curve, order)
        if pure is not None and (known := pure_renyi(float(pure), order=order)) <= divergence:
            divergence, infinite = known, 0.0
        renyi, beyond = renyi + divergence, beyond + infinite
        if isinstance(curve, GaussianCurve):
            squares.append(curve.mu**2)
        else:
            squares.append(None if pure is None else pure_mu(float(pure)) ** 2)
    gaussian = [square for square in squares if square is not None]
    whole = math.fsum(gaussian) if len(gaussian) == len(squares) else None
    return Cost(pure_total(events), whole, renyi, beyond, events)


@dataclass(frozen=True)
class PrivacyFilter:
    """A budget for requests that may depend on what came before.

    Attributes
    ----------
    epsilon, delta : float
        What all admitted releases may cost together.

    Guarantee
    ---------
    If each release is made only where `admits` is true of the costs of all releases so far and of
    its own, then all of them together are (epsilon, delta)-differentially private, however their
    parameters were chosen.

    Examples
    --------
    >>> budget = PrivacyFilter(1.0, 1e-6)
    >>> half = Cost.of_pure(0.5, order=budget.order)
    >>> budget.admits([half, half]), budget.admits([half, half, half])
    (True, False)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @cached_property
    def order(self) -> float:
        """The order of the Rényi measure: where the budget is worth most Gaussian noise."""
        if self.delta == 0:
            return 2.0  # of no use without a delta
        orders = (1 + 2 ** (eighth / 8) for eighth in range(-80, 161))
        return max(orders, key=lambda order: (self.epsilon - self._conversion(order)) / order)

    def _conversion(self, order: float) -> float:
        """Return what is added to a Rényi divergence to get an epsilon (Canonne et al. 2020)."""
        delta = self.delta * _HALF * (1 - _BEYOND)
        return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    def total(self, costs: Sequence[Cost]) -> float:
        """Return the least epsilon at which the filter would have admitted all of this.

        Never below the epsilon of the same mechanisms with parameters fixed in advance.
        """
        if not costs:
            return 0.0
        pure = [cost.pure for cost in costs if cost.pure is not None]
        found = [float(sum(pure))] if len(pure) == len(costs) else [math.inf]
        if len(costs) == 1:
            found.append(costs[0].alone(self.delta))
        if self.delta == 0:
            return min(found)
        squares = [cost.mu_square for cost in costs if cost.mu_square is not None]
        if len(squares) == len(costs) and math.isfinite(square := math.fsum(squares)):
            found.append(gaussian_epsilon(self.delta * _HALF, math.sqrt(square) * _UPWARDS))
        if math.fsum(cost.beyond for cost in costs) <= self.delta * _HALF * _BEYOND:
            divergence = math.fsum(cost.renyi for cost in costs) * _UPWARDS
            found.append(max(0.0, divergence + self._conversion(self.order)))
        return min(found)

    def admits(self, costs: Sequence[Cost]) -> bool:
        """Return whether all of this fits the budget; the last cost is that of the new request."""
        return self.total(costs) <= self.epsilon * (1 + TOLERANCE)

    def what_fits(self, spent: Sequence[Cost], *, delta: float = 0.0) -> tuple[float, float]:
        """Return the largest epsilon that still fits: without a delta, and with Gaussian noise.

        The latter is at `delta`, and 0 if that is 0. Both are rounded down to three digits, and to
        0 where they are below a thousandth of the budget.

        >>> budget = PrivacyFilter(1.0, 0.0)
        >>> budget.what_fits([Cost.of_pure(0.75, order=budget.order)])
        (0.25, 0.0)
        """

        def largest(cost: Callable[..., Cost]) -> float:
            low, high = 0.0, self.epsilon
            while self.admits([*spent, cost(high, order=self.order)]):
                high *= 2
            for _ in range(60):
                middle = (low + high) / 2
                fits = self.admits([*spent, cost(middle, order=self.order)])
                low, high = (middle, high) if fits else (low, middle)
            return low

        least = self.epsilon / 1000
        pure = _rounded_down(largest(Cost.of_pure), least)
        if delta == 0 or self.delta == 0:
            return pure, 0.0
        mu = largest(Cost.of_gaussian)
        return pure, _rounded_down(gaussian_epsilon(delta, mu), least) if mu > 0 else 0.0


def _rounded_down(value: float, least: float) -> float:
    """Return three digits of a number, never more than it but for what the budget tolerates."""
    if value < least:
        return 0.0
    digits = 2 - math.floor(math.log10(value))
    rounded = round(value, digits)
    fits = rounded <= value * (1 + TOLERANCE / 2)
    return rounded if fits else round(rounded - 10.0**-digits, digits)
