"""Boosted trees as estimators: the contract of scikit-learn, and what they learn."""

import numpy as np
import pytest
import sklearn
from scipy.optimize import nnls
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.errors import BagsError, LabelError, StrategyError
from bagwise.learn import boosters
from bagwise.learn.boosters import _threads
from bagwise.learn.boosting import blend_weights

QUICK = {"random_state": 0, "n_jobs": 1, "leaves": 4, "max_rounds": 5, "n_folds": 2}


@parametrize_with_checks(
    [bw.BaggedBooster(**QUICK), bw.BaggedClassifier(**QUICK, start="constant")],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "a row twice may be in two folds, and "
        "with twice the weight in one"
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [bw.BaggedBooster("gamma", **QUICK)],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": "as above"},
)
def test_scikit_learn_contract_of_positive_labels(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("n_jobs", "rows", "threads"), [(None, 20_000, 1), (None, 200_000, 0), (2, 20_000, 2)]
)
def test_a_small_table_is_grown_by_one_thread(n_jobs, rows, threads):
    # Two threads that share their cores with another program took minutes for what takes seconds.
    assert _threads(n_jobs, np.empty((rows, 10))) == threads


def bent(n=3000, size=10, *, seed=0, noise=0.0, strategy="kmeans"):
    """Rows with a bent and a stepped effect, in compact bags."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 3))
    eta = np.abs(X[:, 0]) + 1.5 * (X[:, 1] > 0.5) - 1.0
    bags = bw.make_bags(X, bag_size=size, strategy=strategy, seed=0)
    return X, eta, bags, noise * rng.normal(size=bags.n_bags), rng


def explained(truth, predicted):
    return 1 - np.mean((truth - predicted) ** 2) / np.var(truth)


def test_it_learns_what_no_line_can_say():
    X, eta, bags, noise, _ = bent(noise=0.3)
    y = bags.mean(eta) + noise
    model = bw.BaggedBooster(random_state=0, n_jobs=1, leaves=8)
    model.fit(X, y[bags.index], bags=bags, noise_sd=0.3)
    line = bw.BaggedGLM().fit(X, y[bags.index], bags=bags, noise_sd=0.3)
    repeated = bw.BaggedRegressor(loss="aggregate").fit(X, y[bags.index], bags=bags, noise_sd=0.3)
    share = explained(eta, model.predict(X))
    assert share > 0.85
    assert share > explained(eta, line.predict(X)) + 0.2
    assert share > explained(eta, repeated.predict(X)) + 0.2
    assert model.score(X, y[bags.index], bags=bags, noise_sd=0.3) > 0.85
    assert sum(way["weight"] for way in model.ways_) == pytest.approx(1)


def test_the_linear_start_helps_where_labels_are_linear():
    X, _, bags, noise, _ = bent(n=1000, size=20, noise=0.2)
    eta = X @ np.array([1.0, -1.0, 0.5])
    y = bags.mean(eta) + noise
    fits = {
        start: bw.BaggedBooster(start=start, random_state=0, n_jobs=1, leaves=4).fit(
            X, y[bags.index], bags=bags, noise_sd=0.2
        )
        for start in ("constant", "glm", "auto")
    }
    shares = {start: explained(eta, fit.predict(X)) for start, fit in fits.items()}
    assert shares["glm"] > shares["constant"] + 0.02
    assert shares["auto"] > shares["constant"]
    weight = {"constant": 0.0, "glm": 0.0}
    for way in fits["auto"].ways_:
        weight[way["start"]] += way["weight"]
    assert weight["glm"] > 0.5


def test_errors_of_held_out_bags_have_the_noise_taken_out():
    """The error left is that of the model, whatever the noise: within four of its deviations."""
    X, eta, bags, noise, _ = bent(noise=1.0)
    y = bags.mean(eta) + noise
    model = bw.BaggedBooster(random_state=0, n_jobs=1, leaves=4, max_rounds=60, start="constant")
    model.fit(X, y[bags.index], bags=bags, noise_sd=1.0)
    # The mean of m squared normal deviations has variance 2 / m.
    tolerance = 4 * np.sqrt(2 / bags.n_bags)
    assert all(-tolerance < way["error"] < 0.4 + tolerance for way in model.ways_)
    untold = bw.BaggedBooster(random_state=0, n_jobs=1, leaves=4, max_rounds=60, start="constant")
    untold.fit(X, y[bags.index], bags=bags)
    assert all(way["error"] > 0.4 + tolerance for way in untold.ways_)


@pytest.mark.parametrize("family", ["poisson", "gamma", "bernoulli"])
def test_other_links_learn_rows(family):
    X, eta, bags, _, rng = bent(n=6000)
    if family == "bernoulli":
        truth = 1 / (1 + np.exp(-eta))
        y = (rng.random(len(X)) < truth).astype(float)
    else:
        truth = np.exp(0.5 * eta)
        y = rng.poisson(truth) if family == "poisson" else truth * rng.gamma(2.0, 0.5, len(X))
    model = bw.BaggedBooster(family, random_state=0, n_jobs=1, leaves=4)
    model.fit(X, bags.repeat(bags.mean(y)), bags=bags)
    predicted = model.predict(X)
    assert predicted.min() > 0
    assert explained(truth, predicted) > 0.7


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("told", ["shares", "noisy shares", "picks", "rows"])
def test_classes(classes, told):
    X, eta, bags, _, rng = bent(n=3000, size=5)
    scores = np.column_stack([np.zeros(len(X)), 2 * eta, -2 * X[:, 2]][:classes])
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    marks = np.array([rng.multinomial(1, chance) for chance in chances], dtype=float)
    names = np.array(["no", "yes", "maybe"][:classes])
    options = {"bags": bags}
    kind = "mean"
    if told == "rows":
        y, options = names[marks.argmax(axis=1)], {}
    elif told == "picks":
        kind = "pick"
        first = np.array([np.flatnonzero(bags.index == bag)[0] for bag in range(bags.n_bags)])
        y = names[marks.argmax(axis=1)][first][bags.index]
    else:
        noise = 0.1 * rng.normal(size=(bags.n_bags, classes)) * (told == "noisy shares")
        y = bags.repeat(bags.mean(marks) + noise)
        options["noise_sd"] = 0.1 if told == "noisy shares" else None
    model = bw.BaggedClassifier(
        classes=None if y.ndim == 1 else names,
        label_kind=kind,
        learning_rate=0.3,
        **{**QUICK, "max_rounds": 100},
    ).fit(X, y, **options)
    predicted = model.predict_proba(X)[:, [list(model.classes_).index(name) for name in names]]
    assert predicted.sum(axis=1) == pytest.approx(1)
    true_class = marks.argmax(axis=1)
    floor = log_loss(true_class, chances)
    ceiling = log_loss(true_class, np.tile(marks.mean(axis=0), (len(X), 1)))
    kept = (ceiling - log_loss(true_class, predicted)) / (ceiling - floor)
    assert kept > (0.6 if told == "picks" else 0.75)
    assert set(model.predict(X)) <= set(names)


def test_means_of_zeros_and_ones_are_shares_of_the_second_class():
    X, eta, bags, _, _ = bent()
    share = bags.repeat(bags.mean((eta > 0).astype(float)))
    model = bw.BaggedClassifier(**{**QUICK, "max_rounds": 60}).fit(X, share, bags=bags)
    assert model.classes_.tolist() == [0, 1]
    assert np.mean(model.predict(X) == (eta > 0)) > 0.85
    assert model.score(X, eta > 0) > 0.85
    assert model.score(X, share, bags=bags) > 0.7


def test_labels_that_are_neither_classes_nor_shares_are_refused():
    X, eta, bags, _, _ = bent(n=100)
    with pytest.raises(LabelError, match="continuous"):
        bw.BaggedClassifier(**QUICK).fit(X, bags.repeat(bags.mean(eta)), bags=bags)
    with pytest.raises(LabelError, match="none of the classes"):
        bw.BaggedClassifier(["a", "b"], **QUICK).fit(X, np.full(100, "c"), bags=bags)
    with pytest.raises(LabelError, match="names others"):
        bw.BaggedClassifier(["a", "b"], **QUICK).fit(X, np.full((100, 3), 1 / 3), bags=bags)
    with pytest.raises(BagsError, match="differs inside bag"):
        bw.BaggedBooster(**QUICK).fit(X, eta, bags=bags)


@pytest.mark.parametrize(
    "wrong",
    [{"leaves": 1}, {"leaves": (4, "8")}, {"learning_rate": 0.0}, {"max_rounds": 0},
     {"patience": 0}, {"n_folds": 1}, {"start": "mean"}, {"family": "multinomial"}],
)  # fmt: skip
def test_parameters_are_checked(wrong):
    X, eta, _, _, _ = bent(n=100)
    with pytest.raises(StrategyError):
        bw.BaggedBooster(**{**QUICK, **wrong}).fit(X, eta)


@pytest.mark.parametrize(("many", "leaves"), [(50, {8, 16}), (1000, {4, 8})])
def test_many_bags_bear_larger_trees(monkeypatch, many, leaves):
    monkeypatch.setattr(boosters, "MANY_BAGS", many)
    X, eta, bags, _, _ = bent(n=600)
    model = bw.BaggedBooster(**{**QUICK, "leaves": None, "start": "constant"})
    model.fit(X, bags.repeat(bags.mean(eta)), bags=bags)
    assert {way["leaves"] for way in model.ways_} == leaves


def test_bags_are_routed_through_searches_and_pipelines():
    X, eta, bags, _, _ = bent(n=600)
    y = bags.repeat(bags.mean(eta))
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), bw.BaggedBooster(**QUICK))
        scores = cross_val_score(
            model,
            X,
            y,
            params={"bags": bags.index},
            cv=bw.BagKFold(3),
            scoring=bw.bag_scorer("mse"),
        )
        assert scores.mean() > -0.4  # the spread of the labels is 0.6
        search = GridSearchCV(
            bw.BaggedClassifier(**QUICK), {"leaves": [2, 4]}, cv=bw.BagKFold(2, random_state=0)
        )
        share = bags.repeat(bags.mean((eta > 0).astype(float)))
        search.fit(X, share, bags=bags.index)
    assert search.best_params_["leaves"] in (2, 4)


def test_a_handful_of_bags_grows_no_trees():
    X, eta, bags, _, _ = bent(n=60, size=20)
    y = bags.repeat(bags.mean(eta))
    model = bw.BaggedBooster(start="constant", **QUICK).fit(X, y, bags=bags)
    assert model.predict(X) == pytest.approx(np.full(60, eta.mean()))
    assert model.ways_ == []
    X, eta, bags, _, _ = bent(n=285, size=15)
    line = X @ np.array([1.0, 2.0, 3.0])
    model = bw.BaggedBooster(**QUICK).fit(X, bags.repeat(bags.mean(line)), bags=bags)
    assert model.ways_ == []
    assert explained(line, model.predict(X)) > 0.99


# --- how ways are blended -------------------------------------------------------------------------


def blend_of(errors, *, m, noise, seed=0):
    """Return the blend of ways that are off by independent errors of these sizes."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=m)
    labels = truth + noise * rng.normal(size=m)
    ways = [truth + size * rng.normal(size=m) for size in errors]
    return blend_weights(ways, labels, np.ones(m)), ways, truth


