"""Releases on Spark: what depends on who works; tests/release/test_in_parts.py has the rest."""

import base64
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import ColumnError, LabelError
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import one_hot
from bagwise.release import bags_in_parts
from tests.privacy.events import class_picks
from tests.spark.conftest import PRIVATE, K, N
from tools.settings import filed

PLAIN = {**PRIVATE, "tighten": "none", "centre": "none"}
CLASSES = ["lowest", "middle", "highest"]


@pytest.fixture(scope="module", autouse=True)
def several_parts():
    """Parts are small, so that there are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bags_in_parts, "BUCKET", 1000)
        patch.setattr(bags_in_parts, "CELL", 800)
        yield


CASES = {
    "random": {**PLAIN, "strategy": "random"},
    "kmeans": {**PLAIN, "strategy": "kmeans"},
    "planned": {**PRIVATE, "bag_size": None},
    "frame": {**PLAIN, "strategy": "sorted"},
}


@pytest.fixture(scope="module")
def make(spark, files, table, tmp_path_factory):
    """Return a release, not yet written, and as it is read back: one for each case."""

    @functools.cache
    def made(case):
        source = str(files)
        if case == "frame":
            columns = [table[name].to_pylist() for name in table.column_names]
            rows = list(zip(*columns, strict=True))
            source = spark.createDataFrame(rows, table.column_names).repartition(3)
        folder = tmp_path_factory.mktemp(case)
        release: Any = bw.make_release(
            source,
            **filed(engine="auto" if case == "frame" else "spark", spill=folder, **CASES[case]),
        )
        release.save(folder / "out", rows_per_file=1300)
        return release, bw.Release.load(folder / "out")

    return made


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def test_every_row_leaves_once_and_the_certificate_is_that_in_memory(make, table, case):
    _, release = make(case)
    release.verify()
    order = np.argsort(release.instances["key"].to_numpy())
    left, expected = release.instances.take(pa.array(order)), table.drop_columns(["y"])
    assert left.column_names == expected.column_names
    for name in left.column_names:
        np.testing.assert_array_equal(left[name].to_pylist(), expected[name].to_pylist())
    assert (release.bags.n_rows, release.bags.in_bag.all()) == (N, True)
    local = bw.make_release(table, **filed(**CASES[case]))
    assert release.certificate.headline == local.certificate.headline
    kinds = [[event.kind for event in one.certificate.events] for one in (release, local)]
    assert kinds[0] == kinds[1]
    assert release.provenance.label == local.provenance.label
    if case in ("random", "kmeans"):
        assert release.certificate.events == local.certificate.events
        assert release.provenance == local.provenance


def test_labels_are_drawn_once(make, tmp_path):
    """A second action, in files of other sizes, has the same labels and the same order."""
    release, first = make("random")
    again = bw.Release.load(release.save(tmp_path / "again"))
    again.verify()
    np.testing.assert_array_equal(again.labels, first.labels)
    np.testing.assert_array_equal(again.bags.index, first.bags.index)
    assert again.instances["key"].to_pylist() == first.instances["key"].to_pylist()


@pytest.fixture(scope="module")
def classed(table):
    """The table with classes for labels."""
    codes = np.digitize(table["y"].to_numpy(), [-1.0, 1.5])
    found = table.set_column(table.num_columns - 1, "y", pa.array(np.array(CLASSES)[codes]))
    return found, codes


def test_no_secret_is_in_a_log_or_a_plan(make, logs, spark, case):
    release, _ = make(case)
    cluster = release.bags.parts.workers
    frame = cluster._items([1, 2])
    plan = frame._jdf.queryExecution().toString()
    shown = [plan.encode(), *(p.read_bytes() for p in logs.rglob("*") if p.is_file())]
    assert any(b"mapInArrow" in one or b"MapInArrow" in one for one in shown)
    secret = cluster.secret
    for spelled in (
        secret,
        secret.hex().encode(),
        base64.b64encode(secret)[:-2],
        repr(secret)[2:20].encode(),
    ):
        assert not any(spelled in one for one in shown)


def test_labels_of_a_frame_are_masked_where_they_are_written(make, table):
    release, _ = make("frame")
    labels = {value.tobytes() for value in table["y"].to_numpy()[:200]}
    paths = {split.path for split in release.bags.parts.splits}
    assert paths
    for path in paths:
        content = Path(path).read_bytes()
        assert not any(label in content for label in labels)


def test_picked_classes_of_a_frame_are_masked_and_randomised(classed, spark, tmp_path):
    table, codes = classed
    rows = list(zip(*(table[name].to_pylist() for name in ("key", "a", "y")), strict=True))
    frame = spark.createDataFrame(rows, ["key", "a", "y"]).repartition(2)
    asked = {
        "label": "y", "classes": CLASSES, "id": "key", "epsilon": 6.0, "bag_size": K,
        "strategy": "random", "label_kind": "pick",
    }  # fmt: skip
    release: Any = bw.make_release(frame, **filed(spill=tmp_path, **asked))
    paths = [
        Path(path).read_bytes() for path in {split.path for split in release.bags.parts.splits}
    ]
    assert not any(name.encode() in content for name in CLASSES for content in paths)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    (event,) = release.certificate.events
    sizes = read.bags.sizes
    assert event == class_picks(ExactCalibration(6.0, 0.0, (0.0, 1.0)), classes=3, sizes=sizes)
    # Of each bag a class is reported that is one of its own, nearly always: keep is above 0.98.
    own = read.bags.sum(one_hot(codes[read.instances["key"].to_numpy() // 7], 3))
    reported = read.labels.argmax(axis=1)
    chance = own / sizes[:, None]
    expected, variance = chance.sum(axis=0), (chance * (1 - chance)).sum(axis=0)
    counts = np.bincount(reported, minlength=3)
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(variance) + 0.02 * sizes.size)
    with pytest.raises(LabelError, match="none of the classes") as caught:
        bw.make_release(
            frame, **filed(spill=tmp_path, **{**asked, "classes": ["lowest", "middle"]})
        )
    assert "highest" not in str(caught.value)


def test_what_is_wrong_with_a_table_is_said_without_a_label(table, spark, tmp_path):
    options = {**PLAIN, "strategy": "random", "spill": tmp_path}
    gaps = spark.createDataFrame([(1, 2.0, 4.25), (2, 3.0, None)], "key int, a double, y double")
    with pytest.raises(LabelError, match="missing") as caught:
        bw.make_release(gaps, **filed(**{**options, "bag_size": 1}))
    assert "4.25" not in str(caught.value)
    copy = spark.createDataFrame(
        [(i, i * 0.5, i * 0.5) for i in range(60)], "key int, a double, y double"
    )
    with pytest.raises(ColumnError, match="equals the label"):
        bw.make_release(copy, **filed(**{**options, "bag_size": 5}))
    twice = spark.createDataFrame(
        [(i // 2, i * 0.5, -i * 1.0) for i in range(60)], "key int, a double, y double"
    )
    with pytest.raises(ColumnError, match="which a key must not be"):
        bw.make_release(twice, **filed(**{**options, "bag_size": 5}))
