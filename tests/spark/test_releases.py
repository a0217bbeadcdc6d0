"""Releases on Spark: the contract of every engine, exact sums, and labels that are drawn once."""

import base64
import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.bagging import find_strategy
from bagwise.bagging._strata import check_strata
from bagwise.errors import BagTooSmallError, ColumnError, EngineError, LabelError, StrategyError
from bagwise.planner.automatic import decide
from bagwise.planner.sample import Population
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import grid_step, labels_to_steps, one_hot
from bagwise.privacy.noise import centred_steps
from bagwise.privacy.private_model import design_model
from bagwise.privacy.units import units_of
from bagwise.release import on_spark, spread_bags
from bagwise.release.label_bags import settle_means
from bagwise.release.on_spark import SpreadUnits
from bagwise.release.verify import predictions_of
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.queries import NOT_CENTRED, Scores
from bagwise.requests.verbs import ReleaseRequest
from bagwise.rng import SecureNoise, SimulatedNoise
from bagwise.rows.groups import number_groups
from bagwise.rows.keys import new_secret
from bagwise.rows.local import LocalRows
from bagwise.rows.row_order import feature_order
from bagwise.rows.spark.matrix import SparkMatrix
from bagwise.rows.spark.order import in_secret_order
from bagwise.rows.spark.sample import sample_rows
from bagwise.rows.spark.strata import count_strata
from bagwise.rows.spark.sums import add_up, pick_one
from bagwise.rows.spark.table import open_files, open_frame
from bagwise.rows.spark.units import largest_unit, reach_of_units, sample_units
from bagwise.show.stages import Stages
from tests.spark.conftest import PRIVATE, K, N

PLAIN = {**PRIVATE, "tighten": "none", "centre": "none"}
STRATEGIES = {
    "random": "random",
    "super": bw.SuperBags(half=True),
    "sorted": "sorted",
    "kmeans": "kmeans",
    "frame": "random",
}


