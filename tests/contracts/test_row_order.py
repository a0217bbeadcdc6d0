"""Nothing that leaves depends on the order of the source, whatever strategy, score or encoder."""

import dataclasses
import warnings

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.bagging import STRATEGIES, BaggingStrategy
from bagwise.bagging.bags import Bags
from bagwise.errors import BagwiseWarning
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.release.build import build_model
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.verbs import ModelRequest
from bagwise.rng import SimulatedNoise
from bagwise.rows.row_order import inverse_order
from tools.settings import filed

N = 90


class Undoing(SimulatedNoise):
    """Noise whose first permutation undoes a shuffle of the source; all else is from the seed."""

    def __init__(self, shuffle):
        super().__init__(7)
        self._undo = inverse_order(shuffle)

    def permutation(self, count):
        undo, self._undo = self._undo, None
        fresh = super().permutation(count)
        return fresh if undo is None else undo[fresh]


@dataclasses.dataclass(frozen=True)
class InOrder(BaggingStrategy):
    """A strategy of a user's own that depends on nothing but the order of the rows."""

    name = "in-order"

    def assign(self, X, scores, *, bag_size, rng):
        n = X.shape[0] // bag_size * bag_size
        return Bags(np.minimum(np.arange(X.shape[0]), n - 1) // bag_size)


def tie_free():
    rng = np.random.default_rng(3)
    holes = rng.lognormal(size=N)
    holes[::11] = np.nan
    return pa.table(
        {
            "a": rng.normal(size=N) * 1e3,
            "b": rng.lognormal(size=N),
            "holes": holes,
            "city": np.array(["Bonn", "Pune", "Oslo", "Lima"])[rng.integers(0, 4, size=N)],
            "y": rng.normal(size=N),
        }
    )


def files(release, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BagwiseWarning)
        made = release.save(path, simulated_noise=True)
    return {file.name: file.read_bytes() for file in made.iterdir()}


WAYS = {
    **{
        name: {"strategy": name, **({"by": "city"} if kind().keeps_groups else {})}
        for name, kind in STRATEGIES.items()
        if not kind().uses_scores
    },
    "within strata": {"strategy": "kmeans", "within": "city"},
    "super sorted": {"strategy": bw.SuperBags(order="sorted"), "scores": "model"},
    "sorted by model": {"strategy": "sorted", "scores": "model"},
    "sorted by noisy labels": {"strategy": "sorted", "scores": "noisy-labels"},
    "auto": {},
    "picks": {"strategy": "kmeans", "label_kind": "pick"},
    "a strategy of one's own": {"strategy": InOrder()},
    "few levels": {"strategy": "kmeans", "max_levels": 2},
}


def release(table, shuffle, **options):
    rng = np.random.default_rng(5)  # where no seed is given, what is public is drawn afresh
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bagwise.release.tables.make_generator", lambda seed: rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            return bw.make_release(
                table.take(shuffle),
                **filed(
                    label="y",
                    **{"bag_size": 9, **options},
                    epsilon=2.0,
                    delta=1e-4,
                    bounds=(-3, 3),
                    not_private=True,
                    noise_source=Undoing(shuffle),
                ),
            )


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_two_orders_of_the_source_give_the_same_files(options, tmp_path):
    table, orders = tie_free(), [np.random.default_rng(seed).permutation(N) for seed in (1, 2)]
    first, second = (
        files(release(table, order, **options), tmp_path / str(i)) for i, order in enumerate(orders)
    )
    assert first == second


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_a_seed_repeats_bags_whatever_the_order_of_the_source(options):
    table, orders = tie_free(), [np.random.default_rng(seed).permutation(N) for seed in (1, 2)]
    keyed = table.append_column("key", pa.array([f"row {i}" for i in range(N)]))
    made = [release(keyed, order, seed=4, id="key", **options) for order in orders]

    def groups(release):
        keys = np.array(release.instances["key"].to_pylist())
        return {frozenset(keys[release.bags.index == b]) for b in range(release.bags.n_bags)}

    assert groups(made[0]) == groups(made[1]) or options.get("scores")  # noise moves the model
    assert made[0].encoder == made[1].encoder


def test_keeping_the_order_keeps_it_only_for_rows_that_leave():
    table, order = tie_free(), np.random.default_rng(1).permutation(N)
    made = release(table, order, keep_order=True, strategy=InOrder())
    assert made.instances["a"].to_pylist() == table.take(order)["a"].to_pylist()
    # Looked at in the order of the first feature, and not in that of the table.
    by_feature = np.argsort(np.argsort(made.instances["a"].to_numpy()))
    first_bag = made.bags.index == made.bags.index[np.argmin(by_feature)]
    assert set(by_feature[first_bag]) == set(range(9))


def test_the_model_released_directly_does_not_know_the_order_either():
    table, models, rule = tie_free(), [], ExactCalibration(2.0, 1e-4, (-3.0, 3.0))
    for seed in (1, 2):
        shuffle = np.random.default_rng(seed).permutation(N)
        budget = Budget(rule, rule.bounds, noise_source=Undoing(shuffle))
        model = build_model(table.take(shuffle), ModelRequest.of(Columns.of("y"), budget))
        models.append((model.coef.tolist(), model.intercept))
    assert models[0] == models[1]
