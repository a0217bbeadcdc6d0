import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, sparse

from bagwise.cluster import metric
from bagwise.cluster.metric import make_points
from bagwise.rows import whitening
from bagwise.rows.whitening import Columns

RNG = np.random.default_rng(0)


def squared_distances(points):
    points = points.astype(float)
    return np.sum((points[:, None] - points) ** 2, axis=2)


def same_up_to_scale(one, other, *, digits=1e-4):
    """Whether all distances agree but for a common factor."""
    one, other = squared_distances(one), squared_distances(other)
    return np.allclose(one / one.mean(), other / other.mean(), atol=digits)


@pytest.mark.parametrize(
    ("noise", "columns", "least", "most"),
    [(0.1, 2, 0.99, 1.01), (1e-4, 2, 0, 0.01), (1e-8, 1, 1, 1)],
)
def test_nearly_collinear_columns_do_not_rule_the_distance(noise, columns, least, most):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    points = make_points(np.hstack([x, x + noise * rng.normal(size=(500, 1))]), "whiten", rng)
    assert points.shape == (500, columns)
    variances = points.var(axis=0)
    assert least <= variances.min() / variances.max() <= most


@given(seed=st.integers(0, 10**6), powers=st.lists(st.integers(-30, 30), min_size=3, max_size=3))
def test_the_units_of_columns_do_not_matter_at_all_in_standard_deviations(seed, powers):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 3))
    units = 2.0 ** np.array(powers)  # changes no digit
    assert np.array_equal(make_points(X, "std", rng), make_points(X * units, "std", rng))


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9, -1 / 3])
def test_constant_columns_do_not_count(scale, constant):
    X = RNG.normal(size=(60, 2))
    wider = np.column_stack([X[:, :1], np.full(60, constant), X[:, 1:]])
    found = make_points(wider, scale, RNG)
    assert same_up_to_scale(found, make_points(X, scale, RNG))


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_rows_that_are_all_equal_become_one_point(scale, kind):
    points = make_points(kind(np.full((20, 3), 0.1)), scale, RNG)
    assert np.isfinite(points).all()
    assert np.all(points == points[0])


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
@pytest.mark.parametrize("unit", [1e-100, 1e-30, 1.0, 1e30, 1e100])
def test_points_are_of_usual_size_one(scale, unit):
    X = unit * np.random.default_rng(0).normal(size=(101, 3))
    points = make_points(X, scale, RNG)
    assert points.dtype == np.float32
    assert np.median(np.linalg.norm(points, axis=1)) == pytest.approx(1, rel=1e-4)
    assert same_up_to_scale(points, make_points(X / unit, scale, RNG))


def test_distances_without_scale_are_those_of_the_columns():
    X = RNG.normal(size=(50, 4)) * [1, 10, 0.1, 3] + 100
    assert same_up_to_scale(make_points(X, "none", RNG), X)
    assert not same_up_to_scale(make_points(X, "std", RNG), X)
    assert same_up_to_scale(make_points(X, "std", RNG), X / X.std(axis=0))


def test_integers_are_numbers_too():
    X = RNG.integers(-5, 5, size=(40, 3))
    for scale in ("whiten", "std", "none"):
        assert np.array_equal(make_points(X, scale, RNG), make_points(X.astype(float), scale, RNG))


@pytest.mark.parametrize(
    ("n", "far", "width", "kind"),
    [
        (2000, 1, 3, np.float32),
        (2000, 500, 3, np.float32),
        (2000, 1e6, 3, np.float64),
        (200, 1e6, 3, np.float64),
        (2000, 1, 1, np.float64),
    ],
)
def test_digits_are_as_many_as_are_needed(n, far, width, kind):
    X = np.random.default_rng(0).normal(size=(n, width))
    X[0] = far
    points = make_points(X, "none", RNG)
    assert points.dtype == kind
    if far == 1e6:
        assert same_up_to_scale(points[1:200], X[1:200], digits=1e-8)


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
def test_points_of_reordered_rows_are_the_reordered_points_to_the_last_digit(scale, monkeypatch):
    monkeypatch.setattr(whitening, "BLOCK", 64)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    shuffle = rng.permutation(300)
    for form in (np.asarray, sparse.csr_array):
        one = make_points(form(X), scale, rng, order=np.argsort(shuffle))
        other = make_points(form(X[np.argsort(shuffle)]), scale, rng)
        assert np.array_equal(one, other)


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
def test_parts_of_the_rows_add_up(scale, monkeypatch):
    X = RNG.normal(size=(100, 3)) @ RNG.normal(size=(3, 3))
    whole = make_points(X, scale, RNG)
    monkeypatch.setattr(whitening, "BLOCK", 7)
    assert same_up_to_scale(make_points(X, scale, RNG), whole)


@pytest.mark.parametrize("scale", ["whiten", "std", "none"])
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_sparse_rows_are_where_dense_ones_are(scale, form):
    rng = np.random.default_rng(0)
    X = sparse.random_array((80, 128), density=0.1, random_state=rng).toarray()
    X *= rng.normal(size=128)
    found = make_points(form(X), scale, rng)
    assert same_up_to_scale(found, make_points(X, scale, rng), digits=1e-3)


def test_very_wide_sparse_rows_need_no_matrix_of_their_width():
    # 200,000 columns: their covariance, or an identity, would take 320 GB.
    X = sparse.random_array((300, 200_000), density=1e-4, random_state=RNG, format="csr")
    for scale in ("std", "none"):
        points = make_points(X, scale, np.random.default_rng(0))
        assert points.shape == (300, metric.SPARSE_DIMENSIONS)
        assert np.isfinite(points).all()


def test_importance_is_that_of_car_scores():
    """Against their definition, with a root of the correlations by another way."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 4)) @ rng.normal(size=(4, 4)) + 3
    scores = X @ [1.0, 0.0, -0.5, 2.0] + rng.normal(size=4000)
    both = np.asarray(np.corrcoef(np.column_stack([X, scores]).T))
    expected = np.linalg.solve(linalg.sqrtm(both[:4, :4]), both[:4, 4])
    # Their squares add up to the share that is linear.
    design = np.column_stack([X, np.ones(4000)])
    left = scores - design @ np.linalg.lstsq(design, scores)[0]
    assert np.sum(expected**2) == pytest.approx(1 - left.var() / scores.var())
    floor = metric.FLOOR * np.mean(expected**2)
    found = metric.importance(Columns(X), scores)
    assert found == pytest.approx(np.sqrt(expected**2 + floor), rel=1e-6)
    plain = np.abs(np.linalg.lstsq(design, scores)[0][:4]) * X.std(axis=0)  # the twin: slopes
    assert not np.allclose(found / found.sum(), plain / plain.sum(), rtol=0.2)


def test_columns_that_are_nearly_alike_share_what_they_bring():
    rng = np.random.default_rng(6)
    x = rng.normal(size=2000)
    X = np.column_stack([x, x + 1e-4 * rng.normal(size=2000), rng.normal(size=2000)])
    noisy = x + 50 * (X[:, 0] - X[:, 1])  # such slopes come from noise
    found = metric.importance(Columns(X), noisy)
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert found[2] < found[0] / 2


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_importance_knows_the_order_of_the_rows(form):
    X = np.random.default_rng(7).normal(size=(500, 3))
    scores, order = X @ [1.0, -2.0, 0.0], np.random.default_rng(8).permutation(500)
    found = metric.importance(Columns(form(X), order), scores)
    assert found == pytest.approx(metric.importance(Columns(X), scores), rel=1e-9)
