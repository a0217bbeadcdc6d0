"""Every combination of label kind, scores and unit, from a table to a verified release."""

import dataclasses
import json
import warnings
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import (
    BagwiseError,
    BudgetError,
    CertificateError,
    DominatedWarning,
    ReleaseError,
)
from bagwise.privacy import total_delta
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import noisy_choice
from bagwise.privacy.private_model import LinearScores
from bagwise.privacy.units import units_of
from bagwise.rng import SimulatedNoise
from tests import stats
from tests.privacy.events import bag_picks
from tools.settings import filed

N = 400


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    x = rng.normal(size=N)
    return pa.table(
        {
            "x": x,
            "z": rng.normal(size=N),
            "person": rng.integers(0, 150, size=N),
            "y": np.clip(2 + x + 0.3 * rng.normal(size=N), 0, 4),
        }
    )


def release(data, **options):
    defaults = {
        "label": "y",
        "bag_size": 20,
        "bounds": (0, 4),
        "epsilon": 1.0,
        "delta": 1e-6,
        "features": ["x", "z"],
    }
    return bw.make_release(data, **filed(**{**defaults, **options}))


COMBINATIONS = [
    {"label_kind": kind, **scores, **unit}
    for kind in ("mean", "pick")
    for scores in (
        {"strategy": "random"},
        {"strategy": "super"},
        {"strategy": "sorted", "scores": "model"},
        {"strategy": "sorted", "scores": "noisy-labels"},
        {"strategy": bw.SuperBags(order="sorted", half=True), "scores": "model"},
    )
    for unit in ({}, {"unit": "person"})
] + [{"delta": 0.0}, {"delta": 0.0, "unit": "person"}]


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")  # picks are meant here
@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_every_combination_verifies_and_keeps_its_budget(data, options, tmp_path):
    made = release(data, **options)
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    found = loaded.verify()
    assert found.epsilon is not None
    assert 0.9 < found.epsilon <= 1.0
    assert found.delta in (0.0, options.get("delta", 1e-6))
    assert loaded.certificate.asked == (1.0, options.get("delta", 1e-6))
    assert total_delta(loaded.certificate.events, 1.0) <= found.delta
    assert "person" not in loaded.instances.column_names
    assert (loaded.model is None) == (options.get("scores") != "model")
    assert (tmp_path / "out" / "scores.json").exists() == (loaded.model is not None)
    assert (loaded.certificate.unit == "person") == ("unit" in options)
    assert np.isfinite(loaded.noise_sd).all()
    assert (loaded.noise_sd > 0).all()
    bw.fit_release(loaded)


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"bag_size": 150, "noise": "gaussian"}, "gaussian"),  # 400 rows: bags of 200
        ({"delta": 0.0, "epsilon": 0.5}, "laplace"),
        ({"delta": 0.0, "epsilon": 2.0, "unit": "person"}, "laplace"),
    ],
)
def test_noise_of_means_is_reported_as_a_standard_deviation_by_size(data, options, kind):
    made = release(data, **options)
    event = made.certificate.events[0]
    assert event.kind == f"{kind}-bag-means"
    np.testing.assert_allclose(made.noise_sd, event.number_sd / made.bags.sizes)


def test_pure_noise_on_one_row_each_is_a_staircase_that_learners_and_verifiers_know(data, tmp_path):
    made = release(data, delta=0.0, epsilon=2.0, centre="none")
    event = made.certificate.events[0]
    assert event.kind == "staircase-bag-means"
    np.testing.assert_allclose(made.noise_sd, event.number_sd / made.bags.sizes)
    # At epsilon 2 it has 0.846 of the variance of Laplace noise.
    ratio = event.law.sd**2 / (2 * event.law.scale**2)
    assert ratio == pytest.approx(0.846, rel=1e-3)
    made.save(tmp_path / "r")
    loaded = bw.Release.load(tmp_path / "r")
    assert loaded.certificate == made.certificate
    assert any("vary at least as much" in check for check in loaded.verify().checks)
    bw.fit_release(loaded)


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_a_unit_costs_what_its_rows_can_move(data):
    plain = release(data, seed=1, noise="gaussian")
    person = release(data, seed=1, unit="person", noise="gaussian", keep_order=True)
    units = units_of(data, "person")
    people, bags = np.array(data["person"]), person.bags
    worst = 0.0
    for who in np.unique(people):
        counts = np.bincount(bags.index[people == who], minlength=bags.n_bags)
        worst = max(worst, float(np.sqrt(np.sum(counts.astype(float) ** 2))))
    assert units.reach(bags)[0] == round(worst**2)
    ratio = person.certificate.events[0].number_sd / plain.certificate.events[0].number_sd
    assert ratio == pytest.approx(worst, rel=1e-4)
    assert "share a value of 'person'" in person.certificate.text()
    assert "one by one" in plain.certificate.text()


