"""How good predictions are on held-out rows, and what part of the explained error they keep."""

import numpy as np
from scipy.special import xlogy
from sklearn.metrics import roc_auc_score

from bagwise._types import FloatArray

_LEAST_CHANCE = 1e-15


def score(family: str, labels: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """Return every measure of a family; `loss` is the one that shares are computed from.

    Examples
    --------
    >>> score("gaussian", np.array([0.0, 2.0]), np.array([2.0, 4.0]))
    {'loss': 4.0, 'rmse': 2.0}
    """
    if family == "bernoulli":
        loss = log_loss(labels, predicted)
        return {"loss": loss, "log_loss": loss, "auc": float(roc_auc_score(labels, predicted))}
    if family == "multinomial":  # a column of chances for each class
        told = predicted[np.arange(labels.size), labels.astype(int)]
        loss = log_loss(np.ones(labels.size), told)
        return {"loss": loss, "log_loss": loss}
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(np.mean((labels - predicted) ** 2))
    if family == "gaussian":
        return {"loss": squared, "rmse": squared**0.5}
    loss = poisson_deviance(labels, predicted)
    return {"loss": loss, "deviance": loss, "rmse": squared**0.5}


def poisson_deviance(labels: FloatArray, means: FloatArray) -> float:
    """Return the mean Poisson deviance of positive means."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        parts = xlogy(labels, labels) - xlogy(labels, means) - labels + means
    return float(2 * np.mean(parts))


def log_loss(labels: FloatArray, chances: FloatArray) -> float:
    """Return the mean log loss of chances, kept off 0 and 1."""
    sure = np.clip(chances, _LEAST_CHANCE, 1 - _LEAST_CHANCE)
    return float(-np.mean(xlogy(labels, sure) + xlogy(1 - labels, 1 - sure)))


def kept(loss: float, *, floor: float, ceiling: float) -> float:
    """Return the share of the explained part that is kept: 1 at the floor, 0 at the ceiling.

    Examples
    --------
    >>> kept(4.0, floor=2.0, ceiling=10.0)
    0.75
    """
    return (ceiling - loss) / (ceiling - floor)
