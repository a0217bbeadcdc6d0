import dataclasses
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LinearRegression
from sklearn.metrics import (
    log_loss,
    mean_gamma_deviance,
    mean_poisson_deviance,
    mean_squared_error,
    mean_tweedie_deviance,
    r2_score,
)
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, BagwiseError, LabelError, StrategyError
from bagwise.learn.estimator import BaggedGLM
from bagwise.learn.model_selection import (
    BagKFold,
    bag_deviance,
    bag_mean_squared_error,
    bag_r2_score,
    bag_scorer,
)
from tests.stats import mean_is

SPLITTER = BagKFold(3, random_state=0)


def routing():
    return sklearn.config_context(enable_metadata_routing=True)


def ids_of(sizes):
    """Bag ids that are neither numbers nor sorted."""
    ids = np.repeat([f"bag {i * 7 % 100:02d}" for i in range(len(sizes))], sizes)
    return np.random.default_rng(1).permutation(ids)


def bagged(rng, *, n_bags=60, size=5, d=3, noise_sd=0.0, label_noise=0.5):
    """Rows of random bags, the true mean labels, and the same with noise."""
    X = rng.normal(size=(n_bags * size, d)) * np.arange(1, d + 1)
    bags = Bags(rng.permutation(np.repeat(np.arange(n_bags), size)))
    coef = rng.normal(size=d)
    y = X @ coef + label_noise * rng.normal(size=len(X))
    truth = bags.mean(y)
    noisy = truth + noise_sd * rng.normal(size=n_bags)
    return X, bags.repeat(truth), bags.repeat(noisy), bags.index, coef


# Splits


@pytest.mark.parametrize("sizes", [[4] * 12, [1, 2, 3, 4, 5, 6, 20], [1] * 9])
def test_whole_bags_are_held_out(sizes):
    ids = ids_of(sizes)
    X = np.zeros((ids.size, 2))
    splits = list(SPLITTER.split(X, bags=ids))
    assert len(splits) == SPLITTER.get_n_splits(X) == 3
    for train, test in splits:
        assert not set(ids[train]) & set(ids[test])
        assert sorted([*train, *test]) == list(range(ids.size))
        assert train.size
        assert test.size


@given(
    sizes=st.lists(st.integers(1, 40), min_size=5, max_size=40),
    shuffle=st.booleans(),
    seed=st.integers(0, 100),
)
def test_each_bag_is_tested_once_in_folds_of_about_equal_rows(sizes, shuffle, seed):
    ids = ids_of(sizes)
    folds = BagKFold(5, shuffle=shuffle, random_state=seed)
    tests = [test for _, test in folds.split(ids, bags=ids)]
    assert sorted(np.concatenate(tests)) == list(range(ids.size))
    rows = [test.size for test in tests]
    assert max(rows) - min(rows) <= max(sizes)


def test_without_shuffling_the_largest_bags_are_dealt_first():
    ids = ids_of([6, 5, 4, 3, 3, 3])
    folds = BagKFold(2, shuffle=False)
    assert [test.size for _, test in folds.split(ids, bags=ids)] == [12, 12]


def test_an_integer_seed_makes_the_same_splits_and_another_seed_others():
    ids = ids_of(list(range(1, 21)))  # all sizes differ: sizes alone do not decide the split

    def tests(seed):
        return [test.tolist() for _, test in BagKFold(3, random_state=seed).split(ids, bags=ids)]

    assert tests(0) == tests(0)
    assert tests(0) != tests(1)


