"""Picked labels by their exact likelihood, without knowing which row it was.

Bag loss compares a picked label with the mean of its rows' expected labels; the spread inside the
bag is noise to it. The likelihood also asks which rows the label can have come from. On random bags
that is where nearly all of the information is.
"""

import warnings

import numpy as np

from bagwise._types import FloatArray
from bagwise.errors import SeparationWarning
from bagwise.glm.solver import inverse_symmetric
from bagwise.learn.fitting import Fitted, solve_loss
from bagwise.learn.losses import Setting
from bagwise.learn.mixture.densities import density_of
from bagwise.learn.mixture.likelihood import PickedBags
from bagwise.learn.mixture.scoring import fit_picks
from bagwise.learn.mixture.search import fit_normal_picks
from bagwise.learn.mixture.whitening import Whitening, moves
from bagwise.learn.separation import warn_of_separation

_ENOUGH = 30  # bags for each coefficient, for intervals that hold what they say


def fit_mixture(setting: Setting) -> Fitted:
    """Fit a model to the labels of rows that were picked from bags, one each.

    The likelihood of normal labels has many maxima, and the search may end in a worse one where
    bags are large and few. Where that shows, the fit counts as not converged. For other families
    the search begins at the solution of bag loss, which is consistent. A bag of weight 2 counts as
    two bags.

    Examples
    --------
    >>> from bagwise.families import find_family
    >>> from bagwise.learn.bag_data import read_bags
    >>> rng = np.random.default_rng(0)
    >>> X, bags = rng.normal(size=(900, 2)), np.repeat(np.arange(300), 3)
    >>> picked = 3 * np.arange(300) + rng.integers(3, size=300)
    >>> labels = 1.0 + X[picked] @ [2.0, -1.0] + rng.normal(0, 0.1, 300)
    >>> data = read_bags(X, labels[bags], bags=bags)
    >>> setting = Setting(data, find_family("gaussian"), "pick", "known-noise", True, ridge=0.0)
    >>> fit_mixture(setting).estimates.round(1)
    array([[ 2., -1.,  1.]])
    """
    bags = PickedBags.of(setting.data)
    whitening = Whitening.of(bags, fit_intercept=setting.fit_intercept)
    if setting.family.name == "gaussian":
        found = fit_normal_picks(bags, whitening, ridge=setting.fixed_ridge)
        separated = False
    else:
        density = density_of(setting.family, bags)
        solution = solve_loss(setting, "bag")
        separated = warn_of_separation(solution, setting.names)
        start = solution.problem.to_own_units() @ solution.beta
        found = fit_picks(
            bags, whitening, setting.family, density, start=start, ridge=setting.fixed_ridge
        )
    if found.collapsed:
        warnings.warn(
            f"the labels of {setting.n_used} bags are met without error by {whitening.width} "
            "coefficients and a free choice of the rows, so that the fit may mean nothing. Set "
            "ridge > 0, drop columns, or use loss='bag'.",
            SeparationWarning,
            stacklevel=4,
        )
    freedom = max(1.0, bags.total - whitening.width)
    matrix, note = None, ""
    if separated:
        note = "No intervals: the labels are separated, and no coefficients are best."
    elif found.collapsed:
        note = "No intervals: the labels are met without error, which leaves nothing to judge by."
    elif found.by_chance:
        note = (
            "No intervals: the search ended in one of many maxima, and it explains the labels no "
            "better than shuffled ones can be explained. Use smaller bags, more bags, fewer "
            "columns, or loss='bag'."
        )
    elif not found.converged:
        note = "No intervals: the fit did not converge."
    else:
        matrix = covariance_of_scores(found.scores, bags.weight, whitening)
        matrix *= bags.total / freedom
        note = _note(setting, whitening.width, bags.total)
    return Fitted(
        estimates=found.estimates[None, :],
        rank=min(whitening.kept, max(0, setting.n_used - setting.fit_intercept)),
        phi=found.phi,
        converged=found.converged and not found.by_chance,
        gradient=found.gradient,
        covariance=matrix,
        freedom=freedom,
        note=note,
        separated=separated,
        remedy=note if found.by_chance else "",
    )


def covariance_of_scores(
    scores: FloatArray, weight: FloatArray, whitening: Whitening
) -> FloatArray:
    """Return the inverse of the scores' outer product, for coefficients and intercept.

    The scale counts as a parameter and is left out at the end. Coefficients that the data do not
    determine get NaN.

    References
    ----------
    Berndt, Hall, Hall and Hausman (1974).
    """
    outer = (scores * weight[:, None]).T @ scores
    inverse, _ = inverse_symmetric(outer)
    own = whitening.to_own_units()
    change = np.zeros((len(own), len(outer)))
    change[:, : whitening.width] = own
    covariance = change @ inverse @ change.T
    lost = whitening.open | moves(change, np.eye(len(outer)) - inverse @ outer)
    covariance[lost, :] = covariance[:, lost] = np.nan
    return np.asarray(covariance)


def _note(setting: Setting, width: int, total: float) -> str:
    note = f"Standard errors: outer product of the scores, over {setting.n_used} bags."
    if total < _ENOUGH * width:
        note += f" With fewer than {_ENOUGH} bags for each coefficient they are too short."
    if setting.family.name != "gaussian":
        note += " They believe the distribution: labels that vary more make them too short."
    if setting.fixed_ridge > 0:
        note += " They leave out the bias of the ridge penalty."
    return note
