import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as distributions

from bagwise.cluster import exchanging
from bagwise.cluster.centre_graph import CentreGraph
from bagwise.cluster.exchanging import NOISE, Bath, Blocks, exchange_rows, tournament
from bagwise.cluster.state import EFFORTS, Effort, OrderedRows, Search, SizeRange
from tests import stats
from tests.cluster import reference


def noise_of(seed, dtype, size=NOISE):
    noise = np.random.default_rng(seed).gumbel(size=size + 1).astype(dtype)
    noise[0] = noise.max()
    return noise


def visit(blocks, pairs, *, least, most, heat=0.0, visits=1, seed=0):
    pairs = np.array(pairs, dtype=np.int32)
    bath = Bath(least, most, heat, visits, noise_of(seed, blocks.rows.dtype), seed)
    return exchanging.visit_pairs(blocks, bath, pairs, 0, pairs.shape[0])


def all_pairs(clusters):
    return list(itertools.combinations(range(clusters), 2))


def check_blocks(blocks, Z):
    """Rows, centres and offsets are what the labels say; return the labels."""
    labels = reference.labels_in(blocks, Z.shape[0])
    taken = blocks.ids >= 0
    assert np.array_equal(np.sort(blocks.ids[taken]), np.arange(Z.shape[0]))
    assert np.array_equal(blocks.rows[taken], Z[blocks.ids[taken]])
    centres = reference.centres_of(Z, labels, blocks.sizes.size)
    digits = 1e-5 if Z.dtype == np.float32 else 1e-12
    size = np.abs(Z).max() + 1
    assert np.allclose(blocks.centres, centres, atol=digits * size, rtol=0)
    offsets = np.sum((Z - centres[labels]) ** 2, axis=1)
    found = blocks.offsets[taken]
    assert np.allclose(found, offsets[blocks.ids[taken]], atol=10 * digits * size**2, rtol=0)
    return labels


@st.composite
def clustered_rows(draw, *, clusters=None, smallest=1):
    """Rows with ties and without, labels that use every cluster, and limits that hold for them."""
    count = 2 if clusters is None else draw(clusters)
    sizes = [draw(st.integers(smallest, 6)) for _ in range(count)]
    labels = np.repeat(np.arange(count), sizes)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    d = draw(st.integers(1, 4))
    Z = rng.normal(size=(labels.size, d))
    if draw(st.booleans()):
        Z = np.round(2 * Z)
    if draw(st.booleans()):
        Z += draw(st.sampled_from([0.5, 3.0])) * rng.normal(size=(count, d))[labels]
    least = draw(st.integers(1, min(sizes)))
    most = draw(st.integers(max(sizes), max(sizes) + 3))
    return Z, labels, least, most


@given(clustered_rows(), st.sampled_from([np.float32, np.float64]))
def test_without_heat_a_visit_makes_the_best_change_there_is_or_none(case, dtype):
    Z, labels, least, most = case
    Z = Z.astype(dtype)
    before = reference.spread(Z, labels)
    gains = [before - reference.spread(Z, c) for c in reference.changes_of(labels, least, most)]
    blocks = reference.pack(Z, labels, 2, most)
    changes = visit(blocks, [(0, 1)], least=least, most=most)
    gain = before - reference.spread(Z, check_blocks(blocks, Z))
    rounding = (1e-5 if dtype == np.float32 else 1e-12) * float(before + np.sum(Z * Z))
    idle = 1e-6 * before * 2  # gains as small as this are not worth a change
    if max(gains) > idle + rounding:
        assert changes == 1
        assert gain == pytest.approx(max(gains), abs=rounding)
    elif max(gains) < -rounding:
        assert changes == 0
    if changes == 0:
        assert gain == 0


def test_equal_rows_are_not_swapped_for_ever():
    # A row in the middle is in both clusters; to swap it for its equal gains nothing but rounding.
    for seed in range(100):
        rng = np.random.default_rng(seed)
        Z = 10 * rng.normal(size=3) + rng.normal(size=(10, 3)).astype(np.float32)
        Z[5:] += 30 * rng.normal(size=3)
        Z[4] = Z[5] = (Z[:4].mean(axis=0) + Z[6:].mean(axis=0)) / 2
        blocks = reference.pack(Z.astype(np.float32), np.repeat([0, 1], 5), 2, 5)
        assert visit(blocks, [(0, 1)], least=5, most=5, visits=30) == 0


