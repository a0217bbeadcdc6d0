"""Features that matter more than others: the belief, and what it brings."""

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy import stats as distributions

from bagwise.theory.restricted import FREEDOM, Size, Spectrum, root_of, weigh_features


def problem(features, *, rows=60, strong=6.0):
    """Columns of white slopes and a response with errors of 1: it follows the second feature."""
    rng = np.random.default_rng(0)
    width = features.shape[1]
    H = rng.normal(size=(rows, width)) @ np.linalg.cholesky(0.6 * np.eye(width) + 0.4).T / 3
    slopes = 0.2 * rng.normal(size=features.shape[0])
    slopes[1] = strong
    return H, H @ features.T @ slopes + rng.normal(size=rows)


def turned(width, seed=1):
    """A rotation: white slopes seen from coordinates of features."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0]


def moments_by_definition(H, z, features, importance, variance):
    """Posterior moments of feature coordinates: H a + e with a = features' b, as a joint normal."""
    K = H @ features.T
    prior = variance * np.diag(importance)
    V = K @ prior @ K.T + np.eye(len(z))
    gain = prior @ K.T @ np.linalg.inv(V)
    mean, covariance = gain @ z, prior - gain @ K @ prior
    return mean**2 + np.diag(covariance)


def unlikely(H, z, features, importance, log_variance):
    K = H @ features.T
    V = np.eye(len(z)) + np.exp(log_variance) * K @ np.diag(importance) @ K.T
    return -2 * distributions.multivariate_normal(cov=V).logpdf(z) - log_variance


def objective(H, z, features, logs):
    """J by its definition; logs are those of the sizes and, last, of tau^2."""
    sizes = np.exp(logs[:-1])
    belief = FREEDOM * np.sum(1 / sizes - 1 + np.log(sizes))
    return unlikely(H, z, features, sizes, logs[-1]) + belief


def test_sizes_and_tau_are_the_most_likely_ones():
    """Against a search that knows nothing but the definition, from several starts."""
    features = turned(8)
    H, z = problem(features)
    importance, variance = weigh_features(H.T @ H, H.T @ z, features)
    assert importance.argmax() == 1
    assert importance.max() > 3
    found = np.log([*importance, variance])
    searches = [
        optimize.minimize(lambda logs: objective(H, z, features, logs), start)
        for start in (found, np.zeros(9), np.append(np.zeros(8), -2.0))
    ]
    best = min(searches, key=lambda search: search.fun)
    assert objective(H, z, features, found) == pytest.approx(best.fun, abs=0.01)
    np.testing.assert_allclose(found, best.x, atol=0.15)  # turns end where J is nearly flat
    # The twin: sizes that are wrong by a third are less likely.
    assert objective(H, z, features, found + 0.5 * np.eye(9)[-1]) > best.fun + 0.1


def log_evidence(told, logs, belief, variances):
    """Of slopes that are told with errors of 1: sizes and tau are integrated over, on grids."""
    found = []
    for variance in variances:
        sd = np.sqrt(1 + variance * np.exp(logs))
        of_size = distributions.norm(scale=sd).pdf(told[:, None])
        found.append(np.log(integrate.trapezoid(of_size * belief, logs)).sum())
    found = np.array(found) + np.log(variances) / 2  # what is believed of tau
    return found.max() + np.log(np.exp(found - found.max()).mean())


def test_the_odds_of_the_two_beliefs_are_those_of_integrals():
    rng = np.random.default_rng(5)
    logs, variances = np.linspace(-9, 15, 200), np.exp(np.linspace(-6, 7, 40))
    heavy = distributions.loggamma(FREEDOM / 2).pdf(-logs + np.log(FREEDOM / 2))
    one = np.exp(-(logs**2) / (2 * 0.1**2)) / (0.1 * np.sqrt(2 * np.pi))
    seen = {True: 0, False: 0}
    for draw in range(30):
        truth = rng.normal(size=12) * (1.0 if draw % 2 else 0.2)
        truth[:1] = [rng.uniform(0, 8)]
        told = truth + rng.normal(size=12)
        odds = log_evidence(told, logs, heavy, variances) - log_evidence(told, logs, one, variances)
        if abs(odds) > 1.5:  # where they are clear; Laplace's approximation is one
            apart = bool(weigh_features(np.eye(12), told, np.eye(12))[0].max() > 1)
            assert apart == (odds > 0)
            seen[apart] += 1
    assert min(seen.values()) >= 3


