"""The families of label distributions, each defined by its cumulant."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_softmax

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError
from bagwise.families.family import Family


@dataclass(frozen=True)
class Gaussian(Family):
    """``b(t) = t**2 / 2``; phi is the label noise variance."""

    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "any number, with the same variance for all"
    link_words: ClassVar[str] = "none: the expected label itself"
    losses: ClassVar[tuple[str, ...]] = (*Family.losses, "mixture")
    label_range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return eta**2 / 2."""
        return eta * eta / 2

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return eta."""
        return eta

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return 1."""
        return np.ones_like(eta)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the mean."""
        return mean

    def interior(self, mean: float) -> float:
        """Return the mean: every mean is possible."""
        return mean

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from N(eta, phi)."""
        return rng.normal(eta, np.sqrt(phi))


@dataclass(frozen=True)
class Bernoulli(Family):
    """``b(t) = log(1 + exp(t))``; phi is 1."""

    name: ClassVar[str] = "bernoulli"
    summary: ClassVar[str] = "0 or 1"
    link_words: ClassVar[str] = "log odds"
    label_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    knows_dispersion: ClassVar[bool] = True
    advice: ClassVar[str] = "Code the label as 0 and 1, or choose gaussian, or poisson for counts."

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return log(1 + exp(eta)), without overflow."""
        far = np.where(np.real(eta) > 0, eta, 0.0)
        return np.asarray(far + np.log1p(np.exp(np.where(np.real(eta) > 0, -eta, eta))))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return 1 / (1 + exp(-eta))."""
        small = np.exp(np.where(np.real(eta) > 0, -eta, eta))
        return np.asarray(np.where(np.real(eta) > 0, 1.0, small) / (1.0 + small))

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return mean * (1 - mean)."""
        small = np.exp(np.where(np.real(eta) > 0, -eta, eta))
        return np.asarray(small / (1.0 + small) ** 2)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the logarithm of the odds."""
        return np.asarray(np.log(mean) - np.log1p(-mean))

    def interior(self, mean: float) -> float:
        """Return a chance between 1 and 99 percent."""
        return float(np.clip(mean, 0.01, 0.99))

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw 0 or 1."""
        del phi
        return (rng.random(np.shape(eta)) < self.mean(eta)).astype(np.float64)


@dataclass(frozen=True)
class Poisson(Family):
    """``b(t) = exp(t)``; phi is 1."""

    name: ClassVar[str] = "poisson"
    summary: ClassVar[str] = "a count"
    link_words: ClassVar[str] = "logarithm"
    label_range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    knows_dispersion: ClassVar[bool] = True
    advice: ClassVar[str] = "Choose gaussian for labels that can be negative."

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return log(mean)."""
        return np.asarray(np.log(mean))

    def interior(self, mean: float) -> float:
        """Return a positive rate."""
        return max(mean, 1e-3)

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw counts."""
        del phi
        return rng.poisson(self.mean(eta)).astype(np.float64)


class _PowerVariance(Family):
    """Labels above zero with variance ``phi * mean**p``, p being 2 or more (Tweedie).

    The link is the logarithm, so that ``t = -mean**(1 - p) / (p - 1)``: the canonical one would
    need a positive eta for every row.
    """

    link: ClassVar[str] = "log"
    link_words: ClassVar[str] = "logarithm"
    label_range: ClassVar[tuple[float, float]] = (0.0, np.inf)
    open_range: ClassVar[bool] = True
    advice: ClassVar[str] = "Choose poisson if labels can be zero, gaussian if negative."
    power: ClassVar[int]

    def natural(self, eta: FloatArray) -> FloatArray:
        """Return -mean**(1 - p) / (p - 1)."""
        grade = self.power - 1
        return np.asarray(-np.exp(-grade * eta) / grade)

    def natural_slope(self, eta: FloatArray) -> FloatArray:
        """Return mean**(1 - p)."""
        return np.asarray(np.exp((1 - self.power) * eta))

    def mean(self, eta: FloatArray) -> FloatArray:
        """Return exp(eta)."""
        return np.asarray(np.exp(eta))

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the mean."""
        return np.asarray(np.exp(eta))

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return mean**p."""
        return np.asarray(self.mean(eta) ** self.power)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return log(mean)."""
        return np.asarray(np.log(mean))

    def interior(self, mean: float) -> float:
        """Return a positive mean."""
        return max(mean, 1e-6)


@dataclass(frozen=True)
class Gamma(_PowerVariance):
    """``b(t) = -log(-t)``: amounts, durations, costs; phi is the squared variation coefficient."""

    name: ClassVar[str] = "gamma"
    summary: ClassVar[str] = "positive, and more variable if the mean is larger"
    power: ClassVar[int] = 2

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return log(mean)."""
        return np.asarray(eta)

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from the gamma distribution of shape 1/phi."""
        return rng.gamma(1 / phi, phi * self.mean(eta))


@dataclass(frozen=True)
class InverseGaussian(_PowerVariance):
    """``b(t) = -sqrt(-2 t)``: a long tail, as of times until something happens first."""

    name: ClassVar[str] = "inverse_gaussian"
    summary: ClassVar[str] = "positive, with a long tail"
    power: ClassVar[int] = 3

    def cumulant(self, eta: FloatArray) -> FloatArray:
        """Return -1 / mean."""
        return np.asarray(-np.exp(-eta))

    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw from the inverse Gaussian distribution of shape 1/phi."""
        return rng.wald(self.mean(eta), 1 / phi)


@dataclass(frozen=True)
class Multinomial(Family):
    """``b(t) = log(1 + sum_c exp(t_c))`` over all classes but the first; phi is 1.

    Here eta has one column for each class but the first, (n, classes - 1), and a mean one for each
    class, (n, classes): the chances, which add up to 1.
    """

    name: ClassVar[str] = "multinomial"
    summary: ClassVar[str] = "one of several classes"
    link_words: ClassVar[str] = "log odds against the first class"
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

    def variance(self, eta: FloatArray) -> FloatArray:
        """Return the covariance of all indicators but the first, (n, classes-1, classes-1)."""
        chances = self.mean(eta)[..., 1:]
        products = chances[..., :, None] * chances[..., None, :]
        return np.asarray(chances[..., None] * np.eye(chances.shape[-1]) - products)

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the derivatives of all chances but the first by eta, which are the same."""
        return self.variance(eta)

    def predictor(self, mean: FloatArray) -> FloatArray:
        """Return the logarithm of each chance against that of the first class."""
        return np.asarray(np.log(mean[..., 1:]) - np.log(mean[..., :1]))

    def interior(self, mean: float) -> float:
        """Return a chance between 1 and 99 percent."""
        return float(np.clip(mean, 0.01, 0.99))

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