def test_a_swap_by_hand():
    # {0, 1, 9} and {2, 10, 11}: swapping 9 for 2 leaves {0, 1, 2} and {9, 10, 11}.
    Z = np.array([0.0, 1, 9, 2, 10, 11])[:, None]
    blocks = reference.pack(Z, np.array([0, 0, 0, 1, 1, 1]), 2, 3)
    assert visit(blocks, [(0, 1)], least=3, most=3, visits=5) == 1
    assert reference.labels_in(blocks, 6).tolist() == [0, 0, 1, 0, 1, 1]
    assert blocks.centres.ravel().tolist() == [1, 10]


@pytest.mark.parametrize(("least", "most", "moves"), [(2, 4, 1), (3, 4, 0), (2, 3, 0)])
@pytest.mark.parametrize("pair", [(0, 1), (1, 0)])
def test_a_move_by_hand_needs_room_on_both_sides(least, most, moves, pair):
    Z = np.array([0.0, 1, 10, 10, 10, 10])[:, None]
    blocks = reference.pack(Z, np.array([0, 0, 0, 1, 1, 1]), 2, most)
    assert visit(blocks, [pair], least=least, most=most, visits=5) == moves
    assert blocks.sizes.tolist() == ([2, 4] if moves else [3, 3])


def test_a_cluster_without_room_in_its_block_does_not_grow():
    Z = np.array([0.0, 1, 10, 10, 10, 10])[:, None]
    blocks = reference.pack(Z, np.array([0, 0, 0, 1, 1, 1]), 2, 3)
    assert visit(blocks, [(0, 1)], least=1, most=6, visits=5) == 0
    check_blocks(blocks, Z)


@given(
    clustered_rows(clusters=st.integers(2, 6), smallest=2),
    st.sampled_from([0.0, 0.3, 3.0]),
    st.integers(1, 3),
    st.integers(0, 1000),
    st.sampled_from([np.float32, np.float64]),
)
def test_rows_are_neither_lost_nor_doubled_and_sizes_stay_in_range(case, heat, visits, seed, dtype):
    Z, labels, least, most = case
    Z = Z.astype(dtype)
    clusters = labels.max() + 1
    blocks = reference.pack(Z, labels, clusters, most)
    for turn in range(3):
        before = reference.spread(Z, reference.labels_in(blocks, labels.size))
        changes = visit(
            blocks, all_pairs(clusters), least=least, most=most, heat=heat, visits=visits,
            seed=seed + turn,
        )  # fmt: skip
        after = reference.spread(Z, check_blocks(blocks, Z))
        assert blocks.sizes.min() >= least
        assert blocks.sizes.max() <= most
        if heat == 0:
            rounding = 1e-5 if dtype == np.float32 else 1e-12
            assert after <= before + rounding * np.sum(Z * Z)
        if changes == 0:
            assert after == before


def heat_bath(heat, draws):
    """How often each change of two clusters is drawn, and the gains of all changes, none first.

    The rows of the two clusters differ in different directions, so that no product of their
    offsets is screened, and both clusters spread the same.
    """
    Z = np.array([[0, 1, 0], [0, -1, 0], [0, 0.5, 0], [1.2, 0, 0.9], [1.2, 0, -1.1], [1.2, 0, 0.4]])
    labels = np.repeat([0, 1], 3)
    one, two = (np.mean(np.sum((z - z.mean(axis=0)) ** 2, axis=1)) for z in (Z[:3], Z[3:]))
    Z[3:, 2] *= np.sqrt(one / two)
    outcomes = [labels, *reference.changes_of(labels, 2, 4)]
    number = {tuple(outcome): i for i, outcome in enumerate(outcomes)}
    gains = reference.spread(Z, labels) - np.array([reference.spread(Z, c) for c in outcomes])
    counts = np.zeros(len(outcomes))
    fresh = reference.pack(Z, labels, 2, 4)
    pairs = np.array([[0, 1]], dtype=np.int32)
    for seed in range(draws):
        noise = noise_of(seed, np.float64, size=256)  # no entry is used twice in a visit
        blocks = Blocks(*(array.copy() for array in fresh))
        exchanging.visit_pairs(blocks, Bath(2, 4, heat, 1, noise, seed), pairs, 0, 1)
        counts[number[tuple(reference.labels_in(blocks, 6).tolist())]] += 1
    return counts, gains / one


def test_changes_are_drawn_with_the_probabilities_of_a_heat_bath():
    draws, heat = 12_000, 0.8
    counts, gains = heat_bath(heat, draws)

    def is_bath(temperature):
        weights = np.exp(gains / temperature)
        expected = draws * weights / weights.sum()
        return distributions.chisquare(counts, expected).pvalue > stats.ALPHA

    assert is_bath(heat)
    assert not is_bath(1.15 * heat)
    assert not is_bath(0.87 * heat)


