"""What the search promises, whatever the rows: sizes, coverage, repeatability, a way to stop."""

import os
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bagwise as bw
from bagwise.cluster import bisection, centre_graph, exchanging, moving, repair, workers
from bagwise.cluster.bisection import bisect
from bagwise.cluster.metric import make_points
from bagwise.cluster.search import find_clusters, partition
from bagwise.cluster.state import EFFORTS, Effort, Search, SizeRange
from bagwise.cluster.workers import Patience, Workers, patience
from bagwise.errors import StoppedEarlyWarning
from bagwise.show.stages import progress_to

QUICK = Effort(passes=6, list_length=8, sweeps=4, greedy_sweeps=3, idle=0.0)


def spread(Z, labels):
    Z = Z.astype(np.float64)
    bags = bw.Bags.from_labels(labels)
    return float(np.sum((Z - bags.repeat(bags.mean(Z))) ** 2))


def search(Z, sizes, *, effort=QUICK, seed=0, threads=1, waiting=None, starts=()):
    with Workers(threads, n_rows=Z.shape[0]) as crew:
        waiting = waiting or Patience()
        plan = Search(sizes, effort, seed, crew, waiting, lambda *_: None)
        return partition(Z.copy(), plan, starts=starts)


def bisected(Z, sizes, seed=0):
    Z, ids = Z.copy(), np.arange(Z.shape[0], dtype=np.int32)
    starts = sizes.starts(Z.shape[0])
    with Workers(1, n_rows=Z.shape[0]) as crew:
        bisect(Z, ids, starts, rounds=3, seed=seed, workers=crew)
    labels = np.empty(ids.size, dtype=np.int64)
    labels[ids] = np.repeat(np.arange(sizes.clusters), np.diff(starts))
    return labels


