"""What bounds cost that are too wide, and what private looks cost where bounds are right.

On a real table with bounds once, five and fifty times as wide as they should be: the share kept by
the shortest command, and by the same without any look at the labels. At the paper's setting, where
every bound is too wide: the error of the slopes. Results go into
benchmarks/results/wide_bounds.json.

python -m benchmarks.wide_bounds [--only diamonds paper] [--draws N] [--paper-draws N]
"""

import argparse
import dataclasses
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import bagwise as bw
from benchmarks._real_tables import load
from benchmarks._real_words import percent
from benchmarks._results import keep, read_rows
from benchmarks._same_bags import remembered_bags
from benchmarks.defaults import (
    NO_LOOKS,
    PAPER,
    PAPER_D,
    PAPER_DELTA,
    Scale,
    choice_of,
    paired_difference,
    summary,
)
from reproduction.problems import isotropic_problem, public_bounds

Record = dict[str, Any]

NAME, TABLE = "wide_bounds", "diamonds"
CASES = ((1, 0.1), (1, 0.5), (1, 1.0), (5, 0.1), (5, 0.5), (50, 0.5))
"""How many times too wide the bounds are, and epsilon."""

SEEDS = 4
"""Partitions that draws take turns with."""

PAPER_EPSILONS = (0.5, 1.0)


def measure_table(draws: int) -> Iterator[Record]:
    """Compare the shortest command with the same without looks, draw by draw on the same seeds."""
    scale = Scale.of(load(TABLE))
    low, high = scale.data.bounds
    for factor, epsilon in CASES:
        start = time.perf_counter()
        data = dataclasses.replace(scale.data, bounds=(low, low + factor * (high - low)))
        found: dict[str, list[float]] = {"looks": [], "none": []}
        choices: Record = {}
        for draw in range(draws):
            for way, asked in (("looks", {}), ("none", NO_LOOKS)):
                release = bw.make_release(
                    data.train,
                    label=data.label,
                    bounds=data.bounds,
                    epsilon=epsilon,
                    bagging=bw.Bagging(seed=draw % SEEDS),
                    **asked,
                )
                found[way].append(scale.kept_by(release))
                choices[way] = choice_of(release)
        middle, interval = paired_difference(found["looks"], found["none"])
        yield {
            "part": "table",
            "table": TABLE,
            "times_too_wide": factor,
            "epsilon": epsilon,
            "draws": draws,
            **{way: {**choices[way], **summary(found[way])} for way in found},
            "difference": middle,
            "interval": interval,
            "seconds": round(time.perf_counter() - start, 1),
        }


def measure_paper(draws: int) -> Iterator[Record]:
    """Return the error of the slopes; every draw has its own data."""
    for epsilon in PAPER_EPSILONS:
        start, errors, release = time.perf_counter(), [], None
        for draw in range(draws):
            problem = isotropic_problem(d=PAPER_D, seed=1000 + draw)
            release = bw.make_release(
                problem.to_table(), label="y", bounds=public_bounds(PAPER_D), epsilon=epsilon,
                delta=PAPER_DELTA,
            )  # fmt: skip
            errors.append(problem.error(bw.fit_release(release, family="gaussian").coef))
        yield {
            "part": PAPER,
            "epsilon": epsilon,
            "draws": draws,
            **choice_of(release),
            "mean_error": float(np.mean(errors)),
            "standard_error": float(np.std(errors, ddof=1) / math.sqrt(draws)),
            "errors": errors,
            "seconds": round(time.perf_counter() - start, 1),
        }


def in_words(row: Record) -> str:
    """Return a row in one line."""
    if row["part"] == PAPER:
        return (
            f"paper at {row['epsilon']:g}: {row['mean_error']:.5f} +- {row['standard_error']:.5f} "
            f"({row['strategy']}, {row['bag_size']}), {row['seconds']:.0f} s"
        )
    return (
        f"{row['table']}, {row['times_too_wide']} times too wide, at {row['epsilon']:g}: "
        f"{percent(row['looks']['mean'])} % (worst {percent(row['looks']['worst'])}) against "
        f"{percent(row['none']['mean'])} % without looks, {row['seconds']:.0f} s"
    )


def _cell(row: Record) -> tuple[Any, ...]:
    return row["part"], row.get("times_too_wide"), row["epsilon"]


def main() -> None:
    """Measure what is asked for, and keep it after every row."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=[TABLE, PAPER], default=[PAPER, TABLE])
    arguments.add_argument("--draws", type=int, default=20)
    arguments.add_argument("--paper-draws", type=int, default=10)
    asked = arguments.parse_args()
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    for part in asked.only:
        rows = measure_paper(asked.paper_draws) if part == PAPER else measure_table(asked.draws)
        with remembered_bags():
            _keep_all(rows)


def _keep_all(rows: Iterator[Record]) -> None:
    for row in rows:
        print(in_words(row), flush=True)
        others = [kept for kept in read_rows(NAME) if _cell(kept) != _cell(row)]
        keep(NAME, sorted([*others, row], key=lambda one: str(_cell(one))), show=False)


if __name__ == "__main__":
    main()