@pytest.mark.parametrize("heat", [0.0, 0.5])
@pytest.mark.parametrize("power", [-20, 20])
def test_the_unit_of_the_rows_does_not_matter(power, heat):
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(40, 3)).astype(np.float32), np.repeat(np.arange(4), 10)
    found = []
    for unit in (1.0, 2.0**power):  # a power of two changes no digit
        blocks = reference.pack(np.float32(unit) * Z, labels, 4, 12)
        assert visit(blocks, all_pairs(4), least=8, most=12, heat=heat, visits=9) > 9
        found.append(reference.labels_in(blocks, 40))
    assert np.array_equal(*found)


def test_a_cluster_may_take_rows_from_many_neighbours_in_one_sweep(monkeypatch):
    reference.interpret_kernels(monkeypatch)
    angles = 2 * np.pi * np.arange(40) / 40
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    Z = np.concatenate([np.zeros((20, 2)), 100 * around, 100 * around, 0.1 * around])
    labels = np.concatenate([np.zeros(20, dtype=int), np.tile(np.arange(1, 41), 3)])
    for pairs in ([(0, c) for c in range(1, 41)], [(c, 0) for c in range(1, 41)]):
        blocks = reference.pack(Z, labels, 41, 100)
        with np.errstate(over="ignore"):
            visit(blocks, pairs, least=1, most=100)
        check_blocks(blocks, Z)
        assert blocks.sizes[0] == 25  # all the room it has


def list_pairs(graph, nearest, extra, parts, n_parts):
    kinds = (graph, np.int32), (extra, np.int32), (parts, np.int32)
    graph, extra, parts = (np.array(array, dtype=kind) for array, kind in kinds)
    return exchanging.list_pairs(graph[:, :nearest], extra, parts, n_parts)


@st.composite
def neighbour_lists(draw):
    clusters = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    width = draw(st.integers(1, clusters - 1))
    graph = np.array(
        [rng.permutation(np.delete(np.arange(clusters), a))[:width] for a in range(clusters)]
    )
    graph[rng.random(graph.shape) < 0.1] = -1
    extra = np.array([rng.permutation(clusters)[: min(5, clusters)] for _ in range(clusters)])
    extra[rng.random(extra.shape) < 0.1] = -1
    n_parts = draw(st.sampled_from([1, 2, 4, 16]))
    parts = rng.integers(0, n_parts, size=clusters)
    return graph, draw(st.integers(1, width)), extra, parts, n_parts


@given(neighbour_lists())
def test_pairs_are_those_of_the_lists_grouped_by_parts(case):
    graph, nearest, extra, parts, n_parts = case
    pairs, groups = list_pairs(*case)
    expected = {
        frozenset((a, int(b)))
        for a in range(graph.shape[0])
        for b in [*graph[a, :nearest], *extra[a]]
        if b not in (-1, a)
    }
    assert {frozenset(pair) for pair in pairs.tolist()} == expected
    assert len(pairs) == len(expected)  # none twice
    assert groups.size == n_parts**2 + 1
    assert groups[0] == 0
    assert groups[-1] == pairs.shape[0]
    for p, q in itertools.product(range(n_parts), repeat=2):
        group = pairs[groups[p * n_parts + q] : groups[p * n_parts + q + 1]]
        assert np.all(np.sort(parts[group], axis=1) == [p, q])
        assert p <= q or group.size == 0


@pytest.mark.parametrize("parts", [1, 2, 4, 6, 16])
def test_a_tournament_has_every_game_once_and_nobody_twice_in_a_round(parts):
    rounds = tournament(parts)
    games = [game for round_ in rounds for game in round_]
    expected = [(p, q) for p in range(parts) for q in range(p, parts)]
    assert sorted(games) == expected
    for round_ in rounds:
        players = [player for p, q in round_ for player in {p, q}]
        assert len(players) == len(set(players))


