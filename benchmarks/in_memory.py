"""Releases of tables that fit into memory, against a plain DuckDB job on the same file.

Every job runs in a process of its own, one after the other; times of the processor and of the clock
and the peak memory are what the operating system saw, Python and its libraries included. The plain
job numbers the rows at random, cuts them into exact bags of 50, adds up labels by bag, and writes
rows and bags: what any random release has to do. A number of rows can be given as an argument.
"""

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

N, D, SIZE = 10_000_000, 16, 50
MIXED_N = 1_000_000

DUCKDB = """
import sys, duckdb
table, out = sys.argv[1:]
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")
con.execute("SET preserve_insertion_order = false")
con.execute(f'''COPY (
    SELECT * EXCLUDE (drawn), (row_number() OVER (ORDER BY drawn) - 1) // 50 AS bag_id
    FROM (SELECT *, random() AS drawn FROM read_parquet('{table}'))
) TO '{out}/rows.parquet' (FORMAT parquet, COMPRESSION zstd)''')
con.execute(f'''COPY (
    SELECT bag_id, count(*) AS size, avg(y) AS label FROM '{out}/rows.parquet' GROUP BY bag_id
) TO '{out}/bags.parquet' (FORMAT parquet, COMPRESSION zstd)''')
"""

BAGWISE = "from bagwise.cli import main; main()"
PRIVATE = ["--bounds", "-30", "30", "--epsilon", "1", "--delta", "1e-9"]


def write_numbers(path, n, columns=D):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(columns)
    schema = pa.schema({**{f"x{j}": pa.float64() for j in range(columns)}, "y": pa.float64()})
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, n, 1_000_000):
            X = rng.standard_normal((min(1_000_000, n - first), columns))
            y = X @ theta + rng.standard_normal(len(X))
            file.write_table(pa.table([*X.T, y], schema=schema))


def write_mixed(path, n):
    """Numbers and text columns of 10, 1,000 and 100,000 levels, few of them frequent."""
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.standard_normal(n) for j in range(4)}
    for name, levels in {"few": 10, "many": 1_000, "most": 100_000}.items():
        number = np.minimum(rng.pareto(0.5, n).astype(np.int64), levels - 1)
        columns[name] = pa.array(np.char.add(name, number.astype(str)))
    columns["y"] = columns["x0"] + rng.standard_normal(n)
    pq.write_table(pa.table(columns), path)


def run(code, *arguments):
    """Run Python code in a fresh process; return seconds by clock and processor, and the peak."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments} failed")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**10


def row(case, n, found, peer=None):
    seconds, processor, peak = found
    result = {
        "case": case,
        "rows": n,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "peak_mb": round(peak),
    }
    if peer is not None:
        result["seconds_over_duckdb"] = round(seconds / peer[0], 2)
        result["processor_over_duckdb"] = round(processor / peer[1], 2)
        result["peak_over_duckdb"] = round(peak / peer[2], 2)
    return result


def main(n=N):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        table, mixed = Path(folder) / "table.parquet", Path(folder) / "mixed.parquet"
        write_numbers(table, n)
        (Path(folder) / "duckdb").mkdir()
        peer = run(DUCKDB, table, Path(folder) / "duckdb")
        rows.append(row("duckdb: number, group, write", n, peer))
        fixed = ["--label", "y", "--bag-size", SIZE, "--quiet"]
        for case, options in {
            "random": ["--strategy", "random", *PRIVATE],
            "sorted by a model": ["--strategy", "sorted", *PRIVATE],
        }.items():
            out = Path(folder) / case
            found = run(BAGWISE, "release", table, *fixed, *options, "-o", out)
            rows.append(row(case, n, found, peer))
            if case == "random":
                rows.append(row("verify random", n, run(BAGWISE, "verify", out, "--quiet"), peer))
        write_mixed(mixed, min(n, MIXED_N))
        options = [*fixed, "--strategy", "kmeans", *PRIVATE, "-o", Path(folder) / "mixed"]
        rows.append(row("mixed kmeans", min(n, MIXED_N), run(BAGWISE, "release", mixed, *options)))
    keep("in_memory", rows, packages=("pyarrow", "duckdb"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
