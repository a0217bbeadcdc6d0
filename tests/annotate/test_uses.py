"""Each use of labels against the textbook, and against other libraries."""

import dataclasses

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize, root

from bagwise import BaggedGLM
from bagwise.annotate.bought import Bought
from bagwise.annotate.selection import choose_use, unit_deviance
from bagwise.annotate.uses import USES, best_ridge, try_fit
from bagwise.bagging.bags import Bags
from bagwise.errors import ProjectError, StrategyError
from bagwise.families import find_family

N, M = 600, 60


def bought(family="gaussian", *, bags=True, seed=0, signal=1.0, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) @ rng.normal(size=(d, d)) + 3
    eta = signal * (X - X.mean(axis=0)) @ rng.normal(size=d) / np.sqrt(d) / 3
    labels = find_family(family).sample(eta, phi=1.0, rng=rng)
    index = np.repeat(np.arange(M), N // M)
    rows = np.arange(M) * (N // M) + rng.integers(N // M, size=M)
    partition = Bags(index) if bags else None
    return Bought(
        X, rows, labels[rows], find_family(family), np.zeros(M, dtype=np.int64), [partition],
        np.full(M, N / M),
    )  # fmt: skip


EVERY = np.arange(M)


@pytest.mark.parametrize(
    ("family", "peer"),
    [
        ("gaussian", sm.families.Gaussian()),
        ("poisson", sm.families.Poisson()),
        ("bernoulli", sm.families.Binomial()),
    ],
)
def test_rows_and_centroids_as_statsmodels_has_them(family, peer):
    data = bought(family)
    for use, X in (("rows", data.X[data.rows]), ("aggregate", data.bags[0].mean(data.X))):
        found = USES[use].fit(data, EVERY)
        expected = sm.GLM(data.labels, sm.add_constant(X), family=peer).fit(tol=1e-12).params
        assert np.append(found.intercept, found.coef) == pytest.approx(expected, rel=1e-5)


def test_every_row_of_a_bag_is_least_squares_on_repeated_labels():
    data = bought()
    found = try_fit(USES["instance"], data, EVERY)
    Z = np.column_stack([data.X, np.ones(N)])
    expected = np.linalg.lstsq(Z, data.labels[data.bags[0].index])[0]
    assert np.append(found.coef, found.intercept) == pytest.approx(expected)
    assert found.standard_errors is None


def test_a_bag_with_two_labels_has_their_mean():
    data = bought()
    rows = np.append(data.rows, [data.rows[0] + 1 if data.rows[0] < 9 else 0])
    labels = np.append(data.labels, 5.0)
    twice = Bought(
        data.X, rows, labels, data.family, np.zeros(M + 1, dtype=np.int64), data.bags,
        np.ones(M + 1),
    )  # fmt: skip
    found = try_fit(USES["instance"], twice, np.arange(M + 1))
    means = data.labels.copy()
    means[0] = (means[0] + 5.0) / 2
    Z = np.column_stack([data.X, np.ones(N)])
    expected = np.linalg.lstsq(Z, means[data.bags[0].index])[0]
    assert np.append(found.coef, found.intercept) == pytest.approx(expected)


def test_mixture_is_that_of_bagged_glm():
    data = bought()
    found = USES["mixture"].fit(data, EVERY)
    index = data.bags[0].index
    peer = BaggedGLM(loss="mixture", label_kind="pick", ridge=0.0)
    peer.fit(data.X, data.labels[index], bags=index)
    assert found.coef == pytest.approx(peer.coef_)


def test_known_covariance_is_its_inverse_times_the_sample_covariance():
    data = bought()
    found = USES["covariance"].fit(data, EVERY)
    centred = data.X - data.X.mean(axis=0)
    chosen = centred[data.rows] * (data.labels - data.labels.mean())[:, None]
    expected = np.linalg.solve(centred.T @ centred / N, chosen.mean(axis=0))
    assert found.coef == pytest.approx(expected)
    assert found.predictor(data.X).mean() == pytest.approx(data.labels.mean())
    large = dataclasses.replace(data, labels=1e4 * data.labels)
    assert USES["covariance"].fit(large, EVERY).coef == pytest.approx(1e4 * expected)


def test_known_covariance_of_counts_solves_its_equations():
    data = bought("poisson")
    found = USES["covariance"].fit(data, EVERY)
    Z = np.column_stack([data.X, np.ones(N)])
    mean = data.labels.mean()
    centred = (Z - Z.mean(axis=0))[data.rows]
    right = (centred * (data.labels - mean)[:, None]).mean(axis=0)

    def equations(beta):
        return Z.T @ (np.exp(Z @ beta) - mean) / N - right

    peer = root(equations, np.append(np.zeros(4), np.log(mean)), tol=1e-12)
    assert peer.success
    assert np.append(found.coef, found.intercept) == pytest.approx(peer.x, rel=1e-4, abs=1e-6)


def test_all_labels_make_the_semi_supervised_use_the_ordinary_one():
    data = bought()
    rng = np.random.default_rng(4)
    labels = data.X @ np.array([1.0, -1, 2, 0]) + rng.normal(size=N)
    full = Bought(
        data.X, np.arange(N), labels, data.family, np.zeros(N, dtype=np.int64), [None], np.ones(N)
    )
    rows, known = (USES[use].fit(full, np.arange(N)) for use in ("rows", "covariance"))
    assert known.coef == pytest.approx(rows.coef)


def restricted_likelihood(log_ridge, white, y):
    """Return -2 log of the restricted likelihood with sigma profiled out, by dense matrices."""
    m = len(y)
    V = np.eye(m) + white @ white.T / (m * np.exp(log_ridge[0]))
    ones = np.ones((m, 1))
    inverse = np.linalg.inv(V)
    middle = ones.T @ inverse @ ones
    P = inverse - inverse @ ones @ np.linalg.inv(middle) @ ones.T @ inverse
    quadratic = y @ P @ y
    return np.linalg.slogdet(V)[1] + np.log(middle[0, 0]) + (m - 1) * np.log(quadratic)


def test_the_penalty_is_near_the_maximum_of_the_restricted_likelihood():
    data = bought(signal=2.0, seed=5)
    white, y = data.white[data.rows], data.labels
    found = best_ridge(data, EVERY)
    best = minimize(restricted_likelihood, [np.log(found)], args=(white, y)).fun
    here, off = (restricted_likelihood([np.log(r)], white, y) for r in (found, 30 * found))
    # The choice also knows that a signal of zero is no signal (`theory.restricted`).
    assert best <= here < best + 0.5 < off


def test_shrunk_slopes_are_ridge_regression_in_white_columns():
    data = bought()
    found = USES["shrunk"].fit(data, EVERY)
    white, ridge = data.white[data.rows], best_ridge(data, EVERY)
    centred = white - white.mean(axis=0)
    slopes = np.linalg.solve(
        centred.T @ centred / M + ridge * np.eye(4),
        centred.T @ (data.labels - data.labels.mean()) / M,
    )
    assert found.coef == pytest.approx(data.columns.axes.basis @ slopes)


def test_shrunk_slopes_have_the_intervals_of_those_without_shrinking():
    data = bought(signal=2.0)
    found = choose_use(data, ["shrunk"]).fitted
    rows = USES["rows"].fit(data, EVERY)
    assert found.unshrunk == pytest.approx(np.append(rows.coef, rows.intercept))
    assert found.standard_errors == pytest.approx(rows.standard_errors)
    assert found.coef != pytest.approx(rows.coef)


def test_a_level_without_a_label_takes_no_interval_from_the_other_columns():
    data = bought(signal=2.0)
    rare = np.zeros(N)
    rare[np.setdiff1d(np.arange(N), data.rows)[:3]] = 1
    found = choose_use(
        dataclasses.replace(data, X=np.column_stack([data.X, rare])), ["shrunk"]
    ).fitted
    whole = choose_use(data, ["shrunk"]).fitted
    *slopes, missing, intercept = found.standard_errors
    assert np.isnan(missing)
    counted = np.sqrt((M - 5) / (M - 6))  # the column counts among those that were fitted
    np.testing.assert_allclose([*slopes, intercept], whole.standard_errors * counted)
    assert found.note == whole.note


def test_fewer_labels_than_columns_are_enough_for_shrunk_slopes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 40))
    rows = np.arange(30)
    labels = 2 + X[rows, 0]
    data = Bought(
        X, rows, labels, find_family("gaussian"), np.zeros(30, dtype=np.int64), [None], np.ones(30)
    )
    chosen = choose_use(data)
    assert chosen.use.name == "shrunk"
    assert chosen.fitted.standard_errors is None
    error = np.mean((chosen.fitted.predictor(X) - 2 - X[:, 0]) ** 2)
    assert error < 0.9  # the mean label has 1


