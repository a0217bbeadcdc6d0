"""Counts over an exposure, and offsets: against statsmodels, by hand, and by their coverage."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

import bagwise as bw
from bagwise.errors import BagsError, StrategyError
from bagwise.learn.model_selection import BagKFold
from tests.stats import ALPHA

SLOPES = np.array([0.4, -0.25])
INTERCEPT = -1.2


def claims(n, seed=0, *, intercept=INTERCEPT):
    """Simulate claims: rates by two features, years of exposure that go with one of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    years = np.clip(rng.gamma(2.0, 0.5, size=n) * np.exp(0.3 * X[:, 0]), 0.02, None)
    rate = np.exp(intercept + X @ SLOPES)
    return X, years, rng.poisson(years * rate).astype(float)


def bagged(y, size):
    bags = np.arange(len(y)) // size
    means = np.bincount(bags, weights=y) / np.bincount(bags)
    return bags, means


FAMILIES = {
    "poisson": (sm.families.Poisson(), {}, lambda mean, rng: rng.poisson(mean)),
    "gamma": (
        sm.families.Gamma(sm.families.links.Log()),
        {},
        lambda mean, rng: rng.gamma(3.0, mean / 3.0),
    ),
    "inverse_gaussian": (
        sm.families.InverseGaussian(sm.families.links.Log()),
        {},
        lambda mean, rng: rng.wald(mean, 4.0),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("loss", ["bag", "instance", "aggregate"])
def test_single_rows_agree_with_statsmodels(name, loss):
    peer, options, draw = FAMILIES[name]
    X, years, _ = claims(600)
    rng = np.random.default_rng(3)
    y = np.maximum(draw(years * np.exp(INTERCEPT + X @ SLOPES), rng), 1e-9 * (name != "poisson"))
    model = bw.BaggedGLM(name, loss, covariance="model", **options)
    model.fit(X, y, bags=range(600), exposure=years)
    fitted = sm.GLM(y, sm.add_constant(X), family=peer, exposure=years).fit(tol=1e-13, maxiter=200)
    expected = np.append(fitted.params[1:], fitted.params[0])
    assert np.allclose(np.append(model.coef_, model.intercept_), expected, rtol=0, atol=1e-6)
    assert np.allclose(
        model.summary().standard_error, np.append(fitted.bse[1:], fitted.bse[0]), rtol=1e-5
    )
    assert np.allclose(
        model.predict(X, exposure=years), fitted.predict(sm.add_constant(X), exposure=years)
    )
    # The twin: a model of the counts alone is another one.
    without = bw.BaggedGLM(name, loss, **options).fit(X, y, bags=range(600))
    assert np.abs(without.coef_ - expected[:2]).max() > 0.05


def test_an_offset_agrees_with_statsmodels():
    X, years, y = claims(500)
    model = bw.BaggedGLM("poisson").fit(X, y, exposure=years, offset=0.3 * X[:, 1])
    offset = np.log(years) + 0.3 * X[:, 1]
    fitted = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), offset=offset).fit()
    assert np.allclose(model.coef_, fitted.params[1:], atol=1e-6)
    binary = (y > 0).astype(float)
    logit = bw.BaggedGLM("bernoulli").fit(X, binary, offset=0.5 * X[:, 0])
    peer = sm.GLM(binary, sm.add_constant(X), family=sm.families.Binomial(), offset=0.5 * X[:, 0])
    assert np.allclose(logit.coef_, peer.fit().params[1:], atol=1e-6)
    linear = bw.BaggedGLM("gaussian").fit(X, y, offset=2 * X[:, 0])
    plain = bw.BaggedGLM("gaussian").fit(X, y)
    assert np.allclose(linear.coef_ + np.array([2.0, 0.0]), plain.coef_)


def test_the_equations_of_bag_loss_are_those_of_the_mean_of_counts():
    """The fit solves sum_l J_l (label_l - mean e_i mu_i) / omega_l = 0, computed by hand."""
    X, years, y = claims(400, seed=2)
    bags, means = bagged(y, 4)
    model = bw.BaggedGLM("poisson").fit(X, means[bags], bags=bags, exposure=years)
    design = np.column_stack([X, np.ones(400)])
    beta = np.append(model.coef_, model.intercept_)

    def score(times):
        mu = times * np.exp(design @ beta)
        mean = np.bincount(bags, weights=mu) / 4
        jacobian = np.column_stack([np.bincount(bags, weights=mu * c) / 4 for c in design.T])
        return jacobian.T @ ((means - mean) / mean)

    scale = np.abs(design).sum()
    assert np.abs(score(years)).max() < 1e-7 * scale
    assert np.abs(score(1.01 * years)).max() > 1e-4 * scale


