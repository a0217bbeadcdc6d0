"""Trees as plain arrays, and the files that hold them."""

import json
import warnings

import lightgbm
import msgspec
import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import LeakWarning, ModelFileError, StrategyError
from bagwise.files.json_files import canonical
from bagwise.models.model import digest_of as _digest
from bagwise.models.trees import Levels, Tree, TreeModel
from tools.settings import filed


def grown(*, seed=0, n=2000, rounds=30):
    """Trees of LightGBM on two numbers and a category, and their columns."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 7, size=n)]).astype(float)
    y = X[:, 0] ** 2 + 3 * (X[:, 2] == 4) - (X[:, 2] == 0) + 0.1 * rng.normal(size=n)
    options = {"verbose": -1, "num_threads": 1, "max_cat_to_onehot": 100, "use_missing": False}
    table = lightgbm.Dataset(X, label=y, categorical_feature=[2])
    return lightgbm.train(options, table, rounds), X


def test_they_say_what_lightgbm_says():
    booster, X = grown()
    trees = [Tree.from_lightgbm(t["tree_structure"]) for t in booster.dump_model()["tree_info"]]
    assert any(any(tree.is_level) for tree in trees)
    unseen = np.array([[0.5, -1.0, 99.0], [np.pi, 7.0, 4.0]])
    for rows in (X, unseen):
        scores = np.zeros(len(rows))
        for tree in trees:
            tree.check(3)
            tree.add_to(list(rows.T), scores)
        assert scores == pytest.approx(booster.predict(rows), abs=1e-12)


def test_a_tree_of_one_leaf_is_a_constant():
    tree = Tree(column=(), cut=(), is_level=(), yes=(), no=(), value=(0.5,))
    scores = np.zeros(3)
    tree.check(0)
    tree.add_to([], scores)
    assert scores.tolist() == [0.5] * 3


SOUND = Tree(
    column=(0, 1), cut=(0.0, 2.0), is_level=(False, True), yes=(1, -1), no=(-3, -2),
    value=(1.0, 2.0, 3.0),
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"column": (0, 2)},  # there are two columns
        {"column": (0, -1)},
        {"yes": (0, -1)},  # a circle
        {"yes": (1, -3)},  # one leaf twice, another never
        {"yes": (1,)},
        {"value": (1.0, 2.0)},
        {"value": (1.0, 2.0, float("inf"))},
        {"cut": (0.0, float("nan"))},
    ],
)
def test_malformed_trees_are_refused(change):
    SOUND.check(2)
    with pytest.raises(ModelFileError, match="malformed"):
        msgspec.structs.replace(SOUND, **change).check(2)


def test_levels_are_found_and_read_back():
    rng = np.random.default_rng(0)
    city, floor = rng.integers(0, 4, 50), rng.integers(0, 3, 50)
    X = np.column_stack([rng.normal(size=50), np.eye(4)[city][:, 1:], np.eye(3)[floor][:, 1:]])
    levels = Levels.find(X)
    assert levels.runs == ((0, 1), (1, 4), (4, 6))
    assert levels.categories == [1, 2]
    columns = levels.columns(X)
    assert columns[1].tolist() == city.tolist()
    assert columns[2].tolist() == floor.tolist()


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 1500
    x, city = rng.uniform(-2, 2, n), rng.choice(["Bonn", "Pune", "Oslo"], n)
    rent = 500 + 100 * np.abs(x) + 80 * (city == "Pune") + rng.normal(0, 10, n)
    kind = np.where(rent > 650, "dear", np.where(rent > 560, "fair", "cheap"))
    return pa.table({"x": x, "city": city, "rent": rent, "kind": kind})


def released(table, **options):
    label = options.pop("label", "rent")
    other = "kind" if label == "rent" else "rent"
    options = {"bag_size": 6, "strategy": "kmeans", "not_private": True, "seed": 0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)  # exact shares of small bags tell labels
        return bw.make_release(table, **filed(label=label, exclude=[other], **options))


@pytest.fixture(scope="module")
def model(table):
    booster = bw.BaggedBooster(random_state=0, max_rounds=60, leaves=8, n_jobs=1)
    return bw.fit_estimator(released(table), booster)


def test_a_file_is_all_that_a_prediction_needs(model, table, tmp_path):
    path = model.save(tmp_path / "trees.json")
    loaded = bw.load_model(path)
    assert isinstance(loaded, TreeModel)
    pandas = table.to_pandas()
    assert np.array_equal(model.encoder.transform(pandas), model.encoder.transform(table))
    expected = model.predict(pandas)
    assert loaded.predict(pandas).tolist() == expected.tolist()
    assert loaded.predict_table(table, id="rent").column_names == ["rent", "prediction"]
    assert np.var(table["rent"].to_numpy() - expected) < 0.2 * np.var(table["rent"].to_numpy())
    assert sum(loaded.importance().values()) == pytest.approx(1)
    assert loaded.n_trees == sum(way["rounds"] for way in model.estimator.ways_ if way["weight"])


def test_damaged_and_edited_files_are_refused(model, tmp_path):
    path = model.save(tmp_path / "trees.json")
    sound = json.loads(path.read_text())

    def refused(content, match, *, sealed=True):
        if sealed:
            unsealed = {name: value for name, value in content.items() if name != "sha256"}
            content = {**unsealed, "sha256": _digest(unsealed)}
        path.write_bytes(canonical(content))
        with pytest.raises(ModelFileError, match=match):
            bw.load_model(path)

    refused({**sound, "label": "wage"}, "changed after", sealed=False)
    refused({**sound, "schema": "bagwise-trees/99"}, "not a model file that this version reads")
    refused({**sound, "link": "probit"}, "link")
    refused({**sound, "link": "softmax"}, "link")
    refused({**sound, "members": []}, "weights")
    refused({**sound, "members": sound["members"] * 2}, "weights")
    refused({**sound, "levels": {"runs": [[0, 1]]}}, "columns")
    first = sound["members"][0]
    refused({**sound, "members": [{**first, "weight": 1.0, "coef": [[1.0]]}]}, "coefficients")
    refused({**sound, "members": [{**first, "weight": 1.0, "low": []}]}, "do not fit together")
    refused({**sound, "extra": 1}, "trees.json")
    with pytest.raises(ModelFileError, match="is a directory"):
        bw.load_model(tmp_path)


def test_what_has_no_format_is_not_pickled(table, tmp_path):
    model = bw.fit_estimator(released(table), bw.BaggedRegressor())
    with pytest.raises(StrategyError, match="pickle"):
        model.save(tmp_path / "model.json")


@pytest.mark.parametrize("kind", ["mean", "pick"])
def test_classes_from_shares_and_picks(table, tmp_path, kind):
    release = released(
        table, label="kind", classes=["cheap", "fair", "dear"], label_kind=kind, bag_size=4
    )
    classifier = bw.BaggedClassifier(random_state=0, max_rounds=60, leaves=8, n_jobs=1)
    model = bw.fit_estimator(release, classifier)
    assert model.estimator.label_kind == kind
    assert model.estimator.classes_.tolist() == ["cheap", "fair", "dear"]
    truth = np.array(table["kind"].to_pylist())
    assert np.mean(model.predict(table) == truth) > 0.7
    loaded = bw.load_model(model.save(tmp_path / f"{kind}.json"))
    predicted = loaded.predict_table(table)
    assert predicted.column_names == ["prediction=cheap", "prediction=fair", "prediction=dear"]
    assert loaded.predict(table) == pytest.approx(model.predict_proba(table), abs=1e-12)
    assert bw.evaluate_rows(loaded, table, label="kind").to_json()["accuracy"] > 0.7


def test_the_share_of_one_class(table, tmp_path):
    release = released(table, label="kind", classes=["cheap", "fair", "dear"])
    booster = bw.BaggedBooster("bernoulli", random_state=0, max_rounds=60, leaves=8, n_jobs=1)
    model = bw.fit_estimator(release, booster, target="dear")
    loaded = bw.load_model(model.save(tmp_path / "trees.json"))
    chances = loaded.predict(table)
    is_dear = np.array(table["kind"].to_pylist()) == "dear"
    assert chances.shape == (table.num_rows,)
    assert chances[is_dear].mean() > 0.6
    assert chances[~is_dear].mean() < 0.3


def test_rows_of_the_learner_count_as_well(table):
    booster = bw.BaggedBooster(random_state=0, max_rounds=5, leaves=4, n_jobs=1)
    model = bw.fit_estimator(released(table), booster, rows=table.slice(0, 50))
    assert model.trained_on.n_labelled_rows == 50
    assert model.estimator.n_bags_ == released(table).bags.n_bags + 50
