"""Models of every family from noisy statistics: equations, shrinkage, error bars, and no label."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import optimize
from scipy import stats as distributions

import bagwise as bw
from bagwise.errors import BoundsError, StrategyError
from bagwise.families import find_family
from bagwise.glm import solver, statistic
from bagwise.glm.statistic import family_to_release, fit_statistics
from bagwise.privacy import private_model
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.private_model import design_model, release_statistics, unit_columns
from bagwise.rng import SimulatedNoise
from bagwise.verifier import verify
from tests.privacy.events import model

FAMILIES = {
    "gaussian": ((-12.0, 12.0), 0.5, [0.6, -0.4, 0.2]),
    "bernoulli": ((0.0, 1.0), -0.3, [0.6, -0.4, 0.2]),
    "poisson": ((0.0, 20.0), 0.7, [0.3, -0.2, 0.1]),
    "gamma": ((0.0, 30.0), 0.7, [0.3, -0.2, 0.1]),
}


GAUSSIAN = find_family("gaussian")


def rows(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    skewed = rng.standard_exponential(n)
    return np.column_stack([rng.normal(size=n), rng.random(n) < 0.15, skewed - skewed.mean()])


def setting(family, *, norm="L2", epsilon=4.0, n=2000, even=0.5):
    """Features, a design, noise, and a family with the truth that labels are drawn from."""
    X = rows(n)
    bounds, intercept, coef = FAMILIES[family]
    design = design_model(X, ["a", "b", "c"], norm=norm, even=even)
    rule = ExactCalibration(epsilon, 1e-6 if norm == "L2" else 0.0, bounds)
    noise = "gaussian" if norm == "L2" else "laplace"
    event = model(rule, noise, share=1.0, reach=design.sensitivity_steps)
    return X, design, event, family_to_release(family), bounds, np.array([*coef, intercept])


def draw_labels(X, family, truth, rng, phi=0.3):
    return family.sample(X @ truth[:-1] + truth[-1], phi=phi, rng=rng)


def fitted(family, labels_seed=0, noise_seed=0, **options):
    X, design, event, kind, bounds, truth = setting(family, **options)
    y = draw_labels(X, kind, truth, np.random.default_rng(labels_seed))
    found = release_statistics(
        X, y, design=design, bounds=bounds, event=event, source=SimulatedNoise(noise_seed)
    )
    return X, y, design, kind, bounds, found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_without_noise_the_weighted_equations_are_solved(family, norm):
    """Against a solver that knows nothing of how they are solved here."""
    X, y, design, kind, bounds, _ = fitted(family, norm=norm)
    y = np.clip(y, *bounds)
    columns = unit_columns(X, design)[1]
    middle = sum(bounds) / 2
    square = float(np.sum((y - middle) ** 2))
    exact = private_model.NoisyStatistics(columns.T @ (y - middle), square, middle, 1e-6, 1e-6)
    fit = fit_statistics(X, exact, design=design, family=kind, bounds=bounds)
    assert fit.converged

    def equations(beta):
        return columns.T @ (y - kind.mean(X @ beta[:-1] + beta[-1]))

    other = optimize.root(equations, fit.unshrunk, tol=1e-10)
    np.testing.assert_allclose(fit.unshrunk, other.x, atol=1e-4)
    np.testing.assert_allclose(fit.table[0], other.x, atol=0.02)  # hardly shrunk
    # The twin: equations of other weights have another solution.
    even = optimize.root(
        lambda beta: (
            np.column_stack([X, np.ones(len(X))]).T @ (y - kind.mean(X @ beta[:-1] + beta[-1]))
        ),
        fit.unshrunk,
    )
    assert np.abs(even.x - fit.unshrunk).max() > 1e-3


def white(X, design):
    return unit_columns(X, design)[0]


def test_the_gaussian_model_is_the_posterior_mean_and_tau_the_most_likely():
    """Both by their definitions: a joint normal, and a contrast without the intercept."""
    X, _, design, kind, bounds, found = fitted("gaussian", epsilon=1.0)
    fit = fit_statistics(X, found, design=design, family=kind, bounds=bounds)
    Z = white(X, design)
    B = unit_columns(X, design)[1]
    H = B.T @ Z  # the sums measure labels from the middle, which is zero here
    omega = found.noise_sd**2 * np.eye(4) + fit.dispersion * B.T @ B
    slopes = np.diag([0.0, 1.0, 1.0, 1.0])

    def unlikely(log_variance, omega=omega):
        V = omega + np.exp(log_variance) * H @ slopes @ H.T
        contrast = np.linalg.svd(H[:, :1].T)[2][1:]
        law = distributions.multivariate_normal(cov=contrast @ V @ contrast.T)
        return -2 * law.logpdf(contrast @ found.sums) - log_variance

    best = optimize.minimize_scalar(unlikely, bracket=(-3, 0)).x
    assert fit.slope_variance == pytest.approx(np.exp(best), rel=0.005)
    # The twin: noise that is taken for half of what it is suggests another size of the slopes.
    wrong = optimize.minimize_scalar(lambda v: unlikely(v, omega / 4), bracket=(-3, 0)).x
    assert fit.slope_variance != pytest.approx(np.exp(wrong), rel=0.01)

    precision = H.T @ np.linalg.inv(omega) @ H + slopes / fit.slope_variance
    theta = np.linalg.solve(precision, H.T @ np.linalg.solve(omega, found.sums))
    predicted = X @ fit.table[0, :-1] + fit.table[0, -1]
    np.testing.assert_allclose(predicted, Z @ theta, atol=1e-3)
    unshrunk = X @ fit.unshrunk[:-1] + fit.unshrunk[-1]
    np.testing.assert_allclose(unshrunk, Z @ (design.decoder @ found.sums), atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_intervals_cover(family, norm):
    """95 % intervals of every coefficient, over labels and noise drawn anew."""
    X, design, event, kind, bounds, truth = setting(family, norm=norm)
    rng, source, draws = np.random.default_rng(1), SimulatedNoise(2), 150
    off = []
    for _ in range(draws):
        y = draw_labels(X, kind, truth, rng)
        found = release_statistics(X, y, design=design, bounds=bounds, event=event, source=source)
        fit = fit_statistics(X, found, design=design, family=kind, bounds=bounds)
        off.append((fit.unshrunk - truth) / fit.standard_errors)
    covered = np.mean(np.abs(off) < 1.96, axis=0)
    # Seven standard deviations of a share of 150 draws.
    assert np.all(np.abs(covered - 0.95) < 7 * np.sqrt(0.95 * 0.05 / draws))
    # The twin: errors that are too small by half do not.
    assert np.all(np.mean(np.abs(off) < 0.98, axis=0) < 0.95 - 7 * np.sqrt(0.95 * 0.05 / draws))


def test_squared_labels_tell_the_dispersion():
    X, design, event, kind, bounds, truth = setting("gaussian", epsilon=4.0)
    rng, source = np.random.default_rng(1), SimulatedNoise(2)
    found = []
    for _ in range(100):
        y = draw_labels(X, kind, truth, rng, phi=1.7)
        released = release_statistics(
            X, y, design=design, bounds=bounds, event=event, source=source
        )
        fit = fit_statistics(X, released, design=design, family=kind, bounds=bounds)
        found.append(fit.dispersion)
    assert np.mean(found) == pytest.approx(1.7, abs=0.1)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_noise_that_says_nothing_leaves_about_the_mean(family, norm):
    """Rows are predicted alike, and no predictor leaves where its family is known."""
    away, unshrunk = [], []
    for seed in range(12):
        X, _, design, kind, bounds, found = fitted(family, noise_seed=seed, norm=norm, epsilon=0.02)
        fit = fit_statistics(X, found, design=design, family=kind, bounds=bounds)
        eta = X @ fit.table[0, :-1] + fit.table[0, -1]
        assert np.isfinite(kind.mean(eta)).all()
        away.append(eta.std())
        unshrunk.append((X @ fit.unshrunk[:-1]).std())
    assert np.median(away) < 0.6 * np.median(unshrunk)
    if family != "gaussian":
        assert max(away) < 2


def small_table(seed=0, n=400):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pa.table({"x": x, "z": rng.normal(size=n), "y": rng.poisson(np.exp(0.5 + 0.3 * x))})


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "gamma"])
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_a_released_model_is_kept_and_verified(family, delta, tmp_path):
    table, bounds = small_table(n=3000), (0, 16)
    if family == "bernoulli":
        table = table.set_column(2, "y", pa.array((table["y"].to_numpy() > 1).astype(float)))
        bounds = (0, 1)
    model = bw.release_model(
        table, label="y", bounds=bounds, epsilon=3.0, delta=delta, family=family
    )
    assert model.family == family
    assert model.link == ("log" if family == "gamma" else "canonical")
    path = model.save(tmp_path / "m.json")
    found, certificate = verify(path)
    assert found.epsilon <= 3.0
    assert certificate.delta <= (delta or 0.0)
    loaded = bw.RowModel.load(path)
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    shown = loaded.summary()
    assert np.all(shown.standard_error > 0)
    assert "Released directly" in shown.note
    assert abs(model.coefficients()["x"]) > abs(model.coefficients()["z"])


def test_a_feature_that_follows_from_others_has_no_error_bar():
    X = rows()
    doubled = np.column_stack([X, X[:, 0] + 2 * X[:, 2] + 1])
    design = design_model(doubled, list("abcd"))
    found = private_model.NoisyStatistics(np.ones(4), 10.0, 0.0, 0.1, 0.1)
    fit = fit_statistics(
        doubled, found, design=design, family=find_family("gaussian"), bounds=(-1, 1)
    )
    assert np.isnan(fit.standard_errors).tolist() == [True, False, True, True, True]


def test_what_cannot_be_released_is_refused():
    with pytest.raises(StrategyError, match="family='bernoulli'"):
        family_to_release("multinomial")
    with pytest.raises(BoundsError, match="between 0 and 1"):
        bw.release_model(small_table(), label="y", bounds=(0, 16), epsilon=1.0, family="bernoulli")
    assert family_to_release("auto").name == "gaussian"


def test_a_fit_that_does_not_converge_predicts_the_mean(monkeypatch):
    monkeypatch.setattr(solver, "STEPS", 0)
    X, _, design, kind, bounds, found = fitted("poisson")
    fit = fit_statistics(X, found, design=design, family=kind, bounds=bounds)
    assert not fit.converged
    np.testing.assert_allclose(fit.table[0, :-1], 0, atol=1e-12)


def test_one_odd_row_whose_rate_is_enormous_costs_the_others_no_slope():
    rng = np.random.default_rng(5)
    x = rng.normal(size=4000)
    x[0] = 10.0  # its rate is e^5.2, of labels up to 20
    y = rng.poisson(np.minimum(np.exp(0.2 + 0.5 * x), 20)).astype(float)
    table = pa.table({"x": x, "y": y})
    model = bw.release_model(table, label="y", bounds=(0, 20), epsilon=4.0, family="poisson")
    assert model.trained_on.converged
    np.testing.assert_allclose(model.coef, [0.5], atol=0.1)


def test_scores_are_those_of_the_family():
    table = small_table(n=2000)
    release = bw.make_release(
        table,
        label="y",
        bounds=(0, 16),
        epsilon=4.0,
        bag_size=50,
        strategy="sorted",
        bagging=bw.Bagging(scores="model", family="poisson"),
    )
    assert release.model.family == "poisson"
    assert release.model.coef[0] == pytest.approx(0.3, abs=0.2)  # of the logarithm
    release.verify()
    with pytest.raises(BoundsError, match="0 or above"):
        bw.make_release(
            table,
            label="y",
            bounds=(-1, 16),
            epsilon=4.0,
            bag_size=50,
            strategy="sorted",
            bagging=bw.Bagging(family="poisson"),
        )


@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_a_line_needs_no_columns_to_be_followed(norm, monkeypatch):
    """What follows from J is what a pass over all rows adds up; far-off labels and columns too."""
    rng = np.random.default_rng(11)
    X = rows(900) + np.array([2000.0, 0.0, 0.0])
    bounds = (1000.0, 1008.0)
    design = design_model(X, ["a", "b", "c"], norm=norm)
    rule = ExactCalibration(1.0, 1e-6 if norm == "L2" else 0.0, bounds)
    noise = "gaussian" if norm == "L2" else "laplace"
    event = model(rule, noise, share=1.0, reach=design.sensitivity_steps)
    y = 1004 + 0.9 * (X[:, 0] - 2000) + rng.normal(size=900)
    told = release_statistics(
        X, y, design=design, bounds=bounds, event=event, source=SimulatedNoise(1)
    )

    def fit():
        return fit_statistics(X, told, design=design, family=GAUSSIAN, bounds=bounds)

    quick = fit()
    monkeypatch.setattr(statistic, "_LINE", "")
    slow = fit()
    np.testing.assert_allclose(quick.table, slow.table, rtol=1e-8)
    np.testing.assert_allclose(quick.standard_errors, slow.standard_errors, rtol=1e-8)
    assert quick.dispersion == pytest.approx(slow.dispersion, rel=1e-8)
    assert quick.slope_variance == pytest.approx(slow.slope_variance, rel=1e-6)
