"""Private ranges: the smallest limit that only few values exceed.

Candidates for the limit are fixed beforehand, from public numbers. Each has a cost: the number of
values beyond it, and a public price for its width. The cheapest by noisy costs is told, and nothing
else. The price prefers the smallest limit that suffices: far out, where no value lies, counts say
nothing any more.

Guarantee: replacing one value by another moves all counts the same way, by one at most. If it moves
up, it is counted beyond the limits that it passes, and beyond no limit less often than before; and
the other way round. So with noise of scale 1/epsilon the choice is epsilon-private, where costs
that could move against each other would need twice as much. Proof: let candidate j win, which it
does if its noise g is at least some threshold that the noise of the others sets. On the neighbour
this threshold is higher by one at most: either the others become cheaper by one at most and j does
not become dearer, or j becomes dearer by one at most and the others do not become cheaper. And
``P(g >= t + 1) >= exp(-epsilon) P(g >= t)`` for exponential noise, and for discrete exponential
noise on any grid that has 1 on it. A unit of r rows has r times the noise: its rows may move counts
against each other, but are replaced one by one at the price of epsilon / r each.

The mechanism is "report noisy max" with exponential noise, which is permute-and-flip (McKenna and
Sheldon 2020; Ding, Kifer and others 2021); that monotone counts need half the noise is known of the
exponential mechanism and of the sparse vector technique too (Lyu, Su and Li 2017, section 4.3).
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.samplers import discrete_exponential
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

PRICE_OF_DOUBLING = 2.0
"""What a limit twice as far out must save at least: so many times the scale of the noise on counts.
With less, limits far beyond all values are taken by chance."""


@dataclass(frozen=True)
class Terms:
    """How noise is weighed against values that are clipped; public."""

    # What a limit twice as far out must save besides: so large a share of all values. It has four
    # times the variance of the noise.
    price: float
    # Share of all values that the narrowest candidate may cost more than the widest. A label that
    # is 0 in nearly every row says all that it says by the few others, and these must not be
    # clipped away for the sake of less noise. So where counts have much noise, candidates end
    # early.
    most: float


OF_LABELS = Terms(price=0.0025, most=0.025)
"""Labels that are clipped are large ones that a model should learn of."""


def terms_of(found: bool) -> Terms:
    """Return the terms of a range.

    Bounds that were found privately are nearly as tight as can be, and rare labels stay rare.
    """
    return dataclasses.replace(OF_LABELS, most=0.0075) if found else OF_LABELS


OF_LEFTOVERS = Terms(price=0.005, most=0.05)
"""What a model leaves of labels is noise for the most part, and clipping it does less harm."""


@dataclass(frozen=True)
class Lattice:
    """The candidates for a limit of this many values, by the epsilon of one choice: all public.

    A protected unit has so many `rows`.
    """

    n_values: int
    epsilon: float
    rows: int = 1
    terms: Terms = OF_LABELS

    @property
    def price(self) -> float:
        """The price of a doubling, in scales of the noise."""
        return max(PRICE_OF_DOUBLING, self.terms.price * self.n_values * self.epsilon / self.rows)

    @property
    def depth(self) -> float:
        """How many times a range may be halved.

        >>> [Lattice(n, epsilon).depth for n, epsilon in ((40_000, 0.01), (1000, 0.001))]
        [5.0, 0.0125]
        """
        most = self.terms.most * self.n_values * self.epsilon
        return min(_DEEPEST, most / (self.price * self.rows))

    def limits(self, largest: float) -> FloatArray:
        """Return the candidates, from the widest on."""
        return np.asarray(largest * 0.5 ** np.arange(0.0, self.depth + 1e-9, _STEP))

    def narrowed(
        self,
        values: "FloatArray | CountsItself",
        distance: "Distance",
        largest: float,
        source: NoiseSource,
    ) -> float:
        """Choose the limit with the lowest cost; spends epsilon."""
        limits = self.limits(largest)
        beyond = _count(values, distance, limits)
        place = cheapest(
            beyond,
            np.log2(limits),
            epsilon=self.epsilon,
            rows=self.rows,
            source=source,
            price=self.price,
        )
        return float(limits[place])


MOST_SHARE, MOST_EPSILON = 0.1, 0.27
"""What all searches cost together at most where nobody asks for them, as a share of epsilon and as
an epsilon; see `most_share`. A price that is set in another way one day has to be added to those
that `search_prices` knows, or what was released before no longer verifies."""

RANGE_PART, LIMIT_PART = 0.35, 0.15
"""Parts of that for the range and for the limit at most, where a model is tried, too."""

RANGE_SHARES = (0.02, 0.1)
"""Least and largest share of epsilon for a range that is asked for."""

LIMIT_SHARES = (0.02, 0.05)
"""Least and largest share of epsilon for the limit of a model that is asked for."""

RESOLUTION = 0.001
"""Scale of the noise on a count that is fine enough, as a share of all rows: no more epsilon is
spent than that takes."""

NARROWING = 0.5
"""Width of what a model leaves, in widths of the range, from which on centring pays. What is left
is clipped, and a fourth of the variance of the noise is worth that."""

ENDS = np.array([0.0, *(float(f"{d}e{power}") for power in range(12) for d in (1, 2, 5)), 1e12])
"""How far from zero either end of bounds may be that are found privately: public, and fixed."""

ANY_LABEL: Bounds = (-math.inf, math.inf)
"""The ends that a label has if nobody knows anything about it."""

_PRICES_OUTWARDS = (0.6, 1.2)  # least and largest, of a doubling of bounds, in scales of the noise
_ZERO = 0.01  # as which an end at zero counts: labels of another sign are seldom, and cost most
_MOST_OUTWARDS = 0.25  # of all values: what all doublings together may cost
_DEEPEST = 13.0  # doublings: no stated range is ten thousand times too wide
_STEP = 0.25  # doublings between neighbouring candidates
_AT_ONCE = 2**20  # values that are counted together
_PRECISION = 1000  # counts are in thousandths, so that a whole noise scale can be fine


def cheapest(
    beyond: IntArray,
    doublings: FloatArray,
    *,
    epsilon: float,
    rows: int,
    source: NoiseSource,
    price: float = PRICE_OF_DOUBLING,
) -> int:
    """Return the position of the cheapest candidate by noisy costs; spends epsilon.

    Parameters
    ----------
    beyond : (k,) integers
        Values beyond each candidate; secret.
    doublings : (k,) floats
        How wide each candidate is, as a logarithm to base two; public.
    rows : int
        Rows of a protected unit.
    price : float
        Of a doubling, in scales of the noise; public.
    """
    scale = math.ceil(_PRECISION * rows / Fraction(epsilon))  # never less noise than promised
    prices = np.rint(price * scale * (doublings - doublings.min())).astype(np.int64)
    costs = prices + beyond.astype(np.int64) * _PRECISION
    noisy = costs - discrete_exponential(costs.size, scale=scale, source=source)
    return int(np.argmin(noisy))


def find_bounds(
    values: "FloatArray | CountsItself", within: Bounds, *, event: Mechanism, source: NoiseSource
) -> Bounds:
    """Return bounds that few values exceed, from `ENDS` on either side of zero, as `event` says.

    An end that labels have by nature, as counts have 0, is taken as it is, and the other is chosen
    by all of epsilon. Where both are zero, the upper one is the next candidate: whatever the labels
    are, there is an answer.

    >>> from bagwise.rng import SimulatedNoise
    >>> labels = np.random.default_rng(0).uniform(-3, 700, size=20_000)
    >>> from bagwise.privacy.mechanisms import noisy_choice
    >>> event = noisy_choice("bounds", 0.5)
    >>> find_bounds(labels, ANY_LABEL, event=event, source=SimulatedNoise(1))
    (-5.0, 1000.0)
    """
    sides = (Distance(-math.inf, 0.0, 0.0), Distance(0.0, math.inf, 0.0))
    unknown = [side for side, end in zip(sides, within, strict=True) if math.isinf(end)]
    doublings = np.log2(np.maximum(ENDS, _ZERO))[::-1]
    (low, high), epsilon, rows = within, event.epsilon, event.unit_rows
    for side in unknown:
        beyond = _count(values, side, ENDS[::-1])
        place = cheapest(
            beyond,
            doublings,
            epsilon=epsilon / len(unknown),
            rows=rows,
            source=source,
            price=min(_PRICES_OUTWARDS[1], _price_outwards(values.size, epsilon, rows)),
        )
        end = float(ENDS[::-1][place])
        low, high = (0.0 - end, high) if side is sides[0] else (low, end)
    return (low, high) if low < high else (low, float(ENDS[1]))


def suffices_for_bounds(n_values: int, *, epsilon: float, rows: int) -> bool:
    """Return whether this many values suffice to find both bounds at an epsilon; public.

    >>> [suffices_for_bounds(n, epsilon=0.1, rows=1) for n in (3000, 1000)]
    [True, False]
    """
    return _price_outwards(n_values, epsilon, rows) >= _PRICES_OUTWARDS[0]


def _price_outwards(n_values: int, epsilon: float, rows: int) -> float:
    """Return the price of a doubling at which all of them cost as much as they may, on one side."""
    doublings = math.log2(ENDS[-1] / _ZERO)
    return _MOST_OUTWARDS * n_values * epsilon / (2 * rows * doublings)


def is_choice(bounds: Bounds) -> bool:
    """Tell whether bounds are two of the public candidates."""
    low, high = bounds
    return low <= 0 <= high and low < high and {-low, high} <= set(ENDS.tolist())


def looks_for_range(bounds: Bounds | None) -> int:
    """Return how many choices a range needs, each of which spends its part of epsilon.

    None stands for bounds that are not found yet: they, and the range within them, take two.
    """
    return 1 if bounds is not None and bounds[0] < 0 < bounds[1] else 2


def range_epsilon(
    left: float, bounds: Bounds | None, *, n_rows: int, unit_rows: int, part: float | None
) -> float:
    """Return the part of the remaining epsilon that bounds, or a range within them, may cost.

    It is a `part` of what searches may cost at most; None where it is asked for.
    """
    least, most = RANGE_SHARES
    most = most if part is None else part * most_share(left)
    return _share(left, least, most, looks_for_range(bounds) * unit_rows, n_rows) * left


def limit_share(left: float, *, n_rows: int, unit_rows: int, asked: bool) -> float:
    """Return the share of the remaining epsilon that goes to the limit of a model's residuals."""
    least, most = LIMIT_SHARES
    if not asked:
        least, most = LIMIT_PART * MOST_SHARE / 2, LIMIT_PART * most_share(left)
    return _share(left, least, most, unit_rows, n_rows)


