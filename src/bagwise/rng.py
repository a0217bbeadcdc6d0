"""Randomness, as two types that cannot be confused.

What is public or simulated (partitions, synthetic data) uses a seeded ``numpy`` Generator.
What is secret (which label was picked, the order in which rows leave) comes from the operating
system through `SecretSource`, which has no seed to give. Noise is drawn in `privacy.noise`.
"""

import os

import numpy as np

from bagwise._types import IntArray

Seed = int | np.random.Generator | None


def make_generator(seed: Seed) -> np.random.Generator:
    """Return a generator for what is public; ``None`` draws fresh entropy."""
    return np.random.default_rng(seed)


class SecretSource:
    """Uniform draws from the operating system's generator, for what must not be guessed.

    There is no seed argument, on purpose: a secret that can be replayed is not one.
    """

    name = "operating system (os.urandom)"

    def index_below(self, limits: IntArray) -> IntArray:
        """Draw one integer uniformly from 0..limit-1 for each limit, by rejection (exact)."""
        limits = np.asarray(limits, dtype=np.uint64)
        drawn = np.empty(limits.shape, dtype=np.uint64)
        waiting = np.arange(limits.size)
        while waiting.size:
            words = np.frombuffer(os.urandom(8 * waiting.size), dtype=np.uint64)
            limit = limits[waiting]
            # The largest multiple of `limit` that fits: words above it would favour small results.
            fair = words < (np.uint64(2**64 - 1) // limit) * limit
            drawn[waiting[fair]] = words[fair] % limit[fair]
            waiting = waiting[~fair]
        return drawn.astype(np.int64)

    def permutation(self, count: int) -> IntArray:
        """Draw a uniform permutation of 0..count-1 by sorting distinct random 64-bit keys."""
        while True:
            keys = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
            order = np.argsort(keys, kind="stable")
            if not np.any(np.diff(keys[order]) == 0):  # a tie would favour the input order
                return order.astype(np.int64)
