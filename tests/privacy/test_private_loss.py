"""The mean loss of a model: what one label can do to it, and what the noise does."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from bagwise.errors import BoundsError, BudgetError, TableError
from bagwise.privacy import private_loss
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import LOSS_STEPS
from bagwise.privacy.private_loss import design_loss, half_width, release_mean_loss
from bagwise.privacy.units import Units
from bagwise.rng import SimulatedNoise
from tests.privacy.events import laplace, mean_loss
from tests.stats import mean_is

BOUNDS = (-2.0, 6.0)
ROWS = Units()


def event_for(design, units=ROWS, epsilon=1.0):
    rule = ExactCalibration(epsilon, 0.0, design.bounds)
    return mean_loss(rule, reach=design.sensitivity_steps(units), step=design.step)


def summed_steps(labels, design):
    """The sum before the noise, found by taking off noise that is known from its seed."""
    event = event_for(design)
    with_loss, alone = (
        release_mean_loss(values, design=design, event=event, source=SimulatedNoise(3))
        for values in (np.asarray(labels, dtype=float), design.predictions)
    )
    return round((with_loss - alone) * design.predictions.size / design.step)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("clip", [None, 3.7])
@pytest.mark.parametrize("units", [ROWS, Units(np.array([0, 1, 1]))], ids=["rows", "units"])
def test_no_neighbouring_table_moves_the_sum_further_than_the_noise_allows(loss, clip, units):
    predictions = np.array([-1.0, 2.3, 9.0])  # the last one is clipped
    design = design_loss(predictions, bounds=BOUNDS, loss=loss, clip=clip)
    values = [-50.0, *np.linspace(*BOUNDS, 6), 2.3, 77.0]
    tables = list(itertools.product(values, repeat=3))
    sums = {labels: summed_steps(labels, design) for labels in tables}
    of = [0, 1, 2] if units.index is None else units.index.tolist()
    furthest = 0
    for labels in tables:
        for unit in set(of):
            own = [row for row in range(3) if of[row] == unit]
            for others in itertools.product(values, repeat=len(own)):
                neighbour = list(labels)
                for row, value in zip(own, others, strict=True):
                    neighbour[row] = value
                furthest = max(furthest, abs(sums[labels] - sums[tuple(neighbour)]))
    # Attained: one step less would be too little.
    assert furthest == design.sensitivity_steps(units)


@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e6),
    st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=5),
    st.sampled_from(["squared", "absolute"]),
    st.floats(1e-3, 2) | st.none(),
)
def test_no_row_leaves_its_range_however_doubles_round(low, width, shares, loss, clip):
    high = low + width
    predictions = low + np.array(shares) * width
    share = None if clip is None else clip * (high - low) ** private_loss.POWERS[loss]
    design = design_loss(predictions, bounds=(low, high), loss=loss, clip=share)
    assert design.ranges.min() >= LOSS_STEPS // 4
    assert design.ranges.max() <= LOSS_STEPS
    for labels in (np.full(len(shares), low), np.full(len(shares), high), predictions):
        assert 0 <= summed_steps(labels, design) <= design.ranges.sum()


def test_the_range_is_what_catches_a_loss_beyond_it():
    """The twin: without its range, a row that computes a wrong loss would move the sum further."""
    design = design_loss(np.array([2.0, 2.0]), bounds=BOUNDS, loss="squared")
    assert design.ranges.max() == LOSS_STEPS // 4
    drifted = private_loss.LossDesign(
        np.array([-2.0, 2.0]), BOUNDS, design.power, design.largest, design.ranges
    )
    assert summed_steps([6.0, 2.0], drifted) == LOSS_STEPS // 4  # and not LOSS_STEPS


def test_rounding_is_far_below_the_noise():
    """Losses that are a ten-thousandth of the largest still count."""
    rng = np.random.default_rng(0)
    predictions = rng.uniform(1, 3, size=500)
    labels = predictions + rng.normal(0, 0.08, size=500)
    design = design_loss(predictions, bounds=BOUNDS, loss="squared")
    exact = np.sum((labels - predictions) ** 2)
    assert summed_steps(labels, design) * design.step == pytest.approx(exact, rel=1e-3)


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(1)
    predictions = rng.uniform(-4, 8, size=40)
    labels = rng.uniform(-4, 8, size=40)
    design = design_loss(predictions, bounds=BOUNDS, loss="squared", clip=20.0)
    event, source = event_for(design, epsilon=0.7), SimulatedNoise(5)
    found = [
        release_mean_loss(labels, design=design, event=event, source=source) for _ in range(4000)
    ]
    losses = np.minimum(20.0, (np.clip(labels, *BOUNDS) - np.clip(predictions, *BOUNDS)) ** 2)
    return np.array(found), float(losses.mean()), event


def test_it_is_right_on_average(draws):
    found, truth, event = draws
    off = (event.number_sd / 40) / 5
    assert mean_is(found, truth)
    assert not mean_is(found, truth + off)
    assert not mean_is(found, truth - off)


def test_the_noise_has_the_size_it_is_said_to_have(draws):
    found, truth, event = draws
    squares = (found - truth) ** 2
    assert mean_is(squares, (event.number_sd / 40) ** 2)
    assert not mean_is(squares, (1.3 * (event.number_sd / 40)) ** 2)


def test_the_interval_covers_as_often_as_it_says(draws):
    found, truth, event = draws

    def covers(margin, level):
        hits = int(np.sum(np.abs(found - truth) <= margin))
        return binomtest(hits, found.size, level).pvalue > 1e-6

    margin = half_width(event, n_rows=40, level=0.95)
    assert covers(margin, 0.95)
    assert not covers(margin, 0.97)
    assert not covers(0.8 * margin, 0.95)


def test_the_interval_covers_at_least_as_often_for_coarse_noise():
    """Noise of two steps: by summation, discrete draws leave the interval no more often."""
    for scale, level in itertools.product((1, 2, 7), (0.5, 0.9, 0.95, 0.999)):
        event = laplace(1, scale)
        beyond = math.floor(half_width(event, n_rows=1, level=level)) + 1
        ratio = math.exp(-1 / scale)
        assert 2 * ratio**beyond / (1 + ratio) <= 1 - level + 1e-12


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "cubic"}, BudgetError, "unknown loss 'cubic'; known are squared, absolute"),
        ({"clip": 0}, BudgetError, "above 0"),
        ({"clip": math.nan}, BudgetError, "above 0"),
        ({"clip": "4"}, BudgetError, "above 0"),
        ({"clip": True}, BudgetError, "above 0"),
        ({"clip": 1e-318}, BoundsError, "no grid fits"),
        ({"predictions": np.array([1.0, np.inf, np.nan])}, TableError, r"2 row\(s\).* row 2 "),
        ({"predictions": np.ones((4, 2))}, BudgetError, "one number per row"),
    ],
)
def test_bad_requests(options, error, message):
    usual = {"predictions": np.array([1.0]), "bounds": BOUNDS, "loss": "squared"}
    with pytest.raises(error, match=message):
        design_loss(**usual | options)


def test_more_rows_than_fit_are_refused(monkeypatch):
    assert private_loss.MOST_ROWS * LOSS_STEPS <= 2**62
    monkeypatch.setattr(private_loss, "MOST_ROWS", 2)
    with pytest.raises(BudgetError, match="overflow"):
        design_loss(np.ones(3), bounds=BOUNDS, loss="squared")


def test_a_generous_clip_changes_nothing():
    asked = design_loss(np.array([1.0]), bounds=BOUNDS, loss="squared", clip=1e9)
    usual = design_loss(np.array([1.0]), bounds=BOUNDS, loss="squared")
    assert asked.largest == usual.largest == 64.0
    infinite = design_loss(np.array([1.0]), bounds=BOUNDS, loss="absolute", clip=math.inf)
    assert infinite.largest == 8.0
