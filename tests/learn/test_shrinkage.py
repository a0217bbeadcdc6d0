"""Fits that know their noise: the penalty, the likelihood of the noise, and what intervals mean."""

import dataclasses
import warnings

import numpy as np
import pyarrow as pa
import pytest
from scipy import linalg, optimize
from scipy import stats as distributions

import bagwise as bw
from bagwise.errors import (
    ModelFileError,
    NoEvidenceWarning,
    NotConvergedWarning,
    StrategyError,
)
from bagwise.families import find_family
from bagwise.glm.shrinkage import SlopePrior, choose, solve_shrunk
from bagwise.learn.bag_data import read_bags
from bagwise.learn.exact_noise import NoisyLabels
from bagwise.learn.fitting import Setting, problem_of
from bagwise.privacy.laws import Laplace
from bagwise.privacy.noise_laws import information, log_density


def noisy(n=2000, d=4, size=20, noise=3.0, *, seed=0, theta_sd=0.5, law="gaussian"):
    """Rows in compact bags, labels of a linear model, and noise on their means."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ np.linalg.cholesky(0.5 * np.eye(d) + 0.5).T
    bags = bw.make_bags(X, bag_size=size, strategy="kmeans", seed=0)
    theta = theta_sd * rng.normal(size=d)
    y = X @ theta + 1.0 + rng.normal(size=n)
    sd = noise / bags.sizes
    draws = rng.laplace(size=bags.n_bags) / np.sqrt(2)
    if law == "gaussian":
        draws = rng.normal(size=bags.n_bags)
    return X, bags, bags.mean(y) + sd * draws, sd, theta


def fit(X, bags, labels, sd, **parameters):
    model = bw.BaggedGLM(**parameters)
    return model.fit(X, labels[bags.index], bags=bags, noise_sd=sd[bags.index])


def problem_for(X, bags, labels, sd):
    """The equations of bag loss, where they begin, and what is believed of slopes."""
    data = read_bags(X, labels[bags.index], bags=bags, noise_sd=sd[bags.index])
    setting = Setting(data, find_family("gaussian"), "mean", "known-noise", True, "auto")
    problem = problem_of(setting, "bag")
    start = problem.constant_start()
    return problem, start, SlopePrior.of(problem, X, start)


def belief(X, importance=None):
    """Covariance of slopes for a variance of 1: white coordinates, as close to features as can be.

    By the root of the correlation matrix, which is symmetric; the fit takes its eigenvectors.
    """
    root = linalg.sqrtm(np.corrcoef(X.T)).real
    sizes = np.eye(X.shape[1]) if importance is None else np.diag(importance)
    back = np.linalg.inv(np.diag(X.std(axis=0)) @ root)
    return back.T @ sizes @ back


def restricted_likelihood(X, bags, labels, sd, phi, variance, importance=None):
    """Minus twice its logarithm by the definition: an error contrast with dense matrices."""
    centroids = bags.mean(X)
    V = np.diag(phi / bags.sizes + sd**2)
    V += variance * centroids @ belief(X, importance) @ centroids.T
    contrast = np.linalg.svd(np.ones((1, bags.n_bags)))[2][1:]
    found = distributions.multivariate_normal(cov=contrast @ V @ contrast.T)
    return -2 * found.logpdf(contrast @ labels)


def test_spectrum_is_the_restricted_likelihood():
    X, bags, labels, sd, _ = noisy(n=600)
    problem, start, prior = problem_for(X, bags, labels, sd)
    working = problem.working(start)
    values = [
        (phi, variance, working.spectrum(prior.basis, prior.free, phi).objective(np.log(variance)))
        for phi in (0.5, 1.0, 2.0)
        for variance in (0.01, 0.3, 4.0)
    ]
    ours = np.array([value + np.log(variance) for _, variance, value in values])
    exact = [restricted_likelihood(X, bags, labels, sd, p, v) for p, v, _ in values]
    np.testing.assert_allclose(ours - ours[0], np.array(exact) - exact[0], rtol=1e-8, atol=1e-7)


def test_penalty_is_where_the_labels_are_most_likely():
    X, bags, labels, sd, _ = noisy()
    problem, start, prior = problem_for(X, bags, labels, sd)
    phi, prior = choose(problem.working(start), prior)

    def objective(at):
        return restricted_likelihood(X, bags, labels, sd, *np.exp(at)) - at[1]

    best = optimize.minimize(objective, np.log([phi, prior.variance]), method="Nelder-Mead")
    np.testing.assert_allclose(np.exp(best.x), [phi, prior.variance], rtol=0.05)
    assert objective(np.log([phi, prior.variance])) < best.fun + 1e-3
    # The twin: the penalty of slopes half as large is a worse one.
    assert objective(np.log([phi, prior.variance / 4])) > best.fun + 0.1


def test_shrunken_slopes_are_the_posterior_mean():
    X, bags, labels, sd, _ = noisy(noise=8.0)
    model = fit(X, bags, labels, sd)
    shrunk = solve_shrunk(*problem_for(X, bags, labels, sd))
    C = np.column_stack([bags.mean(X), np.ones(bags.n_bags)])
    W = 1 / (shrunk.solution.problem.phi / bags.sizes + sd**2)
    P = np.zeros((5, 5))
    P[:4, :4] = np.cov(X.T, bias=True) / shrunk.prior.variance
    expected = np.linalg.solve(C.T @ (C * W[:, None]) + P, C.T @ (W * labels))
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, rtol=1e-6)
    np.testing.assert_allclose(
        model.posterior_covariance_, np.linalg.inv(C.T @ (C * W[:, None]) + P), rtol=1e-6
    )
    plain = np.linalg.solve(C.T @ (C * W[:, None]), C.T @ (W * labels))
    np.testing.assert_allclose(model.unshrunk_, plain, rtol=1e-6)
    assert np.linalg.norm(model.coef_) < np.linalg.norm(plain[:4])


def strong(noise=50.0, d=20):
    """Labels that follow one of twenty features."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3000, d))
    X[:, 1] += 0.5 * X[:, 0]
    bags = bw.make_bags(X, bag_size=20, strategy="kmeans", seed=0)
    theta = 3.0 * (np.arange(d) == 5)
    sd = noise / bags.sizes
    labels = bags.mean(X @ theta + rng.normal(size=3000)) + sd * rng.normal(size=bags.n_bags)
    return X, bags, labels, sd, theta


