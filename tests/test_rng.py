import inspect
from collections import Counter
from itertools import permutations

import numpy as np

from bagwise import rng as randomness
from bagwise.rng import NoiseSource, SecureNoise
from tests import stats


def test_no_secret_can_be_seeded():
    for _, method in inspect.getmembers(SecureNoise, inspect.isfunction):
        assert not {"seed", "rng", "random_state"} & set(inspect.signature(method).parameters)
    assert not inspect.signature(SecureNoise).parameters


def test_indices_are_uniform_below_their_own_limit():
    limits = np.repeat([1, 2, 7], 20_000)
    drawn = SecureNoise().index_below(limits)
    assert (drawn[limits == 1] == 0).all()
    for limit in (2, 7):
        counts = np.bincount(drawn[limits == limit], minlength=limit)
        assert counts.size == limit
        assert stats.is_uniform(counts)


def test_rejection_is_what_keeps_large_limits_fair():
    # Taking words modulo 3 * 2**61 without rejection gives the upper third two shares of eight.
    limit = 3 * 2**61
    words = np.random.default_rng(0).integers(0, 2**64, size=30_000, dtype=np.uint64)
    thirds = (words % np.uint64(limit)) // np.uint64(2**61)
    unfair = np.bincount(thirds.astype(np.int64), minlength=3)
    drawn = SecureNoise().index_below(np.full(30_000, limit))
    fair = np.bincount(drawn // 2**61, minlength=3)
    assert not stats.is_uniform(unfair)
    assert stats.is_uniform(fair)


def test_permutations_are_all_equally_likely():
    source = SecureNoise()
    seen = Counter(tuple(source.permutation(4).tolist()) for _ in range(12_000))
    assert set(seen) == set(permutations(range(4)))
    assert stats.is_uniform(list(seen.values()))


def test_two_draws_differ():
    source = SecureNoise()
    assert not np.array_equal(source.permutation(100), source.permutation(100))


class Scripted(NoiseSource):
    name, is_secret = "scripted", False

    def __init__(self, *draws):
        self.draws = list(draws)

    def words(self, count):
        return np.array(self.draws.pop(0)[:count], dtype=np.uint64)


def test_keys_that_are_equal_are_drawn_again_wherever_they_are(monkeypatch):
    monkeypatch.setattr(randomness, "_AT_ONCE", 2)
    for tied in ([5, 5, 7, 9], [3, 5, 5, 9], [9, 1, 4, 9]):
        assert Scripted(tied, [30, 10, 40, 20]).permutation(4).tolist() == [1, 3, 0, 2]
