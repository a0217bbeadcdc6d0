"""Counts over an exposure, from the table to the evaluation."""

import dataclasses
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ColumnError, LabelError, LeakWarning, ReleaseError, StrategyError
from bagwise.models.row_model import RowModel
from bagwise.scoring.openly import evaluate_release, evaluate_rows
from bagwise.scoring.privately import evaluate_rows_privately
from tools.settings import filed

PRIVATE = {"label": "claims", "bounds": (0, 8), "epsilon": 4.0, "bag_size": 20}
OPEN = {"label": "claims", "bag_size": 5, "not_private": True}


@pytest.fixture(scope="module")
def policies():
    rng = np.random.default_rng(0)
    n = 6000
    age, town = rng.normal(size=n), rng.choice(["a", "b"], size=n)
    years = np.clip(rng.gamma(2.0, 0.5, size=n), 0.05, None)
    rate = np.exp(-0.5 + 0.4 * age + 0.3 * (town == "b"))
    claims = rng.poisson(years * rate)
    return pa.table({"age": age, "town": town.tolist(), "years": years, "claims": claims})


def make(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        return bw.make_release(table, **filed(exposure="years", **options))


@pytest.mark.parametrize("how", [OPEN, PRIVATE], ids=["open", "private"])
def test_from_the_table_to_the_evaluation(policies, how, tmp_path):
    train, test = policies.slice(0, 5000), policies.slice(5000)
    release = bw.Release.load(make(train, **how).save(tmp_path / "out"))
    assert release.encoder.inputs == ["age", "town"]  # the exposure is no feature
    assert "every row has a positive exposure 'years'" in release.verify(strict=True).checks
    model = bw.fit_release(release)
    assert (model.family, model.exposure) == ("poisson", "years")
    interval = dict(zip(model.summary().names, model.summary().interval, strict=True))
    low, high = interval["age"]
    assert low - 0.1 < 0.4 < high + 0.1
    model = RowModel.load(model.save(tmp_path / "model.json"))
    years = test["years"].to_numpy()
    assert np.allclose(model.predict(test), years * model.predict(test, rate=True))
    scores = evaluate_rows(model, test)
    wrong = evaluate_rows(dataclasses.replace(model, exposure=None), test)
    assert scores.rmse < wrong.rmse
    assert scores.r2 > 0.1
    on_bags = evaluate_release(model, release)
    assert on_bags.rmse < evaluate_release(dataclasses.replace(model, exposure=None), release).rmse


def test_a_fit_to_single_rows_is_that_of_the_rows(policies):
    with pytest.warns(LeakWarning):
        release = bw.make_release(policies, **filed(**{**OPEN, "bag_size": 1}, exposure="years"))
    model = bw.fit_release(release)
    table = policies.to_pandas()
    X = np.column_stack([table["age"], table["town"] == "b"])
    if release.encoder.feature_names != ["age", "town=b"]:
        X[:, 1] = table["town"] == "a"
    direct = bw.BaggedGLM("poisson").fit(X, table["claims"], exposure=table["years"])
    assert np.allclose(model.coef, direct.coef_, atol=1e-8)


def test_rows_of_the_learners_own_bring_their_exposure(policies):
    release = make(policies.slice(0, 3000), **OPEN)
    own = policies.slice(3000, 500)
    assert bw.fit_release(release, rows=own).trained_on.n_labelled_rows == 500
    with pytest.raises(ColumnError, match="exposure 'years' is not a column"):
        bw.fit_release(release, rows=own.drop_columns(["years"]))


def test_labels_and_their_noise_do_not_depend_on_exposure(policies):
    """Exposure is public, and labels are clipped in their own bounds: the promise is the same."""
    with_it = make(policies, **PRIVATE, strategy="random", tighten="none", centre="none")
    without = bw.make_release(
        policies,
        **filed(**PRIVATE, strategy="random", tighten="none", centre="none", exclude="years"),
    )
    assert with_it.certificate.events == without.certificate.events
    assert np.array_equal(np.sort(with_it.noise_sd), np.sort(without.noise_sd))


def test_rates_are_sums_over_exposure(policies):
    release = make(policies, **OPEN, keep_order=True)
    claims, years = (policies[name].to_numpy() for name in ("claims", "years"))
    rates, noise = release.rates()
    assert np.allclose(rates, release.bags.sum(claims) / release.bags.sum(years))
    assert not noise.any()
    private = make(policies, **PRIVATE)
    rates, noise = private.rates()
    assert np.allclose(rates / noise, private.labels / private.noise_sd)
    with pytest.raises(ReleaseError, match="no exposure"):
        bw.make_release(policies, **filed(**PRIVATE)).rates()


def test_a_named_exposure_may_be_a_feature_too(policies):
    release = make(policies, **PRIVATE, features=["age", "years"])
    assert release.instances.column_names == ["age", "years"]
    release.verify()


def test_private_evaluation_counts_exposure_in(policies):
    model = bw.fit_release(make(policies, **OPEN))
    private = evaluate_rows_privately(model, policies, bounds=(0, 8), epsilon=5.0)
    assert private.rmse == pytest.approx(evaluate_rows(model, policies).rmse, rel=0.2)
    with pytest.raises(LabelError, match="is a feature of the model"):
        evaluate_rows_privately(model, policies, label="years", bounds=(0, 8), epsilon=1.0)


def test_what_cannot_be_is_refused(policies):
    with pytest.raises(ColumnError, match="exposure and label name the same column"):
        bw.make_release(policies, **filed(**PRIVATE, exposure="claims"))
    with pytest.raises(ColumnError, match="not a number"):
        bw.make_release(policies, **filed(**PRIVATE, exposure="town"))
    with pytest.raises(ColumnError, match="classes have no exposure"):
        bw.make_release(
            policies,
            label="town",
            classes=["a", "b"],
            epsilon=1.0,
            bag_size=9,
            reading=bw.Reading(exposure="years"),
        )
    zero = policies.set_column(2, "years", pa.array(np.arange(6000.0)))
    with pytest.raises(ColumnError, match="not positive in 1 row"):
        bw.make_release(zero, **filed(**PRIVATE, exposure="years"))
    model = bw.fit_release(make(policies, **OPEN))
    with pytest.raises(ColumnError, match="exposure 'years' is not a column"):
        model.predict(policies.drop_columns(["years"]))
    with pytest.raises(StrategyError, match="exposure multiplies"):
        bw.fit_release(make(policies, **OPEN), family="gaussian")
    plain = bw.fit_release(bw.make_release(policies, **filed(**PRIVATE)))
    with pytest.raises(StrategyError, match="no exposure, and so no rate"):
        plain.predict(policies, rate=True)


def test_a_release_with_an_impossible_exposure_is_refused(policies):
    release = make(policies, **OPEN)
    place = release.instances.column_names.index("years")
    negative = pa.array(-release.instances["years"].to_numpy())
    forged = dataclasses.replace(
        release, instances=release.instances.set_column(place, "years", negative)
    )
    with pytest.raises(ColumnError, match="not positive"):
        forged.verify()


def test_on_the_command_line(policies, tmp_path):
    runner, table = CliRunner(), tmp_path / "policies.parquet"
    pq.write_table(policies, table)
    out, model, predicted = (str(tmp_path / name) for name in ("out", "m.json", "p.parquet"))
    release = (
        f"release {table} --label claims --bounds 0 8 --epsilon 4 --bag-size 20 --within town "
        f"--strategy random --exposure years -o {out} -q"
    )
    for line in (
        release,
        f"verify {out} --strict",
        f"fit {out} -o {model} -q",
        f"predict {model} {table} --rate -o {predicted} -q",
        f"evaluate {model} {table}",
        f"release {table} --label claims --bounds 0 8 --epsilon 4 --by town -o {out}-by -q",
    ):
        result = runner.invoke(app, line.split())
        assert result.exit_code == 0, (line, result.output)
    rates = pq.read_table(predicted)["prediction"].to_numpy()
    assert np.allclose(rates, RowModel.load(model).predict(policies, rate=True))
    made = json.loads((tmp_path / "out-by" / "manifest.json").read_text())["provenance"]
    assert (made["by"], made["exposure"], made["bag_size"]) == (["town"], None, 10)
