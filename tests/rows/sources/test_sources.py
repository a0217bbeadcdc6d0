"""Every source gives the same table, and no message of any of them quotes a cell."""

import gzip
import io
import sqlite3
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from bagwise.errors import ColumnError, TableError
from bagwise.release.release import Release
from bagwise.rows.sources import Csv, Query, ScannedSource, open_source
from bagwise.rows.table import read_table

SECRET = "918273645"
DATA = {"a": [1, 2, 3, 4], "b": ["x", None, "z", "ü"], "y": [0.5, 1.5, 2.5, 3.25]}


def table(start=0, stop=4):
    return pa.table(DATA).slice(start, stop - start)


def text(separator=",", decimal="."):
    out = io.BytesIO()
    pa.csv.write_csv(pa.table(DATA), out, pa.csv.WriteOptions(quoting_style="needed"))
    written = out.getvalue().decode()
    return written.replace(".", "!").replace(",", separator).replace("!", decimal)


def parquet_directory(tmp_path):
    pq.write_table(table(0, 3), tmp_path / "part-0.parquet")
    pq.write_table(table(3, 4), tmp_path / "part-1.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").touch()
    return tmp_path


def file_of(content, name="t.csv"):
    def write(tmp_path):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def several_csv(tmp_path):
    lines = text().splitlines(keepends=True)
    (tmp_path / "1.csv").write_text("".join(lines[:4]), encoding="utf-8")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress("".join([lines[0], lines[4]]).encode()))
    return [tmp_path / "1.csv", str(tmp_path / "2.csv.gz")]


def arrow_files(tmp_path):
    for i, part in enumerate((table(0, 1), table(1, 4))):
        with pa.ipc.new_file(tmp_path / f"{i}.arrow", part.schema) as writer:
            writer.write_table(part)
    return tmp_path


