import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse

import bagwise as bw
from bagwise.bagging import quality
from bagwise.bagging.bags import Bags
from bagwise.bagging.quality import measure_quality
from bagwise.errors import BagsError
from tests.stats import mean_is

FORMATS = [sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.csr_matrix]


def scatters(bags, X):
    """S and N as their definitions say, row by row and bag by bag."""
    inside = X[bags.in_bag]
    center = inside.mean(axis=0)
    S = sum(np.outer(x - center, x - center) for x in inside)
    N = np.zeros_like(S)
    for b in range(bags.n_bags):
        off = X[bags.index == b].mean(axis=0) - center
        N += bags.sizes[b] * np.outer(off, off)
    return S, N


def agrees_with_the_definitions(found, bags, X):
    S, N = scatters(bags, X)
    values, vectors = np.linalg.eigh(S)
    spanned = values > 1e-9 * values[-1]
    directions = vectors[:, spanned][:, ::-1]
    kept = [(v @ N @ v) / (v @ S @ v) for v in directions.T]
    np.testing.assert_allclose(found.kept, kept, rtol=1e-6, atol=1e-9)
    assert found.sse_ratio == pytest.approx(1 - np.trace(N) / np.trace(S), abs=1e-10)
    inverse_S, inverse_N = (np.linalg.pinv(M, rcond=1e-9, hermitian=True) for M in (S, N))
    if np.linalg.matrix_rank(N, tol=1e-9 * values[-1]) < spanned.sum():
        assert found.error_ratio == found.prediction_ratio == np.inf
        return
    error = np.trace(inverse_N) / np.trace(inverse_S)
    assert found.error_ratio == pytest.approx(error, rel=1e-6)
    prediction = np.trace(inverse_N @ S) / spanned.sum()
    assert found.prediction_ratio == pytest.approx(prediction, rel=1e-6)


