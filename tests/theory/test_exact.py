"""The exact errors: golden values, simulation, and each cause on its own."""

import warnings
from functools import lru_cache

import numpy as np
import pytest

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, StrategyError
from bagwise.families import find_family
from bagwise.rows.whitening import Columns
from bagwise.theory.beliefs import draw_misfit
from bagwise.theory.exact import (
    ESTIMATORS,
    Risk,
    exact_risk,
)
from reproduction.squared_errors import distance_to_least_squares
from tests import stats
from tests.learn.test_exact_errors import setting
from tests.theory.cases import chunked, three_baggings

CAUSES = ("bias", "choice", "label_noise", "privacy")


@pytest.mark.parametrize(
    ("name", "bias", "norm", "objective"),
    [
        ("random", 5.2015535257, 0.0171552435, 1351.17903913),
        ("sorted", 0.0002946399, 0.0427424187, 9.00814846),
    ],
)
def test_golden_parts_of_instance_loss(name, bias, norm, objective):
    """T1: the squared bias, the sum of |G^-1 s_l|^2, and the k-means objective of X theta."""
    X, theta, baggings = setting()
    risk = exact_risk(
        X, baggings[name], theta=theta, label_noise_sd=1.0, label_kind="pick", loss="instance"
    )
    assert risk.bias == pytest.approx(bias, rel=1e-6)
    assert risk.label_noise == pytest.approx(norm, rel=1e-8)
    spread = baggings[name].sizes @ baggings[name].variance(X @ theta)
    assert spread == pytest.approx(objective, rel=1e-8)


def sorted_by_noisy_labels():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((240, 4)), rng.standard_normal(4)
    y = X @ theta + 0.5 * rng.standard_normal(240)
    z = y + 2 * rng.standard_normal(240)
    index = np.empty(240, dtype=int)
    index[np.argsort(z, kind="stable")] = np.arange(240) // 6
    return X, theta, y, Bags(index)


def test_golden_distance_to_least_squares():
    """T2 of the theory page."""
    X, _, y, bags = sorted_by_noisy_labels()
    risk = distance_to_least_squares(X, bags, labels=y, label_kind="pick", noise_sd=0.3)
    assert risk.total == pytest.approx(0.8888519216, rel=1e-8)
    assert risk.bias == pytest.approx(0.8216136802, rel=1e-8)


def draw_picks(bags, values, rng):
    """Draw one row of each bag for every column of values, (n, runs) to (m, runs)."""
    order = np.argsort(bags.index, kind="stable")
    first = np.cumsum(bags.sizes) - bags.sizes
    runs = values.shape[1]
    places = first[:, None] + rng.integers(bags.sizes[:, None], size=(bags.n_bags, runs))
    return values[order[places], np.arange(runs)]


def test_the_distance_to_least_squares_by_simulation():
    X, _, y, bags = sorted_by_noisy_labels()
    rng = np.random.default_rng(1)
    labels = draw_picks(bags, np.repeat(y[:, None], 2000, axis=1), rng)
    labels += 0.3 * rng.standard_normal(labels.shape)
    found = np.linalg.solve(X.T @ X, bags.sum(X).T @ labels)
    distances = np.sum((found.T - np.linalg.lstsq(X, y)[0]) ** 2, axis=1)
    risk = distance_to_least_squares(X, bags, labels=y, label_kind="pick", noise_sd=0.3)
    assert stats.mean_is(distances, risk.total)
    assert not stats.mean_is(distances, risk.total - risk.choice)


# Few and large bags: there every cause counts.
N, D, SIZE, RUNS = 240, 3, 30, 20_000


def estimator_matrix(X, bags, loss, weight):
    """Return T with theta_hat = T b, from the definition of the estimator."""
    sums, centroids = bags.sum(X), bags.mean(X)
    if loss == "instance":
        return np.linalg.solve(X.T @ X, sums.T)
    weight = bags.sizes if loss == "debiased" else weight
    return np.linalg.solve(
        (centroids * weight[:, None]).T @ centroids, (centroids * weight[:, None]).T
    )


