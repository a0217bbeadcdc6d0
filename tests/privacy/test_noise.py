import numpy as np
import pytest
from scipy.special import logsumexp

from bagwise.bagging.bags import Bags
from bagwise.errors import BoundsError
from bagwise.privacy import gaussian_delta
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import LABEL_STEPS, labels_to_steps
from bagwise.privacy.laws import Gaussian
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels, noisy_labels
from bagwise.privacy.queries import BagMeans, BagPicks, Labels
from bagwise.rng import SecureNoise
from tests import stats
from tests.privacy.events import bag_means

STEP = 4.0 / LABEL_STEPS

BOUNDS = (-1.0, 3.0)


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
    event = bag_means(ExactCalibration(1.0, 1e-5, bounds))
    low, high = bounds
    edges = np.array([low, high, np.nextafter(low, high), np.nextafter(high, low), -1e308, 1e308])
    steps = labels_to_steps(edges, bounds=bounds, step=event.grid_step)
    limit = round(event.sensitivity / event.grid_step)
    assert limit == LABEL_STEPS
    assert steps.max() - steps.min() == limit


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_calibration_delivers_what_is_asked_with_nothing_to_spare(epsilon, delta):
    event = bag_means(ExactCalibration(epsilon, delta, BOUNDS, noise="gaussian"))
    mu = LABEL_STEPS / event.law.sd
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * 1.001) > delta
    assert event.law.sd == round(event.law.sd)


def test_bounds_too_narrow_for_a_grid_are_refused():
    with pytest.raises(BoundsError, match="too narrow"):
        ExactCalibration(1.0, 1e-5, (0.0, 5e-324))


def test_published_values_lie_on_the_public_grid():
    bags = Bags(np.repeat(np.arange(500), 2))
    labels = np.random.default_rng(0).uniform(-1, 3, size=1000)
    event = bag_means(ExactCalibration(1.0, 1e-5, BOUNDS))
    sums = (
        noisy_bag_labels(labels, bags, bounds=BOUNDS, event=event, source=SecureNoise()) - BOUNDS[0]
    ) * 2
    steps = sums / event.grid_step
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)


def test_noisy_labels_have_noise_of_their_own():
    event = Mechanism(Labels(STEP), (Gaussian(LABEL_STEPS // 2),))
    noise = (
        noisy_labels(np.full(40_000, 9.0), bounds=BOUNDS, event=event, source=SecureNoise()) - 3.0
    )
    assert stats.sd_is(noise, 2.0)
    assert not stats.sd_is(noise, 2.1)
    assert np.unique(noise).size > 30_000


@pytest.mark.parametrize(
    ("larger", "event"),
    [
        (4, Mechanism(BagMeans(STEP), (Gaussian(LABEL_STEPS // 2),))),
        (
            3,
            Mechanism(
                BagPicks((1, 3), 1, STEP), (Gaussian(LABEL_STEPS // 2), Gaussian(LABEL_STEPS // 8))
            ),
        ),
    ],
    ids=["means", "picks"],
)
def test_labels_carry_noise_by_the_size_of_their_own_bag(larger, event):
    """The noise of a mean is the common scale divided by the size; picks have one for each size."""
    bags = Bags(np.repeat(np.arange(40_000), [1, larger] * 20_000))
    labels = np.full(bags.n_rows, 1.0)
    noise = noisy_bag_labels(labels, bags, bounds=BOUNDS, event=event, source=SecureNoise()) - 1.0
    assert stats.sd_is(noise[bags.sizes == 1], 2.0)
    assert stats.sd_is(noise[bags.sizes == larger], 0.5)
    assert not stats.sd_is(noise[bags.sizes == larger], 0.55)
