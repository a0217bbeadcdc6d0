import io
import json
import logging
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import (
    BagwiseError,
    BoundsError,
    BudgetError,
    ColumnError,
    LabelError,
    LeakWarning,
    OutputExistsError,
)
from bagwise.privacy import Certificate, total_epsilon
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.mechanisms import noisy_choice
from bagwise.rng import SimulatedNoise
from bagwise.scoring import privately

BOUNDS = (-10.0, 20.0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=5000)
    return pa.table(
        {
            "x": x,
            "who": rng.integers(0, 2500, size=x.size),
            "y": 1 + 2 * x + rng.normal(size=x.size),
        }
    )


@pytest.fixture(scope="module")
def model(data):
    return bw.release_model(data, label="y", bounds=BOUNDS, epsilon=2.0, delta=1e-6, features=["x"])


def evaluate(model, data, **options):
    return bw.evaluate_rows_privately(model, data, **{"bounds": BOUNDS, "epsilon": 0.5} | options)


def exact_loss(model, data, power, clip=np.inf):
    errors = np.clip(data["y"].to_numpy(), *BOUNDS) - np.clip(model.predict(data), *BOUNDS)
    return float(np.minimum(np.abs(errors) ** power, clip).mean())


@pytest.mark.parametrize(("loss", "power"), [("squared", 2), ("absolute", 1)])
@pytest.mark.parametrize("clip", [None, 2.5])
def test_it_is_the_mean_loss_but_for_its_noise(model, data, loss, power, clip):
    scores = evaluate(
        model, data, loss=loss, clip=clip, epsilon=400.0, noise_source=SimulatedNoise(1)
    )
    expected = exact_loss(model, data, power, clip or np.inf)
    # The noise at this epsilon exceeds fifteen standard deviations once in a billion runs.
    assert scores.mean_loss == pytest.approx(expected, abs=15 * scores.noise_sd)
    assert 15 * scores.noise_sd < 0.01 * expected
    assert scores.n_rows == 5000
    assert scores.largest_loss == (clip or 30.0**power)
    familiar = scores.rmse**2 if loss == "squared" else scores.mae
    assert familiar == pytest.approx(scores.mean_loss)
    assert (scores.rmse is None) is (loss == "absolute")
    assert (scores.mae is None) is (loss == "squared")


def test_the_certificate_says_what_is_promised(model, data):
    scores = evaluate(model, data)
    promise = scores.certificate
    assert promise.headline == "(0.5, 0)-label-DP"
    assert promise.bounds == BOUNDS
    assert promise.smallest_bag is None
    (event,) = promise.events
    assert event.kind == "laplace-mean-loss"
    assert total_epsilon([event], 0.0) <= 0.5
    assert event.grid_step * LOSS_STEPS == 900.0
    # The furthest that a label can be from a prediction, which is public.
    predictions = np.clip(model.predict(data), *BOUNDS)
    furthest = np.maximum(predictions - BOUNDS[0], BOUNDS[1] - predictions).max()
    assert event.sensitivity == pytest.approx(furthest**2, rel=1e-6)
    assert event.sensitivity < 900
    assert scores.noise_sd == pytest.approx(event.number_sd / 5000)
    margin = np.log(20) * event.number_sd / np.sqrt(2) / 5000
    assert np.diff(scores.interval) == pytest.approx(2 * margin, rel=1e-5)
    assert np.mean(scores.interval) == pytest.approx(scores.mean_loss)
    text = promise.text()
    assert "spends its epsilon anew" in text
    assert "what it spent, epsilon 2 and delta 0, is added" in text
    assert "one row counts 900 at most" in text


def test_everything_but_the_noisy_number_is_the_same_whatever_the_labels_are(
    model, data, monkeypatch
):
    monkeypatch.setattr("bagwise.privacy.circumstances.token_hex", lambda count: "ab" * count)
    other = data.set_column(2, "y", pa.array(np.full(5000, 1e9)))
    told = [evaluate(model, table).to_json() for table in (data, other)]
    for scores in told:
        for name in ("mean_loss", "rmse", "interval"):
            scores.pop(name)
        scores["certificate"].pop("covers")  # a hash of those
    assert told[0] == told[1]