def test_brute_force_sensitivity_of_a_unit(data):
    """Move all labels of each person to either bound and measure the bag sums."""
    people, units = np.array(data["person"]), units_of(data, "person")
    bags = bw.make_bags(np.zeros((N, 1)), bag_size=20, seed=1)
    low = bags.sum(np.zeros(N))
    largest = max(
        float(np.linalg.norm(bags.sum((people == who) * 4.0) - low)) for who in np.unique(people)
    )
    assert largest == pytest.approx(4.0 * np.sqrt(units.reach(bags)[0]))


def test_a_person_without_a_name_is_refused(data):
    holes = data.set_column(2, "person", pa.array([None, *np.array(data["person"])[1:]]))
    with pytest.raises(BagwiseError, match="whose labels are they"):
        release(holes, unit="person")


def test_the_published_model_is_the_one_rows_were_sorted_by(data, tmp_path):
    made = release(data, strategy="sorted", epsilon=9.0, keep_order=True)
    X, _, _ = made.training_data()
    scores = made.model.predict(X)
    spans = [
        (scores[made.bags.index == b].min(), scores[made.bags.index == b].max())
        for b in range(made.bags.n_bags)
    ]
    spans.sort()
    assert all(left[1] <= right[0] + 1e-12 for left, right in pairwise(spans))
    published = json.loads((made.save(tmp_path / "out") / "scores.json").read_text())
    assert list(published["coefficients"]) == ["x", "z"]


def test_scores_must_be_paid_for(data, tmp_path):
    made = release(data, strategy="sorted")
    cheap = dataclasses.replace(
        made, certificate=dataclasses.replace(made.certificate, events=made.certificate.events[1:])
    )
    with pytest.raises(ReleaseError, match="does not pay for the scores"):
        cheap.verify()


def test_simulated_noise_repeats_and_says_so(data, tmp_path):
    first, second = (
        release(data, not_private=True, noise_source=SimulatedNoise(3), seed=1) for _ in range(2)
    )
    assert np.array_equal(first.labels, second.labels)
    assert first.certificate.headline == "NOT PRIVATE"
    assert "simulated" in first.certificate.text()
    with pytest.raises(ReleaseError, match="simulated_noise=True"):
        first.save(tmp_path / "out")
    saved = first.save(tmp_path / "out", simulated_noise=True)
    assert bw.Release.load(saved).verify().headline == "NOT PRIVATE"


def test_simulated_noise_has_the_scale_of_the_real_one(data):
    errors = []
    fixed = {"not_private": True, "seed": 1, "keep_order": True, "strategy": "random"}
    exact = release(data, epsilon=None, delta=None, **fixed)
    for seed in range(300):
        noisy = release(data, noise_source=SimulatedNoise(seed), **fixed)
        errors.extend((noisy.labels - exact.labels) / noisy.noise_sd)
    assert stats.sd_is(errors, 1.0)
    assert not stats.sd_is(errors, 1.1)


def test_nothing_on_the_private_path_imports_the_printed_constants():
    """import-linter forbids it; this says so where a reader of tests looks."""
    import subprocess
    import sys

    code = "import sys, bagwise.api; sys.exit(any('printed' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def lies(made):
    """Ways to certify more than was done, each of which verify can see."""
    certificate, rule = made.certificate, ExactCalibration(1.0, 1e-6, (0.0, 4.0))
    exact = np.linspace(0.1, 3.9, made.bags.n_bags) + 1 / 3e5
    unpaid = dataclasses.replace(certificate, events=(noisy_choice("bounds", 0.5),))
    yield (
        "no event for the bag labels",
        {"certificate": unpaid, "noise_sd": np.zeros(made.bags.n_bags), "labels": exact},
    )
    yield (
        "means that the certificate calls picks",
        {
            "certificate": dataclasses.replace(certificate, events=(bag_picks(rule, sizes=[20]),)),
            "noise_sd": np.full(made.bags.n_bags, bag_picks(rule, sizes=[20]).number_sd),
        },
    )
    yield (
        "sorted rows without scores",
        {
            "provenance": msgspec.structs.replace(
                made.provenance, strategy="sorted", strategy_parameters={}
            )
        },
    )
    yield "a model that nobody paid for", {"model": LinearScores(0.0, np.zeros(2), ())}
    yield (
        "noise from nowhere",
        {"certificate": dataclasses.replace(certificate, noise_source="none")},
    )
    yield "means that carry no noise of the grid", {"labels": exact}


def test_verify_sees_what_can_be_seen(data):
    made = release(data, centre="none")
    made.verify()
    for lie, changes in lies(made):
        with pytest.raises((ReleaseError, CertificateError)):
            dataclasses.replace(made, **changes).verify()
            pytest.fail(lie)


def test_a_model_must_not_get_lost(data, tmp_path):
    made = release(data, strategy="sorted")
    with pytest.raises(ReleaseError, match="do not agree"):
        dataclasses.replace(made, model=None).verify()


