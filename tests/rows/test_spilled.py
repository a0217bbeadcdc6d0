"""Tables that do not fit into memory: what is chosen, what is on disk, and how good bags are."""

import contextlib
import gc
import signal
import stat
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import BagwiseWarning, ColumnError, OutputError, TableError
from bagwise.files import spill as spill_module
from bagwise.files import stored
from bagwise.files.locks import holding
from bagwise.files.spill import SpillDirectory
from bagwise.release.bags_in_parts import Tree
from bagwise.rows.opening import Memory, SpilledRows, estimate_size, open_rows, parse_size
from bagwise.rows.sources import open_source
from bagwise.rows.table import Rows, read_table
from tools.settings import filed

SECRET = 918273645.5
MEMORY = Memory(2**30, Path())
needed = MEMORY.needed
OPTIONS = {"label": "y", "bag_size": 10, "bounds": (0.0, 1e9), "epsilon": 1.0}


def write(path, n=400, seed=0):
    rng = np.random.default_rng(seed)
    table = pa.table({"a": rng.normal(size=n), "b": rng.normal(size=n), "y": np.full(n, SECRET)})
    pq.write_table(table, path)
    return path


@given(st.integers(1, 300), st.integers(1, 100), st.integers(0, 10**6))
@settings(max_examples=40)
def test_rows_are_brought_to_their_places(n, rows_at_once, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    places = np.empty(n, dtype=np.int64)
    places[order] = np.arange(n)
    text = pa.array([None if v % 7 == 0 else str(v) for v in range(n)])
    table = pa.table({"x": np.arange(n), "text": text})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "BATCH", 8)
        spill = SpillDirectory(Path(gettempdir()))
        found = stored.arrange(
            table.to_batches(max_chunksize=13), table.schema, places, spill.path,
            rows_at_once=rows_at_once,
        )  # fmt: skip
        assert found.num_rows == n
        assert found.table().to_pydict() == table.take(order).to_pydict()
        first, last = sorted(rng.integers(0, n + 1, size=2).tolist())
        part = found.block(["text"], first, last)
        assert part["text"].to_pylist() == table.take(order)["text"].to_pylist()[first:last]
        assert list(spill.path.iterdir()) == []  # files go when nobody needs their names
        spill.close()


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_labels_have_no_part_in_whether_a_table_fits(tmp_path, kind):
    """Bags may differ with the engine, and how well a column is packed tells of what is in it."""
    rng = np.random.default_rng(0)
    x, few = rng.normal(size=3000), rng.integers(0, 3, size=3000)
    many = np.concatenate([[few[0]], rng.permutation(10**6)[:2999]])
    tables = [
        pa.table({"x": x, "y": pa.array(y).cast(pa.string() if kind == "text" else pa.int64())})
        for y in (few, many)
    ]
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path)
    blind, seeing = (
        [estimate_size(open_source(path), MEMORY, label=label).needed for path in paths]
        for label in ("y", None)
    )
    assert blind[0] == blind[1]
    assert (seeing[0] != seeing[1]) == (kind == "text")  # the twin

    def fits(table, **options):
        with contextlib.suppress(TableError):
            memory = Memory(needed(3000, 16 * 3000), tmp_path)
            return open_rows(table.to_reader(), memory=memory, **options).num_rows == 3000

    assert [fits(table, label="y") for table in tables] == [True, True]
    if kind == "text":
        assert [fits(table) for table in tables] == [True, None]  # the twin


def test_row_groups_that_a_writer_cuts_by_bytes_have_no_part_in_whether_a_table_fits(tmp_path):
    """How long labels are decides where all columns are cut, and each group has its own pages."""
    table = pa.table(
        {"x": np.arange(3000) / 7, "city": ["Bonn", "Pune"] * 1500, "y": ["no"] * 3000}
    )
    needs, bytes_of_features = set(), set()
    for rows in (3000, 1000, 77):
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=rows)
        needs.add(estimate_size(open_source(tmp_path / "t.parquet"), MEMORY, label="y").needed)
        found = pq.read_metadata(tmp_path / "t.parquet")
        groups = [found.row_group(number) for number in range(found.num_row_groups)]
        bytes_of_features.add(sum(group.column(1).total_uncompressed_size for group in groups))
    assert needs == {needed(3000, 3000 * (8 + 4 + 4 + 8))}
    assert len(bytes_of_features) == 3  # the twin


