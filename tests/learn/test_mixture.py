"""The likelihood of picked labels: by brute force, by derivatives, in limits, by simulation."""

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    NotConvergedWarning,
    RankWarning,
    SeparationWarning,
    StrategyError,
)
from bagwise.families import find_family
from bagwise.glm.data import BagData
from bagwise.learn import mixture
from bagwise.learn.fitting import Setting
from bagwise.learn.mixture import PickedRows, Point, fit_mixture
from bagwise.rng import SimulatedNoise
from tests.stats import ALPHA

COEF, INTERCEPT = [1.0, -1.0, 0.6], 0.5
PHI = 0.25


def picks(*, seed=0, n=400, size=4, noise_sd=0.0, coef=None, intercept=None, phi=PHI, equal=False):
    """Draw rows, random bags of about `size` (or just so many), and one picked label for each."""
    rng = np.random.default_rng(seed)
    coef = np.asarray(COEF if coef is None else coef)
    shape = (n, coef.size)
    X = rng.normal(size=shape)
    y = X @ coef + (INTERCEPT if intercept is None else intercept)
    y = rng.normal(y, np.sqrt(phi))
    m = n // size
    index = np.concatenate([np.arange(m), rng.integers(m, size=n - m)])
    if equal or size == 1:
        index = np.arange(n) // size
    bags = Bags(rng.permutation(index))
    chosen = np.empty(m, dtype=int)
    mixed = rng.permutation(n)
    chosen[bags.index[mixed]] = mixed  # the last to be written is as good as any
    noise_sd = np.broadcast_to(noise_sd, m).astype(float)
    labels = y[chosen] + noise_sd * rng.normal(size=m)
    return BagData(X, bags, labels, noise_sd, np.ones(m))


def setting_of(data, *, fit_intercept=True, ridge=0.0):
    names = tuple(f"x{j}" for j in range(data.X.shape[1]))
    return Setting(
        data, find_family("gaussian"), "pick", "known-noise", fit_intercept, ridge, names
    )


def fit(data, **options):
    with warnings.catch_warnings():
        for expected in (RankWarning, NotConvergedWarning):
            warnings.simplefilter("ignore", expected)
        return fit_mixture(setting_of(data, **options))


def plain_rows(data, *, ridge=0.0):
    """Return rows in their own units, with a column of ones."""
    rows = PickedRows.of(setting_of(data, ridge=ridge))
    width = data.X.shape[1] + 1
    return replace(
        rows,
        design=np.column_stack(
            [data.X[np.argsort(data.bags.index, kind="stable")], np.ones(len(data.X))]
        ),
        labels=rows.scale * rows.labels + rows.level,
        noise_sd=rows.scale * rows.noise_sd,
        own=np.eye(width),
        open=np.zeros(width, dtype=bool),
        scale=1.0,
        level=0.0,
    )


TRUTH = np.append(COEF, INTERCEPT)


# --- the likelihood -------------------------------------------------------------------------------


def density_by_hand(label, eta, noise_sd):
    """Return the density of a label at one row, by integrating over its noise."""
    if noise_sd == 0:
        return stats.norm.pdf(label, eta, PHI**0.5)

    def both(y):
        return stats.norm.pdf(y, eta, PHI**0.5) * stats.norm.pdf(label - y, 0, noise_sd)

    return integrate.quad(both, eta - 8, eta + 8, points=[eta, label], epsabs=1e-13)[0]


