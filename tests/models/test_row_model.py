import json

import numpy as np
import pytest

import bagwise as bw
from bagwise.errors import BiasWarning, LeakWarning, ModelFileError
from bagwise.files.json_files import write_json


@pytest.fixture
def release(table):
    return bw.make_release(
        table,
        label="y",
        bag_size=5,
        strategy="random",
        not_private=True,
        bagging=bw.Bagging(seed=0),
    )


@pytest.fixture
def model(release):
    return bw.fit_release(release)


def test_it_predicts_on_a_table_without_the_release(model, table, tmp_path):
    loaded = bw.RowModel.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    np.testing.assert_allclose(loaded.predict(table.drop_columns("y")), table["y"], atol=1.0)
    assert loaded.coefficients()["x"] == pytest.approx(2.0, abs=0.3)
    assert loaded.trained_on.privacy == "NOT PRIVATE"
    assert "city=Pune" in loaded._repr_html_()


def test_it_is_the_same_as_the_estimator(model, release):
    X, y, bag_ids = release.training_data()
    estimator = bw.BaggedGLM(loss="bag").fit(X, y, bags=bag_ids)
    np.testing.assert_allclose(model.predict_encoded(X), estimator.predict(X))


def test_damaged_edited_and_foreign_files_are_refused(model, tmp_path):
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    for change, message in (
        ({"intercept": 0.0}, "was changed"),
        ({"schema": "bagwise-model/9"}, "not a model file that this version reads"),
    ):
        write_json({**content, **change}, path)
        with pytest.raises(ModelFileError, match=message):
            bw.RowModel.load(path)
    path.write_text("{")
    with pytest.raises(ModelFileError, match="not readable JSON"):
        bw.RowModel.load(path)
    with pytest.raises(ModelFileError, match="does not exist"):
        bw.RowModel.load(tmp_path / "nowhere.json")


def test_biased_combinations_are_said(table, release):
    with pytest.warns(BiasWarning, match="shrinks the slopes"):
        bw.fit_release(release, loss="instance")
    bw.fit_release(release, loss="instance", debias=True)
    with pytest.warns(LeakWarning):
        by_label = bw.make_release(
            table, label="y", bag_size=3, strategy="sorted", not_private=True
        )
    with pytest.warns(BiasWarning, match="makes the slopes too steep"):
        bw.fit_release(by_label, loss="bag")
    with pytest.warns(BiasWarning, match="debiased instance loss"):
        bw.fit_release(by_label, loss="instance", debias=True)
    bw.fit_release(by_label, loss="instance")
