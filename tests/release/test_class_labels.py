"""Labels that are one of several classes: shares of bags, and picked classes."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.auditor.mechanism import audit
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    BoundsError,
    ColumnError,
    LabelError,
    LeakWarning,
    ReleaseError,
    StrategyError,
)
from bagwise.privacy import total_delta, total_epsilon
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.laws import RandomisedResponse
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.privacy.queries import ClassPicks
from bagwise.rng import SecureNoise
from tests import stats
from tests.privacy.events import bag_means, class_picks, class_shares
from tools.settings import filed

CLASSES = ("bus", "car", "train")


@pytest.fixture(scope="module")
def trips():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    chance = 0.3 + 0.2 * np.clip(x, -1, 1)
    way = np.where(
        rng.random(3000) < chance, "bus", np.where(rng.random(3000) < 0.5, "car", "train")
    )
    return pa.table({"x": x, "person": rng.integers(0, 1500, size=3000), "way": way})


def release(trips, **options):
    defaults = {"label": "way", "classes": CLASSES, "bag_size": 10, "features": "x"}
    if "epsilon" not in options:
        defaults["not_private"] = True
    return bw.make_release(trips, **filed(**{**defaults, **options}))


COMBINATIONS = [
    {"label_kind": kind, **privacy, **unit}
    for kind in ("mean", "pick")
    for privacy in (
        {},
        {"epsilon": 1.0, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 0.0},
    )
    for unit in ({}, {"unit": "person"})
]


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_every_combination_verifies(trips, options, tmp_path):
    made = release(trips, **options)
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    found = loaded.verify()
    assert loaded.classes == CLASSES
    assert loaded.labels.shape == (300, 3)
    assert np.array_equal(loaded.labels, made.labels)
    if "epsilon" in options:
        assert total_delta(loaded.certificate.events, 1.0) <= found.delta
        assert (loaded.noise_sd > 0).all()
    model = bw.fit_release(loaded, target="bus")
    saved = bw.RowModel.load(model.save(tmp_path / "model.json"))
    assert saved.target == "bus"
    assert bw.evaluate_rows(saved, trips).n_rows == 3000
    assert bw.evaluate_release(saved, loaded).n_bags == 300


def test_shares_are_the_shares(trips):
    made = release(trips.append_column("key", pa.array(range(3000))), id="key")
    ways = np.array(trips["way"])[made.instances["key"].to_numpy()]
    for number, name in enumerate(CLASSES):
        np.testing.assert_allclose(made.labels[:, number], made.bags.mean((ways == name) * 1.0))
    np.testing.assert_allclose(made.labels.sum(axis=1), 1.0)
    picked = release(trips, label_kind="pick")
    assert set(np.unique(picked.labels)) == {0.0, 1.0}
    assert np.array_equal(picked.labels.sum(axis=1), np.ones(300))


def test_a_model_of_shares_finds_the_slope(trips):
    with pytest.warns(LeakWarning):  # some bags are of one class only
        model = bw.fit_release(release(trips, bag_size=5, seed=0), target="bus")
    with pytest.warns(LeakWarning):
        exact = bw.fit_release(release(trips, bag_size=1), target="bus").coefficients()["x"]
    assert exact == pytest.approx(0.14, abs=0.02)
    # 600 bags of 5: the standard error is 0.46 / sqrt(5) / (sqrt(1 / 5) * sqrt(600)) = 0.019.
    assert model.coefficients()["x"] == pytest.approx(exact, abs=5 * 0.019)


def test_brute_force_sensitivity_of_shares():
    """Replace one class by any other: the counts move by sqrt(2) in L2 and by 2 in L1."""
    rule = ExactCalibration(1.0, 1e-6, (0.0, 1.0), noise="gaussian")
    square = bag_means(rule, square=2, rows=2)
    assert square.sensitivity >= math.sqrt(2)
    assert square.sensitivity == pytest.approx(math.sqrt(2), rel=1e-5)
    laplace = bag_means(ExactCalibration(1.0, 0.0, (0.0, 1.0)), square=2, rows=2)
    assert laplace.sensitivity == 2.0
    counts = np.array([2, 3, 1])
    for old in range(3):
        for new in range(3):
            moved = counts.copy()
            moved[old] -= 1
            moved[new] += 1
            assert np.linalg.norm(moved - counts) <= math.sqrt(2) + 1e-12
            assert np.abs(moved - counts).sum() <= 2


def test_noisy_shares_are_unbiased_and_have_their_noise():
    bags = Bags(np.repeat(np.arange(20_000), 4))
    codes = np.tile([0, 1, 1, 2], 20_000)
    rule = ExactCalibration(1.0, 1e-6, (0.0, 1.0), noise="gaussian")
    event = class_shares(rule)
    made = noisy_bag_labels(codes, bags, classes=3, event=event, source=SecureNoise())
    noise = made - [0.25, 0.5, 0.25]
    assert stats.sd_is(noise.ravel(), event.number_sd / 4)
    assert not stats.sd_is(noise.ravel(), event.number_sd / 4 * 1.05)


def test_randomised_picks_are_unbiased_and_keep_their_epsilon():
    rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))
    event = class_picks(rule, classes=3, sizes=[4])
    assert total_epsilon([event], 0.0) <= 1.0
    assert total_epsilon([event], 0.0) == pytest.approx(1.0, abs=1e-6)
    bags = Bags(np.repeat(np.arange(40_000), 4))
    codes = np.tile([0, 1, 1, 2], 40_000)
    drawn = noisy_bag_labels(codes, bags, event=event, source=SecureNoise())
    for number, share in enumerate((0.25, 0.5, 0.25)):
        assert stats.mean_is(drawn[:, number], share)
        assert not stats.mean_is(drawn[:, number], share + 0.1)
    assert np.unique(drawn).size == 2


def pick_scores(event, first):
    """Say how strongly a reported class speaks for the target being class 0 among ones."""

    def draw(count):
        bags = Bags(np.repeat(np.arange(count), 4))
        codes = np.tile([first, 1, 1, 1], count)
        reported = noisy_bag_labels(codes, bags, event=event, source=SecureNoise())
        return (reported.argmax(axis=1) == 0).astype(float)

    return draw


def test_an_attack_on_randomised_picks():
    event = class_picks(ExactCalibration(1.0, 0.0, (0.0, 1.0)), classes=3, sizes=[4])
    found = audit(pick_scores(event, 0), pick_scores(event, 1), delta=0.0, draws=60_000, alpha=1e-6)
    assert 0.75 < found.epsilon <= 1.0  # the attack is the best there is, so it comes close
    louder = Mechanism(ClassPicks((4,), 1), (RandomisedResponse(3, 0.99),))
    caught = audit(
        pick_scores(louder, 0), pick_scores(louder, 1), delta=0.0, draws=60_000, alpha=1e-6
    )
    assert caught.epsilon > 1.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"classes": ["bus"]}, LabelError, "at least two"),
        ({"classes": ["bus", "bus"]}, LabelError, "at least two different"),
        ({"classes": "bus"}, LabelError, "at least two"),
        ({"classes": ["bus", "car"]}, LabelError, "none of the classes in .* row"),
        ({"bounds": (0, 1)}, BoundsError, "has no bounds"),
        ({"strategy": "sorted"}, StrategyError, "cannot be sorted"),
    ],
)
def test_mistakes(trips, options, error, message):
    with pytest.raises(error, match=message) as caught:
        release(trips, **options)
    assert "train" not in str(caught.value)


def test_copies_of_the_class_do_not_leave(trips):
    copied = trips.append_column("copy", trips["way"])
    with pytest.raises(ColumnError, match="'copy' equals the label"):
        release(copied, features=["x", "copy"])


def test_targets_are_checked(trips, table):
    made = release(trips)
    with pytest.raises(ReleaseError, match="one of the classes bus, car, train"):
        bw.fit_release(made, target="plane")
    with pytest.raises(StrategyError, match="Name one of the classes bus, car, train as target"):
        bw.fit_release(made, family="gaussian")
    with pytest.raises(StrategyError, match="leave out target"):
        bw.fit_release(made, family="multinomial", target="bus")
    numeric = bw.make_release(table, label="y", bag_size=5, not_private=True)
    with pytest.raises(ReleaseError, match="names a class"):
        bw.fit_release(numeric, target="bus")


def test_every_epsilon_can_be_randomised():
    """Chances that come out whole must not end an ulp on the wrong side."""
    for numerator in range(2, 60):
        for denominator in range(1, numerator):
            epsilon = math.log(numerator / denominator)
            event = class_picks(ExactCalibration(epsilon, 0.0, (0.0, 1.0)), classes=2, sizes=[2, 3])
            assert total_delta([event], epsilon) == 0.0


def test_picks_that_were_not_reported_by_their_chances_are_refused(trips):
    """Numbers that no pick makes, and picks that were never replaced."""
    honest = release(trips, label_kind="pick", epsilon=1.0)
    assert any("as their chances allow" in check for check in honest.verify().checks)
    (event,) = honest.certificate.events
    reported = np.zeros(honest.bags.n_bags, dtype=int)
    one = event.law.shown(reported)
    share = np.clip(honest.labels, 0, 1)
    for labels, message in ((share, "none of those"), (one, "probabilities in the certificate")):
        with pytest.raises(ReleaseError, match=message):
            dataclasses.replace(honest, labels=labels).verify()


def test_certificates_for_other_classes_are_noticed(trips):
    import dataclasses

    made = release(trips, epsilon=1.0, delta=1e-6)
    rule = ExactCalibration(1.0, 1e-6, (0.0, 1.0))
    short = dataclasses.replace(made.certificate, events=(bag_means(rule),))
    wrong = dataclasses.replace(
        made, certificate=short, noise_sd=bag_means(rule).number_sd / made.bags.sizes
    )
    with pytest.raises(ReleaseError, match="these classes"):
        wrong.verify()
    picked = release(trips, epsilon=1.0, delta=1e-6, label_kind="pick")
    other = class_picks(rule, classes=4, sizes=[10])
    certificate = dataclasses.replace(picked.certificate, events=(other,))
    with pytest.raises(ReleaseError):
        dataclasses.replace(picked, certificate=certificate).verify()


def test_an_id_that_is_no_text_does_not_matter(trips):
    keys = pa.array([bytes([255, i % 256, i // 256]) for i in range(3000)])
    release(trips.append_column("key", keys), id="key")
