"""The account of a release's expected error, against real fits and against theory."""

import json

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import BagwiseWarning, LeakWarning, StrategyError, StrongPromiseWarning
from bagwise.learn.from_release import error_to_expect, explain_by_fit
from bagwise.theory.exact import exact_risk
from tools.settings import filed

THETA, SIGMA = np.array([1.0, -2.0]), 0.7
N = 600


def table(seed=0, features=None):
    rng = np.random.default_rng(seed)
    X = np.random.default_rng(99).normal(size=(N, 2)) * [1, 0.5] + [10, 0]
    y = 3 + X @ THETA + SIGMA * rng.normal(size=N)
    columns = {"a": X[:, 0], "b": X[:, 1], **(features or {})}
    return pa.table({**columns, "y": y}), X


def release(seed=0, **options):
    data, X = table(seed)
    arguments = {"label": "y", "bag_size": 6, "strategy": "random", "not_private": True, **options}
    return bw.make_release(data, **filed(**arguments)), X


@pytest.mark.parametrize("loss", ["bag", "instance"])
@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_it_is_the_exact_risk_with_an_intercept(loss, kind):
    """Of the best weights that a fit may find; tests/theory holds it against simulated fits."""
    made, X = release(seed=1, label_kind=kind)
    found = made.explain(theta=THETA, sigma=SIGMA, intercept=3.0, loss=loss, misfit=0.0)
    rows = np.column_stack([made.encoder.transform(made.features), np.ones(N)])
    known = {"label_noise_sd": SIGMA, "label_kind": kind, "loss": loss, "weights": "known-noise"}
    theta = np.append(THETA, 3.0)
    expected = exact_risk(rows, made.bags, theta=theta, error="predictions", **known)
    for part in ("bias", "choice", "label_noise", "privacy"):
        assert getattr(found.predictions, part) == pytest.approx(
            getattr(expected, part), rel=1e-6, abs=1e-12
        )
    assert found.rows == pytest.approx(SIGMA**2 * 3 / N, rel=1e-9)  # of p coefficients, as known
    assert found.signal == pytest.approx(np.var(X @ THETA))


def test_the_parts_add_up_and_the_largest_is_named():
    made, _ = release(not_private=False, epsilon=1.0, delta=1e-6, bounds=(0, 30))
    found = made.explain(theta=THETA, sigma=SIGMA, intercept=3.0, misfit=0.0)
    risk = found.predictions
    assert risk.total == pytest.approx(risk.bias + risk.choice + risk.label_noise + risk.privacy)
    assert risk.privacy > 0.9 * risk.total
    assert "is due to the privacy noise" in found.text()
    assert "clipped" in found.text()
    assert found.slopes is not None
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["predictions"]["privacy"] == risk.privacy
    assert "privacy noise" in found._repr_html_()
    shrunk = made.explain(theta=THETA, sigma=SIGMA, loss="instance", misfit=0.0)
    assert "shrinks slopes" in str(shrunk)
    assert shrunk.predictions.bias > 0


def test_features_that_depend_on_each_other_leave_predictions():
    data, _ = table(features={"twice": 2 * table()[1][:, 0], "one": np.ones(N)})
    made = bw.make_release(
        data, label="y", bag_size=6, strategy="random", not_private=True, bagging=bw.Bagging(seed=4)
    )
    found = made.explain(theta=[1.0, -2.0, 0.0, 0.0], sigma=SIGMA, intercept=3.0, misfit=0.0)
    assert found.slopes is None
    assert found.predictions.label_noise > 0
    assert found.rows == pytest.approx(SIGMA**2 * 3 / N, rel=1e-6)
    assert found.table()[1][2] == ""


def test_label_sorted_bags_are_remarked():
    with pytest.warns(LeakWarning):
        made, _ = release(strategy="sorted")
    assert "put together by their labels" in made.explain(theta=THETA, sigma=SIGMA).text()


