import hashlib
import json
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    BagTooSmallError,
    BagwiseError,
    BoundsError,
    BudgetError,
    ClippingWarning,
    ColumnError,
    LeakWarning,
    OutputExistsError,
    ReleaseError,
    StrategyError,
    WeakPromiseWarning,
)
from bagwise.files.json_files import canonical, write_json
from bagwise.files.parquet_files import write_plain
from bagwise.requests.provenance import NothingToPlan
from bagwise.rng import SimulatedNoise
from tests.forging import rehash
from tools.settings import filed

PRIVATE = {"epsilon": 1.0, "delta": 1e-5, "bounds": (0, 10)}


def make(table, **options):
    options = {"label": "y", "bag_size": 5, "not_private": "epsilon" not in options, **options}
    return bw.make_release(table, **filed(**options))


@pytest.fixture
def saved(table, tmp_path):
    return make(table, **PRIVATE).save(tmp_path / "out")


def test_of_a_large_table_every_so_manyth_bag_is_measured(monkeypatch):
    x = np.random.default_rng(0).normal(size=(600, 2))
    made = make(
        pa.table({"a": x[:, 0], "b": x[:, 1], "y": x.sum(axis=1)}), strategy="kmeans", **PRIVATE
    )
    X, index = made.encoder.transform(made.features), made.bags.index
    assert made.quality().error_ratio == made.bags.quality(X).error_ratio
    monkeypatch.setattr("bagwise.release.release.MEASURED", 200)
    monkeypatch.setattr("bagwise.release.release.BAGS_A_COLUMN", 1)
    some = index % 3 == 0
    alone = Bags(index[some] // 3).quality(X[some])
    assert made.quality().error_ratio == pytest.approx(alone.error_ratio, rel=1e-9)
    assert made.quality().sse_ratio == pytest.approx(alone.sse_ratio, rel=1e-9)


def test_a_release_comes_back_as_it_was_saved(table, tmp_path):
    made = make(table, **PRIVATE)
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    assert np.array_equal(loaded.bags.index, made.bags.index)
    assert np.array_equal(loaded.labels, made.labels)
    assert loaded.certificate == made.certificate
    assert loaded.encoder == made.encoder
    assert loaded.instances.equals(made.instances)
    assert loaded.provenance == made.provenance
    found = loaded.verify()
    assert (
        found.digest
        == hashlib.sha256((tmp_path / "out" / "manifest.json").read_bytes()).hexdigest()
    )
    assert made.verify().digest is None
    assert "damage, not authorship" in found.note


def test_the_files_hold_what_they_should_and_no_label(table, saved):
    assert {path.name for path in saved.iterdir()} == {
        "instances.parquet",
        "bags.parquet",
        "certificate.json",
        "croissant.json",
        "manifest.json",
    }
    assert pq.read_table(saved / "instances.parquet").column_names == ["x", "city", "bag_id"]
    assert pq.read_table(saved / "bags.parquet").column_names == [
        "bag_id",
        "size",
        "label",
        "noise_sd",
    ]
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["schema"] == "bagwise-release/2"
    assert manifest["provenance"]["strategy"] in ("random", "kmeans", "optimal")
    assert manifest["provenance"]["row_order"] == "secret permutation"
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((saved / name).read_bytes()).hexdigest() == digest


def test_bag_means_are_the_means_of_the_rows_in_the_bag(table):
    release = make(table.append_column("key", pa.array(range(60))), id="key", exclude=["city"])
    labels = np.array(table["y"])[release.instances["key"].to_numpy()]
    np.testing.assert_allclose(release.labels, release.bags.mean(labels))
    assert release.instances.column_names == ["key", "x"]
    assert not release.noise_sd.any()


def test_picked_labels_are_labels_of_the_bag(table):
    keyed = table.append_column("key", pa.array(range(60)))
    release = make(keyed, id="key", label_kind="pick")
    labels = np.array(table["y"])[release.instances["key"].to_numpy()]
    for bag, picked in enumerate(release.labels):
        assert picked in labels[release.bags.index == bag]


def test_rows_leave_shuffled_and_bag_ids_follow_that_order(table):
    keyed = table.append_column("key", pa.array(range(60)))
    first, second = (make(keyed, id="key", seed=0) for _ in range(2))
    assert first.instances["key"].to_pylist() != second.instances["key"].to_pylist()
    assert first.instances["key"].to_pylist() != list(range(60))

    def groups(release):
        keys = release.instances["key"].to_numpy()
        return {frozenset(keys[release.bags.index == b]) for b in range(release.bags.n_bags)}

    assert groups(first) == groups(second)  # the seed fixes who is with whom
    for release in (first, second):
        appearance = [int(np.argmax(release.bags.index == b)) for b in range(release.bags.n_bags)]
        assert appearance == sorted(appearance)


def test_sorted_bags_do_not_betray_their_order(table):
    """Numbering bags along the sorted labels would publish the order of the bags' labels."""
    with pytest.warns(LeakWarning):
        release = make(table, strategy="sorted")
    assert not np.all(np.diff(release.labels) > 0)
    assert not np.all(np.diff(release.labels) < 0)


def test_keeping_the_order_is_recorded(table):
    release = make(table, keep_order=True, **PRIVATE)
    assert any("order of the source table" in remark for remark in release.certificate.remarks)
    assert release.instances["x"].to_pylist() == table["x"].to_pylist()
    assert release.provenance.row_order == "kept"


def test_without_a_seed_no_seed_is_recorded_and_partitions_differ(table):
    first, second = (make(table, keep_order=True, strategy="random") for _ in range(2))
    assert first.provenance.seed is None
    assert not np.array_equal(first.bags.index, second.bags.index)
    seeded = make(table, seed=np.int64(7))
    assert seeded.provenance.seed == 7
    assert seeded.certificate.remarks == ()  # bags follow from features: nothing to warn of
    for wrong in (True, -1, 0.5, "1"):
        with pytest.raises(StrategyError, match="seed must be"):
            make(table, seed=wrong)


@pytest.mark.filterwarnings("ignore::bagwise.errors.LeakWarning")  # of bags of two or three
def test_nothing_of_the_source_leaves_but_its_features(tmp_path):
    frame = pd.DataFrame(
        {
            "x": np.arange(12) / 7,
            "kind": pd.Categorical(["a", "b"] * 6, categories=["a", "b", "unused-level"]),
            "hidden-column": np.arange(12) / 3,
            "y": np.arange(12.0),
        },
        index=pd.Index(np.arange(100, 112), name="hidden-index"),
    )
    path = tmp_path / "hidden-source.parquet"
    frame.to_parquet(path)
    for source in (frame, path):
        out = make(source, exclude=["hidden-column"], bag_size=3).save(tmp_path / "out", force=True)
        content = b"".join(file.read_bytes() for file in out.iterdir())
        schema = pq.read_schema(out / "instances.parquet")
        assert schema.metadata is None
        for hidden in (b"hidden", b"unused-level", b"pandas"):
            assert hidden not in content
        source_hash = hashlib.sha256(path.read_bytes()).hexdigest().encode()
        assert source_hash not in content


@pytest.mark.parametrize(
    "kind",
    [
        pd.Categorical(["a", "b", "a"] * 4),
        pd.Categorical([1, 2, 1] * 4),
        pl.Series(["a", "b", "a"] * 4, dtype=pl.Categorical),
        pl.Series(["a", "b", "a"] * 4, dtype=pl.Enum(["a", "b", "c"])),
        pl.Series(["a", None, "a"] * 4),
        pa.array([1, 2, 1] * 4, pa.decimal128(5, 2)),
        pa.array(["a", "b", "a"] * 4, pa.string_view()),
        pa.array([1, 2, 1] * 4, pa.uint8()),
    ],
    ids=lambda kind: f"{type(kind).__module__}-{getattr(kind, 'dtype', getattr(kind, 'type', ''))}",
)
@pytest.mark.filterwarnings("ignore::bagwise.errors.LeakWarning")  # of bags of two or three
def test_every_type_of_feature_survives_the_disk(kind, tmp_path):
    frame = pa.table(
        {
            "c": pa.array(kind) if not isinstance(kind, pl.Series) else kind.to_arrow(),
            "y": np.arange(12.0),
        }
    )
    release = make(frame, bag_size=3, features="c")
    loaded = bw.Release.load(release.save(tmp_path / "out"))
    loaded.verify()
    assert np.array_equal(loaded.training_data()[0], release.training_data()[0])


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("s", "UTC"),
        pa.timestamp("ns"),
        pa.date32(),
        pa.date64(),
        pa.time32("s"),
        pa.duration("s"),
        pa.float16(),
        pa.binary(),
        pa.string_view(),
        pa.decimal128(30, 2),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::bagwise.errors.LeakWarning")  # of bags of two or three
def test_every_type_of_id_survives_the_disk(kind, tmp_path):
    days = np.arange(12)
    if pa.types.is_date64(kind):
        ids = pa.array(days * 86_400_000).cast(kind)
    elif pa.types.is_floating(kind):
        ids = pa.array(days.astype(np.float16))
    elif pa.types.is_binary(kind):
        ids = pa.array([bytes([day]) for day in days])
    elif pa.types.is_string_view(kind):
        ids = pa.array([str(day) for day in days], kind)
    elif pa.types.is_temporal(kind) and kind.bit_width == 32:
        ids = pa.array(days.astype(np.int32)).cast(kind)
    else:
        ids = pa.array(days).cast(kind)
    made = make(pa.table({"id": ids, "x": days / 7, "y": days + 0.5}), id="id", bag_size=3)
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    loaded.verify()
    assert loaded.instances.equals(made.instances)


@pytest.mark.filterwarnings("ignore::bagwise.errors.LeakWarning")  # of bags of two or three
def test_a_named_index_can_be_the_id(tmp_path):
    frame = pd.DataFrame(
        {"x": [0.1, 0.2, 0.2, 0.4], "y": [1.0, 2, 3, 4]}, index=pd.Index([5, 6, 7, 8], name="key")
    )
    assert sorted(make(frame, id="key", bag_size=2).instances["key"].to_pylist()) == [5, 6, 7, 8]


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_library_makes_the_same_release(library, table, tmp_path):
    release = make(library(table.to_pydict()), keep_order=True, seed=1)
    reference = make(table, keep_order=True, seed=1)
    assert np.array_equal(release.bags.index, reference.bags.index)
    assert np.array_equal(release.labels, reference.labels)
    for mine, theirs in zip(release.training_data(), reference.training_data(), strict=True):
        assert np.array_equal(mine, theirs)
    assert bw.Release.load(release.save(tmp_path / "out")).verify()


def test_left_out_rows_stay_as_instances_without_a_bag(table, tmp_path):
    release = make(table, strategy=bw.SuperBags(half=True))
    saved = release.save(tmp_path / "out")
    ids = pq.read_table(saved / "instances.parquet")["bag_id"]
    assert ids.null_count == 30
    X, y, bag_ids = bw.Release.load(saved).training_data()
    assert X.shape[0] == y.size == bag_ids.size == 30
    assert bw.Release.load(saved).verify()


def test_training_data_repeats_labels_and_fit_params_align(table):
    release = make(table, **PRIVATE)
    X, y, bag_ids = release.training_data()
    assert X.shape == (60, 2)
    assert np.array_equal(y, release.labels[bag_ids])
    params = release.fit_params()
    assert np.array_equal(params["bags"], bag_ids)
    np.testing.assert_allclose(params["noise_sd"], release.noise_sd[bag_ids])


def test_bounds_without_epsilon_clip_too_and_say_so(table):
    clipped = pytest.warns(ClippingWarning, match="outside the bounds")
    with pytest.warns(LeakWarning, match="single rows"), clipped:
        release = make(table, bounds=(2.0, 4.0), bag_size=1)
    assert release.labels.min() == 2.0
    assert release.labels.max() == 4.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"not_private": False}, BudgetError, "state how private"),
        ({**PRIVATE, "not_private": True}, BudgetError, "not both"),
        ({"not_private": False, "delta": 1e-5, "bounds": (0, 1)}, BudgetError, "delta alone"),
        ({**PRIVATE, "bounds": None}, BoundsError, "needs bounds"),
        ({**PRIVATE, "bounds": (3, 3)}, BoundsError, "lo < hi"),
        ({**PRIVATE, "epsilon": 0.0}, BudgetError, "positive"),
        ({**PRIVATE, "epsilon": "1"}, BudgetError, "epsilon must be a number"),
        pytest.param(
            {**PRIVATE, "epsilon": 1e-9, "delta": 1e-12},
            BudgetError,
            "more noise than",
            marks=pytest.mark.filterwarnings("ignore::bagwise.errors.StrongPromiseWarning"),
        ),
        ({**PRIVATE, "delta": 1.0}, BudgetError, "below 1"),
        ({**PRIVATE, "delta": 0.0, "noise": "gaussian"}, BudgetError, "needs a positive delta"),
        (
            {**PRIVATE, "delta": 0.01, "label_kind": "pick", "noise": "gaussian"},
            BudgetError,
            "too large for picked",
        ),
        ({**PRIVATE, "strategy": "sorted", "scores": "labels"}, BudgetError, "not differentially"),
        ({"strategy": "sorted", "scores": "model"}, BudgetError, "made with noise"),
        ({**PRIVATE, "unit": "q"}, ColumnError, "unit 'q' is not a column"),
        ({**PRIVATE, "unit": "y"}, ColumnError, "same column"),
        (
            {**PRIVATE, "noise_source": SimulatedNoise(0)},
            BudgetError,
            "simulated noise is not private",
        ),
        ({**PRIVATE, "scores": "labels"}, StrategyError, "name strategy='sorted'"),
        ({"strategy": "sorted", "scores": "none"}, StrategyError, "needs scores"),
        ({"scores": "guess"}, StrategyError, "unknown scores"),
        ({"label_kind": "median"}, StrategyError, "unknown label_kind"),
        ({"strategy": "nearest"}, StrategyError, "unknown strategy"),
        ({"bag_size": 0}, BagTooSmallError, "at least 1"),
        ({"bag_size": 61}, BagTooSmallError, "60 rows cannot fill"),
        ({"bag_size": 2.5}, BagTooSmallError, "whole number"),
        ({"label": "z"}, ColumnError, "label 'z' is not a column"),
        ({"label": None}, ColumnError, "label must be the name"),
        ({"id": 3}, ColumnError, "id must be the name"),
        ({"features": [1]}, ColumnError, "names of columns"),
        ({"label_kind": ["mean"]}, StrategyError, "unknown label_kind"),
        ({"bounds": "01"}, BoundsError, "two numbers"),
        ({"bounds": (0, 1e200)}, BoundsError, "Rescale"),
        ({"features": ["x", "q"]}, ColumnError, "'q' is not a column"),
        ({"id": "q"}, ColumnError, "id 'q' is not a column"),
        ({"id": "y"}, ColumnError, "same column"),
        ({"id": "city"}, ColumnError, "missing or repeated"),
    ],
)
def test_contradictions_and_mistakes(table, options, error, message):
    with pytest.raises(error, match=message):
        make(table, **options)


