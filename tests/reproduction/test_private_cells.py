"""A cell with privacy: what was spent, what it is worth, and what error it has."""

import math

import numpy as np
import pytest

from bagwise.privacy.accounting import total_delta
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.curves import composed_delta, pick_delta
from reproduction import private_cells
from reproduction.cells import Cell
from reproduction.draws import Draw
from reproduction.printed_noise import PrintedCalibration
from reproduction.private_cells import DELTA, run_private_cell
from reproduction.problems import public_bounds
from tests import stats

CELLS = [
    Cell("instance", "iso", size, 0.5, strategy, epsilon)
    for size, epsilon in ((10, 1.0), (50, 0.5))
    for strategy in ("kmeans", "sorted")
]
# Instance loss on bags that mix rows shrinks slopes; that is what the tables are about.
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")


@pytest.fixture(params=CELLS, ids=str, scope="module")
def run(request):
    """Return a cell, its values, and all that was made on the way, in order."""
    made, make = [], private_cells._make

    def record(*arguments):
        made.append(make(*arguments))
        return made[-1]

    draw = Draw("iso", n=1_000, d=4, run=0, seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_cells, "_make", record)
        values = run_private_cell(draw, request.param, batch=64)
    return request.param, values, made


def test_what_a_run_returns(run):
    _, values, _ = run
    assert list(values) == [
        "printed_noise",
        "printed_noise_expected",
        "printed_noise_expected_sd",
        "true_epsilon",
        "correct_noise",
        "correct_noise_expected",
        "correct_noise_expected_sd",
        "model",
        "model_expected",
        "model_expected_sd",
        "protocol",
        "protocol_plain",
    ]
    assert all(0 < value < math.inf for value in values.values())


def printed_curve(cell, epsilon):
    """Return the delta of the printed noise, from its formula and the curves alone.

    ``alpha = 4 R sqrt(log(2.5 / delta)) / epsilon`` on labels, which move by 2R; on a pick it is
    divided by the bag size.
    """
    mu = cell.epsilon / (2 * math.sqrt(math.log(2.5 / DELTA)))
    if cell.strategy == "sorted":
        return composed_delta(epsilon, mu, mu * cell.bag_size, cell.bag_size)
    return pick_delta(epsilon, mu * cell.bag_size, cell.bag_size)


def test_the_true_epsilon_of_the_printed_noise(run):
    cell, values, _ = run
    # Noise is a whole number of grid steps, which moves epsilon in the fifth digit.
    assert printed_curve(cell, 1.0001 * values["true_epsilon"]) < DELTA
    assert printed_curve(cell, 0.9999 * values["true_epsilon"]) > DELTA
    assert values["true_epsilon"] > (3 if cell.bag_size == 10 else 25) * cell.epsilon


def test_the_correct_noise_keeps_what_is_stated(run):
    cell, _, (printed, correct, model, *_) = run
    for made in (correct, model):
        assert total_delta(made.events, cell.epsilon) <= DELTA
        assert total_delta(made.events, 0.99 * cell.epsilon) > DELTA  # and nothing is wasted
    assert total_delta(printed.events, cell.epsilon) > 10 * DELTA


def test_what_was_spent_on(run):
    cell, _, (printed, correct, model, protocol) = run
    scores = ["gaussian-labels"] if cell.strategy == "sorted" else []
    for made in (printed, correct, protocol):
        assert [event.kind for event in made.events] == [*scores, "gaussian-bag-picks"]
    kinds = [event.kind for event in model.events]
    assert kinds == ["gaussian-model", "gaussian-bag-picks"]
    for made in (printed, correct, model, protocol):
        assert set(made.bags.sizes) == {cell.bag_size}
        picks = made.events[-1]
        assert picks.query.sizes == (cell.bag_size,)
        assert picks.number_sd == made.noise_sd
    assert correct.noise_sd > 1.5 * printed.noise_sd


def test_a_run_repeats():
    cell = Cell("instance", "iso", 10, 0.5, "sorted", 1.0)
    first, second = (
        run_private_cell(Draw("iso", n=1_000, d=4, run=run, seed=0), cell, batch=64)
        for run in (0, 0)
    )
    assert first == second
    other = run_private_cell(Draw("iso", n=1_000, d=4, run=1, seed=0), cell, batch=64)
    assert not set(other.values()) & set(first.values()) - {first["true_epsilon"]}


def error_of(draw, made):
    """Return the squared error of instance loss: least squares of rows with their bag's label."""
    coef = np.linalg.solve(draw.X.T @ draw.X, made.bags.sum(draw.X).T @ made.labels)
    return np.sum((coef - draw.theta) ** 2)


def expected_error(draw, made):
    """Return the expected squared error by hand: ``T b`` with ``T = G^-1 S'``, 0.5 label noise."""
    bags = made.bags
    T = np.linalg.solve(draw.X.T @ draw.X, bags.sum(draw.X).T)
    means = draw.X @ draw.theta
    bias = T @ bags.mean(means) - draw.theta
    variances = bags.variance(means) + 0.5**2 + made.noise_sd**2
    return bias @ bias + np.sum(T**2, axis=0) @ variances


def test_errors_are_those_of_instance_loss_on_what_was_made(run):
    _, values, (printed, correct, model, _) = run
    draw = Draw("iso", n=1_000, d=4, run=0, seed=0)
    for name, made in (("printed_noise", printed), ("correct_noise", correct), ("model", model)):
        assert values[name] == pytest.approx(error_of(draw, made), rel=1e-9)
        assert values[f"{name}_expected"] == pytest.approx(expected_error(draw, made), rel=1e-9)


def exact(epsilon, delta, bounds):
    """Return the rule for Gaussian noise, which is what the paper has."""
    return ExactCalibration(epsilon, delta, bounds, noise="gaussian")


@pytest.mark.parametrize("way", [PrintedCalibration, exact])
def test_expected_errors_of_bags_by_features(way):
    """Exact, since the bags know no label: only label noise, picks and privacy noise are drawn."""
    draw, cell = Draw("iso", n=1_000, d=8, run=0, seed=5), CELLS[0]
    calibration, rng = way(cell.epsilon, DELTA, public_bounds(8)), np.random.default_rng(51)
    found = []
    for time in range(600):
        data = draw.X, draw.X @ draw.theta + 0.5 * rng.standard_normal(draw.n)
        made = private_cells._make(draw, cell, calibration, "none", f"{time}", data)
        found.append(error_of(draw, made))
    expected = expected_error(draw, made)
    assert stats.mean_is(found, expected)
    assert not stats.mean_is(found, 1.25 * expected)
    assert not stats.mean_is(found, 0.8 * expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        (PrintedCalibration, "noisy-labels"),
        (exact, "noisy-labels"),
        (exact, "model"),
    ],
)
def test_expected_errors_of_bags_by_private_scores(way, kind):
    """These bags depend on the noise of the labels, and so little that it cannot be seen."""
    cell, found = CELLS[1], []
    for run in range(600):
        draw = Draw("iso", n=1_000, d=8, run=run, seed=5)
        calibration = way(cell.epsilon, DELTA, public_bounds(8))
        made = private_cells._make(draw, cell, calibration, kind, "test")
        found.append((error_of(draw, made), expected_error(draw, made)))
    measured, expected = np.array(found).T
    assert stats.mean_is(measured - expected, 0.0)
    assert not stats.mean_is(measured - 1.25 * expected, 0.0)
    assert not stats.mean_is(measured - 0.75 * expected, 0.0)
