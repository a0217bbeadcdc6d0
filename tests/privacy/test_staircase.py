"""Staircase noise: its closed forms against sums, its optimum, and where it may be used."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.errors import BudgetError
from bagwise.privacy.accounting import group_epsilon, total_delta, total_epsilon
from bagwise.privacy.calibrate import WORTHWHILE, ExactCalibration
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.laws import Laplace, Staircase
from bagwise.privacy.laws.law import Move
from bagwise.privacy.laws.staircase import best_inner
from tests.privacy.events import bag_means

BOUNDS = (0.0, 1.0)


@st.composite
def staircases(draw):
    shift = draw(st.integers(1, 30))
    return Staircase(shift, draw(st.integers(1, 30)), draw(st.integers(1, shift)))


def summed(staircase):
    """Every chance, one period after the other, as the definition has it."""
    periods = math.ceil(45 * staircase.scale / staircase.shift) + 2
    b = math.exp(-staircase.shift / staircase.scale)
    side = [
        b ** (j if r < staircase.inner else j + 1)
        for j in range(periods)
        for r in range(staircase.shift)
    ]
    weights = np.array(side[:0:-1] + side)
    return np.arange(1 - len(side), len(side)), weights / weights.sum()


@given(staircases())
def test_closed_forms_are_the_sums(staircase):
    y, chance = summed(staircase)
    assert staircase.top == pytest.approx(chance.max(), rel=1e-12)
    assert staircase.variance == pytest.approx(float(chance @ y.astype(float) ** 2), rel=1e-10)
    for r in (0, 1, staircase.inner, staircase.shift - 1, staircase.shift, 3 * staircase.shift + 1):
        (stated,) = staircase.within(np.array([float(r)]))
        assert stated == pytest.approx(float(chance[np.abs(y) <= r].sum()), abs=1e-12)


@given(staircases(), st.floats(0, 1.1))
def test_the_curve_by_brute_force_for_every_move(staircase, share):
    _, chance = summed(staircase)
    edge = staircase.shift / staircase.scale
    epsilon = share * edge
    stated = float(staircase.curve(Move(staircase.shift))(np.array([epsilon]))[0])
    deltas = []
    for move in range(1, staircase.shift + 1):
        padded = np.concatenate([chance, np.zeros(move)])
        moved = np.concatenate([np.zeros(move), chance])
        excess = np.maximum(0.0, padded - math.exp(epsilon) * moved)
        deltas.append(float(excess[move:-move].sum()) + float(chance[:move].sum()))
    assert max(deltas) == pytest.approx(stated, abs=1e-12)
    assert deltas == sorted(deltas) or np.diff(deltas).min() > -1e-12  # larger moves cost more
    assert stated <= max(0.0, -math.expm1(epsilon - edge)) / (1 + math.exp(-edge)) + 1e-15


@given(staircases())
def test_one_move_costs_epsilon_and_two_halves_may_cost_twice_as_much(staircase):
    _, chance = summed(staircase)
    edge = staircase.shift / staircase.scale
    middle = slice(staircase.shift, -staircase.shift)
    for move in range(1, staircase.shift + 1):
        loss = np.log(chance / np.roll(chance, move))[middle]
        assert np.abs(loss).max() <= edge * (1 + 1e-9)
    # Why it is refused for two sums at once: a move by half of the shift can cost all of epsilon.
    half = (staircase.shift + 1) // 2
    if staircase.shift > 1:
        loss = np.log(chance / np.roll(chance, half))[middle]
        assert np.abs(loss).max() == pytest.approx(edge, rel=1e-9)


@pytest.mark.parametrize("shift", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 2.5, 6.0, 20.0])
def test_the_inner_width_is_the_best_of_all(shift, epsilon):
    scale = math.ceil(shift * 10 / epsilon)
    found = best_inner(10 * shift, scale)
    variances = [Staircase(10 * shift, scale, k).variance for k in range(1, 10 * shift + 1)]
    assert Staircase(10 * shift, scale, found).variance == min(variances)


@pytest.mark.parametrize(
    ("epsilon", "ratio"), [(0.5, 0.990), (1, 0.959), (2, 0.846), (4, 0.520), (8, 0.108)]
)
def test_the_variance_is_that_of_the_paper_s_optimum(epsilon, ratio):
    """Theorem 7: (2^(-2/3) b^(2/3) (1 + b)^(2/3) + b) / (1 - b)^2 of the squared shift."""
    offer = Staircase.least(Move(LABEL_STEPS), Fraction(epsilon))
    laplace = Laplace.least(Move(LABEL_STEPS), Fraction(epsilon))
    found = offer.sd**2 / laplace.sd**2
    assert found == pytest.approx(ratio, rel=0.01)
    b = math.exp(-epsilon)
    optimum = ((b * (1 + b) / 2) ** (2 / 3) + b) / (1 - b) ** 2
    assert (offer.sd / LABEL_STEPS) ** 2 == pytest.approx(optimum, rel=1e-4)


def test_a_step_is_as_wide_as_one_sum_moves():
    rule: Any = ExactCalibration(1.0, 0.0, BOUNDS, noise="staircase")
    assert bag_means(rule).law.shift == LABEL_STEPS
    assert bag_means(rule, rows=3, square=9, touched=1).law.shift == 3 * LABEL_STEPS
    apart = bag_means(rule, rows=2, square=2, touched=2)
    assert (apart.law.shift, apart.query.moves["number"].times) == (LABEL_STEPS, 2)
    assert float(apart.pure_epsilon) == 1.0
    with pytest.raises(BudgetError, match="so large a unit"):
        bag_means(rule, rows=2**23, square=2**46, touched=1)


@pytest.mark.parametrize(
    ("epsilon", "options", "kind"),
    [
        (0.3, {}, "laplace"),
        (0.65, {}, "laplace"),
        (0.75, {}, "staircase"),
        (1.0, {}, "staircase"),
        (7.5, {}, "staircase"),
        (1.0, {"rows": 2, "square": 2, "touched": 2}, "laplace"),
        (1.0, {"rows": 2, "square": 4, "touched": 1}, "staircase"),
        (1.0, {"rows": 2}, "laplace"),  # nobody said that both are in one bag
    ],
)
def test_it_is_chosen_where_it_is_worthwhile(epsilon, options, kind):
    event = bag_means(ExactCalibration(epsilon, 0.0, BOUNDS), **options)
    assert event.law.kind == kind
    assert total_delta([event], epsilon) == 0.0
    assert epsilon * 0.999 < total_epsilon([event], 0.0) <= epsilon
    assert group_epsilon((event,), 0.0, 4) == pytest.approx(4 * epsilon, rel=1e-4)
    query = event.query
    offers = [law.least(query.moves[law.norm], Fraction(epsilon)) for law in (Laplace, Staircase)]
    assert event.law.sd**2 * (1 - WORTHWHILE) <= min(offer.sd for offer in offers) ** 2
