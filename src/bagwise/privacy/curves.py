"""Privacy curves: the least delta of a mechanism at each epsilon, and their inverses.

For a mechanism that adds noise to labels, delta(epsilon) is the largest possible difference
``P(out in S) - exp(epsilon) * Q(out in S)`` over neighbouring label vectors and sets S. A Gaussian
mechanism is described by one number, ``mu = sensitivity / standard deviation``.

=====  =====================================================================  ==================
id     what                                                                   function
=====  =====================================================================  ==================
G      Gaussian noise                                                         `GaussianCurve`
P1     one label of `size` picked in secret, then Gaussian noise              `PickCurve`
P2     Gaussian scores first, then bags formed from them, then picks          `composed_delta`
L      discrete Laplace noise                                                 `LaplaceCurve`
=====  =====================================================================  ==================

References
----------
G: Balle and Wang (2018), Theorem 8. P1 and P2: derived on the theory page; they replace the
amplification argument of Thm 4, which is false (erratum E2). L: by summation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from scipy.special import log_ndtr

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError

# Outside this range noise could not be drawn in 64 bits, or would hardly be noise.
SMALLEST_MU, LARGEST_MU = 1e-9, 1e3

MEANINGLESS_EPSILON = 500.0  # exp of it nearly leaves the range of a double
_LARGEST_EPSILON = 1e6  # where nothing is protected any more
_AT_ONCE = 2**13  # numbers of several curves that are computed together
_FAR = 14.0  # standard deviations beyond which a normal tail is below 1e-44
_UNIT_RULE = np.polynomial.legendre.leggauss(24)


Curve = Callable[[FloatArray], FloatArray]
"""Delta at an array of epsilons >= 0, for one release. Hashable; equal curves are computed once."""


@dataclass(frozen=True)
class GaussianCurve:
    """G: Gaussian noise; `mu` is the sensitivity divided by the standard deviation."""

    mu: float

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta, in logarithms, so that small values keep their digits."""
        mu = self.mu
        if np.ndim(mu) == 0 and mu == 0:
            return np.maximum(0.0, -np.expm1(epsilon))
        upper = log_ndtr(mu / 2 - epsilon / mu)
        lower = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return np.asarray(np.exp(upper) * -np.expm1(np.minimum(0.0, lower - upper)))


@dataclass(frozen=True)
class LaplaceCurve:
    """L: discrete Laplace noise of `scale` on integers that move by `shift` at most, exactly.

    It is 0 from ``epsilon = shift / scale`` on: pure differential privacy.

    >>> delta_at(LaplaceCurve(100, 100), 1.0), round(delta_at(LaplaceCurve(100, 100), 0.5), 4)
    (0.0, 0.2212)
    """

    shift: int
    scale: int

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        edge = self.shift / self.scale
        within = np.minimum(epsilon, edge)
        # The privacy loss at y is (|y - shift| - |y|) / scale. It exceeds epsilon up to the last y
        # below (shift - epsilon * scale) / 2; sum both distributions that far.
        last = np.ceil((self.shift - within * self.scale) / 2) - 1
        ratio = -1 / self.scale
        norm = np.log1p(np.exp(ratio))
        inside = -np.expm1(ratio * (last + 1) - norm)
        value = inside - np.exp(within + ratio * (self.shift - last) - norm)
        return np.where(epsilon >= edge, 0.0, value)


@dataclass(frozen=True)
class StepCurve:
    """A loss that is `epsilon` with probability `chance`, or else at most 0.

    ``chance * (1 - exp(t - epsilon))`` at t, and 0 from epsilon on.
    """

    chance: float
    epsilon: float

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        return np.asarray(self.chance * np.maximum(0.0, -np.expm1(epsilon - self.epsilon)))


def pure_curve(epsilon: float) -> StepCurve:
    """Return the curve of anything that is `epsilon`-private without a delta.

    The worst such mechanism is a coin that lies with probability ``1 / (1 + exp(epsilon))``
    (Kairouz, Oh and Viswanath 2015).
    """
    return StepCurve(1 / (1 + math.exp(-epsilon)), epsilon)


@dataclass(frozen=True)
class PickCurve:
    """P1: one of `size` labels picked in secret, then released as `one` says.

    ``one(log(1 + size (exp(epsilon) - 1))) / size``. All that the proof of P1 needs of the Gaussian
    noise is that its curve covers any two labels, so it holds for every release of a label.
    """

    one: Curve
    size: int

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        # log(1 + size * (exp(epsilon) - 1)) without overflow.
        stretched = epsilon + np.log1p((self.size - 1) * -np.expm1(-epsilon))
        return self.one(stretched) / self.size


@dataclass(frozen=True)
class WorstCurve:
    """One of several releases of a kind, whichever is worst at each epsilon.

    It also covers a choice among them that depends on what was released before.
    """

    among: tuple[Curve, ...]

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        order = np.argsort(epsilon)
        delta = np.empty(epsilon.shape)
        delta[order] = _worst(self._together, len(self.among), epsilon[order])
        return delta

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # of thousands of curves, asked for again and again
        return hash(self.among)

    @cached_property
    def _together(self) -> Any:
        return _stacked(self.among)


