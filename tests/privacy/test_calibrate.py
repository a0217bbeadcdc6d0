"""What is delivered is never more than what was asked for."""

import math
from fractions import Fraction
from typing import Any

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
from bagwise.privacy.accounting import delivered, gaussian_part
from bagwise.privacy.calibrate import ExactCalibration, row_budget
from bagwise.privacy.curves import (
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    PickCurve,
    delta_at,
)
from bagwise.privacy.grid import LABEL_STEPS, LOSS_STEPS
from bagwise.privacy.laws import Staircase
from bagwise.privacy.laws.law import Move
from bagwise.privacy.mechanisms import Mechanism, noisy_choice
from bagwise.privacy.queries import BagPicks
from tests.privacy.events import (
    bag_means,
    bag_picks,
    class_picks,
    class_shares,
    every_label,
    laplace,
    mean_loss,
    model,
    with_noise,
)

BOUNDS = (-2.0, 6.0)


def random_rule(rng):
    epsilon = float(10 ** rng.uniform(-1.5, 1))
    delta = float(10 ** rng.uniform(-10, -6)) if rng.integers(4) else 0.0
    kinds: list[Any] = ["auto", "laplace", *(["gaussian"] if delta else [])]
    return ExactCalibration(epsilon, delta, BOUNDS, noise=kinds[rng.integers(len(kinds))])


def random_request(rng):
    """Return a rule, and all that it sets for one release of a random kind."""
    rule, share = random_rule(rng), float(rng.uniform(0.01, 0.95))
    rows, scored = int(rng.integers(1, 4)), rng.integers(3)
    picked = bool(rng.integers(2))
    own, units = (rule.per_row(rows), 1) if picked else (rule, rows)
    spent: list[Mechanism] = []
    if scored == 1:
        spent = [every_label(own, share=share, square=units)]
    if scored == 2:
        steps = int(rng.integers(LABEL_STEPS, 2 * LABEL_STEPS)) * units
        laplace = "gaussian" not in own.score_noises or bool(rng.integers(2))
        laplace = laplace and "laplace" in own.score_noises
        spent = [model(own, "laplace" if laplace else "gaussian", share=share, reach=steps)]
    event: Mechanism
    if picked:
        sizes = rng.integers(2, 300, size=3).tolist()
        smallest = min(sizes) if spent else None
        event = bag_picks(rule, sizes, rows=rows, spent=spent, smallest=smallest)
    else:
        numbers = rows if spent or rng.integers(2) else 1
        square = rows**2 if numbers == 1 or spent else rows
        event = bag_means(rule, square=square, rows=rows, touched=numbers, spent=spent)
    return rule, spent, event, rows if picked else 1


def check_random_requests(seeds):
    kinds = set()
    for seed in seeds:
        rule, spent, event, rows = random_request(np.random.default_rng([17, seed]))
        kinds.add((event.kind, *(one.kind for one in spent)))
        found = total_delta([*spent, event], rule.epsilon)
        assert found <= rule.delta
        epsilon, delta = delivered([*spent, event], rule.epsilon, rule.delta)
        assert epsilon <= rule.epsilon
        assert delta in (0.0, rule.delta)
        assert total_delta([*spent, event], epsilon) <= delta
        if rows == 1 and not (spent and event.pure_epsilon is None and delta):
            # And hardly less, or noise is wasted: none of the budget is left.
            assert total_delta([*spent, event], 0.98 * rule.epsilon) > delta
    return kinds


def test_delivered_is_at_most_asked_for_in_random_requests():
    assert len(check_random_requests(range(120))) > 15


@pytest.mark.slow
def test_delivered_is_at_most_asked_for_in_a_thousand_random_requests():
    assert len(check_random_requests(range(1000, 2000))) >= 20


def on_the_other_side(mechanism):
    """The same noise with one part in a hundred less of it."""
    return with_noise(mechanism, 0.99)


def test_the_twin_one_part_in_a_hundred_less_noise_breaks_the_promise():
    broken = 0
    for seed in range(40):
        rule, spent, event, rows = random_request(np.random.default_rng([17, seed]))
        if rows == 1 and not (spent and event.pure_epsilon is None):
            assert total_delta([*spent, on_the_other_side(event)], rule.epsilon) > rule.delta
            broken += 1
    assert broken > 10


