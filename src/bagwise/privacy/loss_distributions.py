"""Upper bounds of delta and epsilon for any list of releases.

`curves` has closed forms for one release and for the combinations that have one. This module does
the rest: Laplace beside Gaussian noise, several picks, any number of releases of any kind. A
release enters by its privacy curve alone, so that a new mechanism only has to give its curve.

**Why this is valid.** Replacing a label is symmetric, so the worst curve over all neighbouring
pairs fulfils ``H(-t) = 1 - exp(-t) + exp(-t) H(t)``, and its part at ``epsilon >= 0`` says
everything. Every such curve, convex in ``exp(epsilon)``, belongs to one pair of distributions (P,
Q), which *dominates* the mechanism. Dominating pairs compose: if each release, whatever came out
before it, is dominated by its pair, then all of them together are dominated by the product of the
pairs (Zhu, Dong and Wang 2022, Theorem 10). So later releases may depend on the results of earlier
ones. Their *parameters* may not: which curves there are is fixed in advance.

**How.**

1. The curve at the points of a grid, joined by straight lines in ``exp(epsilon)``, lies above the
   curve, and is the curve of a distribution of losses on the grid (`LossDistribution.from_curve`;
   Doroshenko et al. 2022, "Connect the dots": the least of all such curves on that grid). Rounding
   every loss up would cost half a step per release. This costs a square: the tails of n releases
   grow by a factor of ``1 + n theta (1 + theta) step^2 / 8`` at most, theta as below.
2. Losses of independent releases add, so their distributions are convolved, by one product of
   Fourier transforms (Koskela, Jälkö and Honkela 2020). Releases of the same kind are a power.
3. Before that, the probability of each loss x is multiplied by ``exp(theta x)``, and after it
   divided (Grübel and Hermesmeier 1999). With the theta of Chernoff's bound, a tail far below the
   errors of a Fourier transform becomes the middle of a distribution: errors are then relative to
   delta, however small it is.

**What is added** to the result, so that it stays an upper bound in floating-point arithmetic:

- losses beyond the grid count as infinite (`_NEVER`, per release);
- what may lie outside the window of the transform, by Chernoff's bound (`_OUTSIDE`);
- the errors of the transforms: each of their numbers is a sum over a binary tree of ``log2(N)``
  levels, so it is off by at most ``8 log2(N) u`` of the sum of all moduli (Higham 2002, Theorem
  24.2, entry by entry, since the moduli of the butterflies multiply to a matrix of ones);
- the errors of the curves, which must be right to ``2^-50 (64 + epsilon)`` of the chance that the
  loss exceeds epsilon. The formulas in `curves` are, since they work in logarithms.

Step, theta and window are chosen for the epsilon that is asked for. None of them can make a result
too small, only too large.

**Why not dp-accounting**, Google's library for this? It is the peer in the tests, and agrees. But
it pins attrs < 24, needs dm-tree, mpmath and absl-py, and takes a second or more to import, too
much for every installation. For picks it composes either all labels added or all removed, and the
larger of both is no upper bound when labels are replaced (see P2 on the theory page). And the
round-off of its transforms is not part of what it calls pessimistic.

References
----------
Zhu, Dong and Wang (2022), Optimal accounting of differential privacy via characteristic function.
Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), Connect the dots: tighter discrete
approximations of privacy loss distributions. Koskela, Jälkö and Honkela (2020), Computing tight
differential privacy guarantees using FFT. Higham (2002), Accuracy and stability of numerical
algorithms, 2nd edition. Grübel and Hermesmeier (1999), Computation of compound distributions I:
aliasing errors and exponential tilting.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from bagwise._types import FloatArray
from bagwise.errors import BudgetError
from bagwise.privacy.curves import Curve, GaussianCurve, delta_at, least_epsilon

_NEVER = 1e-40  # chance of losses that are called infinite
_OUTSIDE = 1e-14  # chance, after tilting, of losses outside the window, on either side
_TOLERANCE = 1e-5  # of delta, for the width of a step
_LARGEST_SIZE = 2**20  # points of a window; coarser steps rather than more of them
_MOST_POINTS = 2**17  # of the grid of one release, on either side of 0; likewise
_PILOT_POINTS = 512  # of each release, to choose the tilt
_LARGEST_QUARTER = 4 * 40  # the largest tilt is 2**40
_TOO_CLOSE = 1e-7  # part of the largest loss that no grid resolves
_ROUND_OFF = 2.0**-53


@dataclass(frozen=True)
class LossDistribution:
    """A distribution of privacy losses on a grid, at least as bad as the curve it is made from."""

    step: float  # width of the grid
    # Probability under P of the losses ``step * (-reach, …, reach)``; P and Q are symmetric.
    masses: FloatArray
    infinite: float  # probability under P of an infinite loss

    @classmethod
    def from_curve(cls, curve: Curve, *, step: float) -> "LossDistribution":
        """Return the distribution whose curve joins the points of `curve` on the grid.

        Guarantee: its curve is at least `curve` everywhere.

        >>> from bagwise.privacy.curves import pure_curve
        >>> coin = LossDistribution.from_curve(pure_curve(1.0), step=0.25)
        >>> coin.delta(0.5) - float(pure_curve(1.0)(np.array(0.5))) < 1e-12
        True
        """
        reach = max(1, math.ceil(_end(curve) / step))
        epsilon = step * np.arange(reach + 1, dtype=np.float64)
        deltas = np.clip(curve(epsilon), 0.0, 1.0)
        error = 2.0**-50 * (64 + epsilon)
        # H(x) = P(loss > x) - e^x Q(loss > x), and -Q(loss > x) is the slope of H in e^x.
        above = deltas[:-1] + (deltas[:-1] - deltas[1:]) / math.expm1(step)
        above = np.append(above * (1 + 3 * error[:-1] / step), deltas[-1] * (1 + error[-1]))
        # Probabilities fall with the loss. Where errors say otherwise, or a curve is not convex,
        # raise the smaller ones: a loss moved up makes delta larger.
        above = np.minimum(1.0, np.maximum.accumulate(above[::-1])[::-1])
        gains = above[:-1] - above[1:]
        losses = np.exp(-epsilon[1:]) * gains  # by symmetry P(-x) = Q(x) = e^-x P(x)
        rest = 1 - above[0] - float(losses.sum())
        middle = max(0.0, rest) + 2.0**-50
        masses = np.concatenate([losses[::-1], [middle], gains]) * (1 + 2.0**-48)
        return cls(step, masses, float(above[-1]))

    @property
    def reach(self) -> int:
        """Number of steps from 0 to either end of the grid."""
        return self.masses.size // 2

    @cached_property
    def losses(self) -> FloatArray:
        """The points of the grid."""
        return self.step * np.arange(-self.reach, self.reach + 1, dtype=np.float64)

    @cached_property
    def _logs(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    def delta(self, epsilon: float) -> float:
        """Return the delta of this distribution on its own."""
        worse = self.losses > epsilon
        weights = -np.expm1(epsilon - self.losses[worse])
        return self.infinite + float(self.masses[worse] @ weights)

    def log_moment(self, theta: float) -> float:
        """Return ``log E exp(theta loss)`` over the finite losses."""
        exponents = self._logs + theta * self.losses
        largest = float(exponents.max())
        return largest + math.log(float(np.exp(exponents - largest).sum()))

    def tilted(self, theta: float) -> FloatArray:
        """Return the probabilities times ``exp(theta loss)``, made to add up to 1."""
        exponents = self._logs + theta * self.losses
        weights = np.exp(exponents - exponents.max())
        return np.asarray(weights / weights.sum())

    def tilted_moments(self, theta: float) -> tuple[float, float]:
        """Return mean and variance of the loss after tilting."""
        weights = self.tilted(theta)
        mean = float(weights @ self.losses)
        return mean, float(weights @ (self.losses - mean) ** 2)


Counts = tuple[tuple[Curve, int], ...]
"""Different curves, and how often each occurs."""

Parts = Sequence[tuple[LossDistribution, int]]
"""Distributions, and how often each occurs."""


@dataclass(frozen=True)
class TiltedSum:
    """The sum of independent losses, tilted: each probability times ``exp(theta loss)``."""

    theta: float  # the tilt, at least 0
    # Finite losses, and their probabilities after tilting, which add up to 1.
    losses: FloatArray
    weights: FloatArray
    error: float  # how much any of the weights may be off
    log_moment: float  # ``log E exp(theta loss)``: what the weights were divided by
    infinite: float  # probability of an infinite loss
    exponents: float  # sum of the exponents that were rounded on the way

    @classmethod
    def of(
        cls, parts: Parts, *, theta: float, window: tuple[int, int] | None = None
    ) -> "TiltedSum":
        """Convolve distributions on one grid.

        `window` is the first and the last loss of the sum, in steps, that are told apart; at most
        `_OUTSIDE` of the tilted probability may lie beyond either. Without it all losses are.
        """
        step = parts[0][0].step
        end = sum(count * part.reach for part, count in parts)
        low, high = window or (-end, end)
        size = 2 ** max(4, (high - low).bit_length())
        weights, error = _tilted_sum(parts, theta, low, size)
        return cls(
            theta,
            step * np.arange(low, low + size, dtype=np.float64),
            weights,
            error,
            _log_moment(parts, theta),
            _any_infinite([(part.infinite, count) for part, count in parts]),
            # Logarithms of probabilities down to `_NEVER`, and theta times the loss.
            math.fsum(n * (100 + theta * step * part.reach) for part, n in parts),
        )

    def delta(self, epsilon: float) -> float:
        """Return the delta at `epsilon`, with all errors added."""
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        excess = self.losses[first:] - epsilon
        factors = np.exp(-self.theta * excess) * -np.expm1(-excess)
        found = float(self.weights[first:] @ factors)
        found += float(factors.sum()) * self.error + 2 * _OUTSIDE
        scale = math.exp(self.log_moment - self.theta * epsilon)
        return self.infinite + scale * found * (1 + 8 * _ROUND_OFF * self.exponents)


def composed_delta_of(curves: Iterable[Curve], epsilon: float) -> float:
    """Return a delta of all releases together at `epsilon`.

    Parameters
    ----------
    curves : iterable of Curve
        One for each release, fixed in advance. Equal ones cost the time of one.
    epsilon : float
        Any real number.

    Returns
    -------
    float
        Exact for a single release and for Gaussian noise only; 0 where no release needs a delta and
        `epsilon` is the sum of theirs.

    Guarantee
    ---------
    An upper bound for every adaptive composition. It exceeds the delta of the product of the
    dominating pairs by a part in 100,000 or so; by a part in 1,000 near the kinks of a
    curve, as several pure releases have them. Within 0.01 % of the largest loss, and for more
    than 100,000 releases, it may be more, since there are not points enough.

    Examples
    --------
    >>> from bagwise.privacy.curves import LaplaceCurve, pure_curve
    >>> both = [GaussianCurve(0.5), LaplaceCurve(shift=100, scale=200)]
    >>> f"{composed_delta_of(both, 2.0):.3e}"
    '2.100e-04'
    >>> composed_delta_of([pure_curve(0.5), pure_curve(0.25)], 0.75)
    0.0
    """
    counts = _counted(curves)
    # Products of symmetric pairs are symmetric.
    return delta_at(lambda e: np.array([_delta_of(counts, float(e[0]))]), epsilon)


def composed_epsilon_of(curves: Iterable[Curve], delta: float) -> float:
    """Return an epsilon >= 0 at which all releases together have at most `delta`.

    >>> round(composed_epsilon_of([GaussianCurve(0.3), GaussianCurve(0.4)], 1e-5), 4)
    1.9931
    >>> from bagwise.privacy.curves import pure_curve
    >>> composed_epsilon_of([pure_curve(0.5)] * 10, 0.0)
    5.0
    """
    known = tuple(curves)
    if delta == 0 and all(delta_at(curve, _end(curve)) == 0 for curve in known):
        return _total_end(_counted(known))
    return least_epsilon(lambda epsilon: composed_delta_of(known, epsilon), delta)


def _delta_of(counts: Counts, epsilon: float) -> float:
    if not counts:
        return 0.0
    if len(counts) == 1 and counts[0][1] == 1:
        return delta_at(counts[0][0], epsilon)
    # No finite loss is beyond the end: P - e^epsilon Q is at most 1 - e^(epsilon - end) of P.
    end = _total_end(counts)
    infinite = _any_infinite([(delta_at(curve, _end(curve)), count) for curve, count in counts])
    plain = infinite + max(0.0, -math.expm1(epsilon - end))
    if epsilon >= end * (1 - _TOO_CLOSE):
        return plain
    theta, spread = _tilt(counts, epsilon)
    return min(1.0, plain, _tilted(counts, theta, spread).delta(epsilon))


@lru_cache(maxsize=8)
def _tilted(counts: Counts, theta: float, spread: float) -> TiltedSum:
    step = _step(counts, theta, spread)
    while True:
        parts = [(LossDistribution.from_curve(curve, step=step), n) for curve, n in counts]
        low, high = _window(parts, theta, spread)
        if high - low < _LARGEST_SIZE:
            return TiltedSum.of(parts, theta=theta, window=(low, high))
        step *= 2


def _tilted_sum(parts: Parts, theta: float, low: int, size: int) -> tuple[FloatArray, float]:
    """Return the tilted distribution of the sum, from `low` on, and a bound of each entry's error.

    A transform is off by `level` in each entry at most, since the weights add up to 1. A product of
    numbers of modulus at most a_i that are off by `level` is off by their product times the sum of
    level / a_i, and the inverse transform averages over frequencies.
    """
    level = 8 * math.log2(size) * _ROUND_OFF
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    bound, relative = np.ones(spectrum.size), np.full(spectrum.size, level)
    for part, count in parts:
        transform = rfft(_folded(part.tilted(theta), size))
        modulus = np.abs(transform) + level
        spectrum *= _power(transform, count)
        bound *= modulus**count
        relative += count * (level / modulus + 4 * _ROUND_OFF)
    error = 2 * float(bound @ relative) / size
    start = low + sum(count * part.reach for part, count in parts)
    return np.roll(irfft(spectrum, size), -start), error


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Return a power by squaring, each of whose roundings is known."""
    result = np.ones_like(base)
    while exponent:
        if exponent % 2:
            result = result * base
        base, exponent = base * base, exponent // 2
    return result