def uneven(rng, n, m):
    """Bags of all kinds of sizes, none of them empty."""
    return Bags(
        rng.permutation(np.concatenate([np.arange(m), rng.integers(0, m, n - m) ** 2 // m]))
    )


@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 12), st.floats(0, 0.4), st.booleans()
)
def test_every_figure_is_what_its_definition_says(seed, d, m, share_left_out, as_sparse):
    rng = np.random.default_rng(seed)
    bags = uneven(rng, n=60, m=m)
    index = np.where(rng.random(60) < share_left_out, -1, bags.index)
    bags = Bags(index) if set(index) >= set(range(m)) else bags  # no bag may be empty
    X = rng.normal(size=(60, d)) @ (np.eye(d) + rng.uniform(-1, 1, size=(d, d)) / (2 * d))
    X[:, 0] = rng.integers(0, 3, 60)
    shares = np.linalg.eigvalsh(scatters(bags, X)[1]) / np.trace(scatters(bags, X)[0])
    assume(not np.any((shares > 1e-13) & (shares < 1e-6)))  # singular or not: no matter of opinion
    found = bags.quality(sparse.csr_array(X) if as_sparse else X)
    agrees_with_the_definitions(found, bags, X)


def test_four_rows_by_hand():
    # Within bags 4 * 1, between 4 * 25: S = 104, N = 100.
    found = Bags(np.array([0, 0, 1, 1])).quality([[0], [2], [10], [12]])
    assert found.sse_ratio == pytest.approx(4 / 104)
    assert found.kept == pytest.approx([100 / 104])
    assert found.error_ratio == found.prediction_ratio == pytest.approx(1.04)
    assert found.least_kept == found.kept[0]
    assert found.directions == 1


@pytest.mark.parametrize("block", [1, 8, 30, 10**6])
def test_blocks_of_any_length_may_cut_bags(monkeypatch, block):
    rng = np.random.default_rng(3)
    X, bags = rng.normal(size=(200, 2)), uneven(rng, n=200, m=9)
    whole = bags.quality(X)
    monkeypatch.setattr(quality, "_BLOCK", block)
    for each in (bags, Bags.singletons(200), Bags(np.repeat([0, -1, 1], [150, 20, 30]))):
        agrees_with_the_definitions(each.quality(X), each, X)
    np.testing.assert_allclose(bags.quality(X).kept, whole.kept, rtol=1e-12)


@pytest.mark.parametrize("make", FORMATS)
def test_sparse_and_dense_agree(make):
    rng = np.random.default_rng(1)
    n = 500
    X = np.zeros((n, 30))
    level = rng.integers(0, 29, n)
    # All levels, so that one follows from the others; in units of their own, since directions of
    # equal spread could be turned into each other.
    X[np.arange(n), level] = np.linspace(1, 2, 29)[level]
    X[:, -1] = 1e6 + rng.normal(size=n)  # no zeros, and far from them
    bags = uneven(rng, n, m=60)
    given_X = make(X)
    before = given_X.copy()
    dense, found = bags.quality(X), bags.quality(given_X)
    assert dense.directions == found.directions == 29
    np.testing.assert_allclose(found.kept, dense.kept, rtol=1e-7)
    for name in ("sse_ratio", "error_ratio", "prediction_ratio"):
        assert getattr(found, name) == pytest.approx(getattr(dense, name), rel=1e-7)
    assert abs(given_X - before).sum() == 0


def test_bags_of_one_row_or_of_equal_rows_lose_nothing():
    rng = np.random.default_rng(0)
    one = Bags(rng.permutation(50)).quality(rng.normal(5, 3, size=(50, 4)))
    equal = Bags(np.arange(63) // 7).quality(np.repeat(rng.normal(size=(9, 3)), 7, axis=0))
    for found in (one, equal):
        assert found.sse_ratio == 0
        assert found.kept == pytest.approx(np.ones(found.kept.size), abs=1e-9)
        assert found.error_ratio == pytest.approx(1, abs=1e-9)
        assert found.prediction_ratio == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_constant_columns_count_as_nothing(value):
    rng, n = np.random.default_rng(2), 100_001  # so many that the sum of 0.1 is rounded
    X, bags = rng.normal(size=(n, 2)), uneven(rng, n, 9000)
    found = bags.quality(np.column_stack([np.full(n, value), X]))
    alone = bags.quality(X)
    assert found.kept == pytest.approx(alone.kept, rel=1e-9)
    assert found.error_ratio == pytest.approx(alone.error_ratio, rel=1e-9)
    assert found.sse_ratio == pytest.approx(alone.sse_ratio, rel=1e-9)


def test_a_column_that_differs_in_its_last_digit_is_constant():
    X = np.column_stack([np.arange(6.0), np.where(np.arange(6) % 2, 0.3, 0.1 + 0.2)])
    assert Bags(np.arange(6) // 2).quality(X).directions == 1


@pytest.mark.parametrize("X", [np.full((6, 3), 0.7), np.zeros((6, 3)), np.zeros((6, 0))])
def test_rows_that_do_not_differ_have_nothing_to_lose(X):
    found = Bags(np.arange(6) // 2).quality(X)
    assert found.sse_ratio == 0
    assert found.directions == 0
    assert found.least_kept == found.error_ratio == found.prediction_ratio == 1
    assert "do not differ" in str(found)


@pytest.mark.parametrize(("m", "determined"), [(1, False), (4, False), (5, False), (6, True)])
def test_fewer_bags_than_coefficients_determine_nothing(m, determined):
    # Five slopes and an intercept.
    X = np.random.default_rng(6).normal(size=(120, 5))
    found = Bags(np.arange(120) % m).quality(X)
    assert np.isfinite(found.error_ratio) == np.isfinite(found.prediction_ratio) == determined
    assert (found.to_dict()["error_ratio"] is None) != determined
    assert ("not determined" in str(found)) != determined


def test_a_direction_that_all_bags_share_is_lost():
    rng = np.random.default_rng(0)
    n = 3000
    X = np.column_stack([np.arange(n) % 3 == 0, rng.normal(size=n)]).astype(float)
    found = Bags(np.arange(n) // 3).quality(X)  # each bag has one row of three
    assert found.error_ratio == np.inf
    assert found.prediction_ratio == np.inf
    assert found.least_kept < 0.01


def test_left_out_rows_do_not_count():
    rng = np.random.default_rng(7)
    X, index = rng.normal(size=(80, 3)), rng.integers(-1, 20, 80)
    index[:20] = np.arange(20)
    bags = Bags(index)
    inside = Bags(index[bags.in_bag]).quality(X[bags.in_bag])
    X[~bags.in_bag] = np.nan
    found = bags.quality(X)
    assert found.kept == pytest.approx(inside.kept)
    assert found.error_ratio == pytest.approx(inside.error_ratio)


def test_digits_are_kept_far_from_zero():
    rng = np.random.default_rng(8)
    x, bags = rng.integers(-1000, 1000, size=(400, 3)) / 1024.0, uneven(rng, 400, 50)
    near = bags.quality(x)
    found = bags.quality(x + 2.0**33)
    assert found.kept == pytest.approx(near.kept, rel=1e-6)
    assert found.error_ratio == pytest.approx(near.error_ratio, rel=1e-6)


def test_units_far_apart_lose_no_direction():
    rng = np.random.default_rng(9)
    x, bags = rng.normal(size=(400, 3)), uneven(rng, 400, 50)
    plain = bags.quality(x)
    for units in ([1e9, 1.0, 1e-6], [1e90, 1.0, 1e-90]):
        found = bags.quality(x * units)
        assert found.directions == 3
        assert found.prediction_ratio == pytest.approx(plain.prediction_ratio, rel=1e-9)
        assert np.isfinite(found.error_ratio)
    # Coefficients of the smallest unit have errors that dwarf the others.
    S, N = scatters(bags, x)
    last = np.linalg.inv(N)[2, 2] / np.linalg.inv(S)[2, 2]
    assert bags.quality(x * [1e5, 1.0, 1e-5]).error_ratio == pytest.approx(last, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float32, bool])
def test_any_numbers_will_do(dtype):
    rng = np.random.default_rng(10)
    X, bags = rng.integers(0, 2, size=(90, 3)).astype(dtype), uneven(rng, 90, 20)
    for make in (np.asarray, sparse.csr_array):
        assert bags.quality(make(X)).kept == pytest.approx(bags.quality(X.astype(float)).kept)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_what_changes_the_view_but_not_the_rows_changes_nothing(seed, d):
    rng = np.random.default_rng(seed)
    X, bags = rng.normal(size=(70, d)), uneven(rng, 70, 15)
    found = bags.quality(X)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    stretch = turn * rng.uniform(0.1, 10, size=d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    for same in (X + rng.normal(size=d) * 100, 7.3 * X, X @ turn):
        again = bags.quality(same)
        assert again.sse_ratio == pytest.approx(found.sse_ratio, rel=1e-9)
        assert again.kept == pytest.approx(found.kept, rel=1e-6)
        assert again.error_ratio == pytest.approx(found.error_ratio, rel=1e-9)
    for mapped in (X @ stretch, X @ stretch + 5, X @ np.hstack([stretch, stretch])):
        again = bags.quality(mapped)
        assert again.prediction_ratio == pytest.approx(found.prediction_ratio, rel=1e-7)
    rows = rng.permutation(70)
    assert bags.take(rows).quality(X[rows]).error_ratio == pytest.approx(found.error_ratio)


def test_the_error_ratio_is_that_of_actual_fits():
    rng = np.random.default_rng(13)
    n, m, d, draws = 400, 12, 3, 600
    X, bags = rng.normal(size=(n, d)) * [1.0, 2.0, 0.5] + 3, uneven(rng, n, m)
    X += rng.normal(size=(m, d))[bags.index]
    truth, noise = np.array([1.0, -2.0, 0.5]), rng.normal(size=(n, draws))
    labels = (4 + X @ truth)[:, None] + noise

    def errors(design, target, weight):
        root = np.sqrt(weight)[:, None]
        full = np.column_stack([np.ones(len(design)), design])
        fitted = np.linalg.lstsq(root * full, root * target, rcond=None)[0][1:]
        return np.sum((fitted - truth[:, None]) ** 2, axis=0)

    S, _ = scatters(bags, X)
    row_error = np.trace(np.linalg.inv(S))
    by_rows = errors(X, labels, np.ones(n)) / row_error
    by_bags = errors(bags.mean(X), bags.mean(labels), bags.sizes) / row_error
    found = bags.quality(X)
    assert mean_is(by_rows, 1.0)
    assert mean_is(by_bags, found.error_ratio)
    # Twins: bags that count once each, in the fit or in the figure.
    unweighted = errors(bags.mean(X), bags.mean(labels), np.ones(m)) / row_error
    assert not mean_is(unweighted, found.error_ratio)
    off = bags.mean(X) - bags.mean(X).mean(axis=0)
    ignoring_sizes = np.trace(np.linalg.inv(bags.sizes.mean() * off.T @ off)) / row_error
    assert not mean_is(by_bags, ignoring_sizes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_values_that_cannot_be_summed_are_refused(bad):
    X = np.ones((4, 2))
    X[2, 1] = bad
    for make in (np.asarray, sparse.csr_array):
        with pytest.raises(BagsError, match="missing, infinite or huge"):
            Bags(np.array([0, 0, 1, 1])).quality(make(X))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((3, 2)), r"one row per row of the bags \(4\), got \(3, 2\)"),
        (sparse.csr_array(np.ones((5, 2))), r"got \(5, 2\)"),
        (np.ones(4), r"got \(4,\)"),
        (np.array([["a"], ["b"], ["c"], ["d"]]), "must hold numbers"),
        (np.ones((4, 1), dtype=complex), "must hold numbers"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(X, message):
    with pytest.raises(BagsError, match=message):
        measure_quality(Bags(np.array([0, 0, 1, 1])), X)


def test_figures_can_be_printed_and_kept():
    found = Bags(np.array([0, 0, 1, 1, -1])).quality(np.arange(5.0)[:, None])
    assert isinstance(found, quality.BagQuality)
    kept = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert kept["kept"] == pytest.approx([0.8])
    assert kept["error_ratio"] == pytest.approx(1.25)
    text = str(found)
    assert "feature variance lost by averaging  0.2" in text
    assert "1.25 times" in text
    assert len({line.rindex("  ") for line in text.splitlines()}) == 1
    assert "<caption>Bag quality</caption>" in found._repr_html_()
    with pytest.raises(ValueError, match="read-only"):
        found.kept[0] = 1


def test_the_caller_keeps_its_matrix():
    X = np.arange(8.0).reshape(4, 2)
    Bags(np.array([0, 0, 1, 1])).quality(X)
    assert np.array_equal(X, np.arange(8.0).reshape(4, 2))


def test_a_release_measures_what_leaves(table, tmp_path):
    made = bw.make_release(table, label="y", bag_size=5, not_private=True)
    X, _, bag_ids = made.training_data()
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    assert loaded.quality().to_dict() == made.quality().to_dict()
    assert made.quality().to_dict() == Bags(bag_ids).quality(X).to_dict()
