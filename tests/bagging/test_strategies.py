"""What single strategies promise beyond the contract."""

import numpy as np
import pytest

from bagwise.api import make_bags
from bagwise.bagging import find_strategy
from bagwise.bagging.random_bags import RandomBags
from bagwise.bagging.sorted_bags import SortedBags
from bagwise.bagging.super_bags import SuperBags
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
    assert find_strategy("super", {"half": "True", "order": "sorted"}).half
    for name, parameters, message in (
        ("sorted", {"cut": "diagonal"}, "cut must be one of"),
        ("super", {"order": "up"}, "order must be one of"),
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
    with pytest.raises(StrategyError, match="got none"):
        make_bags(X, bag_size=5, strategy="sorted")
    with pytest.raises(StrategyError, match="name one instead"):
        from bagwise.api import _resolve_strategy

        _resolve_strategy("auto", {"half": "true"})
