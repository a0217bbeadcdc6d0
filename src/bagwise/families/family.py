"""The base class of families of label distributions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import LabelError


@dataclass(frozen=True)
class Family(ABC):
    """Labels with density ``exp((y * t - b(t)) / phi)``, where ``t = natural(eta)``, eta = x'theta.

    The cumulant b says everything: the mean of y is b'(t), its variance phi * b''(t). Every method
    takes the linear predictor eta, and works for complex eta as well, so that derivatives can be
    checked. With a prior weight w of a row, its phi becomes phi / w.

    Attributes
    ----------
    name : str
    link, link_words : str
        The link function: its name in model files, and what it is.
    summary : str
        What a row's label is, in a few words, for help and tables.
    losses : tuple of str
        Those that `BaggedGLM` may fit with it.
    label_range : (low, high)
        What a label without privacy noise can be; `open_range` says whether the ends are excluded.
    knows_dispersion : bool
        Whether phi is 1 by the nature of the labels.
    has_classes : bool
        Whether a row has several numbers, one for each class.
    advice : str
        What to do about labels that cannot be, for the message that refuses them.
    """

    name: ClassVar[str]
    link: ClassVar[str] = "canonical"
    link_words: ClassVar[str] = "its own"
    summary: ClassVar[str] = ""
    losses: ClassVar[tuple[str, ...]] = ("bag", "instance", "aggregate")
    label_range: ClassVar[tuple[float, float]]
    open_range: ClassVar[bool] = False
    knows_dispersion: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    advice: ClassVar[str] = "Choose another family."

    @property
    def has_log_link(self) -> bool:
        """Whether eta is the logarithm of the expected label, so that exposure adds to it."""
        return self.link_words == "logarithm"

    def natural(self, eta: FloatArray) -> FloatArray:
        """t, the natural parameter; eta itself unless a family says otherwise."""
        return eta

    def natural_slope(self, eta: FloatArray) -> FloatArray:
        """Return the derivative of t by eta, which is slope / variance."""
        return np.ones_like(eta)

    @abstractmethod
    def cumulant(self, eta: FloatArray) -> FloatArray:
        """b(t); the loss of one label is ``b(t) - y * t``."""

    @abstractmethod
    def mean(self, eta: FloatArray) -> FloatArray:
        """b'(t), the expected label."""

    def slope(self, eta: FloatArray) -> FloatArray:
        """Return the derivative of the mean by eta, which is the variance for a canonical link."""
        return np.asarray(self.variance(eta) * self.natural_slope(eta))

    @abstractmethod
    def variance(self, eta: FloatArray) -> FloatArray:
        """b''(t), the variance of a label with phi = 1."""

    @abstractmethod
    def predictor(self, mean: FloatArray) -> FloatArray:
        """Eta of a mean: the link function."""

    @abstractmethod
    def interior(self, mean: float) -> float:
        """Return the nearest mean for which eta is finite and moderate: where a search starts."""

    @abstractmethod
    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw one label for each eta."""

    def loss(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Minus the log likelihood times phi, up to a term without eta.

        It is linear in y, so that labels with noise beyond the range do no harm.
        """
        return np.asarray(self.cumulant(eta) - y * self.natural(eta))

    def loss_by_mean(self, y: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the loss by the expected label, the ends of a range counting as just inside."""
        low, high = self.label_range
        if np.isfinite(high):
            mean = np.clip(mean, low + np.finfo(float).eps, high - np.finfo(float).eps)
        return self.loss(y, self.predictor(mean))

    def can_expect(self, mean: FloatArray) -> AnyArray:
        """Tell which of these can be expected labels: chances may be 0 and 1, rates not 0."""
        low, high = self.label_range
        if np.isfinite(high):
            return np.asarray((mean >= low) & (mean <= high))
        return np.asarray((mean > low) & (mean < high))

    @property
    def range_text(self) -> str:
        """What a label can be, in words."""
        low, high = self.label_range
        if np.isinf([low, high]).all():
            return "any number"
        if np.isfinite(high):
            return f"between {low:g} and {high:g}"
        return f"above {low:g}" if self.open_range else f"{low:g} or above"

    def check_labels(self, labels: AnyArray) -> None:
        """Refuse labels that the family cannot have, without quoting one."""
        low, high = self.label_range
        outside = (labels < low) | (labels > high)
        if self.open_range:
            outside = (labels <= low) | (labels >= high)
        if np.any(outside):
            raise LabelError(
                f"{int(np.sum(outside))} bag label(s) are not possible in the family {self.name}, "
                f"whose labels are {self.range_text}. {self.advice} Labels with privacy noise are "
                "not checked: give noise_sd if they have some."
            )
