import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from bagwise.rows import whitening
from bagwise.rows.whitening import RANK_TOLERANCE, Columns, principal_axes, rounding

RNG = np.random.default_rng(0)


def rows(n=200, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 * rng.normal(size=d)


def leverage(columns):
    """What no change of coordinates can change."""
    white = columns.white_rows()
    return white @ white.T


@given(seed=st.integers(0, 10**6), n=st.integers(10, 60), rank=st.integers(1, 4))
def test_white_rows_have_mean_zero_and_the_unit_covariance_on_their_span(seed, n, rank):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, 6)) + rng.normal(size=6)
    columns = Columns(X)
    white = columns.white_rows()
    # Rows that are nearly of a lower rank have fewer digits in the direction that is left.
    digits = 1e-13 * columns.axes.values[-1] / columns.axes.values[0]
    assert white.shape[1] == columns.axes.rank <= rank
    assert np.allclose(white.mean(axis=0), 0, atol=1e-9)
    assert np.allclose(white.T @ white / n, np.eye(columns.axes.rank), atol=1e-9 + digits)


def test_columns_in_other_units_or_turned_are_the_same_rows():
    X = rows()
    expected = leverage(Columns(X))
    for units in ([1e-100, 1, 1e100, 1e5], [1e90] * 4, [1e-90] * 4, [-1, 1, -1, 1]):
        assert np.allclose(leverage(Columns(X * units)), expected, atol=1e-8), units
    turn = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    assert np.allclose(leverage(Columns(X @ turn)), expected, atol=1e-8)
    assert np.allclose(leverage(Columns(X + 1e6)), expected, atol=1e-6)
    assert not np.allclose(leverage(Columns(X * X)), expected, atol=1e-2)


@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3, 1e9, 1e-90, 1e90])
@pytest.mark.parametrize("n", [10, 1000])
def test_constant_columns_count_as_nothing(value, n):
    X = rows(n, 2)
    columns = Columns(np.column_stack([X[:, :1], np.full(n, value), X[:, 1:]]))
    assert columns.axes.rank == 2
    assert columns.units[1] == columns.axes.units[1] == 0
    assert columns.axes.spread[1] == 1
    assert not columns.axes.basis[1].any()
    assert np.allclose(leverage(columns), leverage(Columns(X)), atol=1e-9)
    assert Columns(np.full((n, 3), value)).white_rows().shape == (n, 0)


def test_a_column_far_from_zero_is_not_constant():
    columns = Columns(1e9 + RNG.normal(size=(500, 1)))
    assert columns.axes.rank == 1
    assert columns.white_rows().var() == pytest.approx(1)


def test_no_columns_have_no_directions():
    columns = Columns(np.empty((5, 0)))
    assert columns.axes.rank == 0
    assert columns.white_rows().shape == (5, 0)


@pytest.mark.parametrize("unit", [1e-80, 1.0, 1e80])
@pytest.mark.parametrize(("residue", "rank"), [(0.0, 2), (1e-7, 2), (1e-6, 2), (1e-4, 3), (1, 3)])
def test_what_follows_from_other_columns_but_for_a_few_digits_is_no_direction(residue, rank, unit):
    X = RNG.normal(size=(300, 2))
    last = X.sum(axis=1) + residue * RNG.normal(size=300)
    assert Columns(np.column_stack([X, unit * last])).axes.rank == rank


def test_solvers_may_look_closer():
    x = RNG.normal(size=(300, 1))
    X = np.hstack([x, x + 1e-6 * RNG.normal(size=(300, 1))])
    gram = X.T @ X
    assert principal_axes(gram).rank == 1
    closer = principal_axes(gram, tolerance=rounding(2))
    assert closer.rank == 2
    assert rounding(2) < RANK_TOLERANCE
    assert np.allclose(closer.inverse @ gram, np.eye(2), atol=1e-2)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_directions_and_lost_ones_are_a_basis_and_invert_the_gram_matrix(rank):
    X = RNG.normal(size=(50, rank)) @ RNG.normal(size=(rank, 5)) * [1, 1e-3, 1e3, 1, 1]
    axes = principal_axes(X.T @ X)
    whole = np.hstack([axes.vectors, axes.lost])
    assert axes.vectors.shape == (5, rank)
    assert np.allclose(whole.T @ whole, np.eye(5))
    assert np.all(np.diff(axes.values) >= 0)
    assert np.allclose(axes.inverse, axes.basis @ axes.basis.T)
    assert np.allclose(X @ axes.inverse @ X.T @ X, X, rtol=1e-6, atol=1e-6)


def test_the_moments_are_those_of_numpy_whatever_the_blocks(monkeypatch):
    X = rows(100)
    order = RNG.permutation(100)
    for chunk in (7, 64, 1000):
        monkeypatch.setattr(whitening, "BLOCK", chunk)
        for columns in (Columns(X), Columns(X, order), Columns(sparse.csr_array(X))):
            assert np.allclose(columns.mean, X.mean(axis=0))
            assert np.allclose(columns.units, 1 / X.std(axis=0))
            assert np.allclose(columns.covariance, np.cov(X.T, bias=True))


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_sparse_columns_have_the_axes_of_dense_ones(form):
    X = sparse.random_array((400, 6), density=0.2, rng=np.random.default_rng(0)).toarray()
    X[:, 3], X[:, 4] = X[:, 0] + X[:, 1], 0.1
    dense, thin = Columns(X).axes, Columns(form(X)).axes
    assert dense.rank == thin.rank == 4
    assert dense.units[4] == thin.units[4] == 0
    assert np.allclose(dense.inverse, thin.inverse, rtol=1e-6)