@lru_cache
def simulated(loss, kind, name, weights):
    """Return squared errors of simulated estimates, and the exact risk, with causes balanced."""
    rng = np.random.default_rng(3)
    X, theta = rng.standard_normal((N, D)), rng.standard_normal(D)
    bags = three_baggings(X, theta, SIZE, rng)[name]
    setting = {"theta": theta, "label_kind": kind, "loss": loss, "weights": weights}
    # As much label noise, and as much privacy noise, as there is error from other causes.
    other = exact_risk(X, bags, label_noise_sd=0.0, **setting).total or 1.0
    per_label = exact_risk(X, bags, label_noise_sd=1.0, **setting).label_noise
    sigma = np.sqrt(other / per_label) / 2
    relative = 0.5 + np.arange(bags.n_bags) / bags.n_bags  # another noise on every bag
    per_noise = exact_risk(X, bags, label_noise_sd=0.0, noise_sd=relative, **setting).privacy
    noise = relative * np.sqrt(other / per_noise) / 2
    risk = exact_risk(X, bags, label_noise_sd=sigma, noise_sd=noise, **setting)

    y = (X @ theta)[:, None] + sigma * rng.standard_normal((N, RUNS))
    labels = bags.mean(y) if kind == "mean" else draw_picks(bags, y, rng)
    labels = labels + noise[:, None] * rng.standard_normal(labels.shape)
    mean, spread_ = bags.mean(X @ theta), bags.variance(X @ theta)
    omega = noise**2 + (sigma**2 / bags.sizes if kind == "mean" else spread_ + sigma**2)
    weight = np.ones(bags.n_bags) if weights == "equal" else 1 / omega
    T = estimator_matrix(X, bags, loss, weight)
    # |e|^2 = |off + off the mean|^2: without the product, whose mean is 0, it varies much less.
    off = T @ mean - theta
    return off @ off + np.sum((T @ (labels - mean[:, None])) ** 2, axis=0), risk


CASES = [
    (loss, kind, name, weights)
    for loss in ESTIMATORS
    for kind in ("mean", "pick")
    for name in ("random", "sorted", "unequal")
    for weights in (("equal", "known-noise") if loss in ("bag", "aggregate") else ("equal",))
]


NOTICED = 0.08  # share of the error that so many runs tell from nothing


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_the_exact_error_is_that_of_simulated_estimates(case):
    errors, risk = simulated(*case)
    assert stats.mean_is(errors, risk.total)
    # The twins: without any one of its causes, the error would be another.
    dropped = [cause for cause, share in risk.shares().items() if share > NOTICED]
    assert len(dropped) >= 2
    for cause in dropped:
        assert not stats.mean_is(errors, risk.total - getattr(risk, cause))


def test_each_cause_is_dropped_somewhere():
    """Every cause that a loss can have is missing from some twin above."""
    seen = {(case[0], case[1]): set() for case in CASES}
    for case in CASES:
        _, risk = simulated(*case)
        seen[case[:2]] |= {cause for cause, share in risk.shares().items() if share > NOTICED}
    assert seen["instance", "pick"] == set(CAUSES)
    assert seen["instance", "mean"] == {"bias", "label_noise", "privacy"}
    for loss in ("bag", "aggregate", "debiased"):
        assert seen[loss, "pick"] == {"choice", "label_noise", "privacy"}
        assert seen[loss, "mean"] == {"label_noise", "privacy"}


def test_errors_in_predictions_are_those_of_the_rows():
    """With the rows' second moment as metric: the same as errors in whitened coordinates."""
    rng = np.random.default_rng(5)
    X, theta = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 3)), rng.standard_normal(3)
    bags = three_baggings(X, theta, 6, rng)["random"]
    root = np.linalg.cholesky(X.T @ X / 60)
    for loss in ESTIMATORS:
        setting = {"label_noise_sd": 0.5, "noise_sd": 0.3, "label_kind": "pick", "loss": loss}
        ours = exact_risk(X, bags, theta=theta, error="predictions", **setting)
        white = exact_risk(X @ np.linalg.inv(root.T), bags, theta=root.T @ theta, **setting)
        assert ours.total == pytest.approx(white.total, rel=1e-9)
        assert ours.bias == pytest.approx(white.bias, rel=1e-9, abs=1e-15)
        metric = X.T @ X / 60
        assert exact_risk(X, bags, theta=theta, error=metric, **setting) == ours
        plain = exact_risk(X, bags, theta=theta, error=np.eye(3), **setting)
        assert plain.total == pytest.approx(exact_risk(X, bags, theta=theta, **setting).total)
        assert plain.total != pytest.approx(ours.total, rel=0.01)


