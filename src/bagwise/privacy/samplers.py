"""Discrete Laplace, Gaussian and staircase noise, exact on the integers and vectorised.

The construction is that of Canonne, Kamath and Steinke (2020): a discrete Gaussian is a discrete
Laplace variable that is kept with probability exp(-gamma), for a rational gamma. Both steps are
statements about an exponential variable E = -ln U, U uniform on (0, 1):

- floor(t E) is geometric: floor(t E) >= y exactly when U <= exp(-y/t);
- E > gamma has probability exp(-gamma).

The step that staircase noise is on is floor(t E) for a rational t.

U is a real number with infinitely many random bits, of which a word shows the first 63. That is
nearly always enough to decide, and double precision nearly always suffices to see that it is. Where
it does not, by a proven margin, `LazyExponential` decides with integers and as many more random
bits as it takes. So what comes out has the stated probabilities exactly, and is a function of the
random words alone, whatever the last digits of a machine's logarithm.

``docs/noise.md`` has the argument in full. No label enters this module.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BudgetError
from bagwise.rng import NoiseSource

WordArray = NDArray[np.uint64]
BoolArray = NDArray[np.bool_]

# Above, t times the margin comes near one half, and every draw would take the slow path. |y| of the
# fast path is below 12 * 2**40, far within what a double counts exactly.
LARGEST_SCALE = 2**40

# Candidates at a time: the arrays of one block fit the cache, and memory does not grow with count.
BLOCK = 2**15

# Beyond, E is left to the exact path. All words below 2**48 are (16 ln 2 = 11.09), for which the
# bits not yet drawn matter more than rounding does.
LONGEST = 11.0

# How far, in units of E, a comparison in double precision may be wrong. For a word w >= 2**48:
#
#   bits not drawn    w with its last bit set is within 1 of 2**64 U     < 1.01 * 2**-48
#   w as a double     relative 2**-53 of U, so in E                      < 1.01 * 2**-53
#   logarithm         4 units in the last place of a result below 16     <= 2**-47  (NumPy's limit)
#   product t E       relative 2**-53 of E < 11.1, for floor(t E)        < 2**-49
#   gamma             61 * 2**-53 as long as gamma < 11.2, for E > gamma < 2**-47
#
# Together less than 0.64 * 2**-45. A logarithm 9 units off would still be covered. Staircase noise
# compares (E + k ln 2) scale / shift, k up to `MOST_ZEROS`, which adds
#
#   k ln 2            k times 2**-54, and one rounding below 32          < 0.12 * 2**-45
#   sum               one rounding below 32                              < 0.07 * 2**-45
#   ratio, product    relative 2**-53 each, of 30.6                      < 0.24 * 2**-45
#
# to 0.38 * 2**-45 of E itself: less than 0.81 * 2**-45.
MARGIN = 2.0**-45

LN_2 = log(2)

# Zero bits that a uniform variable may be given in front, for staircase noise.
MOST_ZEROS = 28


def discrete_laplace(count: int, *, scale: int, source: NoiseSource) -> IntArray:
    """Draw integers y with probability proportional to exp(-|y| / scale).

    Parameters
    ----------
    count : int
        How many to draw.
    scale : int
        From 1 to `LARGEST_SCALE`.
    source : NoiseSource
        Where the random words come from.

    Returns
    -------
    ndarray of int64
        Independent draws.

    Examples
    --------
    >>> from bagwise.rng import SimulatedNoise
    >>> discrete_laplace(5, scale=10, source=SimulatedNoise(0)).dtype
    dtype('int64')
    """
    scale = _checked(scale)

    def candidates(size: int) -> IntArray:
        words = source.words(size)
        sizes = _floors(words, source, scale=scale)
        kept = _is_signed_once(sizes, words)
        return _with_sign(sizes[kept], words[kept])

    return _fill(count, candidates)


def discrete_exponential(count: int, *, scale: int, source: NoiseSource) -> IntArray:
    """Draw integers y >= 0 with probability proportional to exp(-y / scale).

    Parameters and result as for `discrete_laplace`.

    Examples
    --------
    >>> from bagwise.rng import SimulatedNoise
    >>> draws = discrete_exponential(10_000, scale=1000, source=SimulatedNoise(0))
    >>> bool(draws.min() >= 0 and abs(draws.mean() - 1000) < 50)
    True
    """
    scale = _checked(scale)
    return _fill(count, lambda size: _floors(source.words(size), source, scale=scale))


def discrete_gaussian(count: int, *, scale: int, source: NoiseSource) -> IntArray:
    """Draw integers y with probability proportional to exp(-y**2 / (2 scale**2)).

    Parameters and result as for `discrete_laplace`. The standard deviation is less than `scale` by
    at most two parts in 10**7, which is the gap at scale 1.

    Examples
    --------
    >>> from bagwise.rng import SimulatedNoise
    >>> draws = discrete_gaussian(10_000, scale=1000, source=SimulatedNoise(0))
    >>> bool(abs(draws.std() - 1000) < 50)
    True
    """
    scale = _checked(scale)

    def candidates(size: int) -> IntArray:
        words = source.words(2 * size)
        words, deciding = words[:size], words[size:]
        # Any Laplace scale t is right: exp(-y/t) exp(-(y - scale**2/t)**2 / (2 scale**2)) is
        # exp(-y**2 / (2 scale**2)) times a constant. t = scale keeps the most, 76 % of candidates.
        sizes = _floors(words, source, scale=scale)
        kept = _is_kept(sizes, deciding, scale, source)
        kept &= _is_signed_once(sizes, words)
        return _with_sign(sizes[kept], words[kept])

    return _fill(count, candidates)


def discrete_staircase(
    count: int, *, shift: int, scale: int, inner: int, source: NoiseSource
) -> IntArray:
    """Draw integers from a staircase distribution, which falls once in every `shift` steps.

    With ``|y| = j * shift + r`` and ``0 <= r < shift``, the probability of y is proportional to
    ``exp(-j * shift / scale)`` where r is below `inner`, and to ``exp(-(j + 1) * shift / scale)``
    elsewhere (Geng and Viswanath 2016). `shift` is from 1 to `LARGEST_SCALE`, `inner` from 1 to
    `shift`; other parameters and result as for `discrete_laplace`.

    Examples
    --------
    >>> from bagwise.rng import SimulatedNoise
    >>> draws = discrete_staircase(10_000, shift=8, scale=1, inner=1, source=SimulatedNoise(0))
    >>> bool(abs((draws == 0).mean() - 0.995) < 0.005)
    True
    """
    shift, scale, inner = _checked(shift), _checked(scale), _checked(inner)
    if inner > shift:
        raise BudgetError("the highest step of a staircase is no wider than the shift.")
    # r is uniform over the inner and, exp(-shift/scale) times as rare, over the outer part. The
    # exponential variable says whether to keep an outer r. To throw little away, outer ones are
    # proposed 2**zeros times as rarely as inner ones, and their U begins with so many zeros.
    # 2**-zeros is at least exp(-shift / scale), whatever rounding does, and places fit 64 bits.
    most = int(shift / scale / LN_2 * (1 - 1e-9))
    zeros = min(MOST_ZEROS, 60 - inner.bit_length(), most)
    weight = inner << zeros
    limit = weight + shift - inner
    fair = np.uint64((2**64 // limit) * limit - 1)  # words above would favour small results

    def candidates(size: int) -> IntArray:
        words = source.words(2 * size)
        words, placing = words[:size], words[size:]
        places = (placing - placing // np.uint64(limit) * np.uint64(limit)).astype(np.int64)
        outer = places >= weight
        levels = _floors(words, source, scale=scale, shift=shift, zeros=outer * zeros)
        kept = (levels > 0) | ~outer
        kept &= placing <= fair
        sizes = np.where(outer, places - (weight - inner), places >> zeros)
        sizes += (levels - outer) * shift
        kept &= _is_signed_once(sizes, words)
        return _with_sign(sizes[kept], words[kept])

    return _fill(count, candidates)


class LazyExponential:
    """Bracket E = -ln U, where U is uniform and its bits are drawn as they are needed.

    Parameters
    ----------
    word : int
        64 random bits; the upper 63 are the first bits of U, the last belongs to the sign.
    source : NoiseSource
        Where further bits come from.
    zeros : int
        Bits in front of those, all of them 0: U is uniform below 2**-zeros, and E is larger by
        ``zeros * ln 2``.
    """

    low: Fraction
    high: Fraction

    def __init__(self, word: int, source: NoiseSource, zeros: int = 0) -> None:
        self._source = source
        self._prefix = word >> 1
        self._bits = 63 + zeros
        if self._prefix:
            self._bracket()
        else:  # no upper bound yet
            self.refine()

    def refine(self) -> None:
        """Draw 64 more bits of U, or as many as it takes to see a one, and narrow the bracket."""
        self._draw()
        while self._prefix == 0:
            self._draw()
        self._bracket()

    def _draw(self) -> None:
        self._prefix = self._prefix << 64 | int(self._source.words(1)[0])
        self._bits += 64

    def _bracket(self) -> None:
        # prefix <= 2**bits U <= prefix + 1, and ln(prefix + 1) - ln(prefix) < 1 / prefix.
        # `Decimal` takes integers as they are and rounds each ln correctly; both are below 10**5
        # (for 144,000 bits), so each is off by less than 10**(5 - digits). The slack is more than
        # both, and far less than 2**-bits, the finest that matters.
        digits = self._bits // 3 + 16
        slack = Fraction(1, 10 ** (digits - 6))
        middle = _ln_of_power(self._bits, digits) - _ln(self._prefix, digits)
        self.low = max(Fraction(0), middle - slack - Fraction(1, self._prefix))
        self.high = middle + slack


def exact_floor(word: int, scale: Fraction, source: NoiseSource, zeros: int = 0) -> int:
    """Return floor(scale * E) for the exponential variable that begins with `word`."""
    exponential = LazyExponential(word, source, zeros)
    while floor(scale * exponential.low) != floor(scale * exponential.high):
        exponential.refine()
    return floor(scale * exponential.low)


def exact_exceeds(word: int, gamma: Fraction, source: NoiseSource) -> bool:
    """Return whether E > gamma for the exponential variable that begins with `word`."""
    exponential = LazyExponential(word, source)
    while exponential.low <= gamma <= exponential.high:
        exponential.refine()
    return exponential.low > gamma


def _ln(number: int, digits: int) -> Fraction:
    """Return the natural logarithm of an integer, rounded correctly to this many digits."""
    return Fraction(Context(prec=digits).ln(Decimal(number)))


@lru_cache(maxsize=4)
def _ln_of_power(bits: int, digits: int) -> Fraction:
    """Return the logarithm of 2**bits, remembered: it is public, unlike those of random bits."""
    return _ln(2**bits, digits)


def _checked(scale: int) -> int:
    """Return the scale as a Python integer, whose powers cannot overflow."""
    whole = isinstance(scale, int | np.integer) and not isinstance(scale, bool)
    if not whole or not 1 <= scale <= LARGEST_SCALE:
        raise BudgetError(
            f"noise of scale {scale!r} cannot be drawn exactly. "
            f"Choose a whole number from 1 to {LARGEST_SCALE}."
        )
    return int(scale)


def _fill(count: int, candidates: Callable[[int], IntArray]) -> IntArray:
    """Collect `count` draws, block by block, from a function that keeps part of its candidates.

    What is kept is a sequence of independent draws; using its beginning leaves it one.
    """
    drawn = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        wanted = count - filled
        kept = candidates(min(BLOCK, wanted + wanted // 3 + 32))[:wanted]
        drawn[filled : filled + kept.size] = kept
        filled += kept.size
    return drawn


def _log(words: WordArray) -> FloatArray:
    """Return ln U = -E in double precision. The last bit, set, stands for the bits not drawn."""
    uniform = (words | np.uint64(1)).astype(np.float64)
    uniform *= 2.0**-64
    logarithm: FloatArray = np.log(uniform, out=uniform)
    return logarithm


def _floors(
    words: WordArray,
    source: NoiseSource,
    *,
    scale: int,
    shift: int = 1,
    zeros: IntArray | None = None,
) -> IntArray:
    """Return floor((E + zeros ln 2) * scale / shift) for each word, exactly."""
    product = _log(words)
    doubtful = product < -LONGEST
    if zeros is not None:
        product -= zeros * LN_2
    rate = scale / shift
    product *= -rate
    floors: IntArray = product.astype(np.int64)  # rounds towards zero, and E >= 0
    # Near a whole number the bits not drawn, or a rounding error, could decide.
    product -= floors
    product -= 0.5
    np.abs(product, out=product)
    # At rates below 1 the margin stays what it is, or it would vanish in the rounding of 0.5.
    doubtful |= product > 0.5 - max(1.0, rate) * MARGIN
    for place in np.flatnonzero(doubtful):
        known = 0 if zeros is None else int(zeros[place])
        floors[place] = exact_floor(int(words[place]), Fraction(scale, shift), source, known)
    return floors


def _is_kept(sizes: IntArray, words: WordArray, scale: int, source: NoiseSource) -> BoolArray:
    """Return for each size whether E > gamma = (size / scale - 1)**2 / 2, exactly."""
    gap = sizes / float(scale)
    gap -= 1.0
    gap *= gap
    gap *= 0.5
    logarithm = _log(words)
    gap += logarithm  # gamma - E
    kept = gap < 0.0
    np.abs(gap, out=gap)
    doubtful = gap <= MARGIN
    doubtful |= logarithm < -LONGEST
    for place in np.flatnonzero(doubtful):
        gamma = Fraction((int(sizes[place]) - scale) ** 2, 2 * scale**2)
        kept[place] = exact_exceeds(int(words[place]), gamma, source)
    return kept


def _is_signed_once(sizes: IntArray, words: WordArray) -> BoolArray:
    """Return whether to keep a size with its sign: otherwise zero would count twice."""
    kept: BoolArray = sizes != 0
    kept |= words & np.uint64(1) == 0
    return kept


def _with_sign(sizes: IntArray, words: WordArray) -> IntArray:
    """Return the sizes, negated where the last bit of the word is set."""
    minus = -(words & np.uint64(1)).astype(np.int64)  # 0 or -1: all bits
    return (sizes ^ minus) - minus
