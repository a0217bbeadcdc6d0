"""Tasks that fail, that run twice, that are lost, that are slow.

Every trial ends with one complete release that verifies, or with none.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bagwise as bw
from bagwise.errors import EngineError
from bagwise.release import bags_in_parts
from bagwise.rows.spark import opening as spark_table
from bagwise.rows.spark.tasks import Cluster
from tests.spark import faults
from tests.spark.conftest import HERE, PRIVATE, N
from tools.settings import filed

METHODS = ("each", "exchange")
OPTIONS = {**PRIVATE, "strategy": "random", "tighten": "none"}


@pytest.fixture(autouse=True)
def several_buckets(monkeypatch):
    monkeypatch.setattr(bags_in_parts, "BUCKET", 1000)


def faulty(monkeypatch, fault):
    for name in METHODS:
        monkeypatch.setattr(Cluster, name, faults.put_into(name, fault))


def is_whole(path, table):
    release = bw.Release.load(path)
    release.verify()
    keys = release.instances["key"].to_numpy()
    assert np.array_equal(np.sort(keys), table["key"].to_numpy())
    return release


@pytest.mark.parametrize("strategy", ["random", pytest.param("kmeans", marks=pytest.mark.slow)])
def test_tasks_that_fail_and_run_twice_change_nothing(
    monkeypatch, spark, files, table, tmp_path, strategy
):
    faulty(monkeypatch, faults.TwiceAndFailing)
    asked = {**OPTIONS, "strategy": strategy}
    made = bw.make_release(str(files), **filed(engine="spark", spill=tmp_path, **asked))
    is_whole(made.save(tmp_path / "out"), table)
    assert len(list(tmp_path.glob(".bagwise.*.spill/rows.*"))) > 0  # those that did not count
    del made
    assert [p.name for p in tmp_path.iterdir()] == ["out"]  # and no private files


def test_a_frame_that_shows_two_faces_is_looked_at_once(spark, table, tmp_path, monkeypatch):
    from pyspark.sql import functions

    frame = spark.range(N).select(
        (functions.col("id") * 7).alias("key"),
        functions.rand().alias("a"),
        (functions.rand() * 9).alias("y"),
    )
    write = spark_table._write_rows
    monkeypatch.setattr(
        spark_table, "_write_rows", lambda batches, **named: fails_at_first(write, batches, **named)
    )
    made = bw.make_release(frame, **filed(spill=tmp_path, **OPTIONS))
    first = is_whole(made.save(tmp_path / "out"), table)
    again = is_whole(made.save(tmp_path / "again"), table)
    assert first.instances.equals(again.instances)


def fails_at_first(write, batches, **named):
    told = list(write(batches, **named))
    if faults.attempt() == 0:
        raise OSError("out here nothing is withheld")
    return iter(told)


def test_tasks_that_always_fail_leave_nothing_and_say_nothing(
    monkeypatch, spark, files, logs, tmp_path
):
    faulty(monkeypatch, always)
    with pytest.raises(EngineError, match="Spark did not finish a job") as caught:
        bw.make_release(str(files), **filed(engine="spark", spill=tmp_path, **OPTIONS))
    assert faults.SECRET_WORDS not in str(caught.value)
    assert caught.value.__context__ is None
    told = [path.read_text() for path in logs.rglob("*") if path.is_file()]
    assert any("OSError at test_faults.py" in one for one in told)
    assert not any(faults.SECRET_WORDS in one for one in told)
    del caught
    gc.collect()  # frames of the error hold on to the private directory
    assert not list(tmp_path.iterdir())


def always(work):
    def fail(*_):
        raise OSError(faults.SECRET_WORDS)

    return fail


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def two_workers(tmp_path_factory):
    """A cluster of two workers on addresses of their own, for a driver in a process of its own."""
    import pyspark

    home, port, work = Path(pyspark.__file__).parent, free_port(), tmp_path_factory.mktemp("work")
    environment = os.environ | {
        "SPARK_HOME": str(home), "SPARK_LOG_DIR": str(work), "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(HERE.parents[1]), "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    workers = [
        [f"{deploy}.worker.Worker", url, "--host", host, "--cores", "1", "--memory", "1g",
         "--work-dir", str(work / host)]
        for host in ("127.0.0.1", "127.0.0.2")
    ]  # fmt: skip
    started = []
    try:
        for command in (master, *workers):
            with (work / f"{len(started)}.log").open("w") as log:
                started.append(
                    subprocess.Popen(
                        [home / "bin" / "spark-class", *command, "--webui-port", "0"],
                        env=environment, stdout=log, stderr=subprocess.STDOUT,
                    )
                )  # fmt: skip
            time.sleep(5)
        yield url, environment
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accident", "method"), [("kill_the_executor", "exchange"), ("sleep_long", "each")]
)
def test_a_lost_machine_and_a_slow_one(accident, method, two_workers, files, table, tmp_path):
    """An executor is killed with its work done; or a task sleeps, and a copy of it overtakes."""
    url, environment = two_workers
    asked = {
        "files": str(files), "folder": str(tmp_path), "accident": accident, "method": method,
        "settings": {
            "spark.master": url, "spark.executor.memory": "600m",
            "spark.sql.shuffle.partitions": "4", "spark.speculation": "true",
            "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.2",
            "spark.speculation.interval": "200ms", "spark.driver.host": "127.0.0.1",
        },
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "tests.spark.on_a_cluster", json.dumps(asked)],
        env=environment, cwd=HERE.parents[1], check=True, timeout=500,
    )  # fmt: skip
    assert (tmp_path / "marker").exists()
    first, again = (is_whole(tmp_path / name, table) for name in ("out", "again"))
    np.testing.assert_array_equal(first.labels, again.labels)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "marker", "out"]
