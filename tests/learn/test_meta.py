"""Any regressor on bags: what it is trained on, with which weights, and when that is wrong."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, BiasWarning, StrategyError
from bagwise.learn.bag_weights import _held_out_means
from bagwise.learn.meta import BaggedRegressor
from bagwise.learn.model_selection import BagKFold, bag_r2_score, bag_scorer
from tests.stats import ALPHA, mean_is


@parametrize_with_checks(
    [
        BaggedRegressor(),
        BaggedRegressor(loss="instance"),
        BaggedRegressor(Ridge(), label_kind="pick"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class Recorder(RegressorMixin, BaseEstimator):
    """Keep what it was fitted with, and predict with least squares."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = X, y, sample_weight
        self.model_ = LinearRegression().fit(X, y, sample_weight=sample_weight)
        return self

    def predict(self, X):
        return self.model_.predict(X)


@pytest.fixture
def unequal():
    """Rows in two bags of 12 and in 24 bags of 4, with the mean label of each."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 3))
    y = X @ [1.0, -2.0, 3.0] + 5 + rng.normal(size=120)
    bags = Bags.from_labels(rng.permutation(np.repeat(np.arange(26), [12, 12] + [4] * 24)))
    return X, bags.repeat(bags.mean(y)), bags


class TestWhatItIsTrainedOn:
    def test_aggregate_is_one_row_per_bag_weighted_by_size(self, unequal):
        X, y, bags = unequal
        rows, labels, weight = BaggedRegressor(Recorder()).fit(X, y, bags=bags).estimator_.seen_
        for bag in range(bags.n_bags):
            inside = bags.index == bag
            np.testing.assert_allclose(rows[bag], X[inside].mean(axis=0))
            assert labels[bag] == y[inside][0]
            assert weight[bag] == inside.sum()

    def test_picks_count_the_same_whatever_the_size(self, unequal):
        X, y, bags = unequal
        model = BaggedRegressor(Recorder(), label_kind="pick").fit(X, y, bags=bags)
        assert np.array_equal(model.estimator_.seen_[2], np.ones(26))

    def test_instance_is_every_row_with_the_label_of_its_bag(self, unequal):
        X, y, bags = unequal
        own = np.random.default_rng(0).uniform(size=120)  # may differ inside a bag
        with pytest.warns(BiasWarning):
            model = BaggedRegressor(Recorder(), "instance").fit(X, y, bags=bags, sample_weight=own)
        rows, labels, weight = model.estimator_.seen_
        assert np.array_equal(rows, X)
        assert np.array_equal(labels, y)
        assert np.array_equal(weight, own)

    def test_sample_weight_multiplies_the_weight_of_a_bag(self, unequal):
        X, y, bags = unequal
        own = bags.repeat(np.linspace(0, 2, 26))
        model = BaggedRegressor(Recorder()).fit(X, y, bags=bags, sample_weight=own)
        np.testing.assert_allclose(model.estimator_.seen_[2], np.linspace(0, 2, 26) * bags.sizes)
        own[0] += 1
        with pytest.raises(BagsError, match="sample_weight differs inside bag 0"):
            BaggedRegressor().fit(X, y, bags=bags, sample_weight=own)

    @pytest.mark.parametrize("loss", ["aggregate", "instance"])
    def test_without_bags_it_is_the_regressor_itself(self, unequal, loss):
        X = unequal[0]
        y = np.random.default_rng(0).normal(size=120)
        model = BaggedRegressor(Ridge(alpha=3.0), loss).fit(X, y)
        np.testing.assert_allclose(model.predict(X), Ridge(alpha=3.0).fit(X, y).predict(X))

    def test_a_regressor_without_weights_counts_bags_the_same(self, unequal):
        X, y, bags = unequal
        model = BaggedRegressor(KNeighborsRegressor(1)).fit(X, y, bags=bags, noise_sd=1.0)
        np.testing.assert_allclose(model.predict(bags.mean(X)), bags.mean(y))
        with pytest.raises(StrategyError, match=r"KNeighborsRegressor\.fit does not accept it"):
            BaggedRegressor(KNeighborsRegressor()).fit(X, y, bags=bags, sample_weight=np.ones(120))


def noisy_bags(rng, *, n_bags, row_sd, sd_of_half):
    """Make bags of 4 and 8 rows around a line; every other label has much noise."""
    sizes = np.where(np.arange(n_bags) < n_bags // 2, 4, 8)
    bags = Bags(np.repeat(np.arange(n_bags), sizes))
    X = rng.normal(size=(bags.n_rows, 2)) + bags.repeat(rng.normal(size=(n_bags, 2)))
    y = X @ [1.0, 2.0] + row_sd * rng.normal(size=bags.n_rows)
    noise = np.where(np.arange(n_bags) % 2, sd_of_half, 0.1)
    labels = bags.mean(y) + noise * rng.normal(size=n_bags)
    return X, bags.repeat(labels), bags, noise


def implied_row_variance(weight, sizes, noise):
    """Solve ``w0 / w1 = (s^2 / n1 + noise1^2) / (s^2 / n0 + noise0^2)`` for s^2."""
    ratio = weight[0] / weight[1]
    return (noise[1] ** 2 - ratio * noise[0] ** 2) / (ratio / sizes[0] - 1 / sizes[1])


class TestKnownNoise:
    @pytest.fixture(scope="class")
    @staticmethod
    def row_variances():
        found = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            X, y, bags, noise = noisy_bags(rng, n_bags=1000, row_sd=2.0, sd_of_half=3.0)
            model = BaggedRegressor(Recorder()).fit(X, y, bags=bags, noise_sd=bags.repeat(noise))
            weight = model.estimator_.seen_[2]
            found.append(implied_row_variance(weight, bags.sizes, noise))
            omega = found[-1] / bags.sizes + noise**2
            np.testing.assert_allclose(weight * omega, weight[0] * omega[0])
            np.testing.assert_allclose(weight.sum(), bags.n_rows)
        return found

    def test_bags_count_by_one_over_their_variance(self, row_variances):
        assert mean_is(row_variances, 4.0)

    def test_the_check_would_notice_a_row_variance_that_is_a_little_off(self, row_variances):
        assert not mean_is(row_variances, 4.0 * 1.1)

    def test_a_regressor_that_learns_by_heart_is_judged_on_other_bags(self):
        # On the bags that it has seen, this tree leaves nothing: row_variance would be 0.
        class Tree(DecisionTreeRegressor):
            def fit(self, X, y, sample_weight=None):
                self.weight_seen_ = sample_weight
                return super().fit(X, y, sample_weight=sample_weight)

        rng = np.random.default_rng(0)
        X, y, bags, noise = noisy_bags(rng, n_bags=400, row_sd=2.0, sd_of_half=1.0)
        model = BaggedRegressor(Tree(random_state=0)).fit(
            X, y, bags=bags, noise_sd=bags.repeat(noise)
        )
        found = implied_row_variance(model.estimator_.weight_seen_, bags.sizes, noise)
        assert found > 4.0

    def test_noisy_bags_do_little_harm_if_the_noise_is_known(self):
        error = {"known": [], "ignored": []}
        for seed in range(20):
            rng = np.random.default_rng(seed)
            X, y, bags, noise = noisy_bags(rng, n_bags=100, row_sd=0.5, sd_of_half=20.0)
            for way, noise_sd in (("known", bags.repeat(noise)), ("ignored", None)):
                model = BaggedRegressor().fit(X, y, bags=bags, noise_sd=noise_sd)
                error[way].append(np.sum((model.estimator_.coef_ - [1.0, 2.0]) ** 2))
        assert np.mean(error["known"]) < np.mean(error["ignored"]) / 100

    def test_the_same_noise_and_size_need_no_second_fit(self):
        class Counting(Recorder):
            fits = 0

            def fit(self, X, y, sample_weight=None):
                Counting.fits += 1
                return super().fit(X, y, sample_weight)

        X, bags = np.random.default_rng(0).normal(size=(80, 2)), np.repeat(np.arange(20), 4)
        y = bags.astype(float)
        BaggedRegressor(Counting()).fit(X, y, bags=bags, noise_sd=2.0)
        assert Counting.fits == 1
        BaggedRegressor(Counting()).fit(X, y, bags=bags, noise_sd=1.0 + (bags % 2))
        assert Counting.fits == 4
        uneven = np.arange(80) // np.where(np.arange(80) < 40, 2, 4)  # a pick from any size
        pick = BaggedRegressor(Counting(), label_kind="pick")
        pick.fit(X, uneven.astype(float), bags=uneven, noise_sd=2.0)
        assert Counting.fits == 5

    @pytest.mark.parametrize("n_bags", [1, 2, 9])
    def test_few_bags_are_weighted_without_a_fit(self, n_bags):
        X, y = np.arange(float(n_bags))[:, None], np.arange(float(n_bags)) % 3
        noise = np.arange(n_bags) * 0.5
        weight = BaggedRegressor(Recorder()).fit(X, y, noise_sd=noise).estimator_.seen_[2]
        assert np.isfinite(weight).all()
        assert (np.diff(weight) < 0).all()

    def test_weights_that_are_all_zero_are_refused(self):
        with pytest.raises(BagsError, match="nor zero everywhere"):
            BaggedRegressor().fit(np.eye(3), np.zeros(3), sample_weight=np.zeros(3))


class TestRandomBags:
    @pytest.fixture
    def steps(self):
        rng = np.random.default_rng(1)
        X = rng.uniform(size=(12_000, 1))
        truth = np.where(X[:, 0] < 0.5, 0.0, 10.0)
        bags = Bags(rng.permutation(np.arange(12_000) // 6))
        return X, truth, bags, bags.repeat(bags.mean(truth + rng.normal(size=12_000)))

    def test_instance_loss_says_that_it_is_flat(self, steps):
        X, _, bags, y = steps
        flat = BaggedRegressor(DecisionTreeRegressor(max_depth=1), "instance")
        with pytest.warns(BiasWarning) as said:
            flat.fit(X, y, bags=bags)
        (warning,) = said
        assert "loss='aggregate'" in str(warning.message)
        assert not any(character.isdigit() for character in str(warning.message))
        assert warning.filename == __file__
        low, high = flat.predict([[0.25], [0.75]])
        # The label of a bag has a standard deviation of sqrt((25 + 1) / 6). At worst the 2000 bags
        # say as much about each side as 2000 rows would.
        assert abs(high - low - 10 / 6) < norm.isf(ALPHA / 2) * np.sqrt(26 / 6) * np.sqrt(2 / 2000)

    def test_boosted_trees_on_random_bags_are_warned_of_too(self, steps):
        X, _, bags, y = steps
        with pytest.warns(BiasWarning):
            BaggedRegressor(GradientBoostingRegressor(n_estimators=20), "instance").fit(
                X, y, bags=bags
            )

    def test_compact_bags_need_no_warning(self, steps):
        X, truth, _, _ = steps
        order = np.argsort(X[:, 0])
        bags = Bags(np.argsort(order) // 6)
        y = bags.repeat(bags.mean(truth))
        model = BaggedRegressor(DecisionTreeRegressor(max_depth=1), "instance").fit(X, y, bags=bags)
        np.testing.assert_allclose(model.predict([[0.25], [0.75]]), [0, 10])

    def test_predictions_that_differ_by_rounding_need_no_warning(self, steps):
        class Rounding(LinearRegression):
            def predict(self, X):
                return np.where(X[:, 0] < 0.5, 0.1, 0.1 + 1e-13)

        X, _, bags, _ = steps
        model = BaggedRegressor(Rounding(), "instance").fit(X, np.full(len(X), 0.1), bags=bags)
        assert np.ptp(model.predict(X)) > 0


class TestParameters:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"loss": "bag"}, "unknown loss 'bag'; known are aggregate, instance"),
            ({"label_kind": "sum"}, "unknown label_kind 'sum'"),
        ],
    )
    def test_what_is_not_known_is_refused(self, parameters, message):
        with pytest.raises(StrategyError, match=message):
            BaggedRegressor(**parameters).fit(np.eye(3), np.ones(3))

    def test_a_label_that_differs_inside_a_bag_is_not_quoted(self):
        with pytest.raises(BagsError, match="y differs inside bag 0") as error:
            BaggedRegressor().fit(np.eye(3), [31.0, 57.0, 1.0], bags=[0, 0, 1])
        assert "31" not in str(error.value)
        assert "57" not in str(error.value)

    def test_the_regressor_given_is_not_fitted_itself(self, unequal):
        X, y, bags = unequal
        given = Ridge()
        BaggedRegressor(given).fit(X, y, bags=bags)
        assert not hasattr(given, "coef_")


class TestRouting:
    """Bags and noise reach the regressor through pipelines and searches, without being asked."""

    @pytest.fixture(autouse=True)
    def _routing(self):
        with sklearn.config_context(enable_metadata_routing=True):
            yield

    def test_pipelines_pass_bags_and_noise(self, unequal):
        X, y, bags = unequal
        noise = bags.repeat(np.linspace(0.1, 3, 26))
        pipeline = make_pipeline(StandardScaler(), BaggedRegressor(Ridge()))
        pipeline.fit(X, y, bags=bags.index, noise_sd=noise)
        scaled = StandardScaler().fit_transform(X)
        alone = BaggedRegressor(Ridge()).fit(scaled, y, bags=bags, noise_sd=noise)
        np.testing.assert_allclose(pipeline.predict(X), alone.predict(scaled))
        without = BaggedRegressor(Ridge()).fit(scaled, y, bags=bags)
        assert not np.allclose(pipeline.predict(X), without.predict(scaled))
        assert pipeline.score(X, y, bags=bags.index, noise_sd=noise) == bag_r2_score(
            y, pipeline.predict(X), bags=bags, noise_sd=noise
        )

    def test_searches_and_cross_validation(self, unequal):
        X, y, bags = unequal
        grid = {"estimator__alpha": [0.1, 1e6]}
        search = GridSearchCV(
            BaggedRegressor(Ridge()), grid, cv=BagKFold(4, random_state=0), scoring=bag_scorer("r2")
        )
        search.fit(X, y, bags=bags.index)
        assert search.best_params_ == {"estimator__alpha": 0.1}
        assert search.best_estimator_.n_bags_ == 26
        scores = cross_validate(
            BaggedRegressor(), X, y, params={"bags": bags.index}, cv=BagKFold(4, random_state=0)
        )["test_score"]
        assert np.median(scores) > 0.8


def test_the_score_is_that_of_bags(unequal):
    X, y, bags = unequal
    model = BaggedRegressor().fit(X, y, bags=bags)
    by_bags = model.score(X, y, bags=bags)
    assert by_bags == bag_r2_score(y, model.predict(X), bags=bags)
    assert by_bags > 0.9
    with pytest.warns(BiasWarning, match="bags="):
        assert model.score(X, y) < 0


def test_column_names_are_kept(unequal):
    X, y, bags = unequal
    model = BaggedRegressor().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y, bags=bags)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert model.n_bags_ == 26


def test_both_halves_have_bags_that_count():
    weight = np.zeros(40)
    weight[:4] = 1.0
    halves = []

    def predict_bags(chosen, weight):
        halves.append(int(np.count_nonzero(weight[chosen])))
        return np.zeros(40)

    _held_out_means(predict_bags, weight)
    assert halves == [2, 2]