def test_a_strong_feature_is_not_held_back_by_the_others():
    X, bags, labels, sd, theta = strong()
    shrunk = solve_shrunk(*problem_for(X, bags, labels, sd))
    prior, phi = shrunk.prior, shrunk.solution.problem.phi
    assert prior.importance.argmax() == 5
    assert prior.importance[5] > 10 * np.median(prior.importance)

    # The posterior mean by its definition, and the tau that is most likely.
    C = np.column_stack([bags.mean(X), np.ones(bags.n_bags)])
    W = 1 / (phi / bags.sizes + sd**2)
    P = np.zeros((21, 21))
    P[:20, :20] = np.linalg.inv(prior.variance * belief(X, prior.importance))
    expected = np.linalg.solve(C.T @ (C * W[:, None]) + P, C.T @ (W * labels))
    model = fit(X, bags, labels, sd)
    found = np.append(model.coef_, model.intercept_)
    np.testing.assert_allclose(found, expected, atol=1e-4)

    def unlikely(log_variance):
        values = sd, phi, np.exp(log_variance), prior.importance
        return restricted_likelihood(X, bags, labels, *values) - log_variance

    best = optimize.minimize_scalar(unlikely, bracket=(-3, 0))
    assert np.log(prior.variance) == pytest.approx(best.x, abs=0.05)
    # The twin: with one size for all, the strong slope is cut and the others are not.
    P[:20, :20] = np.linalg.inv(prior.even.variance * belief(X))
    even = np.linalg.solve(C.T @ (C * W[:, None]) + P, C.T @ (W * labels))
    # Over eight draws the ratio is 0.53 with a deviation of 0.10.
    assert np.linalg.norm(model.coef_ - theta) < 0.9 * np.linalg.norm(even[:20] - theta)
    # Intervals are those of slopes of one size, and of unshrunk ones.
    np.testing.assert_allclose(
        model.posterior_covariance_, np.linalg.inv(C.T @ (C * W[:, None]) + P), atol=1e-4
    )
    plain = np.linalg.solve(C.T @ (C * W[:, None]), C.T @ (W * labels))
    np.testing.assert_allclose(model.unshrunk_, plain, atol=1e-4)


