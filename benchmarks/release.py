"""A release of 1,000,000 x 32: time of each stage, and peak memory against the size of X.

Each release runs in a process of its own, started like a user would start it; the peak is what the
operating system saw (ru_maxrss), Python and its libraries included. Reading the file with pyarrow
alone, in another process, is the yardstick in the same run.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._results import keep

N, D = 1_000_000, 32
X_BYTES = N * D * 8

CASES = {
    "sorted, not private": ["--strategy", "sorted", "--not-private"],
    "random, epsilon 1": [
        *("--strategy", "random", "--epsilon", "1", "--delta", "1e-7"),
        *("--bounds", "-30", "30"),
    ],
}

TIMED = """
import json, time
stages = [("importing", time.perf_counter())]
def mark(name):
    stages.append((name, time.perf_counter()))
from bagwise import api, cli
from bagwise.show import stages as staging
from bagwise.release.release import Release
call, save = staging.Stages.__call__, Release.save
def marked(self, name, *arguments, **options):
    mark(name)
    return call(self, name, *arguments, **options)
def marked_save(*arguments, **options):
    mark("writing the release")
    return save(*arguments, **options)
staging.Stages.__call__, Release.save = marked, marked_save
try:
    cli.main()
except SystemExit as end:
    code = end.code
print(json.dumps([code, stages, time.perf_counter()]))
"""


def write_table(path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = X @ rng.standard_normal(D) + 0.5 * rng.standard_normal(N)
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": y}), path)


def run(code, arguments):
    """Run Python code in a fresh process; return its last line and its peak memory in bytes."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(errors.decode())
    return output.decode().strip().splitlines()[-1], usage.ru_maxrss * 1024


def main():
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.parquet"
        write_table(table)
        read = f"import pyarrow.parquet as pq; print(pq.read_table({str(table)!r}).num_rows)"
        _, read_peak = run(read, [])
        for name, options in CASES.items():
            out = str(Path(folder) / name.split(",")[0])
            fixed = [
                "release",
                str(table),
                "--label",
                "y",
                "--bag-size",
                "10",
                "-o",
                out,
                "--quiet",
            ]
            line, peak = run(TIMED, [*fixed, *options])
            code, stages, end = json.loads(line)
            assert not code, code
            rows.append(
                {
                    "case": name,
                    "rows": N,
                    "features": D,
                    "stage_seconds": stage_seconds(stages, end),
                    "peak_over_x": round(peak / X_BYTES, 3),
                    "read_alone_peak_over_x": round(read_peak / X_BYTES, 3),
                    "release_bytes_over_x": round(folder_size(out) / X_BYTES, 3),
                }
            )
    keep("release", rows, packages=("pyarrow", "opendp"))


def stage_seconds(stages, end):
    moments = [moment for _, moment in stages] + [end]
    lengths = np.diff(moments).round(3).tolist()
    return {name: seconds for (name, _), seconds in zip(stages, lengths, strict=True)}


def folder_size(path):
    return sum(file.stat().st_size for file in Path(path).iterdir())


if __name__ == "__main__":
    main()