def test_shrunk_slopes_are_chosen_unless_another_use_is_better_by_more_than_chance():
    data = bought(signal=3.0)
    chosen = choose_use(data)
    found = {one.use: one for one in chosen.comparisons}
    assert all(one.deviance is not None for one in chosen.comparisons)
    assert chosen.use.name == chosen.comparisons[0].use == "shrunk"
    assert found["shrunk"].error == 0.0
    assert found["rows"].deviance < found["instance"].deviance  # its bags are random ones
    for one in chosen.comparisons[1:]:
        assert found["shrunk"].deviance - one.deviance <= 2 * one.error


def test_a_use_that_is_clearly_better_is_chosen():
    # Labels without noise: the little that shrinking takes is more than chance.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6))
    rows = np.arange(300)
    labels = X[rows] @ np.array([30.0, 0, 0, 0, 0, 0])
    data = Bought(
        X, rows, labels, find_family("gaussian"), np.zeros(300, dtype=np.int64), [None],
        np.ones(300),
    )  # fmt: skip
    chosen = choose_use(data)
    assert chosen.use.name == "rows"
    assert choose_use(data, ["shrunk", "covariance"]).use.name == "shrunk"


def test_a_label_counts_for_the_rows_that_it_stands_for():
    data = bought(signal=3.0)
    heavy = np.where(np.arange(M) < 30, 1e-9, 1.0)
    light = choose_use(dataclasses.replace(data, weights=heavy), ["rows"])
    plain = choose_use(data, ["rows"])
    assert light.comparisons[0].deviance != pytest.approx(plain.comparisons[0].deviance, rel=1e-3)


