import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.privacy import private_range
from bagwise.privacy.mechanisms import noisy_choice
from bagwise.privacy.private_range import (
    ANY_LABEL,
    OF_LEFTOVERS,
    Lattice,
    cheapest,
    find_bounds,
    is_choice,
    is_limit,
    is_range,
    limit_of,
    tightened,
)
from bagwise.privacy.samplers import discrete_exponential
from bagwise.rng import SecureNoise, SimulatedNoise

of_bounds, of_range, of_limit = (partial(noisy_choice, of) for of in ("bounds", "range", "limit"))


def test_exponential_noise_has_the_stated_probabilities():
    scale, draws = 3, 200_000
    drawn = discrete_exponential(draws, scale=scale, source=SimulatedNoise(1))
    seen = np.bincount(drawn, minlength=60)[:60] / draws

    def gap(scale):
        expected = -math.expm1(-1 / scale) * np.exp(-np.arange(60) / scale)
        return np.abs(seen - expected).max() * math.sqrt(draws / expected.max())

    assert gap(scale) < 5  # standard deviations of the likeliest cell, at most
    assert gap(1.04 * scale) > 5  # the twin: a scale four hundredths larger


def chances(beyond, doublings, *, epsilon):
    """Return the exact chance of each candidate to be chosen, by enumeration of the noise.

    Written from the rule alone: each cost less its own geometric noise, the first of equals wins.
    """
    scale = math.ceil(1000 / epsilon)
    prices = np.rint(private_range.PRICE_OF_DOUBLING * scale * (doublings - doublings.min()))
    costs = (prices + 1000 * np.asarray(beyond)).astype(int)
    noise = np.arange(30 * scale)
    weight = -math.expm1(-1 / scale) * np.exp(-noise / scale)

    def above(level):  # P(noise >= level)
        return np.where(level <= 0, 1.0, np.exp(-np.maximum(level, 0) / scale))

    found = []
    for j, cost in enumerate(costs):
        wins = np.ones(noise.size)
        for k, other in enumerate(costs):
            if k != j:  # the other stays dearer: strictly so if it stands before
                wins *= 1 - above(other - (cost - noise) + (k > j))
        found.append(float(weight @ wins))
    return np.array(found)


def test_chances_are_those_of_the_mechanism():
    beyond, doublings, runs = np.array([6, 3, 1, 0]), np.array([0.0, 0.5, 1.0, 1.5]), 20_000
    expected = chances(beyond, doublings, epsilon=1.0)
    assert expected.sum() == pytest.approx(1.0, abs=1e-9)
    source = SimulatedNoise(3)
    picked = [cheapest(beyond, doublings, epsilon=1.0, rows=1, source=source) for _ in range(runs)]
    seen = np.bincount(picked, minlength=4) / runs
    spread = np.sqrt(expected * (1 - expected) / runs)
    assert np.all(np.abs(seen - expected) < 5 * spread)
    others = chances(beyond, doublings, epsilon=1.3)
    assert np.any(np.abs(seen - others) > 5 * spread)  # the twin


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_one_value_costs_epsilon_at_most(epsilon):
    """Exactly, for every way in which one value can move counts: all of them the same way."""
    doublings = np.array([0.0, 0.25, 0.5, 1.0, 3.0])
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(3):
        before = np.sort(rng.integers(1, 12, size=5))[::-1]
        for passed in range(1, 6):
            for start in range(6 - passed):
                after = before.copy()
                after[start : start + passed] += 1
                p, q = (chances(c, doublings, epsilon=epsilon) for c in (before, after))
                likely = p > 1e-6  # beyond, the enumeration itself rounds
                worst = max(worst, float(np.abs(np.log(p[likely] / q[likely])).max()))
    assert worst <= epsilon * (1 + 1e-5)
    assert worst > 0.9 * epsilon  # no less noise would do
    # The twin: counts that move against each other cost more, so that it is the order that counts.
    p, q = (chances(c, np.zeros(2), epsilon=epsilon) for c in ([9, 4], [10, 3]))
    assert np.abs(np.log(p / q)).max() > 1.8 * epsilon


