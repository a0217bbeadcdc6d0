"""Estimate from bags how much single labels vary around predictions.

A bag label is off by what its rows' labels are off by on average, by the privacy noise, which is
known, and by what the model has not learned. Rows of a bag are alike, so that the last does not
average out, and has to be told from the first: multiplied by the size of a bag it would seem to be
noise of rows. What tells them apart is that neighbouring bags are off by nearly the same misfit::

    off_l = misfit(centroid_l) + e_l + noise_l,   var e_l = v share_l
    E off_l off_k = misfit^2 for neighbours l and k,   E off_l^2 = misfit^2 + v share_l + noise^2

Both are means over bags, so they assume nothing about the law of labels or noise. The product is
extrapolated to distance 0 from nearer and farther neighbours. Misfit that changes within the
distance of a few bags counts as noise of rows, and the variance is then too large.

Rows of a bag are taken to be independent, given their features. Where they are not, as with several
rows of one person in a bag, what they share counts as noise of rows, and the variance is too large.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.models.model import FEWEST_BAGS

_MOST, _BAGS = 10_000, 5_000  # rows for units, and bags that are looked at
_NEIGHBOURS = 6
_HIDDEN = 0.5  # standard error, relative, beyond which nothing is said


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
    if bags.n_bags < FEWEST_BAGS:
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
    nearest = NearestNeighbors(n_neighbors=2 * _NEIGHBOURS + 1).fit(points)
    distances, neighbours = nearest.kneighbors(points[some])
    near, far = slice(1, _NEIGHBOURS + 1), slice(_NEIGHBOURS + 1, None)
    # 2. What neighbours share is misfit, and all the rest noise of rows. A smooth misfit is shared
    # less by squared distance: farther neighbours tell how much less the nearer ones share.
    square = distances**2
    by_near = float(square[:, near].mean())
    slope = min(1.0, by_near / max(float(square[:, far].mean()) - by_near, 1e-300))
    around = off - off.mean()
    from_near, from_far = (around[neighbours[:, part]].mean(axis=1) for part in (near, far))
    shared = around[some] * (from_near + slope * (from_near - from_far))
    misfit = max(0.0, float(shared.mean()))
    left = (around**2 - known)[some] - (shared if misfit > 0 else 0.0)
    noise = float(left.mean() / share[some].mean())
    error = float(left.std() / np.sqrt(len(some)) / share[some].mean())
    total = max(0.0, noise) + misfit / float(by_row.mean())  # a row has the misfit of its bag
    return total if error < _HIDDEN * total else None
