import math

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import BoundsError, BudgetError, CertificateError
from bagwise.files.json_files import write_json
from bagwise.privacy import total_delta, total_epsilon
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import noisy_choice
from bagwise.privacy.private_bounds import PrivateBounds, choose_bounds
from bagwise.privacy.private_range import candidates
from bagwise.requests.records import filed
from bagwise.rng import SecureNoise, SimulatedNoise
from bagwise.scoring.privately import evaluate_rows_privately


@pytest.mark.parametrize(
    ("low", "high"), [(0, 850), (-40, 3), (1e6, 4e6), (-1e-3, 1e-3), (-7e9, -2)]
)
def test_bounds_fit_the_labels_to_the_next_round_number(low, high):
    labels = np.random.default_rng(0).uniform(low, high, size=20_000)
    found = choose_bounds(labels, epsilon=1.0, outside=0.001, source=SecureNoise()).bounds
    assert np.mean((labels < found[0]) | (labels > found[1])) < 0.05
    width = found[1] - found[0]
    assert width <= 6 * max(abs(low), abs(high))
    assert set(found) <= set(candidates())


def test_few_labels_get_no_bounds():
    labels = np.random.default_rng(0).normal(size=200)
    with pytest.raises(BoundsError, match="200 labels are too few"):
        choose_bounds(labels, epsilon=0.5, outside=0.01, source=SecureNoise())
    with pytest.raises(BoundsError, match="too alike"):
        choose_bounds(np.full(5000, 5.0), epsilon=9.0, outside=0.01, source=SimulatedNoise(0))
    with pytest.raises(BoundsError, match="outside must be"):
        choose_bounds(labels, epsilon=0.5, outside=0.3, source=SecureNoise())


def test_what_bounds_cost_is_part_of_the_release(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=5000), "y": rng.normal(40, 10, size=5000)})
    found = bw.find_bounds(table, label="y", epsilon=0.4)
    again = PrivateBounds.load(found.save(tmp_path / "bounds.json"))
    assert again == found
    asked = {"label": "y", "bounds": again, "bag_size": 50, "delta": 1e-6, "centre": "none"}
    release = bw.make_release(table, **filed(epsilon=1.0, **asked))
    assert noisy_choice("bounds", 0.4) in release.certificate.events
    assert bw.Release.load(release.save(tmp_path / "out")).verify().epsilon == 1.0
    alone = ExactCalibration(0.6, 1e-6, found.bounds).bag_means()
    assert release.certificate.events[-1] == alone
    with pytest.raises(BudgetError, match="nothing is left"):
        bw.make_release(table, label="y", bounds=again, bag_size=50, epsilon=0.3, delta=1e-6)
    model = bw.release_model(table, label="y", bounds=again, epsilon=1.0, delta=1e-6)
    assert noisy_choice("bounds", 0.4) in model.certificate.events
    write_json({}, tmp_path / "broken.json")
    with pytest.raises(BoundsError, match="not a bounds file"):
        PrivateBounds.load(tmp_path / "broken.json")
    with pytest.raises(BoundsError, match="does not exist"):
        PrivateBounds.load(tmp_path / "nowhere.json")


def test_accounting_of_pure_choices():
    assert total_epsilon(
        [noisy_choice("bounds", 0.3), noisy_choice("bounds", 0.2)], 0.0
    ) == pytest.approx(0.5)
    coin = (math.exp(0.7) - math.exp(0.2)) / (1 + math.exp(0.7))
    assert total_delta([noisy_choice("bounds", 0.7)], 0.2) == pytest.approx(coin)
    noise = ExactCalibration(1.0, 1e-5, (0, 1), noise="gaussian").bag_means()
    both = [noisy_choice("bounds", 0.5), noise]
    assert 0 < total_delta(both, 1.5) < total_delta([noise], 1.0)
    assert total_delta(both, 0.2) >= total_delta([noise], 0.2)


def test_bounds_that_were_paid_for_are_public_candidates(tmp_path):
    """Two exact labels for bounds, and a certificate that says they were chosen privately."""
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=4000), "y": rng.uniform(1.37, 8.91, size=4000)})
    found = bw.find_bounds(table, label="y", epsilon=0.4)
    exact = PrivateBounds((1.37, 8.91), found.event, mark=found.mark)
    asked = {"label": "y", "epsilon": 1.0}
    bags = {"bag_size": 50, "strategy": "random", **asked}
    bw.make_release(table, **filed(bounds=found, **bags)).verify()
    with pytest.raises(CertificateError, match="no search ends with the bounds"):
        bw.make_release(table, **filed(bounds=exact, **bags)).verify()
    for bounds, is_honest in ((found, True), (exact, False)):
        model = bw.release_model(table, bounds=bounds, **asked)
        scores = evaluate_rows_privately(model, table, bounds=bounds, epsilon=0.5)
        for made in (model, scores):
            path = made.save(tmp_path / "made.json", force=True)
            if is_honest:
                bw.verify(path)
                continue
            with pytest.raises(CertificateError, match="no search ends with the bounds"):
                bw.verify(path)
