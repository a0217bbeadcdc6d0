"""Error against budget: every way to choose rows and to use their labels.

    python -m benchmarks.annotate [--tables NAME...] [--seeds 0 1 2 3] [--budgets 50 150 ...]
    python -m benchmarks.annotate --page

Rows of the paper's synthetic data and of four real tables are taken to be without labels; a design
chooses some, their labels are looked up, a model is fitted by each use of the labels, and predicts
held-out rows. What is kept is the share that a model loses of what a model of all labels gains over
the mean: 0 is as good as all labels, 1 is no better than the mean. Each table is kept as soon as it
is done, beside what was kept of other seeds, and the last step writes docs/results/annotate;
``--page`` does that alone.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.annotate.bought import Bought
from bagwise.annotate.designs import Selection, find_design
from bagwise.annotate.expected import OWN_ROW, YARDSTICK, expected_of
from bagwise.annotate.pool import Pool
from bagwise.annotate.selection import choose_use, unit_deviance
from bagwise.annotate.uses import USES, Fitted, try_fit
from bagwise.errors import BagwiseWarning
from bagwise.families import Family, find_family
from bagwise.learn.estimator import BaggedGLM
from bagwise.paper.synthetic import isotropic_problem
from bagwise.planner.prior import read_prior
from benchmarks import _annotate_report as report
from benchmarks import _real_tables

BUDGETS = (50, 150, 500, 1500, 5000)
TABLES = ("paper", "diamonds", "visits", "children", "flights")
ROWS = 10_000  # to choose from
HELD_OUT = 20_000
CHOSEN = "cross-validation"
IN_ROUNDS = "bags-kmeans, then bags-boosted"


@dataclass(frozen=True)
class Problem:
    """Rows to choose from, rows to predict, and all their labels."""

    X: FloatArray
    labels: FloatArray
    family: Family
    bounds: tuple[float, float] | None
    held_out: FloatArray
    truth: FloatArray
    about: str

    def loss(self, means: FloatArray) -> float:
        """Return the mean deviance of held-out labels, or of their expectations."""
        with np.errstate(all="ignore"):
            found = unit_deviance(self.family, self.truth, means)
        return float(np.mean(found)) if np.isfinite(found).all() else np.inf

    def scale(self) -> tuple[float, float]:
        """Return the loss of a model of all labels, and that of their mean."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            model = BaggedGLM(family=self.family, loss="aggregate", ridge=0.0)
            model.fit(self.X, self.labels, bags=np.arange(len(self.X)))
        mean = np.full(len(self.truth), self.labels.mean())
        return self.loss(model.predict(self.held_out)), self.loss(mean)


def load(name: str) -> Problem:
    """Return a table by name."""
    if name == "paper":
        whole = isotropic_problem(n=ROWS + HELD_OUT, d=32)
        held = slice(ROWS, None)
        return Problem(
            whole.X[:ROWS], whole.labels[:ROWS], find_family("gaussian"), None,
            whole.X[held], whole.labels[held],
            "The paper's isotropic data: 32 standard Gaussian columns, labels with noise 0.5.",
        )  # fmt: skip
    table = _real_tables.load(name)
    X, other = table.encoded
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(X))[:ROWS]
    held = rng.permutation(len(other))[:HELD_OUT]
    return Problem(
        X[rows], table.labels[rows], find_family(table.family), table.bounds, other[held],
        table.held_out[held], f"{table.about} {table.source}.",
    )  # fmt: skip


def measure(name: str, budgets: Sequence[int], seeds: Sequence[int]) -> dict[str, Any]:
    """Return every way's loss on one table."""
    problem = load(name)
    best, mean = problem.scale()
    prior = read_prior(None, problem.bounds, problem.family)
    pool = Pool(problem.X, prior)
    rows: list[dict[str, Any]] = []
    for budget in budgets:
        for seed in seeds:
            start = time.perf_counter()
            for row in _ways(problem, pool, budget, seed):
                lost = (row.pop("loss") - best) / (mean - best)
                row["lost"] = float(lost) if np.isfinite(lost) else None
                rows.append({"budget": budget, "seed": seed, **row})
            print(f"{name} {budget} {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    return {"about": problem.about, "rows": len(problem.X), "columns": problem.X.shape[1],
            "family": problem.family.name, "measured": rows}  # fmt: skip


