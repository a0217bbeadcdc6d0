"""The bag loss in PyTorch, and the network that is trained with it."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import sklearn
import torch
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, LabelError, StrategyError
from bagwise.families import find_family
from bagwise.learn import bag_weights as weights_module
from bagwise.learn.bag_data import read_bags
from bagwise.learn.bag_weights import bag_weights
from bagwise.learn.meta import BaggedRegressor
from bagwise.learn.model_selection import BagKFold, bag_r2_score
from bagwise.learn.network.loss import INVERSE_LINKS, BagMeanLoss
from bagwise.learn.network.regressor import BaggedNetwork
from bagwise.learn.network.training import BagBatches
from bagwise.show.stages import progress_to


@parametrize_with_checks([BaggedNetwork()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def tensor(*values, dtype=None):
    return torch.tensor(values, dtype=dtype or torch.float64)


class TestBagMeanLoss:
    index = torch.tensor([0, 2, 1, 0])
    labels = tensor(1.0, 5.0, -2.0)

    def test_by_hand(self):
        # Bag means are 2, 5 and 3: squares of the errors are 1, 0 and 25.
        predictions = tensor(1.0, 3.0, 5.0, 3.0)
        loss = BagMeanLoss()(predictions, self.index, self.labels)
        assert float(loss) == pytest.approx(26 / 3)
        weight = tensor(2.0, 5.0, 1.0)
        loss = BagMeanLoss()(predictions, self.index, self.labels, weight)
        assert float(loss) == pytest.approx((2 * 1 + 25) / 8)

    @pytest.mark.parametrize("family", INVERSE_LINKS)
    def test_links_are_those_of_the_families(self, family):
        eta = np.array([-1.0, 0.3, 2.0, -0.4])
        mean = Bags(self.index.numpy()).mean(find_family(family).mean(eta))
        expected = np.mean((self.labels.numpy() - mean) ** 2)
        loss = BagMeanLoss(family)(torch.tensor(eta), self.index, self.labels)
        assert float(loss) == pytest.approx(expected)

    def test_single_rows_have_the_usual_squared_error(self):
        rng = torch.Generator().manual_seed(0)
        predictions, labels = torch.randn(2, 50, generator=rng)
        found = BagMeanLoss()(predictions, torch.arange(50), labels)
        torch.testing.assert_close(found, torch.nn.functional.mse_loss(predictions, labels))

    @pytest.mark.parametrize("family", INVERSE_LINKS)
    def test_gradients(self, family):
        rng = torch.Generator().manual_seed(0)
        index = torch.tensor([0, 1, 1, 3, 2, 2, 2, 0])
        draw = {"generator": rng, "dtype": torch.float64}
        predictions = torch.randn(8, **draw).requires_grad_()
        labels = torch.randn(4, **draw).requires_grad_()  # some outside the family's range
        weight = torch.rand(4, **draw).requires_grad_()

        def loss(predictions, labels, weight):
            return BagMeanLoss(family)(predictions, index, labels, weight)

        assert torch.autograd.gradcheck(loss, (predictions, labels, weight))

    def test_every_row_of_a_bag_gets_the_same_share_of_the_gradient(self):
        predictions = tensor(1.0, 3.0, 5.0, 3.0).requires_grad_()
        BagMeanLoss()(predictions, self.index, self.labels).backward()
        # Of bag 0: 2 * (2 - 1) / 3 bags / 2 rows for each.
        torch.testing.assert_close(predictions.grad, tensor(1 / 3, 10 / 3, 0, 1 / 3))

    def test_single_precision_stays_single(self):
        values = torch.ones(4, dtype=torch.float32)
        assert BagMeanLoss()(values, self.index, self.labels.float()).dtype == torch.float32

    @pytest.mark.parametrize(
        ("predictions", "index", "message"),
        [
            (torch.zeros(4, 1), [0, 0, 1, 2], r"got shapes \(4, 1\) and \(4,\)"),
            (torch.zeros(3), [0, 0, 1, 2], r"got shapes \(3,\) and \(4,\)"),
            (torch.zeros(4), [0, 0, 2, 2], "must name each of the 3 bags, 0 to 2"),
            (torch.zeros(4), [0, 1, 2, 3], "must name each of the 3 bags, 0 to 2"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, predictions, index, message):
        with pytest.raises(BagsError, match=message):
            BagMeanLoss()(predictions, torch.tensor(index), torch.zeros(3))

    def test_families(self):
        assert repr(BagMeanLoss("poisson")) == "BagMeanLoss(family='poisson')"
        with pytest.raises(StrategyError, match="unknown family of a network 'gamma'"):
            BagMeanLoss("gamma")


def test_batches_are_whole_bags():
    rng = np.random.default_rng(0)
    index = rng.permutation(np.repeat(np.arange(5), [1, 3, 2, 4, 2]))
    X = np.column_stack([index, np.arange(12.0)])
    y = index * 10.0
    data = read_bags(X, y, bags=Bags(index))
    batch = BagBatches(data, np.arange(5.0))
    rows, bag_of_row, labels, weight = batch.take(torch.tensor([3, 0, 2]))
    assert labels.tolist() == [30, 0, 20]
    assert weight.tolist() == [3, 0, 2]
    assert rows[:, 0].tolist() == [3, 3, 3, 3, 0, 2, 2]
    assert bag_of_row.tolist() == [0, 0, 0, 0, 1, 2, 2]
    assert sorted(rows[:, 1]) == sorted(np.flatnonzero(np.isin(index, [3, 0, 2])))


def curve(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2


@pytest.fixture(scope="module")
def curved():
    """2000 rows of a curved function, with noise, in bags of 10 neighbours; and new rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(2000, 2))
    y = curve(X) + 0.3 * rng.normal(size=2000)
    stripe = np.floor((X[:, 0] + 2) * 4)  # 16 stripes, each cut into runs of about 10 rows
    bags = Bags.from_labels(np.argsort(np.lexsort((X[:, 1], stripe))) // 10)
    return X, y, bags, rng.uniform(-2, 2, size=(2000, 2))


def error(model, X_new):
    return np.mean((model.predict(X_new) - curve(X_new)) ** 2)


class TestTheNetwork:
    @pytest.fixture(scope="class")
    @staticmethod
    def fitted(curved):
        X, y, bags, _ = curved
        return BaggedNetwork(random_state=0).fit(X, bags.repeat(bags.mean(y)), bags=bags)

    def test_it_learns_a_curve_from_bags_about_as_well_as_from_rows(self, curved, fitted):
        X, y, bags, X_new = curved
        by_rows = BaggedNetwork(random_state=0).fit(X, y)
        linear = BaggedRegressor().fit(X, bags.repeat(bags.mean(y)), bags=bags)
        assert fitted.n_bags_ == 200
        assert error(linear, X_new) > 1.5
        assert error(by_rows, X_new) < 0.03
        assert error(fitted, X_new) < error(by_rows, X_new) + 0.03

    def test_random_bags_cost_something_yet_are_not_flat(self, curved):
        X, y, _, X_new = curved
        bags = Bags(np.random.default_rng(1).permutation(np.arange(2000) // 10))
        model = BaggedNetwork(random_state=0).fit(X, bags.repeat(bags.mean(y)), bags=bags)
        assert error(model, X_new) < 0.15  # the curve varies by 1.75

    def test_it_stops_when_held_out_bags_stop_getting_better(self, curved):
        X, y, bags, _ = curved
        y = bags.repeat(bags.mean(y))
        seen = []
        with progress_to(lambda what, share: seen.append(share)):
            hasty = BaggedNetwork(random_state=0, patience=3).fit(X, y, bags=bags)
        assert hasty.n_epochs_ < 100
        assert seen[-2:] == [hasty.n_epochs_ / 200, 1.0]
        without = BaggedNetwork(random_state=0, validation_share=0, epochs=12, patience=1)
        assert without.fit(X, y, bags=bags).n_epochs_ == 12

    def test_the_best_epoch_counts_not_the_last(self):
        # Labels without any pattern: the first epochs, close to the mean, are the best.
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(200, 20)), rng.normal(size=200)
        settings = {"learning_rate": 0.02, "random_state": 0}
        stopped = BaggedNetwork(validation_share=0.3, **settings).fit(X, y)
        by_heart = BaggedNetwork(validation_share=0, **settings).fit(X, y)
        assert stopped.n_epochs_ <= 80
        assert np.var(stopped.predict(X)) < 0.5 < np.var(by_heart.predict(X))

    def test_the_same_seed_gives_the_same_network(self, curved, fitted):
        X, y, bags, X_new = curved
        torch.manual_seed(99)
        before = torch.random.get_rng_state()
        twin = BaggedNetwork(random_state=0).fit(X, bags.repeat(bags.mean(y)), bags=bags)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert np.array_equal(twin.predict(X_new), fitted.predict(X_new))
        other = BaggedNetwork(random_state=1, epochs=2).fit(X, y)
        third = BaggedNetwork(random_state=2, epochs=2).fit(X, y)
        assert not np.allclose(other.predict(X_new), third.predict(X_new))

    def test_the_network_can_be_used_by_itself_and_kept(self, curved, fitted):
        X_new = curved[3]
        with torch.no_grad():
            alone = fitted.network_(torch.tensor(X_new)).numpy()
        assert np.array_equal(alone, fitted.predict(X_new))
        again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
        assert np.array_equal(again.predict(X_new), alone)

    def test_units_do_not_matter(self, curved):
        X, y, bags, X_new = curved
        y = bags.repeat(bags.mean(y))
        settings = {"random_state": 0, "epochs": 20}
        plain = BaggedNetwork(**settings).fit(X, y, bags=bags)
        scaled = BaggedNetwork(**settings).fit(1e-6 * X - 3, 1e-9 * y + 5e-9, bags=bags)
        found = (scaled.predict(1e-6 * X_new - 3) - 5e-9) * 1e9
        np.testing.assert_allclose(found, plain.predict(X_new), atol=1e-4)

    def test_the_number_of_threads_is_left_as_it_was(self):
        seen = []
        threads = torch.get_num_threads()
        torch.set_num_threads(threads + 1)
        try:
            with progress_to(lambda what, share: seen.append(torch.get_num_threads())):
                BaggedNetwork(epochs=1).fit(np.eye(5), np.arange(5.0))
            assert (seen, torch.get_num_threads()) == ([1], threads + 1)
        finally:
            torch.set_num_threads(threads)

    def test_progress_is_reported(self):
        seen = []
        with progress_to(lambda what, share: seen.append((what, share))):
            BaggedNetwork(epochs=4).fit(np.eye(5), np.arange(5.0))
        assert seen == [("training the network", share) for share in (0.25, 0.5, 0.75, 1.0)]

    def test_bags_of_weight_zero_are_not_used(self, curved):
        X, y, bags, X_new = curved
        y = bags.repeat(bags.mean(y))
        weight = bags.repeat((np.arange(200) < 60).astype(float))
        kept = weight > 0
        wrong = np.where(kept, y, 1e6)
        settings = {"random_state": 0, "epochs": 20}
        some = BaggedNetwork(**settings).fit(X, wrong, bags=bags, sample_weight=weight)
        alone = BaggedNetwork(**settings).fit(X[kept], y[kept], bags=bags.index[kept])
        np.testing.assert_allclose(some.predict(X_new), alone.predict(X_new), rtol=1e-6)

    def test_a_module_of_ones_own(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(90, 3))
        bags = np.arange(90) // 3
        y = np.repeat((X @ [1.0, 2.0, -1.0]).reshape(30, 3).mean(axis=1), 3)
        model = BaggedNetwork(
            module=lambda width: torch.nn.Linear(width, 1),
            learning_rate=0.05,
            epochs=300,
            weight_decay=0,
            random_state=0,
        ).fit(X, y, bags=bags)
        expected = LinearRegression().fit(X.reshape(30, 3, 3).mean(axis=1), y[::3])
        np.testing.assert_allclose(model.predict(X), expected.predict(X), atol=1e-3)
        with pytest.raises(StrategyError, match=r"one number per row, got shape \(90, 2\)"):
            BaggedNetwork(module=lambda width: torch.nn.Linear(width, 2), bags_per_batch=90).fit(
                X, y, bags=bags
            )

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"family": "gamma"}, "unknown family of a network 'gamma'"),
            ({"label_kind": "sum"}, "unknown label_kind 'sum'"),
            ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
            ({"bags_per_batch": 2.5}, "bags_per_batch must be a whole number"),
            ({"patience": 0}, "patience must be a whole number"),
            ({"hidden": (8, 0)}, "each width in hidden must be a whole number"),
            ({"learning_rate": 0.0}, "learning_rate must be above 0"),
            ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
            ({"validation_share": 1.0}, "validation_share must be at least 0 and below 1"),
        ],
    )
    def test_impossible_parameters_are_refused(self, parameters, message):
        with pytest.raises(StrategyError, match=message):
            BaggedNetwork(**parameters).fit(np.eye(3), np.ones(3))

    def test_training_that_diverges_says_so(self):
        X, y = np.arange(20.0)[:, None], np.arange(20.0)
        with pytest.raises(StrategyError, match="training diverged"):
            BaggedNetwork(learning_rate=1e200, epochs=5).fit(X, y)


