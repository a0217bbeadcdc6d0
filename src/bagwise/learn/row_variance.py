"""How much single labels vary around predictions, told by bags alone.

A bag label is off by what its rows' labels are off by on average, by the privacy noise, which is
known, and by what the model has not learned. Rows of a bag are alike, so that the last does not
average out, and has to be told from the first: multiplied by the size of a bag it would seem to be
noise of rows. What tells them apart is that neighbouring bags are off by nearly the same misfit::

    off_l = g(centroid_l) + e_l + noise_l,   g ~ GP(0, a exp(-distance^2 / 2 length^2)),
    var e_l = v share_l

(kriging with a nugget: Cressie 1993, section 2.3). Bags are cut into cells of neighbours, each with
a mean of its own, so that no matrix is large. Misfit a, length and v are averaged over what bags
say of them and a wide prior: v about the variance of bag labels, which matters only where noise
hides v.

Rows of a bag are taken to be independent, given their features. Where they are not, as with several
rows of one person in a bag, what they share counts as noise of rows, and the variance is too large.
"""

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.families import Family
from bagwise.theory.beliefs import DEFAULT_MISFIT

_FEWEST = 20  # bags; of fewer nobody can tell
_MOST = 10_000  # rows for units
_CELL, _CELLS = 64, 32  # bags of a cell at most, and cells that are looked at
_LENGTHS = (0.5, 1.0, 2.0)  # of the waves of a misfit, in typical distances within a cell
_DOUBT = 1.5  # deviation of the prior of log v; of log a it is 2
_HIDDEN = 0.5  # deviation of log v beyond which nothing is said: errors would be off by a third


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
    expected = bags.mean(mean)
    varies = float(np.var(expected + off))
    guess = max(varies - float(known.mean()), 1e-3 * varies) / float(by_row.mean())
    if not 0 < guess < np.inf:
        return None
    # 1. Neighbours in features and in predictions, which count as much as all features.
    spread = X[:: max(1, len(X) // _MOST)].std(axis=0)
    points = bags.mean(X) / np.where(spread > 0, spread, 1.0)
    scale = np.sqrt(points.shape[1]) / max(float(expected.std()), 1e-300)
    points = np.column_stack([points, scale * (expected - expected.mean())])
    cells = _neighbours(points)
    square = ((points[cells][:, :, None] - points[cells][:, None]) ** 2).sum(axis=3)
    unit = max(float(np.median(square)), 1e-300)
    # 2. How likely residuals are, for each length, a and v; in the axes of each cell's kernel.
    around = (off[cells] - off[cells].mean(axis=1, keepdims=True))[:, :, None]
    log_v = np.log(guess) + np.linspace(-8, 8, 65)
    log_a = np.log(guess) + np.linspace(-12, 3, 31)
    nugget = known[cells].mean(axis=1) + np.exp(log_v)[:, None] * share[cells].mean(axis=1)
    chance = np.empty((len(_LENGTHS), len(log_a), len(log_v)))
    for kernel, length in zip(chance, _LENGTHS, strict=True):
        near = np.exp(-square / (2 * unit * length**2))
        near -= near.mean(axis=1, keepdims=True)
        near -= near.mean(axis=2, keepdims=True)
        # The constant is what the cell's mean takes: the last axis, which is left out.
        sizes, axes = np.linalg.eigh(near + 2.0)
        sizes, seen = sizes[:, :-1].clip(0), (axes.transpose(0, 2, 1) @ around)[:, :-1, 0] ** 2
        for row, a in zip(kernel, np.exp(log_a) * by_row.mean(), strict=True):
            variance = a * sizes + nugget[:, :, None]
            row[:] = -0.5 * np.sum(np.log(variance) + seen / variance, axis=(1, 2))
    # 3. Average over them, by the prior.
    chance -= 0.5 * ((log_v - np.log(guess)) / _DOUBT) ** 2
    chance -= 0.125 * ((log_a - np.log(DEFAULT_MISFIT * guess)) ** 2)[:, None]
    weight = np.exp(chance - chance.max()).sum(axis=(0, 1))
    middle = float(np.average(log_v, weights=weight))
    if np.average((log_v - middle) ** 2, weights=weight) > _HIDDEN**2:
        return None
    # What is left of the residuals is the misfit, which a single row has as its bag does.
    noise = float(np.average(np.exp(log_v), weights=weight))
    misfit = float(np.mean(off**2 - known) - noise * share.mean()) / float(by_row.mean())
    return noise + max(0.0, misfit)


def _neighbours(points: FloatArray) -> IntArray:
    """Return cells of neighbours, (cells, bags), all of one size: halves of halves at medians."""
    cells = [np.arange(len(points))]
    while len(cells[0]) > _CELL:
        widest = [int(np.argmax(points[cell].var(axis=0))) for cell in cells]
        ordered = [c[np.argsort(points[c, w])] for c, w in zip(cells, widest, strict=True)]
        cells = [half for cell in ordered for half in np.array_split(cell, 2)]
    some = np.linspace(0, len(cells) - 1, min(len(cells), _CELLS)).astype(int)
    return np.array([cells[i][: len(cells[-1])] for i in some])
