"""Guesses about single labels: what shows them, what does not, and who is who."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.auditor.attackers import hidden_by_noise, reader_of
from bagwise.auditor.label_inference import infer_labels
from bagwise.auditor.matching import labels_of_rows
from bagwise.bagging.bags import Bags
from bagwise.errors import BagwiseWarning, TableError
from bagwise.rng import SecureNoise
from benchmarks import inference
from reproduction.printed_noise import PrintedCalibration
from tests.golden import make as golden
from tests.privacy.events import bag_picks
from tools.settings import filed

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")

LIMIT = math.tanh(0.5)


@pytest.fixture(scope="module")
def rare():
    table = inference.make_table(4000)
    with pytest.warns(BagwiseWarning):
        return table, inference.make_releases(table)


def strongest(rare, name, trials=60_000, confidence=0.95):
    table, releases = rare
    return infer_labels(releases[name], table, trials=trials, confidence=confidence, seed=0)


def test_bags_without_noise_show_every_label(rare):
    found = strongest(rare, "means without noise", trials=2000)
    assert found.colour == "red"
    assert found.attacks[0].advantage.low > 0.99
    assert found.attacks[1].name == "neighbours known, as published"


def test_the_printed_noise_of_picks_shows_those_that_it_shows(rare):
    """On average little, since one label of fifty is picked; but the attacker knows when."""
    attack = strongest(rare, "picks, printed noise").attacks[0]
    assert attack.advantage.high < 0.1
    assert attack.when_sure.low > LIMIT
    assert attack.colour == "red"


OURS = ["means, ours, laplace", "means, ours, gaussian", "picks, ours"]


@pytest.mark.parametrize("name", OURS)
def test_ours_stays_within_the_limit(rare, name):
    # Those who are sure come up to the limit: intervals must miss it once in 10,000 times at most.
    found = strongest(rare, name, trials=40_000, confidence=0.9999)
    assert found.attacks[0].limit == pytest.approx(LIMIT, abs=1e-3)
    assert found.attacks[0].advantage.high <= LIMIT
    assert found.attacks[0].when_sure.low <= LIMIT
    assert found.colour == "green"


@pytest.mark.slow
def test_staircase_noise_stays_within_the_limit_if_only_just(rare):
    """It makes the most of epsilon, so that it takes many trials to tell it from the limit."""
    found = strongest(rare, "means, ours", trials=1_500_000, confidence=0.9999)
    assert LIMIT - 0.02 < found.attacks[0].advantage.high <= LIMIT


def test_noise_that_was_never_added_shows_in_what_was_published(rare):
    """The certificate claims it, so that only the published numbers can tell."""
    table, _ = rare
    rng = np.random.default_rng(0)
    continuous = table.set_column(1, "y", [rng.random(table.num_rows)])
    shape = {"label": "y", "bag_size": 20, "strategy": "random", "bounds": (0, 1), "id": "key"}
    keyed = continuous.append_column("key", [np.arange(table.num_rows)])
    honest = bw.make_release(keyed, **filed(**shape, epsilon=1.0))
    values, _ = labels_of_rows(honest, keyed)
    forged = type(honest)(**{**honest.__dict__, "labels": honest.bags.mean(values)})
    colours = {
        release is forged: infer_labels(release, keyed, trials=2000, seed=1).attacks[1].colour
        for release in (honest, forged)
    }
    assert colours[True] == "red"
    assert colours[False] != "red"


LOOKS = [{"tighten": "range", "centre": "none"}, {"tighten": "range", "centre": "model"}]


@pytest.mark.parametrize("looks", LOOKS)
def test_noise_for_a_private_range_or_limit_hides_what_was_clipped_to_it(looks):
    """Against whole labels such noise would look too small; left out, it shows all the same."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 2))
    y = 10 + 3 * x[:, 0] - 2 * x[:, 1] + rng.normal(scale=0.5, size=6000)
    y[:30] = 900.0  # beyond any range that so few rows are worth
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": y})
    honest = bw.make_release(
        table,
        **filed(
            label="y",
            bag_size=5,
            strategy="random",
            bounds=(-1000, 1000),
            epsilon=2.0,
            noise="laplace",
            **looks,
        ),
    )
    certificate = honest.certificate
    assert (certificate.limit is not None) == (looks["centre"] == "model")
    assert certificate.tightened[1] < 900
    found = infer_labels(honest, table, trials=20_000, confidence=0.9999, seed=0)
    assert found.colour == "green"
    values, _ = labels_of_rows(honest, table)
    hidden, shown = hidden_by_noise(honest, values)
    exact = honest.labels - shown + honest.bags.mean(hidden)
    forged = type(honest)(**{**honest.__dict__, "labels": exact})
    assert infer_labels(forged, table, trials=2000, seed=0).attacks[1].colour == "red"


