"""P1, P2 and the Laplace curve against golden values, brute force and Google's library."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bagwise.errors import BudgetError
from bagwise.privacy import composed_delta, gaussian_delta, gaussian_mu, pick_delta
from bagwise.privacy.curves import LaplaceCurve, composed_pick_mu, delta_at, least_epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "size", "expected"),
    [
        (0.25, 5e-6, 10, 0.3881785989),
        (0.5, 5e-6, 10, 0.5540891268),
        (1, 5e-6, 10, 0.7616299101),
        (0.25, 5e-6, 50, 0.7999725319),
        (0.5, 5e-6, 50, 0.9898402195),
        (1, 5e-6, 50, 1.2074528172),
        (1, 1e-5, 10, 0.7943366170),
        (1, 1e-5, 50, 1.2628459071),
    ],
)
def test_golden_mus_of_picks(epsilon, delta, size, expected):
    mu = composed_pick_mu(epsilon, delta, 0.0, size)
    assert mu == pytest.approx(expected, rel=1e-8)
    assert pick_delta(epsilon, mu, size) <= delta


def test_golden_values():
    assert pick_delta(0.5, 1.5, 10) == pytest.approx(1.4051383963e-02, rel=1e-9)
    assert least_epsilon(lambda e: pick_delta(e, 1.5, 10), 5e-6) == pytest.approx(
        4.1821649879, rel=1e-8
    )
    assert composed_delta(1, 0.2, 0.5, 10) == pytest.approx(1.50015e-07, rel=1e-5)
    assert composed_delta(1, 0.2, 0.5, 1) == pytest.approx(1.06659389e-02, rel=1e-8)


@pytest.mark.parametrize(
    ("size", "epsilon", "noise"),
    [
        (10, 0.5, (79.25, 80.48, 87.99, 128.67)),
        (10, 1, (57.86, 58.63, 62.95, 82.01)),
        (10, 2, (42.53, 43.14, 46.33, 56.66)),
        (50, 0.5, (44.25, 44.52, 45.89, 51.99)),
        (50, 1, (36.39, 36.60, 37.61, 41.28)),
        (50, 2, (29.65, 29.86, 30.84, 33.52)),
    ],
)
def test_golden_noise_after_scores(size, epsilon, noise):
    """Labels within 4 sqrt(33) of zero; shares 0, 0.1, 0.5 and 0.9 of the budget on the scores."""
    width = 8 * math.sqrt(33)
    for share, expected in zip((0, 0.1, 0.5, 0.9), noise, strict=True):
        mu_scores = math.sqrt(share) * gaussian_mu(epsilon, 1e-5)
        mu = composed_pick_mu(epsilon, 1e-5, mu_scores, size)
        assert width / mu == pytest.approx(expected, abs=0.0101)


def hockey_stick(epsilon, p, q, step):
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)) * step)


def mixture(labels, sd, grid):
    return np.mean([stats.norm.pdf(grid, label, sd) for label in labels], axis=0)


def test_no_pair_of_bags_exceeds_the_curve_of_picks_and_the_worst_attains_it():
    """Integrate 1,000 random neighbouring bags numerically (P1)."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(1000):
        size, mu = int(rng.integers(2, 12)), float(rng.uniform(0.3, 4))
        epsilon, sd = float(rng.uniform(0, 2)), 1 / mu
        grid = np.arange(-9 * sd, 1 + 9 * sd, sd / 300)
        others = rng.choice([0.0, 1.0, rng.random()], size=size - 1).tolist()
        old, new = rng.choice([0.0, 1.0, rng.random()], size=2)
        p, q = mixture([*others, old], sd, grid), mixture([*others, new], sd, grid)
        bound = pick_delta(epsilon, mu, size)
        worst = max(worst, hockey_stick(epsilon, p, q, sd / 300) / bound if bound > 1e-12 else 0.0)
    assert worst <= 1 + 1e-5  # the error of the quadrature
    size, mu, epsilon = 7, 2.0, 0.4
    grid = np.arange(-5, 6, 1 / 400)
    p, q = mixture([0.0] * 6 + [1.0], 0.5, grid), mixture([0.0] * 7, 0.5, grid)
    assert hockey_stick(epsilon, p, q, 1 / 400) == pytest.approx(
        pick_delta(epsilon, mu, size), rel=1e-5
    )


@given(st.floats(0, 3), st.floats(0.1, 3), st.integers(1, 200))
def test_the_curve_for_negative_epsilon_is_the_exchanged_one(epsilon, mu, size):
    expected = 1 - math.exp(-epsilon) + math.exp(-epsilon) * pick_delta(epsilon, mu, size)
    assert pick_delta(-epsilon, mu, size) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(st.floats(0.01, 3), st.floats(0.01, 2), st.floats(0.01, 3))
def test_a_pick_from_one_composes_like_two_gaussians(epsilon, mu_scores, mu_pick):
    expected = gaussian_delta(epsilon, math.hypot(mu_scores, mu_pick))
    assert composed_delta(epsilon, mu_scores, mu_pick, 1) == pytest.approx(
        expected, rel=1e-8, abs=1e-15
    )