@pytest.mark.parametrize("packed", [None, "lz4"])
@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_labels_have_no_part_in_whether_an_arrow_file_fits(tmp_path, kind, packed):
    """The size of such a file tells how long labels are, or how well they pack."""
    rng = np.random.default_rng(0)
    x, few = rng.normal(size=3000), np.zeros(3000, dtype=np.int64)
    many = rng.permutation(10**6)[:3000]
    paths = [tmp_path / f"{number}.arrow" for number in range(2)]
    for path, y in zip(paths, (few, many), strict=True):
        label = pa.array(y).cast(pa.string() if kind == "text" else pa.int64())
        table = pa.table({"x": x, "y": label})
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_file(path, table.schema, options=options) as file:
            file.write_table(table)
    sizes = [path.stat().st_size for path in paths]
    assert (sizes[0] != sizes[1]) == (kind == "text" or packed is not None)  # there is a secret
    exactly = needed(3000, 16 * 3000)
    for limit in (exactly - 1, exactly, *(needed(0, int(1.5 * size)) for size in sizes)):
        memory = Memory(limit, tmp_path)
        one, other = (type(open_rows(path, memory=memory, label="y")) for path in paths)
        assert one is other is (Rows if limit >= exactly else SpilledRows)


def test_what_fits_is_read_and_what_does_not_stays_on_disk(tmp_path):
    path = write(tmp_path / "t.parquet")
    estimate = estimate_size(open_source(path), MEMORY)
    searching = replace(MEMORY, searched=True)
    assert estimate_size(open_source(path), searching) == estimate  # cells would save nothing
    assert searching.needed(10**7, 10**9) - needed(10**7, 10**9) == 4 * 10**9 - 2**28
    assert estimate.n_rows == 400
    assert estimate.needed >= needed(400, 400 * 2 * 8)
    fits, small = (Memory(limit, tmp_path) for limit in (estimate.needed, estimate.needed - 1))
    assert isinstance(open_rows(path, memory=fits), Rows)
    assert isinstance(open_rows(path, memory=small), SpilledRows)
    assert isinstance(open_rows(path), Rows)
    assert "in memory; the limit" in estimate.sentence(fits)
    assert "out of core" in estimate.sentence(small)


@pytest.mark.parametrize("text", ["", "0", "-1GB", "8 apples", "GB"])
def test_a_limit_that_is_no_size_is_refused(text, tmp_path):
    with pytest.raises(TableError, match="8GB"):
        parse_size(text)


def test_the_private_directory_is_its_owners_and_goes(tmp_path):
    spill = SpillDirectory(tmp_path / "new")
    assert stat.S_IMODE(spill.path.stat().st_mode) == 0o700
    other = SpillDirectory(tmp_path / "new")  # sweeps what nobody holds, and nothing else
    assert spill.path.is_dir()
    spill.close()
    del other
    assert list((tmp_path / "new").iterdir()) == []


def test_a_directory_that_is_swept_before_it_is_locked_is_made_anew(tmp_path, monkeypatch):
    swept = []

    def swept_once(path):
        if not swept:
            swept.append(path)
            spill_module.sweep_spills(tmp_path)  # as a run that begins at this moment does
        return holding(path)

    monkeypatch.setattr(spill_module, "holding", swept_once)
    spill = SpillDirectory(tmp_path)
    assert not swept[0].exists()
    assert stat.S_IMODE(spill.path.stat().st_mode) == 0o700
    spill_module.sweep_spills(tmp_path)  # this one is held
    assert list(tmp_path.iterdir()) == [spill.path]
    spill.close()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_nothing_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        SpillDirectory(tmp_path / "file")


KILLED = """
import sys, time
from pathlib import Path
from bagwise.files.spill import SpillDirectory
spill = SpillDirectory(Path(sys.argv[1]))
(spill.path / "rows").write_text("left behind")
print(spill.path, flush=True)
time.sleep(60)
"""


def test_what_a_killed_run_leaves_is_swept_by_the_next(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    left = Path(process.stdout.readline().strip())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert (left / "rows").exists()
    SpillDirectory(tmp_path)
    assert not left.exists()


def test_labels_of_a_parquet_file_are_in_no_other_file(tmp_path, monkeypatch):
    seen = []
    arranged = stored._deal

    def looking(batches, schema, *others):
        parts = arranged(batches, schema, *others)
        seen.extend(part.read_bytes() for part in parts)
        return parts

    monkeypatch.setattr(stored, "_deal", looking)
    made = bw.make_release(
        write(tmp_path / "t.parquet"),
        **filed(
            **OPTIONS, strategy="sorted", memory_limit=1, spill=tmp_path / "spill", tighten="none"
        ),
    )
    assert made.stored is not None
    made.save(tmp_path / "out")
    assert bw.Release.load(tmp_path / "out").verify()
    assert seen
    assert all(np.float64(SECRET).tobytes() not in content for content in seen)
    del made
    gc.collect()  # it may be part of a cycle
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_subset_of_rows_is_arranged_as_it_is_in_memory(tmp_path):
    path = write(tmp_path / "t.parquet")
    order = np.random.default_rng(1).permutation(400)[:37]
    on_disk = open_rows(path, memory=Memory(1, tmp_path)).take(order)
    in_memory = open_rows(path).take(order)
    assert on_disk.block(["b"], 3, 30).equals(in_memory.block(["b"], 3, 30).combine_chunks())


def blobs(n, d=4):
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(20, d))
    return centres[rng.integers(0, 20, n)] + rng.normal(size=(n, d))


