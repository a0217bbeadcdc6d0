"""A test for missing noise: labels vary less than the noise in the certificate would make them.

A bag label is something unknown plus noise whose distribution is known. Noise of a symmetric
distribution with one peak lies within a given distance of a point most often if that point is its
own centre (Anderson 1955, Theorem 1). So with any guess c that does not depend on the noise of
this bag, the chance that ``|label - c|`` is at most r is at most that of ``|noise| <= r``, whatever
the unknown part is: ``F(|label - c|)``, with F the distribution of the noise's absolute value, is
never smaller by chance than a uniform variable. Few labels far from their guesses prove nothing,
since anything may have moved them; many labels too close to theirs prove that the noise is missing.

The guess for one half of the bags is a least-squares fit to the other half, so that it has nothing
of their noise. The sum of F over bags is then never smaller by chance than a sum of uniform
variables (Edgington 1972), whose lower tail is bounded as Chernoff does. A bag that is far off its
guess counts 1 at most, so that a few of them cannot hide the rest. The test shows the absence of
noise, never its presence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy
from scipy import special

from bagwise._types import FloatArray, IntArray

FALSE_ALARMS = 1e-9
"""How often an honest release may fail the test: once in a billion."""

_MOST_COLUMNS = 50  # of features, for the guesses
_BAGS_PER_COLUMN = 8


@dataclass(frozen=True)
class ClaimedNoise:
    """The noise of each bag label, as a certificate describes it."""

    # (m,): grid steps, in which the noise is drawn, in one unit of the bag's label.
    steps_per_unit: FloatArray
    # The chance that the noise of each bag is at most so many whole steps, or a bit more.
    within: Callable[[FloatArray], FloatArray]
    # The chance that the noise of each bag is so many steps up or more, or a bit more; as large as
    # it is for the noise to be down by so many.
    beyond: Callable[[FloatArray], FloatArray]


class Frequencies(NamedTuple):
    """How often each label is reported, and the ends of its chance, whatever the true ones are."""

    counts: IntArray
    least: FloatArray
    most: FloatArray


def dispersion_p_value(labels: FloatArray, features: FloatArray, noise: ClaimedNoise) -> float:
    """Return an upper bound of the probability that labels lie this close to their guesses.

    Parameters
    ----------
    labels : (m,) floats
    features : (m, d) floats
        Mean features of each bag, or anything else that does not depend on the labels.
    noise : ClaimedNoise

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = ClaimedNoise(
    ...     np.ones(200), lambda r: 1 - np.exp(-(r + 1) / 50), lambda r: np.exp(-r / 50)
    ... )
    >>> claimed = rng.laplace(scale=50, size=200)
    >>> none = np.zeros((200, 0))
    >>> bool(dispersion_p_value(claimed, none, noise) > 0.001)
    True
    >>> bool(dispersion_p_value(claimed / 10, none, noise) < 1e-9)
    True
    """
    m = labels.size
    if m < 2:
        return 1.0
    # A constant, and as many columns of features as the bags allow.
    used = features[:, : min(_MOST_COLUMNS, m // (2 * _BAGS_PER_COLUMN))]
    spread = np.where((s := used.std(axis=0)) > 0, s, 1.0)
    columns = np.column_stack([np.ones(m), (used - used.mean(axis=0)) / spread])
    first = np.arange(m) % 2 == 0  # bags are numbered by a secret order, so any halves will do
    p_values = []
    for tested in (first, ~first):
        coefficients, *_ = np.linalg.lstsq(columns[~tested], labels[~tested], rcond=None)
        distance = np.abs(labels[tested] - columns[tested] @ coefficients)
        steps = np.ceil(distance * noise.steps_per_unit[tested])
        everywhere = np.zeros(m)
        everywhere[tested] = steps
        chances = np.clip(noise.within(everywhere)[tested], 0.0, 1.0)
        p_values.append(_uniform_sum_tail(float(chances.mean()), int(tested.sum())))
    return min(1.0, 2 * min(p_values))


def _uniform_sum_tail(mean: float, count: int) -> float:
    """Bound the chance that the mean of so many uniform variables is at most `mean`.

    Chernoff: ``min over t of (e^(t mean) (1 - e^-t) / t)^count``, at the t that makes the tilted
    mean, ``1 / t - 1 / (e^t - 1)``, equal to `mean`.

    >>> _uniform_sum_tail(0.5, 10), round(_uniform_sum_tail(0.25, 10), 3)
    (1.0, 0.017)
    """
    if mean >= 0.5:
        return 1.0
    mean = max(mean, 1e-9)
    t = 1 / mean  # what is left of the equation where e^t would overflow
    if t < 700:
        t = scipy.optimize.brentq(lambda t: 1 / t - 1 / np.expm1(t) - mean, 1e-6, 700.0)
    return float(np.exp(count * (t * mean + np.log(-np.expm1(-t) / t))))


def reach_p_value(off: FloatArray, noise: ClaimedNoise) -> float:
    """Return an upper bound of the probability that noise moves any label this far.

    Parameters
    ----------
    off : (m,) floats
        How far each label is from where it can be without noise, in its units; below 0 inside.
    noise : ClaimedNoise

    Examples
    --------
    >>> claimed = ClaimedNoise(np.ones(2), lambda r: 1 - np.exp(-r), lambda r: np.exp(-r))
    >>> reach_p_value(np.array([-3.0, 0.5]), claimed)
    1.0
    >>> reach_p_value(np.array([-3.0, 50.0]), claimed) < 1e-9
    True
    """
    steps = np.floor(off * noise.steps_per_unit)
    chances = np.where(steps > 0, noise.beyond(np.maximum(steps, 1.0)), 1.0)
    return min(1.0, off.size * float(chances.min()))


def frequencies_p_value(counts: IntArray, least: FloatArray, most: FloatArray) -> float:
    """Return an upper bound of the probability of such frequent or such rare reports.

    Each of the numbers has, whatever a label is, a chance between `least` and `most` of being the
    one that is reported for it. How often it is, of all labels, is never larger by chance than a
    binomial variable with the largest of these chances, and never smaller than one with the least.

    Parameters
    ----------
    counts, least, most : (k,)

    Examples
    --------
    >>> least, most = np.array([0.3, 0.3]), np.array([0.7, 0.7])
    >>> frequencies_p_value(np.array([500, 500]), least, most)
    1.0
    >>> frequencies_p_value(np.array([900, 100]), least, most) < 1e-9
    True
    """
    total = int(counts.sum())
    rare = special.bdtr(counts, total, least)
    often = np.where(counts > 0, special.bdtrc(counts - 1, total, most), 1.0)
    return min(1.0, 2 * counts.size * float(min(rare.min(), often.min())))
