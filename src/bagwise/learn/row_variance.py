"""How much single labels vary around predictions, told by bags alone.

A bag label is off by what its rows' labels are off by on average, by the privacy noise, and by what
the model has not learned. Rows of a bag are alike, so that the last does not average out, and has
to be told from the first: multiplied by the size of a bag it would seem to be noise of rows.
Neighbouring bags are off by nearly the same misfit. So half the squared difference of their
residuals shows the noise of rows, up to what the misfit changes from one bag to the next, which
makes it too large and never too small (differences of neighbours: Rice 1984, Ann. Statist. 12).
"""

import numpy as np
from scipy.spatial import cKDTree

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family

_FEWEST = 20  # bags; of fewer nobody can tell
_MOST = 10_000  # bags whose neighbours are looked for, which takes seconds; and rows for units


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
    centroids = bags.mean(X)
    spread = X[:: max(1, len(X) // _MOST)].std(axis=0)
    some = np.linspace(0, bags.n_bags - 1, min(bags.n_bags, _MOST)).astype(np.int64)
    points = centroids[some] / np.where(spread > 0, spread, 1.0)
    _, nearest = cKDTree(points).query(points, k=2)
    other = some[nearest[:, 1]]
    differ = (off[some] - off[other]) ** 2 - known[some] - known[other]
    noise = float(differ.sum() / (share[some] + share[other]).sum())
    if not noise > 0:
        return None
    # What is left of the residuals is the misfit, which a single row has as its bag does.
    misfit = float(np.mean(off**2 - known) - noise * share.mean()) / float(by_row.mean())
    return noise + max(0.0, misfit)