def test_columns_that_would_carry_labels_out(table):
    copied = table.append_column("copy", table["y"])
    with pytest.raises(ColumnError, match="'copy' equals the label"):
        make(copied)
    with pytest.raises(ColumnError, match="'copy' equals the label"):
        make(copied, id="copy")
    make(copied, exclude=["copy"])
    with pytest.raises(ColumnError, match="'bag_id'"):
        make(table.append_column("bag_id", pa.array([1, 2] * 30)))


def test_output_is_not_overwritten_by_accident(table, saved):
    with pytest.raises(OutputExistsError, match="--force"):
        make(table).save(saved)
    make(table).save(saved, force=True)
    assert bw.Release.load(saved).certificate.headline == "NOT PRIVATE"
    (saved / "manifest.json").write_text("notes, and no JSON")
    with pytest.raises(BagwiseError, match="not a bagwise release"):
        make(table).save(saved, force=True)
    assert (saved / "manifest.json").read_text() == "notes, and no JSON"
    shutil.rmtree(saved)
    saved.mkdir()
    (saved / "thesis.txt").write_text("precious")
    with pytest.raises(OutputExistsError, match="not a bagwise release"):
        make(table).save(saved, force=True)


def test_promises_that_promise_nothing_are_refused(table):
    with pytest.raises(BudgetError, match="above one in 60"):
        make(table, **{**PRIVATE, "delta": 0.1})
    with pytest.raises(BudgetError, match="all but certainty"):
        make(table, **{**PRIVATE, "epsilon": 400.0})
    with pytest.warns(WeakPromiseWarning, match="all but certainty"):
        make(table, **{**PRIVATE, "epsilon": 12.0})
    assert make(table, **{**PRIVATE, "delta": 1 / 60}).certificate.is_private