@pytest.mark.parametrize("noise_sd", [0.0, 0.3, 2.0])
def test_the_likelihood_is_the_mean_density_of_the_rows(noise_sd):
    noise = np.where(np.arange(6) % 3 == 0, 0.0, noise_sd)
    data = picks(n=20, size=3, noise_sd=noise)
    theta = 0.9 * TRUTH
    expected = 0.0
    for bag, label in enumerate(data.labels):
        rows = data.X[data.bags.index == bag]
        densities = [
            density_by_hand(label, float(row @ theta[:-1] + theta[-1]), noise[bag]) for row in rows
        ]
        expected += np.log(np.mean(densities))
    rows = plain_rows(data)
    found = Point.at(rows, theta, PHI).log_likelihood
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("noise_sd", [0.0, 0.3, 2.0])
def test_scores_are_the_gradient(noise_sd):
    data = picks(n=60, size=3, noise_sd=noise_sd)
    rows, theta = plain_rows(data, ridge=0.1), 0.9 * TRUTH

    def value(at):
        return Point.at(rows, at, PHI).objective

    step = 1e-5 * np.eye(theta.size)
    by_differences = [(value(theta + e) - value(theta - e)) / 2e-5 for e in step]
    point = Point.at(rows, theta, PHI)
    gradient = mixture.gradient_and_outer(rows, point)[0][: theta.size]
    np.testing.assert_allclose(gradient, by_differences, rtol=1e-6, atol=1e-6)


# --- the climb ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_noise_that_differs_ends_where_the_adjusted_likelihood_is_flat(ridge):
    """As if both were climbed together, theta and phi."""
    noise = np.where(np.arange(50) % 2, 0.0, 1.0)
    rows = plain_rows(picks(n=200, noise_sd=noise), ridge=ridge)
    end, reached = mixture.climb(rows, Point.at(rows, 0.9 * TRUTH, 1.0))
    assert reached

    def value(q):
        return Point.at(rows, q[:-1], float(np.exp(q[-1]))).objective

    at, step = np.append(end.theta, np.log(end.phi)), 1e-5 * np.eye(5)
    slopes = [(value(at + e) - value(at - e)) / 2e-5 for e in step]
    assert np.abs(slopes).max() < 1e-2


def test_a_climb_ends_higher_and_where_the_gradient_vanishes():
    data = picks(n=800)
    rows = plain_rows(data)
    start = 0.9 * TRUTH * 0.7
    end, reached = mixture.climb(rows, Point.at(rows, start, PHI))
    assert reached
    assert end.objective > Point.at(rows, start, end.phi).objective + 0.1
    scores = mixture.scores_of(rows, end)
    errors = np.sqrt(np.diag(np.linalg.inv(scores.T @ scores)))
    assert np.abs(scores.sum(axis=0) * errors).max() < 1e-3
    assert end.phi == pytest.approx(mixture.dispersion(rows, end), rel=1e-5)


def test_an_em_step_climbs():
    rows = plain_rows(picks())
    point = Point.at(rows, 0.9 * TRUTH * 0.7, PHI)
    scores = mixture.scores_of(rows, point)
    step = mixture.em_step(rows, point, scores.sum(axis=0))[: point.theta.size]
    after = Point.at(rows, point.theta + step / 2, point.phi)
    assert after.objective > point.objective


# --- limits and invariances -----------------------------------------------------------------------


# Only for normal labels does noise leave the likelihood what the variance alone says.
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("noise_sd", [0.0, 0.4])
def test_bags_of_one_row_give_the_ordinary_fit(noise_sd, ridge):
    data = picks(n=2000, size=1, noise_sd=noise_sd)
    found = fit(data, ridge=ridge)
    X, y = data.X, data.labels[data.bags.index]
    usual = bw.BaggedGLM(ridge=ridge).fit(X, y, noise_sd=noise_sd)
    expected = np.append(usual.coef_, usual.intercept_)
    np.testing.assert_allclose(found.table[0], expected, rtol=1e-4, atol=1e-5)
    assert found.converged
    assert found.rank == usual.rank_ == 3
    assert found.freedom == usual.freedom_
    if ridge == 0:
        assert found.dispersion == pytest.approx(usual.dispersion_, rel=1e-3)
        ratio = np.sqrt(np.diag(found.covariance) / np.diag(usual.covariance_))
        np.testing.assert_allclose(ratio, 1.0, atol=0.25)
    assert ("ridge" in found.note) == (ridge > 0)


