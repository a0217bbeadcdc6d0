import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise.errors import ReleaseError
from bagwise.files import parquet_files, parquet_layout
from bagwise.files.parquet_files import as_parquet_keeps_it, read_plain, write_plain

PLAIN = {"compression": "zstd", "store_schema": False, "write_statistics": False}


NUMBERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.uint64(), pa.float16(), pa.float32(), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
    *(pa.time64("us"), pa.decimal256(50, 2)),
)


def read(path):
    return read_plain(path, error=ReleaseError)


def some_table(rows=1000):
    rng = np.random.default_rng(0)
    levels = [None, "a", "bé", "c" * 50]
    return pa.table(
        {
            "x": rng.normal(size=rows),
            "gaps": pa.array([None, 1.5] * (rows // 2)),
            "city": [levels[i] for i in rng.integers(4, size=rows)],
            "key": [f"key {i}" for i in range(rows)],
            "bytes": pa.array([bytes([i % 256]) for i in range(rows)]),
            "day": pa.array(np.arange(rows, dtype=np.int32)).cast(pa.date32()),
            "flag": rng.random(rows) < 0.5,
            "nothing": pa.nulls(rows),
            **{str(kind): pa.array(np.arange(rows) % 100).cast(kind) for kind in NUMBERS},
            "price": pa.array(range(rows)).cast(pa.decimal128(22, 2)),
        }
    )


@pytest.mark.parametrize("rows", [2, 1000])
def test_what_is_written_is_read(tmp_path, rows):
    table = some_table(rows)
    write_plain(table, tmp_path / "t")
    assert read(tmp_path / "t").equals(table)
    assert read(tmp_path / "t").schema.metadata is None


def test_long_tables_come_in_several_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(parquet_layout, "ROWS_AT_ONCE", 300)
    write_plain(some_table(), tmp_path / "t")
    assert pq.ParquetFile(tmp_path / "t").num_row_groups == 4
    assert read(tmp_path / "t").equals(some_table())
    for size in (7, 300, 301, 5000):
        batches = some_table().to_reader(max_chunksize=size)
        write_plain(batches, tmp_path / "batches")
        assert pq.ParquetFile(tmp_path / "batches").num_row_groups == 4
        assert read(tmp_path / "batches").equals(some_table())


def test_text_that_outgrows_its_dictionary_comes_back(tmp_path):
    table = pa.table({"key": [f"{i:0200d}" for i in range(30_000)]})
    write_plain(table, tmp_path / "t")
    assert read(tmp_path / "t").equals(table)


def test_notes_of_the_source_do_not_leave(tmp_path):
    field = pa.field("x", pa.int64(), metadata={"secret": "1"})
    table = pa.table([[1, 2]], schema=pa.schema([field], metadata={"secret": "2"}))
    write_plain(table, tmp_path / "t")
    assert b"secret" not in (tmp_path / "t").read_bytes()
    assert as_parquet_keeps_it(table).schema.metadata is None
    assert as_parquet_keeps_it(table).schema.field(0).metadata is None


def with_notes(table, path):
    with pq.ParquetWriter(path, table.schema, **PLAIN) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"labels": "1,2,3"})


def with_field_ids(table, path):
    fields = [field.with_metadata({"PARQUET:field_id": "7"}) for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), path, **PLAIN)


def with_bytes(where):
    def write(table, path):
        write_plain(table, path)
        content = path.read_bytes()
        length = int.from_bytes(content[-8:-4], "little")
        cut = {"first": 4, "footer": len(content) - 8 - length, "last": len(content)}[where]
        path.write_bytes(content[:cut] + b"labels" + content[cut:])

    return write


def with_longer_footer(table, path):
    write_plain(table, path)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 6
    path.write_bytes(content[:-8] + b"labels" + length.to_bytes(4, "little") + b"PAR1")


FORGERIES = {
    "notes": (with_notes, "metadata"),
    "schema": (lambda t, path: pq.write_table(t, path, compression="zstd"), "metadata"),
    "field ids": (with_field_ids, "metadata"),
    "statistics": (
        lambda t, path: pq.write_table(t, path, compression="zstd", store_schema=False),
        "laid out",
    ),
    "page index": (
        lambda t, path: pq.write_table(t, path, **PLAIN, write_page_index=True),
        "laid out",
    ),
    "other pages": (
        lambda t, path: pq.write_table(t, path, **PLAIN, data_page_version="2.0"),
        "laid out",
    ),
    "checksums": (
        lambda t, path: pq.write_table(t, path, **PLAIN, write_page_checksum=True),
        "laid out",
    ),
    "small groups": (lambda t, path: pq.write_table(t, path, **PLAIN, row_group_size=7), "laid"),
    "uncompressed": (
        lambda t, path: pq.write_table(t, path, **{**PLAIN, "compression": "none"}),
        "laid out",
    ),
    "lists": (lambda t, path: write_plain(pa.table({"x": [[1], [2]]}), path), "lists or records"),
    "no rows": (lambda t, path: write_plain(t.slice(0, 0), path), "has no rows"),
    "records": (lambda t, path: write_plain(pa.table({"x": [{"a": 1}]}), path), "lists or records"),
    "same name": (
        lambda t, path: write_plain(pa.table([[1], [2]], names=["x", "x"]), path),
        "same name",
    ),
    "bytes before": (with_bytes("first"), "laid out|not a readable"),
    "bytes between": (with_bytes("footer"), "laid out"),
    "bytes after": (with_bytes("last"), "not a readable"),
    "bytes in the footer": (with_longer_footer, "laid out|not a readable"),
    "no table": (lambda t, path: path.write_bytes(b"PAR1" * 10), "not a readable"),
    "empty": (lambda t, path: path.write_bytes(b""), "not a readable"),
}


