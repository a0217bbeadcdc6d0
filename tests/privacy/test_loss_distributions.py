"""Composition by numbers: against closed forms, brute force and Google's library, never below."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from bagwise.errors import BudgetError
from bagwise.privacy import loss_distributions
from bagwise.privacy.curves import (
    GaussianCurve,
    GroupCurve,
    LaplaceCurve,
    PickCurve,
    StepCurve,
    WorstCurve,
    composed_delta,
    delta_at,
    gaussian_delta,
    gaussian_epsilon,
    pick_delta,
    pure_curve,
)
from bagwise.privacy.laws import Move, RandomisedResponse
from bagwise.privacy.loss_distributions import (
    LossDistribution,
    TiltedSum,
    composed_delta_of,
    composed_epsilon_of,
)


def kept_class(classes, keep):
    return RandomisedResponse(classes, keep).curve(Move())


MUS = st.floats(0.02, 3)
CURVES = st.one_of(
    MUS.map(GaussianCurve),
    st.builds(LaplaceCurve, st.integers(1, 20), st.integers(8, 100)),
    st.builds(PickCurve, MUS.map(GaussianCurve), st.integers(1, 60)),
    st.floats(0.02, 1).map(pure_curve),
    st.builds(
        PickCurve,
        st.builds(kept_class, st.integers(2, 5), st.floats(0.55, 0.99)),
        st.integers(1, 20),
    ),
)


def unmerged(mu):
    """A Gaussian release that is not recognised as one, so that it has to be convolved."""
    return PickCurve(GaussianCurve(mu), 1)


def value(curve, epsilon):
    return float(curve(np.array([epsilon]))[0])


def atoms_delta(pairs, epsilon):
    """Sum over all outcomes of independent releases, each a list of (p, q)."""
    total = 0.0
    for outcome in itertools.product(*pairs):
        p, q = (math.prod(chances) for chances in zip(*outcome, strict=True))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


def coin(epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    return [(truth, 1 - truth), (1 - truth, truth)]


def laplace_atoms(shift, scale):
    y = np.arange(-45 * scale, 45 * scale + shift + 1)
    norm = 1 / math.tanh(1 / (2 * scale))
    here, there = np.exp(-np.abs(y) / scale) / norm, np.exp(-np.abs(y - shift) / scale) / norm
    return list(zip(here.tolist(), there.tolist(), strict=True))


# The curves


@given(st.floats(0, 5), MUS, st.integers(1, 100))
def test_curves_are_those_of_the_closed_forms(epsilon, mu, size):
    assume(epsilon == 0 or epsilon > 1e-9)
    picked = PickCurve(GaussianCurve(mu), size)
    assert value(picked, epsilon) == pytest.approx(pick_delta(epsilon, mu, size), rel=1e-12)
    rows = 1 + size % 4
    powers = math.expm1(epsilon) / math.expm1(epsilon / rows) if epsilon else rows
    expected = min(1.0, powers * pick_delta(epsilon / rows, mu, size))
    assert value(GroupCurve(picked, rows), epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("classes", "keep"), [(2, 0.8), (4, 0.6), (3, 0.2)])
def test_a_kept_class_by_brute_force_and_picked_from_any_bag(classes, keep):
    other = (1 - keep) / (classes - 1)
    rows = np.where(np.eye(classes, dtype=bool), keep, other)
    curve, size = kept_class(classes, keep), 4
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        excess = np.maximum(0, rows[0] - math.exp(epsilon) * rows[1]).sum()
        assert value(curve, epsilon) == pytest.approx(excess, abs=1e-15)
        worst = 0.0
        for others in itertools.product(range(classes), repeat=size - 1):
            rest = rows[list(others)].sum(axis=0)
            p, q = (rest + rows[0]) / size, (rest + rows[1]) / size
            worst = max(worst, np.maximum(0, p - math.exp(epsilon) * q).sum())
        assert value(PickCurve(curve, size), epsilon) == pytest.approx(worst, abs=1e-15)


def test_a_class_that_is_always_kept_is_refused():
    with pytest.raises(BudgetError, match="no finite loss"):
        composed_delta_of([StepCurve(1.0, math.inf), pure_curve(0.1)], 1.0)


@settings(max_examples=60)
@given(st.floats(1e-3, 30), st.floats(0, 13))
def test_the_gaussian_curve_is_as_exact_as_it_must_be(mu, sds):
    """To 2^-50 (64 + epsilon) of the chance of a larger loss, by arithmetic of 60 digits."""
    from mpmath import mp

    epsilon = mu * sds + mu**2 / 2
    with mp.workdps(60):
        mu_, epsilon_ = mp.mpf(mu), mp.mpf(epsilon)
        larger = mp.ncdf(mu_ / 2 - epsilon_ / mu_)
        exact = larger - mp.exp(epsilon_) * mp.ncdf(-mu_ / 2 - epsilon_ / mu_)
        error = float(abs(exact - value(GaussianCurve(mu), epsilon)) / larger)
    assert error <= 2.0**-50 * (64 + epsilon)


# One distribution


@settings(max_examples=50)
@given(CURVES, st.sampled_from([0.3, 0.1, 0.02]), st.floats(-3, 6))
def test_a_distribution_is_nowhere_below_its_curve_and_coarser_ones_are_above(curve, step, epsilon):
    fine, coarse = (LossDistribution.from_curve(curve, step=width) for width in (step, 2 * step))
    size = value(curve, abs(epsilon))
    truth = size if epsilon >= 0 else -math.expm1(epsilon) + math.exp(epsilon) * size
    assert truth <= fine.delta(epsilon)
    assert fine.delta(epsilon) <= coarse.delta(epsilon) * (1 + 1e-9) + 1e-39
    on_grid = step * round(abs(epsilon) / step)
    assert fine.delta(on_grid) == pytest.approx(value(curve, on_grid), rel=1e-9, abs=1e-30)


def test_a_curve_that_is_not_convex_is_still_covered():
    def bumpy(epsilon):
        return np.exp(-epsilon) * (0.4 + 0.1 * np.cos(9 * epsilon)) * (epsilon < 4)

    distribution = LossDistribution.from_curve(bumpy, step=0.05)
    assert np.all(distribution.masses >= 0)
    for epsilon in np.arange(0, 4.5, 0.05):
        assert distribution.delta(epsilon) >= value(bumpy, epsilon)


# Composition against what is known exactly


@settings(max_examples=40)
@given(MUS, MUS, st.floats(-2, 9))
def test_two_gaussians_are_one(first, second, sds):
    mu = math.hypot(first, second)
    epsilon = sds * mu + mu**2 / 2
    truth = gaussian_delta(epsilon, mu)
    found = composed_delta_of([unmerged(first), unmerged(second)], epsilon)
    assert truth <= found <= truth * (1 + 2e-5)
    exact = composed_delta_of([GaussianCurve(first), GaussianCurve(second)], epsilon)
    assert exact == pytest.approx(truth, rel=1e-12)


@settings(max_examples=40)
@given(st.lists(st.floats(0.02, 1.5), min_size=2, max_size=6), st.floats(-0.2, 0.99))
def test_pure_releases_by_enumeration(epsilons, share):
    epsilon = share * sum(epsilons)
    truth = atoms_delta([coin(e) for e in epsilons], epsilon)
    found = composed_delta_of([pure_curve(e) for e in epsilons], epsilon)
    assert truth * (1 - 1e-13) <= found <= truth * (1 + 0.01)
    assert composed_epsilon_of([pure_curve(e) for e in epsilons], 0.0) == pytest.approx(
        sum(epsilons), rel=1e-12
    )


@pytest.mark.parametrize("releases", [2, 30, 1000])
def test_many_coins_are_binomial(releases):
    """Down to deltas of 1e-30, far below the errors of a plain Fourier transform."""
    each = 0.07
    truths = np.arange(releases + 1)
    chances = stats.binom.pmf(truths, releases, 1 / (1 + math.exp(-each)))
    losses = each * (2 * truths - releases)
    for sds in (0, 1, 3, 6, 10):
        epsilon = releases * each**2 / 2 + sds * each * math.sqrt(releases)
        truth = float(chances @ np.maximum(0.0, -np.expm1(epsilon - losses)))
        found = composed_delta_of([pure_curve(each)] * releases, epsilon)
        assert truth * (1 - 1e-9) <= found  # scipy's binomial is good to about 1e-11
        assert found <= truth * 1.01 + 1e-40


@pytest.mark.parametrize(("shift", "scale", "other"), [(1, 2, 3), (3, 4, 3), (2, 5, 7), (5, 3, 1)])
def test_two_laplace_releases_by_brute_force(shift, scale, other):
    first, second = laplace_atoms(shift, scale), laplace_atoms(other, scale + 1)
    edge = shift / scale + other / (scale + 1)
    for share in (0.0, 0.3, 0.6, 0.95):
        truth = atoms_delta([first, second], share * edge)
        found = composed_delta_of(
            [LaplaceCurve(shift, scale), LaplaceCurve(other, scale + 1)], share * edge
        )
        assert truth * (1 - 1e-12) <= found <= truth * 1.003
    assert composed_delta_of([LaplaceCurve(shift, scale)] * 2, 2 * shift / scale) == 0.0


@settings(max_examples=40)
@given(st.floats(0.05, 2), st.floats(0.1, 3), st.integers(1, 100), st.floats(0, 3))
def test_scores_and_then_a_pick_are_p2(mu_scores, mu_pick, size, epsilon):
    integral = composed_delta(epsilon, mu_scores, mu_pick, size)
    assume(integral > 1e-20)  # P2 adds the tails of its quadrature, 1e-44, and rounds
    found = composed_delta_of(
        [GaussianCurve(mu_scores), PickCurve(GaussianCurve(mu_pick), size)], epsilon
    )
    assert integral * (1 - 1e-9) <= found <= integral * (1 + 5e-4)  # more at the kink at 0


@pytest.mark.parametrize(("mu", "shift", "scale"), [(0.3, 5, 20), (1.0, 40, 30), (0.05, 1, 10)])
def test_laplace_after_gaussian_noise_is_p2_with_its_curve(mu, shift, scale):
    def integrand(u, epsilon):
        inner = delta_at(LaplaceCurve(shift, scale), epsilon - mu * u - mu**2 / 2)
        return math.exp(-(u**2) / 2) / math.sqrt(2 * math.pi) * inner

    for epsilon in (0.1, 0.5, 1.5):
        kinks = (epsilon - np.arange(-shift, shift + 1, 2) / scale - mu**2 / 2) / mu
        edges = np.unique(np.clip(np.concatenate([kinks, np.linspace(-9, 9, 19)]), -9, 9))
        truth = sum(
            integrate.quad(integrand, *cell, args=(epsilon,))[0]
            for cell in itertools.pairwise(edges)
        )
        found = composed_delta_of([GaussianCurve(mu), LaplaceCurve(shift, scale)], epsilon)
        assert found == pytest.approx(truth, rel=3e-5, abs=1e-17)


def test_it_covers_picks_whose_worst_bag_depends_on_the_scores():
    """See the test of P2 on the same numbers: loss distributions of one data set give 0.5228."""
    releases = [GaussianCurve(2.0), PickCurve(GaussianCurve(3.0), 2)]
    assert composed_delta_of(releases, 2.0) == pytest.approx(0.5628, abs=1e-4)


def test_sizes_that_depend_on_scores_cost_what_the_worst_at_each_score_does():
    sizes = tuple(PickCurve(GaussianCurve(mu), size) for size, mu in ((5, 0.5), (9, 0.62)))
    both = composed_delta_of([GaussianCurve(0.3), WorstCurve(sizes)], 1.0)
    each = [composed_delta_of([GaussianCurve(0.3), curve], 1.0) for curve in sizes]
    assert max(each) <= both
    assert both <= composed_delta_of([GaussianCurve(0.3), PickCurve(GaussianCurve(0.62), 5)], 1.0)


# Properties


PICKS = {
    "gaussian": st.builds(GaussianCurve, st.floats(0.01, 5.0)),
    "laplace": st.builds(LaplaceCurve, st.just(2**10), st.integers(200, 20_000)),
    "classes": st.builds(kept_class, st.just(3), st.floats(0.34, 0.999)),
}


@pytest.mark.parametrize("kind", PICKS)
@settings(max_examples=40)
@given(data=st.data())
def test_the_worst_of_many_is_the_worst_of_each(kind, data):
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=2, max_size=40, unique=True))
    curves = tuple(PickCurve(data.draw(PICKS[kind]), size) for size in sizes)
    epsilon = np.linspace(0.0, data.draw(st.floats(0.01, 8.0)), 3001)
    expected = np.max([curve(epsilon) for curve in curves], axis=0)
    worst = WorstCurve(curves)
    np.testing.assert_allclose(worst(epsilon), expected, rtol=1e-8, atol=1e-300)
    shuffled = np.random.default_rng(0).permutation(epsilon.size)
    np.testing.assert_array_equal(worst(epsilon[shuffled]), worst(epsilon)[shuffled])
    assert worst(epsilon[[7]])[0] == pytest.approx(expected[7], rel=1e-8)


def test_curves_of_different_kinds_are_not_computed_together():
    mixed = (PickCurve(GaussianCurve(1.0), 3), PickCurve(LaplaceCurve(10, 10), 4))
    with pytest.raises(AssertionError, match="of one kind"):
        WorstCurve(mixed)(np.array([1.0]))


@settings(max_examples=40)
@given(st.lists(CURVES, min_size=2, max_size=4), st.floats(0, 3))
def test_coarser_grids_give_larger_deltas(curves, epsilon):
    def delta(step):
        parts = [(LossDistribution.from_curve(curve, step=step), 1) for curve in curves]
        # A bound above 1 says nothing, whatever the grid.
        return min(1.0, TiltedSum.of(parts, theta=1.0).delta(epsilon))

    chosen = composed_delta_of(curves, epsilon)
    fine, middle, coarse = (delta(step) for step in (1 / 64, 1 / 16, 1 / 4))
    slack = 1e-11  # what is added for round-off is relative to what theta = 1 promises
    assert chosen <= middle * (1 + 1e-3) + slack
    assert fine <= middle * (1 + 1e-9) + slack
    assert middle <= coarse * (1 + 1e-9) + slack


@settings(max_examples=30)
@given(st.lists(CURVES, min_size=2, max_size=5), st.floats(0, 3))
def test_more_releases_cost_more_and_no_more_than_their_sum(curves, epsilon):
    every = composed_delta_of(curves, epsilon)
    assert every >= composed_delta_of(curves[1:], epsilon) * (1 - 1e-3)
    assert composed_delta_of(curves[::-1], epsilon) == pytest.approx(every, rel=1e-9)
    each = epsilon / len(curves)
    assert every <= sum(value(curve, each) for curve in curves) * (1 + 1e-3) + 1e-38


@settings(max_examples=20, deadline=None)
@given(st.lists(CURVES, min_size=2, max_size=4), st.floats(-12, -1))
def test_epsilon_is_the_inverse(curves, exponent):
    delta = 10**exponent
    epsilon = composed_epsilon_of(curves, delta)
    assert composed_delta_of(curves, epsilon) <= delta
    assert epsilon == 0 or composed_delta_of(curves, epsilon * 0.999) > delta


def test_nothing_and_what_tells_nothing_cost_nothing():
    assert composed_delta_of([], 0.5) == 0.0
    assert composed_delta_of([], -0.5) == pytest.approx(-math.expm1(-0.5))
    assert composed_delta_of([pure_curve(0.0)] * 3, 0.0) == 0.0
    silent = composed_delta_of([pure_curve(0.0), PickCurve(GaussianCurve(1.0), 3)], 0.5)
    assert silent == pytest.approx(pick_delta(0.5, 1.0, 3), rel=1e-5)
    assert composed_epsilon_of([GaussianCurve(0.5)], 1e-5) == gaussian_epsilon(1e-5, 0.5)


def test_a_million_releases():
    found = composed_delta_of([unmerged(1e-3)] * 10**6, 5.0)
    truth = gaussian_delta(5.0, 1.0)
    assert truth <= found <= truth * 1.01


# The arithmetic


def test_each_weight_is_within_its_bound():
    """Against a direct convolution in extended precision."""
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no extended precision here")
    curves = [unmerged(0.5), LaplaceCurve(3, 10), pure_curve(0.4)]
    parts = [(LossDistribution.from_curve(curve, step=1 / 64), 3) for curve in curves]
    for theta in (0.0, 2.0, 15.0):
        result = TiltedSum.of(parts, theta=theta)
        exact = np.ones(1, dtype=np.longdouble)
        for part, count in parts:
            for _ in range(count):
                exact = np.convolve(exact, part.tilted(theta).astype(np.longdouble))
        worst = float(np.abs(result.weights[: exact.size] - exact).max())
        assert worst <= result.error < 1e-13
        assert np.abs(result.weights[exact.size :]).max(initial=0.0) <= result.error


def test_what_lies_outside_the_window_is_covered():
    """A window of 1e-14 of the tilted mass on either side gives what all losses together give."""
    part = LossDistribution.from_curve(unmerged(0.1), step=1 / 256)
    parts, theta = [(part, 50)], 4.0
    mean, variance = part.tilted_moments(theta)
    window = loss_distributions._window(parts, theta, math.sqrt(50 * variance))
    assert window[1] - window[0] < 50 * part.reach / 4
    narrow, wide = (TiltedSum.of(parts, theta=theta, window=w) for w in (window, None))
    for epsilon in (50 * mean - 1, 50 * mean, 50 * mean + 1):
        assert narrow.delta(epsilon) == pytest.approx(wide.delta(epsilon), rel=1e-10)
    far = TiltedSum.of(parts, theta=theta, window=(round(50 * mean / part.step),) * 2)
    assert far.delta(50 * mean) != pytest.approx(wide.delta(50 * mean), rel=1e-3)


def rounded(curve, step, how):
    """The exact atoms of a pure release, each loss moved to the grid by `how`."""
    reach = math.ceil(curve.epsilon / step)
    masses = np.zeros(2 * reach + 1)
    for p, q in coin(curve.epsilon):
        masses[reach + int(how(math.log(p / q) / step))] += p
    return LossDistribution(step, masses, 0.0)


@pytest.mark.parametrize(
    ("how", "is_caught"), [(np.ceil, False), (np.rint, True), (np.floor, True)]
)
def test_losses_rounded_down_or_to_the_nearest_are_caught(how, is_caught):
    """The twin of the enumeration of pure releases: rounding up is safe, if not tight."""
    epsilons, step = (0.31, 0.22, 0.43), 0.1
    parts = [(rounded(pure_curve(e), step, how), 1) for e in epsilons]
    result = TiltedSum.of(parts, theta=1.0)
    below = any(
        result.delta(epsilon) < atoms_delta([coin(e) for e in epsilons], epsilon) * (1 - 1e-13)
        for epsilon in np.linspace(0, 0.95, 20)
    )
    assert below == is_caught


def test_a_curve_that_is_too_low_by_a_part_in_a_thousand_is_caught():
    def short(epsilon):
        return gaussian_curve(epsilon) * 0.999

    gaussian_curve = GaussianCurve(0.4)
    truth = gaussian_delta(2.0, 0.5)
    assert composed_delta_of([unmerged(0.3), short], 2.0) < truth
    assert composed_delta_of([unmerged(0.3), unmerged(0.4)], 2.0) >= truth


# Against Google's library

GOOGLE_STEP = 2.0**-11


def google_upper(curve):
    """Its own distribution where it has one, or joined from the curve's points by its own code."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if isinstance(curve, GaussianCurve):
        return privacy_loss_distribution.from_gaussian_mechanism(
            1 / curve.mu, value_discretization_interval=GOOGLE_STEP
        )
    if isinstance(curve, LaplaceCurve):
        return privacy_loss_distribution.from_discrete_laplace_mechanism(
            1 / curve.scale,
            curve.shift,
            value_discretization_interval=GOOGLE_STEP,
            use_connect_dots=True,
        )
    end = 40 * GOOGLE_STEP
    while value(curve, end) > 1e-30:
        end *= 1.5
    reach = math.ceil(end / GOOGLE_STEP)
    epsilons = GOOGLE_STEP * np.arange(reach + 1)
    deltas = curve(epsilons)
    exchanged = -np.expm1(-epsilons) + np.exp(-epsilons) * deltas
    points = np.concatenate([exchanged[:0:-1], deltas])
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(GOOGLE_STEP, -reach, reach, points)
    )