def _ways(problem: Problem, pool: Pool, budget: int, seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng([seed, budget])
    for design, pick in (
        (YARDSTICK, "random"), ("rows-spread", "random"), ("rows-a-optimal", "random"),
        ("rows-v-optimal", "random"), ("bags-random", "random"), ("bags-aligned", "random"),
        ("bags-kmeans", "random"), ("bags-kmeans", "medoid"),
    ):  # fmt: skip
        if seed and design in ("rows-a-optimal", "rows-v-optimal", "bags-aligned"):
            continue  # chance has no part in the first two, and the last takes long
        drawn = find_design(design).draw(pool, budget=budget, pick=pick, rng=rng)[0]
        expected = next(e for e in expected_of(pool, drawn, design=design) if e.use == OWN_ROW)
        named = {"design": f"{design}, medoid" if pick == "medoid" else design,
                 "expected": expected.risk.total}  # fmt: skip
        slow = seed == 0 and named["design"] == "bags-kmeans"
        yield from _uses(problem, _bought(problem, [drawn]), named, slow=slow)
    yield from _uses(problem, _in_rounds(problem, pool, budget, rng), {"design": IN_ROUNDS})


def _uses(
    problem: Problem, bought: Bought, named: dict[str, Any], *, slow: bool = False
) -> Iterator[dict[str, Any]]:
    """Fit every use, the `slow` one if told, and the one that cross-validation chooses."""
    everything = np.arange(bought.n_labels)
    names = [name for name in USES if name != "mixture"]
    for use in USES.values():
        if use.objection(bought) is None and (slow or use.name in names):
            fitted = try_fit(use, bought, everything)
            yield {**named, "use": use.name, "loss": _loss_of(problem, fitted)}
    chosen = choose_use(bought, names)
    loss = _loss_of(problem, chosen.fitted)
    yield {**named, "use": CHOSEN, "chosen": chosen.use.name, "loss": loss}


def _loss_of(problem: Problem, fitted: Fitted | None) -> float:
    if fitted is None:
        return np.inf
    with np.errstate(all="ignore"):
        return problem.loss(problem.family.mean(fitted.predictor(problem.held_out)))


def _bought(problem: Problem, drawn: list[Selection]) -> Bought:
    """Return labels that were bought in rounds."""
    sizes = [one.rows.size for one in drawn]
    rows, rounds = np.concatenate([one.rows for one in drawn]), np.repeat(range(len(drawn)), sizes)
    share = np.repeat(np.array(sizes) / sum(sizes), sizes)
    weights = np.concatenate([one.weights for one in drawn]) * share
    bags = [one.bags for one in drawn]
    return Bought(problem.X, rows, problem.labels[rows], problem.family, rounds, bags, weights)


def _in_rounds(problem: Problem, pool: Pool, budget: int, rng: np.random.Generator) -> Bought:
    """Buy half of the labels by features, and half by what they predict."""
    first = find_design("bags-kmeans").draw(pool, budget=budget // 2, pick="random", rng=rng)[0]
    fitted = choose_use(_bought(problem, [first]), ["rows", "shrunk", "covariance"]).fitted
    informed = Pool(pool.X, pool.prior, first.rows, problem.family.mean(fitted.predictor(pool.X)))
    second = find_design("bags-boosted").draw(
        informed, budget=budget - budget // 2, pick="random", rng=rng
    )[0]
    return _bought(problem, [first, second])


def _keep(path: Path, name: str, found: dict[str, Any]) -> None:
    """Write a table's figures beside those of other tables, and of other seeds."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    seeds = {row["seed"] for row in found["measured"]}
    before = kept.get(name, {}).get("measured", [])
    found["measured"] = [row for row in before if row["seed"] not in seeds] + found["measured"]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        f" {json.dumps(key)}: {json.dumps(value)}" for key, value in {**kept, name: found}.items()
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Measure, keep, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=TABLES, choices=TABLES)
    parser.add_argument("--budgets", nargs="*", type=int, default=BUDGETS)
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2, 3))
    parser.add_argument("--folder", type=Path, default=report.PUBLISHED)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    for name in () if options.page else options.tables:
        _keep(options.folder / "results.json", name, measure(name, options.budgets, options.seeds))
    report.write(options.folder)


if __name__ == "__main__":
    main()