def _folded(weights: FloatArray, size: int) -> FloatArray:
    """Wrap an array around a circle of `size` points."""
    turns = -(-weights.size // size)
    padded = np.zeros(turns * size)
    padded[: weights.size] = weights
    return np.asarray(padded.reshape(turns, size).sum(axis=0))


def _window(parts: Parts, theta: float, spread: float) -> tuple[int, int]:
    """Return steps beyond which there is at most `_OUTSIDE` of the tilted sum, on either side.

    Chernoff's bound: log P(sum > x) <= log E exp(t sum) - t x; for a normal sum best at t = 8 / sd.
    """
    step, end = parts[0][0].step, sum(count * part.reach for part, count in parts)
    here = _log_moment(parts, theta)
    slopes = [multiple / spread for multiple in (2, 4, 8, 16)]
    high = min((_log_moment(parts, theta + t) - here - math.log(_OUTSIDE)) / t for t in slopes)
    low = max((here + math.log(_OUTSIDE) - _log_moment(parts, theta - t)) / t for t in slopes)
    return max(-end, math.floor(low / step)), min(end, math.ceil(high / step))


def _tilt(counts: Counts, epsilon: float) -> tuple[float, float]:
    """Return about the theta >= 0 of Chernoff's bound at `epsilon`, and the sd of the tilted loss.

    Roughly, on coarse grids, for it says where to look and not what is there; and a quarter of a
    power of two, so that neighbouring epsilons share it.
    """
    quarter = -4 * 20
    if _pilot_moments(counts, 0.0)[0] >= epsilon:
        return 0.0, _pilot_moments(counts, 0.0)[1]
    for stride in (16, 4, 1):  # from coarse to fine, to the first theta that is large enough
        while (
            _pilot_moments(counts, 2 ** (quarter / 4))[0] < epsilon and quarter < _LARGEST_QUARTER
        ):
            quarter += stride
        quarter -= stride
    # One of its neighbours. Heavy tails, such as those of picks, change the mean abruptly.
    pilots = [(_pilot(curve), count) for curve, count in counts]
    theta = min(
        (2 ** (near / 4) for near in (quarter, quarter + 1)),
        key=lambda theta: _log_moment(pilots, theta) - theta * epsilon,
    )
    # Where only the largest loss is left it has no spread at all.
    return theta, max(_pilot_moments(counts, theta)[1], 1e-3 * min(1 / theta, _total_end(counts)))


@lru_cache(maxsize=1024)
def _pilot_moments(counts: Counts, theta: float) -> tuple[float, float]:
    """Return mean and standard deviation of the tilted loss, on coarse grids."""
    each = [(count, _pilot(curve).tilted_moments(theta)) for curve, count in counts]
    mean = math.fsum(count * moments[0] for count, moments in each)
    return mean, math.sqrt(math.fsum(count * moments[1] for count, moments in each))


def _step(counts: Counts, theta: float, spread: float) -> float:
    """Return a power of two that makes delta too large by about `_TOLERANCE`, if points allow.

    Joining points moves a loss within its cell to both ends. That raises E exp(theta loss) by a
    factor of 1 + theta (1 + theta) step^2 / 8 at most, for each release.
    """
    slope = max(theta, 1 / spread)
    wanted = math.sqrt(8 * _TOLERANCE / (sum(count for _, count in counts) * slope * (1 + slope)))
    finest = max(_end(curve) for curve, _ in counts) / _MOST_POINTS
    return 2.0 ** max(math.floor(math.log2(wanted)), math.ceil(math.log2(finest)))


def _log_moment(parts: Parts, theta: float) -> float:
    return math.fsum(count * part.log_moment(theta) for part, count in parts)


def _counted(curves: Iterable[Curve]) -> Counts:
    """Count equal curves, after Gaussian ones have become one: mu = hypot(mu_1, mu_2, …)."""
    known = list(curves)
    mu = math.hypot(*(curve.mu for curve in known if isinstance(curve, GaussianCurve)))
    counts = Counter(curve for curve in known if not isinstance(curve, GaussianCurve))
    if mu > 0:
        counts[GaussianCurve(mu)] = 1
    return tuple(counts.items())


def _any_infinite(chances: Sequence[tuple[float, int]]) -> float:
    """Return the probability that any of several independent events happens, each `count` times."""
    if any(chance >= 1 for chance, _ in chances):
        return 1.0
    none = math.fsum(count * math.log1p(-chance) for chance, count in chances)
    return max(0.0, -math.expm1(none))


@lru_cache(maxsize=256)
def _end(curve: Curve) -> float:
    """Return the point at which a curve has fallen to `_NEVER`."""
    end = least_epsilon(partial(delta_at, curve), _NEVER)
    if not math.isfinite(end):
        raise BudgetError("a release without any noise to speak of has no finite loss.")
    while end > 0 and delta_at(curve, math.nextafter(end, 0.0)) <= _NEVER:
        end = math.nextafter(end, 0.0)  # the last bits, so that pure epsilons add up exactly
    return end


def _total_end(counts: Counts) -> float:
    return math.fsum(count * _end(curve) for curve, count in counts)


@lru_cache(maxsize=256)
def _pilot(curve: Curve) -> LossDistribution:
    return LossDistribution.from_curve(curve, step=max(_end(curve), 1e-12) / _PILOT_POINTS)
