"""The verbs of a learner, and the habits of pandas and scikit-learn."""

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import StrategyError
from bagwise.families import find_family

RNG = np.random.default_rng(3)
N = 4000
X = RNG.normal(size=N)
CITY = np.array(["Bonn", "Pune", "Oslo"])[RNG.integers(0, 3, size=N)]
YES = RNG.random(N) < 1 / (1 + np.exp(-2 * X))
TABLE = pa.table({"x": X, "city": CITY, "y": X + (CITY == "Oslo") + RNG.normal(size=N) / 2})
ANSWERS = pa.table({"x": X, "city": CITY, "y": YES})
PRIVATE = {"label": "y", "epsilon": 8.0, "bag_size": 10, "strategy": "kmeans"}


@pytest.fixture(scope="module")
def release():
    return bw.make_release(TABLE, bounds=(-6, 7), **PRIVATE)


def test_fit_and_evaluate_are_one_call_each(release, tmp_path):
    release.save(tmp_path / "out")
    for source in (release, tmp_path / "out"):
        model = bw.fit(source)
        assert isinstance(model, bw.RowModel)
        scores = bw.evaluate(model, TABLE)
        assert scores.rmse < 0.7
        assert scores.rmse_of_mean > 1.1
        assert scores.auc is None
        assert bw.evaluate(model, source).n_bags == release.bags.n_bags
    with pytest.raises(StrategyError, match="unknown model"):
        bw.fit(release, model="forest")
    private = bw.evaluate(model, TABLE, epsilon=2.0, bounds=(-6, 7))
    assert private.certificate.epsilon == 2.0


def test_trees_are_fitted_by_the_same_call(release):
    pytest.importorskip("lightgbm")
    trees = bw.fit(release, model="boosted")
    assert bw.evaluate(trees, TABLE).rmse < 0.8
    assert len(repr(trees)) < 200
    with pytest.raises(StrategyError, match="option of boosted trees"):
        bw.fit(release, model="boosted", ridge=1.0)


def test_chances_have_two_columns_and_an_area():
    release = bw.make_release(ANSWERS, bounds=(0, 1), **PRIVATE)
    model = bw.fit(release, family="binomial")
    chances = model.predict_proba(ANSWERS)
    assert chances.shape == (N, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    scores = bw.evaluate(model, ANSWERS)
    assert scores.auc > 0.8
    assert scores.log_loss < scores.log_loss_of_mean == pytest.approx(np.log(2), abs=0.01)


def test_numbers_have_no_chances(release):
    with pytest.raises(StrategyError, match="no probabilities"):
        bw.fit(release).predict_proba(TABLE)


def test_families_have_the_names_that_others_use():
    assert find_family("binomial") is find_family("bernoulli")
    assert find_family("normal") is find_family("gaussian")


def test_frames_have_names(release):
    frame, y, bags = release.training_data(as_frame=True)
    assert list(frame.columns) == release.encoder.feature_names
    assert len(frame) == len(y) == len(bags) == N
    rows = release.to_pandas()
    np.testing.assert_allclose(rows["y (bag)"], y)
    assert list(rows["bag_id"]) == list(bags)
    model = bw.fit(release)
    assert list(model.get_feature_names_out()) == list(frame.columns)
    assert len(repr(model)) < 200


def test_dir_shows_everyday_names_alone():
    assert {name for name in dir(bw) if not name.startswith("_")} == set(bw.__all__) - {
        "__version__"
    }


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_what_is_no_release_is_named():
    frame = pa.table({"x": [1.0, 2.0], "y": [0.0, 1.0]})
    with pytest.raises(StrategyError, match="make_release"):
        bw.fit(frame)
    release = bw.make_release(frame, label="y", bag_size=1, strategy="random", not_private=True)
    with pytest.raises(StrategyError, match=r"evaluate\(model, data\)"):
        bw.evaluate(release, frame)
