"""Today's ratios beside the kept ones, in one table; the kept results stay as they are.

    python -m benchmarks.compare [NAME ...] [--fail-above 1.3] [--today DIRECTORY]

Each benchmark runs in a process of its own and writes into a directory that is thrown away. Only
ratios to a peer of the same run are compared: seconds of another machine, or of a busier hour, mean
nothing. Change is how much worse a ratio became, whichever way it counts: 1.1 is a tenth worse,
0.9 a tenth better. The exit status is 0 unless ``--fail-above`` is given and a change is above it.
``--today`` compares results that were written before instead of running anything.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks._results import RESULTS, RESULTS_VARIABLE, read_rows

LESS, MORE = 1, -1  # which is better


class Compared(NamedTuple):
    """What tells rows apart, which fields are ratios, and arguments for the parts that have any."""

    keys: tuple[str, ...]
    ratios: Mapping[str, int]
    parts: tuple[str, ...] = ()


# The other benchmarks measure errors and privacy, which are no ratios to a peer.
COMPARED = {
    "cut": Compared(("n", "bag_size", "labels"), {"time_ratio_to_faster_peer": LESS}),
    "kernels": Compared(
        ("part", "data", "n", "d", "bag_size"),
        {
            "times_faster": MORE,
            **dict.fromkeys(("spread_to_peer", "best_spread_to_peer", "time_to_faiss"), LESS),
            **dict.fromkeys(("spread_to_mdav", "time_to_faiss_pass"), LESS),
            "extra_memory_to_float32_input": LESS,
        },
        ("small", "medium", "large"),
    ),
    "noise": Compared(("scale",), {"times_as_fast": MORE}),
    "learn": Compared(("part", "ours", "peer"), {"ratio": LESS, "extra / X": LESS}),
    "theory": Compared(("rows", "threads", "ours"), {"ratio": LESS}),
}


def compare(
    name: str, today: Iterable[Mapping[str, Any]], kept: Iterable[Mapping[str, Any]]
) -> pd.DataFrame:
    """Return every ratio that one of the two has, and how much worse it became."""
    then, now = _ratios(name, kept), _ratios(name, today)
    found = pd.DataFrame(
        [(name, *place, now.get(place), then.get(place)) for place in {**then, **now}],
        columns=["benchmark", "case", "ratio", "today", "kept"],
    ).astype({"today": float, "kept": float})
    return found.assign(
        change=(found.today / found.kept) ** found.ratio.map(COMPARED[name].ratios).astype(float)
    )


def _ratios(name: str, rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Return every ratio by its case and its name; cases that look the same are numbered."""
    found: dict[tuple[str, str], float] = {}
    times: Counter[tuple[str, str]] = Counter()
    for row in rows:
        values = ((key, row.get(key)) for key in COMPARED[name].keys)
        case = ", ".join(
            value if isinstance(value, str) else f"{key} {value}"
            for key, value in values
            if value is not None
        )
        for ratio in COMPARED[name].ratios:
            if row.get(ratio) is not None:
                times[case, ratio] += 1
                number = times[case, ratio]
                found[case if number == 1 else f"{case} ({number})", ratio] = row[ratio]
    return found


def run(names: Iterable[str], directory: Path) -> None:
    """Run benchmarks, each in a process of its own, with their results in a directory."""
    for name in names:
        # Standard output is for the table alone.
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", *COMPARED[name].parts],
            check=True,
            stdout=sys.stderr,
            env={**os.environ, RESULTS_VARIABLE: str(directory)},
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what is named, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMPARED))
    parser.add_argument("--fail-above", type=float, metavar="CHANGE", default=float("inf"))
    parser.add_argument("--today", type=Path, metavar="DIRECTORY")
    asked = parser.parse_args(arguments)
    names = asked.names or list(COMPARED)
    if unknown := [name for name in names if name not in COMPARED]:
        parser.error(f"no ratios in {', '.join(unknown)}; there are some in {', '.join(COMPARED)}")
    with tempfile.TemporaryDirectory() as fresh:
        today = asked.today or Path(fresh)
        if asked.today is None:
            run(names, today)
        found = pd.concat(
            [compare(name, read_rows(name, today), read_rows(name, RESULTS)) for name in names]
        )
    print(found.to_string(index=False, na_rep="-", float_format="{:.3g}".format))
    worse = int((found.change > asked.fail_above).sum())
    if worse:
        print(f"{worse} of {len(found)} ratios became worse by more than {asked.fail_above:g}.")
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
