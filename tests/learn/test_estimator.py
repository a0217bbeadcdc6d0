import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.errors import BagsError, BiasWarning, RankWarning, StrategyError
from bagwise.learn import LOSSES


@parametrize_with_checks(
    [bw.BaggedGLM(), bw.BaggedGLM(loss="instance"), bw.BaggedGLM(loss="aggregate")]
)
@pytest.mark.filterwarnings("ignore::bagwise.errors.RankWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def problem():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 3)) * [1, 10, 0.1] + [0, 100, -5]
    y = X @ [1.0, -0.2, 3.0] + 7 + 0.1 * rng.normal(size=120)
    bags = rng.permutation(np.repeat(np.arange(30), 4))
    return X, y, bags


def bag_labels(y, bags):
    return np.array([y[bags == b].mean() for b in bags])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_bags_it_is_ordinary_least_squares(problem, loss, fit_intercept):
    X, y, _ = problem
    weight = np.random.default_rng(0).uniform(0.5, 2, size=120)
    for sample_weight in (None, weight):
        ours = bw.BaggedGLM(loss=loss, label_kind="pick", fit_intercept=fit_intercept).fit(
            X, y, sample_weight=sample_weight
        )
        theirs = LinearRegression(fit_intercept=fit_intercept).fit(
            X, y, sample_weight=sample_weight
        )
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_ridge_is_in_units_of_the_mean_loss_and_spares_the_intercept(problem, loss):
    X, y, _ = problem
    ours = bw.BaggedGLM(loss=loss, label_kind="pick", ridge=0.5).fit(X, y)
    theirs = Ridge(alpha=0.5 * 120).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-8)


def test_bag_and_aggregate_loss_regress_labels_on_centroids(problem):
    X, y, bags = problem
    labels = bag_labels(y, bags)
    centroids = np.array([X[bags == b].mean(axis=0) for b in range(30)])
    expected = LinearRegression().fit(centroids, [y[bags == b].mean() for b in range(30)])
    for loss in ("bag", "aggregate"):
        model = bw.BaggedGLM(loss=loss).fit(X, labels, bags=bags)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-8)
        assert model.n_bags_ == 30


def test_instance_loss_regresses_bag_labels_on_rows(problem):
    X, y, bags = problem
    labels = bag_labels(y, bags)
    with pytest.warns(BiasWarning, match="shrinks the slopes"):
        model = bw.BaggedGLM(loss="instance").fit(X, labels, bags=bags)
    assert model.covariance_ is None
    assert "No intervals" in str(model.summary())
    np.testing.assert_allclose(model.coef_, LinearRegression().fit(X, labels).coef_, rtol=1e-8)


def unequal(problem):
    X, y, bags = problem
    bags = np.where(bags < 10, bags // 5, bags)  # two bags of 20 among bags of 4
    labels = np.empty_like(y)
    for b in np.unique(bags):
        labels[bags == b] = y[bags == b].mean()
    ids, sizes = np.unique(bags, return_counts=True)
    centroids = np.array([X[bags == b].mean(axis=0) for b in ids])
    return X, labels, bags, centroids, np.array([y[bags == b].mean() for b in ids]), sizes


def test_weights_of_unequal_bags(problem):
    X, labels, bags, centroids, bag_values, sizes = unequal(problem)
    by_size = LinearRegression().fit(centroids, bag_values, sample_weight=sizes).coef_
    equal = LinearRegression().fit(centroids, bag_values).coef_
    np.testing.assert_allclose(bw.BaggedGLM().fit(X, labels, bags=bags).coef_, by_size, rtol=1e-8)
    np.testing.assert_allclose(
        bw.BaggedGLM(weights="equal").fit(X, labels, bags=bags).coef_, equal, rtol=1e-8
    )
    picked = bw.BaggedGLM(label_kind="pick", weights="equal").fit(X, labels, bags=bags)
    np.testing.assert_allclose(picked.coef_, equal, rtol=1e-8)
    debiased = bw.BaggedGLM(loss="instance", debias=True, label_kind="pick").fit(
        X, labels, bags=bags
    )
    np.testing.assert_allclose(debiased.coef_, by_size, rtol=1e-8)


def test_the_spread_inside_a_bag_makes_a_pick_less_certain():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 2)) * np.repeat([0.1, 3.0], 1500)[:, None]  # tight and wide bags
    bags = bw.Bags(np.arange(3000) // 5)
    y = X @ [1.0, -2.0] + 0.5 * rng.normal(size=3000)
    labels = y[::5]  # the first row of each bag: as good as any
    model = bw.BaggedGLM(label_kind="pick").fit(X, labels[bags.index], bags=bags)
    omega = model.label_noise_sd_**2 + bags.variance(model.predict(X))
    expected = LinearRegression().fit(bags.mean(X), labels, sample_weight=1 / omega).coef_
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6)
    assert model.label_noise_sd_ == pytest.approx(0.5, rel=0.15)
    equal = bw.BaggedGLM(label_kind="pick", weights="equal")
    assert not np.allclose(equal.fit(X, labels[bags.index], bags=bags).coef_, expected, rtol=1e-3)


def test_known_noise_sets_the_weights(problem):
    X, labels, bags, centroids, bag_values, sizes = unequal(problem)
    noise = 5.0 / sizes
    row_noise = noise[np.searchsorted(np.unique(bags), bags)]
    model = bw.BaggedGLM(ridge=0).fit(X, labels, bags=bags, noise_sd=row_noise)
    weight = 1 / (model.label_noise_sd_**2 / sizes + noise**2)
    expected = LinearRegression().fit(centroids, bag_values, sample_weight=weight).coef_
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-3)
    plain = bw.BaggedGLM().fit(X, labels, bags=bags).coef_
    assert not np.allclose(model.coef_, plain, rtol=1e-3)


