"""Releases whose bags follow public columns."""

import dataclasses
import warnings

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import BagTooSmallError, BagwiseError, ColumnError, ReleaseError, StrategyError
from bagwise.rows.columns import number_groups
from tools.settings import filed

OPEN = {"label": "y", "bag_size": 8, "not_private": True}
PRIVATE = {"label": "y", "bag_size": 8, "bounds": (-5, 5), "epsilon": 1.0}


@pytest.fixture(scope="module")
def towns():
    rng = np.random.default_rng(5)
    n = 600
    town = rng.choice([f"t{i}" for i in range(60)], size=n, p=rng.dirichlet(np.ones(60)))
    x = rng.normal(size=n)
    return pa.table(
        {
            "x": x,
            "town": pa.array([None if t == "t0" else t for t in town.tolist()]),
            "region": pa.array([f"r{ord(t[-1]) % 3}" for t in town.tolist()]),
            "person": np.arange(n) // 2,
            "y": np.clip(x + rng.normal(size=n), -5, 5),
        }
    )


def make(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.errors.LeakWarning)
        return bw.make_release(table, **filed(exclude="person", **options))


def bags_of(release, column):
    return number_groups(release.instances, [column], role="by"), release.bags.index


@pytest.mark.parametrize("how", [OPEN, PRIVATE], ids=["open", "private"])
def test_bags_by_a_column(towns, how, tmp_path):
    made = make(towns, **how, by="town")
    release = bw.Release.load(made.save(tmp_path / "out"))
    assert release.provenance.by == ("town",)
    assert release.provenance.strategy == "groups"
    assert release.encoder.inputs == ["x", "region"]  # the group is no feature
    assert release.instances.column_names == ["town", "x", "region"]
    checks = release.verify(strict=True).checks
    assert "every group of 'town' is in one bag, merged only if it is small" in checks
    towns_of, index = bags_of(release, "town")
    large = np.flatnonzero(np.bincount(towns_of) >= 8)
    assert len({int(index[towns_of == one][0]) for one in large}) == large.size
    assert release.bags.sizes.min() >= 8
    assert release.summary()["by"] == "town"


def test_labels_are_the_means_of_the_groups(towns):
    release = make(towns, **OPEN, by="town", keep_order=True)
    y = towns["y"].to_numpy()
    for bag in range(release.bags.n_bags):
        assert release.labels[bag] == pytest.approx(y[release.bags.index == bag].mean())


def test_a_group_is_a_feature_if_it_is_named(towns):
    release = make(towns, **OPEN, by="town", features=["x", "town"])
    assert release.encoder.inputs == ["x", "town"]
    assert release.instances.column_names == ["x", "town"]
    release.verify()


@pytest.mark.parametrize(
    "how",
    [
        {**OPEN, "strategy": "kmeans"},
        {**OPEN, "strategy": "random"},
        {**OPEN, "strategy": bw.SuperBags(half=True)},
        {**PRIVATE, "strategy": "sorted", "scores": "model"},
        PRIVATE,
        {**PRIVATE, "bag_size": None},
        {**PRIVATE, "by": "town"},
    ],
    ids=["kmeans", "random", "half", "sorted", "planned", "planned size", "by"],
)
def test_no_bag_crosses_a_stratum(towns, how):
    release = make(towns, **how, within=["region"])
    assert "no bag crosses a stratum of 'region'" in release.verify().checks
    strata, index = bags_of(release, "region")
    pairs = {(int(b), int(s)) for b, s in zip(index, strata, strict=True) if b >= 0}
    assert len(pairs) == release.bags.n_bags
    assert release.encoder.inputs == (["x", "region"] if "by" in how else ["x", "town", "region"])


def test_a_stratum_that_is_excluded_leaves_all_the_same(towns):
    release = bw.make_release(
        towns, **filed(**PRIVATE, within="region", exclude=["region", "person"])
    )
    assert release.encoder.inputs == ["x", "town"]
    assert release.instances.column_names == ["region", "x", "town"]
    release.verify()


def test_units_are_counted_in_the_bags_that_are_given(towns):
    release = bw.make_release(towns, **filed(**PRIVATE, by="town", unit="person"))
    assert release.certificate.unit_rows == 2
    release.verify()


def test_without_a_size_the_smallest_bag_has_ten_rows(towns):
    options = {**PRIVATE, "bag_size": None}
    assert make(towns, **options, by="town").provenance.bag_size == 10
    assert make(towns, **options, by="town", min_bag_size=30).bags.sizes.min() >= 30