def test_many_bags_find_the_best_weights():
    found, _, _ = blend_of([0.5, 0.7], m=100_000, noise=1.0)
    best = 0.7**2 / (0.5**2 + 0.7**2)  # of independent errors, by one over their variance
    assert found[0] == pytest.approx(best, abs=0.03)


def test_a_way_that_is_far_off_gets_no_weight():
    found, _, _ = blend_of([0.3, 0.3, 5.0], m=200, noise=0.5)
    assert found[2] == 0
    assert found.sum() == pytest.approx(1)


def test_chance_moves_pulled_weights_less_than_free_ones():
    """Over many draws; the twin is what chance makes of as many weights without any pull."""
    pulled, plain = [], []
    for seed in range(200):
        found, ways, truth = blend_of([0.5, 0.5, 0.5, 0.6], m=30, noise=1.5, seed=seed)
        free, _ = nnls(
            np.vstack([np.column_stack(ways), np.full(4, 1e5)]),
            np.append(truth + 1.5 * noise_again(seed, truth.size), 1e5),
        )
        pulled.append(np.sum((found - 0.25) ** 2))
        plain.append(np.sum((free - 0.25) ** 2))
    assert np.mean(pulled) < 0.5 * np.mean(plain)


def noise_again(seed, m):
    rng = np.random.default_rng(seed)
    rng.normal(size=m)
    return rng.normal(size=m)
