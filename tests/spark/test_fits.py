"""Fits on Spark: the estimates and standard errors of a fit in memory."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import BagwiseError, ColumnError, ReleaseError, StrategyError, TableError
from bagwise.learn import fit_release, on_spark
from bagwise.learn.on_spark import fit_on_spark
from bagwise.models.model import predict_on_spark
from tests.spark.conftest import PRIVATE
from tools.settings import filed


@pytest.fixture(scope="module", params=["random", "kmeans"])
def release(request, table, tmp_path_factory):
    """A release by the local engine: rows of a bag are anywhere, in several files."""
    made = bw.make_release(table, **filed(strategy=request.param, **PRIVATE))
    path = tmp_path_factory.mktemp(request.param) / "out"
    made.save(path, rows_per_file=1000)
    return path


def assert_same(ours, theirs, rtol=1e-6):
    np.testing.assert_allclose(ours.coef, theirs.coef, rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(ours.intercept, theirs.intercept, rtol=rtol)
    assert (ours.standard_errors is None) == (theirs.standard_errors is None)
    if theirs.standard_errors is not None:
        np.testing.assert_allclose(ours.standard_errors, theirs.standard_errors, rtol=rtol)
    if theirs.unshrunk is not None:
        np.testing.assert_allclose(ours.unshrunk, theirs.unshrunk, rtol=rtol, atol=1e-8)
    assert ours.trained_on.n_bags == theirs.trained_on.n_bags
    assert (ours.note, ours.freedom, ours.family) == (theirs.note, theirs.freedom, theirs.family)


def test_a_fit_on_spark_is_that_in_memory(spark, release, monkeypatch):
    monkeypatch.setattr(on_spark, "NUMBERS_AT_ONCE", 300)  # several chunks
    monkeypatch.chdir(release.parent)  # tasks work elsewhere, and have to find the files
    assert_same(fit_on_spark(release.name), fit_release(bw.Release.load(release)))


@pytest.fixture(scope="module")
def positive(table, tmp_path_factory):
    """Releases of counts, chances and costs, rows of a bag anywhere, some of them in none."""
    rng = np.random.default_rng(7)
    years = rng.uniform(0.5, 1.5, size=len(table))
    eta = 0.5 * table["a"].to_numpy() - 0.2 * table["b"].to_numpy()
    labels = {
        "poisson": (rng.poisson(years * np.exp(eta)), 8),
        "bernoulli": (rng.random(eta.size) < 1 / (1 + np.exp(-eta)), 1),
        "gamma": (rng.gamma(3.0, np.exp(eta) / 3), 8),
        "inverse_gaussian": (np.minimum(rng.wald(np.exp(eta), 4.0), 8), 8),
    }
    half = bw.SuperBags(order="random", half=True)

    def made(family, **options):
        y, high = labels[family]
        told = table.set_column(table.column_names.index("y"), "y", pa.array(np.asarray(y, float)))
        if "exposure" in options:
            told = told.append_column(options["exposure"], pa.array(years))
        asked = {**PRIVATE, "bounds": (0, high), "epsilon": 8.0, "strategy": half, **options}
        path = tmp_path_factory.mktemp(family) / "out"
        bw.make_release(told, **filed(**asked)).save(path, rows_per_file=700)
        return path

    return made


@pytest.mark.parametrize(
    ("family", "made", "fitted"),
    [
        ("poisson", {"delta": 1e-6, "exposure": "years"}, {}),  # normal noise, and shrunk by it
        pytest.param(
            "gamma",
            {},  # noise whose law is followed
            {},
            marks=pytest.mark.slow,  # as below
        ),
        ("bernoulli", {"delta": 1e-6, "strategy": "kmeans"}, {"ridge": 0.01}),
        pytest.param(
            "inverse_gaussian",
            {"epsilon": None, "not_private": True},
            {},
            marks=pytest.mark.slow,  # tests/learn/test_parts.py has it without Spark
        ),
    ],
)
def test_other_families_are_fitted_by_passes(spark, positive, monkeypatch, family, made, fitted):
    monkeypatch.setattr(on_spark, "NUMBERS_AT_ONCE", 8000)  # several chunks
    path = positive(family, **made)
    loaded = bw.Release.load(path)
    assert loaded.bags.in_bag.all() == ("strategy" in made)
    ours = fit_on_spark(path, family=family, **fitted)
    assert_same(ours, fit_release(loaded, family=family, **fitted))
    assert (ours.standard_errors is not None, ours.exposure) == (True, made.get("exposure"))


@pytest.mark.parametrize("first", [0, 30, 60, 90])
def test_a_task_reads_what_is_said_of_its_bags(tmp_path, first):
    numbers = np.arange(100)
    shares = {"label=a": numbers / 100, "label=b": 1 - numbers / 100}
    bags = pa.table({"bag_id": numbers, "size": numbers + 5, **shares, "noise_sd": numbers * 0.5})
    pq.write_table(bags, tmp_path / "bags.parquet", row_group_size=7)
    told = on_spark._BagRows(str(tmp_path / "bags.parquet"), tuple(shares), at_once=30)
    sizes, labels, noise_sd = told.read(first)
    mine = numbers[first : first + 30]
    assert np.array_equal(sizes, mine + 5)
    assert np.array_equal(labels, np.column_stack([mine / 100, 1 - mine / 100]))
    assert np.array_equal(noise_sd, mine * 0.5)


def test_sorted_bags_are_fitted_by_instance_loss(spark, table, tmp_path):
    bw.make_release(table, **filed(strategy="sorted", **PRIVATE)).save(
        tmp_path / "out", rows_per_file=2000
    )
    ours, theirs = fit_on_spark(tmp_path / "out"), fit_release(bw.Release.load(tmp_path / "out"))
    assert (ours.loss, ours.standard_errors) == ("instance", None)
    assert_same(ours, theirs)


def test_classes_and_one_of_them(spark, table, tmp_path):
    cities = ["Bonn", "Oslo", "Pune"]
    asked = {**PRIVATE, "label": "city", "bounds": None, "classes": cities, "strategy": "random"}
    bw.make_release(table, **filed(**asked)).save(tmp_path / "out", rows_per_file=2000)
    loaded = bw.Release.load(tmp_path / "out")
    for options in ({}, {"target": "Oslo"}):
        ours = fit_on_spark(tmp_path / "out", ridge=0.01, **options)
        theirs = fit_release(loaded, ridge=0.01, **options)
        assert (ours.classes, ours.target) == (theirs.classes, theirs.target)
        assert_same(ours, theirs)


def test_beyond_many_bags_noise_counts_as_normal(spark, release, monkeypatch):
    followed = fit_on_spark(release)
    monkeypatch.setattr(on_spark, "FOLLOWED", 10)
    normal = fit_on_spark(release)
    assert normal.note == followed.note + on_spark._AS_NORMAL
    # Both are estimates of the same coefficients, from the same labels.
    off = np.abs(normal.unshrunk - followed.unshrunk) / normal.standard_errors
    assert off.max() < 3
    assert np.all(normal.standard_errors >= 0.95 * followed.standard_errors)


def test_a_release_that_was_edited_is_refused(spark, release, tmp_path):
    edited = tmp_path / "edited"
    shutil.copytree(release, edited)
    part = edited / "instances-00002.parquet"
    rows = pq.read_table(part)
    pq.write_table(rows.slice(0, 999), part)
    with pytest.raises(BagwiseError, match="SHA-256"):
        fit_on_spark(edited)
    part.unlink()
    with pytest.raises(ReleaseError, match="missing"):
        fit_on_spark(edited)


def test_what_is_not_fitted_on_spark_is_said(release):
    with pytest.raises(StrategyError, match="is for a label with classes"):
        fit_on_spark(release, family="multinomial")
    with pytest.raises(ReleaseError, match="this label has none"):
        fit_on_spark(release, target="Oslo")
    with pytest.raises(StrategyError, match="lie between -9 and 9"):
        fit_on_spark(release, family="poisson")
    with pytest.raises(
        StrategyError, match="not on Spark yet: instance loss of bags that were not"
    ):
        fit_on_spark(release, loss="instance")
    with pytest.raises(StrategyError, match="not on Spark yet: loss 'aggregate'"):
        fit_on_spark(release, loss="aggregate")


def test_predictions_of_a_frame_are_those_of_the_model(spark, release, table):
    model = fit_release(bw.Release.load(release))
    names = ["key", "a", "b", "holes", "city", "count"]
    rows = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    frame = spark.createDataFrame(rows, names).repartition(3)
    found = predict_on_spark(model, frame, id="key").toArrow().sort_by("key")
    assert found.column_names == ["key", "prediction"]
    np.testing.assert_allclose(found["prediction"].to_numpy(), model.predict(table), rtol=1e-12)
    low, high = np.quantile(model.predict(table, clip=False), [0.25, 0.75])
    narrow = replace(model, bounds=(low, high))
    for clip in (True, False):
        found = predict_on_spark(narrow, frame, id="key", clip=clip).toArrow().sort_by("key")
        expected = narrow.predict(table, clip=clip)
        np.testing.assert_allclose(found["prediction"].to_numpy(), expected, rtol=1e-12)
    with pytest.raises(ColumnError, match="'city' is not a column"):
        predict_on_spark(model, frame.drop("city"))
    with pytest.raises(TableError, match="DataFrame of Spark"):
        predict_on_spark(model, table)


def bagwise(*arguments):
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return found.exit_code, found.output


def test_the_command_line_goes_all_the_way(spark, files, tmp_path):
    """On the session that is there."""
    out, model, predicted = tmp_path / "out", tmp_path / "m.json", tmp_path / "predicted"
    asked = ("--label", "y", "--id", "key", "--bounds", -9, 9, "--epsilon", 2, "--bag-size", 20)
    on = ("--engine", "spark")
    ledger = tmp_path / "ledger"
    code, said = bagwise("ledger", "init", ledger, "--epsilon-total", 3)
    assert code == 0, said
    charged = (*asked, "--strategy", "random", *on, "--ledger", ledger)
    code, said = bagwise("release", files, *charged, "-o", out)
    assert code == 0, said
    code, said = bagwise("release", files, *charged, "-o", tmp_path / "again")
    assert (code, "nothing was drawn" in " ".join(said.split())) == (0, True), said
    assert bagwise("verify", out, "-q")[0] == 0
    code, said = bagwise("fit", out, *on, "-o", model)
    assert code == 0, said
    assert bagwise("predict", model, files, *on, "--id", "key", "-o", predicted)[0] == 0
    assert pq.read_table(predicted).num_rows == 3000
    code, said = bagwise("predict", model, files, *on, "-o", predicted)
    assert (code, "nothing is replaced" in said) == (2, True)
    code, said = bagwise("fit", out, *on, "--debias", "-o", tmp_path / "x")
    assert (code, "--debias: not on Spark yet" in said) == (2, True)
    code, said = bagwise("release", files, *asked, "--spark", "spark.master=local", "-o", "x")
    assert (code, "works only with --engine spark" in said) == (2, True)