def other_bags(release, index):
    """Return the release with rows in other bags, as many of them, and labels that fit."""
    bags = Bags.from_labels(index)
    bags = bags.take(np.arange(bags.n_rows))
    certificate = dataclasses.replace(release.certificate, smallest_bag=int(bags.sizes.min()))
    return dataclasses.replace(
        release,
        bags=bags,
        labels=np.zeros(bags.n_bags),
        noise_sd=np.zeros(bags.n_bags),
        certificate=certificate,
    )


def test_verify_refuses_bags_that_do_not_follow_their_columns(towns):
    release = make(towns, **OPEN, by="town")
    groups, index = bags_of(release, "town")
    assert other_bags(release, index).verify()  # the twin: nothing was moved
    split = index.copy()
    largest = np.flatnonzero(groups == np.argmax(np.bincount(groups)))
    split[largest[: largest.size // 2]] = index.max() + 1
    with pytest.raises(ReleaseError, match="a group of 'town' is in several bags"):
        other_bags(release, split).verify()
    large = np.flatnonzero(np.bincount(groups) >= 8)[:2]
    merged = index.copy()
    merged[index == index[groups == large[0]][0]] = index[groups == large[1]][0]
    with pytest.raises(ReleaseError, match="large enough by themselves"):
        other_bags(release, merged).verify()


def test_verify_refuses_bags_that_cross_strata(towns):
    release = make(towns, **OPEN, strategy="random", within="region")
    strata, index = bags_of(release, "region")
    assert other_bags(release, index).verify()
    one, other = (np.flatnonzero(strata == s)[0] for s in (0, 1))
    swapped = index.copy()
    swapped[[one, other]] = index[[other, one]]
    with pytest.raises(ReleaseError, match="crosses a stratum of 'region'"):
        other_bags(release, swapped).verify()


def test_verify_looks_at_random_bags_stratum_by_stratum(towns):
    release = make(towns, **OPEN, strategy="random", within="region")
    strata, index = bags_of(release, "region")
    x = release.instances["x"].to_numpy()
    by_feature, start = index.copy(), 0
    for stratum in range(3):
        rows = np.flatnonzero(strata == stratum)
        rows = rows[np.argsort(x[rows])]
        by_feature[rows] = start + np.minimum(np.arange(rows.size) // 8, rows.size // 8 - 1)
        start = by_feature[rows].max() + 1
    with pytest.raises(ReleaseError, match="follow the features"):
        other_bags(release, by_feature).verify()


def test_verify_refuses_another_story_about_the_columns(towns):
    release = make(towns, **OPEN, by="town")
    for change in ({"by": ()}, {"by": ("region",)}, {"within": ("nowhere",)}):
        forged = dataclasses.replace(
            release, provenance=msgspec.structs.replace(release.provenance, **change)
        )
        with pytest.raises(BagwiseError):
            forged.verify()


@pytest.mark.parametrize("role", ["by", "within"])
def test_columns_that_must_not_leave_are_refused(towns, role):
    for part, name in (("label", "y"), ("unit", "person"), ("id", "person")):
        options = {**PRIVATE, role: name, **({} if part == "label" else {part: "person"})}
        with pytest.raises(ColumnError, match=f"{role} and {part} name the same column"):
            bw.make_release(towns, **filed(**options))
    copy = towns.append_column("copied", towns["y"])
    with pytest.raises(ColumnError, match="copied"):
        make(copy, **PRIVATE, **{role: "copied"}, features=["x"])
    with pytest.raises(ColumnError, match="is not a column"):
        make(towns, **PRIVATE, **{role: "twon"})
    with pytest.raises(ColumnError, match="more than once"):
        make(towns, **PRIVATE, **{role: ["town", "town"]})


def test_what_cannot_be_is_refused(towns):
    with pytest.raises(StrategyError, match="use strategy='auto'"):
        make(towns, **OPEN, by="town", strategy="kmeans")
    with pytest.raises(StrategyError, match="name the columns that define them"):
        make(towns, **OPEN, strategy="groups")
    with pytest.raises(BagTooSmallError, match="smallest stratum has"):
        make(towns, **{**OPEN, "bag_size": 8}, strategy="random", within="town")
    with pytest.raises(StrategyError, match="needs existing groups"):
        bw.plan(
            towns.drop_columns(["y"]), not_private=True, bagging=bw.Bagging(strategies=["groups"])
        )
    nested = pa.table({"x": [1.0, 2.0], "g": [[1], [2]], "y": [0.0, 1.0]})
    with pytest.raises(ColumnError, match="cannot define groups"):
        bw.make_release(nested, **filed(**{**OPEN, "bag_size": 1}, by="g"))