def edit_table(directory, name, change):
    table = pq.read_table(directory / name)
    write_plain(change(table), directory / name)


def edit_json(directory, name, **changes):
    content = json.loads((directory / name).read_text())
    write_json({**content, **changes}, directory / name)


def edit_provenance(directory, **changes):
    content = json.loads((directory / "manifest.json").read_text())
    edit_json(directory, "manifest.json", provenance={**content["provenance"], **changes})


def replace_column(table, name, values):
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def test_damage_is_noticed_at_loading(saved):
    for name in ("instances.parquet", "bags.parquet", "certificate.json"):
        original = (saved / name).read_bytes()
        (saved / name).write_bytes(original + b"\n")
        with pytest.raises(ReleaseError, match=f"{name} (was changed|is not spelled)"):
            bw.Release.load(saved)
        (saved / name).unlink()
        with pytest.raises(ReleaseError, match=f"{name} is missing"):
            bw.Release.load(saved)
        (saved / name).write_bytes(original)
    (saved / "labels.csv").write_text("oops")
    with pytest.raises(ReleaseError, match=r"labels\.csv"):
        bw.Release.load(saved)
    (saved / "labels.csv").unlink()
    (saved / "manifest.json").write_text("{")
    with pytest.raises(ReleaseError, match="not readable JSON"):
        bw.Release.load(saved)
    (saved / "manifest.json").write_text("[]")
    with pytest.raises(ReleaseError, match="JSON object"):
        bw.Release.load(saved)
    with pytest.raises(ReleaseError, match="not a directory"):
        bw.Release.load(saved / "nowhere")