def test_noise_may_hide_everything(model, data):
    few = data.slice(0, 20)
    below = [evaluate(model, few, epsilon=0.01, noise_source=SimulatedNoise(s)) for s in range(8)]
    hidden = [scores for scores in below if scores.mean_loss < 0]
    assert hidden
    for scores in hidden:
        assert scores.rmse is None
        assert scores.to_json()["rmse"] is None
    absolute = [
        evaluate(model, few, epsilon=0.01, loss="absolute", noise_source=SimulatedNoise(s))
        for s in range(8)
    ]
    assert all((scores.mae is None) is (scores.mean_loss < 0) for scores in absolute)
    assert any(scores.mae is None for scores in absolute)


def test_simulated_noise_repeats_and_is_not_private(model, data):
    one, two = (evaluate(model, data, noise_source=SimulatedNoise(4)) for _ in range(2))
    assert one == two
    assert one.certificate.headline == "NOT PRIVATE"
    assert "simulated" in one.certificate.text()
    assert evaluate(model, data).mean_loss != evaluate(model, data).mean_loss


def test_units_set_the_noise_by_all_their_rows(model, data):
    by_row, by_unit = evaluate(model, data), evaluate(model, data, unit="who")
    assert by_unit.certificate.unit == "who"
    (event,), (alone,) = by_unit.certificate.events, by_row.certificate.events
    predictions = np.clip(model.predict(data), *BOUNDS)
    ranges = np.maximum(predictions - BOUNDS[0], BOUNDS[1] - predictions) ** 2
    expected = np.bincount(data["who"].to_numpy(), weights=ranges).max()
    assert event.sensitivity == pytest.approx(expected, rel=1e-6)
    assert alone.sensitivity == pytest.approx(ranges.max(), rel=1e-6)
    rows = np.bincount(data["who"].to_numpy()).max()
    assert alone.sensitivity < event.sensitivity < rows * alone.sensitivity


def test_bounds_are_found_first(model, data, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0)
    scores = evaluate(model, data, bounds="auto", epsilon=1.0, ledger=ledger)
    first, event = scores.certificate.events
    assert first == noisy_choice("bounds", first.epsilon)
    assert event.number_sd == pytest.approx(
        np.sqrt(2) * event.sensitivity / (1 - first.epsilon), rel=1e-6
    )
    assert bw.PrivateScores.load(scores.save(tmp_path / "s.json")) == scores
    assert bw.verify(tmp_path / "s.json")[0].epsilon <= 1.0
    (charge,) = ledger.charges()  # for the loss as well, before the bounds are drawn
    assert ledger.act(charge.id, scores.certificate.events) == charge
    with pytest.raises(BoundsError, match="too few"):
        evaluate(model, data.slice(0, 50), bounds="auto", epsilon=1.0)


@pytest.fixture(scope="module")
def ways():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    way = np.where(rng.random(4000) < 1 / (1 + np.exp(-2 * x)), "bus", "car")
    table = pa.table({"x": x, "way": way})
    with pytest.warns(LeakWarning):  # some bags are of one class only
        release = bw.make_release(
            table, label="way", classes=["bus", "car"], bag_size=5, not_private=True
        )
    return table, bw.fit_release(release, target="bus")


def test_classes_are_labels_of_zero_and_one(ways):
    table, model = ways
    scores = bw.evaluate_rows_privately(model, table, epsilon=400.0, noise_source=SimulatedNoise(1))
    is_bus = np.array([way == "bus" for way in table["way"].to_pylist()])
    expected = np.mean((np.clip(model.predict(table), 0, 1) - is_bus) ** 2)
    assert scores.mean_loss == pytest.approx(expected, abs=15 * scores.noise_sd)
    assert scores.certificate.bounds == (0.0, 1.0)
    assert "is not covered" in scores.certificate.text()  # the release of its labels was open
    with pytest.raises(BoundsError, match="a label is 0 or 1"):
        bw.evaluate_rows_privately(model, table, epsilon=1.0, bounds=(0, 1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bounds": None}, BoundsError, r"needs bounds=\(lo, hi\)"),
        ({"bounds": (3, 1)}, BoundsError, "lo < hi"),
        ({"epsilon": 0.0}, BudgetError, "positive"),
        ({"epsilon": "1"}, BudgetError, "must be a number"),
        ({"epsilon": 1e-9}, BudgetError, "more noise than can be drawn"),
        ({"loss": "hinge"}, BudgetError, "known are squared, absolute"),
        ({"clip": -1}, BudgetError, "above 0"),
        ({"label": "z"}, ColumnError, "label 'z' is not a column"),
        ({"label": 3}, ColumnError, "name of a column"),
        ({"label": "x"}, LabelError, "is a feature of the model"),
        ({"unit": "whom"}, ColumnError, "Did you mean 'who'"),
        ({"unit": "y"}, ColumnError, "the same column"),
        ({"unit": 7}, ColumnError, "name of a column"),
    ],
)
def test_bad_requests(model, data, options, error, message):
    with pytest.raises(error, match=message):
        evaluate(model, data, **options)


