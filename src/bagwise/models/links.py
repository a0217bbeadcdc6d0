"""From scores of boosted trees to expected labels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from bagwise._types import FloatArray

_MOST = 30.0  # of a score with a logarithm: a mean of 1e13, a chance of 1 - 1e-13


@dataclass(frozen=True)
class Link:
    """From scores to means, for one number per row.

    Attributes
    ----------
    mean, slope : callable
        The mean of each score, and its derivative given scores and means.
    score : callable
        The score of a mean.
    """

    mean: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]
    score: Callable[[FloatArray], FloatArray]


def _bounded(scores: FloatArray) -> FloatArray:
    return np.clip(scores, -_MOST, _MOST)


LINKS: dict[str, Link] = {
    "identity": Link(lambda s: s, np.ones_like, lambda mean: mean),
    "log": Link(lambda s: np.exp(_bounded(s)), lambda mean: mean, np.log),
    "logit": Link(
        lambda s: np.asarray(expit(_bounded(s))),
        lambda mean: mean * (1 - mean),
        lambda mean: np.log(mean) - np.log1p(-mean),
    ),
}
SOFTMAX = "softmax"


def means_of(scores: FloatArray, link: str) -> FloatArray:
    """Return expected labels, (n,), or chances, (n, classes), of scores of the same shape.

    >>> means_of(np.array([[0.0, 0.0]]), "softmax")
    array([[0.5, 0.5]])
    """
    if link != SOFTMAX:
        return LINKS[link].mean(scores)
    # By class, (classes, n): few long rows are quicker to add up than many short ones.
    grown = np.exp(scores.T - scores.T.max(axis=0))
    return np.asarray(grown / grown.sum(axis=0)).T
