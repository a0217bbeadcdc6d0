"""Releases of rows in parts: the contract of every engine, exact sums, and labels drawn once.

On this machine, where no Spark has to be started; tests/spark has what depends on who works.
"""

import dataclasses
import functools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.bagging import find_strategy
from bagwise.bagging.assigning import check_strata
from bagwise.errors import BagTooSmallError, ColumnError, EngineError, LabelError, StrategyError
from bagwise.files.spill import SpillDirectory
from bagwise.planner.sample import Population
from bagwise.planner.search import decide
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import grid_step, labels_to_steps, one_hot
from bagwise.privacy.noise import centred_steps
from bagwise.privacy.private_model import design_model
from bagwise.privacy.units import units_of
from bagwise.release import bags_in_parts, build, parts_table
from bagwise.release.bags_in_parts import Moved, in_secret_order
from bagwise.release.label_bags import Labelling
from bagwise.release.manifest import BAG_ID
from bagwise.release.parts_table import PartsInBags, PartsTable, SealedSums, tell_all
from bagwise.release.verify import predictions_of
from bagwise.requests.answers import Answers
from bagwise.requests.bag_labels import Reach, price_labels
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.verbs import ReleaseRequest
from bagwise.rng import SecureNoise, SimulatedNoise
from bagwise.rows.columns import number_groups
from bagwise.rows.facts import (
    count_strata,
    largest_unit,
    reach_of_units,
    sample_rows,
    sample_units,
)
from bagwise.rows.keys import new_secret
from bagwise.rows.matrix import PartsMatrix
from bagwise.rows.parts import Part, Parts
from bagwise.rows.row_order import feature_order
from bagwise.rows.spark import opening
from bagwise.rows.spark.opening import open_files
from bagwise.rows.table import Rows
from bagwise.show.stages import Stages
from tests.contracts.this_machine import ThisMachine
from tests.privacy.events import bag_means, bag_picks, model
from tests.spark.conftest import PRIVATE, K, N, some_table
from tools.settings import filed

PLAIN = {**PRIVATE, "tighten": "none", "centre": "none"}
STRATEGIES = {
    "random": "random",
    "super": bw.SuperBags(half=True),
    "sorted": "sorted",
    "kmeans": "kmeans",
}


@pytest.fixture(scope="module", autouse=True)
def here():
    """Parts are small, so that there are several, and this process works on them."""

    def open_here(source, *, spill, named=(), **_):
        return open_files(source, ThisMachine(SpillDirectory(Path(spill))), named=named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bags_in_parts, "BUCKET", 1000)
        patch.setattr(bags_in_parts, "CELL", 800)
        patch.setattr(opening, "open_on_spark", open_here)
        yield


@pytest.fixture(scope="module")
def table():
    return some_table()


@pytest.fixture(scope="module")
def files(table, tmp_path_factory):
    """The table as two files of several row groups."""
    folder = tmp_path_factory.mktemp("source")
    pq.write_table(table.slice(0, 2000), folder / "a.parquet", row_group_size=800)
    pq.write_table(table.slice(2000), folder / "b.parquet", row_group_size=800)
    return folder


@pytest.fixture
def workers(tmp_path):
    return ThisMachine(SpillDirectory(tmp_path / "private"))


@pytest.fixture(scope="module")
def make(files, tmp_path_factory):
    """Return a release, not yet written, and as it is read back: one for each case."""

    @functools.cache
    def made(case):
        folder = tmp_path_factory.mktemp(case)
        release: Any = bw.make_release(
            str(files), **filed(strategy=STRATEGIES[case], engine="spark", spill=folder, **PLAIN)
        )
        release.save(folder / "out", rows_per_file=1300)
        return release, bw.Release.load(folder / "out")

    return made


@pytest.fixture(params=STRATEGIES)
def case(request):
    return request.param


def released(source, folder, **asked):
    """Return a release, and as it is read back."""
    release: Any = bw.make_release(str(source), **filed(engine="spark", spill=folder, **asked))
    read = bw.Release.load(release.save(folder / "out"))
    read.verify()
    return release, read


