"""Time and memory that damaged, edited and forged files cost their reader, at worst.

It reads 2,000 mutants of releases, models and bounds in one process. Memory is the largest that
the process was while it read a file, less what it was before; Linux only.
"""

import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks._results import keep, memory
from tests.fuzz.mutations import make_originals, mutants
from tests.fuzz.test_mutants import read

COUNT = 2000
SECONDS, BYTES = 2.0, 500 * 2**20


def start_over():
    """Forget the largest that the process has been, and say what it is now."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def measure(directory):
    originals = make_originals(directory)
    outcomes, worst_time, worst_growth = Counter(), (0.0, ""), (0.0, "")
    for mutant in mutants(originals, directory, np.random.default_rng(1), COUNT):
        before, start = start_over(), time.perf_counter()
        try:
            read(mutant)
            outcome = "read"
        except Exception as error:
            outcome = type(error).__name__
        worst_time = max(worst_time, (time.perf_counter() - start, mutant.what))
        worst_growth = max(worst_growth, (memory("VmHWM") - before, mutant.what))
        outcomes[outcome] += 1
    return {
        "files": COUNT,
        "outcomes": dict(outcomes.most_common()),
        "longest_seconds": round(worst_time[0], 3),
        "longest": worst_time[1],
        "largest_growth_mb": round(worst_growth[0] / 2**20, 1),
        "largest": worst_growth[1],
        "within_target": worst_time[0] < SECONDS and worst_growth[0] < BYTES,
    }


def main():
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory))
    keep("hostile", [found], packages=("pyarrow",))


if __name__ == "__main__":
    main()
