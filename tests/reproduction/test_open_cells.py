"""A cell without privacy: the minimiser, and what theory expects of it."""

from itertools import product

import numpy as np
import pytest

from bagwise.privacy.noise import pick_rows
from bagwise.rng import SimulatedNoise
from reproduction.cells import Cell
from reproduction.draws import Draw
from reproduction.open_cells import (
    _Choice,
    expected_error,
    minimiser_error,
    protocol_data,
    run_open_cell,
)
from reproduction.protocol import TRUTH_LENGTH
from reproduction.selection import sorted_moments
from reproduction.squared_errors import gaussian_square_sd
from tests import stats

LOSSES = ("bag", "aggregate", "instance")
FRESH = ("random", "kmeans")
BY_LABELS = ("sorted", "super")
SMALL = Draw("dep", n=400, d=4, run=0, seed=3)


def bags_of(draw, cell, labels):
    if cell.by_labels:
        return draw.bags_by(labels, cell)
    return draw.bags_without_labels(cell.strategy, cell.bag_size)


def levers(draw, cell, bags):
    """Return T, (d, m), by which the minimiser is ``T b``: ordinary least squares."""
    if cell.loss == "instance":
        X = draw.X[bags.in_bag]
        return np.linalg.solve(X.T @ X, bags.sum(draw.X).T)
    return np.linalg.pinv(bags.mean(draw.X))


def errors_of(draw, cell, bags, bag_labels):
    """Return the squared error of the minimiser for each row of bag labels."""
    off = bag_labels @ levers(draw, cell, bags).T - draw.theta
    return np.sum(off**2, axis=-1)


def aggregates(cell, labels, bags, rng):
    """Return a label for each bag from each row of labels, (r, n) to (r, m)."""
    labels = np.atleast_2d(labels)
    if cell.label_kind == "mean":
        return bags.mean(labels.T).T
    by_bag = np.argsort(bags.index, kind="stable")[(~bags.in_bag).sum() :]
    members = by_bag.reshape(bags.n_bags, -1)
    place = rng.integers(members.shape[1], size=(len(labels), bags.n_bags))
    picked = members[np.arange(bags.n_bags), place]
    return np.take_along_axis(labels, picked, axis=1)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")  # the tables show what it says
@pytest.mark.parametrize("strategy", [*FRESH, *BY_LABELS])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_minimiser_counts_bags_alike(loss, strategy):
    cell = Cell(loss, "dep", 10, 0.5, strategy)
    labels = SMALL.labels(0.5)
    bags = bags_of(SMALL, cell, labels)
    [bag_labels] = aggregates(cell, labels, bags, np.random.default_rng(41))
    found = minimiser_error(SMALL, cell, bags, bag_labels)
    assert found == pytest.approx(errors_of(SMALL, cell, bags, bag_labels), rel=1e-8)


@pytest.mark.parametrize("data", ["iso", "dep"])
@pytest.mark.parametrize("strategy", FRESH)
@pytest.mark.parametrize("loss", LOSSES)
def test_expected_errors_of_bags_that_know_no_label(loss, strategy, data):
    """Only the noise of the labels and the picks are drawn anew."""
    draw, cell = Draw(data, n=400, d=4, run=0, seed=3), Cell(loss, data, 10, 0.5, strategy)
    rng = np.random.default_rng(42)
    bags = bags_of(draw, cell, None)
    labels = draw.X @ draw.theta + 0.5 * rng.standard_normal((6_000, 400))
    found = errors_of(draw, cell, bags, aggregates(cell, labels, bags, rng))
    expected, sd = expected_error(draw, cell, labels[0], bags)
    assert stats.mean_is(found, expected)
    assert not stats.mean_is(found, 1.15 * expected)
    assert not stats.mean_is(found, 0.85 * expected)
    squares = (found - expected) ** 2
    assert stats.mean_is(squares, sd**2)
    assert not stats.mean_is(squares, (1.3 * sd) ** 2)
    assert not stats.mean_is(squares, (0.7 * sd) ** 2)


def measured_expected_unselected(cell, runs):
    """Return errors of bags by labels, everything drawn anew: measured, and by theory.

    The last is the expectation without what selection by the labels' own noise adds.
    """
    found = []
    for run in range(runs):
        draw = Draw(cell.data, n=10_000, d=8, run=run, seed=4)
        labels = draw.labels(cell.label_noise_sd)
        bags = bags_of(draw, cell, labels)
        bag_labels = aggregates(cell, labels, bags, draw.stream("test", cell))
        [measured] = errors_of(draw, cell, bags, bag_labels)
        expected, _ = expected_error(draw, cell, labels, bags)
        bias, _ = sorted_moments(
            theta=draw.theta,
            covariance=draw.features.covariance,
            label_noise_sd=cell.label_noise_sd,
            bag_size=cell.bag_size,
            n_bags=bags.n_bags,
        )
        found.append((measured, expected, expected - bias @ bias))
    return np.array(found).T


