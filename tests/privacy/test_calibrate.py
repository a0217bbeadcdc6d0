"""What is delivered is never more than what was asked for."""

import math
from fractions import Fraction

import numpy as np
import pytest

from bagwise.errors import BudgetError
from bagwise.privacy import (
    gaussian_epsilon,
    gaussian_mu,
    group_epsilon,
    pick_delta,
    total_delta,
    total_epsilon,
)
from bagwise.privacy.accounting import gaussian_part, group_delta
from bagwise.privacy.calibrate import ExactCalibration, row_budget
from bagwise.privacy.grid import LABEL_STEPS, LOSS_STEPS
from bagwise.privacy.mechanisms import LaplaceBagMeans, LaplaceMeanLoss, NoisyChoice, PickedLabels

BOUNDS = (-2.0, 6.0)


def test_delivered_is_at_most_asked_for_a_thousand_random_requests():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        epsilon, delta = float(10 ** rng.uniform(-1.5, 1)), float(10 ** rng.uniform(-10, -6))
        rule = ExactCalibration(epsilon, delta, BOUNDS)
        share, rows = float(rng.uniform(0.01, 0.95)), int(rng.integers(1, 4))
        scored = bool(rng.integers(2))
        if rng.integers(2):
            spent = [rule.labels(share=share, square=rows)] if scored else []
            event = rule.bag_means(square=rows**2, rows=rows, spent=spent)
        else:
            sizes = rng.integers(2, 300, size=3)
            spent = [rule.per_row(rows).labels(share=share)] if scored else []
            event = rule.picks(sizes=sizes.tolist(), rows=rows, spent=spent)
        found = total_delta([*spent, event], epsilon)
        assert found <= delta
        if rows == 1:
            assert found > delta * 0.9  # and hardly less, or noise is wasted


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.5])
def test_laplace_is_pure(epsilon):
    # Two labels in two bags: from epsilon 0.7 on one of them would get staircase noise.
    event = ExactCalibration(epsilon, 0.0, BOUNDS).bag_means(square=2, rows=2, numbers=2)
    assert isinstance(event, LaplaceBagMeans)
    assert total_delta([event], epsilon) == 0.0
    assert total_epsilon([event], 0.0) <= epsilon
    assert total_epsilon([event], 0.0) > epsilon * 0.999


def test_a_mean_loss_delivers_at_most_what_was_asked_for_in_a_thousand_random_requests():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        epsilon = float(10 ** rng.uniform(-2, 1.3))
        spent = float(rng.uniform(0.05, 0.9)) * epsilon
        prior = (NoisyChoice(spent),) if rng.integers(2) else ()
        largest, steps = float(10 ** rng.uniform(-6, 6)), int(rng.integers(2**22, 2**28))
        rule = ExactCalibration(epsilon, 0.0, BOUNDS, prior)
        event = rule.mean_loss(sensitivity_steps=steps, step=largest / LOSS_STEPS)
        assert isinstance(event, LaplaceMeanLoss)
        assert total_delta([*prior, event], epsilon) == 0.0
        found = total_epsilon([*prior, event], 0.0)
        assert epsilon * 0.999 < found <= epsilon
        # As fractions, which do not round: and one step less would be too little.
        scale = round(event.noise_scale / event.grid_step)
        left = Fraction(epsilon) - sum(Fraction(choice.epsilon) for choice in prior)
        assert Fraction(steps, scale) <= left < Fraction(steps, scale - 1)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 0.7)])
def test_round_numbers_are_no_trouble_for_laplace_noise(bounds):
    """Quotients such as 2**18 / (0.3 - 0.1) are nearly whole, and doubles end on either side."""
    for hundredths in range(2, 120):
        for spent in range(hundredths):
            prior = (NoisyChoice(spent / 100),) if spent else ()
            rule = ExactCalibration(hundredths / 100, 0.0, bounds, prior)
            for event in (rule.bag_means(), rule.mean_loss(sensitivity_steps=2**24, step=0.1)):
                assert total_delta([*prior, event], hundredths / 100) == 0.0


def test_each_size_of_bag_gets_its_own_noise():
    event = ExactCalibration(1.0, 1e-6, BOUNDS).picks(sizes=[50, 10, 10, 200])
    assert [size for size, _ in event.scales] == [10, 50, 200]
    scales = [scale for _, scale in event.scales]
    assert scales == sorted(scales, reverse=True)
    # Using the noise of the largest bag for all would break the promise, and is noticed.
    wrong = PickedLabels(
        event.sensitivity, tuple((s, scales[-1]) for s, _ in event.scales), event.grid_step
    )
    assert total_delta([wrong], 1.0) > 1e-6


