"""Each design chooses as many rows as asked for, once each, and never a labelled one."""

import numpy as np
import pytest

from bagwise.annotate import rows as designs
from bagwise.annotate.rows import DESIGNS, choose_rows, shares
from bagwise.bagging import assign_bags
from bagwise.errors import StrategyError
from tests import stats


def rows_of(n=300, d=3):
    return np.random.default_rng(8).normal(size=(n, d))


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("budget", [1, 7, 150, 290])
def test_a_design_chooses_as_many_free_rows_as_asked_for(name, budget):
    free = np.setdiff1d(np.arange(300), np.arange(0, 20, 2))
    found = choose_rows(name, rows_of(), free, budget=budget, rng=np.random.default_rng(0))
    assert found.shape == (budget,)
    assert len(set(found.tolist())) == budget
    assert set(found.tolist()) <= set(free.tolist())


def test_each_group_of_similar_rows_gets_its_share():
    X = np.repeat([[0.0], [50.0], [100.0]], [20, 40, 60], axis=0)
    X += np.random.default_rng(0).normal(size=X.shape)
    found = choose_rows("kmeans", X, np.arange(120), budget=6, rng=np.random.default_rng(0))
    assert sorted(np.round(X[found, 0] / 50)) == [0, 1, 1, 2, 2, 2]


def test_each_row_of_a_bag_is_drawn_as_often_as_the_others():
    # Two groups far apart, of four rows each, of which one is drawn.
    X = np.repeat([[0.0], [99.0]], 4, axis=0) + 0.01 * np.arange(8)[:, None]
    rng = np.random.default_rng(1)
    drawn = [choose_rows("kmeans", X, np.arange(8), budget=2, rng=rng) for _ in range(2000)]
    times = np.bincount(np.concatenate(drawn), minlength=8)
    for count in times:
        drawn_or_not = np.repeat([1.0, 0.0], [count, 2000 - count])
        assert stats.mean_is(drawn_or_not, 1 / 4)
        assert not stats.mean_is(drawn_or_not, 1.5 / 4)


def test_labels_are_shared_out_by_size():
    assert shares(np.array([10, 30, 2]), 3).tolist() == [1, 1, 1]
    assert shares(np.array([1, 1, 5]), 7).tolist() == [1, 1, 5]
    found = shares(np.array([100, 200, 300]), 60)
    assert found.tolist() == [10, 20, 30]


def test_impossible_budgets_and_names_are_refused():
    rng = np.random.default_rng(0)
    for bad in (0, -3, 11, 2.5, True):
        with pytest.raises(StrategyError):
            choose_rows("random", rows_of(10), np.arange(10), budget=bad, rng=rng)
    with pytest.raises(StrategyError, match="Did you mean 'kmeans'"):
        choose_rows("kmean", rows_of(10), np.arange(10), budget=2, rng=rng)


def test_of_a_huge_table_k_means_sorts_some_rows(monkeypatch):
    monkeypatch.setattr(designs, "MOST_ROWS", 50)
    sorted_rows = []
    assign = assign_bags

    def watched(strategy, X, *args, **options):
        sorted_rows.append(len(X))
        return assign(strategy, X, *args, **options)

    monkeypatch.setattr(designs, "assign_bags", watched)
    for budget in (10, 80):
        rng = np.random.default_rng(0)
        found = choose_rows("kmeans", rows_of(), np.arange(300), budget=budget, rng=rng)
        assert len(set(found.tolist())) == budget
    assert sorted_rows == [50, 80]