def test_a_feature_that_labels_say_nothing_of_matters_as_believed_before():
    information = np.diag([50.0, 50.0, 0.0])
    importance, _ = weigh_features(information, np.array([100.0, 20.0, 0.0]), np.eye(3))
    assert importance[2] == pytest.approx(1.0, abs=0.02)


def test_coordinates_of_features_decide_and_white_ones_do_not():
    H, z = problem(np.eye(8))
    turn = turned(8, seed=4)
    here = weigh_features(H.T @ H, H.T @ z, np.eye(8))
    there = weigh_features(turn.T @ H.T @ H @ turn, turn.T @ H.T @ z, turn)
    np.testing.assert_allclose(here[0], there[0], rtol=1e-6)
    assert here[1] == pytest.approx(there[1], rel=1e-6)
    assert here[0].argmax() == 1
    other = weigh_features(H.T @ H, H.T @ z, turn)[0]
    assert other.max() < 0.8 * here[0].max()  # the strong feature is in several of these


def test_more_features_than_directions():
    """Columns that follow from others: as many sizes as features, fewer slopes than those."""
    last = np.eye(8)[7:] / np.sqrt(2)
    features = np.vstack([np.eye(8)[:7], last, last])
    H, z = problem(features)
    importance, variance = weigh_features(H.T @ H, H.T @ z, features)
    assert importance.argmax() == 1
    assert importance[7] == pytest.approx(importance[8])
    squares = moments_by_definition(H, z, features, importance, variance)
    expected = (FREEDOM + squares / variance) / (FREEDOM + 1)
    np.testing.assert_allclose(importance, expected, rtol=0.1)  # turns end at five hundredths


def test_classes_share_what_matters():
    H, z = problem(np.eye(8))
    G, s = H.T @ H, H.T @ z
    both, _ = weigh_features(np.kron(np.eye(2), G), np.concatenate([s, 0.1 * s]), np.eye(8))
    turn = np.kron(turned(2), np.eye(8))
    mixed, _ = weigh_features(
        turn.T @ np.kron(np.eye(2), G) @ turn, turn.T @ np.concatenate([s, 0.1 * s]), np.eye(8)
    )
    assert both.shape == (8,)
    assert both.argmax() == 1
    np.testing.assert_allclose(both, mixed, rtol=1e-3)  # which class is the first does not matter


def test_slopes_together_are_no_larger_than_what_is_possible():
    H, z = problem(np.eye(8), strong=40.0)
    importance, variance = weigh_features(H.T @ H, H.T @ z, np.eye(8), size=Size(most=0.5))
    root = root_of(importance, np.eye(8))
    assert variance * np.trace(root @ root.T) <= 0.5 * 8 * 1.0001


def errors(strong, weak, draws=300, width=20):
    """Mean squared error of slopes, each told with an error of 1: by sizes, and by one size."""
    rng = np.random.default_rng(3)
    one, found = np.eye(width), np.zeros(2)
    for _ in range(draws):
        truth = weak * rng.normal(size=width)
        truth[:strong] = 6.0 * rng.choice([-1, 1], strong)
        told = truth + rng.normal(size=width)
        importance, variance = weigh_features(one, told, one)
        even = np.exp(Spectrum(np.ones(width), told**2, 0.0).best()[0])
        for at, sizes in enumerate((variance * importance, np.full(width, even))):
            found[at] += np.mean((told * sizes / (1 + sizes) - truth) ** 2)
    return found / draws


def test_few_strong_features_are_kept_and_many_alike_lose_nothing():
    """Means over 300 draws of 20 slopes have a relative standard error below two hundredths."""
    sizes, one_size = errors(strong=2, weak=0.0)
    assert sizes < 0.6 * one_size
    for weak in (0.0, 1.0, 3.0):
        sizes, one_size = errors(strong=0, weak=weak)
        assert sizes < 1.03 * one_size