def test_scores_that_leave_nothing_are_refused():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    with pytest.raises(BudgetError, match="whole budget"):
        rule.bag_means(spent=[ExactCalibration(2.0, 1e-6, BOUNDS).labels(share=1.0)])
    with pytest.raises(BudgetError, match="too large for picked labels"):
        ExactCalibration(1.0, 1e-3, BOUNDS).picks(sizes=[50])
    with pytest.raises(BudgetError, match="more noise than can be drawn"):
        ExactCalibration(1e-6, 1e-9, BOUNDS).bag_means()
    with pytest.raises(BudgetError, match="more noise than can be drawn"):
        ExactCalibration(1e-6, 0.0, BOUNDS).mean_loss(sensitivity_steps=2**24, step=1.0)


def test_sensitivities_are_rounded_up_in_integers():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    for square in (1, 2, 3, 4, 9, 1_000_003):
        event = rule.bag_means(square=square)
        steps = round(event.sensitivity / event.grid_step)
        assert (steps - 1) ** 2 < LABEL_STEPS**2 * square <= steps**2


def test_groups():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    gaussian = rule.bag_means()
    assert group_epsilon([gaussian], 1e-6, 1) == pytest.approx(total_epsilon([gaussian], 1e-6))
    twice = gaussian_epsilon(1e-6, 2 * gaussian_mu(1.0, 1e-6))
    assert group_epsilon([gaussian], 1e-6, 2) == pytest.approx(twice, rel=1e-5)
    laplace = ExactCalibration(0.5, 0.0, BOUNDS).bag_means()
    assert group_epsilon([laplace], 0.0, 4) == pytest.approx(2.0, rel=1e-4)
    mean = ExactCalibration(0.5, 0.0, BOUNDS).mean_loss(sensitivity_steps=2**24, step=1.0)
    assert group_epsilon([mean], 0.0, 4) == pytest.approx(2.0, rel=1e-6)
    picks = rule.picks(sizes=[20])
    assert group_epsilon([picks], 1e-6, 5) > 5 * 0.9
    epsilon, delta = row_budget(1.0, 1e-6, 4)
    assert epsilon == 0.25
    assert delta * math.expm1(1.0) / math.expm1(0.25) == pytest.approx(1e-6)


def test_sizes_that_depend_on_scores_share_the_noise_of_the_smallest():
    """The worst size may differ from score to score; integrate the worst at every score (P2)."""
    rule, sizes = ExactCalibration(1.0, 1e-6, BOUNDS), range(5, 10)
    spent = [rule.labels(share=0.5)]
    mu_scores = gaussian_part(spent)

    def worst(event):
        u = np.linspace(-14, 14, 20_001)
        threshold = 1.0 - mu_scores * u - mu_scores**2 / 2
        curves = [
            [pick_delta(t, event.sensitivity / scale, size) for t in threshold[::10]]
            for size, scale in event.scales
        ]
        density = np.exp(-(u[::10] ** 2) / 2) / math.sqrt(2 * math.pi)
        return float(np.trapezoid(density * np.max(curves, axis=0), u[::10]))

    event = rule.picks(sizes=[7, 9], spent=spent, smallest=5)
    assert [size for size, _ in event.scales] == [5, 7, 9]
    assert len({scale for _, scale in event.scales}) == 1
    assert worst(event) <= 1e-6 * (1 + 1e-4)
    # The twin: noise by each size's own curve fits every size alone, and breaks the promise.
    own = tuple((size, rule.picks(sizes=[size], spent=spent).scales[0][1]) for size in sizes)
    separate = PickedLabels(event.sensitivity, own, event.grid_step)
    assert worst(separate) > 1.1e-6
    assert total_delta([*spent, separate], 1.0) > 1e-6


def test_groups_below_zero_are_bounded_by_the_exchanged_data_sets():
    def curve(epsilon):
        return pick_delta(epsilon, 1.0, 10)

    for rows in (1, 2, 5):
        for epsilon in (-0.5, -0.1):
            assert group_delta(curve, epsilon, rows) >= -math.expm1(epsilon)
    events = [NoisyChoice(0.5), ExactCalibration(1.0, 1e-6, BOUNDS).picks(sizes=[20], rows=2)]
    assert total_delta(events, 0.1) >= total_delta([NoisyChoice(0.5)], 0.1)