def test_a_bag_of_weight_two_counts_as_two_and_of_zero_as_none():
    data = picks(n=300)
    m = data.labels.size
    weight = np.resize([0.0, 1.0, 2.0, 3.0], m)
    weighted = fit(replace(data, weight=weight))
    rows, index, labels = [], [], []
    for bag in np.repeat(np.arange(m), weight.astype(int)):
        here = np.flatnonzero(data.bags.index == bag)
        rows.append(here)
        index.append(np.full(here.size, len(labels)))
        labels.append(data.labels[bag])
    copies = BagData(
        data.X[np.concatenate(rows)],
        Bags(np.concatenate(index)),
        np.array(labels),
        np.zeros(len(labels)),
        np.ones(len(labels)),
    )
    repeated = fit(copies)
    np.testing.assert_allclose(weighted.table, repeated.table, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-3, atol=1e-8)
    assert weighted.dispersion == pytest.approx(repeated.dispersion, rel=1e-4)
    assert weighted.freedom == repeated.freedom
    assert f"over {int((weight > 0).sum())} bags" in weighted.note


def test_the_order_of_rows_and_bags_does_not_matter():
    data = picks(n=400)
    rng = np.random.default_rng(9)
    rows, bags = rng.permutation(400), rng.permutation(data.labels.size)
    place = np.argsort(bags)
    moved = replace(
        data, X=data.X[rows], bags=Bags(place[data.bags.index[rows]]), labels=data.labels[bags]
    )
    first, second = fit(data), fit(moved)
    np.testing.assert_allclose(first.table, second.table, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first.covariance, second.covariance, rtol=1e-3, atol=1e-8)


def test_units_of_columns_do_not_matter():
    data = picks(n=400)
    scale, shift = np.array([1e6, -1e-6, 3.0]), np.array([5e6, 2e-6, -4.0])
    first = fit(data)
    second = fit(replace(data, X=data.X * scale + shift))
    np.testing.assert_allclose(
        second.table[0, :-1] * scale, first.table[0, :-1], rtol=1e-4, atol=1e-5
    )
    errors = [np.sqrt(np.diag(found.covariance))[:-1] for found in (first, second)]
    np.testing.assert_allclose(errors[1] * np.abs(scale), errors[0], rtol=1e-3)


def test_units_of_normal_labels_do_not_matter():
    data = picks(n=400, noise_sd=np.resize([0.0, 0.3], 100))
    first = fit(data, ridge=0.1)
    other = replace(data, labels=1e6 * data.labels - 7e6, noise_sd=1e6 * data.noise_sd)
    second = fit(other, ridge=0.1)
    back = second.table[0] / 1e6 + np.array([0, 0, 0, 7.0])
    np.testing.assert_allclose(back, first.table[0], rtol=1e-5, atol=1e-6)
    assert second.dispersion == pytest.approx(1e12 * first.dispersion, rel=1e-5)


def test_constant_and_duplicate_columns_do_no_harm():
    data = picks(n=400)
    X = np.column_stack([data.X, np.full(400, 1e3), data.X[:, 0]])
    first, second = fit(data), fit(replace(data, X=X))
    predicted = [D @ f.table[0, :-1] + f.table[0, -1] for D, f in ((data.X, first), (X, second))]
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=1e-4, atol=1e-4)
    assert (first.rank, second.rank) == (3, 3)
    lost = np.isnan(np.diag(second.covariance))
    assert lost.tolist() == [True, False, False, True, True, True]
    np.testing.assert_allclose(
        np.diag(second.covariance)[[1, 2]], np.diag(first.covariance)[[1, 2]], rtol=1e-3
    )
    model = bw.BaggedGLM("gaussian", "mixture", label_kind="pick")
    with pytest.warns(RankWarning, match="3 of 5 coefficients"):
        model.fit(X, data.labels[data.bags.index], bags=data.bags)