def test_sorted_labels_are_read_from_their_bags():
    rng = np.random.default_rng(0)
    table = pa.table({"key": np.arange(600), "x": rng.normal(size=600), "y": rng.random(600)})
    release = bw.make_release(
        table, label="y", id="key", bag_size=6, strategy="sorted", not_private=True
    )
    found = {a.name: a for a in infer_labels(release, table, trials=500, seed=0).attacks}
    assert found["regression"].advantage.low > 0.1
    assert found["threshold"].advantage.low > 0.1
    assert found["regression"].colour == found["threshold"].colour == "red"


def test_homogeneous_bags_at_the_end_of_the_range_are_read():
    y = np.repeat([0.0, 1.0], 300)
    x = np.random.default_rng(0).normal(size=600)
    table = pa.table({"key": np.arange(600), "x": x, "y": y})
    release = bw.make_release(
        table, label="y", id="key", bag_size=6, strategy="sorted", not_private=True
    )
    found = {a.name: a for a in infer_labels(release, table, trials=500, seed=0).attacks}
    assert found["homogeneous bags"].advantage.low > 0.2
    assert found["homogeneous bags"].colour == "red"


CLASSES = ["no", "yes", "?"]


@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("private", [True, False])
def test_classes_are_attacked_too(kind, private):
    rng = np.random.default_rng(0)
    names = rng.choice(CLASSES, size=1200, p=[0.9, 0.08, 0.02]).tolist()
    table = pa.table({"key": np.arange(1200), "x": rng.normal(size=1200), "y": names})
    promise = {"epsilon": 1.0} if private else {"not_private": True}
    release = bw.make_release(
        table,
        **filed(
            label="y",
            id="key",
            classes=CLASSES,
            label_kind=kind,
            bag_size=6,
            strategy="random",
            **promise,
        ),
    )
    found = infer_labels(release, table, trials=20_000, confidence=0.9999, seed=0)
    assert (found.colour == "red") is not private


def brute_ratio(release, labels, row, pair, shown):
    """The likelihood of a shown pick for either label, over all rows that may have been picked."""
    event = release.certificate.events[-1]
    sd = float(event.noise_sd(np.array([labels.size]))[0])
    totals = []
    for value in pair:
        here = labels.copy()
        here[row] = value
        if event.law.kind == "laplace":
            totals.append(np.exp(-math.sqrt(2) * np.abs(shown - here) / sd).sum())
        else:
            totals.append(np.exp(-((shown - here) ** 2) / (2 * sd**2)).sum())
    return math.log(totals[1] / totals[0])


@pytest.mark.parametrize("noise", ["gaussian", "auto"])
def test_the_ratio_of_picks_is_that_of_all_rows_that_may_have_been_picked(noise):
    rng = np.random.default_rng(3)
    table = pa.table({"x": rng.normal(size=40), "y": rng.random(40)})
    release = bw.make_release(
        table,
        label="y",
        bag_size=5,
        strategy="random",
        bounds=(0, 1),
        bagging=bw.Bagging(label_kind="pick"),
        epsilon=2.0,
        delta=1e-4,
        privacy=bw.Privacy(noise=noise),
    )
    reader = reader_of(release, 1.0)
    labels, bags = rng.random(10), Bags(np.repeat([0, 1], 5))
    rows, pair, shown = np.array([2, 9]), rng.random((2, 2)), rng.normal(size=2)
    found = reader.log_ratio(shown, labels, bags, rows, pair)
    for bag in (0, 1):
        here = slice(5 * bag, 5 * bag + 5)
        expected = brute_ratio(release, labels[here], rows[bag] - 5 * bag, pair[bag], shown[bag])
        assert found[bag] == pytest.approx(expected)


