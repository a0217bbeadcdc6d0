"""From a release to a model: every family, rows of one's own, and what is refused."""

import json

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import ColumnError, LabelError, LeakWarning, ReleaseError, StrategyError
from bagwise.families import FAMILIES, find_family
from bagwise.learn import from_release
from bagwise.rows.matrix import encode_to_disk
from tools.settings import filed

TRUTH = {"x": 0.8, "z": -0.5}


def labelled(family, *, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0, 1, size=(2, n))
    fitted = find_family(family)
    y = fitted.sample(0.2 + TRUTH["x"] * x + TRUTH["z"] * z, phi=0.3, rng=rng)
    return pa.table({"x": x, "z": z, "y": y})


SCALAR = [name for name, family in FAMILIES.items() if not family.has_classes]


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("family", SCALAR)
def test_every_family_from_table_to_intervals(family, private, tmp_path):
    table = labelled(family)
    bounds = (0.0, 1.0) if family == "bernoulli" else (0.0 if family != "gaussian" else -3.0, 12.0)
    privacy = (
        {"epsilon": 8.0, "delta": 1e-6, "bounds": bounds} if private else {"not_private": True}
    )
    release = bw.make_release(table, **filed(label="y", bag_size=15, strategy="kmeans", **privacy))
    model = bw.fit_release(release, family=family)
    loaded = bw.RowModel.load(model.save(tmp_path / "model.json"))
    found = loaded.summary()
    np.testing.assert_array_equal(found.interval, model.summary().interval)
    assert found.names == ("x", "z", "(intercept)")
    for i, name in enumerate(TRUTH):
        off = abs(found.estimate[i] - TRUTH[name])
        assert off < 6 * found.standard_error[i]  # by chance once in 10^8
        assert found.standard_error[i] < 1.0
    np.testing.assert_allclose(loaded.predict(table), model.predict(table))
    assert json.loads((tmp_path / "model.json").read_text())["link"] == find_family(family).link


