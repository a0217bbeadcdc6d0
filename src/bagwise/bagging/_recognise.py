"""Telling bags that a strategy cannot have made, from what is published."""

import numpy as np
from scipy import special, stats

from bagwise._types import FloatArray, IntArray

_FALSE_ALARMS = 1e-9


def overlaps(
    index: IntArray, scores: FloatArray | None, rounding: float, *, together: int
) -> str | None:
    """Look for more than `together` bags whose scores overlap; bags of neighbours by score do not.

    >>> overlaps(np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 4.0]), 0.0, together=1)
    'its bags overlap in the scores that they were sorted by'
    """
    if scores is None:
        return None
    kept = index >= 0
    low, high = np.full(index.max() + 1, np.inf), np.full(index.max() + 1, -np.inf)
    np.minimum.at(low, index[kept], scores[kept])
    np.maximum.at(high, index[kept], scores[kept])
    by_low = np.argsort(low)
    reached = np.maximum.accumulate(high[by_low])
    # A new group begins where a bag starts no earlier than all before it have ended.
    begins = np.concatenate([[True], low[by_low][1:] >= reached[:-1] - 2 * rounding])
    if np.diff(np.append(np.flatnonzero(begins), by_low.size)).max() > together:
        return "its bags overlap in the scores that they were sorted by"
    return None


def follows_features(index: IntArray, X: FloatArray | None) -> str | None:
    """Look for features that differ between bags more than rows drawn at random do.

    Each feature is replaced by its ranks. If bags were drawn at random, the share of their variance
    that lies between m bags of n rows, times n - 1, has mean m - 1 and a variance below that of a
    chi-squared variable, since ranks have lighter tails than a normal variable (Box and Andersen
    1955, section 2). Features whose many ties give heavy tails are passed over.
    """
    if X is None or X.shape[1] == 0 or index.size < 3:
        return None
    sizes = np.bincount(index)
    sizes = sizes[sizes > 0]
    _, group = np.unique(index, return_inverse=True)
    smallest = 1.0
    for column in X.T:
        ranks = stats.rankdata(column)
        ranks -= ranks.mean()
        variance = float(np.mean(ranks**2))
        if variance == 0 or np.mean(ranks**4) > 3 * variance**2:
            continue
        between = np.sum(np.bincount(group, weights=ranks) ** 2 / sizes)
        statistic = (index.size - 1) * between / (index.size * variance)
        smallest = min(smallest, float(special.chdtrc(sizes.size - 1, statistic)))
    if smallest * X.shape[1] < _FALSE_ALARMS:
        return "they follow the features, and bags drawn at random do not"
    return None