def test_without_an_intercept_a_column_of_ones_is_one():
    data = picks(n=400)
    usual = fit(data)
    ones = replace(data, X=np.column_stack([data.X, np.ones(400)]))
    own = fit(ones, fit_intercept=False)
    assert own.table[0, -1] == 0
    np.testing.assert_allclose(own.table[0, :-1], usual.table[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.covariance[:-1, :-1], usual.covariance, rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("n_bags", [1, 2, 4])
def test_too_few_bags_are_met_without_error_and_that_is_said(n_bags):
    data = picks(n=3 * n_bags, size=3)
    with pytest.warns(SeparationWarning, match="without error") as caught:
        found = fit(data)
    assert np.isfinite(found.table).all()
    assert found.rank <= n_bags
    assert found.covariance is None
    assert found.note.startswith("No intervals")
    assert not any(f"{label:.3f}"[:5] in str(caught[0].message) for label in data.labels)


def test_equal_labels_are_met_without_error():
    data = picks(n=60)
    with pytest.warns(SeparationWarning, match="without error"):
        found = fit(replace(data, labels=np.full(15, 3.0)))
    np.testing.assert_allclose(found.table[0], [0, 0, 0, 3], atol=1e-6)


def test_privacy_noise_alone_can_explain_the_labels():
    data = picks(n=2000, noise_sd=1.0, phi=1e-12)
    found = fit(data)
    assert found.dispersion < 0.1
    off = found.table[0] - TRUTH
    chi = off @ np.linalg.solve(found.covariance, off)
    assert chi < stats.chi2.isf(ALPHA, 4)


def test_labels_with_much_noise_count_for_little():
    noise = np.resize([0.0, 30.0], 400)
    data = picks(n=2000, size=5, noise_sd=noise)
    quiet = replace(data, weight=(noise == 0).astype(float))
    both, alone = fit(data), fit(quiet)
    errors = np.sqrt(np.diag(alone.covariance))
    assert np.all(np.abs(both.table[0] - alone.table[0]) < 0.2 * errors)
    blind = fit(replace(data, noise_sd=np.zeros(400)))
    assert np.any(np.abs(blind.table[0] - alone.table[0]) > 2 * errors)


def test_rows_with_labels_of_their_own_join_the_bags():
    data = picks(n=600)
    own = picks(seed=1, n=50, size=1)
    m = data.labels.size
    joined = BagData(
        np.concatenate([data.X, own.X]),
        Bags(np.concatenate([data.bags.index, own.bags.index + m])),
        np.concatenate([data.labels, own.labels]),
        np.zeros(m + 50),
        np.ones(m + 50),
    )
    alone, both = fit(data), fit(joined)
    assert np.all(np.diag(both.covariance) < np.diag(alone.covariance))


# --- families -------------------------------------------------------------------------------------


def errors_of_both(runs, **options):
    """Return the squared errors of bag loss and of the mixture, (runs, 2)."""
    errors = []
    for seed in range(runs):
        data = picks(seed=seed, **options)
        y = data.labels[data.bags.index]
        noise_sd = data.noise_sd[data.bags.index]
        for loss in ("bag", "mixture"):
            model = bw.BaggedGLM("gaussian", loss, label_kind="pick")
            model.fit(data.X, y, bags=data.bags, noise_sd=noise_sd)
            errors.append(np.sum((model.coef_ - COEF) ** 2))
    return np.reshape(errors, (runs, 2))


def halves_the_error(errors):
    """Whether the second error is less than half the first on average, in logarithms."""
    return bool(np.mean(np.log(errors[:, 0] / errors[:, 1])) > np.log(2))


# The weights of bag loss follow its coefficients, and on normal picks may not settle.
@pytest.mark.filterwarnings("ignore::bagwise.errors.NotConvergedWarning")
def test_the_mixture_is_closer_than_bag_loss():
    assert halves_the_error(errors_of_both(12, n=4000, size=8))


def test_the_check_for_closer_fits_can_fail():
    assert not halves_the_error(errors_of_both(4, n=2000, size=1))


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gamma", "multinomial"])
def test_other_families_are_sent_to_bag_loss(family):
    rng = np.random.default_rng(0)
    model = bw.BaggedGLM(family, "mixture", label_kind="pick")
    bags = np.repeat(np.arange(10), 2)
    labels = bags % 3 if family == "multinomial" else np.ones(20)
    with pytest.raises(StrategyError, match="Set loss='bag'"):
        model.fit(rng.normal(size=(20, 2)), labels, bags=bags)


# --- the whole estimator --------------------------------------------------------------------------


@parametrize_with_checks([bw.BaggedGLM(loss="mixture", label_kind="pick")])
@pytest.mark.filterwarnings("ignore::bagwise.errors.RankWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_from_a_release_to_a_model():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 2))
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": X @ [2.0, -1.0] + rng.normal(0, 0.2, 3000)})
    release = bw.make_release(
        table,
        label="y",
        bag_size=6,
        bagging=bw.Bagging(label_kind="pick", seed=0),
        strategy="random",
        not_private=True,
        privacy=bw.Privacy(noise_source=SimulatedNoise(0)),
    )
    model = bw.fit_release(release, loss="mixture")
    assert model.loss == "mixture"
    assert model.standard_errors is not None
    rough = bw.fit_release(release, loss="bag")
    error = [np.std(m.predict(table) - X @ [2.0, -1.0]) for m in (model, rough)]
    assert error[0] < 0.05 < error[1]
    assert "outer product of the scores, over 500 bags." in model.note


def test_the_covariance_is_the_inverse_of_the_scores_outer_product():
    data = picks(n=400, noise_sd=np.resize([0.0, 0.5], 100))
    data = replace(data, X=data.X * [1.0, 100.0, 0.01] + [0.0, 3.0, 5.0])
    found = fit(data)
    rows = plain_rows(data)
    point = Point.at(rows, found.table[0], found.dispersion)
    by_phi = [
        Point.at(rows, point.theta, found.dispersion * np.exp(step)) for step in (1e-5, -1e-5)
    ]
    scores = np.column_stack([mixture.scores_of(rows, point), mixture.scores_by_scale(rows, point)])
    slope = (by_phi[0].log_likelihood - by_phi[1].log_likelihood) / 2e-5
    assert scores[:, -1].sum() == pytest.approx(slope, abs=1e-4)
    expected = np.linalg.inv(scores.T @ scores)[:-1, :-1] * 100 / (100 - 4)
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-6)


def test_a_climb_that_was_cut_short_is_said_to_be(monkeypatch):
    monkeypatch.setattr(mixture, "_TRIAL", 0)
    monkeypatch.setattr(mixture, "_MOST", 1)
    data = picks()
    model = bw.BaggedGLM("gaussian", "mixture", label_kind="pick")
    with pytest.warns(NotConvergedWarning):
        model.fit(data.X, data.labels[data.bags.index], bags=data.bags)
    assert not model.converged_
    assert model.note_ == "No intervals: the fit did not converge."


def test_intervals_from_few_bags_carry_a_remark():
    few, many = fit(picks(n=300)), fit(picks(n=600))
    assert "fewer than 30 bags for each coefficient" in few.note
    assert "fewer" not in many.note
    assert few.freedom == 75 - 4


# --- at the paper's setting -----------------------------------------------------------------------


def paper_errors(seeds, *, size, loss="mixture"):
    """Return |coef - theta|^2, and the same in units of its covariance, for each seed."""
    found = []
    for seed in seeds:
        coef = np.random.default_rng(seed).normal(size=32)
        model = {"coef": coef, "intercept": 0.0}
        data = picks(seed=seed, n=50_000, size=size, equal=True, **model)
        fitted = bw.BaggedGLM(loss=loss, label_kind="pick")
        fitted.fit(data.X, data.labels[data.bags.index], bags=data.bags)
        off = fitted.coef_ - coef
        found.append((off @ off, off @ np.linalg.solve(fitted.covariance_[:-1, :-1], off)))
    return np.array(found).T


def test_at_the_papers_setting_errors_are_what_the_intervals_say():
    errors, chi = paper_errors(range(3), size=10)
    # A sum over three runs has 96 degrees of freedom.
    assert chi.sum() < stats.chi2.isf(ALPHA, 96)
    assert errors.mean() < 0.004
    errors, _ = paper_errors([0], size=10, loss="bag")
    assert errors[0] > 0.04


@pytest.mark.slow
def test_at_the_papers_setting_with_ten_rows_in_a_bag():
    errors, _ = paper_errors(range(15), size=10)
    assert errors.mean() <= 0.004


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.errors.NotConvergedWarning")
def test_at_the_papers_setting_with_fifty_rows_in_a_bag():
    # Of 60 other runs 13 had an error above 0.10, so that a median of 15 is above it in 0.7 % of
    # draws; these draws are fixed. Three of the 60 were stuck, which is why it is not the mean.
    errors, _ = paper_errors(range(15), size=50)
    assert np.median(errors) <= 0.10
    errors, _ = paper_errors(range(3), size=50, loss="bag")
    assert np.median(errors) > 0.3


def test_a_maximum_that_chance_explains_is_not_believed_at_once():
    # Where the first two starts meet in such a maximum, the error is 7 or 15. Rounding decides
    # which way a start takes, so that machines differ: here, eight of ten are found.
    found = 0
    for seed in range(2, 12):
        coef = np.random.default_rng(seed).normal(size=10)
        best = fit(picks(seed=seed, n=10_000, size=40, coef=coef))
        found += np.sum((best.table[0, :-1] - coef) ** 2) < 0.5
    assert found >= 6


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_search_that_found_nothing_says_so(shuffled):
    said = 0
    for seed in range(4):
        coef = np.random.default_rng(seed).normal(size=32)
        data = picks(seed=seed, n=10_000, size=20, coef=coef)
        order = np.random.default_rng(seed).permutation(data.labels.size)
        found = fit(replace(data, labels=data.labels[order]) if shuffled else data)
        lost = found.note.startswith("No intervals: the search ended")
        assert found.converged == (not lost)
        assert (found.covariance is None) == lost
        said += lost
    # Not each time: on some shuffled labels all starts agree that there is nothing.
    assert said >= 3 if shuffled else said == 0


# --- intervals ------------------------------------------------------------------------------------


def hits(runs, *, shrink=1.0, **options):
    """Return how many 95 % intervals hold the truth, and how many there are."""
    truth, inside = TRUTH, 0
    for seed in range(runs):
        data = picks(seed=1000 + seed, **options)
        model = bw.BaggedGLM("gaussian", "mixture", label_kind="pick")
        noise_sd = data.noise_sd[data.bags.index]
        model.fit(data.X, data.labels[data.bags.index], bags=data.bags, noise_sd=noise_sd)
        low, high = model.conf_int().T
        middle, half = (low + high) / 2, shrink * (high - low) / 2
        inside += int(np.sum(np.abs(truth - middle) <= half))
    return inside, runs * truth.size


def covers(inside, number):
    low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], number, 0.95)
    return bool(low <= inside <= high)


@pytest.mark.slow
def test_intervals_hold_the_truth():
    assert covers(*hits(200, n=4000, size=5))
    assert not covers(*hits(200, n=4000, size=5, shrink=0.75))


@pytest.mark.slow
def test_intervals_hold_the_truth_under_privacy_noise():
    assert covers(*hits(200, n=4000, size=5, noise_sd=1.0))
