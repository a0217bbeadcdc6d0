"""Advantages, their intervals and their limit."""

import math

import numpy as np
import pytest

from bagwise.auditor.guessing import dp_limit, over_chance, over_others, when_sure

ALPHA = 0.1


def coverage(interval, truth, runs=400):
    """Share of intervals that hold the truth."""
    rng = np.random.default_rng(0)
    found = [interval(rng) for _ in range(runs)]
    return np.mean([one.low <= truth <= one.high for one in found])


@pytest.mark.parametrize("p", [0.5, 0.7, 0.99])
def test_intervals_over_a_coin_hold_the_truth(p):
    def draw(rng, p=p):
        return over_chance(rng.random(60) < p, alpha=ALPHA)

    # The chance that 400 intervals of coverage 0.9 hold it less often than 0.84 is below 1e-4.
    assert coverage(draw, 2 * p - 1) > 0.84


def test_and_do_not_hold_what_is_off_by_a_little():
    def draw(rng):
        return over_chance(rng.random(600) < 0.75, alpha=ALPHA)

    assert coverage(draw, 2 * 0.75 - 1) > 0.84
    assert coverage(draw, 2 * 0.70 - 1) < 0.5


def test_intervals_over_others_hold_the_difference_also_if_guesses_depend_on_each_other():
    def draw(rng):
        u = rng.random(200)
        return over_others(u < 0.7, u < 0.6, alpha=ALPHA)

    assert coverage(draw, 0.1) > 0.84
    assert coverage(draw, 0.3) < 0.1


def test_choosing_when_to_guess_does_not_make_a_coin_look_clever():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        right, sureness = rng.random(400) < 0.5, rng.random(400)
        wrong += when_sure(right, sureness, alpha=ALPHA).low > 0
    # Half of alpha is on this side: 10 of 200 expected; 30 has a chance below 1e-7.
    assert wrong < 30


def test_a_few_certain_guesses_are_found_among_many():
    rng = np.random.default_rng(2)
    sureness = rng.random(4000)
    right = np.where(sureness > 0.97, True, rng.random(4000) < 0.5)
    assert over_chance(right, alpha=ALPHA).high < 0.1
    assert when_sure(right, sureness, alpha=ALPHA).low > 0.8


def test_nothing_to_guess_is_not_an_advantage():
    nothing = np.zeros(0, dtype=bool)
    assert over_chance(nothing, alpha=ALPHA) is None
    assert over_others(nothing, nothing, alpha=ALPHA) is None
    assert when_sure(nothing, np.zeros(0), alpha=ALPHA) is None


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 0.01), (3.0, 0.1)])
def test_the_limit_is_that_of_the_worst_mechanism(epsilon, delta):
    """Brute force over mechanisms with two outcomes on which the attacker guesses the first."""
    worst = {}
    for p1 in np.linspace(0.01, 1, 400):
        p0 = max((p1 - delta) / math.exp(epsilon), 0.0)
        share = (p1 + p0) / 2
        right = p1 / (p1 + p0)
        worst[share] = 2 * right - 1
    for share, advantage in worst.items():
        assert advantage <= dp_limit(epsilon, delta, share=share) + 1e-12
    if delta == 0:
        assert max(worst.values()) == pytest.approx(dp_limit(epsilon, delta))
    assert max(worst.values()) > dp_limit(epsilon, delta) - 0.01
