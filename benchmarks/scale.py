"""Releases of tables past memory, against a plain DuckDB job with the same limit on the same file.

Every job runs in a process of its own, one after the other; seconds and peak memory are what the
operating system saw. The plain job numbers the rows at random, cuts them into exact bags of 50,
adds up labels by bag, and writes rows and bags. `kmeans` bags are compared with those of one search
in memory, on a million rows of the same data: by the share of the spread that is lost within bags.
Numbers of rows can be given as arguments: for releases, for kmeans, and for the sample.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._results import keep

BAGWISE = "from bagwise.cli import main; main()"
PRIVATE = ["--bounds", "-30", "30", "--epsilon", "1", "--delta", "1e-9"]
SIZE = 50
N, KMEANS_N, SAMPLE_N = 50_000_000, 20_000_000, 1_000_000
LIMIT, KMEANS_LIMIT = "2GB", "4GB"

DUCKDB = """
import sys, duckdb
table, out, limit = sys.argv[1:]
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")
con.execute("SET preserve_insertion_order = false")
con.execute(f"SET memory_limit = '{limit}'")
con.execute(f"SET temp_directory = '{out}/spill'")
con.execute(f'''COPY (
    SELECT * EXCLUDE (drawn), (row_number() OVER (ORDER BY drawn) - 1) // 50 AS bag_id
    FROM (SELECT *, random() AS drawn FROM read_parquet('{table}'))
) TO '{out}/rows.parquet' (FORMAT parquet, COMPRESSION zstd)''')
con.execute(f'''COPY (
    SELECT bag_id, count(*) AS size, avg(y) AS label FROM '{out}/rows.parquet' GROUP BY bag_id
) TO '{out}/bags.parquet' (FORMAT parquet, COMPRESSION zstd)''')
"""

QUALITY = """
import json, sys
import numpy as np
import bagwise as bw
path, limit, spill, out = sys.argv[1:]
made = bw.make_release(path, label="y", bag_size=50, strategy="kmeans", bounds=(-30, 30),
                       epsilon=1, tighten="none", centre="none", memory_limit=limit, spill=spill)
found = made.quality()
made.save(f"{out}")
print(json.dumps({"sse": found.sse_ratio}), file=open(f"{out}.json", "w"))
"""


def write_numbers(path, n, columns=16):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(columns)
    schema = pa.schema({**{f"x{j}": pa.float64() for j in range(columns)}, "y": pa.float64()})
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, n, 1_000_000):
            X = rng.standard_normal((min(1_000_000, n - first), columns))
            y = X @ theta + rng.standard_normal(len(X))
            file.write_table(pa.table([*X.T, y], schema=schema))


def run(code, *arguments):
    """Run Python code in a fresh process; return seconds by clock and processor, and the peak."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**10


def row(case, n, found, **more):
    seconds, processor, peak = found
    return {
        "case": case,
        "rows": n,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "peak_mb": round(peak),
        **more,
    }


def releases(folder, n):
    table = folder / "table.parquet"
    write_numbers(table, n, columns=8)
    (folder / "duckdb").mkdir()
    peer = run(DUCKDB, table, folder / "duckdb", LIMIT)
    yield row("duckdb: number, group, write", n, peer)
    fixed = ["--label", "y", "--bag-size", SIZE, "--quiet", "--memory-limit", LIMIT, *PRIVATE]
    for strategy in ("random", "sorted"):
        out = folder / strategy
        found = run(BAGWISE, "release", table, *fixed, "--strategy", strategy, "-o", out)
        over = {
            "seconds_over_duckdb": round(found[0] / peer[0], 2),
            "processor_over_duckdb": round(found[1] / peer[1], 2),
        }
        yield row(strategy, n, found, **over)


def compact(folder, n, sample):
    lost = {}
    for case, rows, limit in (
        ("kmeans, one search", sample, "1TB"),
        ("kmeans, by cells", n, KMEANS_LIMIT),
    ):
        table, out = folder / f"{rows}.parquet", folder / f"{rows}"
        write_numbers(table, rows)
        found = run(QUALITY, table, limit, folder, out)
        lost[case] = json.loads(Path(f"{out}.json").read_text())["sse"]
        yield row(case, rows, found, spread_lost=round(lost[case], 4))


def main(n=N, kmeans_n=KMEANS_N, sample=SAMPLE_N):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [*releases(folder, n), *compact(folder, kmeans_n, sample)]
    keep("scale", rows, packages=("pyarrow", "duckdb"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