def test_without_bags_only_uses_of_rows_are_tried():
    chosen = choose_use(bought(bags=False))
    reasons = {one.use: one.reason for one in chosen.comparisons if one.deviance is None}
    assert set(reasons) == {"aggregate", "instance", "mixture"}
    with pytest.raises(ProjectError, match="not chosen from bags"):
        choose_use(bought(bags=False), ["mixture"])
    with pytest.raises(StrategyError, match="unknown use"):
        choose_use(bought(), ["row"])


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_deviance_as_statsmodels_has_it(family):
    rng = np.random.default_rng(0)
    y = {"gaussian": rng.normal(size=9), "poisson": rng.poisson(1.0, 9) * 1.0,
         "bernoulli": rng.integers(0, 2, 9) * 1.0}[family]  # fmt: skip
    means = rng.uniform(0.1, 0.9, 9)
    peer = {"gaussian": sm.families.Gaussian(), "poisson": sm.families.Poisson(),
            "bernoulli": sm.families.Binomial()}[family]  # fmt: skip
    found = unit_deviance(find_family(family), y, means)
    assert found.sum() == pytest.approx(peer.deviance(y, means), rel=1e-9)


def test_classes():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 2))
    codes = (X[:, 0] + 0.3 * rng.normal(size=N) > 0).astype(np.int64) + (X[:, 1] > 1)
    data = Bought(
        X, np.arange(120), codes[:120], find_family("multinomial"), np.zeros(120, dtype=np.int64),
        [None], np.ones(120), n_classes=3,
    )  # fmt: skip
    chosen = choose_use(data)
    right = find_family("multinomial").mean(chosen.fitted.predictor(X)).argmax(axis=1) == codes
    assert right.mean() > np.bincount(codes).max() / N + 0.2
