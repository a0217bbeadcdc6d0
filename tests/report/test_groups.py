"""Errors by group: exact with labels, and from bags with standard errors that hold."""

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import ColumnError
from bagwise.report import errors_by_group

GROUPS = ["Bonn", "Köln", "Pune"]


def make_table(rng, rows=900):
    city = rng.choice(GROUPS, size=rows, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=rows)
    y = 2 * x + 3.0 * (city == "Pune") * x**2 + rng.normal(size=rows)  # the model lacks x squared
    return pa.table({"x": x, "city": city.tolist(), "y": y})


def fit(table, **options):
    promise = {"label": "y", "strategy": "kmeans", "bag_size": 6, "not_private": True}
    release = bw.make_release(table, **(promise | options))
    return release, bw.fit_release(release)


def test_with_labels_the_figures_are_exact():
    table = make_table(np.random.default_rng(0))
    release, model = fit(table)
    found = errors_by_group(release, model, "city", labels=table)
    off = model.predict(table) - table["y"].to_numpy()
    city = np.array(table["city"].to_pylist())
    assert found.from_labels
    for one in found.groups:
        here = off[city == one.group]
        assert one.rows == here.size
        assert one.bias == pytest.approx(here.mean())
        assert one.rmse == pytest.approx(np.sqrt(np.mean(here**2)))
        assert one.bias_se is None


def deviations(wrong_by=0.0, runs=40):
    """Return (bias from bags - true bias) / standard error, over releases of new tables."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(runs):
        table = make_table(rng)
        release, model = fit(table)
        bags = errors_by_group(release, model, "city")
        true = errors_by_group(release, model, "city", labels=table)
        found += [
            (a.bias + wrong_by - b.bias) / a.bias_se
            for a, b in zip(bags.groups, true.groups, strict=True)
        ]
    return np.array(found)


@pytest.mark.slow
def test_standard_errors_from_bags_hold_the_true_bias():
    """120 deviates; more than 15 % beyond 2 would come by chance less than once in 1e4."""
    assert np.mean(np.abs(deviations()) > 2) < 0.15
    assert np.mean(np.abs(deviations(wrong_by=1.0)) > 2) > 0.15


def test_bags_without_noise_of_one_group_each_tell_its_bias():
    """By hand: bags hold one group each, so that the bias is the mean over its bags."""
    city = np.repeat(["a", "b"], 20)
    table = pa.table({"city": city.tolist(), "x": np.arange(40.0), "y": np.arange(40.0) ** 2})
    release = bw.make_release(
        table,
        label="y",
        bag_size=5,
        strategy="kmeans",
        bagging=bw.Bagging(seed=0),
        not_private=True,
    )
    model = bw.fit_release(release)
    found = errors_by_group(release, model, "city")
    instances = release.instances
    names = np.array(instances["city"].to_pylist())
    pure = all(len(set(names[release.bags.index == bag])) == 1 for bag in range(8))
    assert pure
    off = release.bags.mean(model.predict(instances)) - release.labels
    for one in found.groups:
        mine = [bag for bag in range(8) if names[release.bags.index == bag][0] == one.group]
        weights = release.bags.sizes[mine]
        assert one.bias == pytest.approx(np.average(off[mine], weights=weights))


def test_bags_that_all_hold_the_same_share_do_not_tell():
    city = ["a", "b"] * 30
    table = pa.table({"city": city, "x": np.arange(60.0), "y": np.arange(60.0)})
    release = bw.make_release(
        table, label="y", bag_size=60, strategy="random", features=["city"], not_private=True
    )
    with pytest.warns(bw.BagwiseWarning):
        model = bw.fit_release(release)
    found = errors_by_group(release, model, "city")
    assert [(one.bias, one.bias_se) for one in found.groups] == [(None, None)] * 2


def test_columns_that_are_no_groups_are_refused():
    table = make_table(np.random.default_rng(0))
    release, model = fit(table)
    with pytest.raises(ColumnError, match="not a feature"):
        errors_by_group(release, model, "y")
    with pytest.raises(ColumnError, match="900 groups"):
        errors_by_group(release, model, "x")


def test_missing_values_are_a_group():
    rng = np.random.default_rng(0)
    table = make_table(rng)
    holes = pa.array(table["city"].to_pylist(), mask=rng.random(900) < 0.2)
    table = table.set_column(1, "city", holes)
    release, model = fit(table)
    groups = [one.group for one in errors_by_group(release, model, "city").groups]
    assert groups == ["(missing)", *GROUPS]