def test_units_move_counts_by_all_their_rows():
    """A unit of r rows has r times the noise: the same chances as one row has at epsilon / r."""
    counts, doublings = np.array([30, 12, 0]), np.array([0.0, 1.0, 2.0])
    runs = 20_000
    picked = [
        [
            cheapest(counts, doublings, epsilon=e, rows=r, source=SimulatedNoise(draw))
            for draw in range(runs // 10)
        ]
        for e, r in ((0.4, 4), (0.1, 1))
    ]
    assert picked[0] == picked[1]


def test_rows_of_a_unit_may_move_counts_against_each_other():
    """One of two rows goes up and the other one down: exactly, at the noise for two rows."""
    epsilon, worst = 1.0, 0.0
    for before, after in (([9, 4], [10, 3]), ([5, 5, 1], [6, 4, 1]), ([7, 6, 6], [6, 6, 7])):
        doublings = np.zeros(len(before))
        p, q = (chances(counts, doublings, epsilon=epsilon / 2) for counts in (before, after))
        worst = max(worst, float(np.abs(np.log(p / q)).max()))
    assert 0.9 * epsilon < worst <= epsilon * (1 + 1e-5)


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (0, 900, (0.0, 50_000.0)),
        (-40, 30, (-10_000.0, 10_000.0)),
        (200, 800, (0.0, 1000.0)),
        (-900, -2, (-50_000.0, 0.0)),
    ],
)
def test_a_range_is_within_the_bounds_and_as_wide_as_the_labels(low, high, bounds):
    labels = np.random.default_rng(0).uniform(low, high, size=40_000)
    for draw in range(20):
        found = tightened(labels, bounds, event=of_range(0.2), source=SimulatedNoise(draw))
        assert bounds[0] <= found[0] < found[1] <= bounds[1]
        assert np.mean((labels < found[0]) | (labels > found[1])) < 0.02
        assert found[1] - found[0] < 8 * max(abs(low), abs(high))