@pytest.mark.parametrize("loss", ["bag", "aggregate"])
def test_bags_of_like_rows_keep_the_slopes(loss):
    X, years, y = claims(40_000, seed=4)
    bags = np.asarray(bw.make_bags(X, bag_size=10, strategy="kmeans", seed=0).index)
    means = np.bincount(bags, weights=y) / np.bincount(bags)
    model = bw.BaggedGLM("poisson", loss).fit(X, means[bags], bags=bags, exposure=years)
    wrong = np.abs(np.append(model.coef_ - SLOPES, model.intercept_ - INTERCEPT))
    assert (wrong < 4.5 * np.sqrt(np.diag(model.covariance_))).all()
    assert model.score(X, means[bags], bags=bags, exposure=years) > 0.3
    # The twin: exposure goes with a feature, and takes part of its slope if it is left out.
    without = bw.BaggedGLM("poisson", loss).fit(X, means[bags], bags=bags)
    assert abs(without.coef_[0] - SLOPES[0]) > 10 * np.sqrt(model.covariance_[0, 0])


def test_instance_loss_divides_a_bag_by_exposure():
    X, years, _ = claims(300)
    X[:] = np.repeat(X[::3], 3, axis=0)  # rows of a bag are alike but for their exposure
    y = years * np.exp(INTERCEPT + X @ SLOPES)
    bags, means = bagged(y, 3)
    model = bw.BaggedGLM("poisson", "instance").fit(X, means[bags], bags=bags, exposure=years)
    assert np.allclose(model.coef_, SLOPES, atol=1e-6)
    with pytest.raises(StrategyError, match="logarithmic link only"):
        bw.BaggedGLM("gaussian", "instance").fit(X, means[bags], bags=bags, offset=years)


def cover(n_rows, size, draws, *, noise_sd=0.0, seed=100, times=lambda years: years, narrow=1.0):
    """Count, by coefficient, intervals of 95 percent that miss the truth."""
    truth, missed = np.append(SLOPES, INTERCEPT), np.zeros(3, dtype=int)
    for draw in range(draws):
        X, years, y = claims(n_rows, seed=seed + draw)
        bags, means = bagged(y, size)
        if noise_sd:
            means = means + np.random.default_rng(draw).normal(scale=noise_sd, size=len(means))
        model = bw.BaggedGLM("poisson").fit(
            X, means[bags], bags=bags, exposure=times(years), noise_sd=noise_sd or None
        )
        low, high = model.conf_int().T
        middle, half = (low + high) / 2, narrow * (high - low) / 2
        missed += np.abs(truth - middle) > half
    return missed


def too_many(missed, draws):
    """Tell whether intervals of 95 percent miss so often once in a million times."""
    return bool(stats.binom.sf(missed.max() - 1, draws, 0.05) < ALPHA / missed.size)


def test_intervals_cover_on_simulated_claims():
    assert not too_many(cover(1000, 5, 80), 80)
    # The twin: exposures that are rounded up to whole years.
    assert too_many(cover(1000, 5, 20, times=np.ceil), 20)


@pytest.mark.slow
@pytest.mark.parametrize("noise_sd", [0.0, 0.1])
def test_intervals_cover_on_many_simulated_claims(noise_sd):
    options = {"noise_sd": noise_sd, "seed": 5000}
    assert not too_many(cover(3000, 10, 600, **options), 600)
    # The twin: intervals that are too short by a quarter.
    assert too_many(cover(3000, 10, 600, narrow=0.75, **options), 600)


def test_exposure_goes_through_a_grid_search():
    X, years, y = claims(600)
    bags, means = bagged(y, 5)
    search = GridSearchCV(bw.BaggedGLM("poisson"), {"ridge": [0.0, 100.0]}, cv=BagKFold(3))
    with config_context(enable_metadata_routing=True):
        search.fit(X, means[bags], bags=bags, exposure=years)
    assert search.best_params_ == {"ridge": 0.0}


def test_a_fit_that_is_lost_in_noise_predicts_the_mean_rate():
    X, years, y = claims(200)
    start = bw.BaggedGLM("poisson", ridge=1e9).fit(X, y, exposure=years)
    assert np.exp(start.intercept_) == pytest.approx(y.sum() / years.sum(), rel=1e-4)


def test_what_cannot_be_is_refused():
    X, years, y = claims(60)
    for family in ("gaussian", "bernoulli"):
        with pytest.raises(StrategyError, match="exposure multiplies"):
            bw.BaggedGLM(family).fit(X, (y > 0) + 0.0, exposure=years)
    with pytest.raises(StrategyError, match="classes have several"):
        bw.BaggedGLM("multinomial").fit(X, np.minimum(y, 1).astype(int), offset=years)
    with pytest.raises(StrategyError, match="mixture"):
        bw.BaggedGLM("poisson", "mixture", label_kind="pick").fit(X, y, exposure=years)
    with pytest.raises(BagsError, match="positive in every row"):
        bw.BaggedGLM("poisson").fit(X, y, exposure=years - years.min())
    with pytest.raises(BagsError, match="one per row"):
        bw.BaggedGLM("poisson").fit(X, y, exposure=years[:-1])
    with pytest.raises(BagsError, match="finite"):
        bw.BaggedGLM("poisson").fit(X, y, offset=np.inf)
