"""The advantage of guesses over chance or over other guesses, with distribution-free intervals.

The advantage of a guess between two equally likely labels is ``2 * right - 1``: 0 for a coin toss,
1 for certainty. Under label privacy, an attacker who knows everything else is right with
probability at most ``e^epsilon / (1 + e^epsilon)``, so the advantage is at most ``tanh(epsilon /
2)``.

References
----------
Clopper and Pearson (1934) for the intervals. Wu, Zhou, Weinberger and Guo (2023), Does label
differential privacy prevent label inference attacks?, for the advantage over whoever sees features
only, and its limit.
"""

import math

import numpy as np
from scipy import stats

from bagwise._types import AnyArray, FloatArray
from bagwise.files.records import Record


class Advantage(Record, frozen=True):
    """An estimate with the ends of its interval, from so many independent guesses."""

    estimate: float
    low: float
    high: float
    guesses: int

    def __str__(self) -> str:
        return f"{self.estimate:.2f} ({self.low:.2f} to {self.high:.2f})"


def dp_limit(epsilon: float, delta: float, *, share: float = 1.0) -> float:
    """Return the largest advantage that a guarantee allows.

    For guesses that are made in a share of the cases only, delta counts for so much more:
    ``P1(E) <= e^epsilon P0(E) + delta`` bounds the share of right ones among them by
    ``e^epsilon / (1 + e^epsilon) + delta / (2 share (1 + e^epsilon))``.

    >>> round(dp_limit(1.0, 0.0), 3), round(dp_limit(1.0, 1e-3, share=0.01), 3)
    (0.462, 0.489)
    """
    return min(1.0, math.tanh(epsilon / 2) + delta / (share * (1 + math.exp(min(epsilon, 700)))))


def over_chance(right: AnyArray, *, alpha: float) -> Advantage | None:
    """Return the advantage over a coin of independent guesses; None if there are none.

    >>> advantage = over_chance(np.arange(100) < 75, alpha=0.05)
    >>> advantage.estimate, round(advantage.low, 2), round(advantage.high, 2)
    (0.5, 0.31, 0.66)
    """
    count, total = int(np.sum(right)), int(np.size(right))
    if not total:
        return None
    low, high = (2 * end - 1 for end in rate_interval(count, total, alpha=alpha))
    return Advantage(estimate=2 * count / total - 1, low=low, high=high, guesses=total)


def over_others(right: AnyArray, others: AnyArray, *, alpha: float) -> Advantage | None:
    """Return how much more often guesses are right than other guesses about the same rows.

    Only cases in which one of the two is right count for the difference; each of the two shares
    gets half of alpha.

    >>> mine, theirs = np.arange(100) < 80, np.arange(100) < 50
    >>> advantage = over_others(mine, theirs, alpha=0.05)
    >>> advantage.estimate, advantage.low > 0.1, advantage.high < 0.45
    (0.3, True, True)
    """
    total = int(np.size(right))
    if not total:
        return None
    won, lost = int(np.sum(right & ~others)), int(np.sum(others & ~right))
    won_low, won_high = rate_interval(won, total, alpha=alpha / 2)
    lost_low, lost_high = rate_interval(lost, total, alpha=alpha / 2)
    low, high = won_low - lost_high, won_high - lost_low
    return Advantage(estimate=(won - lost) / total, low=low, high=high, guesses=total)


def when_sure(right: AnyArray, sureness: FloatArray, *, alpha: float) -> Advantage | None:
    """Return the advantage of the guesses that the attacker is sure of.

    How sure is sure enough is chosen by one half of the cases, and measured by the other: a
    threshold chosen by the cases that it is judged by would void the interval.
    """
    half = right.size // 2
    if not half:
        return None
    order = np.argsort(-sureness[:half], kind="stable")
    counts, levels = np.cumsum(right[:half][order]), sureness[:half][order]
    # At ties all guesses of the same sureness are made or none.
    ends = np.flatnonzero(np.diff(levels, append=-np.inf) != 0)
    ends = ends[np.unique(np.geomspace(1, ends.size, 200).astype(int)) - 1]
    lows = [rate_interval(int(counts[end]), int(end) + 1, alpha=alpha)[0] for end in ends]
    level = levels[ends[int(np.argmax(lows))]]
    return over_chance(right[half:][sureness[half:] >= level], alpha=alpha)


def rate_interval(count: int, total: int, *, alpha: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for a probability.

    >>> [round(end, 3) for end in rate_interval(0, 10, alpha=0.05)]
    [0.0, 0.308]
    """
    low = 0.0 if count == 0 else float(stats.beta.ppf(alpha / 2, count, total - count + 1))
    high = 1.0 if count == total else float(stats.beta.isf(alpha / 2, count + 1, total - count))
    return low, high