@pytest.mark.parametrize("delta", [1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_auto_is_the_least_of_all_that_keep_the_promise(epsilon, delta):
    """Variances by textbook formulas: 2 (r/eps)^2 for Laplace, r/mu^2 for Gaussian noise."""
    for rows, numbers, square in ((1, 1, 1), (2, 2, 2), (5, 5, 5), (12, 12, 12), (40, 40, 40)):
        event = bag_means(
            ExactCalibration(epsilon, delta, (0.0, 1.0)), square=square, rows=rows, touched=numbers
        )
        laplace = math.sqrt(2) * rows / epsilon
        gaussian = math.sqrt(square) / gaussian_mu(epsilon, delta)
        b = math.exp(-epsilon / rows)
        root = ((b * (1 + b) / 2) ** (2 / 3) + b) ** 0.5 / (1 - b)  # Geng and Viswanath
        least = min(laplace, gaussian, root)
        assert event.number_sd == pytest.approx(least, rel=0.0102)  # 2 % of the variance, at most
        if least == gaussian and gaussian < 0.98 * laplace:
            assert event.law.kind == "gaussian"


@pytest.mark.parametrize(
    ("epsilon", "saved"), [(0.5, 0.0), (1.3, 0.0), (2.0, 0.041), (4.0, 0.154), (8.0, 0.480)]
)
def test_two_counts_that_move_divide_epsilon_where_a_staircase_saves_enough(epsilon, saved):
    """Each of two counts has a staircase of epsilon / 2; Laplace noise has scale 2 / epsilon."""
    event = class_shares(ExactCalibration(epsilon, 0.0, (0.0, 1.0)))
    laplace = math.sqrt(2) * 2 / epsilon
    assert 1 - event.number_sd**2 / laplace**2 == pytest.approx(saved, abs=1e-3)
    assert event.law.kind == ("staircase" if saved else "laplace")
    assert event.suits_classes(3)
    assert not event.suits_classes(None)
    assert event.unit_rows >= 1
    assert event.unit_rows < 2
    assert total_delta([event], epsilon) == 0.0


@pytest.mark.parametrize("moves", [(7, 7), (7, 0), (3, 7), (14, 0), (9, 0), (5, 5)])
def test_two_moves_of_a_staircase_cost_two_steps_wherever_they_are(moves):
    """Brute force: two labels that move by at most 7 steps each, in one bag or in two."""
    law = Staircase(7, 6, 3)
    support = np.arange(-400, 401)
    periods, rest = np.divmod(np.abs(support[:, None] - np.array([0, *moves])), law.shift)
    logs = -np.where(rest < law.inner, periods, periods + 1) * law.shift / law.scale
    loss = [float(np.abs(logs[:, 0] - logs[:, j]).max()) for j in (1, 2)]
    stated = float(law.pure_epsilon(Move(7, 2)))
    assert stated == float(law.pure_epsilon(Move(14)))  # the same two in one bag
    assert sum(loss) <= stated + 1e-12
    if moves in ((7, 7), (14, 0)):
        assert sum(loss) == pytest.approx(stated)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
def test_laplace_means_after_gaussian_scores_agree_with_the_integral_over_scores(share):
    """P2 with L in the place of the second G, by plain quadrature on a grid of its own."""
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    scores = every_label(rule.with_noise("gaussian"), share=share)
    means = bag_means(rule.with_noise("laplace"), spent=[scores])
    assert means.kind == "laplace-bag-means"
    mu = gaussian_part([scores])
    u = np.linspace(-12, 12, 400_001)
    threshold = 1.0 - mu * u - mu**2 / 2
    curve = LaplaceCurve(LABEL_STEPS, round(means.law.sd / math.sqrt(2)))(threshold)
    density = np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
    integral = float(np.trapezoid(density * curve, u))
    assert integral <= 1e-6
    assert integral == pytest.approx(1e-6, rel=1e-3)  # nothing to spare
    assert total_delta([scores, means], 1.0) == pytest.approx(integral, rel=1e-3)


def test_a_kind_of_noise_can_be_insisted_on_where_it_is_possible():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS)
    for noise in ("laplace", "staircase", "gaussian"):
        assert bag_means(rule.with_noise(noise)).law.kind == noise
    for noise in ("laplace", "gaussian"):
        assert bag_picks(rule.with_noise(noise), [20]).law.kind == noise
    assert (
        bag_means(rule.with_noise("staircase"), square=2, rows=2, touched=2).law.kind == "staircase"
    )
    with pytest.raises(BudgetError, match="not possible"):
        bag_picks(rule.with_noise("staircase"), [20])
    with pytest.raises(BudgetError, match="positive delta"):
        ExactCalibration(1.0, 0.0, BOUNDS, noise="gaussian")
    with pytest.raises(BudgetError, match="not possible for these class picks"):
        class_picks(rule.with_noise("laplace"), classes=3, sizes=[20])
    with pytest.raises(BudgetError, match="known are auto, laplace, staircase, gaussian"):
        ExactCalibration(1.0, 0.0, BOUNDS, noise="laplase")


def test_a_pick_with_laplace_noise_has_the_scale_of_its_formula():
    """sd 0.317 and 0.488 ranges at epsilon 1 for bags of 50 and of 10; Gaussian 0.79 and 1.26."""
    event = bag_picks(ExactCalibration(1.0, 1e-5, (0.0, 1.0)), [10, 50])
    assert event.kind == "laplace-bag-picks"
    for size, law in zip(event.query.bag_sizes, event.laws, strict=True):
        inner = math.log(1 + size * (math.e - 1))
        assert law.sd * event.grid_step == pytest.approx(math.sqrt(2) / inner, rel=1e-4)
    assert event.noise_sd(np.array([50, 10])) == pytest.approx([0.3167, 0.4876], abs=1e-3)
    gaussian = bag_picks(ExactCalibration(1.0, 1e-5, (0.0, 1.0), noise="gaussian"), sizes=[10, 50])
    assert gaussian.noise_sd(np.array([50, 10])) == pytest.approx([0.79, 1.26], abs=0.01)


def test_what_is_delivered_is_rounded_up_and_never_above_what_was_asked():
    for epsilon in (0.1, 0.3, 1 / 3, 0.12345, 1.0, 7.77):
        event = bag_means(ExactCalibration(epsilon, 1e-6, BOUNDS))
        found = delivered([event], epsilon, 1e-6)
        assert found == (epsilon, 0.0)  # noise on whole steps costs a millionth less
        assert delivered([event], 2 * epsilon, 1e-6)[0] < 1.01 * epsilon
        assert total_delta([event], delivered([event], 2 * epsilon, 1e-6)[0]) == 0.0
    third = laplace(1, 3)  # costs a third, which no double is
    value, _ = delivered([third], 0.35, 0.0)
    assert value == 0.334
    assert delivered([laplace(3, 10)], 0.35, 0.0)[0] >= Fraction(3, 10)
    gaussian = bag_means(ExactCalibration(0.5, 1e-6, BOUNDS, noise="gaussian"))
    assert delivered([gaussian], 0.5, 1e-6) == (0.5, 1e-6)
    value, delta = delivered([gaussian], 1.0, 1e-6)
    assert 0.499 <= value <= 0.502
    assert delta == 1e-6


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.5])
def test_laplace_is_pure(epsilon):
    # By default there would be staircase noise where epsilon is large.
    event = bag_means(ExactCalibration(epsilon, 0.0, BOUNDS, noise="laplace"))
    assert event.kind == "laplace-bag-means"
    assert total_delta([event], epsilon) == 0.0
    assert total_epsilon([event], 0.0) <= epsilon
    assert total_epsilon([event], 0.0) > epsilon * 0.999