def test_features_are_not_told_apart_by_fewer_than_four_labels_for_each():
    X, bags, labels, sd, _ = noisy(n=900, d=12)
    assert bags.n_bags < 48
    assert problem_for(X, bags, labels, sd)[2].features is None


def test_units_of_columns_do_not_matter_for_a_strong_feature():
    X, bags, labels, sd, _ = strong()
    units = 10 ** np.random.default_rng(1).uniform(-3, 3, 20)
    one = fit(X, bags, labels, sd)
    other = fit(X * units + 100.0, bags, labels, sd)
    np.testing.assert_allclose(units * other.coef_, one.coef_, rtol=1e-3, atol=1e-4)


def test_a_feature_that_stands_there_twice_is_one():
    X, bags, labels, sd, _ = strong()
    twice = np.column_stack([X, X[:, 3]])
    one, other = fit(X, bags, labels, sd), fit(twice, bags, labels, sd)
    np.testing.assert_allclose(other.predict(twice), one.predict(X), atol=0.05)


def test_units_and_correlations_of_columns_do_not_matter():
    """As long as no feature stands out."""
    X, bags, labels, sd, _ = noisy(noise=8.0)
    change = np.random.default_rng(5).normal(size=(4, 4))
    one = fit(X, bags, labels, sd)
    other = fit(X @ change + 100.0, bags, labels, sd)
    np.testing.assert_allclose(change @ other.coef_, one.coef_, rtol=1e-4)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli", "multinomial"])
