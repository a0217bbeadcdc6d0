"""The privacy filter: each measure against brute force, and all of it against an adversary."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from bagwise.errors import BudgetError
from bagwise.ledger.filters import Cost, PrivacyFilter, curve_renyi, pure_mu, pure_renyi
from bagwise.privacy.accounting import epsilon_of_releases, total_epsilon
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.curves import (
    GaussianCurve,
    LaplaceCurve,
    PickCurve,
    gaussian_epsilon,
    gaussian_mu,
    pure_curve,
)
from bagwise.privacy.mechanisms import noisy_choice
from tests.privacy.events import bag_means, bag_picks

BOUNDS = (0.0, 10.0)
EPSILONS = np.linspace(0, 12, 4001)


def release(epsilon, delta, *, kind="means", noise="auto"):
    """The events of one release."""
    rule = ExactCalibration(epsilon, delta, BOUNDS, (), noise)
    if kind == "picks":
        return (bag_picks(rule, sizes=[10, 20], rows=1),)
    return (bag_means(rule, square=1, rows=1, touched=1),)


# What each measure says of one mechanism.


@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 3.0, 8.0])
def test_gaussian_noise_of_pure_mu_is_no_more_private_than_the_coin(epsilon):
    coin = pure_curve(epsilon)(EPSILONS)
    assert np.all(coin <= GaussianCurve(pure_mu(epsilon))(EPSILONS) * (1 + 1e-9))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_slightly_more_noise_would_be_more_private_than_the_coin(epsilon):
    coin = pure_curve(epsilon)(EPSILONS)
    assert not np.all(coin <= GaussianCurve(0.999 * pure_mu(epsilon))(EPSILONS))


@pytest.mark.parametrize("epsilon", [1e-5, 0.01, 0.5, 2.0, 30.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 17.5, 300.0])
def test_the_renyi_divergence_of_a_coin_is_its_sum(epsilon, order):
    import mpmath

    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        exact = float(mpmath.log(moment) / (order - 1))
    found = pure_renyi(epsilon, order=order)
    assert exact * (1 - 1e-9) <= found
    assert found <= exact * (1 + 1e-6) or found == order * epsilon**2 / 2


def test_the_renyi_divergence_of_laplace_noise_is_its_sum():
    shift, scale, order = 40, 50, 6.0
    steps = np.arange(-6000, 6001)
    logs = -np.abs(steps) / scale, -np.abs(steps - shift) / scale
    norm = math.log(math.tanh(1 / (2 * scale)))
    moment = np.sum(np.exp(order * logs[0] - (order - 1) * logs[1] + norm))
    exact = math.log(moment) / (order - 1)
    found, beyond = curve_renyi(LaplaceCurve(shift, scale), order)
    assert exact <= found <= exact * (1 + 1e-4)
    assert beyond <= 1e-39


def test_the_renyi_divergence_of_a_pick_is_its_integral_in_the_worse_direction():
    mu, size, order = 1.3, 20, 5.0

    def mixture(x):
        return (1 - 1 / size) * stats.norm.pdf(x) + stats.norm.pdf(x, mu) / size

    def divergence(p, q):
        moment, _ = integrate.quad(lambda x: p(x) ** order * q(x) ** (1 - order), -12, 16)
        return math.log(moment) / (order - 1)

    exact = max(divergence(mixture, stats.norm.pdf), divergence(stats.norm.pdf, mixture))
    found, _ = curve_renyi(PickCurve(GaussianCurve(mu), size), order)
    # The curve is worst over all neighbouring bags, so it may have more than this pair.
    assert exact * (1 - 1e-6) <= found <= 1.2 * exact


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-5), (1.0, 1e-6), (8.0, 1e-8)])
def test_the_renyi_measure_is_an_upper_bound_for_gaussian_noise(epsilon, delta):
    budget = PrivacyFilter(epsilon, delta)
    mu = gaussian_mu(epsilon, delta)
    cost = dataclasses.replace(Cost.of_gaussian(mu, order=budget.order), mu_square=None)
    found = budget.total([cost])  # by no other measure
    assert gaussian_epsilon(delta / 2, mu) <= found <= 1.25 * epsilon


# All measures together.


def test_pure_requests_add_up_to_the_budget_and_no_further():
    budget = PrivacyFilter(1.0, 0.0)
    tenth = Cost.of((noisy_choice("bounds", 0.1),), order=budget.order)
    assert budget.admits([tenth] * 10)
    assert not budget.admits([tenth] * 11)
    assert not budget.admits([tenth] * 9 + [Cost.of_pure(0.1 + 1e-8, order=budget.order)])


def test_one_release_may_have_all_of_the_budget():
    for epsilon, delta in [(1.0, 1e-6), (4.0, 1e-5)]:
        budget = PrivacyFilter(epsilon, delta)
        for kind in ("means", "picks"):
            cost = Cost.of(release(epsilon, delta, kind=kind, noise="gaussian"), order=budget.order)
            assert budget.admits([cost])
            assert not budget.admits([cost, Cost.of_pure(1e-3, order=budget.order)])


def test_gaussian_releases_add_up_by_their_squares():
    budget = PrivacyFilter(2.0, 1e-6)
    whole = gaussian_mu(2.0, 0.5e-6)
    part = Cost.of_gaussian(whole / 4 * (1 - 1e-9), order=budget.order)
    assert budget.admits([part] * 16)
    assert not budget.admits([part] * 17)


def test_many_small_pure_requests_cost_less_than_their_sum():
    budget = PrivacyFilter(1.0, 1e-6)
    small = Cost.of_pure(0.01, order=budget.order)
    assert budget.admits([small] * 200)
    assert not PrivacyFilter(1.0, 0.0).admits([small] * 200)


REQUESTS = st.lists(
    st.one_of(
        st.floats(0.05, 1.5).map(lambda epsilon: (noisy_choice("bounds", epsilon),)),
        st.floats(0.2, 1.5).map(lambda epsilon: release(epsilon, 1e-6, noise="gaussian")),
        st.floats(0.2, 1.5).map(lambda epsilon: release(epsilon, 0.0)),
        st.floats(0.2, 1.5).map(
            lambda epsilon: release(epsilon, 1e-6, kind="picks", noise="gaussian")
        ),
    ),
    min_size=1,
    max_size=4,
)


@given(requests=REQUESTS, delta=st.sampled_from([1e-7, 1e-5]))
@settings(max_examples=15)
def test_the_filter_never_says_less_than_the_accountant(requests, delta):
    budget = PrivacyFilter(2.0, delta)
    filtered = budget.total([Cost.of(events, order=budget.order) for events in requests])
    assert filtered >= epsilon_of_releases(requests, delta) * (1 - 1e-6)


def test_what_would_fit_does_and_hardly_more_does():
    budget = PrivacyFilter(2.0, 1e-6)
    order = budget.order
    spent = [Cost.of_pure(0.7, order=order), Cost.of_gaussian(0.2, order=order)]
    pure, gaussian = budget.what_fits(spent, delta=1e-7)
    for factor, fits in ((1.0, True), (1.02, False)):
        assert budget.admits([*spent, Cost.of_pure(pure * factor, order=order)]) is fits
        mu = gaussian_mu(gaussian * factor, 1e-7)
        assert budget.admits([*spent, Cost.of_gaussian(mu, order=order)]) is fits
    assert budget.what_fits([Cost.of_pure(5.0, order=order)], delta=1e-7) == (0.0, 0.0)


def test_an_event_that_nobody_knows_has_no_price():
    with pytest.raises(BudgetError, match="no accounting"):
        Cost.of((object(),), order=2.0)


def test_several_releases_by_the_accountant_are_one_where_they_are_one():
    events = release(1.0, 1e-6, noise="gaussian")
    assert epsilon_of_releases([events, ()], 1e-6) == total_epsilon(events, 1e-6)
    assert epsilon_of_releases([events, events], 0.0) == math.inf


# Whoever chooses the next coin by what the last ones showed.

SMALL, LARGE, UNIT = 0.1, 0.4, 0.1
BUDGET, ALLOWED = 1.0, 1e-2


def chance(epsilon):
    return math.exp(epsilon) / (1 + math.exp(epsilon))


def largest_delta(admits):
    """The delta that the cleverest choice of coins reaches, by dynamic programming."""

    @functools.cache
    def best(small, large, loss):
        # Stopping is worth (1 - e^(epsilon - loss)), in probability under the first table.
        found = max(0.0, -math.expm1(BUDGET - loss * UNIT))
        for epsilon, counts in ((SMALL, (small + 1, large)), (LARGE, (small, large + 1))):
            if admits(*counts):
                step, p = round(epsilon / UNIT), chance(epsilon)
                found = max(
                    found, p * best(*counts, loss + step) + (1 - p) * best(*counts, loss - step)
                )
        return found

    return best(0, 0, 0)


@functools.cache
def fixed_delta(small, large):
    """The delta of so many coins that were chosen in advance."""
    x, y = np.arange(small + 1)[:, None], np.arange(large + 1)
    loss = (2 * x - small) * SMALL + (2 * y - large) * LARGE
    weights = stats.binom.pmf(x, small, chance(SMALL)) * stats.binom.pmf(y, large, chance(LARGE))
    return float(np.sum(weights * np.maximum(0.0, -np.expm1(BUDGET - loss))))


def test_no_adversary_gets_beyond_the_filter():
    budget = PrivacyFilter(BUDGET, ALLOWED)
    small, large = (Cost.of_pure(epsilon, order=budget.order) for epsilon in (SMALL, LARGE))

    @functools.cache
    def admits(n_small, n_large):
        return budget.admits([small] * n_small + [large] * n_large)

    assert admits(12, 0)  # more than the sum of epsilons allows
    assert largest_delta(admits) <= ALLOWED


def test_an_adversary_does_get_beyond_the_accountant():
    found = largest_delta(lambda small, large: fixed_delta(small, large) <= ALLOWED)
    assert found > 1.2 * ALLOWED


@pytest.mark.parametrize(
    "name", ["50 Laplace of 0.2", "10 Gaussian of 0.3", "bounds, 10 Gaussian, 2 evaluations"]
)
def test_the_accountant_agrees_with_googles_library_and_the_filter_is_never_below(name):
    from benchmarks.ledger import DELTA, histories, peer_epsilon

    releases = histories()[name]
    fixed, peer = epsilon_of_releases(releases, DELTA), peer_epsilon(releases, DELTA)
    assert fixed == pytest.approx(peer, rel=0.01)
    assert epsilon_of_releases(releases[:-1], DELTA) != pytest.approx(peer, rel=0.003)
    budget = PrivacyFilter(2 * fixed, DELTA)
    filtered = budget.total([Cost.of(events, order=budget.order) for events in releases])
    assert fixed <= filtered <= 2 * fixed