def test_rows_in_no_bag_do_not_count_and_noise_goes_with_its_bag():
    rng = np.random.default_rng(6)
    X, theta = rng.standard_normal((40, 2)), rng.standard_normal(2)
    index = rng.permutation(40) // 5  # bags are not numbered as they appear
    noise = rng.uniform(0.1, 2.0, size=8)
    out = np.concatenate([index, [-1, -1]])
    more = np.concatenate([X, np.full((2, 2), 7.0)])
    labels = X @ theta + rng.standard_normal(40)
    for loss in ESTIMATORS:
        setting = {"theta": theta, "label_noise_sd": 1.0, "label_kind": "pick", "loss": loss}
        risk = exact_risk(X, Bags(index), noise_sd=noise, **setting)
        assert exact_risk(more, Bags(out), noise_sd=noise, **setting) == risk
        renumbered = exact_risk(X, Bags(7 - index), noise_sd=noise[::-1], **setting)
        assert renumbered.total == pytest.approx(risk.total, rel=1e-12)
        assert exact_risk(X, Bags(index), noise_sd=noise[::-1], **setting).total != pytest.approx(
            risk.total, rel=1e-3
        )
    distance = distance_to_least_squares(
        X, Bags(index), labels=labels, label_kind="pick", noise_sd=noise
    )
    again = distance_to_least_squares(
        more, Bags(out), labels=np.append(labels, [9.0, 9.0]), label_kind="pick", noise_sd=noise
    )
    assert again == distance


def test_known_noise_is_never_worse_than_equal_weights():
    rng = np.random.default_rng(7)
    for _ in range(20):
        X, theta = rng.standard_normal((60, 3)), rng.standard_normal(3)
        bags = Bags.from_labels(np.r_[np.arange(12), rng.integers(12, size=48)])
        setting = {
            "theta": theta,
            "label_noise_sd": 0.5,
            "noise_sd": rng.uniform(0.1, 1.0, size=12),
            "label_kind": "pick",
        }
        best = exact_risk(X, bags, loss="bag", weights="known-noise", **setting).total
        for loss in ("bag", "debiased"):
            assert best <= exact_risk(X, bags, loss=loss, **setting).total * (1 + 1e-12)


