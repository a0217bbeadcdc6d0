import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from bagwise.errors import BudgetError
from bagwise.privacy import gaussian_delta, gaussian_epsilon, gaussian_mu
from bagwise.privacy.accounting import gaussian_part, total_delta, total_epsilon
from bagwise.privacy.curves import LaplaceCurve, delta_at
from bagwise.privacy.mechanisms import noisy_choice
from tests.privacy.events import gaussian, laplace


@pytest.mark.parametrize(
    ("epsilon", "mu", "expected"), [(1, 0.5, 6.8295949831e-03), (-1, 0.5, 0.6346330264)]
)
def test_golden_deltas(epsilon, mu, expected):
    assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"),
    [
        (0.5, 1e-5, 0.1422105587),
        (1, 1e-5, 0.2680511232),
        (2, 1e-5, 0.5015516892),
        (0.25, 5e-6, 0.0716949122),
        (0.5, 5e-6, 0.1360331573),
        (1, 5e-6, 0.2574571959),
    ],
)
def test_golden_mus(epsilon, delta, expected):
    assert gaussian_mu(epsilon, delta) == pytest.approx(expected, rel=1e-9)


@given(st.floats(-2, 4), st.floats(0.05, 4))
def test_the_curve_is_the_hockey_stick_divergence(epsilon, mu):
    """Integrate max(0, p - e^eps q) for p = N(mu, 1), q = N(0, 1) numerically."""
    crossing = epsilon / mu + mu / 2

    def excess(x):
        return stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)

    expected, _ = integrate.quad(excess, crossing, max(crossing, mu) + 12, epsabs=1e-13)
    assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-6, abs=1e-11)


@given(st.floats(1e-3, 20), st.floats(1e-12, 0.3))
def test_calibration_is_on_the_private_side_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-6)) > delta
    back = gaussian_epsilon(delta, mu)
    assert gaussian_delta(back, mu) <= delta
    assert back == pytest.approx(epsilon, rel=1e-6)


def test_the_paper_s_noise_is_rejected():
    """Thm 5 prints alpha^2 = 4 R^2 ln(1.25/delta) / eps^2; its true epsilon is larger (E1)."""
    for epsilon, truth in ((0.5, 0.514), (1, 1.098), (2, 2.371)):
        sd = math.sqrt(4 * math.log(1.25 / 1e-5)) / epsilon  # R = 1, so the sensitivity is 2
        assert gaussian_delta(epsilon, 2 / sd) > 1e-5
        assert gaussian_epsilon(1e-5, 2 / sd) == pytest.approx(truth, abs=5e-4)


def test_no_noise_difference_costs_nothing():
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert gaussian_epsilon(1e-5, 1e-9) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (0, 1e-5, "epsilon must be a positive"),
        (-1, 1e-5, "epsilon must be a positive"),
        (math.inf, 1e-5, "epsilon must be a positive"),
        (math.nan, 1e-5, "epsilon must be a positive"),
        (1, 1, "below 1"),
        (1, -1e-9, "at least 0"),
        (1, math.nan, "at least 0"),
        (1, 0, "Laplace"),
        (1e9, 1e-5, "hardly any noise"),
        (501, 1e-5, "hardly any noise"),
        ("1", 1e-5, "epsilon must be a number"),
    ],
)
def test_impossible_budgets(epsilon, delta, message):
    with pytest.raises(BudgetError, match=message):
        gaussian_mu(epsilon, delta)


def test_events_compose_by_hypotenuse_and_unknown_ones_are_refused():
    events = [gaussian(30, 10), gaussian(80, 20)]
    assert gaussian_part(events) == pytest.approx(5.0)
    assert total_delta(events, 1.0) == gaussian_delta(1.0, 5.0)
    assert total_epsilon(events, 1e-3) == gaussian_epsilon(1e-3, 5.0)
    with pytest.raises(BudgetError, match="no accounting"):
        total_delta([object()], 1.0)


def test_a_mean_loss_on_its_own_has_the_exact_curve():
    event = laplace(3, 2)
    for epsilon in (-1.0, 0.3, 1.0, 1.5, 2.0):
        assert total_delta([event], epsilon) == delta_at(LaplaceCurve(3, 2), epsilon)
    # Beside a pure choice it costs less than if that took its epsilon off the top.
    both = [noisy_choice("bounds", 0.2), event]
    assert 0 < total_delta(both, 1.2) < delta_at(LaplaceCurve(3, 2), 1.0)


def test_mean_losses_add_their_epsilon_to_whatever_else_was_released():
    first, second = laplace(3, 6), laplace(3, 10)
    assert total_epsilon([first, second], 0.0) == pytest.approx(0.8)
    model = gaussian(10, 40)
    # Composed, they cost less than if their epsilons were taken off the top.
    assert 0 < total_delta([model, first], 1.5) < gaussian_delta(1.0, 0.25)
    assert 0 < total_delta([first, model, second], 1.8) < gaussian_delta(1.0, 0.25)
    bags = laplace(4, 10)
    assert total_epsilon([bags, second], 0.0) == pytest.approx(0.7)
    assert total_epsilon([bags, bags, second], 0.0) == pytest.approx(1.1)


def test_two_mean_losses_by_brute_force():
    """Sum over all pairs of outcomes that matter, for sums that both move by their sensitivity."""
    shift, scale = 3, 4
    event = laplace(shift, scale)
    y = np.arange(-150, 151)
    here, there = np.exp(-np.abs(y) / scale), np.exp(-np.abs(y - shift) / scale)
    p, q = (np.multiply.outer(w / w.sum(), w / w.sum()) for w in (here, there))
    for epsilon in (0.2, 0.7, 1.2, 1.5):
        delta = np.maximum(0, p - math.exp(epsilon) * q).sum()
        assert delta <= total_delta([event, event], epsilon) + 1e-12
    # One of them alone would promise too much for both.
    assert np.maximum(0, p - math.exp(0.7) * q).sum() > total_delta([event], 0.7)
