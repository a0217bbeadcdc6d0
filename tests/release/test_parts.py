"""A release whose rows are in several files: the same release, read as strictly as one file."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.errors import OutputExistsError, ReleaseError
from bagwise.files import parquet_files
from bagwise.files.parquet_files import read_parts, write_parts, write_plain
from bagwise.files.regular_files import sha256_of
from tests.forging import rehash
from tests.release.test_release import make


@pytest.fixture
def release(table):
    return make(table, epsilon=1.0, delta=1e-5, bounds=(-10, 20), not_private=False)


@pytest.fixture
def parted(release, tmp_path):
    return release.save(tmp_path / "parts", rows_per_file=25)


def names(path):
    return sorted(file.name for file in path.glob("instances*"))


def test_parts_are_the_same_release(release, parted, tmp_path):
    whole = bw.Release.load(release.save(tmp_path / "whole"))
    read = bw.Release.load(parted)
    assert names(parted) == [f"instances-0000{i}.parquet" for i in (1, 2, 3)]
    assert [pq.read_metadata(parted / name).num_rows for name in names(parted)] == [25, 25, 10]
    assert read.instances.equals(whole.instances)
    assert (read.bags.index == whole.bags.index).all()
    assert read.verify().headline == whole.verify().headline
    listed = json.loads((parted / "manifest.json").read_text())["files"]
    assert all(listed[name] == sha256_of(parted / name, error=ReleaseError) for name in listed)
    others = {"bags.parquet", "certificate.json", "croissant.json"}
    assert set(listed) == {*names(parted), *others}


@pytest.mark.parametrize("rows", [60, 61, 10**9])
def test_one_file_that_holds_all_has_its_usual_name(release, rows, tmp_path):
    assert names(release.save(tmp_path / "out", rows_per_file=rows)) == ["instances.parquet"]


@pytest.mark.parametrize("rows", [0, -1, 2.5, "5"])
def test_impossible_numbers_of_rows(release, rows, tmp_path):
    with pytest.raises(ReleaseError, match="rows_per_file must be"):
        release.save(tmp_path / "out", rows_per_file=rows)
    assert not list(tmp_path.iterdir())


def test_parts_are_replaced_by_force_and_nothing_else_is(release, parted):
    release.save(parted, force=True, rows_per_file=50)
    assert names(parted) == ["instances-00001.parquet", "instances-00002.parquet"]
    release.save(parted, force=True)
    assert names(parted) == ["instances.parquet"]
    (parted / "instances-1.parquet").touch()
    with pytest.raises(OutputExistsError, match=r"instances-1\.parquet"):
        release.save(parted, force=True)


def drop(name):
    return lambda path: (path / name).unlink()


def append(path):
    write_plain(pq.read_table(path / "instances-00001.parquet"), path / "instances-00004.parquet")


def unequal(path):
    first, second, _ = (pq.read_table(path / name) for name in names(path))
    both = pa.concat_tables([first, second])
    write_plain(both.slice(0, 20), path / "instances-00001.parquet")
    write_plain(both.slice(20), path / "instances-00002.parquet")


def other_columns(path):
    table = pq.read_table(path / "instances-00002.parquet")
    write_plain(table.drop_columns(["x"]), path / "instances-00002.parquet")


def renumber(path):
    (path / "instances-00003.parquet").rename(path / "instances-00004.parquet")


def also_whole(path):
    write_plain(pq.read_table(path / "instances-00001.parquet"), path / "instances.parquet")


def single(path):
    for name in names(path)[1:]:
        (path / name).unlink()


DAMAGE = {
    "one is missing": drop("instances-00002.parquet"),
    "the last is missing": drop("instances-00003.parquet"),
    "one too many": append,
    "unequal numbers of rows": unequal,
    "other columns": other_columns,
    "a gap in the numbers": renumber,
    "a whole one besides": also_whole,
    "a single part": single,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("hashed", [False, True], ids=["as it was", "hashed again"])
def test_parts_that_do_not_fit_are_refused(parted, damage, hashed):
    damage(parted)
    if hashed:
        relist(parted)
    with pytest.raises(ReleaseError):
        bw.Release.load(parted).verify()


def relist(path):
    """Let the manifest list whatever is there, with its hashes."""
    manifest = json.loads((path / "manifest.json").read_text())
    there = [file.name for file in path.iterdir() if file.name != "manifest.json"]
    manifest["files"] = dict.fromkeys(sorted(there), "")
    (path / "manifest.json").write_text(json.dumps(manifest))
    rehash(path)


def test_relisting_alone_breaks_nothing(parted):
    relist(parted)
    bw.Release.load(parted).verify()


def test_parts_that_do_not_fit_into_memory_together_are_mapped(parted, monkeypatch):
    paths = [parted / name for name in names(parted)]
    hashes = [sha256_of(path, error=ReleaseError) for path in paths]
    whole = read_parts(paths, error=ReleaseError, sha256=hashes)
    mapped, to_disk = [], parquet_files._read_to_disk
    monkeypatch.setattr(
        parquet_files, "_read_to_disk", lambda *given: mapped.append(1) or to_disk(*given)
    )
    counts = []
    for memory in (0, 2 * 25 * 16 * 2 + 2_000, 10**6):
        mapped.clear()
        monkeypatch.setattr(parquet_files, "memory_of_machine", lambda memory=memory: memory)
        assert read_parts(paths, error=ReleaseError, sha256=hashes).equals(whole)
        counts.append(len(mapped))
    assert counts[0] == len(paths) > counts[1] >= counts[2] == 0
    monkeypatch.setattr(parquet_files, "memory_of_machine", lambda: 0)
    bw.Release.load(parted).verify()


def test_streams_are_divided_like_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "ROWS_AT_ONCE", 4)
    table = pa.table({"x": range(23)})
    for name, rows in {"table": table, "stream": table.to_reader(max_chunksize=3)}.items():
        (tmp_path / name).mkdir()
        paths = [tmp_path / name / str(i) for i in range(9)]
        write_parts(rows, paths, rows_per_file=10)
        written = [path for path in paths if path.exists()]
        groups = [
            [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            for meta in map(pq.read_metadata, written)
        ]
        assert groups == [[4, 4, 2], [4, 4, 2], [3]]
        assert pa.concat_tables(map(pq.read_table, written)).equals(table)


def test_rows_without_a_file_are_never_left_out(tmp_path):
    rows = pa.table({"x": range(25)})
    with pytest.raises(AssertionError, match="more rows than files"):
        write_parts(rows, [tmp_path / "a", tmp_path / "b"], rows_per_file=10)