@given(clustered_rows(clusters=st.integers(1, 6)), st.integers(0, 10))
def test_packing_keeps_rows_and_leaves_room_up_to_the_most(case, extra):
    Z, labels, _, most = case
    most += extra
    clusters = labels.max() + 1
    rows = OrderedRows.of(Z.copy(), np.arange(labels.size, dtype=np.int32), labels.copy(), clusters)
    shuffle = np.random.default_rng(0).permutation(labels.size)
    rows.Z, rows.ids, rows.labels = rows.Z[shuffle], rows.ids[shuffle], rows.labels[shuffle]
    blocks = Blocks.pack(rows, most)
    assert np.array_equal(check_blocks(blocks, Z), labels)
    room = np.diff(blocks.starts)
    assert np.all(room >= blocks.sizes)
    assert np.all(room <= most)
    assert np.all((room > blocks.sizes) | (blocks.sizes == most))
    blocks.unpack(rows)
    assert np.array_equal(rows.Z, Z[rows.ids])
    assert np.array_equal(rows.labels, labels[rows.ids])
    assert np.array_equal(np.sort(rows.ids), np.arange(labels.size))


def test_clusters_that_lack_room_are_counted():
    Z = np.arange(12.0)[:, None]
    blocks = reference.pack(Z, np.repeat([0, 1, 2], 4), 3, 5)
    assert blocks.share_full(5) == 0
    blocks.sizes[:] = [5, 5, 4]
    assert blocks.share_full(5) == 0  # they may not grow any more
    assert blocks.share_full(6) == pytest.approx(2 / 3)


def test_the_farthest_row_of_each_cluster_is_found():
    rng = np.random.default_rng(0)
    Z, labels = rng.normal(size=(50, 3)), rng.permutation(np.repeat(np.arange(5), 10))
    blocks = reference.pack(Z, labels, 5, 12)
    far = blocks.rows[exchanging.farthest_rows(blocks)]
    centres = reference.centres_of(Z, labels, 5)
    for a in range(5):
        own = Z[labels == a]
        assert np.array_equal(far[a], own[np.argmax(np.sum((own - centres[a]) ** 2, axis=1))])


def search(sizes, effort, workers, *, seed=0, report=lambda what, share: None):
    return Search(sizes, effort, seed, workers, report)


def exchanged(Z, labels, sizes, effort, *, sweeps=0, seed=0, report=lambda what, share: None):
    ids = np.arange(labels.size, dtype=np.int32)
    rows = OrderedRows.of(Z.copy(), ids, labels.astype(np.int32), sizes.clusters)
    with reference.one_worker() as workers:
        graph = CentreGraph(sizes.clusters, seed=0, workers=workers)
        one = search(sizes, effort, workers, seed=seed, report=report)
        exchange_rows(rows, graph, 2.0 / Z.shape[1], sweeps, one)
    assert np.array_equal(rows.Z, Z[rows.ids])
    assert rows.sizes.tolist() == np.bincount(rows.labels, minlength=sizes.clusters).tolist()
    found = np.empty_like(rows.labels)
    found[rows.ids] = rows.labels
    return found


def test_annealing_finds_what_greedy_exchanges_miss():
    sizes, totals = SizeRange(60, 10, 10), np.zeros(2)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        Z, labels = rng.normal(size=(600, 2)).astype(np.float32), np.arange(600) % 60
        for way, sweeps in enumerate((0, 60)):
            found = exchanged(Z, labels, sizes, EFFORTS["best"], sweeps=sweeps)
            assert np.bincount(found).tolist() == [10] * 60
            totals[way] += reference.spread(Z, found)
    assert totals[1] < 0.95 * totals[0]


def test_a_cluster_that_has_used_up_its_room_gets_more():
    # Most rows are in two places.
    rng = np.random.default_rng(0)
    centres = 50 * rng.normal(size=(10, 2))
    Z = centres[np.where(rng.random(200) < 0.9, rng.integers(0, 2, 200), np.arange(200) % 10)]
    Z = (Z + rng.normal(size=(200, 2))).astype(np.float32)
    effort = Effort(passes=0, list_length=16, sweeps=0, greedy_sweeps=40, idle=0.0)
    found = exchanged(Z, np.arange(200) % 10, SizeRange(10, 1, 191), effort)
    first_room = 25  # a quarter more than the 20 rows that each has at first
    assert np.bincount(found, minlength=10).max() > first_room + 5


def test_sweeps_are_reported_from_the_first_on():
    said = []
    rng = np.random.default_rng(1)
    Z, labels = rng.normal(size=(100, 2)), np.arange(100) % 10
    sizes = SizeRange(10, 10, 10)
    exchanged(
        Z, labels, sizes, EFFORTS["fast"], sweeps=4, report=lambda what, share: said.append(share)
    )
    assert said[:4] == [turn / 16 for turn in range(4)]
    assert 0 <= min(said) <= max(said) < 1
