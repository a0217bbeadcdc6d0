"""Tables from everywhere, on the command line."""

import json
import sqlite3

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from bagwise.cli import app

PRIVATE = ["--epsilon", "1", "--bounds", "-10", "20"]
SECRET = "918273645"


def bagwise(*arguments, piped=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=piped)


def as_parts(table, path):
    pq.write_table(table.slice(0, 25), path / "1.parquet")
    pq.write_table(table.slice(25), path / "2.parquet")
    return [path / "1.parquet", path / "2.parquet"], None


def as_pattern(table, path):
    as_parts(table, path)
    return [f"{path}/*.parquet"], None


def as_database(table, path):
    with sqlite3.connect(path / "t.db") as made:
        columns = ", ".join(table.column_names)
        made.execute(f"CREATE TABLE t ({columns})")
        marks = ", ".join("?" * table.num_columns)
        rows = list(zip(*table.to_pydict().values(), strict=True))
        made.executemany(f"INSERT INTO t VALUES ({marks})", rows)  # noqa: S608
    made.close()
    return [path / "t.db", "--query", "SELECT * FROM t"], None


def as_pipe(table, path):
    pa.csv.write_csv(table, path / "t.csv")
    return ["-"], (path / "t.csv").read_bytes()


def as_told(table, path):
    options = pa.csv.WriteOptions(delimiter="\t")
    pa.csv.write_csv(table, path / "t.csv", options)
    return [path / "t.csv", "--read", "delimiter=tab", "--read", "encoding=utf-8"], None


WAYS = [as_parts, as_pattern, as_database, as_pipe, as_told]


@pytest.mark.parametrize("way", WAYS)
def test_every_verb_takes_every_table(way, table, tmp_path):
    source, piped = way(table, tmp_path)
    out, direct = tmp_path / "out", tmp_path / "direct.json"
    label = ["--label", "y"]
    bags = ["--bag-size", "5", "--strategy", "random"]
    runs = [
        ["release", *source, *label, *bags, *PRIVATE, "-o", out, "--json"],
        ["release-model", *source, *label, *PRIVATE, "-o", direct, "--json"],
        ["plan", *source, *label, *PRIVATE, "--json"],
        ["predict", direct, *source, "-o", tmp_path / "p.csv", "--json"],
        ["evaluate", direct, *source, "--json"],
        ["evaluate", direct, *source, *PRIVATE, "--json"],
    ]  # fmt: skip
    for run in runs:
        done = bagwise(*run, piped=piped)
        assert done.exit_code == 0, (run, done.output)
    assert json.loads(bagwise("evaluate", direct, out, "--json").stdout)["n_bags"] == 12
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 61


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a.db", "b.db", "--query", "SELECT 1"], "--query goes with one database"),
        (["t.csv", "--read", "mark=;"], "unknown detail of --read"),
        (["t.csv", "--read", "decimal"], "--read takes NAME=VALUE"),
        (["https://example.org/t.csv"], "URLs are not supported"),
        ([f"postgresql://me:{SECRET}@host/db"], "is a database"),
        (["out"], "is a release"),
    ],
)
def test_bad_tables_end_with_two(source, message, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa.csv.write_csv(table, tmp_path / "t.csv")
    (tmp_path / "out").mkdir()
    for name in ("manifest.json", "bags.parquet"):
        (tmp_path / "out" / name).touch()
    done = bagwise("release", *source, "--label", "y", *PRIVATE, "-o", "new")
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert SECRET not in done.output
