"""Tables of chances for single labels: exact enumeration, optima, and what learners need."""

import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from bagwise.errors import BudgetError, CertificateError
from bagwise.planner.belief import Prior
from bagwise.planner.candidates import response_of
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.dispersion import frequencies_p_value
from bagwise.privacy.laws import Unbiased, unbiased
from bagwise.privacy.laws.law import Move
from bagwise.privacy.laws.unbiased import CHANCES, POINTS, ChannelCurve
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.queries import SingleLabels
from bagwise.rng import SimulatedNoise
from tests import stats
from tests.privacy.events import bag_means, bag_picks, outputs_of, reported, single_labels

EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_two_labels_are_told_apart_better_than_is_paid_for(epsilon):
    """By enumeration, in whole numbers: every output, every pair of points."""
    event = Unbiased.least(Move(), epsilon)
    assert event.is_possible(Move())
    columns = zip(*event.chances, strict=True)
    worst = max(Fraction(max(column), min(column)) for column in columns)
    digits = Context(prec=60)
    true = digits.ln(digits.divide(Decimal(worst.numerator), Decimal(worst.denominator)))
    assert true <= Decimal(event.epsilon) <= Decimal(epsilon)  # doubles, exactly
    assert math.log(worst) > epsilon * (1 - 1e-6)  # and nothing is given away
    assert all(sum(row) == CHANCES for row in event.chances)


def deltas_of_pairs(chances, epsilon):
    """The largest delta of two rows, by enumeration of all pairs."""
    table = np.array(chances) / CHANCES
    growth = np.exp(epsilon)[:, None]
    pairs = [np.maximum(0.0, p - growth * q).sum(axis=1) for p in table for q in table]
    return np.max(pairs, axis=0)


@given(
    table=st.integers(2, 6).flatmap(
        lambda m: st.lists(
            st.lists(st.integers(1, 50), min_size=m, max_size=m), min_size=2, max_size=7
        )
    ),
    equal=st.booleans(),
)
def test_the_curve_of_a_table_is_that_of_its_worst_pair(table, equal):
    whole = unbiased._whole(np.array(table[:1] * 2 if equal else table, dtype=float))
    epsilon = np.linspace(0.0, 5.0, 97)
    found = ChannelCurve(tuple(map(tuple, whole.tolist())))(epsilon)
    np.testing.assert_allclose(found, deltas_of_pairs(whole, epsilon), rtol=1e-9, atol=1e-13)


def test_the_curve_of_single_labels_is_that_of_the_worst_pair():
    event = Unbiased.least(Move(), 2.0)
    epsilon = np.linspace(0.0, 2.5, 40)
    expected = deltas_of_pairs(event.chances, epsilon)
    np.testing.assert_allclose(event.curve(Move())(epsilon), expected, rtol=1e-9, atol=1e-13)
    # Tables beyond ours are refused: those of strangers would take long.
    for wrong in (
        msgspec.structs.replace(event, chances=event.chances * 4),
        msgspec.structs.replace(event, outputs=tuple(range(129))),
    ):
        with pytest.raises(CertificateError, match="impossible"):
            Mechanism(SingleLabels(0.0, 1.0), (wrong,)).check((0.0, 1.0))


