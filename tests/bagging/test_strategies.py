"""What single strategies promise beyond the contract."""

import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.api import make_bags
from bagwise.bagging import BaggingStrategy, find_strategy, sorted_bags
from bagwise.bagging.bags import Bags
from bagwise.bagging.random_bags import RandomBags, SuperBags
from bagwise.bagging.sorted_bags import SortedBags
from bagwise.errors import StrategyError
from tests import stats

X = np.zeros((23, 1))


def test_random_spreads_the_rest_one_per_bag():
    assert sorted(make_bags(X, bag_size=5, seed=0).sizes) == [5, 6, 6, 6]


def test_random_pairs_are_equally_likely():
    together = np.zeros(4)
    for seed in range(3000):
        index = make_bags(np.zeros((4, 1)), bag_size=2, strategy=RandomBags(), seed=seed).index
        together[1:] += index[0] == index[1:]
    assert together.sum() == 3000
    assert stats.is_uniform(together[1:])


def test_sorted_bags_are_runs_of_the_scores():
    scores = np.random.default_rng(0).permutation(23).astype(float)
    equal = make_bags(X, bag_size=5, strategy=SortedBags(cut="equal"), scores=scores)
    assert equal.index[np.argsort(scores)].tolist() == sorted(equal.index)
    assert equal.sizes.tolist() == [5, 6, 6, 6]


def test_super_bags_are_split_at_random():
    scores = np.arange(23.0)
    bags = make_bags(X, bag_size=5, strategy=SuperBags(order="sorted"), scores=scores, seed=1)
    assert bags.sizes.tolist() == [5, 6, 6, 6]
    pairs = bags.index // 2
    assert pairs.tolist() == sorted(pairs)
    assert (
        len({tuple(make_bags(X, bag_size=5, strategy="super", seed=s).index) for s in range(5)})
        == 5
    )


def test_half_leaves_the_other_half_out():
    strategy = SuperBags(order="sorted", half=True)
    bags = make_bags(np.zeros((20, 1)), bag_size=5, strategy=strategy, scores=np.arange(20.0))
    assert bags.sizes.tolist() == [5, 5]
    assert (~bags.in_bag).sum() == 10
    assert set(np.flatnonzero(bags.index == 0)) <= set(range(10))


def test_parameters_by_name():
    assert find_strategy("sorted", {"cut": "equal"}) == SortedBags(cut="equal")
    given = {"half": "True", "order": "sorted"}
    assert find_strategy("super", given) == SuperBags(half=True, order="sorted")
    for name, parameters, message in (
        ("sorted", {"cut": "diagonal"}, "unknown cut 'diagonal'"),
        ("super", {"order": "up"}, "unknown order 'up'"),
        ("super", {"half": "yes"}, "true or false"),
        ("random", {"half": "true"}, "no parameter 'half'; it has none"),
        ("nearest", {}, "unknown strategy 'nearest'; known are random"),
    ):
        with pytest.raises(StrategyError, match=message):
            find_strategy(name, parameters)
    with pytest.raises(StrategyError, match="not a bagging strategy"):
        find_strategy(3)
    with pytest.raises(StrategyError, match="name or an instance"):
        find_strategy(RandomBags)


def test_make_bags_checks_its_input():
    with pytest.raises(StrategyError, match="two dimensions"):
        make_bags(np.zeros(5), bag_size=2)
    with pytest.raises(StrategyError, match="NaN"):
        make_bags(np.full((5, 1), np.nan), bag_size=2)
    with pytest.raises(StrategyError, match="needs scores"):
        make_bags(X, bag_size=5, strategy="sorted")


@dataclass(frozen=True)
class EveryOther(BaggingStrategy):
    """A strategy of a user's own that leaves half of the rows out."""

    name: ClassVar[str] = "every-other"
    weight: float = 1.0

    def assign(self, X, scores, *, bag_size, rng):
        index = np.full(X.shape[0], -1)
        index[::2] = np.arange(index[::2].size) // bag_size
        index[index == index.max()] -= index.max() > 0  # the last bag may be short
        return Bags(index)


def test_a_strategy_of_one_s_own_makes_releases_that_verify(tmp_path):
    table = pa.table({"x": np.arange(40) / 7, "y": np.arange(40.0)})
    options = {"label": "y", "bag_size": 4, "bounds": (0, 40), "epsilon": 1.0, "delta": 1e-6}
    made = bw.make_release(table, strategy=EveryOther(2.0), **options)
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    loaded.verify()
    assert loaded.provenance.strategy_parameters == {"weight": 2.0}
    assert (~loaded.bags.in_bag).sum() == 20


def test_strategies_that_a_manifest_cannot_describe_are_refused_before_labels_are_used():
    class Plain(BaggingStrategy):
        name = "plain"
        assign = EveryOther.assign

    @dataclass(frozen=True)
    class Impostor(RandomBags):
        extra: int = 1

    for strategy, message in (
        (Plain(), "must be a dataclass"),
        (Impostor(), "belongs to another strategy"),
        (EveryOther(weight=np.inf), "plain numbers and text"),
        (EveryOther(weight=np.zeros(2)), "plain numbers and text"),
    ):
        with pytest.raises(StrategyError, match=message):
            find_strategy(strategy)


@pytest.mark.parametrize("levels", [None, 1, 3, 40])
def test_scores_that_are_sorted_by_parts_are_sorted(levels, monkeypatch):
    monkeypatch.setattr(sorted_bags, "_AT_ONCE", 100)
    monkeypatch.setattr(sorted_bags, "_SAMPLED", 50)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=1_234) if levels is None else rng.integers(0, levels, 1_234) / 7
    order = sorted_bags.sort_with_random_ties(scores, np.random.default_rng(1))
    assert np.array_equal(np.sort(order), np.arange(scores.size))
    assert np.all(np.diff(scores[order]) >= 0)
    if levels is None:
        assert np.array_equal(order, np.argsort(scores))


def test_equal_scores_that_are_sorted_by_parts_are_in_any_order(monkeypatch):
    monkeypatch.setattr(sorted_bags, "_AT_ONCE", 2)
    scores, first = np.array([0.0, 1.0, 1.0, 1.0, 1.0]), np.zeros(5)
    for seed in range(2_000):
        first[sorted_bags.sort_with_random_ties(scores, np.random.default_rng(seed))[1]] += 1
    assert stats.is_uniform(first[1:])


@pytest.mark.parametrize(("strategy", "bytes_a_row"), [(RandomBags(), 9), (SortedBags(), 13)])
def test_vectors_of_all_rows_are_few(strategy, bytes_a_row, monkeypatch):
    monkeypatch.setattr(sorted_bags, "_AT_ONCE", 2**14)
    n = 2**20
    scores = np.random.default_rng(0).normal(size=n)
    nothing = np.empty((n, 0))
    strategy.assign(nothing[:100], scores[:100], bag_size=50, rng=np.random.default_rng(0))
    tracemalloc.start()
    strategy.assign(nothing, scores, bag_size=50, rng=np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < bytes_a_row * n + 2**23  # which is for blocks of rows