def _share(left: float, least: float, most: float, moved: int, n_rows: int) -> float:
    """Return as small a share as the number of rows allows.

    Counts that move by so many need an epsilon that does not depend on the promise.
    """
    return min(most, max(min(least, most), moved / (RESOLUTION * n_rows) / left))


def search_prices(
    of: str, left: float, bounds: Bounds | None, *, n_rows: int, unit_rows: int
) -> list[float]:
    """Return every epsilon that a search for bounds, a range or a limit may cost."""
    rows = {"n_rows": n_rows, "unit_rows": unit_rows}
    if of == "limit":
        return [left * limit_share(left, asked=asked, **rows) for asked in (True, False)]
    parts = (None,) if of == "bounds" else (None, 1.0, RANGE_PART)
    return [range_epsilon(left, bounds, part=part, **rows) for part in parts]


def most_share(epsilon: float) -> float:
    """Return the share of epsilon that unrequested searches may cost together.

    It leaves the bags 1.12 times the noise at most if no look finds anything, as on most tables,
    whose signal is too weak to centre on. Staircase noise falls faster with a large epsilon than in
    proportion: the line between both ends stays below the curve that the accountant finds.
    """
    return min(MOST_SHARE, 0.05 + 0.07 / epsilon, MOST_EPSILON / epsilon)


