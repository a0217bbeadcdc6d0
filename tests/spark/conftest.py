"""One session of Spark for all tests, with faults allowed; without PySpark nothing is collected."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parent
WITHOUT = importlib.util.find_spec("pyspark") is None
collect_ignore_glob = ["*.py"] if WITHOUT else []

N, K = 3000, 20
PRIVATE = {"label": "y", "id": "key", "bounds": (-9, 9), "epsilon": 2.0, "bag_size": K}


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark(logs):
    from bagwise.rows.spark.session import open_session

    # Workers import this tree, and whatever of the tests is not sent to them.
    root = str(HERE.parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    session = open_session(
        {
            "spark.master": "local[2,3]",  # a task may fail twice
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "4",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
        }
    )
    yield session
    session.stop()


def some_table(n=N, seed=1):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    city = rng.choice(["Bonn", "Pune", "Oslo"], size=n)
    holes = np.where(rng.random(n) < 0.1, np.nan, rng.exponential(size=n))
    return pa.table(
        {
            "key": np.arange(n) * 7,
            "a": a,
            "b": b,
            "holes": holes,
            "city": city,
            "count": rng.integers(0, 5, size=n).astype(np.int32),
            "y": 2 * a - b + (city == "Oslo") + rng.normal(size=n),
        }
    )


@pytest.fixture(scope="session")
def table():
    return some_table()


@pytest.fixture(scope="session")
def files(table, tmp_path_factory):
    """The table as two files of several row groups."""
    folder = tmp_path_factory.mktemp("source")
    pq.write_table(table.slice(0, 2000), folder / "a.parquet", row_group_size=800)
    pq.write_table(table.slice(2000), folder / "b.parquet", row_group_size=800)
    return folder
