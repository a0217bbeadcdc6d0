"""Each design chooses as many rows as asked for, once each, and never a labelled one."""

import itertools

import numpy as np
import pytest

from bagwise.annotate.designs import check_budget, design_names, find_design, shares
from bagwise.annotate.optimal_rows import greedy_rows
from bagwise.annotate.pool import MOST_ROWS, Pool, draw_pool
from bagwise.errors import ProjectError, StrategyError
from bagwise.planner.prior import Prior
from tests import stats


def make_pool(n=300, d=3, labelled=(), **more):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n, d))
    return Pool(X, Prior(1.0, 1.0), labelled=np.array(labelled, dtype=np.int64), **more)


@pytest.mark.parametrize("name", design_names(with_model=True))
@pytest.mark.parametrize("budget", [1, 7, 150, 290])
def test_a_design_chooses_as_many_free_rows_as_asked_for(name, budget):
    pool = make_pool(labelled=range(0, 20, 2), predictions=np.arange(300.0))
    for pick in ("random", "medoid"):
        found = find_design(name).draw(
            pool, budget=budget, pick=pick, rng=np.random.default_rng(0)
        )[0]
        assert found.rows.shape == found.weights.shape == (budget,)
        assert len(set(found.rows.tolist())) == budget
        assert not set(found.rows.tolist()) & set(pool.labelled.tolist())
        assert found.weights.sum() == pytest.approx(290)
        if name.startswith("bags-"):
            assert set(found.bags.index[found.rows]) == set(range(found.bags.n_bags))
            assert (found.bags.index[pool.labelled] == -1).all()
        else:
            assert found.bags is None


def test_the_medoid_is_the_row_nearest_to_the_centre():
    pool = make_pool()
    found = find_design("bags-kmeans").draw(
        pool, budget=10, pick="medoid", rng=np.random.default_rng(0)
    )[0]
    white = pool.white.rows
    for row in found.rows:
        members = np.flatnonzero(found.bags.index == found.bags.index[row])
        centre = white[members].mean(axis=0)
        distance = np.linalg.norm(white[members] - centre, axis=1)
        assert members[np.argmin(distance)] == row


def test_each_row_of_a_bag_is_picked_as_often_as_the_others():
    pool = make_pool(n=12)
    rng = np.random.default_rng(1)
    design = find_design("bags-kmeans")
    drawn = design.draw(pool, budget=3, pick="random", rng=rng, times=6000)
    times = np.bincount(np.concatenate([one.rows for one in drawn]), minlength=12)
    sizes = drawn[0].bags.sizes[drawn[0].bags.index]
    for count, size in zip(times, sizes, strict=True):
        drawn_or_not = np.repeat([1.0, 0.0], [count, 6000 - count])
        assert stats.mean_is(drawn_or_not, 1 / size)
        assert not stats.mean_is(drawn_or_not, 1.25 / size)


def test_labels_are_shared_out_by_size():
    assert shares(np.array([10, 30, 2]), 3).tolist() == [1, 1, 1]
    assert shares(np.array([1, 1, 5]), 7).tolist() == [1, 1, 5]
    found = shares(np.array([100, 200, 300]), 60)
    assert found.tolist() == [10, 20, 30]


def test_greedy_rows_are_the_best_next_ones_by_brute_force():
    rng = np.random.default_rng(4)
    Z, metric = rng.normal(size=(30, 3)), np.diag([1.0, 5.0, 0.2])
    precision, known = 0.3 * np.eye(3), rng.normal(size=(4, 3))

    def criterion(rows):
        some = np.concatenate([known, Z[list(rows)]])
        return np.trace(metric @ np.linalg.inv(precision + some.T @ some))

    found = greedy_rows(Z, metric, budget=12, precision=precision, known=known)
    for step in range(12):
        before = found[:step].tolist()
        rest = [row for row in range(30) if row not in before]
        assert found[step] == min(rest, key=lambda row: criterion([*before, row]))


def test_greedy_rows_stay_exact_over_hundreds_of_steps():
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(700, 4))
    found = greedy_rows(Z, np.eye(4), budget=400, precision=np.eye(4))
    before = Z[found[:399]]
    inverse = np.linalg.inv(np.eye(4) + before.T @ before)
    worth = np.einsum("ij,jk,ik->i", Z, inverse @ inverse, Z)
    gain = worth / (1 + np.einsum("ij,jk,ik->i", Z, inverse, Z))
    gain[found[:399]] = -np.inf
    assert found[399] == np.argmax(gain)


def test_greedy_rows_are_near_the_best_of_all_sets():
    rng = np.random.default_rng(6)
    Z, prior = rng.normal(size=(14, 2)), 0.1 * np.eye(2)

    def criterion(rows):
        return np.trace(np.linalg.inv(prior + Z[list(rows)].T @ Z[list(rows)]))

    found = criterion(greedy_rows(Z, np.eye(2), budget=5, precision=prior))
    best = min(criterion(rows) for rows in itertools.combinations(range(14), 5))
    random = np.mean([criterion(rng.choice(14, 5, replace=False)) for _ in range(200)])
    assert best <= found < best + 0.1 * (random - best)


def test_boosted_bags_hold_rows_with_like_predictions():
    predictions = np.random.default_rng(2).normal(size=300)
    pool = make_pool(predictions=predictions)
    found = find_design("bags-boosted").draw(
        pool, budget=10, pick="random", rng=np.random.default_rng(0)
    )[0]
    ordered = found.bags.index[np.argsort(predictions)]
    assert np.count_nonzero(np.diff(ordered)) == found.bags.n_bags - 1
    with pytest.raises(ProjectError, match="needs a model"):
        find_design("bags-boosted").draw(
            make_pool(), budget=10, pick="random", rng=np.random.default_rng(0)
        )


def test_impossible_budgets_and_names_are_refused():
    pool = make_pool(n=10)
    for bad in (0, -3, 11, 2.5, True):
        with pytest.raises(StrategyError):
            check_budget(bad, pool)
    with pytest.raises(StrategyError, match="Did you mean 'bags-kmeans'"):
        find_design("bags-kmean")


def test_of_a_huge_table_some_rows_are_looked_at():
    found = draw_pool(3 * MOST_ROWS, np.random.default_rng(0))
    assert found.size == np.unique(found).size == MOST_ROWS
