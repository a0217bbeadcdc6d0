"""Which use of the labels to trust: compared on labels that a model has not seen.

Labels are dealt into folds; each use is fitted without a fold and predicts its rows. A label counts
for as many rows as it stands for, so that what is estimated is the error over the whole table, as
far as rows were drawn by chance.

A label says most about its own row, and few labels are a noisy judge. So "shrunk" is used unless
another use is better by two standard errors of the difference, label by label; of those the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.annotate.bought import Bought
from bagwise.annotate.uses import USES, Fitted, Use, try_fit, with_intervals
from bagwise.errors import ProjectError, check_name
from bagwise.families import Family

FEWEST = 10
"""Labels that a choice between uses needs at least."""

DEFAULT = "shrunk"
"""The use of labels that others have to beat."""

_SURE = 2.0  # standard errors
_FOLDS = 5
_MANY = 500  # labels from which on one deal into folds is enough
_DEALS = 3
_SEED = 0
_TINY = 1e-300  # a count of 0 has the logarithm of its mean taken


@dataclass(frozen=True)
class Comparison:
    """How well one use of the labels predicts those that it has not seen.

    Attributes
    ----------
    use, summary : str
    deviance : float or None
        Deviance of labels that were held back, as a share of that of their mean: 0 is a model
        without error, 1 is no better than the mean. None where the use was not tried.
    error : float
        Standard error of its difference to that of the use that was chosen.
    reason : str
        Why it was not tried.
    """

    use: str
    summary: str
    deviance: float | None
    error: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Chosen:
    """The use that was chosen, fitted to all labels, and what it was compared with."""

    use: Use
    fitted: Fitted
    comparisons: tuple[Comparison, ...]

    def cells(self) -> list[list[str]]:
        """Return a table for people, its heading first."""
        rows = [["use", "a label is used for", "deviance", "± against the first"]]
        for one in self.comparisons:
            figures = ["not tried", one.reason]
            if one.deviance is not None:
                figures = ["ran away", ""]
                if np.isfinite(one.deviance):
                    figures = [f"{one.deviance:.4f}", f"{one.error:.4f}"]
            rows.append([one.use, one.summary, *figures])
        return rows


def choose_use(bought: Bought, names: Sequence[str] | None = None) -> Chosen:
    """Compare uses by cross-validation, and fit the one to trust to all labels."""
    if bought.n_labels < FEWEST:
        raise ProjectError(
            f"{bought.n_labels} labels are too few to learn from: there must be at least {FEWEST}. "
            "Fill in to_label.csv and import it (bagwise annotate import DIR FILE), or label rows "
            "on a page (bagwise annotate serve DIR)."
        )
    for name in names or ():
        check_name("use", name, USES)
    wanted = [USES[name] for name in (names or USES)]
    objections = {use.name: use.objection(bought) for use in wanted}
    tried = [use for use in wanted if objections[use.name] is None]
    if not tried:
        name, why = next(iter(objections.items()))
        raise ProjectError(f"use {name!r} is not possible for these labels: {why}.")
    held_out, by_mean = _held_out(bought, tried)
    weights = bought.weights / bought.weights.sum()
    scale = float(weights @ by_mean) or 1.0
    scores = {name: float(weights @ each) / scale for name, each in held_out.items()}
    ahead = {
        name: _is_ahead(each, held_out.get(DEFAULT), weights) for name, each in held_out.items()
    }
    best, fitted = _fit_best(bought, scores, ahead)
    comparisons = [
        Comparison(use.name, use.summary, None, reason=objections[use.name] or "")
        if use.name not in scores
        else Comparison(
            use.name,
            use.summary,
            scores[use.name],
            _error_of_difference(held_out[use.name], held_out[best.name], weights) / scale,
        )
        for use in wanted
    ]
    order = {best.name: -1.0}  # what was chosen stands first, whatever could not be fitted
    comparisons.sort(
        key=lambda one: np.inf if one.deviance is None else order.get(one.use, one.deviance)
    )
    return Chosen(best, fitted, tuple(comparisons))


def _is_ahead(one: FloatArray, default: FloatArray | None, weights: FloatArray) -> bool:
    """Tell whether a use is better than the default by more than chance."""
    if default is None or not np.isfinite(default).all():
        return True
    gain = float(weights @ (default - one))
    return bool(gain > _SURE * _error_of_difference(one, default, weights))


def _fit_best(
    bought: Bought, scores: dict[str, float], ahead: dict[str, bool]
) -> tuple[Use, Fitted]:
    """Fit the best use to all labels; the next one where that fails."""
    everything = np.arange(bought.n_labels)
    rank = {name: (not ahead[name], name != DEFAULT, scores[name]) for name in scores}
    for name in sorted(scores, key=lambda use: rank[use]):
        fitted = try_fit(USES[name], bought, everything)
        if np.isfinite(scores[name]) and fitted is not None and np.isfinite(fitted.coef).all():
            return USES[name], with_intervals(fitted, bought) if name == DEFAULT else fitted
    raise ProjectError("no model could be fitted to these labels. Buy more of them.")


def _held_out(bought: Bought, uses: Sequence[Use]) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the deviance of each label, by models that have not seen it, and by a mean."""
    rng = np.random.default_rng(_SEED)
    m = bought.n_labels
    deals = 1 if m >= _MANY else _DEALS
    total = {use.name: np.zeros(m) for use in uses}
    by_mean = np.zeros(m)
    for _ in range(deals):
        fold = rng.permutation(np.arange(m) % _FOLDS)
        for number in range(_FOLDS):
            held, kept = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            by_mean[held] += _deviance_of_mean(bought, held, kept) / deals
            for use in uses:
                total[use.name][held] += _deviance_of(use, bought, held, kept) / deals
    return total, by_mean


def _deviance_of(use: Use, bought: Bought, held: IntArray, kept: IntArray) -> FloatArray:
    fitted = try_fit(use, bought, kept)
    if fitted is None:
        return np.full(held.size, np.inf)
    with np.errstate(all="ignore"):  # a fit that ran away overflows, and is not chosen
        means = bought.family.mean(fitted.predictor(bought.X[bought.rows[held]]))
        found = unit_deviance(bought.family, bought.outcomes(held), means)
    return np.where(np.isfinite(found), found, np.inf)


def _deviance_of_mean(bought: Bought, held: IntArray, kept: IntArray) -> FloatArray:
    y = bought.outcomes(held)
    means = np.broadcast_to(bought.mean_label(kept), y.shape)
    return unit_deviance(bought.family, y, _inside(bought.family, means))


def unit_deviance(family: Family, y: FloatArray, means: FloatArray) -> FloatArray:
    """Return the deviance of each label at its expected value.

    >>> from bagwise.families import find_family
    >>> unit_deviance(find_family("gaussian"), np.array([3.0]), np.array([1.0]))
    array([4.])
    """
    best = family.loss_by_mean(y, _inside(family, y))
    return np.asarray(2 * (family.loss_by_mean(y, means) - best))


def _inside(family: Family, means: FloatArray) -> FloatArray:
    low = family.label_range[0]
    return np.maximum(means, low + _TINY) if np.isfinite(low) else means


def _error_of_difference(one: FloatArray, other: FloatArray, weights: FloatArray) -> float:
    """Return the standard error of the mean difference of two uses, label by label."""
    if not np.isfinite(one).all():
        return np.inf
    apart = one - other
    return float(np.sqrt(np.sum(weights**2 * (apart - weights @ apart) ** 2)))
