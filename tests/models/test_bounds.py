"""Models predict within the bounds that were stated of a label, and only within those."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ModelFileError
from bagwise.files.json_files import canonical, write_json
from bagwise.models.model import digest_of as _digest
from tools.settings import filed

BOUNDS = (0.0, 10.0)


def make_table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = np.clip(5 + 2 * x + rng.normal(size=n), *BOUNDS)
    return pa.table({"x": x, "y": y, "days": rng.uniform(0.5, 2, n)})


FAR = pa.table({"x": [-50.0, 0.0, 50.0], "y": [0.0, 5.0, 10.0], "days": [1.0, 1.0, 1.0]})
PRIVATE = {"epsilon": 4.0, "delta": 0.0, "bag_size": 5, "strategy": "random"}


def release(**options):
    options = {"label": "y", "exclude": ["days"], "bounds": BOUNDS, **PRIVATE, **options}
    return bw.make_release(make_table(), **filed(**options))


def clips(model):
    """Check that a model clips to the bounds, and can do without; return what it predicts."""
    linear, clipped = model.predict(FAR, clip=False), model.predict(FAR)
    assert linear[0] < 0
    assert linear[2] > 10
    np.testing.assert_array_equal(clipped, np.clip(linear, *BOUNDS))
    return clipped


def test_stated_bounds_clip_in_memory_and_in_the_file(tmp_path):
    model = bw.fit_release(release())
    clipped = clips(model)
    loaded = bw.load_model(model.save(tmp_path / "model.json"))
    assert loaded.bounds == BOUNDS
    np.testing.assert_array_equal(loaded.predict(FAR), clipped)
    table = loaded.predict_table(FAR)["prediction"]
    np.testing.assert_array_equal(table.to_numpy(), clipped)
    X = loaded.encoder.transform(FAR)
    np.testing.assert_array_equal(loaded.predict_encoded(X), model.predict(FAR, clip=False))


def test_a_private_range_never_clips():
    wide = (-500.0, 500.0)
    found = release(bounds=wide, tighten="range")
    assert found.certificate.tightened not in (None, wide)
    assert bw.fit_release(found).bounds == wide


def test_bounds_that_were_found_privately_never_clip():
    made = release(bounds="auto")
    assert made.certificate.events[0].hides == "bounds"
    assert made.certificate.stated_bounds is None
    model = bw.fit_release(made)
    assert model.bounds is None
    np.testing.assert_array_equal(model.predict(FAR), model.predict(FAR, clip=False))
    direct = bw.release_model(make_table(), label="y", exclude=["days"], bounds="auto", epsilon=4.0)
    assert direct.bounds is None


def test_without_bounds_nothing_is_clipped_whatever_labels_were_seen():
    model = bw.fit_release(release(bounds=None, epsilon=None, delta=None, not_private=True))
    assert model.bounds is None
    assert model.predict(FAR)[2] > 50


def test_a_released_model_clips_and_its_certificate_says_to_what(tmp_path):
    model = bw.release_model(
        make_table(), label="y", exclude=["days"], bounds=BOUNDS, epsilon=8.0
    )  # fmt: skip
    clips(model)
    path = model.save(tmp_path / "model.json")
    assert bw.load_model(path).bounds == BOUNDS == model.certificate.stated_bounds
    # Other bounds, with all hashes made anew, contradict the certificate.
    other = dataclasses.replace(model, bounds=(-90.0, 90.0), certificate=None)
    other.certified(model.certificate).save(path, force=True)
    with pytest.raises(ModelFileError):
        bw.load_model(path)


@pytest.mark.parametrize("bounds", [[10.0, 0.0], [0.0, None], [0.0], "wide"])
def test_impossible_bounds_in_a_file_are_refused(bounds, tmp_path):
    path = bw.fit_release(release()).save(tmp_path / "model.json")
    content = {**json.loads(path.read_text()), "bounds": bounds}
    del content["sha256"]
    assert canonical(content)
    write_json({**content, "sha256": _digest(content)}, path)
    with pytest.raises(ModelFileError):
        bw.load_model(path)


def test_trees_clip(tmp_path):
    booster = bw.BaggedBooster(random_state=0, max_rounds=20, leaves=4, n_jobs=1)
    fitted = bw.fit_estimator(release(bounds=(4.0, 6.0)), booster)
    loaded = bw.load_model(fitted.save(tmp_path / "trees.json"))
    linear = fitted.estimator.predict(fitted.transform(FAR))
    # Of noisy bags, trees may predict more than any label can be: made sure of here.
    moved = dataclasses.replace(loaded, bounds=(linear.min() + 0.1, linear.max() - 0.1))
    for model in (fitted, loaded, moved):
        np.testing.assert_array_equal(model.predict(FAR), np.clip(linear, *model.bounds))
        np.testing.assert_array_equal(model.predict(FAR, clip=False), linear)
    assert loaded.bounds == (4.0, 6.0)
    again = bw.load_model(moved.save(tmp_path / "moved.json"))
    np.testing.assert_array_equal(again.predict(FAR), moved.predict(FAR))


def test_an_exposure_multiplies_before_bounds_clip():
    rng = np.random.default_rng(0)
    x, days = rng.normal(size=600), rng.uniform(0.5, 2, 600)
    counts = np.minimum(rng.poisson(days * np.exp(1 + 0.5 * x)), 10)
    table = pa.table({"x": x, "days": days, "y": counts})
    found = bw.make_release(table, **filed(label="y", exposure="days", bounds=BOUNDS, **PRIVATE))
    model = bw.fit_release(found)
    rows = pa.table({"x": [0.0, 0.0, 2.0], "days": [1.0, 1000.0, 1.0]})
    rate, counted = model.predict(rows, rate=True), model.predict(rows)
    np.testing.assert_array_equal(counted, np.clip(rate * [1, 1000, 1], *BOUNDS))
    assert counted[1] == 10 > rate[1]
    far = pa.table({"x": [40.0], "days": [1.0]})
    assert model.predict(far, rate=True)[0] > 10  # a rate has no bounds


def test_a_share_of_a_class_is_a_share():
    table = make_table()
    kind = np.where(table["y"].to_numpy() > 5, "high", "low")
    classes = bw.make_release(
        table.append_column("kind", pa.array(kind)),
        **filed(label="kind", classes=["low", "high"], exclude=["y", "days"], **PRIVATE),
    )
    model = bw.fit_release(classes, target="high", family="gaussian")
    assert model.predict(FAR).tolist()[::2] == [0.0, 1.0]
    chances = bw.fit_release(classes).predict(FAR)
    np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_the_command_line_clips_unless_told_not_to(tmp_path):
    model = bw.fit_release(release())
    path, rows, out = (tmp_path / name for name in ("model.json", "rows.parquet", "p.parquet"))
    model.save(path)
    pq.write_table(FAR, rows)
    for more, expected in (
        ((), model.predict(FAR)),
        (("--no-clip",), model.predict(FAR, clip=False)),
    ):
        command = ["predict", path, rows, "-o", out, "--force", *more]
        found = CliRunner().invoke(app, [str(word) for word in command])
        assert found.exit_code == 0, found.output
        np.testing.assert_array_equal(pq.read_table(out)["prediction"].to_numpy(), expected)


def test_scores_are_those_of_clipped_predictions():
    model = bw.fit_release(release())
    off = model.predict(FAR) - FAR["y"].to_numpy()
    assert bw.evaluate_rows(model, FAR).rmse == pytest.approx(np.sqrt(np.mean(off**2)))
    assert bw.evaluate_rows(model, FAR).rmse < 2


def test_the_estimator_stays_linear():
    made = release()
    X, y, bags = made.training_data()
    estimator = bw.BaggedGLM(bounds=BOUNDS).fit(X, y, bags=bags)
    assert estimator.predict([[50.0]])[0] > 10
