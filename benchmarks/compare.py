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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from benchmarks._results import RESULTS, RESULTS_VARIABLE, read_rows

Better = Literal["less", "more"]


@dataclass(frozen=True)
class Compared:
    """What tells the rows of a benchmark apart, and which of their fields are ratios.

    `parts` are the arguments with which the benchmark runs: those of its parts that have ratios.
    """

    keys: tuple[str, ...]
    ratios: Mapping[str, Better]
    parts: tuple[str, ...] = ()


# The other benchmarks measure errors and privacy, which are no ratios to a peer.
COMPARED = {
    "cut": Compared(("n", "bag_size", "labels"), {"time_ratio_to_faster_peer": "less"}),
    "kernels": Compared(
        ("part", "data", "n", "d", "bag_size"),
        {
            "times_faster": "more",
            "spread_to_peer": "less",
            "best_spread_to_peer": "less",
            "time_to_faiss": "less",
            "spread_to_mdav": "less",
            "time_to_faiss_pass": "less",
            "extra_memory_to_float32_input": "less",
        },
        ("small", "medium", "large"),
    ),
    "noise": Compared(("scale",), {"times_as_fast": "more"}),
    "learn": Compared(("part", "ours", "peer"), {"ratio": "less", "extra / X": "less"}),
    "theory": Compared(("rows", "threads", "ours"), {"ratio": "less"}),
}


@dataclass(frozen=True)
class Line:
    """One ratio, today and as it was kept; None where it was not measured."""

    benchmark: str
    case: str
    ratio: str
    today: float | None
    kept: float | None
    better: Better

    @property
    def change(self) -> float | None:
        """How much worse the ratio became; None if there is nothing to compare."""
        if not self.today or not self.kept:
            return None
        return self.today / self.kept if self.better == "less" else self.kept / self.today


def compare(
    name: str, today: Iterable[Mapping[str, Any]], kept: Iterable[Mapping[str, Any]]
) -> list[Line]:
    """Return a line for every ratio of a benchmark that one of the two has."""
    then, now = _ratios(name, kept), _ratios(name, today)
    return [
        Line(name, *place, now.get(place), then.get(place), COMPARED[name].ratios[place[1]])
        for place in {**then, **now}
    ]


def _ratios(name: str, rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Return every ratio by its case and its name; cases that look the same are numbered."""
    compared = COMPARED[name]
    found: dict[tuple[str, str], float] = {}
    times: Counter[tuple[str, str]] = Counter()
    for row in rows:
        values = {key: row[key] for key in compared.keys if row.get(key) is not None}
        case = ", ".join(
            value if isinstance(value, str) else f"{key} {value}" for key, value in values.items()
        )
        for ratio in compared.ratios:
            if row.get(ratio) is None:
                continue
            times[case, ratio] += 1
            number = times[case, ratio]
            found[case if number == 1 else f"{case} ({number})", ratio] = float(row[ratio])
    return found


def show(lines: Sequence[Line]) -> str:
    """Return the table."""
    head = ("benchmark", "case", "ratio", "today", "kept", "change")
    body = [
        (line.benchmark, line.case, line.ratio, *map(_number, (line.today, line.kept, line.change)))
        for line in lines
    ]
    return pd.DataFrame(body, columns=head).to_string(index=False)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


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
    parser.add_argument("--fail-above", type=float, metavar="CHANGE")
    parser.add_argument("--today", type=Path, metavar="DIRECTORY")
    asked = parser.parse_args(arguments)
    names = asked.names or list(COMPARED)
    if unknown := [name for name in names if name not in COMPARED]:
        parser.error(f"no ratios in {', '.join(unknown)}; there are some in {', '.join(COMPARED)}")
    with tempfile.TemporaryDirectory() as fresh:
        today = asked.today or Path(fresh)
        if asked.today is None:
            run(names, today)
        lines = [
            line
            for name in names
            for line in compare(name, read_rows(name, today), read_rows(name, RESULTS))
        ]
    print(show(lines))
    limit = asked.fail_above
    worse = [line for line in lines if limit and line.change and line.change > limit]
    if worse:
        print(f"{len(worse)} of {len(lines)} ratios became worse by more than {limit:g}.")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