@pytest.mark.parametrize(("write", "message"), FORGERIES.values(), ids=FORGERIES)
def test_anything_beside_the_table_is_refused(tmp_path, write, message):
    write(some_table(), tmp_path / "t")
    with pytest.raises(ReleaseError, match=message):
        read(tmp_path / "t")


def test_other_writers_are_refused(tmp_path):
    write_plain(some_table(), tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content.replace(b"parquet-cpp-arrow", b"labels: 1 2 3 4 5"))
    with pytest.raises(ReleaseError, match="was not written by bagwise"):
        read(tmp_path / "t")


def test_too_many_columns_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_layout, "MOST_COLUMNS", 3)
    write_plain(some_table(2), tmp_path / "t")
    with pytest.raises(ReleaseError, match="23 columns"):
        read(tmp_path / "t")


def test_text_that_is_none_is_refused(tmp_path):
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    write_plain(pa.table({"x": broken}), tmp_path / "t")
    with pytest.raises(ReleaseError, match="not a readable"):
        read(tmp_path / "t")


def one_text(text, count):
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [text])


BOMBS = {
    "rows": lambda: pa.table({"x": pa.repeat(pa.scalar(0, pa.int64()), 40_000_000)}),
    "text": lambda: pa.table({"x": one_text("x" * 1_000_000, 100_000)}),
    "one long text": lambda: pa.table({"x": ["x" * 300_000_000]}),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_small_files_of_giant_tables_are_not_read(tmp_path, bomb):
    write_plain(bomb(), tmp_path / "t")
    assert (tmp_path / "t").stat().st_size < 2**20
    before = pa.total_allocated_bytes()
    with pytest.raises(ReleaseError, match="It was not read"):
        read(tmp_path / "t")
    assert pa.total_allocated_bytes() < before + 16 * 2**20


def test_a_page_may_not_be_larger_than_the_footer_says(tmp_path):
    """As if a footer called a column small whose page unpacks to gigabytes."""
    write_plain(pa.table({"x": ["x" * 10_000]}), tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    size = b"\x15" + varint(2 * 10_004)  # of the dictionary: one length and one text
    assert content.count(size) == 1
    (tmp_path / "t").write_bytes(content.replace(size, b"\x15" + varint(2 * 16_000)))
    with pytest.raises(ReleaseError, match="laid out"):
        read(tmp_path / "t")


def varint(value):
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path):
    """Some contradictions are not errors in pyarrow: the process is gone."""
    write_plain(some_table(20).select(["x", "city"]), tmp_path / "t")
    content = (tmp_path / "t").read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    script = tmp_path / "flip.py"
    script.write_text(FLIP)
    command = [sys.executable, script, tmp_path / "t", str(begin)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0.8 * 8 * (len(content) - begin)


FLIP = """
import sys
from pathlib import Path
from bagwise.errors import ReleaseError
from bagwise.files.parquet_files import read_plain

path, begin = Path(sys.argv[1]), int(sys.argv[2])
content, refused = path.read_bytes(), 0
for spot in range(begin, len(content)):
    for bit in range(8):
        flipped = bytearray(content)
        flipped[spot] ^= 1 << bit
        path.write_bytes(flipped)
        try:
            read_plain(path, error=ReleaseError)
        except ReleaseError:
            refused += 1
print(refused)
"""


@pytest.mark.parametrize("memory", [0, 20_000])
def test_beyond_half_of_the_memory_a_table_is_mapped(tmp_path, monkeypatch, memory):
    write_plain(some_table(), tmp_path / "t")
    in_memory = read(tmp_path / "t")
    spilled = tmp_path / "spilled"  # a place of its own: other tests spill into the usual one
    spilled.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spilled))
    monkeypatch.setattr(parquet_files, "memory_of_machine", lambda: memory)
    before = pa.total_allocated_bytes()
    mapped = read(tmp_path / "t")
    assert mapped.equals(in_memory)
    assert pa.total_allocated_bytes() - before < in_memory.nbytes / 10
    assert list(spilled.iterdir()) == []


def test_half_of_what_is_free_on_the_disk_is_the_most(tmp_path, monkeypatch):
    write_plain(some_table(), tmp_path / "t")
    monkeypatch.setattr(parquet_files, "memory_of_machine", lambda: 0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=20_000))
    with pytest.raises(ReleaseError, match="memory and disk have room for"):
        read(tmp_path / "t")


def test_only_regular_files_are_read(tmp_path):
    write_plain(some_table(), tmp_path / "t")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReleaseError, match="symbolic link"):
        read(tmp_path / "link")
    with pytest.raises(ReleaseError, match="not a regular file"):
        read(tmp_path / "pipe")


def test_large_strings_are_kept_as_strings():
    table = pa.table({"x": pa.array(["a", None], pa.large_string()), "y": [1, 2]})
    kept = as_parquet_keeps_it(table)
    assert kept.schema.types == [pa.string(), pa.int64()]
    assert kept["x"].to_pylist() == ["a", None]
