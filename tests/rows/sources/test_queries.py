"""Queries to SQLite, and to PostgreSQL where BAGWISE_TEST_POSTGRESQL names a server."""

import os
import sqlite3

import pytest

from bagwise.errors import TableError
from bagwise.rows.sources import Query
from bagwise.rows.table import read_table

SECRET = "918273645"
SERVER = os.environ.get("BAGWISE_TEST_POSTGRESQL")


@pytest.fixture
def database(tmp_path):
    with sqlite3.connect(tmp_path / "t%20 t.db") as made:  # a name that an address would change
        made.execute("CREATE TABLE t (a INTEGER, y REAL, mixed)")
        made.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i, i / 4, 1) for i in range(70_000)])
        made.execute("INSERT INTO t VALUES (-1, 0.5, ?)", [f"no{SECRET}"])
    made.close()
    return tmp_path / "t%20 t.db"


def test_rows_of_a_query(database):
    read = read_table(Query(database, "SELECT a, y FROM t WHERE a BETWEEN 3 AND 4 ORDER BY a"))
    assert read.to_pydict() == {"a": [3, 4], "y": [0.75, 1.0]}
    assert read_table(Query(str(database), "SELECT a FROM t")).num_rows == 70_001


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope FROM t", "no such column 'nope'"),
        ("SELECT a FROM nowhere", "no such table 'nowhere'"),
        ("SELEC a FROM t", "begins with 'SELEC'"),
        ("SELECT a FRO t", "near 't'"),
        ("SELECT mixed FROM t", "each column has one type"),
        ("DELETE FROM t", "one SELECT"),
        ("WITH b AS (SELECT 1) DELETE FROM t", "could not be read"),
        (f"SELECT {SECRET}(1)", "could not be read"),
    ],
)
def test_queries_that_fail_say_so_in_their_own_words(database, sql, message):
    with pytest.raises(TableError, match=message) as caught:
        read_table(Query(database, sql))
    assert f"no{SECRET}" not in str(caught.value)
    assert caught.value.__context__ is None
    with sqlite3.connect(database) as made:
        assert made.execute("SELECT count(*) FROM t").fetchone() == (70_001,)
    made.close()


@pytest.mark.parametrize(
    "before", ["", " ", ";", "-- SELECT\n", "/* SELECT */", "/* a */ /* '*/", "/*/ */", "--\r"]
)
@pytest.mark.parametrize(
    "statement", ["ATTACH 'new.db' AS n", "VACUUM INTO 'new.db'", "PRAGMA user_version = 3"]
)
def test_what_is_not_a_select_is_refused_and_makes_no_file(
    database, tmp_path, monkeypatch, before, statement
):
    """A connection that only reads attaches, and so makes, a file that is not there."""
    monkeypatch.chdir(tmp_path)
    for after in ("", "; SELECT 1", " /* */ SELECT 1 */"):
        with pytest.raises(TableError):
            read_table(Query(database, f"{before}{statement}{after}"))
    assert [path.name for path in tmp_path.iterdir()] == [database.name]


@pytest.mark.parametrize(
    "sql",
    ["select 1 AS a", "\n -- one\n/* two\n * three */ WITH b AS (SELECT 1 AS a) SELECT a FROM b",
     "VALUES (1)", "SELECT 1 AS a;"],
)  # fmt: skip
def test_all_that_reads_is_allowed(database, sql):
    assert read_table(Query(database, sql)).num_rows == 1


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(TableError, match=r"Got neither: .*nowhere\.db"):
        Query(tmp_path / "nowhere.db", "SELECT 1")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TableError, match="Got neither") as caught:
        Query(f"mysql://me:{SECRET}@host/db", "SELECT 1")
    assert SECRET not in str(caught.value)


@pytest.mark.skipif(SERVER is None, reason="BAGWISE_TEST_POSTGRESQL names no server")
def test_postgresql():
    numbers = "generate_series(1, 2) i"
    sql = f"SELECT i AS a, i / 4.0 AS y, 'x' || i AS b, NULL::numeric AS z FROM {numbers}"  # noqa: S608
    read = read_table(Query(SERVER, sql))
    assert read.to_pydict() == {"a": [1, 2], "y": [0.25, 0.5], "b": ["x1", "x2"], "z": [None, None]}
    for bad, message in (
        ("SELECT nope FROM generate_series(1, 2)", "column 'nope'"),
        (f"SELECT CAST('no{SECRET[:4]}' || '{SECRET[4:]}' AS integer)", "could not be read"),
        ("CREATE TABLE written (a integer)", "one SELECT"),
    ):
        with pytest.raises(TableError, match=message) as caught:
            read_table(Query(SERVER, bad))
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None
