"""One of several classes, and shares of them: multinomial logistic regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError
from bagwise.families.family import Family


@dataclass(frozen=True)
class Multinomial(Family):
    """``b(t) = log(1 + sum_c exp(t_c))`` over all classes but the first; phi is 1.

    Here eta has one column for each class but the first, (n, classes - 1), and a mean one for each
    class, (n, classes): the chances, which add up to 1.
    """

    name: ClassVar[str] = "multinomial"
    summary: ClassVar[str] = "one of several classes"
    links: ClassVar[Mapping[str, str]] = {"canonical": "log odds against the first class"}
    losses: ClassVar[tuple[str, ...]] = ("bag", "instance", "aggregate")
    label_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    knows_dispersion: ClassVar[bool] = True
    has_classes: ClassVar[bool] = True
    advice: ClassVar[str] = "Give shares of classes, (n, classes), each row adding up to 1."

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return log(1 + sum exp(eta))."""
        return np.asarray(-log_softmax(_with_first(eta), axis=-1)[..., 0])

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return the chance of every class, the first included."""
        # Classes first: few long rows are quicker to add up than many short ones.
        scores = np.ascontiguousarray(np.moveaxis(_with_first(eta), -1, 0))
        grown = np.exp(scores - scores.real.max(axis=0))
        return np.asarray(np.moveaxis(grown / grown.sum(axis=0), 0, -1))

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the derivatives of all chances but the first by eta, (n, classes-1, classes-1)."""
        chances = self.mean(eta)[..., 1:]
        products = chances[..., :, None] * chances[..., None, :]
        return np.asarray(chances[..., None] * np.eye(chances.shape[-1]) - products)

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return the covariance of the indicators of all classes but the first."""
        return self.slope(eta)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the logarithm of each chance against that of the first class."""
        return np.asarray(np.log(mean[..., 1:]) - np.log(mean[..., :1]))

    def interior(self, mean: float) -> float:
        """Return a chance between 1 and 99 percent."""
        return float(np.clip(mean, 0.01, 0.99))

    def log_density(self, y: FloatArray, eta: FloatArray, phi: float) -> FloatArray:
        """Return the logarithm of the chance of the class that y marks."""
        del phi
        return np.asarray((y * log_softmax(_with_first(eta), axis=-1)).sum(axis=-1))

    def loss(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Return ``b(eta) - sum_c y_c eta_c``."""
        return np.asarray(self.cumulant(eta) - (y[..., 1:] * eta).sum(axis=-1))

    def loss_by_mean(self, y: FloatArray, mean: FloatArray) -> FloatArray:
        """Return ``-sum_c y_c log(mean_c)``: shares with noise need not add up to 1."""
        return np.asarray(-(y * np.log(np.maximum(mean, np.finfo(float).eps))).sum(axis=-1))

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw one class for each row, marked by a 1 in its column."""
        del phi
        chances = self.mean(eta)
        drawn = (rng.random((len(chances), 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
        drawn = np.minimum(drawn, chances.shape[1] - 1)
        return np.asarray(np.eye(chances.shape[1])[drawn])

    def check_labels(self, labels: AnyArray) -> None:
        """Refuse shares that are negative or do not add up to 1."""
        super().check_labels(labels)
        if np.any(np.abs(labels.sum(axis=-1) - 1) > 1e-6):
            raise LabelError(f"the shares of some bags do not add up to 1. {self.advice}")


def _with_first(eta: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros_like(eta[..., :1]), eta], axis=-1)
