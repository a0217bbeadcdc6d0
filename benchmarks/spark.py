"""Releases and a fit on Spark, against a plain sort and Parquet write of the same table by Spark.

All jobs run in one session, ``local[2]``, one after the other, after a job that warms it up. The
plain job sorts by a feature and writes; it runs before and after the others, and its mean counts.
Seconds are of the clock, and, as other jobs may run on the same machine, of the processor: those of
this process, of Spark, and of the Python workers together. Needs ``bagwise[spark]`` and psutil.
Numbers of rows can be given as arguments; exponents are of the last to the first.
"""

import math
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

import bagwise as bw
from bagwise.rows.spark.session import open_session
from benchmarks._results import keep
from benchmarks.scale import SIZE, write_numbers

SIZES = (1_000_000, 5_000_000)
SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "4g"}
PRIVATE = {"label": "y", "bounds": (-30, 30), "epsilon": 1.0, "delta": 1e-9, "bag_size": SIZE}


def used_by_processes():
    """Return the processor seconds that this process, and each that it started, has used."""
    used = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
    return used


def timed(action):
    """Return seconds by clock and processor; workers that ended on the way count for none."""
    clock, before = time.perf_counter(), used_by_processes()
    action()
    seconds, after = time.perf_counter() - clock, used_by_processes()
    return seconds, sum(used - before.get(process, 0) for process, used in after.items())


def plain(spark, table, out):
    spark.read.parquet(str(table)).orderBy("x0").write.parquet(str(out))
    shutil.rmtree(out)


def release(table, out, strategy):
    made = bw.make_release(
        str(table), strategy=strategy, engine=bw.Engine(name="spark", spill=out.parent), **PRIVATE
    )
    made.save(out)


def fit(out):
    from bagwise.learn.on_spark import fit_on_spark

    fit_on_spark(out)


def row(case, n, found, peer=None):
    result = {
        "case": case,
        "rows": n,
        "seconds": round(found[0], 1),
        "processor_seconds": round(found[1], 1),
    }
    if peer is not None:
        result["seconds_over_plain"] = round(found[0] / peer[0], 2)
        result["processor_over_plain"] = round(found[1] / peer[1], 2)
    return result


def measure(spark, folder, n):
    table = folder / f"{n}.parquet"
    write_numbers(table, n)
    first = timed(lambda: plain(spark, table, folder / "plain"))
    found = {}
    for strategy in ("random", "sorted"):
        out = folder / f"{strategy}-{n}"
        found[strategy] = timed(lambda out=out, s=strategy: release(table, out, s))
    found["gaussian fit of random"] = timed(lambda: fit(folder / f"random-{n}"))
    last = timed(lambda: plain(spark, table, folder / "plain"))
    peer = tuple((a + b) / 2 for a, b in zip(first, last, strict=True))
    shutil.rmtree(folder / f"random-{n}")
    yield row("plain sort and write", n, peer)
    for case, seconds in found.items():
        yield row(case, n, seconds, peer)


def exponents(rows):
    for case in dict.fromkeys(one["case"] for one in rows):
        first, *_, last = [one for one in rows if one["case"] == case]
        grown = math.log(last["rows"] / first["rows"])
        yield {
            "case": f"{case}: exponent",
            "rows": last["rows"],
            "seconds": round(math.log(last["seconds"] / first["seconds"]) / grown, 2),
            "processor_seconds": round(
                math.log(last["processor_seconds"] / first["processor_seconds"]) / grown, 2
            ),
        }


def main(*sizes):
    spark = open_session(SETTINGS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_numbers(folder / "small.parquet", 100_000)
        plain(spark, folder / "small.parquet", folder / "plain")
        release(folder / "small.parquet", folder / "small", "sorted")
        rows = [one for n in sizes or SIZES for one in measure(spark, folder, n)]
    spark.stop()
    keep(
        "spark",
        [*rows, *(exponents(rows) if len(sizes or SIZES) > 1 else ())],
        packages=("pyspark", "pyarrow"),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
