"""Tables of chances for single labels: exact enumeration, optima, and what learners need."""

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from bagwise.audit.mechanism import audit_events, mechanism_for
from bagwise.errors import BudgetError
from bagwise.planner.single_labels import response_of
from bagwise.privacy.calibrate import SINGLE_LABELS, ExactCalibration
from bagwise.privacy.dispersion import frequencies_p_value
from bagwise.privacy.mechanisms import BinnedLabels, UnbiasedLabels, unbiased_labels
from bagwise.privacy.mechanisms.label_channel import CHANCES
from bagwise.privacy.mechanisms.unbiased_labels import POINTS
from bagwise.rng import SimulatedNoise
from tests import stats

KINDS = (BinnedLabels, UnbiasedLabels)
EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
each = pytest.mark.parametrize("kind", KINDS)


@each
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_two_labels_are_told_apart_better_than_is_paid_for(kind, epsilon):
    """By enumeration, in whole numbers: every output, every pair of points."""
    event = kind.calibrated(epsilon=epsilon, bounds=(0.0, 1.0))
    event.check((0.0, 1.0))
    columns = zip(*event.chances, strict=True)
    worst = max(Fraction(max(column), min(column)) for column in columns)
    digits = Context(prec=60)
    true = digits.ln(digits.divide(Decimal(worst.numerator), Decimal(worst.denominator)))
    assert true <= Decimal(float(event.pure_epsilon)) <= Decimal(epsilon)  # doubles, exactly
    assert math.log(worst) > epsilon * (1 - 1e-6)  # and nothing is given away
    assert all(sum(row) == CHANCES for row in event.chances)


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
    monkeypatch.setattr(unbiased_labels, "POINTS", 5)
    points = np.linspace(0, 1, 5)
    outputs = np.union1d(np.linspace(-2.0, 3.0, 31), points)
    table = unbiased_labels._solve(outputs, epsilon)
    weights = np.array([0.5, 1, 1, 1, 0.5]) / 4
    found = float(weights @ (table * (outputs - points[:, None]) ** 2).sum(axis=1))
    assert found == pytest.approx(independent_optimum(epsilon, points, outputs), rel=1e-6)
    assert found > 1.001 * independent_optimum(1.01 * epsilon, points, outputs)  # the twin


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_unbiased_randomizer_is_unbiased_and_beats_noise(epsilon):
    event = UnbiasedLabels.calibrated(epsilon=epsilon, bounds=(0.0, 1.0))
    points, outputs = np.linspace(0, 1, POINTS), np.array(event.outputs)
    shares = np.array(event.chances) / CHANCES
    assert np.abs(shares @ outputs - points).max() < 1e-12
    assert outputs.size <= 2 * POINTS  # as the paper has it
    weights = np.ones(POINTS)
    weights[[0, -1]] = 0.5
    variance = (shares * (outputs - points[:, None]) ** 2).sum(axis=1)
    ours = float(weights @ variance / weights.sum())
    laplace = ExactCalibration(epsilon, 0.0, (0.0, 1.0)).bag_means().sum_sd ** 2
    assert ours < 0.6 * laplace


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_bins_are_kept_as_randomised_response_has_it(epsilon):
    event = BinnedLabels.calibrated(epsilon=epsilon, bounds=(0.0, 1.0))
    d = len(event.outputs)
    kept = max(event.chances[0]) / CHANCES
    assert kept == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + d - 1), rel=1e-9)
    # What is reported is the middle of the true interval on average.
    means = np.array(event.chances) / CHANCES @ np.array(event.outputs)
    steps = np.unique(means.round(9))
    assert steps.size == d
    assert np.allclose(steps, (np.arange(d) + 0.5) / d, atol=0.02)


@each
def test_reports_of_a_label_have_its_chances(kind):
    event = kind.calibrated(epsilon=1.0, bounds=(-3.0, 5.0))
    labels = np.full(200_000, 1.7)
    got = event.report(labels, SimulatedNoise(1))
    (shares,) = event.shares_of(labels[:1])
    for output, share in zip(event.reported(), shares, strict=True):
        assert stats.mean_is(got == output, share)
    assert not stats.mean_is(got == event.reported()[0], 1.1 * shares[0])
    if event.is_unbiased:
        assert stats.mean_is(got, 1.7)
        assert not stats.mean_is(got, 1.9)


@each
def test_an_audit_comes_close_to_what_is_claimed_and_not_beyond(kind):
    (found,) = audit_events(
        [mechanism_for(f"{'binned' if kind is BinnedLabels else 'unbiased'}-labels", epsilon=1.0)],
        delta=0.0,
        draws=60_000,
        alpha=1e-6,
    )
    assert found.verdict == "not refuted"
    assert 0.7 < found.shown <= 1.0


def test_the_response_of_a_learner_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    labels = rng.normal(5.0, 1.2, size=400_000)
    for noise in SINGLE_LABELS:
        event = ExactCalibration(2.0, 0.0, (0.0, 10.0)).single_labels(noise)
        got = event.report(labels, SimulatedNoise(2))
        slope, intercept = np.polyfit(labels, got, 1)
        found = response_of(event, 1.2)
        residual = got - slope * labels - intercept
        assert stats.mean_is(
            (labels - 5) * (got - found.slope * labels - got.mean() + found.slope * 5), 0.0
        )
        assert not stats.mean_is((labels - 5) * (got - 1.05 * found.slope * (labels - 5)), 0.0)
        assert residual.std() == pytest.approx(found.noise_sd, rel=0.01)


def test_the_accountant_adds_them_up_and_refuses_what_is_nothing():
    rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))
    assert float(rule.single_labels("unbiased", rows=4).pure_epsilon) <= 1.0
    assert float(rule.single_labels("bins", rows=4).row_epsilon) <= 0.25
    with pytest.raises(BudgetError, match="nothing of a single label"):
        ExactCalibration(1e-4, 0.0, (0.0, 1.0)).single_labels("unbiased")
    with pytest.raises(BudgetError, match="not picks"):
        rule.with_noise("bins").picks(sizes=[3])


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
