"""Few large bags without noise: the likelihood by hand, what it learns, and when it is used."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import check_grad
from scipy.special import expit

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import StrategyError
from bagwise.glm.design import Design
from bagwise.learn.few_bags import BagLikelihood


def likelihood(classes, *, spread=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) * [1.0, 5.0, 0.2] + 2
    index = np.repeat(np.arange(3), [10, 20, 30])
    shares = 0.9 * rng.dirichlet(np.ones(classes), size=3) + 0.1 / classes
    if not spread:
        shares = np.tile(shares[0], (3, 1))
    weight = np.array([1.0, 2.0, 1.5])
    design = Design.of(X, weight[index], fit_intercept=True)
    return BagLikelihood(design, Bags.from_labels(index), weight[index], shares), X, index


@pytest.mark.parametrize("classes", [2, 3])
def test_loss_is_the_likelihood_added_up_row_by_row(classes):
    known, X, index = likelihood(classes)
    beta = np.random.default_rng(1).normal(size=(4, classes - 1))
    weight = np.array([1.0, 2.0, 1.5])
    size = weight * [10, 20, 30]
    mean = size @ known.shares / size.sum()
    spread = sum(
        size[j] * (known.shares[j, c] - mean[c]) ** 2 / mean[c]
        for j in range(3)
        for c in range(classes)
    )
    kept = max(0.0, 1 - 2 * (classes - 1) / spread)
    lift = (mean + kept * (known.shares - mean)) / mean
    standard = (X - known.design.center) / known.design.scale
    expected, inside = 0.0, np.zeros((3, classes))
    for x, j in zip(standard, index, strict=True):
        odds = np.exp(np.append(0.0, x @ beta[:-1] + beta[-1]))
        joint = odds / odds.sum() * lift[j]
        expected -= weight[j] * np.log(joint.sum())
        inside[j] += joint / joint.sum() / (index == j).sum()
    expected -= np.sum(size[:, None] * known.shares * np.log(inside))
    among = np.linalg.inv(np.eye(classes - 1) + (classes > 2))
    expected += np.trace(beta[:-1] @ among @ beta[:-1].T) * 3 / 1.5**2 / 2
    assert known.loss(beta.ravel())[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
def test_gradient_is_that_of_the_loss(classes):
    known, _, _ = likelihood(classes)
    beta = np.random.default_rng(2).normal(size=4 * (classes - 1))
    off = check_grad(lambda b: known.loss(b)[0], lambda b: known.loss(b)[1], beta)
    assert off < 1e-4 * np.linalg.norm(known.loss(beta)[1])


def test_bags_with_equal_shares_say_nothing_of_their_rows():
    assert likelihood(2, spread=False)[0].log_lift == pytest.approx(0.0, abs=1e-12)
    assert np.abs(likelihood(2)[0].log_lift).max() > 0.05


def few_bags(seed=0, *, n=6000, d=12):
    """Draw rows that went to six bags by their labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    theta = np.where(np.arange(d) < 4, rng.normal(size=d), 0.0)
    y = rng.random(n) < expit(X @ theta - 1)
    into = np.array([[0.3, 0.25, 0.2, 0.1, 0.1, 0.05], [0.05, 0.1, 0.1, 0.2, 0.25, 0.3]])
    bags = np.array([rng.choice(6, p=into[int(label)]) for label in y])
    shares = np.bincount(bags, y) / np.bincount(bags)
    return X, shares, bags, y, theta


def agreement(theta, coef):
    return float(theta @ coef / np.linalg.norm(theta) / np.linalg.norm(coef))


def test_labels_that_chose_the_bags_are_learnt_from_six_of_them():
    X, shares, bags, y, theta = few_bags()
    model = bw.BaggedGLM("bernoulli").fit(X, shares[bags], bags=bags)
    assert agreement(theta, model.coef_) > 0.98
    assert np.linalg.norm(model.coef_) == pytest.approx(np.linalg.norm(theta), rel=0.2)
    assert np.mean(model.predict_class(X) == y) > 0.75
    # Six shares alone do not determine twelve slopes.
    with pytest.warns(bw.BagwiseWarning):
        alone = bw.BaggedGLM("bernoulli", ridge=0).fit(X, shares[bags], bags=bags)
    assert agreement(theta, alone.coef_) < agreement(theta, model.coef_) - 0.02


def test_shares_of_other_bags_teach_nothing():
    X, shares, bags, _, theta = few_bags()
    mixed = shares[[3, 0, 4, 1, 5, 2]]
    model = bw.BaggedGLM("bernoulli").fit(X, mixed[bags], bags=bags)
    assert agreement(theta, model.coef_) < 0.9


def test_classes_follow_the_shares_and_chances_add_up_to_them():
    X, shares, bags, y, _ = few_bags()
    model = bw.BaggedGLM("bernoulli").fit(X, shares[bags], bags=bags)
    assert model.predict_class(X).sum() == y.sum()
    assert model.predict(X).mean() == pytest.approx(y.mean(), abs=1e-5)
    by_half = bw.BaggedGLM("bernoulli", threshold=0.5).fit(X, shares[bags], bags=bags)
    assert by_half.threshold_ == 0.5
    assert np.array_equal(by_half.predict_class(X), by_half.predict(X) > 0.5)
    assert model.summary().standard_error is None
    assert "fewer than five bags" in model.summary().note