def test_ids_may_come_as_bags_or_as_groups():
    ids = ids_of([2] * 10)

    def tests(**given):
        return [test.tolist() for _, test in SPLITTER.split(np.zeros(20), **given)]

    expected = tests(bags=ids)
    assert tests(groups=ids) == expected
    assert tests(bags=pd.Series(ids, index=np.arange(20)[::-1])) == expected
    assert tests(bags=Bags.from_labels(ids)) == expected
    # The same bags under other names.
    assert tests(bags=ids, groups=[f"x{name}" for name in ids]) == expected
    with pytest.raises(BagsError, match="bags and groups describe different bags"):
        SPLITTER.split(np.zeros(20), bags=ids, groups=ids[::-1])
    with pytest.raises(BagsError, match="bags are missing"):
        SPLITTER.split(np.zeros(20))
    with pytest.raises(BagsError, match="bags has 20 entries for 19 rows"):
        SPLITTER.split(np.zeros(19), bags=ids)


def test_too_few_bags_to_split():
    with pytest.raises(BagsError, match="BagKFold needs at least 3 bags, got 2"):
        BagKFold(3).split(np.zeros(4), bags=[0, 0, 1, 1])
    assert len(list(BagKFold(2).split(np.zeros(4), bags=[0, 0, 1, 1]))) == 2


@pytest.mark.parametrize("n_splits", [1, 2.0, True, "5"])
def test_impossible_numbers_of_folds_are_refused(n_splits):
    with pytest.raises(StrategyError, match="n_splits must be a whole number of at least 2"):
        BagKFold(n_splits)


def test_splitters_show_their_parameters():
    assert repr(BagKFold(4)) == "BagKFold(n_splits=4, random_state=None, shuffle=True)"


# Scores


@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_without_bags_and_noise_scores_are_those_of_scikit_learn(outputs, weighted):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, *outputs))
    predictions = y + 0.5 * rng.normal(size=y.shape)
    weight = rng.uniform(0.1, 3, size=40) if weighted else None
    for ours, theirs in ((bag_r2_score, r2_score), (bag_mean_squared_error, mean_squared_error)):
        for noise_sd in (None, 0.0):
            score = ours(y, predictions, sample_weight=weight, noise_sd=noise_sd)
            assert type(score) is float
            assert score == pytest.approx(theirs(y, predictions, sample_weight=weight), rel=1e-12)


