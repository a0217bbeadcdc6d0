"""Rows that stand for several: the fit is that of rows repeated so often."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.errors import BagsError, StrategyError


def counted(family, seed=0, *, n_bags=120):
    rng = np.random.default_rng(seed)
    bags = np.repeat(np.arange(n_bags), 3)
    X = rng.normal(size=(3 * n_bags, 2))
    counts = rng.integers(1, 9, size=3 * n_bags)
    eta = 0.6 * X[:, 0] - 0.3 * X[:, 1] - 0.2
    full = np.repeat(np.arange(3 * n_bags), counts)
    if family == "multinomial":
        odds = np.exp(np.column_stack([np.zeros_like(eta), eta, -eta]))
        chances = (odds / odds.sum(axis=1, keepdims=True))[full]
        drawn = (rng.random((len(full), 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
        labels = np.eye(3)[np.minimum(drawn, 2)]
    else:
        labels = bw.FAMILIES[family].sample(eta[full], phi=0.5, rng=rng)
    means = np.array([labels[bags[full] == bag].mean(axis=0) for bag in range(n_bags)])
    return X, means, bags, counts, full


@pytest.mark.filterwarnings("ignore:aggregate loss is off")
@pytest.mark.parametrize("noise_sd", [None, 0.1])
@pytest.mark.parametrize("loss", ["bag", "aggregate"])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "multinomial"])
def test_counts_are_rows_repeated(family, loss, noise_sd):
    X, means, bags, counts, full = counted(family)
    model = bw.BaggedGLM(family, loss)
    short = model.fit(X, means[bags], bags=bags, counts=counts, noise_sd=noise_sd)
    expected, errors = short.coef_.copy(), short.covariance_
    long = bw.BaggedGLM(family, loss).fit(
        X[full], means[bags][full], bags=bags[full], noise_sd=noise_sd
    )
    np.testing.assert_allclose(expected, long.coef_, rtol=1e-5, atol=1e-7)
    if errors is not None:
        np.testing.assert_allclose(errors, long.covariance_, rtol=1e-3, atol=1e-9)
    without = bw.BaggedGLM(family, loss).fit(X, means[bags], bags=bags, noise_sd=noise_sd)
    assert np.abs(without.coef_ - long.coef_).max() > 1e-3


def test_counts_of_few_large_bags_are_rows_repeated():
    X, means, bags, counts, full = counted("bernoulli", n_bags=8)
    short = bw.BaggedGLM("bernoulli").fit(X, means[bags], bags=bags, counts=counts)
    long = bw.BaggedGLM("bernoulli").fit(X[full], means[bags][full], bags=bags[full])
    np.testing.assert_allclose(short.coef_, long.coef_, atol=1e-3)
    np.testing.assert_allclose(short.predict(X), long.predict(X), atol=1e-3)


def test_impossible_counts_are_refused():
    X, means, bags, counts, _ = counted("bernoulli")
    model, y = bw.BaggedGLM("bernoulli"), means[bags]
    with pytest.raises(BagsError, match="one for each row"):
        model.fit(X, y, bags=bags, counts=counts[:-1])
    with pytest.raises(BagsError, match="not negative"):
        model.fit(X, y, bags=bags, counts=-counts)
    with pytest.raises(BagsError, match="no row at all"):
        model.fit(X, y, bags=bags, counts=np.where(bags == 0, 0, counts))
    with pytest.raises(StrategyError, match="counts belong"):
        bw.BaggedGLM("bernoulli", "instance").fit(X, y, bags=bags, counts=counts)