def _worst(curves: Any, count: int, epsilon: FloatArray) -> FloatArray:
    """Return the largest of stacked curves at epsilons that rise.

    Curves fall. One that starts below where the largest ends is nowhere the largest in between, so
    that of thousands few are left on most parts of a grid.
    """
    if epsilon.size == 1 or count * epsilon.size <= _AT_ONCE:
        return np.asarray(curves(epsilon).max(axis=0))
    ends = curves(epsilon[[0, -1]])
    # By more than the errors of a curve.
    kept = np.flatnonzero(ends[:, 0] * (1 + 1e-9) >= ends[:, 1].max())
    left = curves if kept.size == count else _taken(curves, kept)
    middle = epsilon.size // 2
    parts = (epsilon[:middle], epsilon[middle:])
    return np.concatenate([_worst(left, kept.size, part) for part in parts])


def _stacked(curves: Sequence[Any]) -> Any:
    """Return one curve that computes many of the same kind at once, each in a row of its own."""
    kind, *others = {type(curve) for curve in curves}
    if others:
        raise AssertionError("only curves of one kind are computed at once")
    columns = zip(*(vars(curve).values() for curve in curves), strict=True)
    return kind(*(_stacked(c) if callable(c[0]) else np.array(c)[:, None] for c in columns))


def _taken(curves: Any, rows: IntArray) -> Any:
    """Return some of stacked curves."""
    parameters = vars(curves).values()
    return type(curves)(*(_taken(p, rows) if callable(p) else p[rows] for p in parameters))


@dataclass(frozen=True)
class GroupCurve:
    """The labels of `rows` rows together, from the curve of `one` of them, by the general bound.

    ``one(epsilon / rows) (exp(epsilon) - 1) / (exp(epsilon / rows) - 1)``.
    """

    one: Curve
    rows: int

    def __call__(self, epsilon: FloatArray) -> FloatArray:
        """Return delta."""
        each = epsilon / self.rows
        one = self.one(each)
        # (e^(rows x) - 1) / (e^x - 1) is a sum of powers; in logarithms, since it overflows where
        # `one` is 0 anyway.
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.log(-np.expm1(-epsilon)) - np.log(-np.expm1(-each))
            growth = np.where(each > 0, powers, math.log(self.rows)) + (self.rows - 1) * each
            return np.exp(np.minimum(0.0, np.log(np.maximum(one, 0.0)) + growth))


def grouped(one: Curve, rows: int) -> Curve:
    """Return the curve of so many rows together."""
    return one if rows == 1 else GroupCurve(one, rows)


def anywhere(curve: Curve, epsilon: FloatArray) -> FloatArray:
    """Return delta at any real epsilons, from a curve at those that are not negative.

    Replacing a label is symmetric. So below 0 the two data sets exchange their roles: with
    ``A = exp(epsilon)``, ``H_A(P|Q) = 1 - A + A H_{1/A}(Q|P)``.
    """
    value, negative = curve(np.abs(epsilon)), np.minimum(epsilon, 0.0)
    return np.where(epsilon >= 0, value, -np.expm1(negative) + np.exp(negative) * value)