def test_a_fit_to_the_release_gives_theta_and_sigma():
    made = bw.make_release(
        table(0)[0],
        label="y",
        bag_size=6,
        strategy="random",
        not_private=True,
        bagging=bw.Bagging(seed=0),
    )
    found = explain_by_fit(made)
    given = made.explain(theta=THETA, sigma=SIGMA, intercept=3.0)
    assert found.predictions.total == pytest.approx(given.predictions.total, rel=0.5)
    counts = pa.table({"x": np.arange(200.0), "y": np.random.default_rng(0).poisson(2.0, 200)})
    with pytest.warns(StrongPromiseWarning):
        private = bw.make_release(
            counts, label="y", bag_size=10, bounds=(0, 20), epsilon=0.05, delta=1e-6
        )
    lost = explain_by_fit(private, family="poisson")
    assert np.isfinite(lost.predictions.total)
    assert "first order" in lost.text()


def test_bad_requests_are_refused():
    made, _ = release()
    with pytest.raises(StrategyError, match="theta must have 2 entries"):
        made.explain(theta=[1.0], sigma=1.0)
    with pytest.raises(StrategyError, match="unknown loss 'mixture'"):
        made.explain(theta=THETA, sigma=1.0, loss="mixture")
    with pytest.raises(StrategyError, match="not negative"):
        made.explain(theta=THETA, sigma=np.nan)


def test_nothing_is_said_twice():
    """Explaining fits quietly: what is off is what it explains."""
    made, _ = release()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", BagwiseWarning)
        explain_by_fit(made)


def test_misfit_is_a_cause_that_is_believed_and_said():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 3000))
    table = pa.table({"x": x, "z": z, "y": x + rng.normal(size=3000)})
    release = bw.make_release(
        table,
        label="y",
        bag_size=100,
        strategy="kmeans",
        not_private=True,
        bagging=bw.Bagging(seed=0),
    )
    guess = {"theta": [1.0, 0.0], "sigma": 0.1}
    none, some, more = (release.explain(**guess, misfit=m).predictions for m in (0.0, 0.05, 0.5))
    assert none.misfit == 0
    assert more.misfit == pytest.approx(10 * some.misfit)
    assert some.total == pytest.approx(none.total + some.misfit)
    assert "do not follow the model" in release.explain(**guess, misfit=0.5).text()
    with pytest.raises(StrategyError, match="misfit must be"):
        release.explain(**guess, misfit=-1.0)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
@pytest.mark.parametrize("strategy", ["sorted", "kmeans", "random"])
def test_a_forecast_is_about_what_a_model_is_off_by(strategy):
    """For sorted bags it was thirty times too large: noise of coefficients was taken for signal.

    A forecast is a root of a mean over draws, and rests on a belief about misfit: a factor of four.
    """
    rng = np.random.default_rng(7)
    X, theta = rng.normal(size=(8000, 6)), rng.normal(size=6)
    y = X @ theta + 0.5 * rng.normal(size=len(X))
    table = pa.table({**{f"x{i}": X[:, i] for i in range(6)}, "y": y})
    off, forecast = [], []
    for _ in range(3):
        release = bw.make_release(
            table, label="y", bounds=(-12, 12), epsilon=4.0, bag_size=50, strategy=strategy
        )
        predicted = np.asarray(bw.fit_release(release).predict(table))
        off.append(np.mean((predicted - X @ theta) ** 2))
        forecast.append(explain_by_fit(release).predictions.total)
    assert 1 / 4 < np.sqrt(np.mean(forecast) / np.mean(off)) < 4


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_the_typical_error_is_one_number_though_the_model_lacks_something():
    """What the model lacks looks in bag labels like ten times as much noise of single ones."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-3, 3, size=20_000)
    y = x + 2 * np.cos(2 * x) + 0.5 * rng.normal(size=x.size)
    table = pa.table({"x": x, "y": y})
    release = bw.make_release(table, label="y", bounds=(-8, 8), epsilon=4.0, bag_size=100)
    off = np.sqrt(np.mean((bw.fit_release(release).predict(table) - y) ** 2))
    found = explain_by_fit(release).accuracy
    assert found.error == pytest.approx(off, rel=0.1)
    assert f"one prediction is {found.error:.3g}" in str(found)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_fewer_bags_than_columns_have_no_error_to_expect_and_no_complaint():
    X = np.random.default_rng(9).normal(size=(400, 13))
    table = pa.table({**{f"x{i}": X[:, i] for i in range(12)}, "y": X[:, 0] + X[:, 12]})
    release = bw.make_release(table, label="y", bounds=(-4, 4), epsilon=4.0, bag_size=50)
    assert error_to_expect(bw.fit_release(release), release) is None
