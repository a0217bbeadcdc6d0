"""Detect bags that a strategy cannot have made, from published data."""

import numpy as np
from scipy import special

from bagwise._types import FloatArray, IntArray
from bagwise.bagging._cut import cut_apart
from bagwise.bagging.strategy import PublishedBags
from bagwise.rows.row_order import mid_ranks

_FALSE_ALARMS = 1e-9
_SLACK, _ROOM = 1.25, 0.1
"""Times the spread within bags that plain cuts leave, and of the spread of all rows: a search for
compact bags leaves less than plain cuts, but for chance among very few rows."""


def overlaps(bags: PublishedBags, *, together: int) -> str | None:
    """Look for more than `together` bags whose scores overlap; bags of neighbours by score do not.

    >>> scores = np.array([1.0, 3.0, 2.0, 4.0])
    >>> overlaps(PublishedBags(np.array([0, 0, 1, 1]), scores=scores), together=1)
    'its bags overlap in the scores that they were sorted by'
    """
    index, scores = bags.index, bags.scores
    if scores is None:
        return None
    kept = index >= 0
    low, high = np.full(index.max() + 1, np.inf), np.full(index.max() + 1, -np.inf)
    np.minimum.at(low, index[kept], scores[kept])
    np.maximum.at(high, index[kept], scores[kept])
    by_low = np.argsort(low)
    reached = np.maximum.accumulate(high[by_low])
    # A new group begins where a bag starts no earlier than all before it have ended.
    begins = np.concatenate([[True], low[by_low][1:] >= reached[:-1] - 2 * bags.rounding])
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
        ranks = mid_ranks(column)
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


def far_apart(index: IntArray, points: FloatArray) -> str | None:
    """Look for bags of points that are less compact than plain cuts would make them.

    Rows are cut in two where they differ most, and each part again, until there are parts of the
    sizes of the bags. A search for compact bags starts from better cuts than these. Bags that were
    made for another metric, or by something else than the features, are far less compact in this
    one.

    >>> points = np.random.default_rng(0).normal(size=(400, 2)) * [10, 1]
    >>> near, other = (np.argsort(np.argsort(column)) // 40 for column in points.T)
    >>> far_apart(near, points), far_apart(other, points)
    (None, 'its bags are not compact in the metric that they were made for')
    """
    kept = index >= 0
    points, (numbers, bag) = points[kept], np.unique(index[kept], return_inverse=True)
    sizes = np.bincount(bag)
    if numbers.size < 2:
        return None
    points = np.asarray(points, dtype=np.float64) - points.mean(axis=0)
    cut = np.repeat(np.arange(numbers.size), sizes)
    order = cut_apart(points, np.concatenate([[0], np.cumsum(sizes)]))
    scatter, plain = scatter_within(points, bag), scatter_within(points[order], cut)
    if scatter > _SLACK * plain + _ROOM * float(np.sum(points**2)):
        return "its bags are not compact in the metric that they were made for"
    return None


def scatter_within(points: FloatArray, bag: IntArray) -> float:
    """Return the sum of squared distances from the means of the bags."""
    sizes = np.bincount(bag)
    between = sum(float(np.sum(np.bincount(bag, column) ** 2 / sizes)) for column in points.T)
    return max(0.0, float(np.sum(points**2)) - between)
