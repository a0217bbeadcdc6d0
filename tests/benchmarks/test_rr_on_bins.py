import itertools
import math
from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.errors import BudgetError
from bagwise.rng import SecureNoise, SimulatedNoise
from benchmarks import _rr_on_bins as rr
from tests import stats

EXACT = Context(prec=60)


def loss_of(values, prior, bin_of, outputs, epsilon):
    """Expected squared error, straight from the chances of randomised response."""
    count = len(outputs)
    odds = math.exp(epsilon)
    error = 0.0
    for value, weight, own in zip(values, prior, bin_of, strict=True):
        for number, output in enumerate(outputs):
            chance = (odds if number == own else 1.0) / (odds + count - 1)
            error += weight * chance * (output - value) ** 2
    return error


def best_outputs(values, prior, bin_of, epsilon):
    """The numbers of least squared error for given groups of labels."""
    weight = np.where(bin_of == np.arange(bin_of.max() + 1)[:, None], math.exp(epsilon), 1.0)
    return (weight * prior * values).sum(axis=1) / (weight * prior).sum(axis=1)


def groupings(k):
    """Every way to put k labels into groups, intervals or not."""
    for ids in itertools.product(range(k), repeat=k):
        if all(ids[i] <= max(ids[:i], default=-1) + 1 for i in range(k)):
            yield np.array(ids)


def least_loss(values, prior, epsilon):
    return min(
        loss_of(values, prior, groups, best_outputs(values, prior, groups, epsilon), epsilon)
        for groups in groupings(len(values))
    )


problems = st.integers(1, 6).flatmap(
    lambda k: st.tuples(
        st.lists(st.integers(-50, 50), min_size=k, max_size=k, unique=True).map(sorted),
        st.lists(st.floats(0.01, 1), min_size=k, max_size=k),
        st.floats(0.05, 5),
    )
)


@settings(max_examples=60, deadline=None)
@given(problems)
def test_no_grouping_at_all_is_better_than_the_bins(problem):
    values, weights, epsilon = np.array(problem[0], dtype=float), np.array(problem[1]), problem[2]
    prior = weights / weights.sum()
    bins = rr.best_bins(values, prior, epsilon=epsilon)
    least = least_loss(values, prior, epsilon)
    assert bins.loss == pytest.approx(least, rel=1e-9, abs=1e-9)
    told = loss_of(values, prior, bins.bin_of, bins.outputs, epsilon)
    assert told == pytest.approx(bins.loss, rel=1e-9, abs=1e-9)


def test_labels_that_never_occur_belong_to_a_bin():
    bins = rr.best_bins(np.arange(5.0), np.array([0.5, 0, 0, 0, 0.5]), epsilon=2.0)
    assert bins.bin_of.size == 5
    assert np.isfinite(bins.outputs).all()
    assert np.isfinite(bins.means).all()


def test_a_single_bin_reports_the_same_for_all():
    bins = rr.best_bins(np.array([3.0]), np.array([1.0]), epsilon=1.0)
    assert bins.outputs.tolist() == [3.0]
    assert (
        rr.respond(np.zeros(4, dtype=int), 1, rr.keep_chance(1, 1.0), SecureNoise()).tolist()
        == [0] * 4
    )


# Privacy


@pytest.mark.parametrize("epsilon", [0.01, 0.45, 1.0, 3.6, 12.0])
@pytest.mark.parametrize("count", [2, 3, 17, 241])
def test_no_report_is_likelier_than_exp_epsilon_allows(count, epsilon):
    keep = rr.keep_chance(count, epsilon)
    bound = EXACT.exp(Decimal(epsilon))

    def ratio(keep):  # of the true interval against another one, in exact integers
        return EXACT.divide(Decimal(keep * (count - 1)), Decimal(rr.CHANCES - keep))

    assert 1 < ratio(keep) <= bound
    assert ratio(keep + 3) > bound  # the twin: three in four billion more would break it
    chances = rr.transition(count, keep)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    assert (chances.max(axis=0) / chances.min(axis=0)).max() <= math.exp(epsilon) * (1 + 1e-12)