def independent_optimum(epsilon, points, outputs):
    """Solve the programme without its auxiliary variables: one constraint for each pair."""
    k, m = points.size, outputs.size
    weights = np.ones(k)
    weights[[0, -1]] = 0.5
    cost = (weights / weights.sum())[:, None] * (outputs - points[:, None]) ** 2
    ratio = []
    for o in range(m):
        for x in range(k):
            for other in set(range(k)) - {x}:
                row = np.zeros((k, m))
                row[x, o], row[other, o] = 1.0, -math.exp(epsilon)
                ratio.append(row.ravel())
    equal = np.zeros((2 * k, k, m))
    for x in range(k):
        equal[x, x], equal[k + x, x] = 1.0, outputs
    found = linprog(
        cost.ravel(),
        A_ub=np.array(ratio),
        b_ub=np.zeros(len(ratio)),
        A_eq=equal.reshape(2 * k, -1),
        b_eq=np.concatenate([np.ones(k), points]),
        method="highs-ds",
    )
    return found.fun


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_programme_has_the_optimum_of_another_formulation(epsilon, monkeypatch):
    monkeypatch.setattr(unbiased, "POINTS", 5)
    points = np.linspace(0, 1, 5)
    outputs = np.union1d(np.linspace(-2.0, 3.0, 31), points)
    table = unbiased._solve(outputs, epsilon)
    weights = np.array([0.5, 1, 1, 1, 0.5]) / 4
    found = float(weights @ (table * (outputs - points[:, None]) ** 2).sum(axis=1))
    assert found == pytest.approx(independent_optimum(epsilon, points, outputs), rel=1e-6)
    assert found > 1.001 * independent_optimum(1.01 * epsilon, points, outputs)  # the twin


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_unbiased_randomizer_is_unbiased_and_beats_noise(epsilon):
    event = Unbiased.least(Move(), epsilon)
    points, outputs = np.linspace(0, 1, POINTS), np.array(event.outputs)
    shares = np.array(event.chances) / CHANCES
    assert np.abs(shares @ outputs - points).max() < 1e-12
    assert outputs.size <= 2 * POINTS  # as the paper has it
    weights = np.ones(POINTS)
    weights[[0, -1]] = 0.5
    variance = (shares * (outputs - points[:, None]) ** 2).sum(axis=1)
    ours = float(weights @ variance / weights.sum())
    laplace = bag_means(ExactCalibration(epsilon, 0.0, (0.0, 1.0))).number_sd ** 2
    assert ours < 0.6 * laplace


def test_reports_of_a_label_have_its_chances():
    event: Any = single_labels(ExactCalibration(1.0, 0.0, (-3.0, 5.0)))
    labels = np.full(200_000, 1.7)
    got = reported(labels, event, SimulatedNoise(1))
    (shares,) = event.law.shares_of((labels[:1] - event.query.low) / event.grid_step)
    outputs = outputs_of(event)
    for output, share in zip(outputs, shares, strict=True):
        assert stats.mean_is(got == output, share)
    assert not stats.mean_is(got == outputs[0], 1.1 * shares[0])
    assert stats.mean_is(got, 1.7)
    assert not stats.mean_is(got, 1.9)


def test_the_response_of_a_learner_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    labels = rng.normal(5.0, 1.2, size=400_000)
    event = single_labels(ExactCalibration(2.0, 0.0, (0.0, 10.0)))
    got = reported(labels, event, SimulatedNoise(2))
    slope, intercept = np.polyfit(labels, got, 1)
    slope_found, noise_sd = response_of(event, Prior(0.0, 1.2))
    residual = got - slope * labels - intercept
    assert stats.mean_is(
        (labels - 5) * (got - slope_found * labels - got.mean() + slope_found * 5), 0.0
    )
    assert not stats.mean_is((labels - 5) * (got - 1.05 * slope_found * (labels - 5)), 0.0)
    assert residual.std() == pytest.approx(noise_sd, rel=0.01)


def test_the_accountant_adds_them_up_and_refuses_what_is_nothing():
    rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))
    assert float(single_labels(rule, rows=4).pure_epsilon) <= 1.0
    assert single_labels(rule, rows=4).pure_epsilon == 4 * Fraction(
        Unbiased.least(Move(), 0.25).epsilon
    )
    with pytest.raises(BudgetError, match="nothing of a single label"):
        single_labels(ExactCalibration(1e-4, 0.0, (0.0, 1.0)))
    with pytest.raises(BudgetError, match="not possible"):
        bag_picks(rule.with_noise("unbiased"), sizes=[3])


def test_counts_of_honest_labels_fail_no_more_often_than_they_may():
    """Two outputs: labels may be anything, so that the chance of the first is between both ends."""
    least, most = np.array([0.3, 0.3]), np.array([0.7, 0.7])
    rng, tries, labels = np.random.default_rng(0), 4000, 400

    def failed(chance, alpha):
        firsts = rng.binomial(labels, chance, size=tries)
        p_values = [frequencies_p_value(np.array([k, labels - k]), least, most) for k in firsts]
        return np.mean(np.array(p_values) < alpha)

    for alpha in (0.01, 0.1):
        bound = alpha + 5 * np.sqrt(alpha * (1 - alpha) / tries)
        assert max(failed(chance, alpha) for chance in (0.3, 0.5, 0.7)) <= bound
        assert failed(0.78, alpha) > bound  # the twin: kept a little more often than it may be
