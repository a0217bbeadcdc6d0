import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import centre_graph, exchanging, state
from bagwise.cluster import search as search_module
from bagwise.cluster.search import find_effort, partition
from bagwise.cluster.state import EFFORTS, Effort, Search, SizeRange, Threads, effective_dimension
from bagwise.show.stages import progress_to
from tests.cluster import reference

NOTHING = Effort(passes=0, list_length=4, sweeps=0, greedy_sweeps=0, idle=0.0)
GREEDY = Effort(passes=0, list_length=8, sweeps=0, greedy_sweeps=2, idle=0.0)
QUICK = Effort(passes=4, list_length=8, sweeps=3, greedy_sweeps=2, idle=0.0)


def partitioned(Z, sizes, effort, *, seed=0, starts=(), threads=1):
    with Threads(threads, n_rows=Z.shape[0]) as crew:
        search = Search(sizes, effort, seed, crew, lambda what, share: None)
        return partition(Z.copy(), search, starts=starts)


@st.composite
def problems(draw):
    n, d = draw(st.integers(1, 150)), draw(st.integers(1, 6))
    least = draw(st.integers(1, n))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    Z = rng.normal(size=(n, d))
    kind = draw(st.sampled_from(["normal", "duplicates", "equal", "constant columns", "outlier"]))
    if kind == "duplicates":
        Z = Z[rng.integers(0, max(1, n // 5), size=n)]
    if kind == "equal":
        Z[:] = 0.3
    if kind == "constant columns":
        Z[:, : d // 2] = 7
    if kind == "outlier":
        Z[0] = 1e5
    sizes = {
        "near-equal": SizeRange.near_equal(n, least),
        "wide": SizeRange(n // least, 1, n),
    }[draw(st.sampled_from(["near-equal", "wide"]))]
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Z.astype(dtype), sizes


@given(problems(), st.integers(0, 3), st.booleans(), st.sampled_from([QUICK, GREEDY]))
def test_sizes_are_in_range_and_nothing_is_worse_than_the_bisection(
    problem, seed, with_start, effort
):
    Z, sizes = problem
    starts = ()
    if with_start:  # any labels will do, empty clusters included
        starts = [np.random.default_rng(seed).integers(0, sizes.clusters, size=Z.shape[0])]
    found = partitioned(Z, sizes, effort, seed=seed, starts=starts)
    counts = np.bincount(found, minlength=sizes.clusters)
    assert found.shape == (Z.shape[0],)
    assert counts.size == sizes.clusters
    assert counts.min() >= sizes.least
    assert counts.max() <= sizes.most
    start = reference.spread(Z, partitioned(Z, sizes, NOTHING, seed=seed))
    assert reference.spread(Z, found) <= start * (1 + 1e-5) + 1e-9
    assert np.array_equal(found, partitioned(Z, sizes, effort, seed=seed, starts=starts))


def test_wrong_indices_would_be_noticed(monkeypatch):
    # In plain Python, where reading or writing beyond an array is an error.
    reference.interpret_kernels(monkeypatch)
    monkeypatch.setattr(exchanging, "ROWS_WORTH_PARTS", 0)
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.normal(size=(30, 2)), 0.1 * rng.normal(size=(30, 2))])
    with np.errstate(over="ignore"):
        for sizes in (SizeRange(12, 5, 5), SizeRange(10, 1, 51), SizeRange(11, 4, 8)):
            for limit in (1e9, 0):
                monkeypatch.setattr(centre_graph, "EXACT_CENTRES", limit)
                monkeypatch.setattr(centre_graph, "EXACT_ROWS", limit)
                counts = np.bincount(partitioned(Z, sizes, QUICK), minlength=sizes.clusters)
                assert sizes.least <= counts.min() <= counts.max() <= sizes.most


def test_the_best_of_all_starts_counts():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(5), [200, 10, 10, 10, 10])
    Z = (30 * rng.normal(size=(5, 2))[true] + rng.normal(size=(240, 2))).astype(np.float32)
    sizes = SizeRange(5, 5, 220)
    bad = np.arange(240) % 5
    alone = reference.spread(Z, partitioned(Z, sizes, NOTHING))
    for starts in ([true], [bad, true], [true, bad], iter([true, bad])):
        found = partitioned(Z, sizes, NOTHING, starts=starts)
        assert reference.spread(Z, found) == pytest.approx(reference.spread(Z, true), rel=1e-4)
    assert reference.spread(Z, true) < alone
    found = partitioned(Z, sizes, NOTHING, starts=[bad])
    assert reference.spread(Z, found) <= alone * (1 + 1e-6)


def test_rows_stand_where_they_stood_if_the_search_is_repeated():
    Z = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    kept = Z.copy()
    with reference.one_worker() as crew:
        effort = Effort(passes=2, list_length=4, sweeps=1, greedy_sweeps=1, idle=0.0, restarts=2)
        sizes = SizeRange(6, 10, 10)
        search = Search(sizes, effort, 0, crew, lambda what, share: None)
        partition(Z, search)
    assert np.array_equal(Z, kept)


def test_restarts_use_other_seeds_and_keep_the_best(monkeypatch):
    seeds, spreads = [], []
    attempt = search_module._attempt

    def remember(Z, search, start):
        labels, spread = attempt(Z, search, start)
        seeds.append(search.seed)
        spreads.append(reference.spread(Z_given, labels))
        return labels, spread

    monkeypatch.setattr(search_module, "_attempt", remember)
    Z_given = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    effort = Effort(passes=2, list_length=4, sweeps=2, greedy_sweeps=2, idle=0.0, restarts=4)
    found = partitioned(Z_given, SizeRange(20, 10, 10), effort, seed=5)
    assert len(set(seeds)) == 4
    assert len(set(spreads)) > 1
    assert reference.spread(Z_given, found) == min(spreads)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("effort", [EFFORTS["fast"], QUICK], ids=["fast", "quick"])
def test_threads_do_not_change_labels(exact, effort, monkeypatch):
    monkeypatch.setattr(state, "ROWS_WORTH_A_THREAD", 0)
    monkeypatch.setattr(exchanging, "ROWS_WORTH_PARTS", 0)
    if not exact:
        monkeypatch.setattr(centre_graph, "EXACT_CENTRES", 0)
        monkeypatch.setattr(centre_graph, "EXACT_ROWS", 0)
    Z = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    for sizes in (SizeRange.near_equal(2000, 7), SizeRange(200, 5, 19)):
        one, two, three = (partitioned(Z, sizes, effort, threads=threads) for threads in (1, 2, 3))
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)
        assert not np.array_equal(one, partitioned(Z, sizes, effort, threads=2, seed=1))


@pytest.mark.slow
def test_threads_do_not_change_labels_of_many_rows():
    Z = np.random.default_rng(0).normal(size=(40_000, 4)).astype(np.float32)
    sizes = SizeRange.near_equal(40_000, 10)
    one, two, three = (reference.search_labels(Z, sizes, threads=threads) for threads in (1, 2, 3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)


def test_searching_neighbours_costs_little(monkeypatch):
    Z = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    sizes = SizeRange.near_equal(3000, 10)
    exact = reference.spread(Z, reference.search_labels(Z, sizes))
    monkeypatch.setattr(centre_graph, "EXACT_CENTRES", 0)
    monkeypatch.setattr(centre_graph, "EXACT_ROWS", 0)
    assert reference.spread(Z, reference.search_labels(Z, sizes)) < 1.02 * exact


@pytest.mark.parametrize(
    ("n", "d", "least", "first", "second"), [(3000, 8, 10, 0.9, 0.97), (2000, 2, 10, 0.93, 0.95)]
)
def test_each_effort_is_worth_it(n, d, least, first, second):
    Z = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    sizes = SizeRange.near_equal(n, least)
    start = reference.spread(Z, partitioned(Z, sizes, NOTHING))
    fast, default = (
        reference.spread(Z, reference.search_labels(Z, sizes, effort=effort))
        for effort in ("fast", "default")
    )
    assert fast < first * start
    assert default < second * fast


@pytest.mark.slow
def test_the_best_effort_is_no_worse_than_the_default():
    for seed in range(3):
        Z = np.random.default_rng(seed).normal(size=(300, 4)).astype(np.float32)
        sizes = SizeRange.near_equal(300, 10)
        best, default = (
            reference.spread(Z, reference.search_labels(Z, sizes, effort=effort))
            for effort in ("best", "default")
        )
        assert best <= default


def optimal_spread(Z, size):
    """Least spread of clusters of `size` rows, by dynamic programming over all sets of rows."""
    n = Z.shape[0]

    @cache
    def best(rows):
        if not rows:
            return 0.0
        first, rest = rows[0], rows[1:]
        return min(
            reference.spread(Z[[first, *others]], np.zeros(size))
            + best(tuple(row for row in rest if row not in others))
            for others in itertools.combinations(rest, size - 1)
        )

    return best(tuple(range(n)))


def test_few_rows_are_solved_to_the_optimum():
    for seed in range(4):
        Z = np.random.default_rng(seed).normal(size=(10, 2)).astype(np.float32)
        found = partitioned(Z, SizeRange(5, 2, 2), replace(EFFORTS["default"], restarts=8))
        assert reference.spread(Z, found) == pytest.approx(optimal_spread(Z, 2), rel=1e-5)


@pytest.mark.parametrize(
    ("hidden", "shown", "low", "high"), [(2, 2, 1.5, 2.01), (2, 10, 1.5, 2.6), (8, 8, 6, 8.01)]
)
def test_the_effective_dimension_is_about_that_of_the_data(hidden, shown, low, high):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(4000, hidden)) @ np.linalg.qr(rng.normal(size=(shown, hidden)))[0].T
    with reference.one_worker() as crew:
        ids = np.arange(4000, dtype=np.int32)
        search_module.bisect(Z, ids, np.arange(0, 4001, 10), rounds=3, seed=0, workers=crew)
    assert low < effective_dimension(Z, 400) < high


@given(st.integers(2, 40), st.integers(1, 4), st.booleans())
def test_the_effective_dimension_is_between_two_and_the_columns(n, d, equal):
    Z = np.zeros((n, d)) if equal else np.random.default_rng(n).normal(size=(n, d))
    for clusters in (2, n):
        assert min(2, d) <= effective_dimension(Z, clusters) <= d


def test_progress_runs_from_zero_to_one_stage_by_stage():
    said = []
    Z = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    with progress_to(lambda what, share: said.append((what, share))):
        reference.search_labels(Z, SizeRange(30, 10, 10))
    stages = [what for what, _ in said]
    assert list(dict.fromkeys(stages)) == ["moving rows", "exchanging rows"]
    for stage in set(stages):
        shares = [share for what, share in said if what == stage]
        assert shares[0] == 0
        assert shares == sorted(shares)
        assert shares[-1] < 1


def test_few_rows_are_given_more_sweeps():
    assert find_effort("default", 1000).sweeps > find_effort("default", 10**6).sweeps
    assert find_effort("best", 1000).restarts > 1
    assert find_effort("fast", 1000) == EFFORTS["fast"]
