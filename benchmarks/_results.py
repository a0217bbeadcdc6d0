"""Keep what was measured, with what is needed to read it later."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# `benchmarks.compare` has results written elsewhere, so that the kept ones stay as they are.
RESULTS_VARIABLE = "BAGWISE_BENCHMARK_RESULTS"
RESULTS = Path(os.environ.get(RESULTS_VARIABLE) or Path(__file__).parent / "results")


def keep(name, rows, packages=(), *, show=True, command=None):
    """Write results/NAME.json, with the command if it is not NAME, and print the rows if asked."""
    for row in rows if show else ():
        print(row)
    content = {
        "command": f"python -m benchmarks.{command or name}",
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in ("bagwise", "numpy", *packages)},
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")


def read_rows(name):
    """Return the rows that were kept last, or none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None