@given(st.floats(0.05, 2), st.floats(0.02, 2), st.floats(0.05, 4), st.integers(1, 1000))
def test_composition_lies_between_its_parts_and_a_plain_quadrature(
    epsilon, mu_scores, mu_pick, size
):
    value = composed_delta(epsilon, mu_scores, mu_pick, size)
    assert value >= pick_delta(epsilon, mu_pick, size) * (1 - 1e-9)
    assert value >= gaussian_delta(epsilon, mu_scores) * (1 - 1e-9)
    assert value <= gaussian_delta(epsilon, math.hypot(mu_scores, mu_pick)) + 1e-12
    u = np.linspace(-14, 14, 400_001)
    h = [pick_delta(t, mu_pick, size) for t in (epsilon - mu_scores * u[::2000] - mu_scores**2 / 2)]
    assert np.all(np.diff(h) >= -1e-15)


def test_it_covers_a_dataset_that_a_composed_loss_distribution_misses():
    """mu 2 and 3, bags of two, epsilon 2: sorting on the scores decides who shares the bag.

    In the limit of many rows the other label of the bag is at one end of the bounds exactly when
    that is worse; the composed PLD assumes it always is the same end, and reports 0.5228.
    """
    mu_scores, mu_pick, size, epsilon = 2.0, 3.0, 2, 2.0
    rng = np.random.default_rng(1)
    z = mu_scores + rng.standard_normal(400_000)  # the score of the changed row, under P
    log_ratio = mu_scores * z - mu_scores**2 / 2
    threshold = epsilon - log_ratio
    grid = np.arange(-3, 4, 0.01)
    high, low = stats.norm.pdf(grid, 1, 1 / mu_pick), stats.norm.pdf(grid, 0, 1 / mu_pick)
    ends = [((high + other) / 2, (low + other) / 2) for other in (low, high)]
    table = np.linspace(-12, 12, 241)
    best = np.max([[hockey_stick(t, p, q, 0.01) for t in table] for p, q in ends], axis=0)
    realised = float(np.mean(np.interp(threshold, table, best)))
    assert realised > 0.5250
    assert composed_delta(epsilon, mu_scores, mu_pick, size) >= realised - 0.003
    assert composed_delta(epsilon, mu_scores, mu_pick, size) == pytest.approx(0.5628, abs=1e-4)


@pytest.mark.parametrize(
    ("size", "epsilon", "true_epsilon"),
    [
        (10, 0.5, 0.8524),
        (10, 1, 3.7639),
        (10, 2, 12.1296),
        (50, 0.5, 14.0220),
        (50, 1, 45.1016),
        (50, 2, 145.1294),
    ],
)
def test_the_printed_noise_of_picks_is_rejected(size, epsilon, true_epsilon):
    """Thm 4 claims (epsilon/2, delta/2) for noise alpha/size (erratum E2)."""
    from reproduction.printed_noise import printed_label_noise

    mu = 2 / (printed_label_noise(R=1.0, epsilon=epsilon, delta=1e-5) / size)
    assert pick_delta(epsilon / 2, mu, size) > 5e-6
    found = least_epsilon(lambda e: pick_delta(e, mu, size), 5e-6)
    assert found == pytest.approx(true_epsilon, abs=6e-4)


@given(st.integers(1, 60), st.integers(1, 60), st.floats(-1, 4))
def test_the_laplace_curve_is_the_sum(shift, scale, epsilon):
    grid = np.arange(-60 * scale - 100, 60 * scale + 200)
    norm = (1 + math.exp(-1 / scale)) / (1 - math.exp(-1 / scale))
    p = np.exp(-np.abs(grid) / scale) / norm
    q = np.exp(-np.abs(grid - shift) / scale) / norm
    expected = hockey_stick(epsilon, p, q, 1)
    assert delta_at(LaplaceCurve(shift, scale), epsilon) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=20)
@given(st.floats(0.1, 3), st.floats(0.2, 3), st.integers(1, 60))
def test_google_s_library_agrees_on_picks(epsilon, mu, size):
    from dp_accounting.pld import privacy_loss_distribution as pld

    google = pld.from_gaussian_mechanism(
        1 / mu, sampling_prob=1 / size, value_discretization_interval=1e-3
    )
    assert google.get_delta_for_epsilon(epsilon) == pytest.approx(
        pick_delta(epsilon, mu, size), rel=0.02, abs=1e-9
    )


def test_google_s_library_agrees_on_the_mixture_and_on_small_budgets():
    from dp_accounting.pld import privacy_loss_distribution as pld

    mixture_loss = pld.from_mixture_gaussian_mechanism(
        1 / 0.8, [0.0, 1.0], [0.9, 0.1], value_discretization_interval=1e-3
    )
    assert mixture_loss.get_delta_for_epsilon(0.5) == pytest.approx(
        pick_delta(0.5, 0.8, 10), rel=5e-3
    )
    scores = pld.from_gaussian_mechanism(1 / 0.15, value_discretization_interval=1e-4)
    picks = pld.from_gaussian_mechanism(
        1 / 0.7, sampling_prob=0.1, value_discretization_interval=1e-4
    )
    together = scores.compose(picks).get_delta_for_epsilon(1.0)
    assert composed_delta(1.0, 0.15, 0.7, 10) == pytest.approx(together, rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((1, 0.1, 10), "at least 1/10"), ((1, 0.0, 10), "Laplace"), ((0, 1e-5, 10), "positive")],
)
def test_impossible_picks(arguments, message):
    epsilon, delta, size = arguments
    with pytest.raises(BudgetError, match=message):
        composed_pick_mu(epsilon, delta, 0.0, size)
    with pytest.raises(BudgetError, match="spend the whole budget"):
        composed_pick_mu(1.0, 1e-5, 0.3, 10)
