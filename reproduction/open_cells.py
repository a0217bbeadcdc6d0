"""One run of a cell without privacy: fitted to the end, expected by theory, and by the protocol."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.learn import BaggedGLM
from bagwise.privacy.noise import pick_rows
from bagwise.rng import SimulatedNoise
from bagwise.theory.exact import exact_risk
from reproduction.cells import Cell
from reproduction.draws import Draw
from reproduction.protocol import Trained, small_truth, train, unit_rows
from reproduction.selection import sorted_moments
from reproduction.squared_errors import gaussian_square_sd, squared_error_sd


def run_open_cell(draw: Draw, cell: Cell, *, batch: int) -> dict[str, float]:
    """Return what one run of a cell found.

    ``exact`` is the squared error of the minimiser, ``expected`` and ``expected_sd`` what theory
    says of it for these features, coefficients and bags, ``protocol`` the mean over coefficients
    after early-stopped training, and ``along_start`` the share of that in the direction of the
    first weights.

    Examples
    --------
    >>> draw = Draw("iso", n=2_000, d=4, run=0, seed=0)
    >>> cell = Cell.parse("bag,iso,10,0.5,random")
    >>> found = run_open_cell(draw, cell, batch=64)
    >>> list(found)
    ['exact', 'expected', 'expected_sd', 'protocol', 'along_start']
    >>> abs(found["exact"] - found["expected"]) < 4 * found["expected_sd"]
    True
    """
    labels = draw.labels(cell.label_noise_sd)
    bags = draw.bags(cell, labels if cell.by_labels else None)
    mean, sd = expected_error(draw, cell, labels, bags)
    X, truth, small = protocol_data(draw, cell)
    groups = draw.bags(cell, small if cell.by_labels else None)
    trained = train_protocol(
        draw, cell, X, groups, _bag_labels(draw, cell, small, groups), truth, batch=batch
    )
    return {
        "exact": minimiser_error(draw, cell, bags, _bag_labels(draw, cell, labels, bags)),
        "expected": mean,
        "expected_sd": sd,
        "protocol": trained.error,
        "along_start": trained.along_start,
    }


def minimiser_error(draw: Draw, cell: Cell, bags: Bags, bag_labels: FloatArray) -> float:
    """Fit a loss to the end, bags counting alike, and return the squared error."""
    rows = bags.in_bag
    model = BaggedGLM(
        loss=cell.loss, label_kind=cell.label_kind, weights="equal", fit_intercept=False
    )
    model.fit(draw.X[rows], bag_labels[bags.index[rows]], bags=bags.index[rows])
    return float(np.sum((model.coef_ - draw.theta) ** 2))


def expected_error(draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> tuple[float, float]:
    """Return what theory expects of the minimiser's squared error, and its standard deviation.

    For bags that do not depend on the labels F1 and F2, exactly. For sorted ones, given that
    features are Gaussian: E8 for bag loss, plus the choice among the labels of a bag for aggregate
    loss; for instance loss the error of least squares on the row labels, plus F5. The latter is
    nearly right: it is a few thousandths too high for super-bags of 32 features, as a half of
    sorted neighbours is a stratified sample. What is picked from the outermost of sorted bags is
    far from Gaussian: its third and fourth cumulants count.
    """
    if not cell.by_labels:
        setting = open_setting(draw, cell)
        return exact_risk(draw.X, bags, **setting).total, squared_error_sd(draw.X, bags, **setting)
    bias, covariance = _before_choice(draw, cell, labels, bags)
    choice = _Choice.of(draw, cell, labels, bags)
    covariance = covariance + choice.covariance
    variance = gaussian_square_sd(bias, covariance) ** 2 + choice.excess(bias)
    return float(bias @ bias + np.trace(covariance)), math.sqrt(variance)


def open_setting(draw: Draw, cell: Cell) -> dict[str, Any]:
    """Return what `exact_risk` must know of a cell."""
    return {
        "theta": draw.theta,
        "label_noise_sd": cell.label_noise_sd,
        "label_kind": cell.label_kind,
        "loss": cell.loss,
    }


def _before_choice(
    draw: Draw, cell: Cell, labels: FloatArray, bags: Bags
) -> tuple[FloatArray, FloatArray]:
    """Return the bias and covariance of a loss on the means of sorted bags."""
    if cell.loss == "instance":
        X = draw.X[bags.in_bag]
        inverse = np.asarray(np.linalg.inv(X.T @ X), dtype=np.float64)
        tighter = X.T @ (bags.repeat(bags.mean(labels)) - labels)[bags.in_bag]
        return inverse @ tighter, cell.label_noise_sd**2 * inverse
    return sorted_moments(
        theta=draw.theta,
        covariance=draw.features.covariance,
        label_noise_sd=cell.label_noise_sd,
        bag_size=cell.bag_size,
        n_bags=bags.n_bags,
    )


@dataclass(frozen=True)
class _Choice:
    """What picking one label of each bag does to the coefficients, given the labels.

    Bag l moves them by ``levers[l]`` for each unit by which its pick is off its mean; `cumulants`
    are the second, third and fourth of that.
    """

    levers: FloatArray
    cumulants: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(cls, draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> "_Choice":
        if cell.loss == "instance":
            X = draw.X[bags.in_bag]
            levers = bags.sum(draw.X) @ np.linalg.inv(X.T @ X)
        else:
            centroids = bags.mean(draw.X)
            levers = centroids @ np.linalg.inv(centroids.T @ centroids)
        if cell.label_kind == "mean":
            return cls(levers, (np.zeros(bags.n_bags),) * 3)
        off = labels - bags.repeat(bags.mean(labels))
        second, third, fourth = (bags.mean(off**power) for power in (2, 3, 4))
        return cls(levers, (second, third, fourth - 3 * second**2))

    @property
    def covariance(self) -> FloatArray:
        return np.asarray(self.levers.T @ (self.levers * self.cumulants[0][:, None]))

    @property
    def risk(self) -> float:
        return float(np.trace(self.covariance))

    def excess(self, bias: FloatArray) -> float:
        """Return what is not Gaussian in the variance of the squared error."""
        _, third, fourth = self.cumulants
        squares = np.sum(self.levers**2, axis=1)
        return float(squares**2 @ fourth + 4 * (squares * (self.levers @ bias)) @ third)


def protocol_data(draw: Draw, cell: Cell) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rows, coefficients and labels of the protocol, made of the same draws."""
    X, truth = unit_rows(draw.X), small_truth(draw.theta)
    return X, truth, X @ truth + cell.label_noise_sd * draw.unit_noise


def train_protocol(
    draw: Draw, cell: Cell, X: FloatArray, bags: Bags, bag_labels: FloatArray, truth: FloatArray,
    *, batch: int,
) -> Trained:  # fmt: skip
    """Train by the protocol, with the random stream of the cell."""
    rng = draw.stream("training", cell)
    return train(X, bags, bag_labels, loss=cell.loss, truth=truth, batch=batch, rng=rng)


def _bag_labels(draw: Draw, cell: Cell, labels: FloatArray, bags: Bags) -> FloatArray:
    source = SimulatedNoise(draw.stream("pick", cell))
    if cell.label_kind == "mean":
        return bags.mean(labels)
    return np.asarray(labels[pick_rows(bags, source)])