@pytest.mark.parametrize("text", ["bag,iso,50,2,sorted", "bag,iso,10,2,super"])
def test_expected_errors_of_bags_by_labels(text):
    measured, expected, unselected = measured_expected_unselected(Cell.parse(text), runs=150)
    assert stats.mean_is(measured - expected, 0.0)
    assert not stats.mean_is(measured - 1.1 * expected, 0.0)
    assert not stats.mean_is(measured - unselected, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("label_noise_sd", [0.5, 2.0])
@pytest.mark.parametrize("bag_size", [10, 50])
@pytest.mark.parametrize("strategy", BY_LABELS)
@pytest.mark.parametrize("loss", ["bag", "instance"])
def test_expected_errors_of_all_bags_by_labels(loss, strategy, bag_size, label_noise_sd):
    cell = Cell(loss, "iso", bag_size, label_noise_sd, strategy)
    measured, expected, unselected = measured_expected_unselected(cell, runs=1_500)
    assert stats.mean_is(measured - expected, 0.0)
    assert not stats.mean_is(measured - 1.25 * expected, 0.0)
    if loss == "bag":
        assert not stats.mean_is(measured - unselected, 0.0)


@pytest.mark.parametrize("label_noise_sd", [0.5, 2.0])
@pytest.mark.parametrize("strategy", BY_LABELS)
@pytest.mark.parametrize("loss", ["aggregate", "instance"])
def test_what_picking_adds_given_the_labels(loss, strategy, label_noise_sd):
    """The labels of the outermost bags vary most, and their centroids pull most."""
    draw, cell = (
        Draw("iso", n=2_000, d=4, run=1, seed=3),
        Cell(loss, "iso", 20, label_noise_sd, strategy),
    )
    labels = draw.labels(label_noise_sd)
    bags = bags_of(draw, cell, labels)
    picked = aggregates(cell, np.broadcast_to(labels, (6_000, 2_000)), bags, draw.stream("test"))
    T = levers(draw, cell, bags)
    found = np.sum(((picked - bags.mean(labels)) @ T.T) ** 2, axis=1)
    added = expected_error(draw, cell, labels, bags)[0] - _without_picks(draw, cell, labels, bags)
    assert stats.mean_is(found, added)
    assert not stats.mean_is(found, 1.15 * added)
    inner = np.sum(T**2, axis=0) @ np.full(bags.n_bags, np.median(bags.variance(labels)))
    assert not stats.mean_is(found, inner)  # as if all bags were like those in the middle


@pytest.mark.parametrize("strategy", BY_LABELS)
@pytest.mark.parametrize("loss", ["aggregate", "instance"])
def test_how_much_picks_vary_over_all_of_them(loss, strategy):
    """What is picked from sorted bags is not Gaussian: two more cumulants make it exact."""
    draw, cell = Draw("iso", n=30, d=2, run=1, seed=3), Cell(loss, "iso", 3, 0.5, strategy)
    labels = draw.labels(0.5)
    bags = bags_of(draw, cell, labels)
    choice, T = _Choice.of(draw, cell, labels, bags), levers(draw, cell, bags)
    members = [labels[bags.index == bag] for bag in range(bags.n_bags)]
    found = np.sum((np.array(list(product(*members))) @ T.T - draw.theta) ** 2, axis=1)
    bias = T @ bags.mean(labels) - draw.theta
    gaussian = gaussian_square_sd(bias, choice.covariance) ** 2
    assert found.mean() == pytest.approx(bias @ bias + choice.risk)
    assert found.var() == pytest.approx(gaussian + choice.excess(bias))
    assert found.var() != pytest.approx(gaussian, rel=1e-3)
    assert found.var() != pytest.approx(gaussian + choice.excess(-bias), rel=1e-3)


def _without_picks(draw, cell, labels, bags):
    """Return what is expected if bags have their mean for a label."""
    if cell.loss == "aggregate":
        mean_cell = Cell("bag", cell.data, cell.bag_size, cell.label_noise_sd, cell.strategy)
        return expected_error(draw, mean_cell, labels, bags)[0]
    X, y = draw.X[bags.in_bag], labels[bags.in_bag]
    G = X.T @ X
    off = np.linalg.solve(G, X.T @ (bags.repeat(bags.mean(labels))[bags.in_bag] - y))
    return cell.label_noise_sd**2 * np.trace(np.linalg.inv(G)) + off @ off


def test_a_run_has_the_values_of_its_parts():
    draw, cell = SMALL, Cell("instance", "dep", 10, 0.5, "super")
    found = run_open_cell(draw, cell, batch=64)
    labels = draw.labels(0.5)
    bags = draw.bags_by(labels, cell)
    source = SimulatedNoise(draw.stream("pick", cell))
    assert found["exact"] == minimiser_error(draw, cell, bags, labels[pick_rows(bags, source)])
    expected = found["expected"], found["expected_sd"]
    assert expected == expected_error(draw, cell, labels, bags)
    assert 0 < found["along_start"] <= 1
    assert found["protocol"] > 0
    again = run_open_cell(Draw("dep", n=400, d=4, run=0, seed=3), cell, batch=64)
    assert again == found


def test_smaller_batches_change_the_protocol_only():
    cell = Cell("bag", "dep", 10, 0.5, "random")
    few_steps, many_steps = (run_open_cell(SMALL, cell, batch=batch) for batch in (40, 2))
    for name in ("exact", "expected"):
        assert few_steps[name] == many_steps[name]
    assert many_steps["protocol"] < few_steps["protocol"]


def test_the_protocol_has_the_same_draws_on_another_scale():
    cell = Cell("bag", "dep", 10, 0.5, "random")
    X, truth, labels = protocol_data(SMALL, cell)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    np.testing.assert_allclose(X * np.linalg.norm(SMALL.X, axis=1)[:, None], SMALL.X)
    np.testing.assert_allclose(truth * np.linalg.norm(SMALL.theta), TRUTH_LENGTH * SMALL.theta)
    np.testing.assert_allclose(labels - X @ truth, 0.5 * SMALL.unit_noise)