def test_classes_from_table_to_intervals(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    chances = find_family("multinomial").mean(np.column_stack([0.8 * x, -0.6 * x]))
    way = np.array(["bus", "car", "train"])[(rng.random((4000, 1)) > chances.cumsum(1)).sum(1)]
    table = pa.table({"x": x, "way": way})
    for privacy in ({"not_private": True}, {"epsilon": 4.0, "delta": 1e-6}):
        release = bw.make_release(
            table,
            **filed(
                label="way",
                classes=["bus", "car", "train"],
                bag_size=20,
                strategy="kmeans",
                **privacy,
            ),
        )
        model = bw.fit_release(release)
        assert (model.family, model.classes) == ("multinomial", ("bus", "car", "train"))
        found = model.summary()
        assert found.names == ("car: x", "car: (intercept)", "train: x", "train: (intercept)")
        off = np.abs(found.estimate[[0, 2]] - [0.8, -0.6])
        assert np.all(off < 6 * found.standard_error[[0, 2]])
    path = model.save(tmp_path / "model.json")
    loaded = bw.RowModel.load(path)
    np.testing.assert_allclose(loaded.predict(table).sum(axis=1), 1.0)
    columns = loaded.predict_table(table).column_names
    assert columns == ["prediction=bus", "prediction=car", "prediction=train"]
    scores = bw.evaluate_rows(loaded, table)
    assert scores.accuracy > 0.4
    assert scores.log_loss < np.log(3)
    assert bw.evaluate_release(loaded, release).r2_without_noise > 0.3
    mine = table.slice(0, 50)
    both = bw.fit_release(release, rows=mine)
    assert both.trained_on.n_labelled_rows == 50


@pytest.fixture
def noisy():
    return bw.make_release(
        labelled("poisson"), label="y", bag_size=30, bounds=(0, 12), epsilon=0.5, delta=1e-6
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_rows_of_one_s_own_make_intervals_shorter(noisy, tmp_path):
    mine = labelled("poisson", n=400, seed=1)
    alone, both = bw.fit_release(noisy), bw.fit_release(noisy, rows=mine)
    assert both.trained_on.n_labelled_rows == 400
    shorter = both.standard_errors[:2] / alone.standard_errors[:2]
    assert np.all(shorter < 0.6)
    vague = bw.fit_release(noisy, rows=mine, rows_noise_sd=50.0)
    assert np.all(vague.standard_errors[:2] > 1.5 * both.standard_errors[:2])
    saved = noisy.save(tmp_path / "out")
    assert not any("y" in line for line in bw.Release.load(saved).instances.column_names)


def test_rows_of_one_s_own_must_fit(noisy):
    with pytest.raises(ColumnError, match="'z'"):
        bw.fit_release(noisy, rows=labelled("poisson").drop_columns(["z"]))
    with pytest.raises(ColumnError, match="'y'"):
        bw.fit_release(noisy, rows=labelled("poisson").drop_columns(["y"]))


def test_a_family_that_the_bounds_rule_out_is_refused(noisy):
    with pytest.raises(StrategyError, match=r"between 0 and 12.*family bernoulli"):
        bw.fit_release(noisy, family="bernoulli")
    below = bw.make_release(
        labelled("gaussian"), label="y", bag_size=30, bounds=(-3, 12), epsilon=2, delta=1e-6
    )
    with pytest.raises(StrategyError, match="Choose gaussian"):
        bw.fit_release(below, family="poisson")
    with pytest.warns(LeakWarning):  # of two rows, each knows the other
        exact = bw.make_release(labelled("gaussian"), label="y", bag_size=2, not_private=True)
    with pytest.raises(LabelError, match="not possible in the family poisson"):
        bw.fit_release(exact, family="poisson")
    with pytest.raises(StrategyError, match="has mean labels"):
        bw.fit_release(exact, loss="mixture")


def test_bags_sorted_by_the_labels_get_no_intervals():
    table = labelled("gaussian")
    with pytest.warns(LeakWarning):
        release = bw.make_release(
            table, label="y", bag_size=10, strategy="sorted", not_private=True
        )
    model = bw.fit_release(release, loss="instance")
    assert model.standard_errors is None
    assert "put together by the labels" in str(model.summary())


def counted(n=3000):
    rng = np.random.default_rng(2)
    x, town = rng.normal(size=n), rng.choice(["Bonn", "Pune", "Oslo"], size=n)
    time = rng.uniform(0.5, 2.0, size=n)
    mean = time * np.exp(0.3 + 0.5 * x + 0.4 * (town == "Pune"))
    y = np.minimum(rng.poisson(mean), 20)
    return pa.table({"x": x, "town": town, "time": time, "y": y.astype(float)})


@pytest.mark.parametrize(
    ("options", "family"),
    [
        ({"strategy": "kmeans"}, "gaussian"),
        ({"strategy": "kmeans", "exposure": "time"}, "poisson"),
        ({"strategy": bw.SuperBags(half=True)}, "gaussian"),  # some rows are in no bag
    ],
    ids=["gaussian", "exposure", "left out"],
)
def test_a_fit_from_disk_is_that_from_memory(options, family, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    release = bw.make_release(
        counted(), **filed(label="y", bounds=(0, 20), epsilon=4.0, bag_size=10, seed=1, **options)
    )
    made = []
    real = encode_to_disk
    monkeypatch.setattr(
        from_release, "encode_to_disk", lambda *a, **k: made.append(real(*a, **k)) or made[-1]
    )
    inside = bw.fit_release(release, family=family)
    assert not made
    outside = bw.fit_release(release, family=family, memory_limit=1)
    assert isinstance(made[0], np.memmap)
    assert made[0].shape[0] == release.bags.in_bag.sum()
    np.testing.assert_allclose(outside.coef, inside.coef, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(outside.standard_errors, inside.standard_errors, rtol=1e-6)
    assert list(tmp_path.iterdir()) == []  # the file has no name


@pytest.mark.parametrize("given", ["out", {"y": [1.0]}])
def test_what_is_no_release_is_told_how_to_read_one(given):
    with pytest.raises(ReleaseError, match=r"Release\.load\(path\)"):
        bw.fit_release(given)
    table = labelled("gaussian", n=100)
    model = bw.fit_release(bw.make_release(table, label="y", bag_size=10, not_private=True))
    with pytest.raises(ReleaseError, match=r"Release\.load\(path\)"):
        bw.evaluate_release(model, given)