class TestFamilies:
    @pytest.fixture(scope="class")
    @staticmethod
    def rows():
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, size=(3000, 1))
        bags = Bags(np.argsort(np.argsort(X[:, 0] + rng.normal(size=3000))) // 10)
        return X, bags, rng

    @pytest.mark.parametrize(
        ("family", "shape"),
        [("poisson", lambda x: np.abs(x) - 1), ("bernoulli", lambda x: 3 - 3 * np.abs(x))],
    )
    def test_expected_labels_are_found_from_noisy_labels_out_of_range(self, rows, family, shape):
        X, bags, rng = rows
        kind = find_family(family)
        y = kind.sample(shape(X[:, 0]), phi=1.0, rng=rng)
        noise = 0.2
        labels = bags.mean(y) + noise * rng.normal(size=300)
        low, high = kind.label_range
        assert ((labels < low) | (labels > high)).any()
        model = BaggedNetwork(family=family, random_state=0)
        model.fit(X, bags.repeat(labels), bags=bags, noise_sd=noise)
        truth = kind.mean(shape(X[:, 0]))
        predictions = model.predict(X)
        assert (low <= predictions).all()
        assert (predictions <= high).all()
        assert np.mean((predictions - truth) ** 2) < 0.15 * np.var(truth)

    def test_impossible_labels_without_noise_are_refused(self):
        with pytest.raises(LabelError, match="not possible in the family bernoulli") as said:
            BaggedNetwork(family="bernoulli").fit(np.eye(3), [0.0, 1.0, 4.25])
        assert "4.25" not in str(said.value)

    def test_bags_count_by_what_the_family_says_of_their_variance(self, monkeypatch):
        # Means of counts vary by their expected value: 0.5 on the left, 8 on the right.
        seen = []

        def spy(*arguments, **options):
            seen.append(bag_weights(*arguments, **options))
            return seen[-1]

        monkeypatch.setattr("bagwise.learn.network.regressor.bag_weights", spy)
        X = np.repeat([0.0, 1.0], 200)[:, None]
        y = np.random.default_rng(0).poisson(np.repeat([0.5, 8.0], 200)).astype(float)
        BaggedNetwork(
            family="poisson", epochs=100, learning_rate=0.02, validation_share=0, random_state=0
        ).fit(X, y)
        left, right = seen[0][:200].mean(), seen[0][200:].mean()
        assert left / right == pytest.approx(16, rel=0.4)


class TestNoise:
    def test_noisy_bags_count_less(self, curved):
        X, y, bags, X_new = curved
        rng = np.random.default_rng(0)
        noise = np.where(np.arange(200) % 2, 5.0, 0.0)
        labels = bags.repeat(bags.mean(y) + noise * rng.normal(size=200))
        known = BaggedNetwork(random_state=0).fit(X, labels, bags=bags, noise_sd=bags.repeat(noise))
        ignored = BaggedNetwork(random_state=0).fit(X, labels, bags=bags)
        assert error(known, X_new) < 0.1
        assert error(ignored, X_new) > 3 * error(known, X_new)

    def test_both_halves_have_bags_that_count(self):
        weight = np.zeros(40)
        weight[:4] = 1.0
        halves = []

        def predict_bags(chosen, weight):
            halves.append(int(np.count_nonzero(weight[chosen])))
            return np.zeros(40)

        weights_module._held_out_means(predict_bags, weight)
        assert halves == [2, 2]


class TestRouting:
    def test_pipelines_and_cross_validation_pass_bags_and_noise(self, curved):
        X, y, bags, X_new = curved
        y = bags.repeat(bags.mean(y))
        noise = bags.repeat(np.linspace(0.01, 1, 200))
        network = BaggedNetwork(random_state=0, epochs=10)
        with sklearn.config_context(enable_metadata_routing=True):
            pipeline = make_pipeline(StandardScaler(), network)
            pipeline.fit(X, y, bags=bags.index, noise_sd=noise)
            score = pipeline.score(X, y, bags=bags.index, noise_sd=noise)
            crossed = cross_validate(
                network, X, y, params={"bags": bags.index}, cv=BagKFold(2), return_estimator=True
            )
        # To standardise twice is to standardise once.
        alone = BaggedNetwork(random_state=0, epochs=10).fit(X, y, bags=bags, noise_sd=noise)
        np.testing.assert_allclose(pipeline.predict(X_new), alone.predict(X_new), rtol=1e-6)
        assert score == bag_r2_score(y, pipeline.predict(X), bags=bags, noise_sd=noise)
        assert [model.n_bags_ for model in crossed["estimator"]] == [100, 100]


class TestWithoutTorch:
    def run(self, code):
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    def test_nothing_imports_it_before_it_is_used(self):
        code = (
            "import sys, bagwise, bagwise.learn, bagwise.learn.network.regressor as module;"
            "module.BaggedNetwork();"
            "print('torch' in sys.modules)"
        )
        assert self.run(code).strip() == "False"

    def test_the_error_names_the_extra(self):
        code = """
import sys
from bagwise.errors import MissingExtraError
from bagwise.learn.network.regressor import BaggedNetwork
sys.modules["torch"] = None  # as if it were not installed
try:
    BaggedNetwork().fit([[0.0], [1.0]], [0.0, 1.0])
except MissingExtraError as error:
    print(error)
try:
    from bagwise.learn.network.loss import BagMeanLoss
except ImportError as error:
    print(error)
"""
        advice = 'needs an optional part: pip install "bagwise[torch]"'
        assert self.run(code).splitlines() == [f"BaggedNetwork {advice}", f"BagMeanLoss {advice}"]


class TestClasses:
    def rows(self, n=3000, size=5):
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, size=(n, 2))
        scores = np.column_stack([np.zeros(n), 3 * np.abs(X[:, 0]) - 3, 2 * X[:, 1]])
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        marks = np.array([rng.multinomial(1, chance) for chance in chances], dtype=float)
        return X, chances, marks, Bags(np.argsort(np.argsort(X[:, 0])) // size)

    @pytest.mark.parametrize("noise", [0.0, 0.1])
    def test_shares_of_classes(self, noise):
        X, chances, marks, bags = self.rows()
        shares = bags.mean(marks)
        shares = shares + noise * np.random.default_rng(1).normal(size=shares.shape)
        network = BaggedNetwork((32,), family="multinomial", epochs=60, random_state=0)
        y = bags.repeat(shares)
        network.fit(X, y, bags=bags, noise_sd=noise or None)
        found = network.predict(X)
        assert found.shape == chances.shape
        assert found.sum(axis=1) == pytest.approx(1)
        assert np.mean((found - chances) ** 2) < 0.15 * np.mean((chances - chances.mean(0)) ** 2)
        assert network.score(X, y, bags=bags, noise_sd=noise or None) > 0.6

    def test_classes_of_rows(self):
        X, chances, marks, _ = self.rows()
        names = np.array(["a", "b", "c"])
        network = BaggedNetwork((32,), family="multinomial", epochs=20, random_state=0)
        network.fit(X, names[marks.argmax(axis=1)])
        assert network.classes_.tolist() == ["a", "b", "c"]
        assert np.mean(network.predict(X).argmax(1) == chances.argmax(1)) > 0.85

    def test_loss_by_hand(self):
        scores = torch.log(tensor([0.2, 0.8], [0.6, 0.4], [0.5, 0.5]))
        index, labels = torch.tensor([0, 0, 1]), tensor([0.5, 0.5], [1.0, 0.0])
        loss = BagMeanLoss("multinomial")
        # Bag means are (0.4, 0.6) and (0.5, 0.5).
        assert float(loss(scores, index, labels)) == pytest.approx((2 * 0.01 + 2 * 0.25) / 4)
        weight = tensor(3.0, 1.0)
        assert float(loss(scores, index, labels, weight)) == pytest.approx((0.06 + 0.5) / 8)
        each = tensor([3.0, 1.0], [0.0, 4.0])
        assert float(loss(scores, index, labels, each)) == pytest.approx((0.04 + 1.0) / 8)

    def test_a_module_has_to_fit_the_classes(self):
        X, _, marks, _ = self.rows(n=100)
        network = BaggedNetwork(family="multinomial", module=lambda d: torch.nn.Linear(d, 2))
        with pytest.raises(StrategyError, match="3 numbers per row"):
            network.fit(X, marks)
