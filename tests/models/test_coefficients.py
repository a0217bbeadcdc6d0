import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import bagwise as bw
from bagwise.errors import MissingExtraError, OutputExistsError, StrategyError
from bagwise.models.coefficients import Coefficients

FOUND = Coefficients(
    names=("age", "city=<Oslo>", "(intercept)"),
    estimate=np.array([0.5, -2.0, 10.0]),
    standard_error=np.array([0.1, 1.0, np.nan]),
    freedom=12,
    title="Rent",
    note="Standard errors: model, over 15 bags.",
)
BARE = Coefficients(("age",), np.array([0.5]), None, note="No intervals: a reason.")


def test_intervals_and_p_values_are_those_of_the_t_distribution():
    t = stats.t(12)
    np.testing.assert_allclose(FOUND.interval[0], 0.5 + 0.1 * t.ppf([0.025, 0.975]))
    np.testing.assert_allclose(FOUND.p_value[:2], [2 * t.sf(5.0), 2 * t.sf(2.0)])
    assert np.isnan(FOUND.interval[2]).all()
    wide = Coefficients(("a",), np.array([1.0]), np.array([1.0]), level=0.5)
    np.testing.assert_allclose(wide.interval[0], 1 + stats.norm.ppf([0.25, 0.75]))


def test_as_text():
    text = str(FOUND)
    lines = text.splitlines()
    assert lines[0] == "Rent"
    assert lines[-1] == FOUND.note
    assert "not determined" in lines[-2]
    assert "0.2821 to 0.7179" in text
    assert "age" in str(BARE)
    assert "interval" not in str(BARE).splitlines()[1]
    assert "No intervals" in str(BARE)


def test_shrunk_slopes_stand_beside_the_unshrunk_ones_whose_ratio_to_the_error_is_t():
    shrunk = dataclasses.replace(FOUND, unshrunk=np.array([0.6, -2.5, 10.0]))
    heading, age, _, open_ = shrunk.cells()
    assert heading == ("", "estimate", "unshrunk", "std. error", "p", "95 % interval")
    assert age[:4] == ("age", "0.5", "0.6", "0.1")
    assert open_ == ("(intercept)", "10", "", "", "", "not determined")
    assert shrunk.to_table()["t"][0].as_py() == pytest.approx(6)


def test_as_html_it_is_escaped():
    html = FOUND._repr_html_()
    assert "city=&lt;Oslo&gt;" in html
    assert "<Oslo>" not in html
    assert "15 bags" in html


def test_as_data():
    table = FOUND.to_table()
    assert table.column_names[:3] == ["coefficient", "estimate", "standard_error"]
    assert table["coefficient"].to_pylist()[1] == "city=<Oslo>"
    content = json.loads(json.dumps(FOUND.to_json(), allow_nan=False))
    assert content["coefficients"][2]["standard_error"] is None
    assert content["level"] == 0.95
    assert BARE.to_json()["coefficients"][0]["lower"] is None


def test_the_plot_shows_slopes_and_their_intervals(tmp_path):
    drawn = json.dumps(FOUND.plot().to_dict())
    assert "age" in drawn
    assert "(intercept)" not in drawn
    assert len(BARE.plot().to_dict()["layer"]) == 2
    for kind, start in (("html", b"<!DOCTYPE html>"), ("svg", b"<svg"), ("png", b"\x89PNG")):
        path = FOUND.save_plot(tmp_path / f"plot.{kind}")
        assert path.read_bytes().strip().startswith(start)
    page = (tmp_path / "plot.html").read_text()
    assert 'src="http' not in page  # works without a network
    with pytest.raises(OutputExistsError):
        FOUND.save_plot(tmp_path / "plot.png")
    with pytest.raises(StrategyError, match="html, svg, png"):
        FOUND.save_plot(tmp_path / "plot.gif")


def test_without_the_extra_the_plot_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"bagwise\[plot\]"):
        FOUND.plot()


def test_impossible_levels_are_refused():
    with pytest.raises(StrategyError, match="between 0 and 1"):
        Coefficients((), np.empty(0), None, level=95)


def test_names_come_from_the_frame():
    import pandas as pd
    import polars as pl

    rng = np.random.default_rng(0)
    columns = {"age": rng.normal(size=60), "income": rng.normal(size=60)}
    y = columns["age"] + rng.normal(size=60)
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns)):
        model = bw.BaggedGLM().fit(frame, y)
        assert model.summary().names == ("age", "income", "(intercept)")
        np.testing.assert_allclose(model.predict(frame), model.predict(frame.to_numpy()))
        assert model.conf_int().shape == (3, 2)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_names_pass_through_a_pipeline_that_puts_out_frames():
    import pandas as pd
    import sklearn
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=60), "income": rng.normal(size=60)})
    bags = np.arange(60) // 3
    y = bw.Bags(bags).mean(frame["age"].to_numpy())[bags]
    with sklearn.config_context(enable_metadata_routing=True):
        steps = make_pipeline(StandardScaler(), bw.BaggedGLM()).set_output(transform="pandas")
        steps.fit(frame, y, bags=bags)
    assert steps[-1].summary().names == ("age", "income", "(intercept)")