def test_a_mean_loss_delivers_at_most_what_was_asked_for_in_a_thousand_random_requests():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        epsilon = float(10 ** rng.uniform(-2, 1.3))
        spent = float(rng.uniform(0.05, 0.9)) * epsilon
        prior = (noisy_choice("bounds", spent),) if rng.integers(2) else ()
        largest, steps = float(10 ** rng.uniform(-6, 6)), int(rng.integers(2**22, 2**28))
        rule = ExactCalibration(epsilon, 0.0, BOUNDS, prior)
        event = mean_loss(rule, reach=steps, step=largest / LOSS_STEPS)
        assert event.kind == "laplace-mean-loss"
        assert total_delta([*prior, event], epsilon) == 0.0
        found = total_epsilon([*prior, event], 0.0)
        assert epsilon * 0.999 < found <= epsilon
        # As fractions, which do not round: and one step less would be too little.
        scale = round(event.law.sd / math.sqrt(2))
        left = Fraction(epsilon) - sum(Fraction(choice.epsilon) for choice in prior)
        assert Fraction(steps, scale) <= left < Fraction(steps, scale - 1)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 0.7)])
def test_round_numbers_are_no_trouble_for_laplace_noise(bounds):
    """Quotients such as 2**18 / (0.3 - 0.1) are nearly whole, and doubles end on either side."""
    for hundredths in range(2, 120):
        for spent in range(hundredths):
            prior = (noisy_choice("bounds", spent / 100),) if spent else ()
            rule = ExactCalibration(hundredths / 100, 0.0, bounds, prior)
            for event in (bag_means(rule), mean_loss(rule, reach=2**24, step=0.1)):
                assert total_delta([*prior, event], hundredths / 100) == 0.0


def test_each_size_of_bag_gets_its_own_noise():
    event = bag_picks(
        ExactCalibration(1.0, 1e-6, BOUNDS, noise="gaussian"), sizes=[50, 10, 10, 200]
    )
    assert event.query.bag_sizes == (10, 50, 200)
    scales = [law.sd for law in event.laws]
    assert scales == sorted(scales, reverse=True)
    # Using the noise of the largest bag for all would break the promise, and is noticed.
    wrong = Mechanism(event.query, event.laws[-1:] * 3)
    assert total_delta([wrong], 1.0) > 1e-6