def test_bags_that_follow_features_alone_do_not_make_chances_too_sure():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, 12))
    chance = expit(0.7 * X[:, 0] + 0.5 * X[:, 1] - 1)
    y = rng.random(6000) < chance
    bags = np.digitize(X[:, 0] + 0.3 * X[:, 2] + 0.3 * rng.normal(size=6000), [-1, 0, 1])
    shares = np.bincount(bags, y) / np.bincount(bags)
    model = bw.BaggedGLM("bernoulli").fit(X, shares[bags], bags=bags)
    in_bags = np.bincount(bags, model.predict(X)) / np.bincount(bags)
    assert np.std(in_bags) < 1.05 * np.std(shares)


@pytest.mark.parametrize("by", ["chance", "label", "feature"])
def test_few_bags_of_counts_are_shrunk_as_far_as_sampling_hides_slopes(by):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 20))
    mean = np.exp(0.5 + X @ rng.normal(scale=0.15, size=20))
    y = rng.poisson(mean)
    noise = rng.normal(size=4000)
    order = {"chance": noise, "label": y + noise, "feature": X[:, 0]}
    bags = np.argsort(np.argsort(order[by])) // 400
    labels = (np.bincount(bags, y) / 400)[bags]
    shrunk = bw.BaggedGLM("poisson").fit(X, labels, bags=bags)
    with pytest.warns(bw.BagwiseWarning):
        alone = bw.BaggedGLM("poisson", ridge=0).fit(X, labels, bags=bags)
    off = [np.mean((model.predict(X) - mean) ** 2) for model in (shrunk, alone)]
    assert off[0] < 2 * np.var(mean)
    assert off[0] < 0.9 * off[1]


def test_three_classes_that_chose_the_bags_are_learnt():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6000, 6))
    odds = np.exp(np.column_stack([np.zeros(6000), 1.5 * X[:, 0], 1.5 * X[:, 1]]))
    chances = odds / odds.sum(axis=1, keepdims=True)
    y = (rng.random((6000, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    into = np.array([[0.6, 0.1, 0.1, 0.2], [0.1, 0.6, 0.1, 0.2], [0.1, 0.1, 0.6, 0.2]])
    bags = np.array([rng.choice(4, p=into[label]) for label in y])
    shares = np.array([np.mean(y[bags == j][:, None] == np.arange(3), axis=0) for j in range(4)])
    model = bw.BaggedGLM("multinomial").fit(X, shares[bags], bags=bags)
    truth = np.zeros((2, 6))
    truth[0, 0] = truth[1, 1] = 1.5
    assert agreement(truth.ravel(), model.coef_.ravel()) > 0.98
    assert model.predict(X).mean(axis=0) == pytest.approx(np.bincount(y) / 6000, abs=1e-5)


def test_weights_count_rows_as_often_as_they_say():
    X, shares, bags, _, _ = few_bags(n=400)
    twice = bw.BaggedGLM("bernoulli").fit(
        np.tile(X, (2, 1)), np.tile(shares[bags], 2), bags=np.tile(bags, 2)
    )
    weighted = bw.BaggedGLM("bernoulli").fit(
        X, shares[bags], bags=bags, sample_weight=np.full(400, 2.0)
    )
    np.testing.assert_allclose(twice.coef_, weighted.coef_, atol=1e-3)


def test_many_bags_noisy_bags_and_a_chosen_ridge_are_fitted_as_ever():
    X, shares, bags, _, _ = few_bags(n=3000, d=2)
    many = np.arange(3000) // 30
    means = np.bincount(many, shares[bags]) / 30
    model = bw.BaggedGLM("bernoulli").fit(X, means[many], bags=many)
    assert model.covariance_ is not None
    assert model.threshold_ == 0.5
    noisy = bw.BaggedGLM("bernoulli").fit(X, shares[bags], bags=bags, noise_sd=0.05)
    assert "fewer than five bags" not in noisy.note_
    by_shares = bw.BaggedGLM("bernoulli", threshold="shares").fit(X, means[many], bags=many)
    assert by_shares.predict_class(X).mean() == pytest.approx(means.mean(), abs=1e-3)
    for wrong in (-0.1, 1.5):
        with pytest.raises(StrategyError, match="threshold"):
            bw.BaggedGLM("bernoulli", threshold=wrong).fit(X, means[many], bags=many)
    assert not hasattr(bw.BaggedGLM("poisson"), "predict_class")


def test_a_saved_model_keeps_its_threshold(tmp_path):
    X, _, _, y, _ = few_bags(n=2000, d=4)
    table = pa.table({**{f"x{i}": X[:, i] for i in range(4)}, "y": y.astype(float)})
    release = bw.make_release(table, label="y", bag_size=200, strategy="kmeans", not_private=True)
    model = bw.fit_release(release, family="bernoulli")
    assert model.trained_on.threshold is not None
    kept = bw.load_model(model.save(tmp_path / "model.json"))
    assert kept.trained_on.threshold == model.trained_on.threshold
    assert np.array_equal(kept.predict_class(table), model.predict_class(table))
    assert kept.predict_class(table).sum() == pytest.approx(y.sum(), abs=2)