@st.composite
def problems(draw):
    n, d, least = draw(st.integers(2, 150)), draw(st.integers(1, 5)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    kind = draw(st.sampled_from(["normal", "grid", "equal", "outlier", "units"]))
    Z = rng.normal(size=(n, d))
    if kind == "grid":
        Z = np.round(Z)
    if kind == "equal":
        Z[:] = 0.1
    if kind == "outlier":
        Z[0] = 1e6
    if kind == "units":
        Z *= 10.0 ** rng.integers(-8, 8, size=d)
    return np.ascontiguousarray(Z - Z.mean(axis=0), dtype=np.float32), min(least, n)


@settings(max_examples=150)
@given(problem=problems(), seed=st.integers(0, 10), free=st.booleans())
def test_sizes_coverage_and_no_worse_than_bisection(problem, seed, free):
    Z, least = problem
    n = Z.shape[0]
    sizes = SizeRange.near_equal(n, least)
    if free:
        sizes = SizeRange.free(n, least, dimension=3)
    labels = search(Z, sizes, seed=seed)
    counts = np.bincount(labels, minlength=sizes.clusters)
    assert labels.size == n
    assert counts.size == sizes.clusters
    assert counts.min() >= least
    assert counts.min() >= sizes.least
    assert counts.max() <= sizes.most
    start = spread(Z, bisected(Z, sizes, seed=seed))
    assert spread(Z, labels) <= start * (1 + 1e-5)
    assert np.array_equal(labels, search(Z, sizes, seed=seed))


@pytest.mark.parametrize("exact", [True, False])
def test_the_number_of_threads_changes_nothing(exact, monkeypatch):
    monkeypatch.setattr(workers, "ROWS_WORTH_A_THREAD", 0)
    monkeypatch.setattr(exchanging, "ROWS_WORTH_PARTS", 0)
    if not exact:
        monkeypatch.setattr(centre_graph, "EXACT_CENTRES", 0)
        monkeypatch.setattr(centre_graph, "EXACT_ROWS", 0)
    Z = np.random.default_rng(0).normal(size=(6000, 5)).astype(np.float32)
    sizes = SizeRange.near_equal(6000, 4)
    one, two, five = (search(Z, sizes, threads=threads) for threads in (1, 2, 5))
    assert np.array_equal(one, two)
    assert np.array_equal(one, five)
    assert not np.array_equal(one, search(Z, sizes, seed=1))


def test_each_stage_pays():
    Z = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    sizes = SizeRange.near_equal(3000, 10)
    start, fast, default = (
        spread(Z, labels)
        for labels in (
            bisected(Z, sizes),
            search(Z, sizes, effort=EFFORTS["fast"]),
            search(Z, sizes, effort=EFFORTS["default"]),
        )
    )
    assert fast < 0.9 * start
    assert default < 0.97 * fast


def test_free_sizes_are_no_less_compact_in_few_dimensions():
    X = np.random.default_rng(0).normal(size=(3000, 2))
    near_equal, free = (
        bw.make_bags(X, bag_size=10, strategy=bw.KMeansBags(sizes=sizes), seed=0)
        for sizes in ("near-equal", "free")
    )
    assert free.sizes.min() == 10
    assert 10 < free.sizes.max() <= 19
    assert spread(X, free.index) < 1.005 * spread(X, near_equal.index)


# --- stopping -----------------------------------------------------------------------------------


def test_a_tiny_time_budget_gives_valid_bags():
    X = np.random.default_rng(0).normal(size=(4000, 8))
    strategy = bw.KMeansBags(time_budget=1e-6, effort="best")
    assert bw.make_bags(X, bag_size=7, strategy=strategy, seed=0).sizes.min() >= 7
    strategy = bw.OptimalBags(time_budget=1e-6, effort="best")
    assert bw.make_bags(X, bag_size=7, strategy=strategy, seed=0).sizes.min() >= 7


@pytest.mark.parametrize("stage", ["moving rows", "exchanging rows"])
@pytest.mark.parametrize("strategy", [bw.KMeansBags(effort="best"), bw.OptimalBags(effort="best")])
def test_the_first_interrupt_ends_the_search_with_what_it_has(stage, strategy):
    X = np.random.default_rng(0).normal(size=(3000, 3))
    seen = []

    def press(what, _share):
        seen.append(what)
        if what == stage and seen.count(stage) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with progress_to(press), pytest.warns(StoppedEarlyWarning, match="best so far"):
        bags = bw.make_bags(X, bag_size=7, strategy=strategy, seed=0)
    assert bags.sizes.min() >= 7
    assert seen.count(stage) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_interrupt_is_an_ordinary_one():
    def press(*_):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    X = np.random.default_rng(0).normal(size=(3000, 3))
    with progress_to(press), pytest.raises(KeyboardInterrupt):
        bw.make_bags(X, bag_size=7, strategy="kmeans", seed=0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_are_left_alone_elsewhere_than_in_the_main_thread():
    found = []

    def run():
        with patience(None) as waiting:
            found.append((signal.getsignal(signal.SIGINT), waiting.is_over))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(signal.default_int_handler, False)]


# --- hard inputs --------------------------------------------------------------------------------


def test_outliers_cost_other_rows_no_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    far = np.vstack([X, np.full((1, 4), 1e6)])
    assert make_points(X, "none", rng).dtype == np.float32
    assert make_points(far, "none", rng).dtype == np.float64
    without = bw.make_bags(X, bag_size=10, strategy=bw.KMeansBags(scale="none"), seed=0)
    bags = bw.make_bags(far, bag_size=10, strategy=bw.KMeansBags(scale="none"), seed=0)
    ordinary = bags.index != bags.index[-1]
    kept = bw.Bags.from_labels(bags.index[ordinary])
    assert spread(far[ordinary], kept.index) < 1.03 * spread(X, without.index)


def test_one_dimension_is_solved_exactly():
    x = np.random.default_rng(0).normal(size=12)
    free = bw.make_bags(x[:, None], bag_size=3, strategy=bw.KMeansBags(sizes="free"), seed=0)
    ordered = np.sort(x)

    def best(values):
        if values.size < 6:
            return np.sum((values - values.mean()) ** 2)
        cuts = range(3, values.size - 2)
        whole = np.sum((values - values.mean()) ** 2)
        return min(
            whole, *(np.sum((values[:c] - values[:c].mean()) ** 2) + best(values[c:]) for c in cuts)
        )

    assert spread(x[:, None], free.index) == pytest.approx(best(ordered))
    equal = bw.make_bags(x[:, None], bag_size=3, strategy="kmeans", seed=0)
    chunks = np.empty(12, dtype=int)
    chunks[np.argsort(x)] = np.arange(12) // 3
    assert spread(x[:, None], equal.index) == pytest.approx(spread(x[:, None], chunks))


def test_a_loop_is_compiled_for_one_kind_of_input_only():
    rng = np.random.default_rng(0)
    for n, d, k in ((300, 3, 5), (1001, 6, 2), (500, 2, 40)):
        points = rng.normal(size=(n, d)).astype(np.float32)
        find_clusters(points, None, least=k, effort="default", seed=0, waiting=Patience())
    loops = [
        bisection.split_all, exchanging.visit_pairs, exchanging.list_pairs,
        moving.choose_moves, moving.carry_out, centre_graph.select_nearest,
        repair.hand_on,
    ]  # fmt: skip
    for loop in loops:
        kinds = {str(signature) for signature in loop.signatures}
        single = [kind for kind in kinds if "float32" in kind]
        assert len(single) <= 1, (loop, single)


# --- metrics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-60, 1e-20, 1e20, 1e60])
def test_neither_tiny_nor_huge_units_cost_anything(unit):
    X = np.random.default_rng(0).normal(size=(500, 3))
    as_is, scaled = (
        bw.make_bags(rows, bag_size=5, strategy=bw.KMeansBags(scale="none"), seed=0)
        for rows in (X, unit * X)
    )
    assert spread(X, scaled.index) < 1.02 * spread(X, as_is.index)


# --- what it is for -----------------------------------------------------------------------------
