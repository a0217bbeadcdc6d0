"""Whether 95 % intervals hold the truth 95 % of the time, and what the standard errors promise."""

import numpy as np
import pytest
from scipy import stats as distributions

import bagwise as bw
from bagwise.families import find_family
from tests import stats

THETA, INTERCEPT = np.array([0.6, -0.4, 0.3]), -0.3
TRUTH = np.append(THETA, INTERCEPT)


def clustered(n=3000, size=15):
    X = np.random.default_rng(0).uniform(-1.5, 1.5, size=(n, 3))
    return X, bw.make_bags(X, bag_size=size, strategy="kmeans", seed=0)


def simulate(family, kind, noise, runs, **parameters):
    """Draw labels, aggregate, add noise and fit; return estimates and standard errors."""
    X, bags = clustered()
    rng = np.random.default_rng(1)
    fitted = find_family(family)
    order = np.argsort(bags.index, kind="stable")
    first = np.cumsum(bags.sizes) - bags.sizes
    sd = noise / bags.sizes if kind == "mean" else np.full(bags.n_bags, noise / 15)
    estimates, errors = np.empty((2, runs, 4))
    for run in range(runs):
        y = fitted.sample(X @ THETA + INTERCEPT, phi=0.5, rng=rng)
        labels = bags.mean(y) if kind == "mean" else y[order[first + rng.integers(bags.sizes)]]
        labels = labels + sd * rng.standard_normal(bags.n_bags)
        model = bw.BaggedGLM(family, label_kind=kind, **parameters)
        model.fit(X, labels[bags.index], bags=bags, noise_sd=sd[bags.index] if noise else None)
        estimates[run] = model.summary().center
        errors[run] = np.sqrt(np.diag(model.covariance_))
    return estimates, errors, model.freedom_


def covered(estimates, errors, freedom, *, shrink=1.0):
    reach = distributions.t.ppf(0.975, freedom) * errors * shrink
    return np.mean(np.abs(estimates - TRUTH) <= reach)


def tolerance(runs):
    """How far the covered share may be off by chance; the four intervals of a run may agree."""
    return distributions.norm.isf(stats.ALPHA / 2) * np.sqrt(0.95 * 0.05 / runs)


CASES = [
    (family, kind, noise)
    for family in ("poisson", "bernoulli", "gaussian", "gamma")
    for kind in ("mean", "pick")
    for noise in (0.0, 3.0)
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind", "noise"), CASES)
def test_intervals_cover_the_truth(family, kind, noise):
    runs = 1000
    estimates, errors, freedom = simulate(family, kind, noise, runs)
    share = covered(estimates, errors, freedom)
    assert abs(share - 0.95) < tolerance(runs)
    # The twin: intervals a third shorter would be noticed.
    assert abs(covered(estimates, errors, freedom, shrink=2 / 3) - 0.95) > tolerance(runs)


@pytest.mark.parametrize("noise", [0.0, pytest.param(3.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", ["poisson", "bernoulli", "gaussian"])
def test_the_error_is_what_the_standard_errors_say(family, noise):
    estimates, errors, _ = simulate(family, "mean", noise, 150)
    squares = np.mean((estimates - TRUTH) ** 2 / errors**2, axis=1)
    # The mean square of a t variable, which also sets how far 150 of them may be off.
    assert abs(squares.mean() - 1.0) < 5 * squares.std() / np.sqrt(150) + 0.02
    assert squares.mean() < 1.5
    assert np.mean((estimates - TRUTH) ** 2 / (errors / 2) ** 2) > 2.5


def test_picks_are_less_certain_than_means():
    _, mean, _ = simulate("poisson", "mean", 0.0, 3)
    _, pick, _ = simulate("poisson", "pick", 0.0, 3)
    ratio = pick.mean() / mean.mean()
    assert 3.0 < ratio < 5.0  # sqrt(15) where bags are so compact that their rows are alike


def test_equal_weights_are_judged_by_the_true_variances():
    """With half of the bags very noisy, equal weights lose, and their errors must say so."""
    X, bags = clustered()
    rng = np.random.default_rng(2)
    sd = np.where(np.arange(bags.n_bags) % 2, 4.0, 0.1)
    off = {"known-noise": [], "equal": []}
    told = {"known-noise": [], "equal": []}
    for _ in range(60):
        y = X @ THETA + INTERCEPT + 0.5 * rng.standard_normal(len(X))
        labels = bags.mean(y) + sd * rng.standard_normal(bags.n_bags)
        for weights in ("known-noise", "equal"):
            model = bw.BaggedGLM(weights=weights)
            model.fit(X, labels[bags.index], bags=bags, noise_sd=sd[bags.index])
            off[weights].append(np.sum((model.coef_ - THETA) ** 2))
            told[weights].append(np.trace(model.covariance_[:3, :3]))
    assert np.mean(off["known-noise"]) < 0.1 * np.mean(off["equal"])
    for errors, promised in zip(off.values(), told.values(), strict=True):
        assert np.mean(errors) / np.mean(promised) == pytest.approx(1.0, abs=0.5)
