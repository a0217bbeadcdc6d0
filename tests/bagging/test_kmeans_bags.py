import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import bagwise as bw
from bagwise.api import make_bags
from bagwise.bagging import PublishedBags
from bagwise.bagging.kmeans_bags import KMeansBags
from bagwise.errors import StrategyError
from tests.bagging.tables import tables
from tests.cluster import reference

SCALES = ["whiten", "std", "none"]


def bags_of(X, bag_size, *, seed=0, **parameters):
    parameters = {"effort": "fast"} | parameters
    return make_bags(X, bag_size=bag_size, strategy=KMeansBags(**parameters), seed=seed)


def rows(n=200, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@given(tables(rows, most=80), st.sampled_from(SCALES), st.booleans())
def test_sizes_hold_for_any_table(table, scale, is_sparse):
    X, bag_size = table
    given_X = sparse.csr_array(X) if is_sparse else X
    bags = bags_of(given_X, bag_size, scale=scale)
    assert bags.in_bag.all()
    assert bags.sizes.min() >= bag_size
    assert bags.n_bags == X.shape[0] // bag_size
    assert bags.sizes.max() - bags.sizes.min() <= 1
    again = bags_of(given_X, bag_size, scale=scale)
    assert np.array_equal(bags.index, again.index)


@pytest.mark.parametrize("scale", SCALES)
def test_rows_that_are_the_same_stay_together_if_that_is_possible(scale):
    true = np.random.default_rng(0).permutation(np.repeat(np.arange(40), 5))
    X = rows(40)[true]
    bags = bags_of(X, 5, scale=scale, effort="default")
    assert reference.spread(X, bags.index) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_on_a_line_equal_sizes_are_sorted_chunks(scale):
    x = rows(60, 1)
    chunks = np.empty(60, dtype=int)
    chunks[np.argsort(x[:, 0])] = np.arange(60) // 5
    # The same line, seen in three columns, is a line after whitening only.
    turned = x * [1.0, -3.0, 0.5] + 7
    for X in (x, 1e9 + x, turned) if scale == "whiten" else (x, 1e9 + x):
        bags = bags_of(X, 5, scale=scale)
        assert reference.spread(x, bags.index) == pytest.approx(reference.spread(x, chunks))


@pytest.mark.parametrize("n", [63, 59, 101])
def test_on_a_line_nearly_equal_sizes_are_runs_of_the_sorted_rows_or_nearly(n):
    x = rows(n, 1)
    bags = bags_of(x, 5, effort="default")
    clusters = n // 5
    in_order = np.empty(n, dtype=int)
    in_order[np.argsort(x[:, 0])] = np.repeat(
        np.arange(clusters), np.diff(np.arange(clusters + 1) * n // clusters)
    )
    assert reference.spread(x, bags.index) <= reference.spread(x, in_order) * (1 + 1e-9)


def test_whitened_bags_are_as_compact_whatever_linear_map_came_before():
    X = rows(1500, 4)
    mixed = X @ np.random.default_rng(5).normal(size=(4, 4)) * [1, 100, 1e-3, 1] + 9
    one, other = (reference.spread(X, bags_of(Y, 10, effort="default").index) for Y in (X, mixed))
    assert other == pytest.approx(one, rel=0.03)
    unscaled = bags_of(mixed, 10, effort="default", scale="none")
    assert reference.spread(X, unscaled.index) > 1.5 * one


def test_bags_in_own_units_follow_the_largest_column():
    X = rows() * [1, 1, 1e4]
    bags = bags_of(X, 5, scale="none", effort="default")
    chunks = np.empty(200, dtype=int)
    chunks[np.argsort(X[:, 2])] = np.arange(200) // 5
    assert reference.spread(X[:, 2:], bags.index) < 1.1 * reference.spread(X[:, 2:], chunks)


@pytest.mark.parametrize("n", [200, 900, 2000])
@pytest.mark.parametrize("far", [1e6, 1e9])
def test_outliers_do_not_spoil_the_bags_of_other_rows(n, far):
    X = rows(n, 4)
    outlying = np.vstack([X, np.full((1, 4), far)])
    without = bags_of(X, 10, scale="none", effort="default")
    bags = bags_of(outlying, 10, scale="none", effort="default")
    others = bags.index != bags.index[-1]
    found = reference.spread(outlying[others], bags.index[others])
    assert found < 1.03 * reference.spread(X, without.index)


def test_many_one_hot_columns_need_not_be_dense():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 300, size=2000)
    X = sparse.csr_array((np.ones(2000), (np.arange(2000), levels)), shape=(2000, 300))
    for scale in SCALES:
        bags = bags_of(X, 5, scale=scale)
        assert bags.sizes.min() >= 5
        alone = np.array([np.unique(levels[bags.index == b]).size for b in range(bags.n_bags)])
        assert np.mean(alone == 1) > 0.1  # of random bags, none
    random = make_bags(X, bag_size=5, strategy="random", seed=0)
    assert all(np.unique(levels[random.index == b]).size > 1 for b in range(random.n_bags))


@pytest.mark.parametrize("scale", SCALES)
def test_sparse_and_dense_rows_make_bags_that_are_as_compact(scale):
    rng = np.random.default_rng(0)
    X = sparse.random_array((600, 40), density=0.1, random_state=rng, format="csr")
    one, other = (bags_of(Y, 10, scale=scale, effort="default") for Y in (X, X.toarray()))
    dense = X.toarray() if scale == "none" else X.toarray() / X.toarray().std(axis=0)
    found, expected = (reference.spread(dense, bags.index) for bags in (one, other))
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_what_is_no_number_is_refused(wrong, form):
    X = rows()
    X[3, 1] = wrong
    with pytest.raises(StrategyError, match="NaN or infinite"):
        bags_of(form(X), 5)


# --- the metric of a model ------------------------------------------------------------------------


def by_scores(X, scores, bag_size=20, *, seed=0, **parameters):
    strategy = KMeansBags(scale="model", **{"effort": "fast"} | parameters)
    return make_bags(X, bag_size=bag_size, strategy=strategy, scores=scores, seed=seed)


def within(X, bags):
    """Share of the variance of each column that lies within bags."""
    left = X - bags.repeat(bags.mean(X))
    return (left**2).mean(axis=0) / X.var(axis=0)


def test_columns_that_matter_to_the_scores_hardly_differ_within_bags():
    X = rows(3000, 8)
    plain, model = bags_of(X, 20, scale="std"), by_scores(X, 3 * X[:, 0] - 2 * X[:, 1])
    assert within(X, model)[:2].max() < 0.5 * within(X, plain)[:2].min()
    assert within(X, model)[2:].min() > within(X, plain)[2:].max()  # paid by all others
    assert within(X, model)[2:].max() < 0.99  # which count a little all the same


def test_scores_need_no_units_and_features_none():
    X = rows(800, 4)
    scores = X @ [1.0, -2.0, 0.0, 0.5]
    index = by_scores(X, scores).index
    assert np.array_equal(by_scores(X, 1e6 * scores - 3e7).index, index)
    assert np.array_equal(by_scores(X, -scores).index, index)
    wider = X * [1.0, 1024.0, 2.0, 0.25]
    assert np.array_equal(by_scores(wider, scores).index, index)


def test_scores_that_tell_nothing_leave_the_columns_in_standard_deviations():
    X = rows(400, 3) * [1.0, 100.0, 3.0]
    expected = bags_of(X, 20, scale="std").index
    assert np.array_equal(by_scores(X, np.full(400, 7.0)).index, expected)
    assert by_scores(np.ones((40, 2)), np.arange(40.0)).sizes.tolist() == [20, 20]


def test_the_metric_of_a_model_needs_scores_of_all_rows():
    X = rows(100)
    with pytest.raises(StrategyError, match="needs scores"):
        by_scores(X, None)
    with pytest.raises(StrategyError, match="one per row"):
        by_scores(X, np.ones(99))
    with pytest.raises(StrategyError, match="needs its scores"):
        KMeansBags(scale="model").assign(X, None, bag_size=5, rng=np.random.default_rng(0))


def test_sparse_rows_are_measured_like_dense_ones():
    X = rows(300, 5) * (np.random.default_rng(1).random((300, 5)) < 0.3)
    scores = X @ [3.0, 1.0, 0.0, 0.0, -1.0]
    dense, thin = by_scores(X, scores), by_scores(sparse.csr_array(X), scores)
    assert np.allclose(within(X, dense), within(X, thin), atol=0.05)


@pytest.mark.parametrize("scale", [*SCALES, "model"])
def test_honest_bags_are_never_suspected(scale):
    rng = np.random.default_rng(2)
    awkward = [
        rng.normal(size=(60, 2)),
        rng.standard_cauchy(size=(200, 3)),
        (rng.random((150, 6)) < 0.1).astype(float),
        np.column_stack([rng.lognormal(sigma=3, size=300), rng.integers(0, 3, size=(300, 2))]),
        rng.normal(size=(300, 2)) @ rng.normal(size=(2, 9)),
        np.ones((30, 2)),
    ]
    for X in awkward:
        scores = X @ rng.normal(size=X.shape[1])
        for size in (1, 2, 9, 15):
            strategy = KMeansBags(scale=scale, effort="fast")
            given_scores = scores if scale == "model" else None
            bags = make_bags(X, bag_size=size, strategy=strategy, scores=given_scores, seed=0)
            assert strategy.contradiction(PublishedBags(bags.index, X, scores)) is None


@pytest.mark.parametrize("scale", [*SCALES, "model"])
def test_bags_that_have_nothing_to_do_with_the_features_are_suspected(scale):
    X, strategy = rows(1000, 3), KMeansBags(scale=scale)
    index = make_bags(X, bag_size=20, seed=0).index
    found = strategy.contradiction(PublishedBags(index, X, X[:, 0]))
    assert "not compact" in found


@pytest.mark.parametrize("kind", [bw.KMeansBags, bw.OptimalBags])
def test_bags_in_standard_deviations_do_not_depend_on_units(kind):
    X = rows()
    one, other = (
        bw.make_bags(Y, bag_size=5, strategy=kind(scale="std", effort="fast"), seed=0)
        for Y in (X, X * 2.0 ** np.array([-30, 3, 30]))
    )
    assert np.array_equal(one.index, other.index)


@pytest.mark.parametrize("strategy", ["kmeans", "optimal"])
@pytest.mark.parametrize(("n", "k"), [(5, 5), (9, 5), (10, 2), (11, 2), (29, 10), (7, 1)])
def test_small_and_awkward_sizes(strategy, n, k):
    X = np.random.default_rng(0).normal(size=(n, 3))
    bags = bw.make_bags(X, bag_size=k, strategy=strategy, seed=0)
    assert bags.n_bags == n // k
    assert bags.sizes.max() - bags.sizes.min() <= 1


@pytest.mark.parametrize("parameters", [{"scale": "cm"}, {"effort": "hard"}])
def test_unknown_parameters_are_refused(parameters):
    with pytest.raises(StrategyError, match=next(iter(parameters))):
        bw.KMeansBags(**parameters)
    if "sizes" not in parameters:
        with pytest.raises(StrategyError):
            bw.OptimalBags(**parameters)


def test_sparse_rows_make_bags_and_dense_strategies_say_so():
    X = sparse.random_array((200, 300), density=0.02, random_state=np.random.default_rng(0))
    assert bw.make_bags(X, bag_size=10, strategy="kmeans", seed=0).sizes.min() >= 10
    assert bw.make_bags(X, bag_size=10, strategy="random", seed=0).sizes.min() >= 10
    with pytest.raises(StrategyError, match="toarray"):
        bw.make_bags(X, bag_size=10, strategy="optimal", seed=0)