def test_label_noise_is_told_from_privacy_noise():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40_000, 2))
    bags = np.repeat(np.arange(10_000), 4)
    y = X @ [1.0, 2.0] + 2.0 * rng.normal(size=40_000)
    means = y.reshape(-1, 4).mean(axis=1)
    quiet = bw.BaggedGLM().fit(X, means[bags], bags=bags)
    assert quiet.label_noise_sd_ == pytest.approx(2.0, rel=0.04)
    noisy = means + 3.0 * rng.normal(size=10_000)
    model = bw.BaggedGLM().fit(X, noisy[bags], bags=bags, noise_sd=3.0)
    assert model.label_noise_sd_ == pytest.approx(2.0, rel=0.25)
    ignorant = bw.BaggedGLM().fit(X, noisy[bags], bags=bags)
    assert ignorant.label_noise_sd_ > 5


def test_labels_without_noise_beside_noisy_ones_do_not_break_the_weights():
    X = np.arange(8.0)[:, None]
    noise = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    model = bw.BaggedGLM().fit(X, 1 + 2 * X[:, 0], noise_sd=noise)
    assert model.coef_ == pytest.approx([2.0])


def test_any_ids_and_any_row_order_give_the_same_fit(problem):
    X, y, bags = problem
    labels = bag_labels(y, bags)
    reference = bw.BaggedGLM().fit(X, labels, bags=bags)
    order = np.random.default_rng(1).permutation(120)
    names = np.array([f"bag {b}" for b in bags])
    shuffled = bw.BaggedGLM().fit(X[order], labels[order], bags=names[order])
    np.testing.assert_allclose(shuffled.coef_, reference.coef_, rtol=1e-9)


def test_rank_deficient_features_are_said_and_solved(problem):
    X, y, bags = problem
    doubled = np.column_stack([X, X[:, 0], np.ones(120)])
    labels = bag_labels(y, bags)
    with pytest.warns(RankWarning, match="3 of 5"):
        model = bw.BaggedGLM().fit(doubled, labels, bags=bags)
    reference = bw.BaggedGLM().fit(X, labels, bags=bags)
    assert model.rank_ == 3
    np.testing.assert_allclose(model.predict(doubled), reference.predict(X), rtol=1e-7)
    assert model.coef_[0] == pytest.approx(model.coef_[3])
    assert model.coef_[4] == 0
    penalised = bw.BaggedGLM(ridge=1e-3).fit(doubled, labels, bags=bags)
    assert np.isfinite(penalised.coef_).all()


def test_columns_in_odd_units_are_not_taken_for_dependent():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * [1e-9, 1e9] + [0, 1e12]
    model = bw.BaggedGLM().fit(X, X @ [1e9, 1e-9])
    np.testing.assert_allclose(model.coef_, [1e9, 1e-9], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bags": [0, 1]}, "2 entries for 4 rows"),
        ({"bags": [[0], [0], [1], [1]]}, "one per row"),
        ({"bags": [0, 1, 0, 1]}, "y differs inside bag 0"),
        ({"bags": bw.Bags(np.array([0, 0, 1, -1]))}, "in no bag"),
        ({"bags": [0, 0, 1, 1], "noise_sd": [1, 2, 1, 1]}, "noise_sd differs inside bag 0"),
        ({"noise_sd": [1, 2]}, "one number or one per row"),
        ({"noise_sd": -1.0}, "not negative"),
        ({"noise_sd": np.nan}, "finite"),
        ({"bags": [0, 0, 1, 1], "sample_weight": [1, 2, 1, 1]}, "sample_weight differs inside"),
    ],
)
def test_bad_bags(arguments, message):
    X = np.arange(4.0)[:, None]
    y = np.array([918273645.0, 918273645.0, 5.0, 5.0])
    with pytest.raises(BagsError, match=message) as caught:
        bw.BaggedGLM().fit(X, y, **arguments)
    assert "918273645" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"family": "cauchy"}, "unknown family 'cauchy'; known are gaussian"),
        ({"loss": "hinge"}, "unknown loss 'hinge'; known are bag"),
        ({"weights": "some"}, "known are known-noise, equal"),
        ({"ridge": np.inf}, "ridge must be finite"),
        ({"ridge": -1.0}, "ridge must be finite and at least 0"),
        ({"debias": True}, "belongs to loss='instance'"),
        ({"label_kind": "max"}, "unknown label_kind"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(StrategyError, match=message):
        bw.BaggedGLM(**parameters).fit(np.ones((3, 1)), np.ones(3))


def test_bags_pass_through_pipelines_and_searches(problem):
    import sklearn

    X, y, bags = problem
    labels = bag_labels(y, bags)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = bw.BaggedGLM().set_fit_request(bags=True)
        pipeline = make_pipeline(StandardScaler(), routed).fit(X, labels, bags=bags)
        plain = bw.BaggedGLM().fit(X, labels, bags=bags)
        np.testing.assert_allclose(pipeline.predict(X), plain.predict(X), rtol=1e-7)
        search = GridSearchCV(
            routed,
            {"ridge": [0.0, 1e3]},
            cv=GroupKFold(3).set_split_request(groups="bags"),
        ).fit(X, labels, bags=bags)
        assert search.best_params_["ridge"] in (0.0, 1e3)