@pytest.fixture(scope="module", autouse=True)
def several_buckets():
    """Buckets and cells are small, so that there are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread_bags, "BUCKET", 1000)
        patch.setattr(spread_bags, "CELL", 800)
        yield


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
        release = bw.make_release(
            source, strategy=STRATEGIES[case], engine="auto" if case == "frame" else "spark",
            spill=folder, **PLAIN,
        )  # fmt: skip
        release.save(folder / "out", rows_per_file=1300)
        return release, bw.Release.load(folder / "out")

    return made


@pytest.fixture(params=STRATEGIES)
def case(request):
    return request.param


def by_key(table):
    return table.take(pa.array(np.argsort(table["key"].to_numpy())))


def test_every_row_leaves_once_in_a_bag_that_is_large_enough(make, table, case):
    _, release = make(case)
    release.verify()
    left = by_key(release.instances)
    expected = table.drop_columns(["y"])
    assert left.column_names == expected.column_names
    for name in left.column_names:
        np.testing.assert_array_equal(left[name].to_pylist(), expected[name].to_pylist())
    assert release.bags.sizes.min() >= K
    assert (release.bags.n_rows, release.bags.in_bag.all()) == (N, case != "super")
    source = "frame" if case == "frame" else "files"
    if source == "files":  # as the files have them; Spark has whole numbers of 64 bits
        assert release.instances.schema.field("count").type == pa.int32()


def test_rows_of_a_bag_stand_together_in_no_order_of_the_source(make, case):
    _, release = make(case)
    index = release.bags.index
    starts = np.flatnonzero(np.diff(index[index >= 0])) + 1
    assert starts.size == release.bags.n_bags - 1
    keys = release.instances["key"].to_numpy()
    # A fair order has (n - 1) / 2 rises, with a variance of (n + 1) / 12: six deviations.
    assert abs(np.sum(np.diff(keys) > 0) - (N - 1) / 2) < 6 * np.sqrt((N + 1) / 12)


def read_all(spread, names):
    """Return columns of all rows, in the order in which tasks see them."""
    read = functools.partial(read_split, reader=spread.reader, names=names)
    return pa.concat_tables(spread.workers.each(spread.splits, read))


def read_split(split, secret, *, reader, names):
    return reader.read(split, names, secret)


def in_a_fair_order(values):
    """Tell by the rises of rows that differ, of which there are (n - 1) / 2 give or take six sd."""
    n = len(values)
    return abs(np.sum(np.diff(values) > 0) - (n - 1) / 2) < 6 * np.sqrt((n + 1) / 12)


def test_models_and_metrics_are_computed_in_no_order_of_the_source(make, files, case):
    """The source may be sorted by its label; the last bits of a sum tell the order of its rows."""
    release, _ = make(case)
    keys = read_all(release.table, ["key"])["key"].to_numpy()
    assert sorted(keys.tolist()) == list(range(0, 7 * N, 7))
    where = {Path(split.path).parent for split in release.table.splits}
    assert (where == {files}) == (case in ("random", "super"))
    if case != "frame":  # the twins compute nothing from features
        assert in_a_fair_order(keys) == (case in ("sorted", "kmeans"))


def test_the_order_of_a_table_that_is_sorted_by_label_shows_in_no_bit(table, spark, make, tmp_path):
    """A model's design has the same bits each time in the table's own order, and others in none."""
    cluster = make("random")[0].table.workers
    ranked = table.take(pa.array(np.argsort(table["y"].to_numpy())))
    pq.write_table(ranked, tmp_path / "ranked.parquet", row_group_size=1000)
    spread = open_files(tmp_path / "ranked.parquet", cluster)
    names = ["a", "b", "count"]
    encoder = bw.Encoder.for_table(table, names)

    def bits(one):
        return design_model(SparkMatrix(one, encoder, "y"), names).jacobian.tobytes()

    assert bits(spread) == bits(spread)  # so whoever knows the rows could tell their order
    others = []
    for _ in range(3):
        anew = dataclasses.replace(cluster, secret=new_secret())
        source = dataclasses.replace(spread, workers=anew)
        others.append(in_secret_order(source, ["key", *names], label="y"))
    assert len({bits(one) for one in others}) > 1
    for one in others:
        found = read_all(one, ["key", "a", "count", "y"])
        assert in_a_fair_order(found["y"].to_numpy())
        assert by_key(found).equals(table.select(["key", "a", "count", "y"]))
        labels = {value.tobytes() for value in table["y"].to_numpy()[:200]}
        contents = [Path(split.path).read_bytes() for split in one.splits]
        assert not any(label in content for label in labels for content in contents)


def test_the_certificate_is_that_of_the_local_engine(make, table, case):
    _, release = make(case)
    local = bw.make_release(table, strategy=STRATEGIES[case], **PLAIN)
    ours, theirs = (one.certificate.to_json() for one in (release, local))
    for drawn in ("id", "smallest_bag", "statement"):
        ours.pop(drawn), theirs.pop(drawn)
    queries = [event["query"] for one in (ours, theirs) for event in one["events"]]
    events = [query.pop("reach", 0) for query in queries]
    half = len(events) // 2
    # A design is found on a sample, and rounded up: nearly the same columns, as long.
    np.testing.assert_allclose(events[:half], events[half:], rtol=1e-5)
    laws = [event["laws"][0] for one in (ours, theirs) for event in one["events"]]
    scales = [law.pop("scale") for law in laws]
    np.testing.assert_allclose(scales[:half], scales[half:], rtol=0.02 if case == "sorted" else 0)
    assert ours == theirs
    assert release.provenance == local.provenance


def test_sums_are_exact_and_nobody_but_the_driver_can_read_them(make, table, case):
    release, read = make(case)
    measure = functools.partial(labels_to_steps, bounds=(-9.0, 9.0), step=grid_step((-9.0, 9.0)))
    reader = release.table.reader
    in_split = functools.partial(measured, reader=reader, measure=measure)
    sums = add_up(release.table, release.places, in_split)
    found, sizes = (
        np.concatenate(parts, axis=-1).ravel() for parts in zip(*sums.chunks(), strict=True)
    )
    keys = read.instances["key"].to_numpy()
    labels = table["y"].to_numpy()[keys // 7]
    np.testing.assert_array_equal(found, read.bags.sum(measure(labels)))
    np.testing.assert_array_equal(sizes, read.bags.sizes)
    for path in sums.paths:
        content = Path(path).read_bytes()
        assert found[:2].astype("<i8").tobytes() not in content
    others = add_up(release.table, release.places, in_split)
    others = type(sums)(sums.paths, others.box, sums.n_bags)
    with pytest.raises(EngineError, match="another run"):
        next(others.chunks())
    sums.discard()


def measured(split, secret, *, reader, measure):
    return [measure(reader.read(split, ["y"], secret)["y"].to_numpy())]


def test_labels_are_drawn_once(make, tmp_path):
    """A second action, in files of other sizes, has the same labels and the same order."""
    release, first = make("random")
    again = bw.Release.load(release.save(tmp_path / "again"))
    again.verify()
    np.testing.assert_array_equal(again.labels, first.labels)
    np.testing.assert_array_equal(again.bags.index, first.bags.index)
    assert again.instances["key"].to_pylist() == first.instances["key"].to_pylist()
    assert again.certificate.to_json() == first.certificate.to_json()


def test_noise_is_that_of_the_event(make, table):
    release, read = make("random")
    (event,) = release.certificate.events
    keys = read.instances["key"].to_numpy()
    steps = labels_to_steps(
        table["y"].to_numpy()[keys // 7], bounds=(-9.0, 9.0), step=event.grid_step
    )
    exact = -9.0 + event.grid_step * read.bags.mean(steps.astype(float))
    errors = (read.labels - exact) / read.noise_sd
    # 149 standardised errors: the variance of their mean square is below 6/149 (kurtosis <= 6).
    assert 0.4 < np.mean(errors**2) < 2.2
    assert np.abs(errors).max() > 0.5


def test_labels_are_centred_on_a_private_model_where_the_rows_are(people, spark, tmp_path):
    path, table = people
    asked = {**PRIVATE, "strategy": "random", "tighten": "none", "centre": "model"}
    asked |= {"epsilon": 4.0, "features": ["a", "b", "city"]}
    release: Any = bw.make_release(str(path), engine="spark", spill=tmp_path, **asked)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    assert in_a_fair_order(read_all(release.table, ["key"])["key"].to_numpy())
    local = bw.make_release(table, **asked)
    assert release.provenance == local.provenance
    assert release.certificate.epsilon == local.certificate.epsilon
    for ours, theirs in zip(release.certificate.events, local.certificate.events, strict=True):
        # The model's design is found on a sample here, the limit is another draw: the price is one.
        assert ours.kind == theirs.kind
        assert math.isclose(ours.pure_epsilon, theirs.pure_epsilon, rel_tol=1e-3)
    *looks, means = release.certificate.events
    assert [look.hides for look in looks] == ["model", "limit"]
    assert means.hides == "bag means"
    labels = table["y"].to_numpy()[read.instances["key"].to_numpy() // 7]
    predictions = predictions_of(read, read.model)
    left, expected = centred_steps(labels, predictions, bounds=(-9, 9), step=means.grid_step)
    assert 0.5 < release.certificate.limit < 4.6  # as far as a strong signal leaves labels
    exact = -9.0 + means.grid_step * read.bags.mean((left + expected).astype(float))
    drawn = means.draw(100_000, SimulatedNoise(0)) * means.grid_step / means.number_sd
    off = [exact, *(exact - means.grid_step * read.bags.mean(p * 1.0) for p in (left, expected))]
    far = [np.mean(((read.labels - one) / read.noise_sd) ** 2) for one in off]
    # Six deviations of the mean square of so many standardised errors.
    assert abs(far[0] - 1) < (bound := 6 * np.std(drawn**2) / np.sqrt(read.bags.n_bags))
    # The twins: without what the model leaves, or without what it expects, labels are others.
    assert min(far[1:]) > 1 + bound


def test_a_label_bounds_and_an_epsilon_suffice(people, spark, tmp_path):
    stages = []
    release: Any = bw.make_release(
        str(people[0]), label="y", bounds=(-9, 9), epsilon=2.0, engine="spark", spill=tmp_path,
        features=["a", "city"], on_stage=stages.append,
    )  # fmt: skip
    bw.Release.load(release.save(tmp_path / "out")).verify()
    looks = ["planning looks", "finding a range", "centring the labels", "planning"]
    assert [stage for stage in stages if stage in looks] == looks
    assert release.provenance.chosen_because is not None
    assert in_a_fair_order(read_all(release.table, ["a"])["a"].to_numpy())
    assert release.table.splits[0].path != str(people[0])


def test_models_are_those_of_the_local_engine(make, table):
    release, read = make("sorted")
    assert read.model is not None
    assert release.model.coef.size == len(release.encoder.feature_names)
    local = bw.make_release(table, strategy="sorted", **PLAIN)
    assert release.encoder == local.encoder
    assert np.sign(read.model.coef[0]) == np.sign(local.model.coef[0]) == 1


def test_no_secret_is_in_a_log_or_a_plan(make, logs, spark, case):
    release, _ = make(case)
    cluster = release.table.workers
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
    paths = {split.path for split in release.table.splits}
    assert paths
    for path in paths:
        content = Path(path).read_bytes()
        assert not any(label in content for label in labels)


def test_a_private_range_is_found_from_counts(files, spark, tmp_path):
    release = bw.make_release(
        str(files), strategy="random", engine="spark", spill=tmp_path,
        **{**PRIVATE, "bounds": (-900, 900), "tighten": "range"},
    )  # fmt: skip
    low, high = release.certificate.tightened
    assert -100 < low < 0 < high < 100
    assert release.certificate.epsilon == 2.0
    bw.Release.load(release.save(tmp_path / "out")).verify()


def test_the_planner_chooses_what_it_chooses_in_memory(make, table):
    """Of so few rows the sample is all of them: the same rows, in the same order."""
    request = ReleaseRequest.of(
        Columns.of("y", id="key"), Budget.of(2.0, None, bounds=(-9, 9)), label_kind="mean",
        bag_size=None, strategy="auto", parameters=None, scores="auto", score_share="auto",
        keep_order=False, seed=None, tighten="none", centre="none",
    )  # fmt: skip
    release, _ = make("random")
    everyone = Population(tuple(request.columns.features_in(table)), release.encoder, N)
    chosen = on_spark._choose(release.table, everyone, request, Stages())
    assert chosen == decide(LocalRows(table), request)
    assert chosen.why is not None


def test_a_sample_for_a_plan_follows_from_the_features_alone(make, table, spark, tmp_path):
    names = ["count", "city", "holes"]
    twins = pa.concat_tables([table] * 3)  # every row has two more like it
    drawn = []
    for seed, size in ((0, 700), (1, 5000)):
        shuffled = twins.take(pa.array(np.random.default_rng(seed).permutation(3 * N)))
        pq.write_table(shuffled, tmp_path / f"{seed}.parquet", row_group_size=size)
        spread = open_files(tmp_path / f"{seed}.parquet", make("random")[0].table.workers)
        found = sample_rows(spread, names, 1500)
        # A row is there as often as its share says, give or take one: the sum of 9000 at most.
        assert abs(found.num_rows - 1500) < 6 * np.sqrt(9000 / 4)
        drawn.append(found.take(pa.array(feature_order(found, names, SecureNoise()))))
        # The twin: rows by their places are others.
        drawn.append(spread.workers.each(spread.splits, first_rows(spread, names)))
    assert str(drawn[0].to_pylist()) == str(drawn[2].to_pylist())
    assert str(drawn[1]) != str(drawn[3])
    counts = [np.sum(np.array(t["count"]) == 2) / t.num_rows for t in (drawn[0], table)]
    # 1500 draws from a table in which a fifth has it: six deviations.
    assert abs(counts[0] - counts[1]) < 6 * np.sqrt(0.2 * 0.8 / 1500)


def first_rows(spread, names):
    reader = spread.reader
    return lambda split, secret: reader.read(split, names, secret).slice(0, 100).to_pylist()


@pytest.fixture(scope="module")
def people(table, tmp_path_factory):
    """The table with a column of people, who have several rows each, in several row groups."""
    people = (np.random.default_rng(5).exponential(scale=200, size=N)).astype(np.int64)
    folder = tmp_path_factory.mktemp("people")
    with_people = table.append_column("person", pa.array(people.astype(str)))
    with_people = with_people.append_column("span", pa.array(1.0 + people / 100))
    pq.write_table(with_people, folder / "a.parquet", row_group_size=1600)
    return folder / "a.parquet", with_people


def test_units_are_counted_in_their_bags(people, spark, tmp_path):
    path, table = people
    asked = {**PLAIN, "bag_size": None, "unit": "person"}
    release: Any = bw.make_release(str(path), engine="spark", spill=tmp_path, **asked)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    local = bw.make_release(table, **asked)
    assert release.provenance == local.provenance  # planned on the same people
    assert release.certificate.unit_rows == local.certificate.unit_rows
    assert "person" not in read.instances.column_names
    units = units_of(table, "person").take(read.instances["key"].to_numpy() // 7)
    square, touched = units.square_in_bags(read.bags), units.bags_touched(read.bags)
    assert reach_of_units(release.table, release.places, "person") == (square, touched)
    rule = ExactCalibration(2.0, 0.0, (-9.0, 9.0))
    means = rule.bag_means(square=square, rows=units.largest, numbers=touched)
    assert release.certificate.events == (means,)
    assert 1 < touched < square < units.largest**2
    # Half super-bags leave rows out, which count as if each was in a bag of its own.
    few = dataclasses.replace(SpreadUnits(release.table, "person", 10**6), reach=None)
    assert few.counted_in(release.places).square_in_bags(release.places) == 10**6
    # Bags that follow from scores might hold all rows of a unit, and are not asked.
    spent = rule.laplace_model(share=0.1, sensitivity_steps=2**18)
    after = settle_means(rule, release.places, few, Scores(None, (spent,)), NOT_CENTRED)[0]
    assert after == rule.bag_means(square=10**12, rows=10**6, numbers=10**6, spent=(spent,))


def test_a_plan_sees_all_rows_of_some_units(people, make, spark):
    path, table = people
    spread = open_files(path, make("random")[0].table.workers)
    everyone, rows = np.unique(table["person"].to_numpy(zero_copy_only=False), return_counts=True)
    counts = dict(zip(everyone.tolist(), rows.tolist(), strict=True))
    largest = largest_unit(spread, "person")
    assert largest == max(counts.values())
    found = sample_units(spread, ["a"], "person", 300, largest=largest)
    seen, times = np.unique(found["person"].to_numpy(zero_copy_only=False), return_counts=True)
    assert [counts[person] for person in seen.tolist()] == times.tolist()
    assert 300 <= found.num_rows <= 300 + 2 * largest
    assert times.max() == largest
    gaps = spark.createDataFrame([(1, "x"), (2, None)], "y int, person string")
    with pytest.raises(ColumnError, match="whose labels are they"):
        largest_unit(open_frame(gaps, spread.workers, label="y"), "person")


def test_bags_keep_to_strata_and_exposure_leaves_with_its_row(people, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spread_bags, "BUCKET", 400)  # strata are cut
    path, table = people
    asked = {
        **PLAIN, "features": ["a", "b"], "within": "city", "exposure": "span", "strategy": "random"
    }  # fmt: skip
    release: Any = bw.make_release(str(path), engine="spark", spill=tmp_path, **asked)
    read = bw.Release.load(release.save(tmp_path / "out"))
    assert any("no bag crosses a stratum" in one for one in read.verify().checks)
    local = bw.make_release(table, **asked)
    assert release.provenance == local.provenance
    assert read.instances.column_names == local.instances.column_names
    assert read.bags.sizes.min() >= K
    names = ["city", "count", "holes"]
    strata = count_strata(release.table, names)
    found, expected = strata.number(table), number_groups(table, names, role="within")
    np.testing.assert_array_equal(np.bincount(found), strata.rows)
    assert len(set(zip(found, expected, strict=True))) == strata.rows.size == expected.max() + 1
    with pytest.raises(BagTooSmallError, match="the smallest stratum has"):
        check_strata(int(strata.rows.min()), K)
    with pytest.raises(StrategyError, match="'sorted' within strata of more than 800 rows"):
        spread_bags.check_strata_of(find_strategy("sorted"), count_strata(release.table, ["city"]))


def test_bags_of_a_bucket_keep_to_its_strata():
    rng = np.random.default_rng(0)
    keys = np.sort(rng.integers(0, 2**63, size=500).astype(np.uint64))
    scores, strata = rng.normal(size=500), rng.integers(0, 3, size=500)
    order, bags = spread_bags._assigned(
        0, keys, pa.table({"0": scores, "1": strata}), strategy=find_strategy("sorted"),
        bag_size=20, within=True,
    )  # fmt: skip
    met = {(bag, stratum) for bag, stratum in zip(bags, strata[order], strict=True)}
    assert len(met) == bags.max() + 1 > 20
    assert np.bincount(bags).min() >= 20


CLASSES = ["lowest", "middle", "highest"]


@pytest.fixture(scope="module")
def classed(table, tmp_path_factory):
    """The table with classes for labels, as a file and in memory."""
    codes = np.digitize(table["y"].to_numpy(), [-1.0, 1.5])
    found = table.set_column(table.num_columns - 1, "y", pa.array(np.array(CLASSES)[codes]))
    path = tmp_path_factory.mktemp("classes") / "a.parquet"
    pq.write_table(found, path, row_group_size=1600)
    return path, found, codes


def test_shares_of_classes_are_counted_where_the_rows_are(classed, spark, tmp_path):
    path, table, codes = classed
    asked = {"label": "y", "classes": CLASSES, "id": "key", "epsilon": 2.0, "bag_size": K}
    release = bw.make_release(str(path), engine="spark", spill=tmp_path, strategy="random", **asked)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    local = bw.make_release(table, strategy="random", **asked)
    assert release.certificate.events == local.certificate.events
    assert release.provenance == local.provenance
    rows = one_hot(codes[read.instances["key"].to_numpy() // 7], 3)
    errors = [(read.labels - shares) / read.noise_sd[:, None] for shares in (
        read.bags.mean(rows * 1.0), read.bags.mean(rows[:, ::-1] * 1.0)
    )]  # fmt: skip
    far = [np.mean(one**2) for one in errors]
    # 447 standardised errors with a kurtosis of at most 12; the twin has the classes in disorder.
    assert abs(far[0] - 1) < (bound := 6 * np.sqrt(11 / 447))
    assert far[1] > 1 + bound


def test_classes_stay_with_their_rows_in_a_secret_order(classed, spark, make):
    path, _, codes = classed
    cluster = make("random")[0].table.workers
    frame = spark.read.parquet(str(path)).select("key", "y")
    for spread in (
        open_files(path, cluster),
        open_frame(frame, cluster, label="y", classes=CLASSES),
    ):
        found = read_all(in_secret_order(spread, ["key"], label="y", classes=CLASSES), ["key", "y"])
        assert in_a_fair_order(found["key"].to_numpy())
        np.testing.assert_array_equal(by_key(found)["y"].to_numpy(), codes)


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_picked_labels_are_those_of_one_row_of_each_bag(files, table, spark, tmp_path):
    asked = {**PLAIN, "strategy": "random", "label_kind": "pick"}
    release: Any = bw.make_release(str(files), engine="spark", spill=tmp_path, **asked)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    assert read.label_kind == "pick"
    rule = ExactCalibration(2.0, 0.0, (-9.0, 9.0))
    assert release.certificate.events == (rule.picks(sizes=read.bags.sizes.tolist()),)
    # Which rows these are: the same whoever asks, one of each bag, and anywhere in it.
    found = []
    for _ in range(2):
        sums = pick_one(release.table, release.places, row_numbers)
        found.append(np.concatenate([told[0] for told, _ in sums.chunks()]))
        sums.discard()
    np.testing.assert_array_equal(*found)
    place = np.empty(N, dtype=np.int64)
    place[read.instances["key"].to_numpy() // 7] = np.arange(N)
    picked = place[found[0]]
    np.testing.assert_array_equal(read.bags.index[picked], np.arange(read.bags.n_bags))
    firsts = np.cumsum(read.bags.sizes) - read.bags.sizes
    where = (picked - firsts + 0.5) / read.bags.sizes
    assert abs(where.mean() - 0.5) < 6 * np.sqrt(1 / 12 / where.size)
    labels = table["y"].to_numpy()[found[0]]
    far = [np.mean(((read.labels - one) / read.noise_sd) ** 2) for one in (labels, labels - 9)]
    # Standardised errors with a kurtosis of 6; the twin has labels half a range off.
    assert abs(far[0] - 1) < (bound := 6 * np.sqrt(5 / where.size))
    assert far[1] > 1 + bound


def row_numbers(split, secret):
    return [np.arange(split.first, split.first + split.rows)]


def test_picked_classes_of_a_frame_are_masked_and_randomised(classed, spark, tmp_path):
    _, table, codes = classed
    rows = list(zip(*(table[name].to_pylist() for name in ("key", "a", "y")), strict=True))
    frame = spark.createDataFrame(rows, ["key", "a", "y"]).repartition(2)
    asked = {
        "label": "y", "classes": CLASSES, "id": "key", "epsilon": 6.0, "bag_size": K,
        "strategy": "random", "label_kind": "pick",
    }  # fmt: skip
    release: Any = bw.make_release(frame, spill=tmp_path, **asked)
    paths = [Path(path).read_bytes() for path in {split.path for split in release.table.splits}]
    assert not any(name.encode() in content for name in CLASSES for content in paths)
    read = bw.Release.load(release.save(tmp_path / "out"))
    read.verify()
    (event,) = release.certificate.events
    sizes = read.bags.sizes
    assert event == ExactCalibration(6.0, 0.0, (0.0, 1.0)).class_picks(classes=3, sizes=sizes)
    # Of each bag a class is reported that is one of its own, nearly always: keep is above 0.98.
    own = read.bags.sum(one_hot(codes[read.instances["key"].to_numpy() // 7], 3))
    reported = read.labels.argmax(axis=1)
    chance = own / sizes[:, None]
    expected, variance = chance.sum(axis=0), (chance * (1 - chance)).sum(axis=0)
    counts = np.bincount(reported, minlength=3)
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(variance) + 0.02 * sizes.size)
    with pytest.raises(LabelError, match="none of the classes") as caught:
        bw.make_release(frame, spill=tmp_path, **{**asked, "classes": ["lowest", "middle"]})
    assert "highest" not in str(caught.value)


def test_what_is_wrong_with_a_table_is_said_without_a_label(table, spark, tmp_path):
    options = {**PLAIN, "strategy": "random", "spill": tmp_path}
    gaps = spark.createDataFrame([(1, 2.0, 4.25), (2, 3.0, None)], "key int, a double, y double")
    with pytest.raises(LabelError, match="missing") as caught:
        bw.make_release(gaps, **{**options, "bag_size": 1})
    assert "4.25" not in str(caught.value)
    copy = spark.createDataFrame(
        [(i, i * 0.5, i * 0.5) for i in range(60)], "key int, a double, y double"
    )
    with pytest.raises(ColumnError, match="equals the label"):
        bw.make_release(copy, **{**options, "bag_size": 5})
    twice = spark.createDataFrame(
        [(i // 2, i * 0.5, -i * 1.0) for i in range(60)], "key int, a double, y double"
    )
    with pytest.raises(ColumnError, match="a key is neither"):
        bw.make_release(twice, **{**options, "bag_size": 5})


def test_strategies_in_buckets_are_the_ones_that_run_in_memory():
    keys = np.sort(np.random.default_rng(0).integers(0, 2**63, size=500).astype(np.uint64))
    order, bags = spread_bags._assigned(
        0, keys, pa.table({}), strategy=find_strategy("random"), bag_size=20
    )
    assert sorted(order) == list(range(500))
    np.testing.assert_array_equal(np.bincount(bags), np.full(25, 20))
    assert np.all(np.diff(bags) >= 0)