def test_labels_beyond_the_bounds_count_as_on_them():
    labels = np.random.default_rng(0).uniform(0, 100, size=20_000)
    far = np.where(labels > 60, 1e300, labels)
    near = np.where(labels > 60, 70.0, labels)
    found = [
        tightened(y, (0.0, 70.0), event=of_range(0.1), source=SimulatedNoise(0))
        for y in (far, near)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("epsilon", [0.002, 0.01, 0.1, 1.0])
def test_rare_labels_are_not_clipped_away(epsilon):
    """One row in twenty is all that a label tells, and bounds are ten times too wide."""
    labels = np.zeros(40_000)
    labels[::20] = 1.0
    source = SecureNoise()
    for _ in range(20):
        _, high = tightened(labels, (0.0, 10.0), event=of_range(epsilon), source=source)
        assert high >= 1.0


def test_fewer_rows_narrow_less():
    assert Lattice(1000, 0.05).depth < 1 < Lattice(9000, 0.05).depth < Lattice(10**6, 0.05).depth
    assert Lattice(40_000, 0.05, 10).depth == pytest.approx(Lattice(40_000, 0.005).depth)
    few = np.random.default_rng(0).uniform(0, 1, size=1000)
    assert tightened(few, (0.0, 1e6), event=of_range(0.01), source=SecureNoise())[1] == 1e6


def test_a_limit_leaves_about_as_many_as_its_price():
    rng = np.random.default_rng(0)
    left = np.abs(rng.normal(size=100_000))
    limits = [
        limit_of(left, 50.0, event=of_limit(0.5), source=SimulatedNoise(draw)) for draw in range(20)
    ]
    beyond = [np.mean(left > limit) for limit in limits]
    # A quarter of a doubling must save a quarter of the price, or is not worth it.
    assert np.median(beyond) < 4 * OF_LEFTOVERS.price
    assert max(limits) < 5.0


SEARCHES = st.builds(of_range, st.floats(1e-3, 2.0), st.integers(1, 5))


@given(
    low=st.floats(-100.0, 100.0),
    width=st.floats(1.0, 1e6),
    size=st.integers(1, 3000),
    event=SEARCHES,
    seed=st.integers(0, 2**31),
)
def test_every_answer_is_on_the_lattice_and_others_are_not(low, width, size, event, seed):
    bounds = (low, low + width)
    values = np.random.default_rng(seed).uniform(*bounds, size=size)
    search, source = {"n_values": size, "event": event}, SimulatedNoise(seed)
    found = tightened(values, bounds, event=event, source=source)
    assert is_range(found, bounds, **search)
    more = 0.0123 * (found[1] - found[0])
    for off in ((found[0], found[1] + more), (found[0] - more, found[1])):
        assert not is_range(off, bounds, **search)
    limit = limit_of(values - low, width, event=event, source=SimulatedNoise(seed))
    assert is_limit(limit, width, **search) == (limit <= width / 2)
    assert not is_limit(limit * 1.0123, width, **search)


def test_the_lattice_follows_from_rows_epsilon_and_units():
    """By hand: 40,000 rows and epsilon 0.01 halve a range five times, in quarters of a halving."""
    search: Any = {"n_values": 40_000, "event": of_range(0.01)}
    bounds = (-1.0, 4.0)
    assert is_range((-1.0, 4 / 2**1.25), bounds, **search)
    assert is_range((-1 / 8, 1 / 8), bounds, **search)
    assert not is_range((-1.0, 4 / 2**1.3), bounds, **search)
    assert not is_range((-1 / 16, 1 / 16), bounds, **search)  # six halvings
    assert is_range((-1 / 16, 1 / 16), bounds, **{**search, "event": of_range(0.02)})
    assert not is_range((-1 / 8, 1 / 8), bounds, **{**search, "event": of_range(0.01, 2)})
    # From one side, by half of epsilon each: the upper end first, then the lower from there.
    search["event"] = of_range(0.02)
    assert is_range((2.0, 2.5), (2.0, 18.0), **search)
    assert is_range((6.0, 10.0), (2.0, 18.0), **search)
    assert not is_range((5.0, 10.0), (2.0, 18.0), **search)


LABELS = {
    "rare": ((np.arange(40_000) % 100 == 0).astype(float), {(0.0, 1.0), (0.0, 2.0), (0.0, 5.0)}),
    "negative": (-np.linspace(300, 900, 40_000), {(-1000.0, 0.0), (-2000.0, 0.0), (-5000.0, 0.0)}),
    "of one value": (np.full(40_000, 7.0), {(0.0, 10.0), (0.0, 20.0), (0.0, 50.0)}),
    "zero": (np.zeros(40_000), {(0.0, 1.0)}),
    "on both sides": (np.linspace(-90, 90, 40_000), {(-100.0, 100.0), (-100.0, 200.0),
                                                      (-200.0, 100.0), (-200.0, 200.0)}),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.01, 0.1])  # a tenth of what is promised
@pytest.mark.parametrize("name", list(LABELS))
def test_bounds_are_found_whatever_the_labels_are(name, epsilon):
    labels, near = LABELS[name]
    found = [
        find_bounds(labels, ANY_LABEL, event=of_bounds(epsilon), source=SimulatedNoise(draw))
        for draw in range(40)
    ]
    assert all(map(is_choice, found))
    assert sum(one in near for one in found) >= 34


def test_ends_that_labels_have_by_nature_are_kept():
    counts = np.arange(40_000) % 15 - 3.0  # noise of an earlier release, perhaps
    for draw in range(20):
        low, high = find_bounds(
            counts, (0.0, math.inf), event=of_bounds(0.1), source=SimulatedNoise(draw)
        )
        assert low == 0
        assert 10 <= high <= 100
