import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linear_sum_assignment, milp

from bagwise.cluster import assignment
from bagwise.cluster.assignment import assign_in_range
from bagwise.cluster.sizes import SizeRange
from tests.cluster import reference


def assigned(points, centres, limits):
    """Labels and their cost; every size is in range."""
    costs = np.sum((points[:, None] - centres) ** 2, axis=2)
    nearest = costs.argmin(axis=1)
    untouched = nearest.copy()
    with reference.one_worker() as workers:
        labels = assign_in_range(points, centres, nearest, limits, workers)
    assert np.array_equal(nearest, untouched)
    sizes = np.bincount(labels, minlength=limits.clusters)
    assert labels.shape == nearest.shape
    assert sizes.size == limits.clusters
    assert sizes.min() >= limits.least
    assert sizes.max() <= limits.most
    return labels, costs[np.arange(labels.size), labels].sum(), costs


@st.composite
def requests(draw):
    clusters, n = draw(st.integers(1, 6)), draw(st.integers(1, 24))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    points, centres = rng.normal(size=(n, 2)), rng.normal(size=(clusters, 2))
    if draw(st.booleans()):
        points, centres = np.round(points), np.round(centres)
    points += draw(st.sampled_from([0.0, 2.0]))  # then most rows want the same few centres
    least = draw(st.integers(0, n // clusters))
    most = draw(st.integers(-(-n // clusters), n))
    return points, centres, SizeRange(clusters, least, most)


def least_cost(costs, limits):
    """The optimum, as an integer programme."""
    n, clusters = costs.shape
    once = LinearConstraint(np.kron(np.eye(n), np.ones(clusters)), 1, 1)
    sizes = LinearConstraint(np.kron(np.ones(n), np.eye(clusters)), limits.least, limits.most)
    return milp(costs.ravel(), constraints=[once, sizes], integrality=1, bounds=(0, 1)).fun


@given(requests())
def test_the_total_distance_is_the_least_possible(request_):
    points, centres, limits = request_
    _, cost, costs = assigned(points, centres, limits)
    assert cost == pytest.approx(least_cost(costs, limits), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_equal_sizes_are_an_ordinary_assignment(seed):
    rng = np.random.default_rng(seed)
    points, centres = rng.normal(size=(120, 3)), rng.normal(size=(12, 3)) + 1
    _, cost, costs = assigned(points, centres, SizeRange(12, 10, 10))
    rows, places = linear_sum_assignment(np.repeat(costs, 10, axis=1))
    assert cost == pytest.approx(np.repeat(costs, 10, axis=1)[rows, places].sum())


@pytest.mark.parametrize("constant", ["EXACT_CLUSTERS", "EXACT_DISTANCES"])
@pytest.mark.parametrize(("d", "factor"), [(8, 1.1), (2, 2.0)], ids=["d=8", "d=2"])
def test_many_clusters_are_assigned_nearly_as_well(constant, d, factor, monkeypatch):
    rng = np.random.default_rng(0)
    seen, new = rng.normal(size=(2, 600, 8))
    labels = reference.search_labels(seen.astype(np.float32), SizeRange(60, 10, 10))
    centres, limits = reference.centres_of(seen, labels, 60), SizeRange(60, 10, 10)
    _, best, _ = assigned(new, centres, limits)
    monkeypatch.setattr(assignment, constant, 0)
    _, cost, _ = assigned(new, centres, limits)
    assert best * 1.0001 < cost  # it was the other way
    assert cost < 1.1 * best


@given(requests())
def test_many_clusters_keep_their_sizes_too(request_):
    points, centres, limits = request_
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "EXACT_CLUSTERS", 0)
        _, cost, costs = assigned(points, centres, limits)
    assert cost >= least_cost(costs, limits) - 1e-6


def test_rows_whose_nearest_centres_will_do_stay_there():
    rng = np.random.default_rng(0)
    points, centres = rng.normal(size=(50, 2)), rng.normal(size=(4, 2))
    labels, _, costs = assigned(points, centres, SizeRange(4, 0, 50))
    assert np.array_equal(labels, costs.argmin(axis=1))