def test_scores_that_leave_nothing_are_refused():
    for noise in ("auto", "laplace", "gaussian"):
        rule = ExactCalibration(1.0, 1e-6, BOUNDS, noise=noise)
        for other in ("laplace", "gaussian"):
            more = every_label(ExactCalibration(2.0, 1e-6, BOUNDS, noise=other), share=1.0)
            with pytest.raises(BudgetError, match="whole budget"):
                bag_means(rule, spent=[more])
            with pytest.raises(BudgetError, match=r"whole budget|not possible"):
                bag_picks(rule, [20], spent=[more], smallest=20)
    with pytest.raises(BudgetError, match="too large for picked labels"):
        bag_picks(ExactCalibration(1.0, 1e-3, BOUNDS, noise="gaussian"), sizes=[50])
    with pytest.raises(BudgetError, match="more noise than can be drawn"):
        bag_means(ExactCalibration(1e-8, 1e-9, BOUNDS))
    with pytest.raises(BudgetError, match="more noise than can be drawn"):
        mean_loss(ExactCalibration(1e-6, 0.0, BOUNDS), reach=2**24, step=1.0)


def test_sensitivities_are_rounded_up_in_integers():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS, noise="gaussian")
    for square in (1, 2, 3, 4, 9, 1_000_003):
        event = bag_means(rule, square=square, rows=square)
        steps = round(event.sensitivity / event.grid_step)
        assert (steps - 1) ** 2 < LABEL_STEPS**2 * square <= steps**2


def test_groups():
    rule = ExactCalibration(1.0, 1e-6, BOUNDS, noise="gaussian")
    gaussian = bag_means(rule)
    assert group_epsilon((gaussian,), 1e-6, 1) == pytest.approx(total_epsilon([gaussian], 1e-6))
    twice = gaussian_epsilon(1e-6, 2 * gaussian_mu(1.0, 1e-6))
    assert group_epsilon((gaussian,), 1e-6, 2) == pytest.approx(twice, rel=1e-5)
    laplace = bag_means(ExactCalibration(0.5, 0.0, BOUNDS))
    assert group_epsilon((laplace,), 0.0, 4) == pytest.approx(2.0, rel=1e-4)
    mean = mean_loss(ExactCalibration(0.5, 0.0, BOUNDS), reach=2**24, step=1.0)
    assert group_epsilon((mean,), 0.0, 4) == pytest.approx(2.0, rel=1e-6)
    picks = bag_picks(rule, [20])
    assert group_epsilon((picks,), 1e-6, 5) > 5 * 0.9
    epsilon, delta = row_budget(1.0, 1e-6, 4)
    assert epsilon == 0.25
    assert delta * math.expm1(1.0) / math.expm1(0.25) == pytest.approx(1e-6)


def test_sizes_that_depend_on_scores_share_the_noise_of_the_smallest():
    """The worst size may differ from score to score; integrate the worst at every score (P2)."""
    rule, sizes = ExactCalibration(1.0, 1e-6, BOUNDS, noise="gaussian"), range(5, 10)
    spent = [every_label(rule, share=0.5)]
    mu_scores = gaussian_part(spent)

    def worst(event):
        u = np.linspace(-14, 14, 20_001)
        threshold = 1.0 - mu_scores * u - mu_scores**2 / 2
        curves = [
            [pick_delta(t, LABEL_STEPS / law.sd, size) for t in threshold[::10]]
            for size, law in zip(event.query.bag_sizes, event.laws, strict=True)
        ]
        density = np.exp(-(u[::10] ** 2) / 2) / math.sqrt(2 * math.pi)
        return float(np.trapezoid(density * np.max(curves, axis=0), u[::10]))

    event = bag_picks(rule, [7, 9], spent=spent, smallest=5)
    assert event.query.bag_sizes == (5, 7, 9)
    assert len(set(event.laws)) == 1
    assert worst(event) <= 1e-6 * (1 + 1e-4)
    # The twin: noise by each size's own curve fits every size alone, and breaks the promise.
    own = tuple(bag_picks(rule, [size], spent=spent).law for size in sizes)
    separate = Mechanism(BagPicks(tuple(sizes), 1, event.grid_step), own)
    assert worst(separate) > 1.1e-6
    assert total_delta([*spent, separate], 1.0) > 1e-6


def test_groups_below_zero_are_bounded_by_the_exchanged_data_sets():
    curve = PickCurve(GaussianCurve(1.0), 10)
    for rows in (1, 2, 5):
        for epsilon in (-0.5, -0.1):
            assert delta_at(GroupCurve(curve, rows), epsilon) >= -math.expm1(epsilon)
    events = [
        noisy_choice("bounds", 0.5),
        bag_picks(ExactCalibration(1.0, 1e-6, BOUNDS), [20], rows=2),
    ]
    assert total_delta(events, 0.1) >= total_delta([noisy_choice("bounds", 0.5)], 0.1)
