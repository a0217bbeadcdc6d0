"""The demo on built-in data: release by several strategies, learn, compare with the truth."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray
from bagwise.api import make_release, release_model
from bagwise.bagging import BaggingStrategy
from bagwise.bagging.random_bags import RandomBags
from bagwise.bagging.sorted_bags import SortedBags
from bagwise.bagging.super_bags import SuperBags
from bagwise.errors import BagwiseWarning
from bagwise.learn import BaggedGLM, fit_release
from bagwise.release.release import Release
from bagwise.rng import Seed, make_generator
from bagwise.rows.labels import Bounds
from bagwise.show.operator_notes import operator_notes_to

EPSILON, DELTA = 1.0, 1e-5
LOSSES: dict[str, dict[str, Any]] = {
    "instance": {"loss": "instance"},
    "debiased": {"loss": "instance", "debias": True},
    "bag": {"loss": "bag"},
    "aggregate": {"loss": "aggregate"},
}


@dataclass(frozen=True)
class LinearProblem:
    """Rows X, true coefficients theta, and labels ``X theta`` plus Gaussian noise."""

    X: FloatArray
    theta: FloatArray
    labels: FloatArray

    def to_table(self, label: str = "y") -> pa.Table:
        """Return features x0, x1, … and the label as a table."""
        columns = {f"x{j}": self.X[:, j] for j in range(self.X.shape[1])}
        return pa.table({**columns, label: self.labels})

    def error(self, coef: FloatArray) -> float:
        """Return the squared distance to the true coefficients."""
        return float(np.sum((coef - self.theta) ** 2))


def isotropic_problem(
    n: int = 50_000, d: int = 32, label_noise_sd: float = 0.5, seed: Seed = 0
) -> LinearProblem:
    """Draw standard Gaussian features and coefficients, with the paper's sizes as defaults."""
    rng = make_generator(seed)
    X = rng.standard_normal((n, d))
    theta = rng.standard_normal(d)
    return LinearProblem(X, theta, X @ theta + label_noise_sd * rng.standard_normal(n))


def public_bounds(d: int, *, label_noise_sd: float = 1.0) -> Bounds:
    """Four standard deviations of such a label, known from the set-up and not from the labels."""
    radius = 4 * math.sqrt(d + label_noise_sd**2)
    return -radius, radius


@dataclass(frozen=True)
class DemoRow:
    """The error of one way to bag, one kind of label, and each loss."""

    private: bool
    strategy: str
    bag_size: int
    label_kind: str
    errors: tuple[float, ...]  # in the order of LOSSES


@dataclass(frozen=True)
class DemoResult:
    """What the demo found, and one private release to look at."""

    n: int
    d: int
    truth_norm: float
    row_level_error: float
    direct_error: float
    rows: tuple[DemoRow, ...]
    release: Release

    @property
    def loss_names(self) -> list[str]:
        """Names of the losses, in the order of each row's errors."""
        return list(LOSSES)

    @property
    def remarks(self) -> list[str]:
        """What to read off the table."""
        return [
            "Instance loss on random bags shrinks the slopes to a tenth; 'debiased' is "
            "the same with that undone.",
            "Bags sorted by label serve instance loss and bias the others. They show the labels "
            "too, so they are never private.",
            "With epsilon, 'sorted' means by the predictions of a private model, which is published"
            " too. Random bags are the private baseline.",
            f"A linear model released directly, with the same epsilon, has an error of "
            f"{self.direct_error:.2g}: bags are for those who need data.",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "n": self.n,
            "d": self.d,
            "truth_norm": self.truth_norm,
            "row_level_error": self.row_level_error,
            "direct_error": self.direct_error,
            "rows": [
                {**asdict(row), "errors": dict(zip(LOSSES, row.errors, strict=True))}
                for row in self.rows
            ],
        }


Recipe = tuple[str, BaggingStrategy, int, str, bool]


def recipes() -> list[Recipe]:
    """List what is tried: name, strategy, bag size, label kind, private."""
    strategies: list[tuple[str, BaggingStrategy]] = [
        ("random", RandomBags()),
        ("super sorted", SuperBags(order="sorted")),
        ("sorted", SortedBags()),
    ]
    open_ones = [
        (name, strategy, 10, kind, False)
        for kind, (name, strategy) in product(("mean", "pick"), strategies)
    ]
    private: list[Recipe] = [
        ("random", RandomBags(), 50, "mean", True),
        ("sorted", SortedBags(), 50, "mean", True),
        ("sorted", SortedBags(), 500, "mean", True),
    ]
    return [*open_ones, *private]


def run_demo(
    *, n: int = 50_000, d: int = 32, on_step: Callable[[str], None] = lambda _name: None
) -> DemoResult:
    """Run every recipe; a few seconds at the default size."""
    problem = isotropic_problem(n=n, d=d)
    table = problem.to_table()
    on_step("ordinary least squares on the true labels")
    row_level = BaggedGLM(loss="instance").fit(problem.X, problem.labels)
    on_step("a private model, released directly")
    direct = release_model(table, label="y", bounds=public_bounds(d), epsilon=EPSILON, delta=DELTA)
    rows, release = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)  # the table shows what they warn of
        for recipe, release in _releases(table, recipes(), on_step):
            rows.append(_measure(recipe, release, problem))
    if release is None:
        raise AssertionError("there is always a recipe")
    return DemoResult(
        n=n,
        d=d,
        truth_norm=float(np.sum(problem.theta**2)),
        row_level_error=problem.error(row_level.coef_),
        direct_error=problem.error(direct.coef),
        rows=tuple(rows),
        release=release,
    )


def _releases(
    table: pa.Table, wanted: list[Recipe], on_step: Callable[[str], None]
) -> Iterator[tuple[Recipe, Release]]:
    d = table.num_columns - 1
    for recipe in wanted:
        name, strategy, bag_size, kind, private = recipe
        on_step(f"{name} bags of {bag_size}, {kind} labels{', private' if private else ''}")
        with operator_notes_to(lambda _note: None):  # nobody's labels are at stake
            release = make_release(
                table,
                label="y",
                bag_size=bag_size,
                strategy=strategy,
                label_kind=kind,
                bounds=public_bounds(d) if private else None,
                epsilon=EPSILON if private else None,
                delta=DELTA if private else None,
                not_private=not private,
            )
        yield recipe, release


def _measure(recipe: Recipe, release: Release, problem: LinearProblem) -> DemoRow:
    name, _, bag_size, kind, private = recipe
    models = (fit_release(release, **how) for how in LOSSES.values())
    errors = tuple(problem.error(model.coef) for model in models)
    return DemoRow(private, name, bag_size, kind, errors)
