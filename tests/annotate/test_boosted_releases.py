"""Releases in rounds: one promise for all, and bags that follow what was learnt."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from bagwise import Ledger, Release, release_in_rounds
from bagwise.annotate.boosted_releases import PredictedBags, deal, joint_promise
from bagwise.bagging import assign_bags, find_strategy
from bagwise.errors import BudgetError, StrategyError
from bagwise.privacy.accounting import total_delta

N = 3000
THETA = np.array([2.0, -1.0, 0.5])


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3))
    city = rng.choice(["Bonn", "Oslo", "Pune"], N, p=[0.6, 0.39, 0.01])
    y = x @ THETA + (city == "Oslo") + 0.5 * rng.normal(size=N)
    columns = {f"x{j}": x[:, j] for j in range(3)}
    return pa.table({**columns, "city": city, "who": np.arange(N) // 4, "y": y})


def rounds(table, **options):
    return release_in_rounds(
        table,
        label="y",
        **{"bag_size": 15, "first": "random", "exclude": ["who"], **options},
    )


# Without looks that tests of releases take, and that cost time.
PRIVATE = {"bounds": (-12, 12), "epsilon": 3.0, "tighten": "none", "centre": "none"}


def test_all_rounds_together_promise_what_each_does(table, tmp_path):
    found = rounds(table, **PRIVATE, delta=1e-6)
    assert (found.epsilon, found.delta) <= (3.0, 1e-6)
    names = found.releases[0].encoder.feature_names
    for number, release in enumerate(found.releases):
        assert release.encoder.feature_names == names
        assert total_delta(release.certificate.events, found.epsilon) <= found.delta + 1e-15
        release.save(tmp_path / str(number))
        Release.load(tmp_path / str(number)).verify()
    assert sum(release.bags.n_rows for release in found.releases) == N
    assert found.model.trained_on.n_rows == N
    assert found.model.coef[:3] == pytest.approx(THETA, abs=0.5)


def test_every_row_is_in_one_part_and_a_unit_stays_together(table):
    parts = deal(table, 4, None)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    assert {part.size for part in parts} == {750}
    who = table["who"].to_numpy()
    parts = deal(table, 3, "who")
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(N))
    seen = [set(who[part].tolist()) for part in parts]
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert not np.array_equal(deal(table, 4, None)[0], deal(table, 4, None)[0])
    with pytest.raises(StrategyError, match="fewer units"):
        deal(table.slice(0, 4), 3, "who")


def test_units_are_protected_together(table):
    found = rounds(table, **PRIVATE, unit="who", exclude=())
    assert {release.certificate.unit_rows for release in found.releases} == {4}
    assert found.epsilon <= 3.0


def test_a_model_of_all_rounds_promises_no_more_than_the_weakest():
    """One part has a unit of many rows, which takes noise with a delta; the other needs none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 2))
    who = np.arange(1200)
    who[:60] = 0
    y = x @ [1.0, 2.0] + rng.normal(size=1200)
    rows = pa.table({"a": x[:, 0], "b": x[:, 1], "who": who, "y": y})
    lasts = set()
    for _ in range(40):  # until the large unit was dealt into either part
        found = release_in_rounds(
            rows, label="y", bag_size=20, rounds=2, bounds=(-12, 12), epsilon=1.0, delta=1e-5,
            unit="who", first="random", tighten="none", centre="none",
        )  # fmt: skip
        assert {made.certificate.delta for made in found.releases} == {0.0, 1e-5}
        assert found.model.trained_on.privacy == "(1, 1e-05)-label-DP"
        lasts.add(found.releases[-1].certificate.delta)
        if len(lasts) == 2:
            return
    raise AssertionError("a coin fell on one side forty times")


def test_a_round_that_spent_more_than_it_says_is_refused(table):
    found = rounds(table, **PRIVATE)
    certificates = [release.certificate for release in found.releases]
    assert joint_promise(certificates) == (found.epsilon, 0.0)
    claims = [dataclasses.replace(one, epsilon=0.9 * one.epsilon) for one in certificates]
    with pytest.raises(BudgetError, match="spent more"):
        joint_promise(claims)


def test_later_rounds_put_like_labels_together(table):
    found = rounds(table, not_private=True)
    assert (found.epsilon, found.delta) == (None, None)
    kept = []
    for release in found.releases:
        X = release.encoder.transform(release.features)
        expected = X[:, :3] @ THETA + X[:, 3]
        kept.append(1 - release.bags.variance(expected).mean() / expected.var())
    assert kept[0] < 0.15
    assert min(kept[1:]) > 0.8
    assert found.model.coef[:3] == pytest.approx(THETA, abs=0.2)


def test_predicted_bags_are_sorted_bags_of_predictions():
    X = np.random.default_rng(1).normal(size=(200, 2))
    coef = np.array([0.3, -1 / 3])
    made = assign_bags(PredictedBags.of(coef), X, None, bag_size=8, rng=np.random.default_rng(0))
    peer = assign_bags(
        find_strategy("sorted"), X, X @ coef, bag_size=8, rng=np.random.default_rng(0)
    )
    assert np.array_equal(made.index, peer.index)
    with pytest.raises(StrategyError, match="2 coefficients for 3 columns"):
        PredictedBags.of(coef).assign(
            np.zeros((9, 3)), None, bag_size=3, rng=np.random.default_rng(0)
        )


def test_what_rounds_do_not_know_is_refused(table):
    for wrong in ({"rounds": 0}, {"rounds": True}, {"classes": ["a", "b"]}, {"scores": "model"}):
        with pytest.raises(StrategyError):
            rounds(table, not_private=True, **wrong)


def test_rounds_are_charged_side_by_side(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "row": np.arange(600), "y": x.sum(axis=1)})
    ledger = Ledger.create(tmp_path / "rows", epsilon_total=1.0, row_id="row")
    asked = {"label": "y", "bag_size": 20, "bounds": (-9, 9), "first": "random"}
    found = release_in_rounds(table, features=["a", "b"], epsilon=0.75, ledger=ledger, **asked)
    assert len(ledger.charges()) == len(found.releases) == 3
    assert ledger.totals().filtered == pytest.approx(0.75, rel=0.01)
    with pytest.raises(BudgetError):
        release_in_rounds(table, features=["a", "b"], epsilon=0.75, ledger=ledger.path, **asked)