def test_bounds_are_found_for_units(data, tmp_path):
    many = pa.concat_tables([data] * 20)
    people = np.arange(many.num_rows) // 8
    many = many.set_column(many.column_names.index("person"), "person", pa.array(people))
    made = release(many, bounds="auto", unit="person", epsilon=9.0)
    bounds = made.certificate.events[0]
    assert bounds.hides == "bounds"
    assert bounds.unit_rows == units_of(many, "person").largest
    assert bw.Release.load(made.save(tmp_path / "out")).verify().epsilon == 9.0


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_whether_a_release_is_made_does_not_depend_on_the_scores(data):
    """Refusing picks by the sizes that scores happened to give would be another release."""
    picks = {"strategy": "sorted", "label_kind": "pick", "bag_size": 20, "noise": "gaussian"}
    for _ in range(10):
        release(data, delta=0.01 / 20, **picks)
        with pytest.raises(BudgetError, match="too large for picked"):
            release(data, delta=0.0101 / 20, **picks)


def test_picks_say_that_means_carry_less_noise(data):
    with pytest.warns(DominatedWarning, match="times the privacy noise of the mean of 20"):
        release(data, label_kind="pick")
    # From one row, a pick is the mean.
    release(data, label_kind="pick", bag_size=1, noise="laplace")


INSISTED = [
    ({"noise": "gaussian"}, "staircase"),
    ({"noise": "gaussian", "label_kind": "pick"}, "laplace"),
    ({"noise": "gaussian", "unit": "person"}, "laplace"),
    ({"noise": "laplace", "epsilon": 4.0}, "staircase"),
    ({"noise": "gaussian", "strategy": "sorted", "scores": "noisy-labels"}, "laplace"),
]


@pytest.mark.parametrize(("options", "better"), INSISTED, ids=str)
def test_whoever_insists_on_more_noise_is_told_how_much(data, options, better):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        made = release(data, **options)
    told = [str(w.message) for w in seen if "times the variance" in str(w.message)]
    assert len(told) == 1
    assert f"times the variance that {better} noise has" in told[0]
    assert "--noise auto" in told[0]
    assert made.certificate.events[-1].kind.startswith((options["noise"], "picked"))
    made.verify()


def test_nobody_is_told_who_lets_the_promise_choose(data):
    for options in ({}, {"unit": "person"}, {"noise": "staircase"}, {"epsilon": 0.3}):
        release(data, **options)  # a warning would be an error


PURE = [
    ({}, ["staircase-bag-means"]),
    ({"label_kind": "pick"}, ["laplace-bag-picks"]),
    ({"label_kind": "pick", "unit": "person"}, ["laplace-bag-picks"]),
    ({"strategy": "sorted"}, ["laplace-model", "laplace-bag-means"]),
    ({"strategy": "sorted", "unit": "person"}, ["laplace-model", "laplace-bag-means"]),
    ({"strategy": "sorted", "label_kind": "pick"}, ["laplace-model", "laplace-bag-picks"]),
    (
        {"strategy": "sorted", "label_kind": "pick", "unit": "person", "scores": "noisy-labels"},
        ["laplace-labels", "laplace-bag-picks"],
    ),
    (
        {"strategy": "sorted", "scores": "noisy-labels"},
        ["laplace-labels", "laplace-bag-means"],
    ),
]


@pytest.mark.filterwarnings("ignore:with the same guarantee")  # picks are meant here
@pytest.mark.parametrize(("options", "kinds"), PURE, ids=str)
def test_a_promise_without_a_delta_has_everything(data, options, kinds, tmp_path):
    made = release(data, delta=None, tighten="none", centre="none", **options)
    assert [event.kind for event in made.certificate.events] == kinds
    assert made.certificate.delta == 0.0
    assert made.certificate.headline == "(1, 0)-label-DP"
    assert total_delta(made.certificate.events, 1.0) == 0.0
    assert total_delta(made.certificate.events, 0.9) > 0.0
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    loaded.verify()
    bw.fit_release(loaded)


def test_a_source_of_randomness_is_no_kind_of_noise(data):
    with pytest.raises(BudgetError, match="pass a source of randomness as noise_source="):
        release(data, noise=SimulatedNoise(0))
    with pytest.raises(BudgetError, match="known are auto, laplace"):
        release(data, noise="laplase")
    with pytest.raises(BudgetError, match="belongs to a promise"):
        release(data, noise="laplace", epsilon=None, delta=None, bounds=None, not_private=True)


def test_shares_of_a_budget_are_kept_by_either_noise(data):
    """Of epsilon for Laplace scores, of mu squared for Gaussian ones."""
    options = {"strategy": "sorted", "scores": "noisy-labels"}
    pure = release(data, **options).certificate.events[0]
    assert float(pure.pure_epsilon or 0) == pytest.approx(0.5, rel=1e-4)
    with pytest.warns(DominatedWarning, match="times the variance"):
        made = release(data, noise="gaussian", **options)
    mu = [event.curve.mu for event in made.certificate.events]
    assert mu[0] ** 2 / (mu[0] ** 2 + mu[1] ** 2) == pytest.approx(0.5, rel=1e-4)