def test_where_labels_say_nothing_every_row_gets_about_the_mean(family):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 6))
    bags = bw.make_bags(X, bag_size=30, strategy="kmeans", seed=0)
    y = {
        "gaussian": rng.normal(10, 1, size=3000),
        "poisson": rng.poisson(10, size=3000).astype(float),
        "bernoulli": (rng.random(3000) < 0.5).astype(float),
        "multinomial": np.eye(3)[rng.integers(3, size=3000)],
    }[family]
    means = bags.mean(y)
    labels = means + 2.0 * rng.normal(size=means.shape)
    plain = bw.BaggedGLM(family, ridge=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bw.BaggedGLM(family).fit(X, labels[bags.index], bags=bags, noise_sd=2.0)
        plain.fit(X, labels[bags.index], bags=bags, noise_sd=2.0)
    spread = np.std(model.predict(X), axis=0).max()
    assert model.converged_
    assert spread < 0.5 * np.std(plain.predict(X), axis=0).max()


def test_classes_are_treated_alike():
    """Which class is the first is a matter of names: chances must not depend on it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    logits = X @ rng.normal(size=(3, 3))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    bags = bw.make_bags(X, bag_size=20, strategy="kmeans", seed=0)
    shares = bags.mean(np.eye(3)[y]) + 0.1 * rng.normal(size=(bags.n_bags, 3))
    found = [
        bw.BaggedGLM("multinomial")
        .fit(X, shares[:, order][bags.index], bags=bags, noise_sd=0.1)
        .predict(X)[:, np.argsort(order)]
        for order in ([0, 1, 2], [2, 0, 1])
    ]
    np.testing.assert_allclose(found[0], found[1], atol=2e-3)


def test_auto_is_no_penalty_where_no_noise_is_known():
    X, bags, labels, _, _ = noisy()
    auto, plain = (
        bw.BaggedGLM(ridge=ridge).fit(X, labels[bags.index], bags=bags) for ridge in ("auto", 0.0)
    )
    np.testing.assert_array_equal(auto.coef_, plain.coef_)
    assert auto.unshrunk_ is None
    with pytest.raises(StrategyError, match="posterior intervals need"):
        auto.summary(intervals="posterior")


def test_exact_likelihood_climbs_to_its_peak():
    X, bags, labels, sd, _ = noisy(law="laplace", n=4000)
    model = fit(X, bags, labels, sd, noise="laplace")
    start = fit(X, bags, labels, sd, noise="gaussian")
    assert model.converged_
    assert not np.allclose(model.coef_, start.coef_, rtol=1e-3)
    label_sd = np.sqrt(model.dispersion_ / bags.sizes)

    def cost(beta):
        off = labels - bags.mean(X) @ beta[:4] - beta[4]
        return -log_density(Laplace(1), off, label_sd, sd)[0].sum()

    here = np.append(model.coef_, model.intercept_)
    best = optimize.minimize(cost, here, method="BFGS")
    # The penalty is weak here: the peak without it is a small part of a standard error away.
    errors = np.sqrt(np.diag(model.covariance_))
    assert np.all(np.abs(best.x - here) < 0.15 * errors)
    by_squares = np.append(start.coef_, start.intercept_)
    assert cost(here) < cost(by_squares)


def test_knowing_the_noise_is_worth_a_third_of_the_bags():
    squares = {"gaussian": 0.0, "laplace": 0.0}
    X, bags, _, sd, theta = noisy(n=4000, size=20, noise=20.0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        y = X @ theta + rng.normal(size=len(X))
        labels = bags.mean(y) + sd * rng.laplace(size=bags.n_bags) / np.sqrt(2)
        for law in squares:
            squares[law] += np.sum((fit(X, bags, labels, sd, noise=law).coef_ - theta) ** 2)
    # The information says 0.68; sums of 240 correlated pairs leave a tenth to chance.
    assert squares["laplace"] < 0.8 * squares["gaussian"]


def skewed(spread, n=6000):
    """Labels of mean 10 + x theta times skewed numbers of mean 1, in bags of ten with noise.

    The numbers are e to the power of a normal with this spread.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    bags = bw.make_bags(X, bag_size=10, strategy="kmeans", seed=0)
    theta = np.array([2.0, -1.0, 0.0])
    y = (10.0 + X @ theta) * np.exp(spread * rng.normal(size=n) - spread**2 / 2)
    sd = 60.0 / bags.sizes
    return X, bags, bags.mean(y) + sd * rng.laplace(size=bags.n_bags) / np.sqrt(2), sd


def test_skewed_labels_are_left_to_least_squares():
    """A likelihood with long tails would take bags with one enormous label for noisy ones."""
    X, bags, labels, sd = skewed(2.0, n=20_000)
    followed, squares = (fit(X, bags, labels, sd, noise=law) for law in ("laplace", "gaussian"))
    np.testing.assert_array_equal(followed.coef_, squares.coef_)
    assert followed.predict(X).mean() == pytest.approx(np.average(labels, weights=bags.sizes), 0.1)


def test_labels_that_are_hardly_skewed_follow_the_noise():
    """The twin: without much skewness the likelihood is worth following."""
    X, bags, labels, sd = skewed(0.2, n=20_000)
    followed, squares = (fit(X, bags, labels, sd, noise=law) for law in ("laplace", "gaussian"))
    assert not np.allclose(followed.coef_, squares.coef_, rtol=1e-3)


def test_a_bag_that_is_far_off_is_no_reason_to_leave_the_likelihood():
    """Of 600 bags one holds labels that were clipped; least squares alone would bend to it."""
    X, bags, labels, sd = skewed(0.2)
    far = int(np.argmax(bags.mean(X) @ np.array([2.0, -1.0, 0.0])))
    labels = labels.copy()
    labels[far] -= 300.0
    followed, squares = (fit(X, bags, labels, sd, noise=law) for law in ("laplace", "gaussian"))
    theta = np.array([2.0, -1.0, 0.0])
    assert np.sum((followed.coef_ - theta) ** 2) < 0.5 * np.sum((squares.coef_ - theta) ** 2)


def test_correction_is_the_step_of_least_squares_without_the_farthest_bags():
    """By solving stacked equations, rows of the belief among them, without the bags that pull."""
    X, bags, labels, sd = skewed(1.0)
    shrunk = solve_shrunk(*problem_for(X, bags, labels, sd))
    phi = 7.0
    noisy_labels = NoisyLabels(shrunk.solution.problem, Laplace(1), shrunk.prior, phi)
    beta = shrunk.solution.beta + 0.3
    found = noisy_labels.correction(beta)

    jacobian, residuals, label = noisy_labels.linear(beta)
    root = 1 / np.sqrt(phi / bags.sizes + sd**2)
    told = np.sqrt(information(Laplace(1), np.sqrt(phi * label.share), sd))
    values, vectors = np.linalg.eigh(shrunk.prior.form)
    believed = (vectors * np.sqrt(np.maximum(values, 0.0))).T

    def move(bags_used, residuals, root=root):
        stacked = np.vstack([jacobian[bags_used] * root[bags_used, None], believed])
        away = beta - shrunk.prior.center
        right = np.concatenate([residuals[bags_used] * root[bags_used], -believed @ away])
        return np.linalg.lstsq(stacked, right)[0], np.linalg.inv(stacked.T @ stacked)

    everyone = np.arange(bags.n_bags)
    still = move(everyone, np.zeros(bags.n_bags))[0]
    pulls = []
    for bag in everyone:
        alone = np.where(everyone == bag, residuals, 0.0)
        step = move(everyone, alone)[0] - still
        pulls.append(np.average((jacobian @ step) ** 2, weights=bags.sizes))
    kept = np.argsort(pulls)[:-6]  # of 600, a hundredth
    step, covariance = move(kept, residuals)
    expected = np.average((jacobian[kept] @ step) ** 2, weights=bags.sizes[kept])
    own, best = (
        np.average(
            np.einsum("ij,jk,ik->i", jacobian[kept], each, jacobian[kept]),
            weights=bags.sizes[kept],
        )
        for each in (covariance, move(kept, residuals, told)[1])
    )
    assert found == pytest.approx((expected, own, own - best), rel=1e-6)


def test_intervals_cover_after_shrinking_and_following_the_noise():
    runs, kinds = 120, ("confidence", "posterior")
    hits, short = np.zeros((2, len(kinds)))
    X, bags, _, sd, _ = noisy(n=3000, size=20, noise=20.0)
    rng = np.random.default_rng(7)
    for _ in range(runs):
        theta = 0.3 * rng.normal(size=4) @ np.linalg.inv(np.linalg.cholesky(np.cov(X.T)))
        y = X @ theta + rng.normal(size=len(X))
        labels = bags.mean(y) + sd * rng.laplace(size=bags.n_bags) / np.sqrt(2)
        model = fit(X, bags, labels, sd, noise="laplace")
        for at, kind in enumerate(kinds):
            found = model.summary(intervals=kind)
            off = np.abs(found.center[:4] - theta)
            reach = (found.interval[:4, 1] - found.interval[:4, 0]) / 2
            hits[at] += np.sum(off < reach)
            short[at] += np.sum(off < 0.6 * reach)
    # 480 intervals, of which those of one run hang together a little.
    assert np.all((hits / (4 * runs) > 0.91) & (hits / (4 * runs) < 0.985))
    assert np.all(short / (4 * runs) < 0.89)


def test_a_mean_that_noise_has_carried_out_of_its_range_is_no_end_of_a_fit():
    """Counts whose noisy mean is -30: the intercept has no finite best value of its own."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 1))
    index = np.arange(200) // 10
    labels = rng.poisson(1.0, size=(20, 10)).mean(axis=1) - 30 + 20 * rng.normal(size=20)
    with pytest.warns(NoEvidenceWarning, match="hides every slope"):
        model = bw.BaggedGLM("poisson").fit(X, labels[index], bags=index, noise_sd=20.0)
    assert model.converged_
    assert np.all((model.predict(X) > 0) & (model.predict(X) < 20))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_choice_that_chases_its_fit_is_ended_by_shrinking_further(monkeypatch, law):
    X, bags, labels, sd, _ = noisy(noise=2.0, law=law)
    usual = fit(X, bags, labels, sd, noise=law)

    def chased(*given, **options):
        found = solve_shrunk(*given, **options)
        return dataclasses.replace(
            found, solution=dataclasses.replace(found.solution, converged=False)
        )

    monkeypatch.setattr("bagwise.learn.fitting.solve_shrunk", chased)
    model = fit(X, bags, labels, sd, noise=law)  # a warning would be an error
    assert model.converged_
    assert np.linalg.norm(model.coef_) <= np.linalg.norm(usual.coef_) * 1.01
    assert np.linalg.norm(model.coef_ - usual.coef_) < 0.1 * np.linalg.norm(usual.coef_)
    assert model.summary().standard_error is not None


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_instance_loss_does_not_run_away_in_the_noise(monkeypatch):
    """Sorted rows, counts, and noise that takes half of the bag labels below zero."""
    far = {}
    for held in (True, False):
        if not held:  # the twin: what came of such fits before
            monkeypatch.setattr("bagwise.glm.solver.Solution.is_sound", lambda *_, **__: True)
        far[held] = 0
        for seed in (6, 7, 24, 37):
            rng = np.random.default_rng(seed)
            X = np.column_stack([rng.normal(size=(2000, 3)), rng.exponential(size=2000) ** 2])
            counts = rng.poisson(np.exp(-1 + 0.3 * X[:, 0]))
            index = np.empty(2000, dtype=np.int64)
            index[np.argsort(X @ [0.3, 0.1, 0.0, 0.0])] = np.arange(2000) // 100
            bags = bw.Bags(index)
            labels = bags.mean(counts) + 0.8 * rng.laplace(size=20)
            model = fit(X, bags, labels, np.full(20, 1.13), family="poisson", loss="instance")
            far[held] += not model.predict(1.5 * X).max() < 1e3
    assert far[True] == 0
    assert far[False] > 0


def test_a_fit_that_gives_up_predicts_the_mean_and_is_not_saved(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 1))
    index = np.arange(200) // 10
    labels = rng.poisson(3.0, size=(20, 10)).mean(axis=1) + rng.normal(size=20)
    monkeypatch.setattr("bagwise.glm.solver.STEPS", 0)
    with pytest.warns(NotConvergedWarning, match="although slopes were shrunk"):
        model = bw.BaggedGLM("poisson").fit(X, labels[index], bags=index, noise_sd=1.0)
    assert np.ptp(model.predict(X)) == 0.0
    assert 0 < model.predict(X)[0] < 5
    assert "every row gets the mean" in str(model.summary())
    from bagwise.models.model import TrainedOn
    from bagwise.models.row_model import RowModel

    kept = RowModel(
        family="poisson",
        loss="bag",
        label="y",
        encoder=bw.Encoder.for_table(pa.table({"x": [0.0, 1.0]}), ["x"]),
        coef=model.coef_,
        intercept=model.intercept_,
        trained_on=TrainedOn(n_rows=200, converged=False),
    )
    path = tmp_path / "model.json"
    with pytest.raises(ModelFileError, match="did not converge"):
        kept.save(path)
    assert not path.exists()
    kept.save(path, force=True)
    assert not bw.RowModel.load(path).trained_on.converged
    fine = dataclasses.replace(kept, trained_on=TrainedOn(n_rows=200))
    fine.save(tmp_path / "fine.json")


def test_sparse_columns_are_not_too_sure():
    """A column that is 1 in one row of a hundred: few residuals must not look like certainty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    X[:, 0] = rng.random(2000) < 0.01
    bags = bw.make_bags(X, bag_size=20, strategy="kmeans", seed=0)
    theta, hits, robust, runs = np.array([0.5, 0.2, -0.3]), 0, 0, 120
    for _ in range(runs):
        y = rng.poisson(np.exp(1 + X @ theta)).astype(float)
        labels = bags.mean(y)
        for covariance in ("auto", "robust"):
            model = bw.BaggedGLM("poisson", covariance=covariance)
            model.fit(X, labels[bags.index], bags=bags)
            low, high = model.conf_int()[0]
            covered = low < theta[0] < high
            hits += covered and covariance == "auto"
            robust += covered and covariance == "robust"
    assert hits / runs > 0.9
    assert robust <= hits


def test_no_fit_runs_farther_than_the_bounds_of_its_labels():
    """Under noise that hides everything, predictions vary by less than labels can."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8))
    bags = bw.make_bags(X, bag_size=50, strategy="kmeans", seed=0)
    sd = 3000.0 * np.sqrt(2) / (0.001 * bags.sizes)
    spread = {True: [], False: []}
    for _ in range(10):
        labels = 1000.0 + sd * rng.laplace(size=bags.n_bags) / np.sqrt(2)
        for told, found in spread.items():
            model = fit(
                X, bags, labels, sd, noise="laplace", bounds=(0.0, 3000.0) if told else None
            )
            found.append(np.std(model.predict(X)))
    assert max(spread[True]) < 1500
    assert max(spread[False]) > 1500
    with pytest.raises(Exception, match="lo < hi"):
        fit(X, bags, labels, sd, bounds=(3.0, 3.0))


def test_a_column_that_never_differs_gets_no_slope():
    """Rounding is all that could decide it, and a new row that has the level would be lost."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=(600, 3)), np.zeros(600), np.ones(600)])
    bags = np.arange(600) // 6
    y = (X[:, 0] - X[:, 1]).reshape(100, 6).mean(axis=1) + rng.normal(0, 0.1, size=100)
    model = bw.BaggedGLM().fit(X, y[bags], bags=bags, noise_sd=0.1)
    assert np.abs(model.coef_[3:]).max() < 1e-9
    assert abs(model.coef_[0] - 1) < 0.2


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_a_constant_column_does_not_spoil_a_fit_with_noise(family):
    """The mean of many equal entries is off by rounding, which is no spread to divide by."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(27_000, 2)), np.full((27_000, 3), -0.13)])
    bags = np.arange(27_000) // 10
    chance = 1 / (1 + np.exp(-X[:, 0]))
    labels = np.bincount(bags, weights=rng.random(27_000) < chance) / 10
    noisy = labels + rng.normal(scale=0.03, size=labels.size)
    options = {"bags": bags, "noise_sd": 0.03}
    found = bw.BaggedGLM(family).fit(X, noisy[bags], **options)
    without = bw.BaggedGLM(family).fit(X[:, :2], noisy[bags], **options)
    assert found.converged_
    assert np.allclose(found.coef_[:2], without.coef_, rtol=1e-3)
    assert np.abs(found.coef_[2:]).max() < 1e-6