def test_a_manifest_that_lists_other_files_is_refused(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    del manifest["files"]["bags.parquet"]
    (saved / "manifest.json").write_bytes(canonical(manifest))
    with pytest.raises(ReleaseError, match="does not list the files of a release"):
        bw.Release.load(saved)


def test_a_release_without_a_plan_says_why():
    assert "too few rows" in NothingToPlan(cause="rows").text()
    assert "labels of this kind" in NothingToPlan(cause="labels").text()


FORGERIES = {
    "another headline": lambda d: edit_json(
        d, "manifest.json", certificate="(0.1, 1e-05)-label-DP"
    ),
    "more rows": lambda d: edit_json(d, "manifest.json", n_rows=61_000),
    "an extra entry": lambda d: edit_json(d, "manifest.json", approved_by="the privacy officer"),
    "less noise claimed": lambda d: edit_table(
        d, "bags.parquet", lambda t: replace_column(t, "noise_sd", np.zeros(t.num_rows))
    ),
    "another epsilon": lambda d: edit_json(
        d, "certificate.json", epsilon=0.1, headline="(0.1, 1e-05)-label-DP"
    ),
    "a label column": lambda d: edit_table(
        d, "instances.parquet", lambda t: t.append_column("y", pa.array(np.zeros(t.num_rows)))
    ),
    "a picked index": lambda d: edit_table(
        d, "bags.parquet", lambda t: t.append_column("row", pa.array(np.arange(t.num_rows)))
    ),
    "a row in no bag": lambda d: edit_table(
        d,
        "instances.parquet",
        lambda t: replace_column(t, "bag_id", [None, *t["bag_id"].to_pylist()[1:]]),
    ),
    "a row in another bag": lambda d: edit_table(
        d,
        "instances.parquet",
        lambda t: replace_column(
            t, "bag_id", [11 - t["bag_id"][0].as_py(), *t["bag_id"].to_pylist()[1:]]
        ),
    ),
    "rows deleted": lambda d: edit_table(d, "instances.parquet", lambda t: t.slice(1)),
    "bags deleted": lambda d: edit_table(d, "bags.parquet", lambda t: t.slice(1)),
    "a label lost": lambda d: edit_table(
        d, "bags.parquet", lambda t: replace_column(t, "label", [float("nan")] * t.num_rows)
    ),
    "a larger bag size promised": lambda d: edit_provenance(d, bag_size=6),
    "sorted by labels after all": lambda d: edit_provenance(d, scores="labels"),
    "another smallest bag": lambda d: edit_json(d, "certificate.json", smallest_bag=50),
    "a lost field": lambda d: edit_json(d, "manifest.json", label_kind=None),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_consistent_forgeries_are_noticed_by_verify(saved, forge):
    bw.Release.load(saved).verify()
    forge(saved)
    rehash(saved)
    with pytest.raises(BagwiseError):
        bw.Release.load(saved).verify()


def test_another_schema_version_is_said(saved):
    edit_json(saved, "manifest.json", schema="bagwise-release/99")
    with pytest.raises(ReleaseError, match="this version reads"):
        bw.Release.load(saved)


def test_repr_says_what_it_is(table):
    release = make(table)
    assert repr(release) == "Release(60 rows, 12 bags of at least 5, mean labels, NOT PRIVATE)"
    assert "NOT PRIVATE" in release._repr_html_()


@pytest.mark.parametrize("strategy", ["kmeans", "random", "super"])
@pytest.mark.filterwarnings("ignore::bagwise.errors.LeakWarning")  # of bags of two or three
def test_a_thousand_levels_are_never_made_dense(strategy, monkeypatch):
    rng = np.random.default_rng(0)
    levels = rng.permutation(np.arange(900) % 300)
    table = pa.table(
        {"city": [f"city {i}" for i in levels], "x": rng.normal(size=900), "y": levels * 1.0}
    )
    monkeypatch.setattr(bw.Encoder, "transform", lambda *_: pytest.fail("X was made dense"))
    release = bw.make_release(
        table,
        label="y",
        bag_size=3,
        not_private=True,
        strategy=strategy,
        reading=bw.Reading(max_levels=1000),
        bagging=bw.Bagging(seed=0),
        confirmed=True,
    )
    assert release.bags.sizes.min() >= 3


def test_a_directory_whose_manifest_is_not_ours_is_never_replaced(saved, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(saved, other)
    (other / "manifest.json").write_text("notes, and no JSON")
    with pytest.raises(BagwiseError, match="not a bagwise release"):
        bw.Release.load(saved).save(other, force=True)
    assert (other / "manifest.json").read_text() == "notes, and no JSON"


def test_private_labels_are_clipped_without_a_trace(table, tmp_path):
    """Labels at the edge of the bounds and far beyond it give the same release, noise apart."""
    edge = pa.table({"x": table["x"], "y": np.where(np.arange(60) < 30, 0.0, 10.0)})
    beyond = pa.table({"x": table["x"], "y": np.where(np.arange(60) < 30, -1e9, 1e9)})
    manifests = []
    for name, data in (("edge", edge), ("beyond", beyond)):
        release = make(data, seed=3, keep_order=True, **PRIVATE)
        out = release.save(tmp_path / name)
        manifests.append(json.loads((out / "manifest.json").read_text()))
        assert np.abs(release.labels - 5).max() < 5 + 40 * release.noise_sd.max()
    for manifest in manifests:
        manifest.pop("files")
    assert manifests[0] == manifests[1]