def test_missing_labels_and_units_are_refused(model):
    gap = pa.table({"x": [0.0, 1.0], "who": [1, None], "y": [1.0, None]})
    with pytest.raises(LabelError, match="row 2"):
        evaluate(model, gap)
    with pytest.raises(ColumnError, match="whose labels"):
        evaluate(model, gap.set_column(2, "y", pa.array([1.0, 2.0])), unit="who")


def test_a_pandas_index_may_be_the_unit(model, data):
    frame = data.to_pandas().set_index("who")
    assert isinstance(frame, pd.DataFrame)
    assert evaluate(model, frame, unit="who").certificate.unit == "who"


def test_the_file_holds_scores_and_certificate(model, data, tmp_path):
    scores = evaluate(model, data)
    path = scores.save(tmp_path / "scores.json")
    content = json.loads(path.read_text())
    assert content == json.loads(json.dumps(scores.to_json()))
    assert content["schema"] == "bagwise-evaluation/2"
    assert "privacy noise only" in content["interval_covers"]
    assert Certificate.from_json(content["certificate"]) == scores.certificate
    with pytest.raises(OutputExistsError):
        scores.save(path)
    evaluate(model, data).save(path, force=True)
    assert json.loads(path.read_text())["mean_loss"] != scores.mean_loss
    assert [file.name for file in tmp_path.iterdir()] == ["scores.json"]


SENTINEL = 918273645.125
TRACES = ("918273645", "9.18273645e", "9.182736e")


def leaks(text):
    return any(trace in text for trace in TRACES)


def choke(*_args, **_kwargs):
    raise ValueError(f"could not convert {SENTINEL!r}")


@pytest.mark.parametrize("stage", ["read_table", "row_labels", "design_loss", "release_mean_loss"])
def test_a_failing_stage_shows_no_label(stage, model, tmp_path, monkeypatch):
    table = pa.table({"x": np.arange(20) / 7, "y": np.full(20, SENTINEL)})
    path, file = tmp_path / "t.parquet", tmp_path / "m.json"
    pq.write_table(table, path)
    model.save(file)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    monkeypatch.setattr(privately, stage, choke)
    with pytest.raises(BagwiseError) as caught:
        evaluate(model, table)
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert caught.value.__context__ is None
    arguments = ["evaluate", str(file), str(path), "--bounds", "0", "1", "--epsilon", "1"]
    run = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "out.json")])
    logging.getLogger().removeHandler(handler)
    assert run.exit_code == 1
    assert "withheld" in run.output
    assert not leaks(run.output + stream.getvalue())
    assert sorted(found.name for found in tmp_path.iterdir()) == ["m.json", "t.parquet"]


BAD_LABELS = {
    "text": [str(SENTINEL)] * 20,
    "null": [SENTINEL] * 19 + [None],
    "nan": [SENTINEL] * 19 + [float("nan")],
    "list": [[SENTINEL]] * 20,
}


@pytest.mark.parametrize("labels", BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels_are_not_quoted(labels, model):
    table = pa.table({"x": np.arange(20) / 7, "y": labels})
    with pytest.raises(BagwiseError) as caught:
        evaluate(model, table)
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert caught.value.__context__ is None


def test_no_label_is_in_the_scores(model, tmp_path):
    """Labels far outside the bounds are clipped, and nothing says so."""
    table = pa.table({"x": np.arange(20) / 7, "y": np.full(20, SENTINEL)})
    scores = evaluate(model, table)
    assert not leaks(repr(scores) + scores.save(tmp_path / "s.json").read_text())
