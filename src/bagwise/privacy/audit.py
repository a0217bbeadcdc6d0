"""Attack a mechanism and see how much of its epsilon can be demonstrated.

An audit draws from the mechanism on two neighbouring data sets, lets an attacker guess which one
it was from a score, and turns the guesses into a lower bound on epsilon that holds with a stated
confidence. It cannot prove privacy; it can disprove it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bagwise._types import FloatArray

Draw = Callable[[int], FloatArray]


@dataclass(frozen=True)
class Audit:
    """What the attack achieved.

    Attributes
    ----------
    epsilon : float
        With confidence 1 - alpha the mechanism is not (less than this, delta)-private.
    threshold : float
        The attacker says "first data set" above it.
    hits, false_alarms : float
        Shares of such guesses on the first and on the second data set.
    """

    epsilon: float
    threshold: float
    hits: float
    false_alarms: float


def audit(first: Draw, second: Draw, *, delta: float, draws: int, alpha: float = 1e-3) -> Audit:
    """Bound epsilon from below by attacking draws from two neighbouring data sets.

    Parameters
    ----------
    first, second : callables
        Return that many independent scores; the attacker's score should grow with the likelihood
        ratio of the first to the second data set.
    delta : float
        The delta at which epsilon is claimed.
    draws : int
        Draws from each; half of them choose the threshold, the other half measure.
    alpha : float
        Chance of a wrong bound.

    References
    ----------
    Clopper and Pearson (1934) for the intervals; Jagielski, Ullman and Oprea (2020) for the audit.
    """
    half = draws // 2
    threshold = _best_threshold(first(half), second(half), delta)
    hits = int(np.sum(first(half) > threshold))
    false_alarms = int(np.sum(second(half) > threshold))
    epsilon = epsilon_lower_bound(hits, false_alarms, half, delta=delta, alpha=alpha)
    return Audit(epsilon, threshold, hits / half, false_alarms / half)


def epsilon_lower_bound(
    hits: int, false_alarms: int, draws: int, *, delta: float, alpha: float
) -> float:
    """Return the epsilon that these counts rule out to be smaller, with confidence 1 - alpha.

    >>> round(epsilon_lower_bound(900, 100, 1000, delta=0.0, alpha=0.05), 2)
    1.99
    """
    rate = 0.0 if hits == 0 else float(stats.beta.ppf(alpha / 2, hits, draws - hits + 1))
    quiet = draws - false_alarms
    alarm = 1.0 if quiet == 0 else float(stats.beta.isf(alpha / 2, false_alarms + 1, quiet))
    return max(0.0, math.log((rate - delta) / alarm)) if rate > delta else 0.0


def _best_threshold(first: FloatArray, second: FloatArray, delta: float) -> float:
    """Choose where the bound would be largest, were the counts exact but for a few."""
    candidates = np.unique(np.quantile(first, np.linspace(0.0, 0.9999, 400)))
    draws = first.size
    hits = draws - np.searchsorted(np.sort(first), candidates, side="right")
    alarms = draws - np.searchsorted(np.sort(second), candidates, side="right")
    bounds = [
        epsilon_lower_bound(int(h), int(a), draws, delta=delta, alpha=1e-3)
        for h, a in zip(hits, alarms, strict=True)
    ]
    return float(candidates[int(np.argmax(bounds))])
