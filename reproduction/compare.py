"""The paper's comparison on a table of one's own: strategies by losses, on held-out rows."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bagwise._types import FloatArray
from bagwise.bagging import assign_bags, find_strategy
from bagwise.bagging.bags import Bags
from bagwise.errors import BagwiseWarning, StrategyError, shielded
from bagwise.learn import BaggedGLM
from bagwise.privacy.noise import pick_rows
from bagwise.rng import SimulatedNoise
from bagwise.rows.columns import find_column, select_features
from bagwise.rows.encode import Encoder
from bagwise.rows.table import read_table
from reproduction.cells import LABEL_KINDS
from reproduction.measured import Estimate

HELD_OUT = 0.25


@dataclass(frozen=True)
class Compared:
    """What one way to bag and to learn keeps of a model of the row labels."""

    strategy: str
    bag_size: int
    loss: str
    # Share of the squared error that least squares on the row labels takes off the error of the
    # mean label, on held-out rows: 1 is as good as row labels, 0 as good as nothing.
    kept: Estimate


def compare(
    table: Any,
    *,
    label: str,
    bag_sizes: Sequence[int] = (10, 50),
    strategies: Sequence[str] = ("random", "kmeans", "sorted", "super"),
    losses: Sequence[str] = ("bag", "aggregate", "instance"),
    runs: int = 5,
    seed: int = 0,
) -> list[Compared]:
    """Compare strategies and losses on a table, without privacy, as the paper's tables do.

    Bag labels are means for bag loss and picks for the others. Sorted bags, and super-bags, which
    are random halves of sorted ones, are sorted by the labels. All ways of a run see the same rows.

    Parameters
    ----------
    table : path, frame, or Source
        Its label is a number without missing values.
    runs : int
        Splits into rows to learn from and held-out ones, each with its own bags.

    Examples
    --------
    >>> import pandas as pd
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x @ [2.0, 1.0] + 1})
    >>> [kmeans] = compare(frame, label="y", bag_sizes=[5], strategies=["kmeans"], losses=["bag"])
    >>> round(kmeans.kept.mean, 3)
    1.0
    """
    if unknown := set(losses) - set(LABEL_KINDS):
        raise StrategyError(f"losses are {', '.join(LABEL_KINDS)}; got {', '.join(unknown)}.")
    rows = read_table(table, index_names=[label])
    column = find_column(rows, label, role="label")
    wrong = StrategyError(f"label {label!r} must be a number in every row.")
    y = shielded(lambda: np.asarray(column.to_numpy(), dtype=np.float64), lambda _: wrong)
    if not np.isfinite(y).all():
        raise wrong
    names = select_features(rows, reserved=[label], features=None, exclude=())
    X = Encoder.for_table(rows, names).transform(rows)
    ways = list(product(strategies, bag_sizes, losses))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)  # some ways are here to be warned of
        kept = np.array(
            [_run(X, y, ways, np.random.default_rng([seed, run])) for run in range(runs)]
        )
    return [Compared(*way, Estimate.of(kept[:, place])) for place, way in enumerate(ways)]


def _run(
    X: FloatArray, y: FloatArray, ways: Sequence[tuple[str, int, str]], rng: np.random.Generator
) -> list[float]:
    """Return what every way keeps on one split."""
    order = rng.permutation(len(y))
    held_out, learnt = np.split(order, [round(HELD_OUT * len(y))])
    ceiling = float(np.mean((y[held_out] - y[learnt].mean()) ** 2))

    def error(model: BaggedGLM) -> float:
        return float(np.mean((model.predict(X[held_out]) - y[held_out]) ** 2))

    floor = error(BaggedGLM(ridge=0.0).fit(X[learnt], y[learnt]))
    made: dict[tuple[str, int], Bags] = {}
    kept = []
    for name, bag_size, loss in ways:
        if (name, bag_size) not in made:
            strategy = find_strategy(name, {"order": "sorted"} if name == "super" else None)
            made[name, bag_size] = assign_bags(
                strategy, X[learnt], y[learnt], bag_size=bag_size, rng=rng
            )
        bags, kind = made[name, bag_size], LABEL_KINDS[loss]
        labels = bags.mean(y[learnt])
        if kind == "pick":
            labels = y[learnt][pick_rows(bags, SimulatedNoise(rng))]
        model = BaggedGLM(loss=loss, label_kind=kind, ridge=0.0)
        model.fit(X[learnt], labels[bags.index], bags=bags)
        kept.append((ceiling - error(model)) / (ceiling - floor))
    return kept
