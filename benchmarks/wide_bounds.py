"""What bounds cost that are too wide, and what private queries cost where bounds are right.

On a real table with bounds once, five and fifty times as wide as they should be: the share kept by
the shortest command, and by the same without private queries on the labels, draw by draw on the
same bags. Results go into benchmarks/results/wide_bounds.json.

python -m benchmarks.wide_bounds [--draws N]
"""

import argparse
import dataclasses
import warnings

import bagwise as bw
from benchmarks._real_tables import load
from benchmarks._results import keep
from benchmarks._same_bags import remembered_bags
from benchmarks.defaults import NO_QUERIES, Scale, paired_difference, summary

CASES = ((1, 0.1), (1, 0.5), (1, 1.0), (5, 0.1), (5, 0.5), (50, 0.5))
"""How many times too wide the bounds are, and epsilon."""

SEEDS = 4  # partitions that draws take turns with


def measure(times: int, epsilon: float, draws: int) -> dict[str, object]:
    """Compare the shortest command with the same without queries."""
    scale = Scale.of(load("diamonds"))
    low, high = scale.data.bounds
    data = dataclasses.replace(scale.data, bounds=(low, low + times * (high - low)))
    shares: dict[str, list[float]] = {"queries": [], "none": []}
    for draw in range(draws):
        for way, options in (("queries", {}), ("none", NO_QUERIES)):
            release = bw.make_release(
                data.train, label=data.label, bounds=data.bounds, epsilon=epsilon,
                bagging=bw.Bagging(seed=draw % SEEDS), **options,
            )  # fmt: skip
            shares[way].append(scale.kept_by(release))
    middle, interval = paired_difference(shares["queries"], shares["none"])
    return {
        "times_too_wide": times,
        "epsilon": epsilon,
        "draws": draws,
        **{way: summary(found) for way, found in shares.items()},
        "difference": middle,
        "interval": interval,
    }


def main() -> None:
    """Measure all cases, and keep them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--draws", type=int, default=20)
    draws = arguments.parse_args().draws
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    with remembered_bags():
        keep("wide_bounds", [measure(*case, draws) for case in CASES])


if __name__ == "__main__":
    main()
