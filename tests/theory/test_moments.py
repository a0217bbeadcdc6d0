"""The expected error under a prior: against brute force and simulation, each with a twin."""

import numpy as np
import pytest

from bagwise.bagging.bags import Bags
from bagwise.rows.whitening import Columns
from bagwise.theory.beliefs import draw_misfit, signal_root
from bagwise.theory.exact import BagMoments, exact_risk, prior_risk
from tests import stats

SIGNAL, LABEL_NOISE, MISFIT = 1.5, 0.7, 0.4


def features(n=1500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5


def bags_of(n, size, seed=1):
    order = np.random.default_rng(seed).permutation(n)
    return Bags.from_labels(np.minimum(order // size, n // size - 2))


def sorted_bags(x, size):
    """Bags of neighbours along one column: compact, so that misfit matters."""
    index = np.empty(len(x), dtype=int)
    index[np.argsort(x)] = np.minimum(np.arange(len(x)) // size, len(x) // size - 1)
    return Bags(index)


@pytest.mark.parametrize("kind", ["mean", "pick"])
def test_with_a_strong_signal_it_is_the_mean_of_exact_risks(kind):
    """Then nothing is shrunk, and each direction of theta has its own exact risk."""
    X = features(400)
    white, bags = Columns(X).white_rows(), bags_of(400, 7)
    signal = SIGNAL if kind == "pick" else 1e5
    sd = 3.0 / bags.sizes
    found = prior_risk(
        BagMoments.of(white, bags), signal_sd=signal, label_noise_sd=LABEL_NOISE, label_kind=kind,
        noise_sd=sd,
    )  # fmt: skip
    rows = np.column_stack([white, np.ones(400)])
    exact = [
        exact_risk(
            rows, bags, theta=signal * unit, label_noise_sd=LABEL_NOISE, label_kind=kind,
            loss="bag", noise_sd=sd, weights="known-noise", error="predictions",
        )
        for unit in np.eye(4)[:3]
    ]  # fmt: skip
    for part in ("bias", "label_noise", "privacy", "choice"):
        mean = np.mean([getattr(risk, part) for risk in exact])
        if kind == "pick":
            # Weights of picks follow theta itself there, and the fit shrinks here.
            assert getattr(found, part) <= 1.35 * mean + (part == "bias")
        else:
            assert getattr(found, part) == pytest.approx(mean, rel=1e-6, abs=1e-7)


def posterior_mean(centroids, omega, labels):
    """The textbook form, by the covariance of the labels: none of the matrices of the module."""
    m, slopes = centroids.shape[0], centroids.shape[1] - 1
    wide = 1e8 * SIGNAL**2  # a prior for the intercept that says nothing
    prior = np.diag([*np.full(slopes, SIGNAL**2 / slopes), wide])
    covariance = centroids @ prior @ centroids.T + np.diag(omega)
    return prior @ centroids.T @ np.linalg.solve(covariance, labels.reshape(m, -1))


def simulate(kind, size, draws=4000, seed=3):
    """Squared errors of the posterior mean, with theta, misfit and all noise drawn."""
    rng = np.random.default_rng(seed)
    X = features(240)
    white = Columns(X).white_rows()
    bags = sorted_bags(X[:, 0], size)
    functions = draw_misfit(white, np.random.default_rng(0))
    moments = BagMoments.of(white, bags, functions)
    noise_sd = 2.0 / bags.sizes
    risk = prior_risk(
        moments, signal_sd=SIGNAL, label_noise_sd=LABEL_NOISE, label_kind=kind,
        misfit=MISFIT, noise_sd=noise_sd,
    )  # fmt: skip
    n, r = white.shape
    theta = np.vstack([SIGNAL / np.sqrt(r) * rng.standard_normal((r, draws)), np.full(draws, 4.0)])
    expected = np.column_stack([white, np.ones(n)]) @ theta
    which = rng.integers(functions.shape[1], size=draws)
    expected += np.sqrt(MISFIT) * SIGNAL * functions[:, which]
    rows = expected + LABEL_NOISE * rng.standard_normal((n, draws))
    if kind == "mean":
        labels = np.stack([rows[bags.index == b].mean(axis=0) for b in range(bags.n_bags)])
        choice, label_noise = 0.0, LABEL_NOISE**2 / bags.sizes
    else:
        members = [np.flatnonzero(bags.index == b) for b in range(bags.n_bags)]
        picked = np.stack([rng.choice(inside, size=draws) for inside in members])
        labels = rows[picked, np.arange(draws)]
        choice = moments.spread * SIGNAL**2 + moments.misfit_spread * MISFIT * SIGNAL**2
        label_noise = np.full(bags.n_bags, LABEL_NOISE**2)
    labels = labels + noise_sd[:, None] * rng.standard_normal(labels.shape)
    centroids = np.column_stack([bags.mean(white), np.ones(bags.n_bags)])
    found = posterior_mean(centroids, choice + label_noise + noise_sd**2, labels)
    return np.sum((found - theta) ** 2, axis=0), risk


@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("size", [12, 120])
def test_the_posterior_mean_has_this_error(kind, size):
    """Bags of 120 are two: fewer than coefficients, and still the error is finite."""
    errors, risk = simulate(kind, size)
    assert np.isfinite(risk.total)
    assert risk.bias > 0
    assert risk.misfit > 0
    assert stats.mean_is(errors, risk.total, alpha=1e-6)
    for wrong in (risk.total - risk.misfit, risk.total - risk.bias, 1.25 * risk.total):
        if abs(wrong / risk.total - 1) > 0.2:
            assert not stats.mean_is(errors, wrong, alpha=1e-6)


def test_no_part_of_the_misfit_is_left_out():
    """Bags along one column average what is not linear in it: there misfit is a large part."""
    errors, risk = simulate("mean", 60)
    assert risk.shares()["misfit"] > 0.1
    assert not stats.mean_is(errors, risk.total - risk.misfit, alpha=1e-6)


def test_a_bag_that_is_there_twice_counts_twice():
    """Repeats stand for other bags with noise of their own."""
    X = features(300)
    white = Columns(X).white_rows()
    bags = bags_of(300, 10)
    twice = np.vstack([white, white])
    both = Bags(np.concatenate([bags.index, bags.index + bags.n_bags]))
    given = {"signal_sd": SIGNAL, "label_noise_sd": 0.7, "label_kind": "mean"}
    one = prior_risk(BagMoments.of(white, bags), noise_sd=0.5, repeats=2.0, **given)
    other = prior_risk(BagMoments.of(twice, both), noise_sd=0.5, **given)
    for part in ("bias", "label_noise", "privacy"):
        assert getattr(one, part) == pytest.approx(getattr(other, part), rel=1e-9)


def test_repeated_random_bags_have_the_misfit_of_more_random_bags():
    given = {"signal_sd": 1.0, "label_noise_sd": 1.0, "label_kind": "mean"}
    X = np.random.default_rng(0).normal(size=(12_000, 3))

    def misfit(n, repeats):
        """The mean over several partitions of the first n rows."""
        white = Columns(X[:n]).white_rows()
        functions = draw_misfit(white, np.random.default_rng(0))
        moments = [BagMoments.of(white, bags_of(n, 20, seed), functions) for seed in range(12)]
        risks = [prior_risk(m, misfit=1.0, repeats=repeats, **given) for m in moments]
        return np.mean([risk.misfit for risk in risks])

    whole = misfit(12_000, 1.0)
    assert misfit(3000, 4.0) == pytest.approx(whole, rel=0.35)
    assert misfit(3000, 1.0) > 2.5 * whole  # what a sample without its repeats would say


def test_bags_that_grow_keep_what_bags_of_that_size_keep():
    """Random bags of 5 rows, grown four times, are random bags of 20."""
    X = np.random.default_rng(0).normal(size=(20_000, 4))
    white = Columns(X).white_rows()
    functions = draw_misfit(white, np.random.default_rng(0))
    small = white[:5000]
    grown = BagMoments.of(small, bags_of(5000, 5), functions[:5000]).grown(4.0)
    real = BagMoments.of(white, bags_of(20_000, 20), functions)
    assert grown.sizes.size == pytest.approx(real.sizes.size, abs=2)
    for name in ("spread", "misfit_spread"):
        assert getattr(grown, name).mean() == pytest.approx(getattr(real, name).mean(), rel=0.05)
    for squares in (lambda m: (m.centroids[:, :-1] ** 2).mean(), lambda m: (m.misfit**2).mean()):
        assert squares(grown) == pytest.approx(squares(real), rel=0.2)
        untouched = BagMoments.of(small, bags_of(5000, 5), functions[:5000])
        assert squares(untouched) > 3 * squares(real)


def test_a_prior_without_signal_and_labels_without_noise_are_no_special_cases():
    white, bags = Columns(features(60)).white_rows(), bags_of(60, 6)
    moments = BagMoments.of(white, bags, draw_misfit(white, np.random.default_rng(0)))
    given = {"label_kind": "mean"}
    nothing = prior_risk(moments, signal_sd=0.0, label_noise_sd=1.0, misfit=0.5, **given)
    assert nothing.total == pytest.approx(1.0 / 60, rel=0.1)  # the intercept alone
    exact = prior_risk(moments, signal_sd=1.0, label_noise_sd=0.0, **given)
    assert exact.total < 1e-6


def test_misfit_is_what_no_linear_model_explains():
    rows = Columns(features(2000, d=4)).white_rows()
    found = draw_misfit(rows, np.random.default_rng(0))
    design = np.column_stack([rows, np.ones(2000)])
    assert np.abs(design.T @ found).max() / 2000 < 1e-9
    np.testing.assert_allclose(found.var(axis=0), 1.0)
    # On all rows, and on bags of one row, it moves no coefficient.
    alone = BagMoments.of(Columns(rows).white_rows(), Bags.singletons(2000), found)
    risk = prior_risk(alone, signal_sd=1.0, label_noise_sd=1.0, label_kind="mean", misfit=1.0)
    assert risk.misfit < 1e-12


def test_columns_that_say_everything_leave_no_misfit():
    yes = np.random.default_rng(0).integers(2, size=500).astype(float)
    white = Columns(yes[:, None]).white_rows()
    assert draw_misfit(white, np.random.default_rng(0)).shape == (500, 0)
    assert draw_misfit(np.empty((5, 0)), np.random.default_rng(0)).shape == (5, 0)


def test_whitened_rows_have_unit_covariance_and_drop_what_does_not_vary():
    X = features(300)
    white = Columns(np.column_stack([X, X[:, 0] - X[:, 1], np.ones(300)])).white_rows()
    assert white.shape == (300, 3)
    np.testing.assert_allclose(white.T @ white / 300, np.eye(3), atol=1e-8)


def test_rare_levels_are_thought_to_carry_as_little_as_they_move():
    """Slopes drawn with one size of effect for all levels: variances in proportion to shares."""
    rng = np.random.default_rng(2)
    shares = np.array([0.5, 0.1, 0.01])
    X = (rng.random((40_000, 3)) < shares).astype(float)
    root, white = signal_root(X), Columns(X).white_rows()
    basis = Columns(X).axes.basis
    own = basis @ root @ root.T @ basis.T  # covariance of slopes in own units
    effects = np.diag(own)
    assert effects.max() < 4 * effects.min()
    even = np.diag(basis @ basis.T)  # a hundredfold effect of the rarest, if all alike
    assert even.max() > 15 * even.min()
    signal = white @ root @ rng.standard_normal((3, 400))
    assert np.var(signal, axis=0).mean() == pytest.approx(1.0, rel=0.1)


def test_a_belief_is_in_the_error_where_theta_is_drawn_by_it():
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=600), rng.random((600, 2)) < 0.03])
    white, bags, root = Columns(X).white_rows(), sorted_bags(X[:, 0], 30), signal_root(X)
    moments = BagMoments.of(white, bags, None, root)
    given = {"signal_sd": SIGNAL, "label_noise_sd": 1.0, "label_kind": "mean"}
    risk = prior_risk(moments, noise_sd=0.5, **given)
    draws = 4000
    theta = np.vstack([SIGNAL * root @ rng.standard_normal((3, draws)), np.zeros(draws)])
    centroids = np.column_stack([bags.mean(white), np.ones(bags.n_bags)])
    omega = 1.0 / bags.sizes + 0.25
    noise = np.sqrt(omega)[:, None] * rng.standard_normal((bags.n_bags, draws))
    found = posterior_mean(centroids, omega, centroids @ theta + noise)
    errors = np.sum((found - theta) ** 2, axis=0)
    assert stats.mean_is(errors, risk.total, alpha=1e-6)
    alike = prior_risk(BagMoments.of(white, bags), noise_sd=0.5, **given)
    assert not stats.mean_is(errors, alike.total, alpha=1e-6)