def google_lower(curve):
    from dp_accounting.pld import privacy_loss_distribution

    options = {
        "pessimistic_estimate": False,
        "value_discretization_interval": GOOGLE_STEP / 2,
    }
    if isinstance(curve, StepCurve):
        (p, q), _ = np.log(coin(curve.epsilon)).tolist()
        return privacy_loss_distribution.from_two_probability_mass_functions(
            {0: p, 1: q}, {0: q, 1: p}, **options
        )
    if isinstance(curve, LaplaceCurve):
        return privacy_loss_distribution.from_discrete_laplace_mechanism(
            1 / curve.scale, curve.shift, **options
        )
    mu, size = (curve.mu, 1) if isinstance(curve, GaussianCurve) else (curve.one.mu, curve.size)
    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / mu, sampling_prob=1 / size, use_connect_dots=False, **options
    )


def google_delta(distributions, epsilon):
    total, *rest = distributions
    for distribution in rest:
        total = total.compose(distribution, tail_mass_truncation=0)
    return float(total.get_delta_for_epsilon(epsilon))


@pytest.mark.parametrize("epsilon", [0.5, 1.2, 2.0])
def test_google_s_library_agrees_on_a_thousand_laplace_releases(epsilon):
    curve, releases = LaplaceCurve(1, 100), 1000
    found = composed_delta_of([curve] * releases, epsilon)
    upper = google_upper(curve).self_compose(releases, tail_mass_truncation=0)
    lower = google_lower(curve).self_compose(releases, tail_mass_truncation=0)
    # It truncates and rounds without counting, by about 1e-15 for each release.
    assert found <= float(upper.get_delta_for_epsilon(epsilon)) * 1.01 + 1e-12
    assert found >= float(lower.get_delta_for_epsilon(epsilon)) - 1e-12
