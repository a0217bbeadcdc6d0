"""What notebooks show: results have a table and most a chart, and neither runs what names hold."""

import re
import warnings

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import CertificateError
from bagwise.learn.from_release import explain_by_fit

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def things():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    table = pa.table({HOSTILE: x, "z": rng.normal(size=400), "y": 5 + x})
    release = bw.make_release(
        table,
        label="y",
        bounds=(0, 10),
        epsilon=2.0,
        bag_size=10,
        strategy="random",
        privacy=bw.Privacy(tighten="none"),
    )
    model = bw.fit_release(release)
    X, y, _ = release.training_data()
    return {
        "Bags": release.bags,
        "BagQuality": release.quality(),
        "Release": release,
        "Certificate": release.certificate,
        "Plan": bw.plan(table, label="y", bounds=(0, 10), epsilon=2.0, bag_sizes=[10, 20]),
        "RowScores": bw.evaluate_rows(model, table),
        "BagScores": bw.evaluate_release(model, release),
        "PrivateScores": bw.evaluate_rows_privately(model, table, epsilon=1.0, bounds=(0, 10)),
        "Explanation": explain_by_fit(release),
        "Coefficients": model.summary(),
        "RowModel": model,
        "BaggedGLM": bw.BaggedGLM().fit(X, y, **release.fit_params()),
    }


NAMES = [
    "Bags", "BagQuality", "Release", "Certificate", "Plan", "RowScores",
    "BagScores", "PrivateScores", "Explanation", "Coefficients", "RowModel", "BaggedGLM",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_it_shows_and_draws_itself(things, name):
    thing = things[name]
    assert type(thing).__name__ == name
    shown = thing._repr_html_()
    assert "<script>alert" not in shown
    assert "<p" in shown or "<table" in shown
    if name in ("RowScores", "BagScores", "PrivateScores"):
        return  # a few numbers need no chart
    chart = thing.plot()
    assert "offline" in type(chart).save.__qualname__
    assert "<script>alert" not in chart.to_json()
    assert any(chart.to_dict()["datasets"].values())


@pytest.mark.parametrize("name", ["Bags", "Coefficients"])  # one drawing, and one of several
def test_a_chart_that_is_saved_loads_nothing_from_elsewhere(things, name, tmp_path):
    chart = things[name].plot().properties(title="copied")
    chart.save(tmp_path / "chart.html")
    for page in ((tmp_path / "chart.html").read_text(), chart.to_html()):
        assert "vegaEmbed" in page
        assert not re.search(r"(src|href)=.?http|//cdn", page)
    with warnings.catch_warnings(action="error"):
        chart.save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


def test_a_certificate_shows_its_promise_and_draws_it(things):
    certificate = things["Certificate"]
    assert certificate.headline in certificate._repr_html_()
    drawn = [row for rows in certificate.plot().to_dict()["datasets"].values() for row in rows]
    for point in certificate.curve()[:4]:
        assert dict(zip(("epsilon", "delta"), point, strict=True)) in drawn
    nothing = bw.Certificate(None, None, None, (), smallest_bag=None, noise_source="none")
    with pytest.raises(CertificateError, match="nothing to draw"):
        nothing.plot()


def test_an_estimator_shows_coefficients_once_it_is_fitted(things):
    fresh = bw.BaggedGLM()
    assert "estimate" not in fresh._repr_html_()
    fitted = things["BaggedGLM"]
    assert "std. error" in fitted._repr_html_()
    assert "std. error" in fitted._repr_mimebundle_()["text/html"]


def test_scores_show_what_is_promised(things):
    assert "label-DP" in things["PrivateScores"]._repr_html_()
    assert "NOT PRIVATE" in things["RowScores"]._repr_html_()
