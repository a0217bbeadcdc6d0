"""One run of a cell with privacy: with the printed noise, with enough noise, and by a better way.

The better way sorts rows by the predictions of a private model instead of by noisy labels.
Everything is drawn from seeds, so that it can be repeated. Nothing here is a private release.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging.bags import Bags
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels, pick_rows
from bagwise.privacy.queries import BagPicks
from bagwise.requests.answers import ask_labels
from bagwise.requests.budget import Budget
from bagwise.requests.queries import ScoresKind, ScoresRequest, price_scores
from bagwise.rng import SimulatedNoise
from bagwise.show.stages import Stages
from bagwise.theory.exact import exact_risk
from reproduction.cells import Cell
from reproduction.draws import Draw
from reproduction.open_cells import (
    minimiser_error,
    open_setting,
    protocol_data,
    train_protocol,
)
from reproduction.printed_noise import PrintedCalibration
from reproduction.problems import public_bounds
from reproduction.protocol import TRUTH_LENGTH
from reproduction.squared_errors import squared_error_sd

DELTA = 1e-5


def run_private_cell(draw: Draw, cell: Cell, *, batch: int) -> dict[str, float]:
    """Return what one run of a cell found.

    Three ways to make labels private, each with the squared error of the minimiser and what theory
    expects of it: ``printed_noise`` as the paper prints it, with the ``true_epsilon`` that it
    keeps; ``correct_noise`` for the stated epsilon; ``model``, the same with bags sorted by a
    private model. ``protocol`` is early-stopped training on the printed noise, ``protocol_plain``
    with noise that is not divided by the bag size.
    """
    bounds = public_bounds(draw.d, label_noise_sd=max(1.0, cell.label_noise_sd))
    printed = PrintedCalibration(_epsilon(cell), DELTA, bounds)
    # The paper's mechanisms are Gaussian; other noise would answer another question.
    exact = ExactCalibration(_epsilon(cell), DELTA, bounds, noise="gaussian")
    paid: ScoresKind = "noisy-labels" if cell.by_labels else "none"
    values: dict[str, float] = {}
    for name, calibration, scores in (
        ("printed_noise", printed, paid),
        ("correct_noise", exact, paid),
        ("model", exact, "model"),
    ):
        made = _make(draw, cell, calibration, scores, name)
        values[name] = minimiser_error(draw, cell, made.bags, made.labels)
        setting = {**open_setting(draw, cell), "noise_sd": made.noise_sd}
        # F1 for the bags as they are: noise on scores hides that of the labels in them.
        values[f"{name}_expected"] = exact_risk(draw.X, made.bags, **setting).total
        values[f"{name}_expected_sd"] = squared_error_sd(draw.X, made.bags, **setting)
        if name == "printed_noise":
            values["true_epsilon"] = total_epsilon(made.events, DELTA)
    values["protocol"] = _protocol(draw, cell, batch)
    values["protocol_plain"] = _plain_protocol(draw, cell, batch)
    return values


@dataclass(frozen=True)
class _Made:
    """Bags, their labels, and what was spent."""

    bags: Bags
    labels: FloatArray
    events: tuple[Mechanism, ...]
    noise_sd: float


def _make(
    draw: Draw,
    cell: Cell,
    calibration: ExactCalibration,
    kind: ScoresKind,
    purpose: str,
    data: tuple[FloatArray, FloatArray] | None = None,
) -> _Made:
    X, labels = data or (draw.X, draw.labels(cell.label_noise_sd))
    labels = np.clip(labels, *calibration.bounds)
    source = SimulatedNoise(draw.stream(purpose, cell))
    names = [f"x{j}" for j in range(draw.d)]
    asked = ScoresRequest(kind, bag_size=cell.bag_size)
    queries = price_scores(calibration, X, names, asked, unit_rows=1)
    budget = Budget(calibration, calibration.bounds, noise_source=source)
    answers = ask_labels(kind, queries, labels, X, budget, Stages())
    bags = draw.bags(cell, answers.scores)
    counts = Counter(bags.sizes.tolist())
    query = BagPicks.of(calibration.bounds, counts, 1)
    picks = calibration.least(query, answers.events, counts=counts)
    values = noisy_bag_labels(labels, bags, bounds=calibration.bounds, event=picks, source=source)
    return _Made(bags, values, (*answers.events, picks), float(picks.noise_sd(bags.sizes)[0]))


def _protocol(draw: Draw, cell: Cell, batch: int) -> float:
    X, truth, labels = protocol_data(draw, cell)
    # Bounds are four standard deviations of a label of the protocol.
    radius = 4 * math.hypot(TRUTH_LENGTH / math.sqrt(draw.d), cell.label_noise_sd)
    calibration = PrintedCalibration(_epsilon(cell), DELTA, (-radius, radius))
    kind: ScoresKind = "noisy-labels" if cell.by_labels else "none"
    made = _make(draw, cell, calibration, kind, "protocol", (X, labels))
    return train_protocol(draw, cell, X, made.bags, made.labels, truth, batch=batch).error


def _plain_protocol(draw: Draw, cell: Cell, batch: int) -> float:
    """Train on picks with noise ``2 sqrt(2 ln(1.25/delta)) / epsilon`` whatever the bag size.

    That is the classic Gaussian mechanism for labels in -1..1. It comes nearer to the printed
    values than what the paper describes.
    """
    X, truth, labels = protocol_data(draw, cell)
    noise_sd = 2 * math.sqrt(2 * math.log(1.25 / DELTA)) / _epsilon(cell)
    rng = draw.stream("plain", cell)
    noisy = labels + noise_sd * rng.standard_normal(draw.n)
    bags = draw.bags(cell, noisy if cell.by_labels else None)
    picked = labels[pick_rows(bags, SimulatedNoise(rng))]
    picked += noise_sd * rng.standard_normal(bags.n_bags)
    return train_protocol(draw, cell, X, bags, picked, truth, batch=batch).error


def _epsilon(cell: Cell) -> float:
    if cell.epsilon is None:
        raise AssertionError("a private cell has an epsilon")
    return cell.epsilon
