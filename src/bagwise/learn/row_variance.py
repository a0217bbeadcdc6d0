"""Estimate from bags how much single labels vary around predictions.

A bag label is off by what its rows' labels are off by on average, by the privacy noise, which is
known, and by what the model has not learned. Rows of a bag are alike, so that the last does not
average out, and has to be told from the first: multiplied by the size of a bag it would seem to be
noise of rows. What tells them apart is that neighbouring bags are off by nearly the same misfit::

    off_l = misfit(centroid_l) + e_l + noise_l,   var e_l = v share_l
    E off_l off_k = misfit^2 for neighbours l and k,   E off_l^2 = misfit^2 + v share_l + noise^2

Both are means over bags, so that they ask nothing of the law of labels or noise. Misfit that
changes within the distance of a few bags counts as noise of rows: the variance is then too large.

Rows of a bag are taken to be independent, given their features. Where they are not, as with several
rows of one person in a bag, what they share counts as noise of rows, and the variance is too large.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family

_FEWEST = 20  # bags; of fewer nobody can tell
_MOST, _BAGS = 10_000, 5_000  # rows for units, and bags that are looked at
_NEIGHBOURS = 6
_HIDDEN = 0.5  # standard error of v, relative, beyond which nothing is said


def row_variance(
    X: FloatArray,
    bags: Bags,
    off: FloatArray,
    mean: FloatArray,
    noise_sd: FloatArray,
    *,
    family: Family,
    picked: bool,
) -> float | None:
    """Return the variance of a label around its prediction, relative to the family's.

    Parameters
    ----------
    X, mean : (n, d), (n,)
        Rows and their expected labels.
    off, noise_sd : (m,)
        What bag labels are off by, and the deviation of the noise on them.
    picked : bool
        Whether a bag label is that of one of its rows, and not their mean.

    Returns
    -------
    float or None
        None where the noise hides it.
    """
    if bags.n_bags < _FEWEST:
        return None
    by_row = family.variance(family.predictor(mean))
    known = noise_sd**2 + (bags.variance(mean) if picked else 0.0)
    share = bags.mean(by_row) / (1 if picked else bags.sizes)  # of a label's variance, in a bag's
    # 1. Neighbours in features and in predictions, which count as much as all features.
    expected, spread = bags.mean(mean), X[:: max(1, len(X) // _MOST)].std(axis=0)
    points = bags.mean(X) / np.where(spread > 0, spread, 1.0)
    scale = np.sqrt(points.shape[1]) / max(float(expected.std()), 1e-300)
    points = np.column_stack([points, scale * (expected - expected.mean())])
    some = np.arange(0, bags.n_bags, -(-bags.n_bags // _BAGS))
    nearest = NearestNeighbors(n_neighbors=_NEIGHBOURS + 1).fit(points)
    near = nearest.kneighbors(points[some], return_distance=False)[:, 1:]
    # 2. What neighbours share is misfit, and all the rest noise of rows.
    around = off - off.mean()
    shared = around[some] * around[near].mean(axis=1)
    misfit = max(0.0, float(shared.mean()))
    left = (around**2 - known)[some] - (shared if misfit > 0 else 0.0)
    noise = float(left.mean() / share[some].mean())
    error = float(left.std() / np.sqrt(len(some)) / share[some].mean())
    if not 0 <= error < _HIDDEN * noise:
        return None
    return noise + misfit / float(by_row.mean())  # a single row has the misfit as its bag does