def delta_at(curve: Curve, epsilon: float) -> float:
    """Return the delta of a curve at any real epsilon."""
    return float(anywhere(curve, np.array([epsilon]))[0])


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which a mu-Gaussian mechanism is (epsilon, delta)-private.

    Guarantee: exact, ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, for every
    real epsilon; computed in logarithms, so that small values keep their digits.

    >>> round(gaussian_delta(1.0, 0.5), 12)
    0.006829594983
    """
    return delta_at(GaussianCurve(mu), epsilon)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian mechanism is (epsilon, delta)-private.

    Guarantee: on the private side, ``gaussian_delta(epsilon, result) <= delta``.

    >>> round(gaussian_mu(1.0, 1e-5), 10)
    0.2680511232
    """
    check_budget(epsilon, delta)
    return _largest_mu(lambda mu: gaussian_delta(epsilon, mu), epsilon, delta)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon >= 0 at which a mu-Gaussian mechanism is (epsilon, delta)-private.

    >>> round(gaussian_epsilon(1e-5, gaussian_mu(1.0, 1e-5)), 9)
    1.0
    """
    return least_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)


def pick_delta(epsilon: float, mu: float, size: int) -> float:
    """Return the smallest delta for one of `size` labels, picked in secret, plus Gaussian noise.

    Guarantee: exact (P1) for epsilon >= 0, ``delta = gaussian_delta(log(1 + size (exp(epsilon) -
    1)), mu) / size``: no neighbouring pair of bags does worse, and a bag whose other labels all sit
    at one end of the bounds attains it. Holds while the index is secret, uniform and fresh.

    >>> round(pick_delta(0.5, 1.5, 10), 12)
    0.014051383963
    """
    return delta_at(PickCurve(GaussianCurve(mu), size), epsilon)


def composed_delta(epsilon: float, mu_scores: float, mu_pick: float, size: int) -> float:
    """Return a delta for Gaussian scores followed by a pick from bags that depend on them.

    Guarantee: an upper bound (P2), ``integral of phi(u) h(epsilon - mu_scores u - mu_scores^2/2)``
    with h the curve of the pick; exact for size 1, where it is the Gaussian curve at
    ``hypot(mu_scores, mu_pick)``.

    >>> f"{composed_delta(1.0, 0.2, 0.5, 10):.5e}"
    '1.50015e-07'
    """
    if mu_scores == 0:
        return pick_delta(epsilon, mu_pick, size)
    # h has a kink where its argument is zero; nodes crowd there, since h may change quickly.
    kink = (epsilon - mu_scores**2 / 2) / mu_scores
    nodes, weights = _nodes(kink)
    density = np.exp(-(nodes**2) / 2) / math.sqrt(2 * math.pi)
    pick = PickCurve(GaussianCurve(mu_pick), size)
    curve = anywhere(pick, epsilon - mu_scores * nodes - mu_scores**2 / 2)
    tails = 2 * math.exp(float(log_ndtr(-_FAR)))  # h <= 1 there
    return float(weights @ (density * curve)) + tails


def composed_pick_mu(epsilon: float, delta: float, mu_scores: float, size: int) -> float:
    """Return the largest mu of a pick that fits the budget after Gaussian scores, if there are any.

    >>> round(composed_pick_mu(1.0, 1e-5, 0.0, 50), 10)
    1.2628459071
    """
    check_budget(epsilon, delta)
    if delta >= 1 / size:
        raise BudgetError(
            f"delta = {delta:g} is at least 1/{size}: the formula would ask for no noise at all, "
            "and show a label outright. Choose delta far below 1/bag_size."
        )
    if mu_scores > 0 and gaussian_delta(epsilon, mu_scores) >= delta:
        raise BudgetError("the scores spend the whole budget; give them a smaller share.")
    # The quadrature is good to about 1e-12; asking for slightly less stays on the private side.
    target = delta if mu_scores == 0 else delta * (1 - 1e-9)
    return _largest_mu(lambda mu: composed_delta(epsilon, mu_scores, mu, size), epsilon, target)


def least_epsilon(
    curve: Callable[[float], float], delta: float, *, precision: float = 1e-14
) -> float:
    """Return the least epsilon >= 0 at which a decreasing curve is at most `delta`.

    It is too large by a share of `precision` at most, and never too small.
    """
    if not 0 <= delta < 1:
        raise BudgetError(f"delta must be at least 0 and below 1, got {delta:g}.")
    if curve(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while curve(high) > delta:
        low, high = high, high * 2
        if high > _LARGEST_EPSILON:
            return math.inf
    # Bisection, since the curve may be flat at 0; `high` is always on the private side.
    while high - low > precision * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return high


def check_budget(epsilon: float, delta: float) -> None:
    """Refuse an (epsilon, delta) that no noise can meet, or that only Laplace noise meets."""
    check_epsilon(epsilon)
    check_delta(delta)
    if delta == 0:
        raise BudgetError("delta = 0 needs Laplace noise; Gaussian noise needs a positive delta.")


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not a positive finite number."""
    _check_number("epsilon", epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BudgetError(f"epsilon must be a positive finite number, got {epsilon:g}.")
    if epsilon > MEANINGLESS_EPSILON:
        raise BudgetError(
            f"epsilon {epsilon:g} asks for hardly any noise. Say not_private instead."
        )


def check_delta(delta: float) -> None:
    """Refuse a delta outside [0, 1)."""
    _check_number("delta", delta)
    if not 0 <= delta < 1:
        raise BudgetError(f"delta must be at least 0 and below 1, got {delta:g}.")


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise BudgetError(f"{name} must be a number, got {value!r}.")


def _largest_mu(curve: Callable[[float], float], epsilon: float, delta: float) -> float:
    """Invert an increasing function of mu, ending where it is at most delta."""

    def excess(log_mu: float) -> float:
        value = curve(math.exp(log_mu))
        return (math.log(value) if value > 0 else -1e4) - math.log(delta)

    low, high = math.log(SMALLEST_MU), math.log(LARGEST_MU)
    if excess(low) > 0:
        raise BudgetError(
            f"epsilon {epsilon:g} with delta {delta:g} is too small to calibrate noise."
        )
    if excess(high) <= 0:
        raise BudgetError(f"epsilon {epsilon:g} with delta {delta:g} asks for hardly any noise.")
    mu = math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16))
    while curve(mu) > delta:  # the root search may end on either side
        mu *= 1 - 1e-14
    return mu


def _nodes(kink: float) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes on unit intervals of [-14, 14], halved towards the kink."""
    steps = 0.5 ** np.arange(30)
    edges = np.concatenate([np.arange(-_FAR, _FAR + 1), [kink], kink + steps, kink - steps])
    edges = np.unique(np.clip(edges, -_FAR, _FAR))
    points, weights = _UNIT_RULE
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    nodes = (middle[:, None] + half[:, None] * points).ravel()
    return nodes, (half[:, None] * weights).ravel()
