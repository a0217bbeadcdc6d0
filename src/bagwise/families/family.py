"""What a family of label distributions has to say for itself."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from bagwise._types import FloatArray


class Family(ABC):
    """Labels with density ``exp((y * eta - b(eta)) / phi)``, where ``eta = x' theta``.

    The cumulant b says everything: the mean of y is b'(eta), its variance phi * b''(eta).
    """

    name: ClassVar[str]
    label_range: ClassVar[tuple[float, float]]

    @abstractmethod
    def cumulant(self, eta: FloatArray) -> FloatArray:
        """b(eta); the loss of one label is ``b(eta) - y * eta``."""

    @abstractmethod
    def mean(self, eta: FloatArray) -> FloatArray:
        """b'(eta), the expected label; increasing in eta."""

    @abstractmethod
    def variance(self, eta: FloatArray) -> FloatArray:
        """b''(eta), the variance of a label with phi = 1."""

    @abstractmethod
    def sample(self, eta: FloatArray, *, phi: float, rng: np.random.Generator) -> FloatArray:
        """Draw one label for each eta."""