def database(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as made:
        made.execute("CREATE TABLE t (a INTEGER, b TEXT, y REAL)")
        made.executemany("INSERT INTO t VALUES (?, ?, ?)", zip(*DATA.values(), strict=True))
    made.close()
    return tmp_path / "t.db"


def scanned(tmp_path):
    parquet_directory(tmp_path)
    return pl.scan_parquet(tmp_path / "*.parquet")


SOURCES = {
    "directory": parquet_directory,
    "pattern": lambda path: str(parquet_directory(path) / "part-*.parquet"),
    "several": lambda path: sorted(parquet_directory(path).glob("part-*.parquet")),
    "dataset": lambda path: ds.dataset(parquet_directory(path)),
    "reader": lambda _: table().to_reader(),
    "lazy polars": scanned,
    "duckdb": lambda path: duckdb.sql(
        f"FROM read_parquet('{parquet_directory(path)}/part-*.parquet') ORDER BY a"
    ),
    "arrow files": arrow_files,
    "semicolons": file_of(text(";", ",").encode()),
    "tabs": file_of(text("\t").encode(), "t.tsv"),
    "bars": file_of(text("|").encode(), "t.txt"),
    "utf-8 with a mark": file_of(text().encode("utf-8-sig")),
    "utf-16": file_of(text(";", ",").encode("utf-16")),
    "utf-16 without a mark": file_of(text("\t").encode("utf-16-be")),
    "utf-32": file_of(text().encode("utf-32")),
    "packed": file_of(gzip.compress(text(";", ",").encode()), "t.csv.gz"),
    "packed in two": file_of(
        gzip.compress(text()[:20].encode()) + gzip.compress(text()[20:].encode()), "t.tsv.gz"
    ),
    "several csv": several_csv,
    "latin-1": lambda path: Csv(file_of(text(";").encode("latin-1"))(path), encoding="latin-1"),
    "query": lambda path: Query(database(path), "SELECT a, b, y FROM t ORDER BY a"),
    "query by address": lambda path: Query(f"sqlite:///{database(path)}", "SELECT * FROM t"),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_same_table(source, tmp_path):
    read = read_table(source(tmp_path))
    assert read.to_pydict() == DATA
    assert read.schema.metadata is None


@pytest.mark.parametrize("name", ["directory", "dataset", "arrow files"])
def test_what_can_be_scanned_gives_the_same_rows(name, tmp_path):
    source = open_source(SOURCES[name](tmp_path))
    assert isinstance(source, ScannedSource)
    assert source.open().to_table().to_pydict() == DATA


PIPED = {
    "csv": text(";", ",").encode(),
    "packed": gzip.compress(text().encode()),
    "parquet": "parquet",
    "arrow": "file",
    "arrow stream": "stream",
}


@pytest.mark.parametrize("kind", PIPED.values(), ids=PIPED)
def test_standard_input(kind, monkeypatch):
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table(), out)
    elif isinstance(kind, str):
        with getattr(pa.ipc, f"new_{kind}")(out, table().schema) as writer:
            writer.write_table(table())
    content = kind if isinstance(kind, bytes) else out.getvalue()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_table("-").to_pydict() == DATA


def test_standard_input_with_details(monkeypatch):
    content = text("|").encode("latin-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_table(Csv("-", encoding="latin-1")).to_pydict() == DATA


def test_standard_input_that_is_not_there(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(TableError, match="standard input is empty"):
        read_table("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TableError, match="nothing is piped into it"):
        read_table("-")
    damaged = io.TextIOWrapper(io.BytesIO(b"PAR1" + SECRET.encode()))
    monkeypatch.setattr(sys, "stdin", damaged)
    with pytest.raises(TableError, match="cannot be read as Parquet") as caught:
        read_table("-")
    assert caught.value.__context__ is None


def hive(tmp_path, values=("2020", "2021")):
    for i, value in enumerate(values):
        (tmp_path / f"year={value}").mkdir()
        pq.write_table(table(2 * i, 2 * i + 2), tmp_path / f"year={value}" / "part-0.parquet")
    return tmp_path


@pytest.mark.parametrize("pattern", ["", "*/*.parquet", "**/*.parquet"])
def test_partitions_become_columns(pattern, tmp_path):
    read = read_table(str(hive(tmp_path) / pattern))
    assert read["year"].to_pylist() == [2020, 2020, 2021, 2021]
    assert read.drop_columns(["year"]).to_pydict() == DATA


def test_partitions_may_be_text_or_missing(tmp_path):
    read = read_table(hive(tmp_path, ("__HIVE_DEFAULT_PARTITION__", "a%20b")))
    assert read["year"].to_pylist() == [None, None, "a b", "a b"]


def test_names_of_partitions_are_cells_and_not_shown(tmp_path):
    files = sorted(hive(tmp_path, (SECRET, "1")).rglob("*.parquet"))
    files[1].write_bytes(b"PAR1")
    with pytest.raises(TableError, match=r"year=….part-0.parquet cannot be read") as caught:
        read_table(tmp_path)
    assert SECRET not in str(caught.value)
    pq.write_table(pa.table({"other": [1]}), files[1])
    with pytest.raises(TableError, match="has other columns than") as caught:
        read_table(tmp_path)
    assert SECRET not in str(caught.value)


def test_numbers_of_several_widths_go_together(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "y": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [2.5], "a": pa.array([2], pa.int64())}), tmp_path / "2.parquet")
    assert read_table(tmp_path).to_pydict() == {"a": [1, 2], "y": [1.0, 2.5]}


def test_columns_that_do_not_go_together(tmp_path):
    pq.write_table(pa.table({"y": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [f"no{SECRET}"]}), tmp_path / "2.parquet")
    with pytest.raises(TableError, match="types that do not go together") as caught:
        read_table(tmp_path)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(TableError, match="the table cannot be read") as caught:
        read_table(ds.dataset([str(p) for p in sorted(tmp_path.iterdir())]))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_pandas_index_in_many_files_is_dropped(tmp_path):
    frame = pd.DataFrame({"y": [1.0, 2.0]}, index=pd.Index([7, 3], name="row"))
    for part in "12":
        frame.to_parquet(tmp_path / f"{part}.parquet")
    assert read_table(tmp_path).column_names == ["y"]
    assert read_table(tmp_path, index_names=["row"])["row"].to_pylist() == [7, 3, 7, 3]


def test_files_that_are_no_table_of_their_own(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    with pytest.raises(TableError, match="more than once"):
        read_table([tmp_path / "t.parquet", str(tmp_path / "t.parquet")])
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    with pytest.raises(TableError, match=r"several kinds \(CSV, Parquet\)"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="no file matches"):
        read_table(str(tmp_path / "*.arrow"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="directory without tables"):
        read_table(tmp_path / "empty")
    with pytest.raises(TableError, match="has no known ending"):
        (tmp_path / "empty" / "README").touch()
        read_table(tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.xlsx", "is a spreadsheet.*Save the sheet as CSV"),
        ("t.ods", "is a spreadsheet"),
        ("t.zip", "is packed: unpack it"),
        ("t.parquet.gz", "is packed: unpack it"),
        ("t.db", "is a database: say which rows, with --query"),
        ("t.json", "pandas or polars"),
    ],
)
def test_files_of_other_kinds_say_what_to_do(name, message, tmp_path):
    (tmp_path / name).write_text(SECRET)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://example.org/t.csv?key=918273645", "URLs are not supported .*download the file"),
        ("s3://bucket/t.parquet", "URLs are not supported"),
        ("postgresql://me:918273645@host/db", "is a database: say which rows"),
    ],
)
def test_addresses_say_what_to_do_and_are_not_repeated(address, message):
    with pytest.raises(TableError, match=message) as caught:
        read_table(address)
    assert SECRET not in str(caught.value)


def test_a_release_is_no_table(tmp_path):
    import bagwise as bw

    rng = np.random.default_rng(0)
    rows = pa.table({"x": rng.normal(size=20), "y": rng.normal(size=20)})
    made = bw.make_release(rows, label="y", bag_size=5, strategy="random", not_private=True)
    made.save(tmp_path / "out")
    with pytest.raises(TableError, match="is a release"):
        read_table(tmp_path / "out")
    assert Release.load(tmp_path / "out").bags.n_bags == 4


def test_text_that_only_a_later_file_has(tmp_path):
    (tmp_path / "1.csv").write_text("zip,size,y\n007,1,\n008,2,\n")
    (tmp_path / "2.csv").write_text("zip,size,y\nA7,1.5,3\n")
    read = read_table(tmp_path).to_pydict()
    assert read == {"zip": ["007", "008", "A7"], "size": [1.0, 2.0, 1.5], "y": [None, None, 3]}


def test_a_later_file_without_a_header_line(tmp_path):
    (tmp_path / "1.csv").write_text("a,y\n1,2\n")
    (tmp_path / "2.csv").write_text(f"red{SECRET},blue\n1,2\n")
    with pytest.raises(TableError, match=r"2\.csv has another header line than") as caught:
        read_table(tmp_path)
    assert SECRET not in str(caught.value)


def fails_late():
    yield pa.record_batch({"y": [1.0]})
    raise ValueError(SECRET)


def test_streams_that_fail_are_not_quoted():
    reader = pa.RecordBatchReader.from_batches(pa.schema({"y": pa.float64()}), fails_late())
    with pytest.raises(TableError, match="could not be computed") as caught:
        read_table(reader)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    relation = duckdb.sql(
        f"FROM (VALUES ('1'), ('no{SECRET}')) t(v) SELECT CAST(v AS INTEGER) AS y"
    )
    with pytest.raises(TableError, match="could not be computed") as caught:
        read_table(relation)
    assert SECRET not in str(caught.value)
    lazy = pl.LazyFrame({"y": [f"no{SECRET}"]}).select(pl.col("y").cast(pl.Int64))
    with pytest.raises(TableError, match="lazy frame could not be computed") as caught:
        read_table(lazy)
    assert SECRET not in str(caught.value)


def test_streams_are_checked_like_frames():
    with pytest.raises(TableError, match="seem to be data"):
        read_table(pa.table({"3.1": [1], SECRET: [2]}).to_reader())
    doubled = pa.Table.from_arrays([[1], [2]], names=["a", "a"])
    with pytest.raises(ColumnError, match="more than once"):
        read_table(doubled.to_reader())