@pytest.mark.parametrize("count", [2, 5])
def test_reports_are_as_frequent_as_they_should_be(count):
    epsilon, draws = 1.0, 100_000
    true = np.full(draws, count - 1)
    reported = rr.respond(true, count, rr.keep_chance(count, epsilon), SecureNoise())
    right = math.exp(epsilon) / (math.exp(epsilon) + count - 1)
    assert stats.mean_is(reported == true, right)
    assert not stats.mean_is(reported == true, 1.05 * right)
    others = np.bincount(reported, minlength=count)[: count - 1]
    if count > 2:
        assert stats.is_uniform(others)
        others[0] *= 1.1
        assert not stats.is_uniform(others)


def test_the_histogram_carries_the_noise_of_two_counts_that_move():
    epsilon, rows = 0.5, 10**6
    codes = np.zeros(rows, dtype=int)
    codes[: rows // 2] = 1
    shares = [
        rr.noisy_prior(codes, 2, epsilon=epsilon, source=SimulatedNoise(seed))
        for seed in range(2000)
    ]
    # First order of a quotient: a share is off by (noise of one - noise of the other) / 2 rows,
    # and two Laplace variables of scale 2 / epsilon each have the variance 2 (2 / epsilon)^2.
    off = 2 * rows * (np.array(shares)[:, 0] - 0.5)
    variance = 2 * 2 * (2 / epsilon) ** 2
    assert stats.mean_is(off**2, variance)
    assert not stats.mean_is(off**2, variance / 2)


def test_a_histogram_that_noise_has_wiped_out_is_flat():
    codes = np.array([0, 1])
    priors = [
        rr.noisy_prior(codes, 3, epsilon=1e-3, source=SimulatedNoise(seed)).tolist()
        for seed in range(60)
    ]
    assert [1 / 3] * 3 in priors
    assert all(min(prior) >= 0 and math.isclose(sum(prior), 1) for prior in priors)


def test_histogram_and_responses_share_epsilon(monkeypatch):
    asked = []
    prior = rr.noisy_prior

    def noted(*arguments, epsilon, **options):
        asked.append(epsilon)
        return prior(*arguments, epsilon=epsilon, **options)

    monkeypatch.setattr(rr, "noisy_prior", noted)
    found = rr.randomise_labels(
        np.repeat([0.0, 1.0], 500),
        values=np.array([0.0, 1.0]),
        epsilon=2.0,
        prior_share=0.25,
        source=SimulatedNoise(0),
    )
    assert asked == [0.5]
    assert found.bins.count == 2
    assert found.keep == rr.keep_chance(2, 1.5)


# Labels


def test_the_bias_is_undone_on_average():
    values = np.arange(5.0)
    labels = np.repeat(values, 40_000)
    found = rr.randomise_labels(labels, values=values, epsilon=2.0, source=SimulatedNoise(1))
    means = found.bins.means[found.bins.bin_of[labels.astype(int)]]
    assert found.bins.count > 1
    assert stats.mean_is(found.unbiased - means, 0)
    top = labels == values[-1]
    assert stats.mean_is((found.unbiased - means)[top], 0)
    assert not stats.mean_is((found.labels - means)[top], 0)  # as published, they are shrunk
    noise = (found.unbiased - means) ** 2
    assert stats.mean_is(noise, found.unbiased_noise_sd**2)
    assert not stats.mean_is(noise, (1.05 * found.unbiased_noise_sd) ** 2)


def test_labels_count_as_the_nearest_value():
    values = np.array([0.0, 10.0, 20.0])
    assert rr.nearest(np.array([-5.0, 4.9, 5.1, 19.0, 99.0]), values).tolist() == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"epsilon": 1.0, "prior_share": 1.0}])
def test_an_impossible_budget_is_refused(options):
    with pytest.raises(BudgetError, match="epsilon must be positive"):
        rr.randomise_labels(
            np.zeros(3), values=np.array([0.0, 1.0]), source=SecureNoise(), **options
        )
