import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ReleaseError
from tools.settings import filed


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=20_000)
    return pa.table({"x": x, "y": 1 + 2 * x + rng.normal(size=x.size)})


def release(data, **options):
    return bw.make_release(data, **filed(label="y", bag_size=10, **options))


@pytest.fixture(scope="module")
def model(data):
    return bw.fit_release(release(data, not_private=True))


def test_row_scores_are_scikit_learn_s(data, model):
    scores = bw.evaluate_rows(model, data)
    truth, predicted = data["y"].to_numpy(), model.predict(data)
    assert scores.rmse == pytest.approx(root_mean_squared_error(truth, predicted))
    assert scores.mae == pytest.approx(mean_absolute_error(truth, predicted))
    assert scores.r2 == pytest.approx(r2_score(truth, predicted))
    assert scores.n_rows == 20_000


def test_exact_scores_say_that_they_are_not_private(data, model, tmp_path):
    assert bw.evaluate_rows(model, data).to_json()["privacy"] == "NOT PRIVATE"
    made, rows = model.save(tmp_path / "model.json"), tmp_path / "rows.parquet"
    pq.write_table(data, rows)
    shown = CliRunner().invoke(app, ["evaluate", str(made), str(rows)]).output
    assert "NOT PRIVATE" in shown
    assert "Exact scores describe the labels of these rows" in shown
    emitted = CliRunner().invoke(app, ["evaluate", str(made), str(rows), "--json"]).stdout
    assert json.loads(emitted)["privacy"] == "NOT PRIVATE"
    # Bag labels have left already: what follows from them needs no such word.
    bags = release(data, epsilon=3.0, delta=1e-6, bounds=(-8, 10)).save(tmp_path / "out")
    shown = CliRunner().invoke(app, ["evaluate", str(made), str(bags)]).output
    assert "rmse" in shown
    assert "NOT PRIVATE" not in shown


def test_constant_labels(model):
    constant = pa.table({"x": [0.0, 1.0], "y": [5.0, 5.0]})
    assert bw.evaluate_rows(model, constant).r2 == 0.0


def test_bag_scores_take_out_the_privacy_noise(data, model):
    exact = bw.evaluate_release(model, release(data, not_private=True))
    private = release(data, epsilon=3.0, delta=1e-6, bounds=(-8, 10), tighten="none", centre="none")
    noisy = bw.evaluate_release(model, private)
    assert exact.rmse == exact.rmse_without_noise
    assert exact.rmse == pytest.approx(1 / np.sqrt(10), rel=0.1)
    assert noisy.rmse > 2 * exact.rmse
    assert noisy.mean_noise_sd == pytest.approx(noisy.rmse, rel=0.2)
    if noisy.rmse_without_noise is not None:
        assert noisy.rmse_without_noise < noisy.rmse


def test_a_release_without_the_model_s_features(data, model):
    other = pa.table({"z": data["x"], "y": data["y"]})
    with pytest.raises(ReleaseError, match=r"lacks the model's feature\(s\) \['x'\]"):
        bw.evaluate_release(model, release(other, not_private=True))