@pytest.mark.parametrize("predictions", [[3.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
def test_labels_that_are_all_the_same_score_as_in_scikit_learn(predictions):
    y = [3.0, 3.0, 3.0]
    assert bag_r2_score(y, predictions) == r2_score(y, predictions)


def test_bags_are_compared_by_mean_predictions_and_count_by_rows():
    # Means of the predictions: 2 (label 1, two rows), 8 (label 6, one row).
    y, predictions, bags = [1, 6, 1], [0, 8, 4], ["a", "b", "a"]
    assert bag_mean_squared_error(y, predictions, bags=bags) == pytest.approx((2 * 1 + 4) / 3)
    # Labels 1, 1, 6 have the mean 8/3 and the variance 50/9.
    assert bag_r2_score(y, predictions, bags=bags) == pytest.approx(1 - 2 / (50 / 9))
    # b twice is as if it had two rows.
    weight = [1, 2, 1]
    assert bag_mean_squared_error(y, predictions, bags=bags, sample_weight=weight) == pytest.approx(
        (1 + 4) / 2
    )
    assert bag_mean_squared_error(
        y, predictions, bags=bags, noise_sd=[0.5, 2.0, 0.5]
    ) == pytest.approx((2 * 1 + 4) / 3 - (2 * 0.25 + 4) / 3)


def test_r2_takes_noise_out_of_error_and_spread():
    y, predictions, bags = [1, 6, 1], [0, 8, 4], ["a", "b", "a"]
    noise = np.array([0.5, 2.0, 0.5])
    error = (2 * 1 + 4) / 3 - (2 * 0.25 + 4) / 3
    # The weighted mean moves with the noise too: weights w leave w (1 - w) of it in the spread.
    spread = 50 / 9 - (2 / 3 * 1 / 3 * 0.25 + 1 / 3 * 2 / 3 * 4)
    score = bag_r2_score(y, predictions, bags=bags, noise_sd=noise)
    assert score == pytest.approx(1 - error / spread)
    # The mean over outputs, each with the same noise.
    both = bag_r2_score(
        np.column_stack([y, y]), np.column_stack([predictions, y]), bags=bags, noise_sd=noise
    )
    second = 1 + (2 * 0.25 + 4) / 3 / spread
    assert second > 1  # not clipped
    assert both == pytest.approx((score + second) / 2)


def test_r2_is_that_of_evaluate_release():
    rng = np.random.default_rng(0)
    area = rng.uniform(20, 140, 20_000)
    table = pa.table({"area": area, "rent": 200 + 12 * area + rng.normal(0, 100, area.size)})
    release = bw.make_release(
        table, label="rent", bounds=(0, 2500), bag_size=201, strategy="sorted",
        epsilon=5.0, delta=1e-6,
    )  # fmt: skip
    model = bw.fit_release(release)
    worse = dataclasses.replace(model, coef=model.coef / 2)  # so that noise is not all of its error
    expected = bw.evaluate_release(worse, release)
    X, y, _ = release.training_data()
    score = bag_r2_score(y, worse.predict_encoded(X), **release.fit_params())
    assert expected.mean_noise_sd > 0
    assert score == pytest.approx(expected.r2_without_noise, rel=1e-9)


@pytest.fixture
def labelled():
    """Bags of unequal sizes: their ids, true labels, sds of noise, and predictions for rows."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(1, 9, size=12)
    bags = np.repeat(np.arange(12), sizes)
    truth = rng.uniform(5, 20, size=12)
    predictions = truth[bags] * rng.uniform(0.8, 1.2, size=bags.size)
    return bags, truth, rng.uniform(0.2, 1.0, size=12), predictions


def mean_of_opposites(score, truth, noise):
    """Return the mean score under noise and its opposite, in which terms linear in it vanish."""
    return (score(truth + noise) + score(truth - noise)) / 2


def test_mean_squared_error_is_unbiased_under_noise(labelled):
    bags, truth, sd, predictions = labelled

    def draws(stated):
        rng = np.random.default_rng(0)

        def score(labels):
            return bag_mean_squared_error(labels[bags], predictions, bags=bags, noise_sd=stated)

        return [mean_of_opposites(score, truth, sd * rng.normal(size=12)) for _ in range(1000)]

    expected = bag_mean_squared_error(truth[bags], predictions, bags=bags)
    assert mean_is(draws(sd[bags]), expected)
    assert not mean_is(draws(0.9 * sd[bags]), expected)


def test_spread_of_labels_is_unbiased_under_noise(labelled):
    bags, truth, sd, predictions = labelled

    def spread(labels, noise_sd=None):
        scores = [
            metric(labels[bags], predictions, bags=bags, noise_sd=noise_sd)
            for metric in (bag_mean_squared_error, bag_r2_score)
        ]
        return scores[0] / (1 - scores[1])

    def corrected(labels):
        return spread(labels, sd[bags])

    rng = np.random.default_rng(0)
    draws = [mean_of_opposites(corrected, truth, sd * rng.normal(size=12)) for _ in range(1000)]
    assert mean_is(draws, spread(truth))
    # As if the mean of the labels did not move with their noise.
    share = np.bincount(bags) / bags.size
    assert not mean_is(np.array(draws) - share**2 @ sd**2, spread(truth))


@pytest.mark.parametrize(
    "family", ["gaussian", "bernoulli", "poisson", "gamma", "inverse_gaussian"]
)
def test_deviance_is_linear_in_the_labels_so_that_noise_averages_out(labelled, family):
    bags, truth, sd, predictions = labelled
    scale = 25.0 if family == "bernoulli" else 1.0

    def score(labels):
        return bag_deviance(labels[bags] / scale, predictions / scale, family=family, bags=bags)

    noise = 5 * sd * np.random.default_rng(0).normal(size=12)
    assert mean_of_opposites(score, truth, noise) == pytest.approx(score(truth), rel=1e-12)
    assert score(truth + noise) != pytest.approx(score(truth), rel=1e-6)


def test_r2_without_spread_is_nan_and_says_so():
    y, bags = [1.0, 1.0, 1.1, 1.1], [0, 0, 1, 1]
    with pytest.warns(UndefinedMetricWarning, match="vary no more than their noise"):
        score = bag_r2_score(y, [1.0, 1.0, 1.0, 1.0], bags=bags, noise_sd=1.0)
    assert np.isnan(score)
    for noise_sd in (None, 1.0):
        with pytest.warns(UndefinedMetricWarning):
            assert np.isnan(bag_r2_score([1.0, 1.0], [1.0, 2.0], bags=[0, 0], noise_sd=noise_sd))


PEERS = {
    "gaussian": mean_squared_error,
    "poisson": mean_poisson_deviance,
    "gamma": mean_gamma_deviance,
    "inverse_gaussian": lambda y, mean, **weight: mean_tweedie_deviance(y, mean, power=3, **weight),
    "bernoulli": lambda y, mean, **weight: 2 * log_loss(y > 0.5, mean, labels=[0, 1], **weight),
    "multinomial": lambda y, mean, **weight: (
        2 * log_loss(y.argmax(axis=1), mean, labels=[0, 1, 2], **weight)
    ),
}


def labels_and_means(family, rng, n=30):
    if family == "multinomial":
        return np.eye(3)[rng.integers(3, size=n)], rng.dirichlet([1, 1, 1], size=(2, n))
    if family == "bernoulli":
        return rng.integers(2, size=n).astype(float), rng.uniform(0.05, 0.95, size=(2, n))
    return rng.uniform(0.5, 4, size=n), rng.uniform(0.5, 4, size=(2, n))


@pytest.mark.parametrize("family", PEERS)
def test_deviance_is_that_of_scikit_learn_up_to_a_term_of_the_labels(family):
    rng = np.random.default_rng(5)
    y, (first, second) = labels_and_means(family, rng)
    weight = rng.uniform(0.1, 2, size=len(y))

    def ours(mean):
        return bag_deviance(y, mean, family=family, sample_weight=weight)

    def theirs(mean):
        return PEERS[family](y, mean, sample_weight=weight)

    assert ours(first) - ours(second) == pytest.approx(theirs(first) - theirs(second), rel=1e-10)
    assert ours(first) != pytest.approx(ours(second), rel=1e-3)


@pytest.mark.parametrize("family", PEERS)
def test_deviance_is_smallest_at_the_label(family):
    y = np.tile([0.2, 0.5, 0.3], (4, 1)) if family == "multinomial" else np.full(4, 0.4)
    at_label = bag_deviance(y, y, family=family)
    for step in (-0.05, 0.05):
        moved = y + step * np.array([1, -1, 0]) if family == "multinomial" else y + step
        assert bag_deviance(y, moved, family=family) > at_label


def test_deviance_compares_mean_predictions_of_bags():
    shares, predictions, bags = [0.25, 0.25, 0.9], [0.1, 0.4, 0.9], [0, 0, 1]
    expected = bag_deviance([0.25, 0.9], [0.25, 0.9], family="bernoulli", sample_weight=[2, 1])
    assert bag_deviance(shares, predictions, family="bernoulli", bags=bags) == pytest.approx(
        expected
    )


def test_gaussian_deviance_differs_from_the_error_by_the_labels_only():
    rng = np.random.default_rng(0)
    X, _, y, bags, _ = bagged(rng, noise_sd=0.4)
    first, second = X[:, 0], X[:, 1]

    def differ(metric, **options):
        return metric(y, first, bags=bags, **options) - metric(y, second, bags=bags, **options)

    assert differ(bag_deviance) == pytest.approx(differ(bag_mean_squared_error, noise_sd=0.4))


def test_certain_and_wrong_predictions_cost_much_but_not_infinitely_much():
    assert 30 < bag_deviance([0.0, 1.0], [1.0, 0.0], family="bernoulli") < 100
    assert bag_deviance([0.0, 1.0], [0.0, 1.0], family="bernoulli") == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("family", "predictions"),
    [
        ("bernoulli", [0.5, 1.2, 0.5]),
        ("bernoulli", [0.5, -0.1, 0.5]),
        ("poisson", [1.0, 0.0, 1.0]),
        ("gamma", [1.0, -1.0, 3.0]),
        ("inverse_gaussian", [1.0, -1.0, 3.0]),
    ],
)
def test_predictions_outside_the_range_of_the_family_are_refused(family, predictions):
    with pytest.raises(BagwiseError, match=f"the {family} family predicts .* 1 of 3 predictions"):
        bag_deviance([0.5, 0.5, 0.5], predictions, family=family, bags=[0, 0, 0])


def test_probabilities_of_classes_add_up():
    y = [[0.5, 0.5], [0.2, 0.8]]
    with pytest.raises(BagwiseError, match="must add up to 1"):
        bag_deviance(y, [[0.5, 0.5], [0.5, 0.4]], family="multinomial")
    with pytest.raises(BagwiseError, match="predicts probabilities"):
        bag_deviance(y, [[0.5, 0.5], [1.5, -0.5]], family="multinomial")
    with pytest.raises(BagsError, match="a share per class per bag, got 1"):
        bag_deviance([0.5, 0.2], [0.5, 0.2], family="multinomial")
    with pytest.raises(BagsError, match="one label per bag, got 2"):
        bag_deviance(y, y, family="poisson")


def test_deviance_takes_labels_that_noise_moved_out_of_the_range():
    scores = [
        bag_deviance([-0.3, 1.4], mean, family="bernoulli") for mean in ([0.1, 0.9], [0.9, 0.1])
    ]
    assert np.isfinite(scores).all()
    assert scores[0] < scores[1]


METRICS = [bag_r2_score, bag_mean_squared_error, bag_deviance]


@pytest.mark.parametrize("metric", METRICS)
def test_contradictions_are_refused_without_quoting_a_label(metric):
    secret = 0.123456
    for error, pattern, arguments in (
        (BagsError, "differs inside bag 0", {"y_true": [secret, 1], "bags": [0, 0]}),
        (LabelError, "y_true has NaN or infinite values in 1 row", {"y_true": [secret, np.nan]}),
        (LabelError, "y_true must be an array of numbers", {"y_true": [secret, f"{secret}?"]}),
        (BagwiseError, "y_pred has NaN or infinite values", {"y_pred": [1, np.inf]}),
        (BagsError, "one entry per row each, got shapes", {"y_pred": [1.0]}),
        (BagsError, "bags has 1 entries for 2 rows", {"bags": [0]}),
        (BagsError, "noise_sd must be finite", {"noise_sd": -1.0}),
        (BagsError, "sample_weight must be one per row", {"sample_weight": [1.0]}),
        (BagsError, "not be negative", {"sample_weight": [1.0, -1.0]}),
        (BagsError, "zero everywhere", {"sample_weight": [0.0, 0.0]}),
    ):
        call = {"y_true": [secret, secret], "y_pred": [1.0, 2.0], **arguments}
        with pytest.raises(error, match=pattern) as caught:
            metric(call.pop("y_true"), call.pop("y_pred"), **call)
        assert "0.123" not in str(caught.value)
        assert caught.value.__context__ is None


# In scikit-learn


@pytest.mark.parametrize("metric", ["r2", "mse", "deviance"])
def test_bags_and_noise_are_routed_to_splitter_estimator_and_scorer(metric):
    X, _, y, bags, _ = bagged(np.random.default_rng(0), noise_sd=0.3)
    params = {"bags": bags, "noise_sd": np.full(len(X), 0.3)}
    with routing():
        glm = BaggedGLM().set_fit_request(bags=True, noise_sd=True)
        model = Pipeline([("scale", StandardScaler()), ("glm", glm)])
        result = cross_validate(
            model, X, y, params=params, cv=SPLITTER, scoring=bag_scorer(metric), error_score="raise"
        )
    function = {"r2": bag_r2_score, "mse": bag_mean_squared_error, "deviance": bag_deviance}[metric]
    expected = []
    for train, test in SPLITTER.split(X, bags=bags):
        scaler = StandardScaler().fit(X[train])
        fitted = BaggedGLM().fit(
            scaler.transform(X[train]), y[train], bags=bags[train], noise_sd=0.3
        )
        predictions = fitted.predict(scaler.transform(X[test]))
        score = function(y[test], predictions, bags=bags[test], noise_sd=0.3)
        expected.append(score if metric == "r2" else -score)
    np.testing.assert_allclose(result["test_score"], expected, rtol=1e-9)


def test_several_scorers_and_a_weight_are_routed():
    X, _, y, bags, _ = bagged(np.random.default_rng(0))
    weight = np.where(bags < 20, 3.0, 1.0)
    scoring = {"r2": bag_scorer("r2"), "mse": bag_scorer("mse")}
    with routing():
        model = BaggedGLM().set_fit_request(bags=True, noise_sd=True, sample_weight=False)
        cv = BagKFold(3, random_state=0)
        plain = cross_validate(model, X, y, params={"bags": bags}, cv=cv, scoring=scoring)
        weighted = cross_validate(
            model, X, y, params={"bags": bags, "sample_weight": weight}, cv=cv, scoring=scoring
        )
    for name in ("test_r2", "test_mse"):
        assert np.isfinite(weighted[name]).all()
        assert not np.allclose(weighted[name], plain[name])


def test_grid_search_with_and_without_routing():
    X, _, y, bags, _ = bagged(np.random.default_rng(0))
    grid = {"ridge": [0.0, 1e6]}
    cv = BagKFold(3, random_state=0)
    with routing():
        model = BaggedGLM().set_fit_request(bags=True, noise_sd=True)
        routed = GridSearchCV(model, grid, cv=cv, scoring=bag_scorer("mse"))
        routed.fit(X, y, bags=bags, noise_sd=0.1)
    assert routed.best_params_ == {"ridge": 0.0}
    # Without routing, the ids are groups for the splitter, and bags for fit.
    plain = GridSearchCV(BaggedGLM(), grid, cv=cv, scoring="neg_mean_squared_error")
    plain.fit(X, y, groups=bags, bags=bags)
    assert np.isfinite(plain.cv_results_["mean_test_score"]).all()
    scores = cross_val_score(BaggedGLM(), X, y, groups=bags, params={"bags": bags}, cv=cv)
    assert scores.shape == (3,)


def test_a_scorer_without_bags_refuses_to_score_rows():
    X, _, y, bags, _ = bagged(np.random.default_rng(0))
    model = LinearRegression().fit(X, y)
    with pytest.raises(BagsError, match="a bag scorer got no bags"):
        bag_scorer()(model, X, y)
    with routing():
        score = bag_scorer()(model, X, y, bags=bags)
    assert score == pytest.approx(bag_r2_score(y, model.predict(X), bags=bags))


def test_classifiers_are_scored_by_probabilities():
    X = np.zeros((4, 1))
    model = DummyClassifier().fit(X, ["no", "yes", "yes", "yes"])
    with routing():
        score = bag_scorer("deviance", family="bernoulli")(
            model, X, [0.5, 0.5, 1.0, 1.0], bags=[0, 0, 1, 1]
        )
    expected = bag_deviance([0.5, 1.0], [0.75, 0.75], family="bernoulli")
    assert score == pytest.approx(-expected)


def test_scorers_can_be_pickled_and_keep_their_requests():
    X, _, y, bags, _ = bagged(np.random.default_rng(0))
    model = LinearRegression().fit(X, y)
    scorer = bag_scorer("deviance", family="gaussian")
    copy = pickle.loads(pickle.dumps(scorer))  # noqa: S301 - made on the line itself
    with routing():
        assert copy(model, X, y, bags=bags) == scorer(model, X, y, bags=bags)
        requests = copy.get_metadata_routing().score.requests
    assert requests == {"bags": True, "noise_sd": True, "sample_weight": True}


def test_unknown_metrics_and_families_are_refused():
    with pytest.raises(StrategyError, match="unknown metric 'mae'; known are r2, mse, deviance"):
        bag_scorer("mae")
    with pytest.raises(StrategyError, match="unknown family 'weibull'; known are gaussian"):
        bag_scorer("deviance", family="weibull")
    with pytest.raises(StrategyError, match="unknown family 'weibull'; known are gaussian"):
        bag_deviance([1.0], [1.0], family="weibull")


@pytest.mark.parametrize("metric", ["r2", "mse", "deviance"])
def test_a_ridge_is_chosen_without_a_single_row_label(metric):
    """Many weak features and noisy labels of few bags: no ridge overfits, a huge one forgets."""
    rng = np.random.default_rng(11)
    n_bags, size, d, noise_sd = 120, 5, 60, 0.5
    X = rng.normal(size=(n_bags * size, d))
    coef = 0.25 * rng.normal(size=d)
    bags = np.repeat(np.arange(n_bags), size)
    labels = Bags(bags).mean(X @ coef + rng.normal(size=len(X)))
    y = (labels + noise_sd * rng.normal(size=n_bags))[bags]
    ridges = [0.0, 0.01, 0.1, 1.0, 10.0]

    def row_error(ridge):
        # New rows have E|x'(estimate - coef)|^2 = |estimate - coef|^2.
        estimate = BaggedGLM(ridge=ridge).fit(X, y, bags=bags, noise_sd=noise_sd).coef_
        return float(np.sum((estimate - coef) ** 2))

    errors = {ridge: row_error(ridge) for ridge in ridges}
    best = min(errors, key=errors.get)
    assert best not in (ridges[0], ridges[-1])  # otherwise this would test nothing

    def choice(scoring):
        with routing():
            model = BaggedGLM().set_fit_request(bags=True, noise_sd=True)
            cv = BagKFold(5, random_state=0)
            search = GridSearchCV(model, {"ridge": ridges}, cv=cv, scoring=scoring, refit=False)
            search.fit(X, y, bags=bags, noise_sd=noise_sd)
        return ridges[int(np.argmin(search.cv_results_["rank_test_score"]))]

    assert errors[choice(bag_scorer(metric))] <= 1.1 * errors[best]
    # Rows compared with the labels of their bags ask for predictions that are far too flat.
    assert errors[choice("neg_mean_squared_error")] > 1.5 * errors[best]


def test_a_scorer_takes_the_chances_of_ones():
    rng = np.random.default_rng(4)
    X, bags = rng.normal(size=(2000, 2)), np.arange(2000) // 4
    y = np.repeat((rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))).reshape(500, 4).mean(axis=1), 4)
    with routing():
        model = BaggedGLM("bernoulli").set_fit_request(bags=True)
        fitted = BaggedGLM("bernoulli").fit(X, y, bags=bags)
        score = bag_scorer("mse")(fitted, X, y, bags=bags)
        scores = cross_val_score(
            model, X, y, params={"bags": bags}, cv=SPLITTER, scoring=bag_scorer("mse")
        )
    assert score == -bag_mean_squared_error(y, fitted.predict(X), bags=bags)
    assert np.isfinite(scores).all()
