"""Keep what was measured, with what is needed to read it later."""

import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# `benchmarks.compare` has results written elsewhere, so that the kept ones stay as they are.
RESULTS_VARIABLE = "BAGWISE_BENCHMARK_RESULTS"
RESULTS = Path(os.environ.get(RESULTS_VARIABLE) or Path(__file__).parent / "results")


def keep(name, rows, packages=(), *, show=True):
    """Write results/NAME.json, and print the rows if asked."""
    for row in rows if show else ():
        print(row)
    content = {
        "command": f"python -m benchmarks.{name}",
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in ("bagwise", "numpy", *packages)},
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def read_rows(name, directory=RESULTS):
    """Return the rows that were kept last, or none."""
    path = directory / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def timed(action, *arguments, repeats=1, **keywords):
    """Return the least of some times, in seconds, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = action(*arguments, **keywords)
        times.append(time.perf_counter() - start)
    return min(times), result


def memory(entry):
    """Return what Linux says of this process, such as VmRSS or VmHWM, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{entry}:")[1].split()[0]) * 1024


def in_markdown(head, lines, words=2):
    """Return the lines of a table whose first columns are words, the others numbers."""
    rule = [*["---"] * words, *["---:"] * (len(head) - words)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)]


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None
