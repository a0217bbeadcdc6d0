"""One run of a cell without privacy: fitted to the end, expected by theory, and by the protocol."""

from collections.abc import Callable

import numpy as np

from bagwise._types import FloatArray
from bagwise.aggregate import AGGREGATES
from bagwise.bags import Bags
from bagwise.experiments.reproduction.cells import Cell
from bagwise.experiments.reproduction.draws import Draw
from bagwise.experiments.reproduction.protocol import Trained, small_truth, train, unit_rows
from bagwise.learn import BaggedGLM
from bagwise.rng import SimulatedNoise
from bagwise.theory.exact import distance_to_least_squares, exact_risk
from bagwise.theory.selection import sorted_risk

FindBags = Callable[[str, int], Bags]
"""From a strategy that looks at no label and a bag size to bags."""


def run_open_cell(draw: Draw, cell: Cell, find_bags: FindBags, *, epochs: int) -> dict[str, float]:
    """Return what one run of a cell found.

    ``exact`` is the squared error of the minimiser, ``expected`` what theory says of it for these
    features, coefficients and bags, ``protocol`` the mean over coefficients after early-stopped
    training, and ``along_start`` the share of that in the direction of the first weights.

    Examples
    --------
    >>> draw = Draw("iso", n=2_000, d=4, run=0, seed=0)
    >>> cell = Cell.parse("bag,iso,10,0.5,random")
    >>> found = run_open_cell(draw, cell, draw.bags_without_labels, epochs=1)
    >>> list(found)
    ['exact', 'expected', 'protocol', 'along_start']
    >>> found["exact"] < 5 * found["expected"]
    True
    """
    labels = draw.labels(cell.label_noise_sd)
    bags = _bags(draw, cell, labels, find_bags)
    exact = minimiser_error(draw, cell, bags, _bag_labels(draw, cell, labels, bags))
    trained = _protocol(draw, cell, find_bags, epochs)
    return {
        "exact": exact,
        "expected": expected_error(draw, cell, labels, bags),
        "protocol": trained.error,
        "along_start": trained.along_start,
    }


def minimiser_error(draw: Draw, cell: Cell, bags: Bags, bag_labels: FloatArray) -> float:
    """Fit a loss to the end, bags counting alike, and return the squared error."""
    rows = bags.in_bag
    model = BaggedGLM(loss=cell.loss, label_kind=cell.label_kind, fit_intercept=False)
    model.fit(draw.X[rows], bag_labels[bags.index[rows]], bags=bags.index[rows])
    return float(np.sum((model.coef_ - draw.theta) ** 2))


def expected_error(draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> float:
    """Return what theory expects of the minimiser.

    For bags that do not depend on the labels F1 and F2, exactly. For sorted ones, given that
    features are Gaussian: E8 for bag loss, plus the choice among the labels of a bag for aggregate
    loss; for instance loss the error of least squares on the row labels, plus F5.
    """
    if not cell.by_labels:
        return exact_risk(
            draw.X,
            bags,
            theta=draw.theta,
            label_noise_sd=cell.label_noise_sd,
            label_kind=cell.label_kind,
            loss=cell.loss,
        ).total
    if cell.loss == "instance":
        return _expected_of_instance_loss(draw, cell, labels, bags)
    risk = sorted_risk(
        theta=draw.theta,
        covariance=draw.features.covariance,
        label_noise_sd=cell.label_noise_sd,
        bag_size=cell.bag_size,
        n_bags=bags.n_bags,
    )
    choice = _choice(draw.X, labels, bags) if cell.label_kind == "pick" else 0.0
    return risk.total + choice


def _expected_of_instance_loss(draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> float:
    X = draw.X[bags.in_bag]
    least_squares = cell.label_noise_sd**2 * float(np.trace(np.linalg.inv(X.T @ X)))
    distance = distance_to_least_squares(draw.X, bags, labels=labels, label_kind=cell.label_kind)
    return least_squares + distance.total


def _choice(X: FloatArray, labels: FloatArray, bags: Bags) -> float:
    """Return what picking one label of each bag adds to aggregate loss, given the labels (F2)."""
    centroids = bags.mean(X)
    levers = np.linalg.solve(centroids.T @ centroids, centroids.T)
    return float(np.sum(levers**2, axis=0) @ bags.variance(labels))


def _protocol(draw: Draw, cell: Cell, find_bags: FindBags, epochs: int) -> Trained:
    X, truth, labels = protocol_data(draw, cell)
    bags = _bags(draw, cell, labels, find_bags)
    return train(
        X,
        bags,
        _bag_labels(draw, cell, labels, bags),
        loss=cell.loss,
        truth=truth,
        epochs=epochs,
        rng=draw.stream("training", cell),
    )


def protocol_data(draw: Draw, cell: Cell) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rows, coefficients and labels of the protocol, made of the same draws."""
    X, truth = unit_rows(draw.X), small_truth(draw.theta)
    return X, truth, X @ truth + cell.label_noise_sd * draw.unit_noise


def _bags(draw: Draw, cell: Cell, labels: FloatArray, find_bags: FindBags) -> Bags:
    if cell.by_labels:
        return draw.bags_by(labels, cell)
    return find_bags(cell.strategy, cell.bag_size)


def _bag_labels(draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> FloatArray:
    source = SimulatedNoise(draw.stream("pick", cell))
    return AGGREGATES[cell.label_kind](labels, bags, source)