def labels_of(read, table):
    return table["y"].to_numpy()[read.instances["key"].to_numpy() // 7]


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
    assert release.instances.schema.field("count").type == pa.int32()  # as the files have it


def test_rows_of_a_bag_stand_together_in_no_order_of_the_source(make, case):
    _, release = make(case)
    index = release.bags.index
    starts = np.flatnonzero(np.diff(index[index >= 0])) + 1
    assert starts.size == release.bags.n_bags - 1
    assert in_a_fair_order(release.instances["key"].to_numpy())


def read_all(parts, names):
    """Return columns of all rows, in the order of the parts."""
    return pa.concat_tables(parts.map(lambda part: part.table, names))


def in_a_fair_order(values):
    """Tell by the rises of rows that differ, of which there are (n - 1) / 2 give or take six sd."""
    n = len(values)
    return abs(np.sum(np.diff(values) > 0) - (n - 1) / 2) < 6 * np.sqrt((n + 1) / 12)


def test_models_and_metrics_are_computed_in_no_order_of_the_source(
    files, case, tmp_path, monkeypatch
):
    """The source may be sorted by its label; the last bits of a sum tell the order of its rows."""
    ordered = []

    def order(*arguments):
        ordered.append(in_secret_order(*arguments))
        return ordered[-1]

    monkeypatch.setattr(parts_table, "in_secret_order", order)
    bw.make_release(
        str(files), **filed(strategy=STRATEGIES[case], engine="spark", spill=tmp_path, **PLAIN)
    )
    # The twins compute nothing from features.
    assert len(ordered) == (case in ("sorted", "kmeans"))
    for parts in ordered:
        keys = read_all(parts, ["key"])["key"].to_numpy()
        assert sorted(keys.tolist()) == list(range(0, 7 * N, 7))
        assert in_a_fair_order(keys)


def test_the_order_of_a_table_that_is_sorted_by_label_shows_in_no_bit(table, workers, tmp_path):
    """A model's design has the same bits each time in the table's own order, and others in none."""
    ranked = table.take(pa.array(np.argsort(table["y"].to_numpy())))
    pq.write_table(ranked, tmp_path / "ranked.parquet", row_group_size=1000)
    parts = open_files(tmp_path / "ranked.parquet", workers)
    names = ["a", "b", "count"]
    encoder = bw.Encoder.for_table(table, names)

    def bits(one):
        return design_model(PartsMatrix(one, encoder, "y"), names).jacobian.tobytes()

    assert bits(parts) == bits(parts)  # so whoever knows the rows could tell their order
    others = []
    for _ in range(3):
        source = dataclasses.replace(
            parts, workers=dataclasses.replace(workers, secret=new_secret())
        )
        others.append(in_secret_order(source, Moved(("key", *names), "y")))
    assert len({bits(one) for one in others}) > 1
    for one in others:
        found = read_all(one, ["key", "a", "count", "y"])
        assert in_a_fair_order(found["y"].to_numpy())
        assert by_key(found).equals(table.select(["key", "a", "count", "y"]))
        labels = {value.tobytes() for value in table["y"].to_numpy()[:200]}
        assert isinstance(one, Parts)
        contents = [Path(split.path).read_bytes() for split in one.splits]
        assert not any(label in content for label in labels for content in contents)


def test_the_certificate_is_that_of_the_local_engine(make, table, case):
    _, release = make(case)
    local = bw.make_release(table, **filed(strategy=STRATEGIES[case], **PLAIN))
    ours, theirs = (one.certificate.to_json() for one in (release, local))
    for drawn in ("id", "smallest_bag", "statement"):
        ours.pop(drawn), theirs.pop(drawn)
    asked = [event["query"] for one in (ours, theirs) for event in one["events"]]
    events = [query.pop("reach", 0) for query in asked]
    half = len(events) // 2
    # A design is found on a sample, and rounded up: nearly the same columns, as long.
    np.testing.assert_allclose(events[:half], events[half:], rtol=1e-5)
    laws = [event["laws"][0] for one in (ours, theirs) for event in one["events"]]
    scales = [law.pop("scale") for law in laws]
    np.testing.assert_allclose(scales[:half], scales[half:], rtol=0.02 if case == "sorted" else 0)
    assert ours == theirs
    assert release.provenance == local.provenance


def told_of(release, labelling, label="y"):
    """Have what is told of each bag of a release written once more."""
    columns = Columns.of(label)
    return tell_all(release.bags, labelling, release.encoder, Answers(), columns, release.scratch)


def test_sums_are_exact_and_nobody_but_the_driver_can_read_them(make, table, case):
    release, read = make(case)
    steps = functools.partial(labels_to_steps, bounds=(-9.0, 9.0), step=grid_step((-9.0, 9.0)))
    labelling = Labelling((), lambda labels, _: steps(labels), lambda told, _: told)
    sums, others = (told_of(release, labelling) for _ in range(2))
    found, sizes = (
        np.concatenate(parts, axis=-1).ravel() for parts in zip(*sums.chunks(), strict=True)
    )
    keys = read.instances["key"].to_numpy()
    labels = table["y"].to_numpy()[keys // 7]
    np.testing.assert_array_equal(found, read.bags.sum(steps(labels)))
    np.testing.assert_array_equal(sizes, read.bags.sizes)
    for path in sums.paths:
        content = Path(path).read_bytes()
        assert found[:2].astype("<i8").tobytes() not in content
        assert Path(path).stat().st_mode & 0o777 == 0o600
    others = SealedSums(sums.paths, others.box)
    with pytest.raises(EngineError, match="another run"):
        next(others.chunks())
    for path in sums.paths:
        Path(path).unlink()


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


def test_labels_are_centred_on_a_private_model_where_the_rows_are(people, tmp_path):
    path, table = people
    asked = {**PRIVATE, "strategy": "random", "tighten": "none", "centre": "model"}
    asked |= {"epsilon": 4.0, "features": ["a", "b", "city"]}
    release, read = released(path, tmp_path, **asked)
    assert in_a_fair_order(read_all(release.bags.parts, ["key"])["key"].to_numpy())
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance == local.provenance
    assert release.certificate.epsilon == local.certificate.epsilon
    for ours, theirs in zip(release.certificate.events, local.certificate.events, strict=True):
        # The model's design is found on a sample here, the limit is another draw: the price is one.
        assert type(ours) is type(theirs)
        assert math.isclose(ours.pure_epsilon, theirs.pure_epsilon, rel_tol=1e-3)
    *looks, means = release.certificate.events
    assert [look.hides for look in looks] == ["model", "limit"]
    assert means.hides == "bag means"
    labels = labels_of(read, table)
    predictions = predictions_of(read, read.model)
    left, expected = centred_steps(labels, predictions, bounds=(-9, 9), step=means.grid_step)
    assert 0.5 < release.certificate.limit < 4.6  # as far as a strong signal leaves labels
    exact = -9.0 + means.grid_step * read.bags.mean((left + expected).astype(float))
    drawn = means.noise.draw(100_000, SimulatedNoise(0)) * means.grid_step / means.number_sd
    off = [exact, *(exact - means.grid_step * read.bags.mean(p * 1.0) for p in (left, expected))]
    far = [np.mean(((read.labels - one) / read.noise_sd) ** 2) for one in off]
    # Six deviations of the mean square of so many standardised errors.
    assert abs(far[0] - 1) < (bound := 6 * np.std(drawn**2) / np.sqrt(read.bags.n_bags))
    # The twins: without what the model leaves, or without what it expects, labels are others.
    assert min(far[1:]) > 1 + bound


def test_a_label_bounds_and_an_epsilon_suffice(people, tmp_path):
    stages = []
    release: Any = bw.make_release(
        str(people[0]),
        label="y",
        bounds=(-9, 9),
        epsilon=2.0,
        engine=bw.Engine(name="spark", spill=tmp_path, on_stage=stages.append),
        features=["a", "city"],
    )
    bw.Release.load(release.save(tmp_path / "out")).verify()
    looks = ["settling what to ask", "finding a range", "centring the labels", "planning"]
    assert [stage for stage in stages if stage in looks] == looks
    assert release.provenance.chosen_because is not None
    assert in_a_fair_order(read_all(release.bags.parts, ["a"])["a"].to_numpy())


def test_models_are_those_of_the_local_engine(make, table):
    release, read = make("sorted")
    assert read.model is not None
    assert release.model.coef.size == len(release.encoder.feature_names)
    local = bw.make_release(table, **filed(strategy="sorted", **PLAIN))
    assert release.encoder == local.encoder
    assert np.sign(read.model.coef[0]) == np.sign(local.model.coef[0]) == 1


def test_a_private_range_is_found_from_counts(files, tmp_path):
    asked = {**PRIVATE, "strategy": "random", "bounds": (-900, 900), "tighten": "range"}
    release, _ = released(files, tmp_path, **asked)
    low, high = release.certificate.tightened
    assert -100 < low < 0 < high < 100
    assert release.certificate.epsilon == 2.0


def test_the_planner_chooses_what_it_chooses_in_memory(make, table, files, workers):
    """Of so few rows the sample is all of them: the same rows, in the same order."""
    request = ReleaseRequest.of(
        Columns.of("y", id="key"),
        Budget.of(2.0, None, bounds=(-9, 9)),
        privacy=bw.Privacy(tighten="none", centre="none"),
    )
    release, _ = make("random")
    parts = PartsTable.checked(open_files(files, workers), request)
    assert parts.everyone == Population(release.encoder, N)
    chosen = build._choose(parts, request, Stages())
    assert chosen == decide(Rows(table), request, parts.everyone)
    assert chosen.why is not None


def test_a_sample_for_a_plan_follows_from_the_features_alone(table, workers, tmp_path):
    names = ["count", "city", "holes"]
    twins = pa.concat_tables([table] * 3)  # every row has two more like it
    drawn = []
    for seed, size in ((0, 700), (1, 5000)):
        shuffled = twins.take(pa.array(np.random.default_rng(seed).permutation(3 * N)))
        pq.write_table(shuffled, tmp_path / f"{seed}.parquet", row_group_size=size)
        parts = open_files(tmp_path / f"{seed}.parquet", workers)
        found = sample_rows(parts, names, 1500)
        # A row is there as often as its share says, give or take one: the sum of 9000 at most.
        assert abs(found.num_rows - 1500) < 6 * np.sqrt(9000 / 4)
        drawn.append(found.take(pa.array(feature_order(found, names, SecureNoise()))))
        # The twin: rows by their places are others.
        drawn.append(read_all(parts, names).slice(0, 100).to_pylist())
    assert str(drawn[0].to_pylist()) == str(drawn[2].to_pylist())
    assert str(drawn[1]) != str(drawn[3])
    counts = [np.sum(np.array(t["count"]) == 2) / t.num_rows for t in (drawn[0], table)]
    # 1500 draws from a table in which a fifth has it: six deviations.
    assert abs(counts[0] - counts[1]) < 6 * np.sqrt(0.2 * 0.8 / 1500)


@pytest.fixture(scope="module")
def people(table, tmp_path_factory):
    """The table with a column of people, who have several rows each, in several row groups."""
    people = (np.random.default_rng(5).exponential(scale=200, size=N)).astype(np.int64)
    folder = tmp_path_factory.mktemp("people")
    with_people = table.append_column("person", pa.array(people.astype(str)))
    with_people = with_people.append_column("span", pa.array(1.0 + people / 100))
    pq.write_table(with_people, folder / "a.parquet", row_group_size=1600)
    return folder / "a.parquet", with_people


def test_units_are_counted_in_their_bags(people, tmp_path):
    path, table = people
    asked = {**PLAIN, "bag_size": None, "unit": "person"}
    release, read = released(path, tmp_path, **asked)
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance == local.provenance  # planned on the same people
    assert release.certificate.unit_rows == local.certificate.unit_rows
    assert "person" not in read.instances.column_names
    units = units_of(table, "person").take(read.instances["key"].to_numpy() // 7)
    square, touched = units.reach(read.bags)
    assert reach_of_units(release.bags.parts, "person", BAG_ID) == (square, touched)
    rule = ExactCalibration(2.0, 0.0, (-9.0, 9.0))
    means = bag_means(rule, square=square, rows=units.largest, touched=touched)
    assert release.certificate.events == (means,)
    assert 1 < touched < square < units.largest**2
    # Half super-bags leave rows out, which count as if each was in a bag of its own.
    few: Any = SimpleNamespace(everyone=SimpleNamespace(unit="person", largest_unit=10**6))
    assert PartsInBags(few, release.bags).reach.square == 10**6
    # Bags that follow from scores might hold all rows of a unit, and are not asked.
    reach = Reach.at_worst(release.bags.sizes, 10**6)
    spent = model(rule, "laplace", share=0.1, reach=2**18)
    after = price_labels(rule, reach, (spent,))
    assert after == bag_means(rule, square=10**12, rows=10**6, touched=10**6, spent=(spent,))


def test_a_plan_sees_all_rows_of_some_units(people, workers, tmp_path):
    path, table = people
    parts = open_files(path, workers)
    everyone, rows = np.unique(table["person"].to_numpy(zero_copy_only=False), return_counts=True)
    counts = dict(zip(everyone.tolist(), rows.tolist(), strict=True))
    largest = largest_unit(parts, "person")
    assert largest == max(counts.values())
    found = sample_units(parts, ["a"], "person", 300, largest=largest)
    seen, times = np.unique(found["person"].to_numpy(zero_copy_only=False), return_counts=True)
    assert [counts[person] for person in seen.tolist()] == times.tolist()
    assert 300 <= found.num_rows <= 300 + 2 * largest
    assert times.max() == largest
    pq.write_table(pa.table({"y": [1, 2], "person": ["x", None]}), tmp_path / "gaps.parquet")
    with pytest.raises(ColumnError, match="whose labels are they"):
        largest_unit(open_files(tmp_path / "gaps.parquet", workers), "person")


def test_bags_keep_to_strata_and_exposure_leaves_with_its_row(
    people, workers, tmp_path, monkeypatch
):
    monkeypatch.setattr(bags_in_parts, "BUCKET", 400)  # strata are cut
    path, table = people
    asked = {
        **PLAIN, "features": ["a", "b"], "within": "city", "exposure": "span", "strategy": "random"
    }  # fmt: skip
    release, read = released(path, tmp_path, **asked)
    assert any("no bag crosses a stratum" in one for one in read.verify().checks)
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance == local.provenance
    assert read.instances.column_names == local.instances.column_names
    assert read.bags.sizes.min() >= K
    names = ["city", "count", "holes"]
    parts = open_files(path, workers)
    strata = count_strata(parts, names, role="within")
    found, expected = strata.number(table), number_groups(table, names, role="within")
    np.testing.assert_array_equal(np.bincount(found), strata.rows)
    assert len(set(zip(found, expected, strict=True))) == strata.rows.size == expected.max() + 1
    with pytest.raises(BagTooSmallError, match="the smallest stratum has"):
        check_strata(int(strata.rows.min()), K)
    with pytest.raises(StrategyError, match="'sorted' within strata of more than 800 rows"):
        bags_in_parts.check_strata_of(
            find_strategy("sorted"), count_strata(parts, ["city"], role="within")
        )


def test_bags_of_a_part_keep_to_its_strata(workers, tmp_path):
    rng = np.random.default_rng(0)
    rows = pa.table({"score": rng.normal(size=500), "city": rng.choice(["a", "b", "c"], size=500)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    parts = open_files(tmp_path / "rows.parquet", workers)
    strata = count_strata(parts, ["city"], role="within")
    bagged = bags_in_parts._bagging(
        find_strategy("sorted"), 20, lambda table: (np.empty((500, 0)), table["score"].to_numpy()),
        strata=strata,
    )  # fmt: skip
    found = bagged(Part(0, 0, rows, bytes(32)))
    bags, cities = found[BAG_ID].to_numpy(), found["city"].to_pylist()
    assert len(set(zip(bags.tolist(), cities, strict=True))) == bags.max() + 1 > 20
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


def test_shares_of_classes_are_counted_where_the_rows_are(classed, tmp_path):
    path, table, codes = classed
    asked = {"label": "y", "classes": CLASSES, "id": "key", "epsilon": 2.0, "bag_size": K}
    asked["strategy"] = "random"
    release, read = released(path, tmp_path, **asked)
    local = bw.make_release(table, **filed(**asked))
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


def test_classes_stay_with_their_rows_in_a_secret_order(classed, workers):
    path, _, codes = classed
    moved = Moved(("key",), "y", tuple(CLASSES))
    once = in_secret_order(open_files(path, workers), moved)
    for parts in (once, in_secret_order(once, moved)):  # which has codes already
        found = read_all(parts, ["key", "y"])
        assert in_a_fair_order(found["key"].to_numpy())
        np.testing.assert_array_equal(by_key(found)["y"].to_numpy(), codes)


@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_picked_labels_are_those_of_one_row_of_each_bag(files, table, tmp_path):
    asked = {**PLAIN, "strategy": "random", "label_kind": "pick"}
    release, read = released(files, tmp_path, **asked)
    assert read.label_kind == "pick"
    rule = ExactCalibration(2.0, 0.0, (-9.0, 9.0))
    assert release.certificate.events == (bag_picks(rule, sizes=read.bags.sizes.tolist()),)
    # Which rows these are: the same whoever asks, one of each bag, and anywhere in it.
    found = []
    for _ in range(2):
        pick = Labelling((), lambda keys, _: keys // 7, lambda told, _: told, "pick")
        sums = told_of(release, pick, label="key")
        chunks = np.concatenate([told[0] for told, _ in sums.chunks()])
        found.append(chunks.astype(np.int64))
        for path in sums.paths:
            Path(path).unlink()
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


def test_what_is_wrong_with_a_table_is_said_without_a_label(workers, tmp_path):
    options = {**PLAIN, "strategy": "random", "spill": tmp_path, "engine": "spark", "bag_size": 5}
    numbers = np.arange(60)
    wrong = {
        "missing": {"key": numbers, "a": numbers * 0.5, "y": [4.25] + [None] * 59},
        "equals the label": {"key": numbers, "a": numbers * 0.5, "y": numbers * 0.5},
        "which a key must not be": {"key": numbers // 2, "a": numbers * 0.5, "y": -1.0 * numbers},
    }
    for why, columns in wrong.items():
        pq.write_table(pa.table(columns), tmp_path / "wrong.parquet", row_group_size=7)
        kind = LabelError if why == "missing" else ColumnError
        with pytest.raises(kind, match=why) as caught:
            bw.make_release(str(tmp_path / "wrong.parquet"), **filed(**options))
        assert "4.25" not in str(caught.value)


def test_strategies_in_parts_are_the_ones_that_run_in_memory():
    rows = pa.table({"x": np.arange(500)})
    bagged = bags_in_parts._bagging(find_strategy("random"), 20, bags_in_parts._no_features)
    once, again = (bagged(Part(0, 0, rows, bytes(32))) for _ in range(2))
    bags = once[BAG_ID].to_numpy()
    assert sorted(once["x"].to_pylist()) == list(range(500))
    np.testing.assert_array_equal(np.bincount(bags), np.full(25, 20))
    assert np.all(np.diff(bags) >= 0)
    assert once.equals(again)  # whoever does the work a second time has the same bags


OPEN = {"label": "y", "id": "key", "not_private": True, "bag_size": K}
WORTH = "ignore::bagwise.errors.LeakWarning"


@pytest.mark.filterwarnings(WORTH)
@pytest.mark.parametrize("asked", [{"strategy": "random"}, {"strategy": "sorted"}, {}])
def test_releases_that_are_not_private_have_exact_means(files, table, tmp_path, asked):
    release, read = released(files, tmp_path, **OPEN, **asked)
    assert read.certificate.headline == "NOT PRIVATE"
    assert len(release.bags.parts.sizes) > 1
    labels = labels_of(read, table)
    np.testing.assert_allclose(read.labels, read.bags.mean(labels), rtol=1e-12)
    within = read.bags.mean(labels**2) - read.bags.mean(labels) ** 2
    # Bags of sorted labels hold less than a hundredth of the variance, and others nearly all.
    assert (within.mean() < labels.var() / 100) == (asked.get("strategy") == "sorted")


@pytest.mark.filterwarnings(WORTH)
@pytest.mark.parametrize("kind", ["mean", "pick"])
def test_clipped_and_picked_labels_without_noise(files, table, tmp_path, kind):
    asked = {**OPEN, "bounds": (-1, 1), "label_kind": kind, "strategy": "random"}
    _, read = released(files, tmp_path, **asked)
    clipped = np.clip(labels_of(read, table), -1, 1)
    if kind == "mean":
        np.testing.assert_allclose(read.labels, read.bags.mean(clipped), rtol=1e-12)
    for bag in range(read.bags.n_bags):
        own = clipped[read.bags.index == bag]
        assert own.min() - 1e-12 <= read.labels[bag] <= own.max() + 1e-12
        assert (read.labels[bag] in own.tolist()) == (kind == "pick") or own.var() == 0


@pytest.mark.filterwarnings(WORTH)
@pytest.mark.parametrize("kind", ["mean", "pick"])
def test_classes_without_noise(classed, tmp_path, kind):
    path, _, codes = classed
    asked = {**OPEN, "classes": CLASSES, "strategy": "random", "label_kind": kind}
    _, read = released(path, tmp_path, **asked)
    own = read.bags.mean(one_hot(codes[read.instances["key"].to_numpy() // 7], 3) * 1.0)
    if kind == "mean":
        np.testing.assert_allclose(read.labels, own)
    else:
        assert np.array_equal(read.labels.sum(axis=1), np.ones(read.bags.n_bags))
        assert np.all(own[read.labels > 0] > 0)


@pytest.mark.parametrize("within", [(), ("city",)])
def test_bags_follow_groups_and_small_ones_are_merged(people, tmp_path, monkeypatch, within):
    monkeypatch.setattr(bags_in_parts, "CELL", 700)
    path, table = people
    asked = {**PLAIN, "features": ["a", "b"], "by": "count", "within": within, "bag_size": 50}
    release, read = released(path, tmp_path, **asked)
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance == local.provenance
    assert release.certificate.events == local.certificate.events
    assert sorted(read.bags.sizes.tolist()) == sorted(local.bags.sizes.tolist())
    assert len(release.bags.parts.sizes) > 1
    groups = number_groups(read.instances, ["count", *within], role="by")
    assert len(set(zip(groups, read.bags.index, strict=True))) == groups.max() + 1


def test_single_labels_are_reported_one_by_one(files, table, tmp_path):
    asked = {"label": "y", "id": "key", "bounds": (-9, 9), "epsilon": 8.0, "noise": "unbiased"}
    release, read = released(files, tmp_path, **asked)
    local = bw.make_release(table, **filed(**asked))
    assert release.certificate.events == local.certificate.events
    assert read.bags.n_bags == N
    labels, reported = labels_of(read, table), read.labels[read.bags.index]
    errors = (reported - labels) / read.noise_sd
    # Unbiased, with a variance that is at most the one that is stated: six deviations.
    assert abs(errors.mean()) < 6 / np.sqrt(N)
    # The twin: labels of other rows explain nothing.
    assert np.var(reported - labels) < np.var(reported - labels[::-1])


def test_what_a_flexible_learner_gets_is_chosen_as_in_memory(files, table, tmp_path):
    asked = {"label": "y", "id": "key", "bounds": (-9, 9), "epsilon": 8.0, "learner": "flexible"}
    release, _ = released(files, tmp_path, **asked)
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance.strategy == local.provenance.strategy
    assert release.provenance.bag_size == local.provenance.bag_size


@pytest.mark.parametrize("strategy", [bw.KMeansBags(scale="model"), "optimal"])
def test_other_compact_bags_are_formed_in_cells(files, table, tmp_path, strategy):
    asked = {**PLAIN, "features": ["a", "b"], "strategy": strategy}
    release, read = released(files, tmp_path, **asked)
    assert len(release.bags.parts.sizes) > 1
    local = bw.make_release(table, **filed(**asked))
    assert release.provenance == local.provenance
    rows = np.column_stack([read.instances[name].to_numpy() for name in ("a", "b")])
    lost = sum(
        (read.bags.mean(column**2) - read.bags.mean(column) ** 2).mean() for column in rows.T
    )
    assert lost < 0.5 * rows.var(axis=0).sum()  # rows of a bag are near each other