def test_shares_are_of_the_whole():
    risk = Risk(bias=1.0, choice=0.0, label_noise=3.0, privacy=0.0)
    assert risk.total == 4.0
    assert list(risk.shares().items())[:2] == [("label_noise", 0.75), ("bias", 0.25)]
    nothing = Risk(bias=0.0, choice=0.0, label_noise=0.0, privacy=0.0)
    assert set(nothing.shares().values()) == {0.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"theta": np.ones(3)}, "theta must have 2 entries"),
        ({"label_noise_sd": np.inf}, "label noise"),
        ({"noise_sd": np.ones(3)}, "one number or one per bag"),
        ({"loss": "median"}, "unknown loss"),
        ({"weights": "size"}, "unknown weights"),
        ({"error": "labels"}, "unknown error"),
        ({"label_kind": "sum"}, "label"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {
        "theta": np.ones(2),
        "label_noise_sd": 1.0,
        "label_kind": "mean",
        "loss": "bag",
        **change,
    }
    X = np.random.default_rng(0).standard_normal((8, 2))
    with pytest.raises((BagsError, StrategyError), match=message):
        exact_risk(X, Bags(np.arange(8) // 2), **arguments)


def test_what_bags_do_not_determine_is_refused():
    X = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    arguments = {"theta": np.ones(1), "label_noise_sd": 1.0, "label_kind": "mean"}
    bags = Bags(np.array([0, 0, 1, 1]))
    with pytest.raises(BagsError, match="cannot be learnt"):
        exact_risk(X, bags, loss="bag", **arguments)
    assert exact_risk(X, bags, loss="instance", **arguments).bias == 1.0


GLM_FITS = {
    "bag": {"loss": "bag", "weights": "equal"},
    "aggregate": {"loss": "aggregate", "weights": "equal"},
    "instance": {"loss": "instance"},
    "debiased": {"loss": "instance", "debias": True},
}


def simulated_fits(family, loss, kind, runs):
    """Return squared errors of actual fits, and what is expected of them to first order."""
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(4000), rng.standard_normal((4000, 2))])
    theta = np.array([0.3, 0.5, -0.4])
    # Nearly sorted: bags that keep much, and differ inside. The bias of instance loss is not small
    # enough for first order unless they differ little.
    disorder = 0.05 if loss == "instance" else 0.3
    bags = chunked(np.argsort(X @ theta + disorder * rng.standard_normal(4000)), 8)
    model = find_family(family)
    errors = np.empty(runs)
    for run in range(runs):
        y = model.sample(X @ theta, phi=1.0, rng=rng)
        labels = bags.mean(y) if kind == "mean" else draw_picks(bags, y[:, None], rng)[:, 0]
        fit = bw.BaggedGLM(family, label_kind=kind, fit_intercept=False, **GLM_FITS[loss])
        fit.fit(X, labels[bags.index], bags=bags.index)
        errors[run] = np.sum((fit.coef_ - theta) ** 2)
    risk = exact_risk(
        X, bags, theta=theta, family=family, label_kind=kind, loss=loss, weights="equal"
    )
    return errors, risk


@pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("loss", ESTIMATORS)
def test_first_order_errors_are_those_of_fits(family, loss, kind):
    errors, risk = simulated_fits(family, loss, kind, runs=60)
    assert stats.mean_is(errors, risk.total)
    assert not stats.mean_is(errors, 3 * risk.total)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
@pytest.mark.parametrize("loss", ["instance", "aggregate"])
def test_the_bias_to_first_order_is_that_of_labels_without_noise(family, loss):
    """What is left out vanishes faster than the bias itself."""
    rng = np.random.default_rng(9)
    X = np.column_stack([np.ones(1000), rng.standard_normal((1000, 2))])
    theta, model = np.array([0.3, 0.5, -0.4]), find_family(family)
    jitter, off = rng.standard_normal(1000), []
    for disorder in (0.8, 0.4, 0.1):
        bags = chunked(np.argsort(X @ theta + disorder * jitter), 8)
        expected = bags.mean(model.mean(X @ theta))
        fit = bw.BaggedGLM(family, fit_intercept=False, **GLM_FITS[loss])
        fit.fit(X, expected[bags.index], bags=bags.index)
        arguments = {"theta": theta, "family": family, "label_kind": "mean", "loss": loss}
        bias = exact_risk(X, bags, **arguments).bias
        off.append(abs(np.sum((fit.coef_ - theta) ** 2) / bias - 1))
    assert off[2] < 0.05
    assert off[2] < off[0] / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("loss", ESTIMATORS)
def test_first_order_errors_are_those_of_many_fits(family, loss, kind):
    errors, risk = simulated_fits(family, loss, kind, runs=600)
    assert stats.mean_is(errors, risk.total)
    assert not stats.mean_is(errors, 1.5 * risk.total)
    if risk.shares()["choice"] > 0.35:
        assert not stats.mean_is(errors, risk.total - risk.choice)


@pytest.mark.parametrize("loss", ["bag", "instance", "aggregate"])
def test_misfit_is_what_a_fit_makes_of_its_bag_means(loss):
    """The error by what a model lacks: fit the bag means of each draw, and average the squares."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(300, 3))
    bags = bw.make_bags(X, bag_size=12, strategy="kmeans", seed=0)
    lacks = 0.7 * draw_misfit(Columns(X).white_rows(), np.random.default_rng(1))
    design = np.column_stack([X, np.ones(len(X))])
    known = {"theta": np.zeros(4), "family": "gaussian", "label_kind": "mean"}
    risk = exact_risk(design, bags, loss=loss, error="predictions", misfit=lacks, **known)
    found = []
    for g in lacks.T:
        model = bw.BaggedGLM(loss=loss, weights="equal")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, bags.repeat(bags.mean(g)), bags=bags)
        found.append(np.mean(model.predict(X) ** 2))
    assert risk.misfit == pytest.approx(np.mean(found), rel=1e-6)
    assert risk.misfit > 0
    assert risk.total == pytest.approx(risk.label_noise + risk.bias + risk.misfit)
