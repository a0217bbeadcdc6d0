"""Where boosting starts: from the mean label, or from a linear fit to the bags."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import BagwiseError, BagwiseWarning
from bagwise.families import find_family
from bagwise.learn.bag_data import BagData
from bagwise.learn.estimator import BaggedGLM
from bagwise.models.links import LINKS, SOFTMAX
from bagwise.models.trees import start_scores
from bagwise.privacy.aggregate import LabelKind

_TRACE = 1e-6  # of the spread of the labels: noise that nobody would notice
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class LabelModel:
    """What a label is, and how its mean follows from scores.

    Attributes
    ----------
    family : str
    label_kind : {"mean", "pick"}
    """

    family: str
    label_kind: LabelKind

    @property
    def link(self) -> str:
        """The link of the trees: scores may be any number."""
        named = {"gaussian": "identity", "bernoulli": "logit", "multinomial": SOFTMAX}
        return named.get(self.family, "log")

    @property
    def linear_link(self) -> str:
        """The name that the family has for the same link."""
        links = find_family(self.family).links
        return "log" if self.link == "log" and "log" in links else "canonical"

    def score(self, mean: FloatArray) -> FloatArray:
        """Return the scores, (outputs,), of mean labels that noise may have moved anywhere."""
        if self.link == SOFTMAX:
            return np.log(np.clip(mean, _LEAST_SHARE, 1.0))
        inside = find_family(self.family).interior(float(mean))
        return np.atleast_1d(LINKS[self.link].score(np.asarray(inside)))


@dataclass(frozen=True)
class Start:
    """Linear scores in the columns of X, kept within what they were on the rows of the fit.

    Attributes
    ----------
    coef : (outputs, d)
    intercept, low, high : (outputs,)
    """

    coef: FloatArray
    intercept: FloatArray
    low: FloatArray
    high: FloatArray

    def scores(self, X: FloatArray) -> FloatArray:
        """Return scores, (n, outputs)."""
        return start_scores(X, self.coef, self.intercept, (self.low, self.high))


def constant_start(data: BagData, model: LabelModel, weight: FloatArray, chosen: AnyArray) -> Start:
    """Start from the mean label of the chosen bags."""
    by_bag = weight if weight.ndim == 1 else weight.mean(axis=1)
    mean = np.average(data.labels[chosen], axis=0, weights=by_bag[chosen])
    score = model.score(mean)
    return Start(np.zeros((score.size, data.X.shape[1])), score, score, score)


def linear_start(
    data: BagData, model: LabelModel, weight: FloatArray, chosen: AnyArray
) -> Start | None:
    """Start from a linear fit, shrunk as far as the labels suggest; None where there is none.

    Centroids stand for their bags, which is exact for the identity link, and near enough for a
    start for others. Trees learn what is left.
    """
    del weight  # the fit has its own, from the same noise
    if np.count_nonzero(chosen) < 2:  # one bag says nothing about any slope
        return None
    rows = chosen[data.bags.index]
    glm = BaggedGLM(
        family=model.family,
        loss="aggregate",
        link=model.linear_link,
        label_kind=model.label_kind,
    )
    # Without known noise nothing would be shrunk, and few bags would not bear many columns.
    trace = _TRACE * float(np.std(data.labels)) + np.finfo(float).tiny
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", BagwiseWarning)
        try:
            glm.fit(
                data.X[rows],
                data.bags.repeat(data.labels)[rows],
                bags=data.bags.index[rows],
                noise_sd=data.bags.repeat(np.maximum(data.noise_sd, trace))[rows],
                sample_weight=data.bags.repeat(data.weight)[rows],
            )
        except BagwiseError:  # such as labels that the family cannot have
            return None
    if not glm.converged_:
        return None
    coef, intercept = np.atleast_2d(glm.coef_), np.atleast_1d(glm.intercept_)
    if model.link == SOFTMAX:  # against the first class, whose scores are zero
        coef = np.vstack([np.zeros_like(coef[:1]), coef])
        intercept = np.append(0.0, intercept)
    scores = data.X[rows] @ coef.T + intercept
    return Start(coef, intercept, scores.min(axis=0), scores.max(axis=0))


STARTS: dict[str, Callable[[BagData, LabelModel, FloatArray, AnyArray], Start | None]] = {
    "constant": constant_start,
    "glm": linear_start,
}
