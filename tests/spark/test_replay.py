"""On Spark, too, nothing depends on labels but what was paid for (tests/contracts/replay.py)."""

import warnings
from functools import partial

import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.errors import BagwiseWarning
from bagwise.release import bags_in_parts, parts_table
from tests.contracts.replay import (
    in_python,
    on_the_command_line,
    replay,
    rows_together,
    tables_of,
)
from tools.settings import filed

PRIVATE = {"label": "y", "epsilon": 2.0, "exclude": ["who", "key", "years"], "bag_size": 10}
NUMBERS = {**PRIVATE, "bounds": (-9.0, 9.0)}
PLAIN = {**NUMBERS, "strategy": "random", "tighten": "none", "centre": "none"}
LOOKS = {**NUMBERS, "bounds": (-1e6, 1e6), "tighten": "range", "centre": "model", "delta": 1e-5}
CLASSES = {**PRIVATE, "classes": ["no", "so", "yes"], "strategy": "random"}
CHARGED = {"unit": "who", "exclude": ["key"], "ledger": "rows.ledger"}


def from_files(_spark, options, table, place):
    pq.write_table(table.slice(0, 150), place / "a.parquet", row_group_size=rows_together(table))
    pq.write_table(table.slice(150), place / "b.parquet")
    return partial(release, str(place), {**options, "engine": "spark"})


def from_frame(spark, options, table, _place):
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    # One part: a task writes each to a file whose name is drawn where nothing is replayed.
    frame = spark.createDataFrame(rows, table.column_names).coalesce(1)
    return partial(release, frame, options)


def release(source, options):
    if "ledger" in options:
        terms = ["--epsilon-total", 9, "--delta-total", 1e-3, "--unit", options["unit"]]
        on_the_command_line("ledger", "init", options["ledger"], *terms)()
    call = partial(bw.make_release, source, **filed(spill=".", **options))
    return in_python(lambda: str(call().save("out", rows_per_file=100)))()


CASES = {
    "planned": (from_files, "number", {**LOOKS, "bag_size": "auto"}),
    "units in strata": (from_files, "number", {**PLAIN, **CHARGED, "within": "city"}),
    "picks": (from_files, "count", {**PLAIN, "bounds": (0.0, 20.0), "label_kind": "pick"}),
    "classes": (from_files, "class", {**CLASSES, "strategy": "kmeans"}),
    "frame, sorted": (from_frame, "number", {**LOOKS, "strategy": "sorted"}),
    "frame, picks of classes": (from_frame, "class", {**CLASSES, "label_kind": "pick"}),
}


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """A kernel that is compiled only now would draw the names of its files by chance."""
    for name in ("kmeans", "sorted"):
        bw.make_release(tables_of("number")[0], **filed(**NUMBERS, strategy=name))


@pytest.fixture(autouse=True)
def several_buckets(monkeypatch):
    monkeypatch.setattr(bags_in_parts, "BUCKET", 120)
    monkeypatch.setattr(bags_in_parts, "CELL", 120)


@pytest.mark.parametrize("name", CASES)
def test_what_differs_in_labels_alone_looks_alike(name, spark, tmp_path):
    source, kind, options = CASES[name]
    assert replay(tmp_path / "run", partial(source, spark, options), *tables_of(kind)) == []


def test_a_twin_that_tells_of_labels_is_found(spark, tmp_path, monkeypatch):
    def tell(_kind, labels, *, bounds):
        warnings.warn(f"{labels} in {bounds}", BagwiseWarning, stacklevel=2)

    monkeypatch.setattr(parts_table, "remark_on_wide_bounds", tell)
    first, one, _ = tables_of("number")
    (found,) = replay(tmp_path / "run", partial(from_files, spark, PLAIN), first, one)
    assert found.startswith("warned: ")
