"""What is expected of bags that depend on labels, against simulation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from bagwise.errors import BagsError
from reproduction.bounds import spread
from reproduction.selection import (
    clipping_factor,
    expected_scatter,
    random_shrinkage,
    selection_factor,
    sorted_moments,
    sorted_spread,
    sorting_shrinkage,
)
from tests import stats
from tests.theory.cases import chunked

THETA = np.array([1.0, -0.5, 0.25])
N = 6000


def golden():
    rng = np.random.default_rng(3)
    X, theta = rng.standard_normal((20_000, 5)), rng.standard_normal(5)
    return X, theta, X @ theta + 2 * rng.standard_normal(20_000)


def test_golden_selection():
    """T4 of the theory page: what one large table gives, and what is predicted for it."""
    X, theta, y = golden()
    c, b = (chunked(np.argsort(y, kind="stable"), 10).mean(values) for values in (X, y))
    found = np.linalg.solve(c.T @ c, c.T @ b) @ theta / (theta @ theta)
    assert found == pytest.approx(1.36975077, rel=1e-7)
    factor = selection_factor(signal_sd=math.sqrt(theta @ theta), label_noise_sd=2.0, bag_size=10)
    assert factor == pytest.approx(1.37246, abs=5e-6)


def slopes(mix, bag_size, label_noise_sd, score_noise_sd, runs):
    """Return slopes along theta of bag and instance loss, for correlated Gaussian features."""
    rng = np.random.default_rng(12)
    found = np.empty((runs, 2))
    for run in range(runs):
        X = rng.standard_normal((N, 3)) @ mix
        y = X @ THETA + label_noise_sd * rng.standard_normal(N)
        z = y + score_noise_sd * rng.standard_normal(N)
        bags = chunked(np.argsort(z), bag_size)
        c, b = bags.mean(X), bags.mean(y)
        by_bag = np.linalg.solve(c.T @ c, c.T @ b)
        by_row = np.linalg.solve(X.T @ X, bags.sum(X).T @ b)
        found[run] = by_bag @ THETA, by_row @ THETA
    return found / (THETA @ THETA)


@pytest.mark.parametrize("score_noise_sd", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(("bag_size", "label_noise_sd"), [(5, 0.5), (20, 1.5)])
def test_sorted_bags_have_the_slopes_that_are_predicted(bag_size, label_noise_sd, score_noise_sd):
    mix = np.array([[1.0, 0.4, 0.0], [0.0, 1.0, -0.3], [0.2, 0.0, 0.8]])
    found = slopes(mix, bag_size, label_noise_sd, score_noise_sd, runs=120)
    setting = {
        "signal_sd": float(np.linalg.norm(mix @ THETA)),
        "label_noise_sd": label_noise_sd,
        "bag_size": bag_size,
        "score_noise_sd": score_noise_sd,
    }
    factor, shrinkage = selection_factor(**setting), sorting_shrinkage(**setting)
    assert stats.mean_is(found[:, 0], factor)
    assert not stats.mean_is(found[:, 0], 1.0)
    assert not stats.mean_is(found[:, 0], 1 + 1.25 * (factor - 1))
    assert stats.mean_is(found[:, 1], shrinkage)
    if score_noise_sd > 0:
        assert not stats.mean_is(found[:, 1], 1.0)
        assert not stats.mean_is(found[:, 1], 1.1 * shrinkage)


def test_factors_at_their_ends():
    arguments = {"signal_sd": 1.3, "label_noise_sd": 0.8}
    plain = selection_factor(**arguments, bag_size=7)
    t, s = 1.3**2, 0.8**2
    assert plain == pytest.approx((t + s) / (t + s / 7))
    assert selection_factor(**arguments, bag_size=1) == 1.0
    assert selection_factor(**arguments, bag_size=7, score_noise_sd=1e9) == pytest.approx(1.0)
    assert sorting_shrinkage(**arguments, bag_size=7, score_noise_sd=0.0) == 1.0
    far = sorting_shrinkage(**arguments, bag_size=7, score_noise_sd=1e9)
    assert far == pytest.approx(1 / 7)


@pytest.mark.parametrize("score_noise_sd", [0.2, 1.0, 5.0])
def test_the_spread_after_noisy_sorting(score_noise_sd):
    """Exact, given the spread of the scores themselves."""
    rng = np.random.default_rng(13)
    found, predicted, without = [], [], []
    for _ in range(400):
        values = 1.5 * rng.standard_normal(500)
        scores = values + score_noise_sd * rng.standard_normal(500)
        bags = chunked(np.argsort(scores), 10)
        setting = {"n": 500, "bag_size": 10, "signal_sd": 1.5, "score_noise_sd": score_noise_sd}
        found.append(spread(values, bags))
        predicted.append(sorted_spread(**setting, score_spread=spread(scores, bags)))
        without.append(500 * 0.9 * score_noise_sd**2)
    difference = np.array(found) - np.array(predicted)
    assert stats.mean_is(difference, 0.0)
    assert not stats.mean_is(difference, 0.05 * np.mean(predicted))
    if score_noise_sd > 0.5:
        assert not stats.mean_is(np.array(found) - np.array(without), 0.0)  # as printed (E7)


def all_pairings(rows):
    if not rows:
        yield []
        return
    head, *rest = rows
    for other in rest:
        left = [row for row in rest if row != other]
        for pairs in all_pairings(left):
            yield [(head, other), *pairs]


def test_the_mean_scatter_over_all_partitions():
    rng = np.random.default_rng(14)
    X = rng.standard_normal((8, 2)) + 1.0
    scatters = []
    for pairs in all_pairings(list(range(8))):
        sums = np.array([X[list(pair)].sum(axis=0) for pair in pairs])
        scatters.append(sums.T @ sums / 2)
    assert len(scatters) == 105
    np.testing.assert_allclose(np.mean(scatters, axis=0), expected_scatter(X, bag_size=2))


def test_random_bags_shrink_slopes_by_rho():
    rng = np.random.default_rng(15)
    X = rng.standard_normal((60, 2))
    X -= X.mean(axis=0)
    theta = np.array([2.0, -1.0])
    found = []
    for _ in range(2000):
        bags = chunked(rng.permutation(60), 6)
        b = bags.mean(X @ theta)
        found.append(np.linalg.solve(X.T @ X, bags.sum(X).T @ b) @ theta / (theta @ theta))
    rho = random_shrinkage(n=60, bag_size=6)
    assert rho == pytest.approx(54 / (6 * 59))
    assert stats.mean_is(found, rho)
    assert not stats.mean_is(found, 1 / 6)  # which is only about right


def test_an_intercept_is_not_shrunk():
    X = np.column_stack([np.ones(12), np.linspace(-1, 1, 12)])
    scatter = expected_scatter(X, bag_size=3)
    np.testing.assert_allclose(scatter[0], [12.0, 0.0], atol=1e-12)
    rho = random_shrinkage(n=12, bag_size=3)
    assert scatter[1, 1] == pytest.approx(rho * np.sum(X[:, 1] ** 2))


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (-0.5, 3.0), (1.0, 1.5)])
def test_clipping_shrinks_slopes_by_the_share_inside(bounds):
    rng = np.random.default_rng(16)
    x = rng.standard_normal((2000, 1000))
    y = 0.3 + 0.8 * x + 0.6 * rng.standard_normal(x.shape)
    middle = np.clip(0.3, *bounds)  # a constant has no covariance, but adds to the scatter
    products = np.mean(x * (np.clip(y, *bounds) - middle), axis=1) / 0.8
    factor = clipping_factor(bounds, label_mean=0.3, label_sd=1.0)
    assert stats.mean_is(products, factor)
    assert not stats.mean_is(products, 1.05 * factor)
    assert clipping_factor((-math.inf, math.inf), label_mean=0.0, label_sd=1.0) == 1.0


TILTED = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])


def sorted_risk(**setting):
    """Return the two parts of the expected squared error, and their sum."""
    bias, covariance = sorted_moments(**setting)
    parts = float(bias @ bias), float(np.trace(covariance))
    return SimpleNamespace(bias=parts[0], label_noise=parts[1], total=sum(parts))


def test_the_risk_of_sorted_bags_by_hand():
    """With S = I and theta along the first axis, C is diagonal."""
    risk = sorted_risk(
        theta=np.array([2.0, 0.0]),
        covariance=np.eye(2),
        label_noise_sd=1.0,
        bag_size=4,
        n_bags=13,
    )
    factor = 5 / 4.25  # (t^2 + s^2) / (t^2 + s^2/k)
    along = 1 / 4 + 3 / 4 * 4 / 5
    assert risk.bias == pytest.approx((factor - 1) ** 2 * 4)
    assert risk.label_noise == pytest.approx(factor / 4 * (1 / along + 4) / 10)


def test_bags_of_one_row_have_the_risk_of_least_squares():
    risk = sorted_risk(theta=THETA, covariance=TILTED, label_noise_sd=0.7, bag_size=1, n_bags=100)
    assert risk.bias == 0.0
    assert risk.label_noise == pytest.approx(0.49 * np.trace(np.linalg.inv(TILTED)) / 96)


def test_the_risk_follows_the_units_of_features_and_labels():
    plain = {"theta": THETA, "covariance": TILTED, "label_noise_sd": 0.7}
    longer = {"theta": 3 * THETA, "covariance": TILTED, "label_noise_sd": 2.1}
    wider = {"theta": THETA / 3, "covariance": 9 * TILTED, "label_noise_sd": 0.7}
    found = [sorted_risk(**way, bag_size=5, n_bags=40).total for way in (plain, longer, wider)]
    assert found[1] == pytest.approx(9 * found[0])
    assert found[2] == pytest.approx(found[0] / 9)


def errors_of_sorted_bags(bag_size, n_bags, label_noise_sd, runs, *, halves=False):
    """Return squared errors of bag loss on means, over fresh rows with covariance `TILTED`."""
    rng = np.random.default_rng(17)
    mix = np.linalg.cholesky(TILTED).T
    n, found = n_bags * bag_size * (2 if halves else 1), np.empty(runs)
    for run in range(runs):
        X = rng.standard_normal((n, 3)) @ mix
        y = X @ THETA + label_noise_sd * rng.standard_normal(n)
        places = np.argsort(y).reshape(n_bags, -1)
        kept = rng.permuted(places, axis=1)[:, :bag_size]
        c, b = X[kept].mean(axis=1), y[kept].mean(axis=1)
        found[run] = np.sum((np.linalg.solve(c.T @ c, c.T @ b) - THETA) ** 2)
    return found


@pytest.mark.parametrize("halves", [False, True], ids=["sorted", "super"])
@pytest.mark.parametrize(("bag_size", "label_noise_sd"), [(5, 0.5), (10, 1.5)])
def test_the_risk_of_sorted_bags(bag_size, label_noise_sd, halves):
    setting = {"bag_size": bag_size, "n_bags": 150, "label_noise_sd": label_noise_sd}
    found = errors_of_sorted_bags(**setting, runs=1200, halves=halves)
    risk = sorted_risk(theta=THETA, covariance=TILTED, **setting)
    assert stats.mean_is(found, risk.total)
    assert not stats.mean_is(found, 1.15 * risk.total)
    assert not stats.mean_is(found, 0.85 * risk.total)
    assert not stats.mean_is(found, risk.label_noise)  # without a factor on the slopes
    assert not stats.mean_is(found, risk.bias)


@pytest.mark.slow
def test_the_risk_of_few_sorted_bags():
    """Here the noise that is left matters, by which f it is multiplied, and ``m - d - 1``."""
    setting = {"bag_size": 50, "n_bags": 16, "label_noise_sd": 1.5}
    found = errors_of_sorted_bags(**setting, runs=60_000)
    risk = sorted_risk(theta=THETA, covariance=TILTED, **setting)
    signal_sd = math.sqrt(THETA @ TILTED @ THETA)
    factor = selection_factor(signal_sd=signal_sd, label_noise_sd=1.5, bag_size=50)
    assert stats.mean_is(found, risk.total)
    assert not stats.mean_is(found, risk.bias + risk.label_noise / factor)
    assert not stats.mean_is(found, risk.bias + risk.label_noise * 12 / 16)
    assert not stats.mean_is(found, risk.bias + risk.label_noise * 12 / 13)


@pytest.mark.parametrize("n_bags", [1, 3, 4])
def test_too_few_bags_have_no_finite_risk(n_bags):
    setting = {"theta": THETA, "covariance": TILTED, "label_noise_sd": 1.0, "bag_size": 5}
    with pytest.raises(BagsError, match=f"finite from 5 bags on, got {n_bags}"):
        sorted_risk(**setting, n_bags=n_bags)
    assert math.isfinite(sorted_risk(**setting, n_bags=5).total)
