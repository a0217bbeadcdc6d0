import sys

import numpy as np
import pytest
from scipy.special import logsumexp

from bagwise.bags import Bags
from bagwise.errors import BoundsError, BudgetError, MissingExtraError
from bagwise.privacy import gaussian_delta
from bagwise.privacy.calibrate import LABEL_STEPS, calibrate_bag_means
from bagwise.privacy.events import GaussianBagMeans
from bagwise.privacy.noise import add_discrete_gaussian, labels_to_steps, private_bag_means
from tests import stats

BOUNDS = (-1.0, 3.0)


def test_noise_has_its_scale_and_not_five_percent_off():
    noise = add_discrete_gaussian(np.zeros(40_000, dtype=np.int64), scale=5000)
    assert noise.dtype == np.int64
    assert stats.mean_is(noise, 0.0)
    assert stats.sd_is(noise, 5000)
    assert not stats.sd_is(noise, 5000 * 1.05)
    assert not stats.sd_is(noise, 5000 * 0.95)


def test_noise_is_added_to_the_values():
    values = np.array([10**12, -(10**12)])
    assert np.abs(add_discrete_gaussian(values, scale=100) - values).max() < 100 * 40


@pytest.mark.parametrize("scale", [0, 99, 2**51])
def test_unsafe_scales_are_refused(scale):
    with pytest.raises(BudgetError, match="cannot be drawn safely"):
        add_discrete_gaussian(np.zeros(1, dtype=np.int64), scale=scale)


def test_two_releases_never_share_noise():
    zeros = np.zeros(50, dtype=np.int64)
    assert not np.array_equal(
        add_discrete_gaussian(zeros, scale=10**6), add_discrete_gaussian(zeros, scale=10**6)
    )


def test_a_missing_sampler_is_said_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    with pytest.raises(MissingExtraError, match=r'pip install "bagwise\[opendp\]"'):
        add_discrete_gaussian(np.zeros(1, dtype=np.int64), scale=1000)


def test_discrete_noise_costs_what_the_continuous_curve_says():
    """Sum the hockey stick over the grid; the two curves differ in the seventh digit here."""
    scale, shift, epsilon = 3731, 1000, 1.0
    grid = np.arange(-15 * scale, 15 * scale)
    log_p = -(grid**2) / (2 * scale**2)
    log_q = -((grid + shift) ** 2) / (2 * scale**2) + epsilon
    excess = np.where(log_p > log_q, np.exp(log_p) - np.exp(log_q), 0.0)
    discrete = excess.sum() / np.exp(logsumexp(log_p))
    assert discrete == pytest.approx(gaussian_delta(epsilon, shift / scale), rel=1e-6)


def test_labels_become_whole_steps_within_the_range():
    step = 4.0 / LABEL_STEPS
    labels = np.array([-1.0, 3.0, -50.0, 1e300, 1.0])
    steps = labels_to_steps(labels, bounds=BOUNDS, step=step)
    assert steps.tolist() == [0, LABEL_STEPS, 0, LABEL_STEPS, LABEL_STEPS // 2]


@pytest.mark.parametrize("bounds", [(0.0, 0.1), (-1e-7, 3e300), (1e15, 1e15 + 1), (-0.3, 0.7)])
def test_one_label_moves_a_sum_by_the_sensitivity_at_most(bounds):
    """Brute force over labels at and beyond the edges: the integers the noise is added to."""
    event = calibrate_bag_means(bounds, epsilon=1.0, delta=1e-5)
    low, high = bounds
    edges = np.array([low, high, np.nextafter(low, high), np.nextafter(high, low), -1e308, 1e308])
    steps = labels_to_steps(edges, bounds=bounds, step=event.grid_step)
    limit = round(event.sensitivity / event.grid_step)
    assert limit == LABEL_STEPS
    assert steps.max() - steps.min() == limit


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_calibration_delivers_what_is_asked_with_nothing_to_spare(epsilon, delta):
    event = calibrate_bag_means(BOUNDS, epsilon=epsilon, delta=delta)
    mu = event.sensitivity / event.noise_scale
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * 1.001) > delta
    assert event.noise_scale / event.grid_step == pytest.approx(
        round(event.noise_scale / event.grid_step)
    )


def test_bounds_too_narrow_for_a_grid_are_refused():
    with pytest.raises(BoundsError, match="too narrow"):
        calibrate_bag_means((0.0, 5e-324), epsilon=1.0, delta=1e-5)


def test_means_carry_noise_by_the_size_of_their_own_bag():
    """Bags of 1 and of 4: the noise of a mean is the common scale divided by the size."""
    index = np.repeat(np.arange(40_000), [1, 4] * 20_000)
    bags = Bags(index)
    labels = np.full(index.size, 1.0)
    event = GaussianBagMeans(sensitivity=4.0, noise_scale=2.0, grid_step=4.0 / LABEL_STEPS)
    noise = private_bag_means(labels, bags, bounds=BOUNDS, event=event) - 1.0
    assert stats.sd_is(noise[bags.sizes == 1], 2.0)
    assert stats.sd_is(noise[bags.sizes == 4], 0.5)
    assert not stats.sd_is(noise[bags.sizes == 4], 0.55)
    assert event.noise_sd(4) == 0.5


def test_published_values_lie_on_the_public_grid():
    bags = Bags(np.repeat(np.arange(500), 2))
    labels = np.random.default_rng(0).uniform(-1, 3, size=1000)
    event = calibrate_bag_means(BOUNDS, epsilon=1.0, delta=1e-5)
    sums = (private_bag_means(labels, bags, bounds=BOUNDS, event=event) - BOUNDS[0]) * 2
    steps = sums / event.grid_step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)
