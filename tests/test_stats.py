"""The checks accept what is right and reject what is a little wrong."""

import numpy as np

from tests import stats


def test_checks_accept_the_truth_and_reject_five_percent_off():
    rng = np.random.default_rng(0)
    sample = rng.normal(10.0, 2.0, size=20_000)
    assert stats.mean_is(sample, 10.0)
    assert not stats.mean_is(sample, 10.5)
    assert stats.sd_is(sample - 10.0, 2.0)
    assert not stats.sd_is(sample - 10.0, 2.1)
    assert not stats.sd_is(sample - 10.0, 1.9)
    assert stats.is_uniform(rng.multinomial(60_000, [1 / 6] * 6))
    assert not stats.is_uniform(rng.multinomial(60_000, [0.18, 0.16, 0.165, 0.165, 0.165, 0.165]))
