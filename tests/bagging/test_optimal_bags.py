import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bagwise as bw
from bagwise.api import make_bags
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.bagging.optimal_bags import OptimalBags, _spanning, draw_in
from bagwise.errors import StrategyError
from tests.bagging.tables import tables
from tests.cluster import reference


def rows(n=300, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.geomspace(0.3, 3, max(d, 1))[:d]


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def optimal(X, bag_size, *, seed=0, **parameters):
    parameters = {"effort": "fast"} | parameters
    return make_bags(X, bag_size=bag_size, strategy=OptimalBags(**parameters), seed=seed)


@given(tables(rows, most=60), st.sampled_from(["none", "std"]), st.sampled_from([None, 1.0, 3.0]))
def test_sizes_hold_for_any_table(table, scale, clip):
    X, bag_size = table
    bags = optimal(X, bag_size, scale=scale, clip=clip)
    assert bags.in_bag.all()
    assert bags.n_bags == X.shape[0] // bag_size
    assert bags.sizes.max() - bags.sizes.min() <= 1
    assert np.array_equal(bags.index, optimal(X, bag_size, scale=scale, clip=clip).index)


@pytest.mark.parametrize("scale", ["none", "std"])
@pytest.mark.parametrize("clip", [None, 3.0])
@pytest.mark.parametrize("heavy", [False, True])
def test_the_error_on_the_clipped_rows_is_at_most_that_of_k_means_bags(scale, clip, heavy):
    better = 0
    for seed in range(5):
        X = rows(seed=seed)
        if heavy:
            X *= np.exp(np.random.default_rng(seed).normal(size=(300, 1)))
        # The same draws lead to the k-means bags that the search starts from.
        rng, before = np.random.default_rng(seed), np.empty(300, dtype=int)
        shuffle = rng.permutation(300)
        start = KMeansBags(effort="fast").assign(X[shuffle], None, bag_size=10, rng=rng)
        before[shuffle] = start.index
        after = optimal(X, 10, scale=scale, clip=clip, seed=seed).index
        judged = standardised(X) if scale == "std" else X - X.mean(axis=0)
        judged = draw_in(judged, clip)
        found, before = (reference.trace_of(judged, labels) for labels in (after, before))
        assert found <= before * (1 + 1e-9)
        better += found < before
    assert better >= 4


def test_the_error_is_in_the_units_that_were_asked_for():
    X = rows(600) * [1, 1, 1, 1e-3]
    standard = standardised(X)
    none, std = (optimal(X, 10, scale=scale, clip=None).index for scale in ("none", "std"))
    centred = X - X.mean(axis=0)
    assert reference.trace_of(centred, none) < reference.trace_of(centred, std)
    assert reference.trace_of(standard, std) < reference.trace_of(standard, none)


@pytest.mark.parametrize("seed", range(3))
def test_bags_are_the_best_for_the_rows_as_clipped(seed):
    X = rows(seed=seed) * np.exp(np.random.default_rng(seed).normal(size=(300, 1)))
    X -= X.mean(axis=0)
    clipped, trusting = (optimal(X, 10, clip=clip).index for clip in (1.5, None))
    drawn = draw_in(X, 1.5)
    assert reference.trace_of(drawn, clipped) < 0.99 * reference.trace_of(drawn, trusting)
    assert reference.trace_of(X, trusting) < 0.99 * reference.trace_of(X, clipped)


def leverages(X):
    return np.diag(X @ np.linalg.pinv(X.T @ X) @ X.T)


@pytest.mark.parametrize("clip", [1.0, 2.0, 3.0])
def test_rows_are_drawn_in_to_the_leverage_that_is_allowed(clip):
    X = rows(50, 3)
    X[:3] *= 20
    X -= X.mean(axis=0)
    limit = clip * 3 / 50
    expected = X.copy()
    for i, leverage in enumerate(leverages(X)):
        if leverage > limit:
            expected[i] *= np.sqrt(limit / leverage)
    inverse = np.linalg.inv(X.T @ X)
    assert max(row @ inverse @ row for row in expected) <= limit * (1 + 1e-9)
    assert np.allclose(draw_in(X, clip), expected - expected.mean(axis=0))
    assert draw_in(X, None) is X


def test_the_trace_in_coordinates_of_the_span_is_that_of_the_pseudoinverse():
    X = rows(80, 2) @ np.random.default_rng(1).normal(size=(2, 5)) + 3
    spanning = _spanning(X, "none")
    assert spanning.shape == (80, 2)
    labels = np.arange(80) % 8
    scatter = reference.scatter_of(X - X.mean(axis=0), labels)
    expected = np.trace(np.linalg.pinv(scatter, rcond=1e-9))
    assert reference.trace_of(spanning, labels) == pytest.approx(expected)


def test_constant_and_doubled_columns_change_nothing_but_rounding():
    X = rows(400)
    wider = np.column_stack([X, np.full(400, 0.1), X[:, 0]])
    found = reference.trace_of(X - X.mean(axis=0), optimal(wider, 10, scale="std").index)
    random = make_bags(X, bag_size=10, strategy="random", seed=0)
    assert found < 0.3 * reference.trace_of(X - X.mean(axis=0), random.index)


def test_where_bags_cannot_determine_the_coefficients_they_are_those_of_k_means():
    X = rows(30, 6)
    bags = optimal(X, 10)  # three bag means in six dimensions
    assert bags.sizes.tolist() == [10, 10, 10]


def test_a_column_in_much_smaller_units_is_a_direction_all_the_same():
    X = rows() * [1, 1, 1, 1e-7]
    assert _spanning(X, "none").shape == _spanning(X, "std").shape == (300, 4)
    turned = _spanning(X, "none")
    assert np.allclose(turned @ turned.T, (X - X.mean(axis=0)) @ (X - X.mean(axis=0)).T)


@pytest.mark.parametrize("clip", [0.5, float("inf"), float("nan")])
def test_an_impossible_clip_is_refused(clip):
    with pytest.raises(StrategyError, match="clip"):
        bw.OptimalBags(clip=clip)


def test_optimal_bags_lower_the_error_where_directions_differ():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6)) * [0.2, 1, 1, 2, 3, 3]
    errors = {
        name: bw.make_bags(X, bag_size=10, strategy=name, seed=0).quality(X).error_ratio
        for name in ("random", "kmeans", "optimal")
    }
    assert errors["kmeans"] < 0.3 * errors["random"]
    assert errors["optimal"] < 0.97 * errors["kmeans"]


def test_clipping_keeps_optimal_bags_from_living_on_outliers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    X[:40] *= 30
    chosen = {
        clip: bw.make_bags(X, bag_size=10, strategy=bw.OptimalBags(clip=clip), seed=0)
        for clip in (None, 1.5)
    }
    ordinary = X[40:]
    kept = {
        clip: bw.Bags.from_labels(bags.index[40:]).quality(ordinary).prediction_ratio
        for clip, bags in chosen.items()
    }
    assert kept[1.5] < kept[None]
