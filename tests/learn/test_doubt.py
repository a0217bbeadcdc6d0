"""Lack of fit as a variance of its own, and fits that say no more than the mean."""

import dataclasses
import warnings

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from scipy.special import expit

import bagwise as bw
from bagwise.errors import NoEvidenceWarning
from bagwise.families import find_family
from bagwise.glm.shrinkage import SlopePrior, solve_shrunk
from bagwise.glm.weights import NOTHING
from bagwise.learn import fitting
from bagwise.learn.bag_data import read_bags
from bagwise.learn.doubt import best_of_others, evidence, level
from bagwise.learn.fitting import Setting, problem_of
from bagwise.privacy.noise_laws import LAWS

SIZE = 20


def noisy_problem(X, index, labels, sd, family, *, law="gaussian"):
    data = read_bags(X, labels[index], bags=index, noise_sd=np.full(len(index), sd))
    setting = Setting(data, find_family(family), "mean", "known-noise", True, "auto", law=LAWS[law])
    return problem_of(setting, "bag")


def chances(rng, *, n=12_000, missed=0.0, sd=0.005, slopes=(1.5, 1.0, 0.0)):
    """Bags of chances, many of them next to 0, with what a model misses in each bag."""
    X = rng.normal(size=(n, 3)) + rng.normal(size=(n // SIZE, 3)).repeat(SIZE, axis=0)
    index = np.arange(n) // SIZE
    shares = expit(-3 + X @ slopes).reshape(-1, SIZE)
    y = rng.random(shares.shape) < shares
    labels = (
        y.mean(axis=1) + missed * rng.normal(size=len(shares)) + sd * rng.normal(size=len(shares))
    )
    return X, index, labels


@pytest.mark.parametrize("missed", [0.05, 0.1])
def test_what_a_model_of_chances_misses_is_found_again(missed):
    """The variance that was put in, within four standard errors of such an estimate."""
    X, index, labels = chances(np.random.default_rng(1), missed=missed)
    model = bw.BaggedGLM("bernoulli").fit(X, labels[index], bags=index, noise_sd=0.005)
    share = np.clip(labels.mean(), 0.01, 0.99)
    found = (model.dispersion_ - 1) * share * (1 - share) / SIZE
    error = np.sqrt(2 / len(labels)) * (missed**2 + share * (1 - share) / SIZE)
    assert abs(found - missed**2) < 4 * error
    np.testing.assert_allclose(model.coef_, [1.5, 1.0, 0.0], atol=0.35)


def test_a_little_lack_of_fit_does_not_make_everything_noise(monkeypatch):
    """A few bags whose rows all have chances next to 0 have a label of 0.1."""
    rng = np.random.default_rng(3)
    X, index, labels = chances(rng, slopes=(4.0, 3.0, 0.0))
    expected = expit(-3 + X @ [4.0, 3.0, 0.0])
    near = np.argsort(expected.reshape(-1, SIZE).mean(axis=1))
    labels[near[:12]] += 0.1
    lost = {}
    for rule in ("of its own", "a multiple"):
        if rule == "a multiple":  # the twin: what collapsed
            monkeypatch.setattr(fitting, "Unexplained", lambda **_: NOTHING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = bw.BaggedGLM("bernoulli").fit(X, labels[index], bags=index, noise_sd=0.005)
        lost[rule] = np.mean((model.predict(X) - expected) ** 2) / np.var(expected)
    assert lost["of its own"] < 0.003
    assert lost["a multiple"] > 4 * lost["of its own"]


def test_evidence_is_the_ratio_of_integrals():
    """One slope and nothing else that is unknown: by quadrature."""
    rng = np.random.default_rng(5)
    n, sd = 400, 0.6
    X, index = rng.normal(size=(n, 1)).repeat(5, axis=0), np.arange(5 * n) // 5
    labels = np.exp(0.3 + 0.15 * X[::5, 0]) + sd * rng.normal(size=n)
    problem = noisy_problem(X, index, labels, sd, "poisson")
    shrunk = solve_shrunk(
        problem, problem.constant_start(), SlopePrior.of(problem, X, problem.constant_start())
    )
    end, prior = shrunk.solution, shrunk.prior
    (omega,) = end.problem.gathered("true_variance", end.beta)
    units = prior.basis[0, 0] * np.sqrt(prior.variance)

    def density(slope, level):
        beta = np.array([slope * units, level])
        off = labels - end.problem.gathered("moments", beta)[0]
        loose = (level - prior.center[1]) ** 2 / 9
        return np.exp((base - np.sum(off**2 / omega) - loose - slope**2) / 2)

    base = 0.0
    levels = end.beta[1] + np.linspace(-0.2, 0.2, 41)
    base = -2 * np.log(density(end.beta[0] / units, end.beta[1])) - (end.beta[0] / units) ** 2
    slopes = np.linspace(-6, 6, 1201)
    surface = np.array([[density(s, c) for c in levels] for s in slopes])
    with_slopes = integrate.simpson(integrate.simpson(surface, x=levels), x=slopes)
    with_slopes /= np.sqrt(2 * np.pi)
    without = integrate.simpson([density(0.0, c) for c in levels], x=levels)
    assert evidence(shrunk, LAWS["gaussian"]) == pytest.approx(
        2 * np.log(with_slopes / without), abs=0.3
    )


@pytest.mark.parametrize("mean", [-0.9, 0.06, 1.2])
def test_the_level_is_the_posterior_mean_among_factors_that_rates_can_have(mean):
    labels, ones = mean + np.tile([5.0, -5.0], 25), np.ones(50)
    # All of the labels' deviation is noise; a law adds a quarter of it at least, for smoothness.
    error = 5 * np.hypot(1, 0.25) / np.sqrt(50)
    wanted = stats.truncnorm.mean(-mean / error, np.inf, loc=mean, scale=error)
    sd = stats.truncnorm.std(-mean / error, np.inf, loc=mean, scale=error)
    found = level(labels, 2 * ones, 5 * ones, LAWS["gaussian"], unsure=0.0)
    assert found == pytest.approx((wanted / 2, sd / 2), rel=1e-3)


def test_shares_of_a_rare_class_have_the_level_of_their_mean():
    """One bag in twenty has all of the class: by the law of the noise there would be none."""
    rng = np.random.default_rng(7)
    X = (np.arange(6400) // 20 % 20 == 0).astype(float)
    table = pa.table({"x": X, "z": rng.normal(size=6400), "y": (rng.random(6400) < 0.3 * X) * 1.0})
    release = bw.make_release(table, label="y", bounds=(0, 1), epsilon=4, bag_size=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.BagwiseWarning)
        model = bw.fit(release, family="bernoulli")
    mean = float(np.mean(release.labels))
    noise = release.noise_sd[0] / np.sqrt(release.bags.n_bags)
    assert noise > 0.02 * mean  # bags know it no better
    assert model.predict(table).mean() == pytest.approx(mean, abs=3 * noise)


def test_bags_of_another_law_tell_a_level_as_well_as_that_law_lets_them():
    """Of Laplace noise the median knows it best; the mean square is half of that of the mean."""
    rng, ones = np.random.default_rng(3), np.ones(200)
    labels = 3.0 + rng.laplace(size=(100, 200))
    both = [level(each, ones, 2**0.5 * ones, LAWS["laplace"], unsure=0.0) for each in labels]
    found, errors = np.transpose(both)
    assert np.var(found) < 0.75 * np.var(labels.mean(axis=1))
    assert abs(np.mean(found) - 3.0) < 4 * np.std(found) / np.sqrt(100)
    # The error that is told is that of the level, and not that of the mean of the labels.
    off, chance = (found - 3.0) ** 2, 4 * np.sqrt(2 / 100)
    assert np.mean(off) == pytest.approx(np.mean(errors**2), rel=chance)
    assert np.mean((labels.mean(axis=1) - 3.0) ** 2) > (1 + chance) * np.mean(errors**2)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_rates_whose_mean_is_hidden_are_on_average_what_bags_expect():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 4))
    table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": rng.poisson(0.3, 4000) * 1.0})
    release = bw.make_release(table, label="y", bounds=(0, 10), epsilon=0.1, bag_size=20)
    bags = np.asarray(release.labels), np.ones(release.bags.n_bags), np.asarray(release.noise_sd)
    wanted, error = level(*bags, release.noise_law, unsure=0.0)
    assert 0.1 * wanted < error
    with pytest.warns(NoEvidenceWarning, match="hides even the mean label.*without --bag-size"):
        model = bw.fit(release, family="poisson")
    assert model.predict(table).mean() == pytest.approx(wanted, rel=1e-3)
    # With epsilon enough, bags tell the mean, and nothing is said.
    release = bw.make_release(table, label="y", bounds=(0, 10), epsilon=20, bag_size=20)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        bw.fit(release, family="poisson")
    assert not any("even the mean" in str(each.message) for each in said)


def test_rates_in_which_noise_hides_every_slope_are_the_mean():
    rng = np.random.default_rng(7)
    X, index = rng.normal(size=(4000, 8)), np.arange(4000) // 20
    labels = rng.poisson(2.0, size=(200, 20)).mean(axis=1) + rng.laplace(size=200) * 20
    labels += 2.0 - labels.mean()
    with pytest.warns(NoEvidenceWarning, match="hides every slope"):
        model = bw.BaggedGLM("poisson", noise="laplace").fit(
            X, labels[index], bags=index, noise_sd=20 * np.sqrt(2)
        )
    assert np.ptp(model.predict(X)) == 0.0
    assert model.converged_
    # The twin: with a signal above the noise slopes are kept.
    labels = np.exp(0.7 + X @ (0.5 * (np.arange(8) == 0))).reshape(-1, 20).mean(axis=1)
    labels += 0.1 * rng.laplace(size=200)
    model = bw.BaggedGLM("poisson", noise="laplace").fit(
        X, labels[index], bags=index, noise_sd=0.1 * np.sqrt(2)
    )
    assert model.coef_[0] == pytest.approx(0.5, abs=0.2)


def test_a_fit_without_what_the_labels_say_is_replaced():
    X, index, labels = chances(np.random.default_rng(9))
    problem = noisy_problem(X, index, labels, 0.005, "bernoulli")
    start = problem.constant_start()
    shrunk = solve_shrunk(problem, start, SlopePrior.of(problem, X, start))
    same, explains = best_of_others(problem, start, shrunk)
    assert same is shrunk
    assert explains
    # A fit that has collapsed: slopes as good as zero, all of it noise.
    collapsed = dataclasses.replace(
        shrunk, solution=dataclasses.replace(shrunk.solution, beta=start)
    )
    better, explains = best_of_others(problem, start, collapsed)
    assert explains
    np.testing.assert_allclose(
        problem.to_own_units() @ better.solution.beta, [1.5, 1.0, 0.0, -3.0], atol=0.35
    )


def test_labels_that_no_feature_explains_are_told_of():
    rng = np.random.default_rng(11)
    X, index = rng.normal(size=(4000, 3)), np.arange(4000) // 20
    labels = 0.5 + 0.3 * np.sign(rng.normal(size=200)) + 0.01 * rng.normal(size=200)
    with pytest.warns(NoEvidenceWarning, match="vary by more than their noise"):
        bw.BaggedGLM("bernoulli").fit(X, labels[index], bags=index, noise_sd=0.01)
