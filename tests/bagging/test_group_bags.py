"""Bags that are given, and strata that no bag crosses."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bagwise as bw
from bagwise.bagging import STRATEGIES, group_bags
from bagwise.bagging.group_bags import merge_small
from bagwise.errors import BagTooSmallError, StrategyError


def within_bags(centres, sizes, bag):
    """Return the sum of squares of groups around the centres of their bags."""
    total = 0.0
    for number in set(bag.tolist()):
        here = bag == number
        middle = np.average(centres[here], axis=0, weights=sizes[here])
        total += float(np.sum(sizes[here] * np.sum((centres[here] - middle) ** 2, axis=1)))
    return total


@given(
    seed=st.integers(0, 500),
    n=st.integers(1, 60),
    groups=st.integers(1, 20),
    least=st.integers(1, 15),
)
@settings(max_examples=60)
def test_groups_are_whole_and_merged_only_if_one_is_too_small(seed, n, groups, least):
    if n < least:
        return
    rng = np.random.default_rng(seed)
    X, given_groups = rng.normal(size=(n, 2)), rng.integers(groups, size=n)
    bags = bw.make_bags(X, bag_size=least, strategy="groups", groups=given_groups, seed=seed)
    assert bags.sizes.min() >= least
    for number in range(groups):
        assert len(set(bags.index[given_groups == number].tolist())) <= 1
    sizes = np.bincount(given_groups)
    for bag in range(bags.n_bags):
        inside = np.unique(given_groups[bags.index == bag])
        assert np.sum(sizes[inside] >= least) <= 1


def test_a_small_group_goes_where_it_makes_bags_least_less_compact():
    """One group is too small: its best partner by brute force is the one it gets."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        centres = rng.normal(size=(7, 2))
        sizes = np.array([3, 12, 15, 40, 11, 90, 25])
        costs = {}
        for partner in range(1, 7):
            bag = np.arange(7)
            bag[0] = partner
            costs[partner] = within_bags(centres, sizes, bag)
        found = merge_small(centres, sizes, 10, rng)
        partners = np.flatnonzero(found == found[0])
        assert partners.tolist() == [0, min(costs, key=costs.get)]
        # By distance alone, sizes left out, it would be another one in some of these draws.


def test_mergers_are_nearly_as_compact_as_the_best_of_all():
    rng = np.random.default_rng(0)
    found, best, random = 0.0, 0.0, 0.0
    for _ in range(20):
        centres, sizes = rng.normal(size=(6, 2)), rng.integers(2, 5, size=6)
        allowed = []
        for labels in itertools.product(range(3), repeat=6):
            bag = np.array(labels)
            if min(sizes[bag == one].sum() for one in set(labels)) >= 6:
                allowed.append(within_bags(centres, sizes, bag))
        best += min(allowed)
        random += float(np.median(allowed))
        found += within_bags(centres, sizes, merge_small(centres, sizes, 6, rng))
    assert found < (best + random) / 2  # greedy, so not the best
    assert random > 1.5 * best  # so that the check above could fail


def test_many_groups_are_merged_in_cells(monkeypatch):
    """Cells are there for speed: what they make is as valid, and nearly as compact."""
    rng = np.random.default_rng(1)
    centres, sizes = rng.normal(size=(600, 2)), rng.integers(1, 6, size=600)
    whole = merge_small(centres, sizes, 12, rng)
    monkeypatch.setattr(group_bags, "CELL", 50)
    cells = merge_small(centres, sizes, 12, rng)
    assert np.bincount(cells, weights=sizes).min() >= 12
    assert within_bags(centres, sizes, cells) < 1.3 * within_bags(centres, sizes, whole)
    monkeypatch.setattr(group_bags, "CELL", 3)  # cells that do not fill a bag by themselves
    assert np.bincount(merge_small(centres, sizes, 100, rng), weights=sizes).min() >= 100


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "groups"])
def test_no_strategy_crosses_a_stratum(name):
    rng = np.random.default_rng(0)
    X, scores, town = rng.normal(size=(90, 2)), rng.normal(size=90), rng.choice(list("abc"), 90)
    options = {"bag_size": 6, "strategy": name, "scores": scores, "seed": 0}
    bags = bw.make_bags(X, strata=town, **options)
    assert bags.sizes.min() >= 6
    for number in range(bags.n_bags):
        assert len(set(town[bags.index == number])) == 1
    free = bw.make_bags(X, **options)
    assert any(len(set(town[free.index == number])) > 1 for number in range(free.n_bags))


def test_groups_in_strata_are_merged_inside_them():
    X = np.array([[0.0], [0.1], [0.0], [0.1], [9.0], [9.0]])
    options = {"bag_size": 2, "strategy": "groups", "groups": [0, 1, 2, 3, 4, 4]}
    bags = bw.make_bags(X, strata=[0, 1, 0, 1, 0, 0], **options)
    assert bags.take(np.arange(6)).index.tolist() == [0, 1, 0, 1, 2, 2]
    assert bw.make_bags(X, **options).n_bags == 3
    # A group that is in two strata is two groups.
    assert bw.make_bags(X, **{**options, "groups": [7] * 6}, strata=[0, 1] * 3).n_bags == 2


def test_what_cannot_be_is_refused():
    X = np.zeros((10, 1))
    with pytest.raises(StrategyError, match="takes no groups"):
        bw.make_bags(X, bag_size=2, strategy="random", groups=[0] * 10)
    with pytest.raises(StrategyError, match="groups must be one per row"):
        bw.make_bags(X, bag_size=2, strategy="groups", groups=[0] * 9)
    with pytest.raises(BagTooSmallError, match="smallest stratum has 1 rows"):
        bw.make_bags(X, bag_size=2, strata=[0] * 9 + [1])