@dataclass(frozen=True)
class Distance:
    """How far values, clipped to a range, are from a point."""

    low: float
    high: float
    origin: float

    def of(self, values: FloatArray) -> FloatArray:
        """Return the distance of each value."""
        return np.asarray(np.abs(np.clip(values, self.low, self.high) - self.origin))


@runtime_checkable
class CountsItself(Protocol):
    """Values that are on many machines."""

    @property
    def size(self) -> int:
        """Number of values."""

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many values are farther than each limit; limits fall."""


def tightened(
    values: FloatArray | CountsItself,
    bounds: Bounds,
    *,
    event: Mechanism,
    source: NoiseSource,
    found: bool = False,
) -> Bounds:
    """Return a range within the bounds that few values exceed, as `event` says.

    Between bounds of different signs it is as wide on both sides of zero, as far as the bounds
    reach: one choice. Elsewhere the upper end is chosen by half of epsilon, and then the lower one,
    from candidates that depend on the upper.

    Parameters
    ----------
    values : (n,) floats
        Secret. Values outside the bounds count as if they were on them.
    found : bool
        Whether the bounds were found privately.

    Examples
    --------
    >>> from bagwise.rng import SimulatedNoise
    >>> prices = np.random.default_rng(0).uniform(300, 19_000, size=40_000)
    >>> from bagwise.privacy.mechanisms import noisy_choice
    >>> event = noisy_choice("range", 0.05)
    >>> low, high = tightened(prices, (0.0, 1e6), event=event, source=SimulatedNoise(0))
    >>> low, 15_000 < high < 60_000
    (0.0, True)
    """
    lattice = Lattice(values.size, event.epsilon, event.unit_rows, terms_of(found))
    return _range_by(
        lambda one, distance, largest: one.narrowed(values, distance, largest, source),
        bounds,
        lattice,
    )


def is_range(
    chosen: Bounds, bounds: Bounds, *, n_values: int, event: Mechanism, found: bool = False
) -> bool:
    """Tell whether `tightened` can end with this range, whatever the values are.

    >>> from bagwise.privacy.mechanisms import noisy_choice
    >>> search = {"n_values": 40_000, "event": noisy_choice("range", 0.05)}
    >>> is_range((0.0, 31_250.0), (0.0, 1e6), **search)
    True
    >>> is_range((312.7, 18_996.2), (0.0, 1e6), **search)
    False
    """

    def nearest(lattice: Lattice, distance: Distance, largest: float) -> float:
        limits = lattice.limits(largest)
        wanted = max(abs(end - distance.origin) for end in chosen)
        return float(limits[np.argmin(np.abs(limits - wanted))])

    lattice = Lattice(n_values, event.epsilon, event.unit_rows, terms_of(found))
    # Powers may differ in the last digits on another machine.
    rounding = 1e-12 * max(map(abs, bounds))
    return bool(np.allclose(chosen, _range_by(nearest, bounds, lattice), rtol=0.0, atol=rounding))


def _range_by(
    look: Callable[[Lattice, Distance, float], float], bounds: Bounds, lattice: Lattice
) -> Bounds:
    """Return the range that one or two choices of a limit lead to."""
    low, high = bounds
    if looks_for_range(bounds) == 1:
        reach = look(lattice, Distance(low, high, 0.0), max(-low, high))
        return max(low, -reach), min(high, reach)
    lattice = dataclasses.replace(lattice, epsilon=lattice.epsilon / 2)
    # Rounding must not carry an end beyond the bounds.
    upper = min(high, low + look(lattice, Distance(low, high, low), high - low))
    lower = max(low, upper - look(lattice, Distance(low, upper, upper), upper - low))
    return lower, upper


def limit_of(
    sizes: FloatArray | CountsItself, largest: float, *, event: Mechanism, source: NoiseSource
) -> float:
    """Return a limit, at most `largest`, that few of the sizes exceed, as `event` says.

    Parameters
    ----------
    sizes : (n,) floats
        Absolute values; secret.
    """
    lattice = Lattice(sizes.size, event.epsilon, event.unit_rows, OF_LEFTOVERS)
    return lattice.narrowed(sizes, Distance(0.0, math.inf, 0.0), largest, source)


def is_limit(found: float, largest: float, *, n_values: int, event: Mechanism) -> bool:
    """Tell whether `limit_of` can end with this limit, and centring on it would pay."""
    limits = Lattice(n_values, event.epsilon, event.unit_rows, OF_LEFTOVERS).limits(largest)
    pays = limits <= NARROWING * largest * (1 + 1e-12)
    return bool(np.isclose(found, limits[pays], rtol=1e-12, atol=0.0).any())


def _count(values: FloatArray | CountsItself, distance: Distance, limits: FloatArray) -> IntArray:
    if isinstance(values, CountsItself):
        return values.count_beyond(distance, limits)
    return count_beyond(values, distance, limits)


def count_beyond(values: FloatArray, distance: Distance, limits: FloatArray) -> IntArray:
    """Return how many values are farther than each limit; limits fall.

    >>> here = Distance(0.0, 10.0, 0.0)
    >>> count_beyond(np.array([0.5, 1.0, 3.0, 9.0]), here, np.array([4.0, 2.0, 1.0]))
    array([1, 2, 2])
    """
    rising = limits[::-1]
    passed = np.zeros(limits.size + 1, dtype=np.int64)  # values that are above so many limits
    for first in range(0, values.size, _AT_ONCE):
        sizes = distance.of(values[first : first + _AT_ONCE])
        above = np.searchsorted(rising, sizes, side="left")
        passed += np.bincount(above, minlength=passed.size)
    return np.cumsum(passed[:0:-1])