def test_the_ratio_of_means_is_the_best_that_anybody_can_do():
    """No other rule beats it: all ways to cut the line into two, by brute force."""
    rng = np.random.default_rng(4)
    table = pa.table({"x": rng.normal(size=40), "y": rng.random(40)})
    release = bw.make_release(
        table,
        label="y",
        bag_size=5,
        strategy="random",
        bounds=(0, 1),
        epsilon=2.0,
        delta=1e-4,
        privacy=bw.Privacy(noise="gaussian"),
    )
    reader, draws = reader_of(release, 1.0), 20_000
    bags = Bags(np.repeat(np.arange(draws), 5))
    truth = rng.integers(0, 2, size=draws)
    labels = np.full(5 * draws, 0.4)
    rows = np.arange(draws) * 5
    labels[rows] = np.where(truth, 0.9, 0.1)
    shown = reader.redraw(labels, bags, SecureNoise())
    pair = np.tile([0.1, 0.9], (draws, 1))
    right = np.mean((reader.log_ratio(shown, labels, bags, rows, pair) > 0) == truth)
    others = [np.mean((shown > cut) == truth) for cut in np.quantile(shown, np.linspace(0, 1, 99))]
    # The best of 99 rules on the same draws: six standard errors of a share for the choice.
    assert right >= max(others) - 6 * 0.5 / math.sqrt(draws)
    assert right > 0.55


def test_rows_are_found_by_their_features_and_doubtful_ones_are_left_out():
    x = np.array([1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 6.0] * 5) + np.repeat(np.arange(5), 8) * 100
    y = np.arange(40.0)
    table = pa.table({"x": x, "y": y})
    release = bw.make_release(
        table, label="y", bag_size=4, strategy="random", not_private=True, features=["x"]
    )
    values, certain = labels_of_rows(release, table)
    seen = release.instances["x"].to_numpy()
    for value, label, sure in zip(seen, values, certain, strict=True):
        owners = y[x == value]
        assert label in owners
        if owners.size == 1:
            assert sure
    twice = [np.flatnonzero(seen == value) for value in set(seen) if (x == value).sum() == 2]
    for pair in twice:
        together = len(set(release.bags.index[pair])) == 1
        assert all(certain[pair] == together)
        assert len(set(values[pair])) == 2


def test_order_and_ids_give_the_same_labels():
    rng = np.random.default_rng(0)
    table = pa.table({"key": np.arange(60), "x": rng.normal(size=60), "y": rng.random(60)})
    shape = {"label": "y", "bag_size": 5, "strategy": "random", "not_private": True, "seed": 1}
    keyed = bw.make_release(table, **filed(id="key", **shape))
    plain = bw.make_release(table, **filed(exclude="key", **shape))
    for release in (keyed, plain):
        values, certain = labels_of_rows(release, table.take(rng.permutation(60)))
        assert certain.all()
        np.testing.assert_allclose(release.bags.mean(values), release.labels)


def test_another_table_is_refused_without_a_word_about_its_labels():
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=60), "y": rng.random(60)})
    release = bw.make_release(table, label="y", bag_size=5, not_private=True, strategy="random")
    other = table.set_column(0, "x", [rng.normal(size=60)])
    for wrong in (other, table.slice(1)):
        with pytest.raises(TableError, match="very table") as caught:
            labels_of_rows(release, wrong)
        assert not any(str(value)[:6] in str(caught.value) for value in table["y"].to_pylist())
    flat = table.set_column(1, "y", [np.ones(60)])
    with pytest.raises(TableError, match="nothing to guess"):
        infer_labels(release, flat)


def test_rows_that_all_look_alike_cannot_be_matched():
    rng = np.random.default_rng(0)
    table = pa.table({"x": np.repeat([0.0, 1.0], 100), "y": rng.random(200)})
    release = bw.make_release(table, label="y", bag_size=5, not_private=True, strategy="random")
    with pytest.raises(TableError, match="--id"):
        infer_labels(release, table)


def test_the_printed_calibration_is_the_one_that_is_meant():
    printed = PrintedCalibration(inference.EPSILON, inference.DELTA, inference.BOUNDS)
    scale = bag_picks(printed, sizes=[50]).number_sd
    assert scale < 0.2
    assert all(a < b for a, b in itertools.pairwise((0.0, scale)))


GOLDEN = [
    *("means", "staircase", "picks", "laplace-picks", "classes", "class-picks", "by-noisy-labels"),
    *("super-half", "units", "open", "open-by-labels", "simulated"),
]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_kind_of_release_can_be_attacked(name):
    release = bw.Release.load(golden.HERE / "release-2" / name)
    table = golden.make_table()
    found = infer_labels(
        release,
        golden.make_classes(table) if release.classes else table,
        trials=2000,
        confidence=0.9999,
        seed=0,
    )
    assert found.bags_used >= 10
    if release.certificate.is_private:
        assert found.colour != "red"
    if name.startswith("open"):
        assert found.colour == "red"
