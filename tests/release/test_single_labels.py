"""Releases of single labels under a certificate, and their place in a plan."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.auditor import audit_events
from bagwise.errors import BudgetError, ReleaseError, StrategyError
from tests.privacy.events import outputs_of
from tools.settings import filed

HOW = {"label": "y", "bounds": (0, 10), "epsilon": 2.0, "tighten": "none"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 4000
    x, z = rng.normal(size=n), rng.normal(size=n)
    y = np.clip(5 + x + 0.5 * z + rng.normal(size=n), 0, 10)
    return pa.table({"x": x, "z": z, "person": np.arange(n) // 2, "y": y})


def make(table, noise="unbiased", **options):
    return bw.make_release(table, **filed(**{"exclude": "person", **HOW, **options}, noise=noise))


def test_single_labels_are_saved_verified_and_learned_from(table, tmp_path):
    made = make(table)
    release = bw.Release.load(made.save(tmp_path / "out"))
    assert release.bags.sizes.max() == 1
    assert (release.certificate.epsilon, release.certificate.delta) == (2.0, 0.0)
    release.verify(strict=True)
    event: Any = release.certificate.events[0]
    assert set(release.labels) <= set(outputs_of(event).tolist())
    assert np.allclose(release.noise_sd, 10 * event.law.sd)
    model = bw.fit_release(release)
    errors = model.summary().standard_error
    assert abs(model.summary().unshrunk[0] - 1) < 5 * errors[0]


def test_a_private_range_comes_first_if_it_is_asked_for(table):
    release = make(table, bounds=(-200, 200), tighten="range", epsilon=4.0)
    low, high = release.certificate.tightened
    assert high - low < 100
    assert [event.hides for event in release.certificate.events] == ["range", "single labels"]
    release.verify()


def test_all_labels_of_a_unit_are_paid_for(table):
    release = make(table, unit="person", exclude=())
    event: Any = release.certificate.events[0]
    assert event.unit_rows == 2
    assert event.law.epsilon <= 1.0
    release.verify()


def test_other_labels_than_those_reported_are_refused(table):
    release = make(table)
    for wrong in (release.labels + 1e-3, np.full(release.bags.n_bags, np.pi)):
        with pytest.raises(ReleaseError, match="none of those"):
            dataclasses.replace(release, labels=wrong).verify()


def test_true_labels_that_were_never_replaced_are_refused(table):
    """Each is one that may be reported, and they come too often, or too rarely."""
    honest = make(table)
    event: Any = honest.certificate.events[0]
    alike = np.random.default_rng(0).normal(2, 0.2, size=table.num_rows)
    near = np.abs(alike[:, None] - outputs_of(event)).argmin(axis=1)
    forged = dataclasses.replace(honest, labels=outputs_of(event)[near])
    with pytest.raises(ReleaseError, match="probabilities in the certificate"):
        forged.verify()
    assert any("as their chances allow" in check for check in honest.verify().checks)


def test_labels_of_any_distribution_are_reported_as_often_as_they_may_be():
    """Also if all are at one end: an honest release fails once in a billion times."""
    for seed, y in enumerate((np.zeros(300), np.full(300, 10.0), np.arange(300) % 2 * 10.0)):
        rows = pa.table({"x": np.random.default_rng(seed).normal(size=300), "y": y})
        make(rows, exclude=()).verify()


def test_more_than_one_row_in_a_bag_is_refused(table):
    release = make(table)
    pairs = bw.Bags(np.arange(4000) // 2)
    forged = dataclasses.replace(
        release,
        bags=pairs,
        labels=release.labels[:2000],
        noise_sd=release.noise_sd[:2000],
        certificate=dataclasses.replace(release.certificate, smallest_bag=2),
    )
    with pytest.raises(ReleaseError):
        forged.verify()


@pytest.mark.parametrize(
    "wrong",
    [
        {"bag_size": 5},
        {"strategy": "kmeans"},
        {"label_kind": "pick"},
        {"centre": "model"},
        {"by": "person"},
    ],
    ids=str,
)
def test_what_is_no_single_label_is_refused(table, wrong):
    with pytest.raises(BudgetError, match="noisy number for every row"):
        make(table, **wrong)


def test_no_promise_without_an_epsilon(table):
    with pytest.raises(BudgetError):
        make(table, epsilon=None, not_private=True)


def test_a_plan_ranks_them_beside_bags(table):
    features = table.select(["x", "z"])
    options = {"bounds": (0, 10), "epsilon": 2.0, "strategies": ["random"], "bag_sizes": [20]}
    found = bw.plan(features, **filed(**options, single_labels=True))
    titles = [candidate.title for candidate in found.candidates]
    rank = titles.index("single labels, unbiased")
    assert "--bag-size 1 --strategy random --noise unbiased" in found.command(rank)
    assert not found.candidates[rank].few_bags
    assert {candidate.noise for candidate in bw.plan(features, **filed(**options)).candidates} == {
        "auto"
    }
    with pytest.raises(StrategyError, match="under an epsilon only"):
        bw.plan(features, not_private=True, single_labels=True)


def test_what_a_plan_forecasts_is_what_a_fit_finds(table):
    """The root mean square of predictions over releases, against what the planner says."""
    features = table.select(["x", "z"])
    prior = (float(np.hypot(1.0, 0.5)), 1.0, 0.0)
    found = bw.plan(
        features,
        bounds=(0, 10),
        epsilon=2.0,
        prior=prior,
        bagging=bw.Bagging(strategies=["random"]),
        bag_sizes=[20],
        single_labels=True,
    )
    X = np.column_stack([table["x"], table["z"]])
    truth = 5 + X @ [1.0, 0.5]
    squares = []
    for _ in range(12):
        model = bw.fit_release(make(table))
        squares.append(np.mean((model.predict(table) - truth) ** 2))
    said = next(c for c in found.candidates if c.noise == "unbiased").rmse
    assert np.sqrt(np.mean(squares)) == pytest.approx(said, rel=0.5)


def test_an_attacker_learns_no_more_than_the_promise_allows(table):
    events = make(table).certificate.events
    (found,) = audit_events(events, delta=0.0, draws=40_000, alpha=1e-6)
    assert (found.verdict, found.shown > 1.4) == ("not refuted", True)
