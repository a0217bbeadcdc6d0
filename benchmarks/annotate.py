"""What a labelling budget buys, beside scikit-learn's models of the same rows.

    python -m benchmarks.annotate [--tables NAME...] [--budgets 100 300 1000] [--draws 10]

Ten thousand rows of a real table are taken to be without labels; a project chooses some of them,
their labels are looked up, and `annotate fit` predicts held-out rows. scikit-learn's model of the
same rows has its default settings, on columns as they are and on standardised ones. Every draw
goes to docs/results/annotate/results.json.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import AnnotationProject
from bagwise._types import FloatArray
from bagwise.annotate.rows import DESIGNS
from benchmarks import _real_tables
from benchmarks._real_scores import score
from benchmarks._results import timed

PUBLISHED = Path("docs/results/annotate")
ROWS, HELD_OUT = 10_000, 20_000
BUDGETS = (100, 300, 1000)
PEERS: dict[str, Callable[[], Any]] = {
    "gaussian": Ridge,
    "poisson": PoissonRegressor,
    "bernoulli": LogisticRegression,
    "multinomial": LogisticRegression,
}


@dataclass(frozen=True)
class Problem:
    """Rows to choose from, rows to predict, and what is public about their labels."""

    about: str
    rows: pa.Table
    held_out: pa.Table
    label: str
    family: str
    options: dict[str, Any]

    def loss(self, predicted: FloatArray) -> float:
        """Return the mean loss of held-out labels."""
        y = np.array(self.held_out[self.label].to_pylist())
        if self.family == "multinomial":
            y = np.searchsorted(self.options["classes"], y)
        return score(self.family, y, predicted)["loss"]


def load(name: str) -> Problem:
    """Return a problem by name."""
    about, source, label, family = TABLES[name]
    table = _real_tables.load(source)
    rng = np.random.default_rng(0)
    train, held_out = (
        part.take(rng.permutation(part.num_rows)[:most])
        for part, most in ((table.train, ROWS), (table.test, HELD_OUT))
    )
    if name == "late":
        train, held_out = (_late(part) for part in (train, held_out))
    options: dict[str, Any] = {"family": family}
    if family == "multinomial":
        options["classes"] = sorted(set(train[label].to_pylist()))
    elif family != "bernoulli":
        options["bounds"] = table.bounds
        values = np.clip(train[label].to_numpy(), *table.bounds)
        train = train.set_column(train.column_names.index(label), label, pa.array(values))
    return Problem(about, train, held_out, label, family, options)


def _late(flights: pa.Table) -> pa.Table:
    late = (flights["arr_delay"].to_numpy() > 15).astype(np.float64)
    return flights.drop_columns(["arr_delay"]).append_column("late", pa.array(late))


# name: about, table, label, family
TABLES = {
    "late": ("whether a flight arrives more than 15 minutes late", "flights", "late", "bernoulli"),
    "children": ("whether a mother of two had more", "children", "morekids", "bernoulli"),
    "stops": ("whether a police stop was for traffic", "stops", "problem", "bernoulli"),
    "cut": ("cut of a diamond, five classes", "diamonds", "cut", "multinomial"),
    "visits": ("visits to a doctor in a year", "visits", "mdvis", "poisson"),
    "homers": ("home runs in a season", "homers", "hr", "poisson"),
    "diamonds": ("price of a diamond", "diamonds", "price", "gaussian"),
    "deliveries": ("minutes until food arrives", "deliveries", "time_to_delivery", "gaussian"),
}


def measure(problem: Problem, budget: int, design: str, draw: int) -> dict[str, float]:
    """Return the losses of one draw of rows, and the seconds that the fit took."""
    keyed = problem.rows.append_column("key", pa.array(np.arange(problem.rows.num_rows)))
    with tempfile.TemporaryDirectory() as place:
        project = AnnotationProject.start(
            keyed, Path(place) / "p", label=problem.label, budget=budget, design=design,
            id="key", seed=draw, **problem.options,
        )  # fmt: skip
        asked = project.to_label()["key"]
        rows = np.array([int(key) for key in asked.to_pylist()])
        y = problem.rows[problem.label].take(pa.array(rows))
        project.import_labels(pa.table({"key": asked, problem.label: y}))
        seconds, model = timed(project.fit)
    X = model.encoder.transform(problem.rows.take(pa.array(rows)))
    other, labels = model.encoder.transform(problem.held_out), y.to_numpy()
    peer = PEERS[problem.family]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {
            "bagwise": problem.loss(model.predict(problem.held_out)),
            "scikit-learn": problem.loss(_predicted(problem, peer(), X, labels, other)),
            "scikit-learn, standardised": problem.loss(
                _predicted(problem, make_pipeline(StandardScaler(), peer()), X, labels, other)
            ),
            "seconds": seconds,
        }


def _predicted(problem: Problem, peer: Any, X: FloatArray, y: Any, other: FloatArray) -> FloatArray:
    peer.fit(X, y)
    if problem.family in ("gaussian", "poisson"):
        return np.clip(peer.predict(other), *problem.options["bounds"])
    chances = peer.predict_proba(other)
    if problem.family == "bernoulli":
        return chances[:, 1]
    every = np.full((len(other), len(problem.options["classes"])), 1e-15)
    every[:, np.searchsorted(problem.options["classes"], peer.classes_)] = chances
    return every


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--budgets", nargs="*", type=int, default=BUDGETS)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=PUBLISHED)
    options = parser.parse_args(arguments)
    cells = []
    for name in options.tables:
        problem = load(name)
        for budget in options.budgets:
            for design in DESIGNS:
                draws = [measure(problem, budget, design, draw) for draw in range(options.draws)]
                cells.append({"table": name, "budget": budget, "design": design, "draws": draws})
                print(name, budget, design, _means(draws), flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(cell) for cell in cells)
    (options.folder / "results.json").write_text(f"[\n{lines}\n]\n")


def _means(draws: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}


if __name__ == "__main__":
    main()