def test_bags_by_cells_are_nearly_as_compact_as_those_of_one_search(tmp_path):
    X = blobs(8_000)
    table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": np.zeros(len(X))})
    pq.write_table(table, tmp_path / "t.parquet")
    options = {"label": "y", "bag_size": 20, "strategy": "kmeans", "not_private": True, "seed": 0}
    ratios = []
    for limit in ("1GB", "3MB"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            made = bw.make_release(
                tmp_path / "t.parquet", **filed(**options, memory_limit=limit, spill=tmp_path)
            )
        ratios.append(made.quality().sse_ratio)
        assert made.bags.sizes.min() >= 20
    assert ratios[1] < 1.15 * ratios[0]
    shuffled = bw.make_bags(X, bag_size=20, seed=0).quality(X).sse_ratio
    assert shuffled > 2 * ratios[1]  # the twin: bags that know nothing of the rows


def test_a_tree_cuts_into_equal_cells_and_routes_as_it_learned():
    points = np.random.default_rng(0).normal(size=(1024, 3))
    found = Tree.learn(points, 4).route(points)
    assert np.bincount(found, minlength=16).tolist() == [64] * 16
    assert Tree.learn(points, 0).route(points).tolist() == [0] * 1024
    equal = Tree.learn(np.zeros((64, 2)), 3).route(np.zeros((5, 2)))
    assert len(set(equal.tolist())) == 1


def test_the_command_says_what_it_takes_before_it_starts(tmp_path):
    path = write(tmp_path / "t.parquet")
    command = [
        sys.executable, "-m", "bagwise", "release", str(path), "--label", "y", "--bag-size", "10",
        "--bounds", "0", "1e9", "--epsilon", "1", "--strategy", "random", "--memory-limit", "1KB",
        "-o", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "400 rows, about" in done.stderr
    assert "out of core" in done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out", "t.parquet"]
    assert str(int(SECRET)) not in done.stdout + done.stderr


def test_predictions_of_rows_on_disk_are_those_of_rows_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "BATCH", 64)
    monkeypatch.setattr("bagwise.rows.opening.BATCH", 64)
    path = write(tmp_path / "t.parquet")
    model = bw.release_model(
        path,
        label="y",
        bounds=(0.0, 1e9),
        epsilon=9.0,
        engine=bw.Engine(memory_limit=1, spill=tmp_path),
    )
    whole = model.predict_table(pq.read_table(path), id="b")
    parts = list(model.predict_parts(open_rows(path, memory=Memory(1, tmp_path)), id="b"))
    assert len(parts) > 1
    assert pa.concat_tables(parts).to_pydict() == whole.to_pydict()
    for name in ("p.parquet", "p.csv"):
        command = ["predict", str(model.save(tmp_path / f"{name}.json")), str(path), "--id", "b"]
        command += ["-o", str(tmp_path / name), "--memory-limit", "1KB", "--quiet"]
        assert CliRunner().invoke(app, command).exit_code == 0
        assert read_table(tmp_path / name).to_pydict() == whole.to_pydict()
    with pytest.raises(ColumnError, match="'c' is not a column"):
        list(model.predict_parts(open_rows(path, memory=Memory(1, tmp_path)), id="c"))


def test_an_order_waits_in_a_file_without_a_name(tmp_path):
    path = write(tmp_path / "t.parquet")
    rng = np.random.default_rng(2)
    first, second = rng.permutation(400), rng.permutation(400)[:50]
    spilled, local = open_rows(path, memory=Memory(1, tmp_path)), open_rows(path)
    once, twice = spilled.take(first), spilled.take(first).take(second)
    assert once.column("b").equals(local.take(first).column("b"))
    assert twice.column("b").equals(local.take(first[second]).column("b"))
    assert once.column("b").equals(local.take(first).column("b"))
    assert [file for file in tmp_path.glob(".bagwise.*/*") if file.suffix != ".lock"] == []


def test_an_order_that_no_disk_takes_is_an_error_in_words(tmp_path, monkeypatch):
    rows = open_rows(write(tmp_path / "t.parquet"), memory=Memory(1, tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: 1 / 0)
    with pytest.raises(OutputError, match="is it full"):
        rows.take(np.arange(400))
