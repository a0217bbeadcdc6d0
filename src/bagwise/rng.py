"""Two kinds of randomness that cannot be confused.

Public randomness (partitions, synthetic data) comes from a seeded ``numpy`` Generator. Secret
randomness (noise, picks, the order of published rows) comes from a `NoiseSource`: `SecureNoise`
asks the operating system and has no seed; `SimulatedNoise` is for experiments, and a release made
with it says NOT PRIVATE.
"""

import os
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._types import IntArray, index_type

Seed = int | np.random.Generator | None

_AT_ONCE = 2**20  # keys that are compared together, where there may be very many


def make_generator(seed: Seed) -> np.random.Generator:
    """Return a generator for public randomness; ``None`` draws fresh entropy."""
    return np.random.default_rng(seed)


class NoiseSource(ABC):
    """Uniform random words, and the exact integer draws made from them."""

    name: ClassVar[str]
    is_secret: ClassVar[bool]

    @abstractmethod
    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw `count` independent uniform 64-bit words."""

    def index_below(self, limits: IntArray) -> IntArray:
        """Draw one integer uniformly from 0..limit-1 for each limit, by rejection (exact)."""
        limits = np.asarray(limits, dtype=np.uint64)
        drawn = np.empty(limits.shape, dtype=np.uint64)
        waiting = np.arange(limits.size)
        while waiting.size:
            words = self.words(waiting.size)
            limit = limits[waiting]
            # The largest multiple of `limit` that fits: words above it would favour small results.
            fair = words < (np.uint64(2**64 - 1) // limit) * limit
            drawn[waiting[fair]] = words[fair] % limit[fair]
            waiting = waiting[~fair]
        return drawn.astype(np.int64)

    def permutation(self, count: int) -> IntArray:
        """Draw a uniform permutation of 0..count-1 by sorting distinct random words."""
        while True:
            keys = self.words(count)
            order = np.argsort(keys)
            if not _has_ties(keys, order):  # a tie would favour the input order
                del keys
                places: IntArray = order.astype(index_type(count), copy=False)
                return places


def _has_ties(keys: NDArray[np.uint64], order: IntArray) -> bool:
    """Tell whether two keys are equal; some at a time, so that they are not there twice."""
    for first in range(0, order.size, _AT_ONCE):
        some = keys[order[first : first + _AT_ONCE + 1]]
        if np.any(some[1:] == some[:-1]):
            return True
    return False


class SecureNoise(NoiseSource):
    """Words from the operating system's generator, for secrets that must not be guessed.

    There is no seed argument, on purpose: a secret that can be replayed is not one. Nor is there a
    state in this process, so that forked or pickled copies never repeat each other.
    """

    name: ClassVar[str] = "operating system (os.urandom)"
    is_secret: ClassVar[bool] = True

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw `count` words from the operating system."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class SimulatedNoise(NoiseSource):
    """Words from a seed, for reproducible experiments: whoever has it can remove the noise."""

    name: ClassVar[str] = "simulated from a seed"
    is_secret: ClassVar[bool] = False

    def __init__(self, seed: Seed) -> None:
        self._generator = make_generator(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw `count` words from the seeded generator."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)
