"""Private queries before bags get labels: what they may decide, cost and bring."""

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import (
    BoundsError,
    BudgetError,
    CertificateError,
    ReleaseError,
    StrategyError,
)
from bagwise.privacy import total_delta, total_epsilon
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.mechanisms import noisy_choice
from bagwise.privacy.private_model import Designs, LinearScores
from bagwise.privacy.private_range import CountsItself, Distance, count_beyond, limit_of
from bagwise.release.verify import noise_per_bag
from bagwise.requests import answers, queries
from bagwise.requests.queries import Queries, settle_queries
from bagwise.rng import SimulatedNoise
from bagwise.rows.whitening import BlockedRows
from bagwise.verifier import verify
from tests.privacy.events import bag_means, centred_means
from tools.settings import filed

N = 12_000
BOUNDS = (-500.0, 500.0)  # far wider than any label here
COMPACT = bw.KMeansBags(effort="fast")


def make_table(seed=0, *, noise=0.5, n=N, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = 3 * X[:, 0] - 2 * X[:, 1] + noise * rng.normal(size=n)
    columns = {f"x{j}": X[:, j] for j in range(d)}
    return pa.table({**columns, "who": np.arange(n) % (n // 4), "y": y})


@pytest.fixture(scope="module")
def table():
    return make_table()


def release(table, **options):
    asked = {"label": "y", "bounds": BOUNDS, "epsilon": 4.0, "exclude": "who", "bag_size": 50}
    return bw.make_release(table, **filed(**{"strategy": COMPACT, **asked, **options}))


def slope_error(made):
    truth = {"x0": 3.0, "x1": -2.0, "x2": 0.0, "x3": 0.0}
    found = bw.fit_release(made).coefficients()
    return sum((found[name] - value) ** 2 for name, value in truth.items())


def ratios(certificate):
    """How privately everything was looked at: kinds, and noise in sensitivities."""
    return [
        (event.kind, event.epsilon)
        if event.hides in ("range", "limit")
        else (event.kind, event.query.moves[event.law.norm], event.laws)
        for event in certificate.events
    ]


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_wide_bounds_are_mended(table, delta):
    plain = slope_error(release(table, delta=delta, tighten="none", centre="none"))
    tight = [slope_error(release(table, delta=delta, centre="none")) for _ in range(7)]
    both = [slope_error(release(table, delta=delta, centre="model")) for _ in range(7)]
    assert np.median(tight) < plain / 10
    assert np.median(both) < np.median(tight)


def test_a_centred_release_says_what_was_done_and_verifies(table, tmp_path):
    made = release(table, centre="model", delta=1e-6)
    certificate = made.certificate
    assert [event.hides for event in certificate.events] == ["range", "model", "limit", "bag means"]
    low, high = certificate.tightened
    assert BOUNDS[0] <= low < high <= BOUNDS[1]
    assert 0 < 2 * certificate.limit < high - low
    means = certificate.events[-1]
    assert means.hides == "bag means"
    assert means.sensitivity == 2 * certificate.limit
    assert total_delta(certificate.events, 4.0) <= 1e-6
    again = bw.Release.load(made.save(tmp_path / "out"))
    assert again.verify().epsilon == certificate.epsilon
    assert np.array_equal(again.model.coef, made.model.coef)
    text = certificate.text()
    assert "chosen privately" in text
    assert "centre labels on" in text
    assert "clipped to" in text


def test_what_does_not_pay_is_not_done_and_says_so():
    """Labels that no feature explains: what a model leaves is as wide as they are."""
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=N), "y": np.where(rng.random(N) < 0.5, 0.0, 90.0)})
    asked = {"bounds": (0, 90), "exclude": (), "epsilon": 1.0, "centre": "model"}
    made = release(table, **asked, tighten="none", strategy="random")
    assert made.certificate.limit is None
    assert "did not pay" in made.certificate.text()
    means = made.certificate.events[-1]
    assert means.hides == "bag means"
    assert means.sensitivity == 90
    assert made.model is not None
    made.verify()


@pytest.mark.parametrize("strategy", ["random", "kmeans", "super", "optimal", "sorted"])
def test_every_strategy_can_be_tightened_and_centred(table, strategy, tmp_path):
    made = release(table, strategy=strategy, centre="model", tighten="range")
    assert made.certificate.limit is not None
    hidden = [event.hides for event in made.certificate.events]
    assert hidden.count("model") == 1  # rows are sorted by the model that labels are centred on
    bw.Release.load(made.save(tmp_path / "out")).verify()


def test_units_are_counted_as_they_are_in_the_bags(table):
    options = {"unit": "who", "exclude": (), "delta": 1e-6}
    made = release(table, **options, centre="model", tighten="range")
    plain = release(table, **options, centre="none", tighten="none")
    assert made.certificate.unit_rows == plain.certificate.unit_rows == 4
    chosen = [e for e in made.certificate.events if e.hides in ("range", "limit")]
    assert [event.unit_rows for event in chosen] == [4, 4]
    made.verify()


def test_how_privately_never_depends_on_labels(table):
    """Other labels, another range, another model, other bags: the same ratios of noise."""
    rng = np.random.default_rng(5)
    other = table.set_column(
        table.column_names.index("y"), "y", pa.array(rng.uniform(100, 400, size=N))
    )
    for options in ({}, {"bag_size": "auto", "strategy": "auto"}, {"delta": 1e-6}):
        asked = {"centre": "model", "tighten": "range", **options}
        found = [ratios(release(rows, **asked).certificate) for rows in (table, other)]
        assert found[0] == found[1]


def test_a_label_moves_a_centred_sum_by_the_limit_at_most(monkeypatch):
    """By brute force over labels: whole steps, whatever predictions and labels are."""
    rng = np.random.default_rng(0)
    bags = bw.Bags(np.repeat(np.arange(3), 4))
    bounds, limit = (-7.3, 21.9), 1.7
    rule = ExactCalibration(1.0, 0.0, bounds)
    event = bag_means(rule).on_grid(2 * limit / LABEL_STEPS)

    # No noise, so that sums can be compared.
    def nothing(_law, count, _source):
        return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(type(event.law), "draw", nothing)
    predictions = rng.uniform(*bounds, size=12)

    def sums(labels):
        source = SimulatedNoise(0)
        return centred_means(labels, predictions, bags, bounds, event, source) * bags.sizes

    moves = []
    for _ in range(200):
        labels = rng.uniform(bounds[0] - 5, bounds[1] + 5, size=12)
        changed = labels.copy()
        changed[rng.integers(12)] = rng.choice([-1e9, 1e9, rng.uniform(*bounds)])
        moves.append(np.abs(sums(changed) - sums(labels)).sum())
    assert max(moves) <= 2 * limit * (1 + 1e-9)
    assert max(moves) > 1.99 * limit  # and no smaller sensitivity would do


CHOICES: dict[str, list[Any]] = {
    "tighten": ["auto", "range", "none"],
    "centre": ["auto", "model", "none"],
    "strategy": ["random", "kmeans", "optimal", "super", "sorted", "sorted by noise", "auto"],
    "label_kind": ["mean", "pick"],
    "delta": [None, 1e-7, 1e-5],
    "epsilon": [0.05, 0.3, 1.0, 4.0],
    "noise": ["auto", "laplace", "gaussian", "staircase", "unbiased"],
    "unit": [None, "who"],
    "bounds": ["stated", "found"],
    "within": [(), "part"],
    "bag_size": [40, "auto"],
}


def is_possible(
    *, centre, strategy, label_kind, delta, epsilon, noise, unit, bounds, bag_size, **_others
):
    """Tell whether there is such a release; others are refused with a word why."""
    if bounds == "found" and (unit or epsilon < 4.0):  # so few rows are worth none
        return False
    if (centre == "model" and label_kind == "pick") or (delta is None and noise == "gaussian"):
        return False
    if noise == "unbiased":  # every label by itself
        return label_kind == "mean" and (strategy, centre, bag_size) == ("auto", "auto", "auto")
    if label_kind == "pick" and noise == "staircase":
        return False
    return bag_size != "auto" or not strategy.startswith("sorted")


def random_request(rng):
    """Draw until there is such a release."""
    while True:
        asked = {name: values[rng.integers(len(values))] for name, values in CHOICES.items()}
        if asked["noise"] == "unbiased":
            asked |= {"strategy": "auto", "centre": "auto", "bag_size": "auto"}
        if is_possible(**asked):
            return asked


def deliver(table, asked):
    options = dict(asked)
    epsilon, delta, unit = options["epsilon"], options["delta"], options["unit"]
    if options["strategy"] == "sorted by noise":
        options |= {"strategy": "sorted", "scores": "noisy-labels"}
    try:
        options["bounds"] = "auto" if options["bounds"] == "found" else BOUNDS
        made = bw.make_release(table, **filed(label="y", exclude=() if unit else "who", **options))
    except (BudgetError, BoundsError, StrategyError):
        return False
    certificate = made.certificate
    assert certificate.epsilon <= epsilon
    assert certificate.delta <= (delta or 0.0)
    assert total_delta(certificate.events, epsilon) <= (delta or 0.0)
    if asked["bounds"] == "found":  # what they have cost is part of it
        assert certificate.events[0].hides == "bounds"
    made.verify()
    return True


def run_requests(count):
    rng, small = np.random.default_rng(0), make_table(n=1600, d=2)
    small = small.append_column("part", [np.arange(small.num_rows) % 2])
    done = sum(deliver(small, random_request(rng)) for _ in range(count))
    assert done > 0.9 * count


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")  # insisting on worse noise
def test_no_request_spends_more_than_was_asked():
    run_requests(10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_no_request_of_a_thousand_spends_more_than_was_asked():
    run_requests(1000)


def test_forged_looks_are_refused(table):
    made = release(table, centre="model")
    certificate = made.certificate
    events = certificate.events

    def forged(**changes):
        return dataclasses.replace(certificate, **changes)

    def without(hides):
        return tuple(event for event in events if event.hides != hides)

    narrower = (certificate.tightened[0] / 2, certificate.tightened[1] / 2)
    for wrong in (
        forged(tightened=None),
        forged(events=without("range")),
        forged(events=without("limit")),
        forged(events=without("model")),
        forged(limit=certificate.limit / 2),
        forged(limit=None),
        forged(limit=-1.0),
        forged(limit=1e9),
        forged(tightened=narrower),
        forged(tightened=(-1e6, 1e6)),
    ):
        with pytest.raises(CertificateError):
            wrong.check()
    with pytest.raises(ReleaseError, match="do not agree"):
        dataclasses.replace(made, model=None).verify()


def with_range(certificate, found):
    """What a careful forger writes: the same noise in steps, on the grid of another range."""
    step = (found[1] - found[0]) / LABEL_STEPS
    events = (e if e.hides in ("range", "limit") else e.on_grid(step) for e in certificate.events)
    return dataclasses.replace(certificate, tightened=found, events=tuple(events))


def with_limit(certificate, limit):
    *others, means = certificate.events
    events = (*others, means.on_grid(2 * limit / LABEL_STEPS))
    return dataclasses.replace(certificate, limit=limit, events=events)


def cheaper(certificate, hides):
    """Say that a search has cost next to nothing, and promise what the other events cost."""
    events = tuple(
        noisy_choice(hides, 1e-9, event.unit_rows) if event.hides == hides else event
        for event in certificate.events
    )
    epsilon = total_epsilon(events, certificate.delta)
    return dataclasses.replace(certificate, events=events, epsilon=epsilon)


def forged(made, certificate):
    """Make noise and labels agree with a certificate that is right in itself."""
    certificate.check()
    sizes, low = made.bags.sizes, certificate.clipped_to[0]
    steps = certificate.events[-1].grid_step / sizes
    return dataclasses.replace(
        made,
        certificate=certificate,
        labels=low + np.rint((made.labels - low) / steps) * steps,
        noise_sd=noise_per_bag(certificate.events, sizes),
    )


@pytest.mark.parametrize("options", [{}, {"bounds": (0.0, 900.0)}, {"unit": "who"}])
def test_a_range_that_no_search_ends_with(table, options, tmp_path):
    """Two exact labels were once published as the ends of a private range."""
    wide = {"tighten": "range", "epsilon": 1.0, "exclude": "who", **options}
    if "unit" in options:
        del wide["exclude"]
    made = release(table, centre="none", strategy="random", **wide)
    model = bw.release_model(table, label="y", **filed(**{"bounds": BOUNDS, **wide}))
    certificate, labels = made.certificate, sorted(table["y"].to_pylist())
    forged(made, certificate).verify()
    low, high = certificate.tightened
    for found in ((labels[9000], labels[-5]), (low, high * 1.0123)):
        with pytest.raises(CertificateError, match="no search ends with the range"):
            forged(made, with_range(certificate, found)).verify()
        wrong = dataclasses.replace(model, certificate=with_range(model.certificate, found))
        with pytest.raises(CertificateError, match="no search ends with the range"):
            verify(wrong.save(tmp_path / "model.json", force=True))
    claimed = cheaper(certificate, "range")
    assert claimed.epsilon < 0.99
    for asked in (claimed.asked_epsilon, claimed.epsilon):
        with pytest.raises(CertificateError, match="no search"):
            forged(made, dataclasses.replace(claimed, asked_epsilon=asked)).verify()
    wrong = dataclasses.replace(model, certificate=cheaper(model.certificate, "range"))
    with pytest.raises(CertificateError, match="no search"):
        verify(wrong.save(tmp_path / "model.json", force=True))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
def test_every_price_of_a_search_is_known(table, epsilon):
    """Searches that are asked for, and those that are worthwhile, alone and beside a model."""
    seen = set()
    for tighten in ("auto", "range", "none"):
        for centre in ("auto", "model", "none"):
            asked = {"tighten": tighten, "centre": centre, "epsilon": epsilon}
            made = release(table, **asked, bag_size=100)
            made.verify()
            searches = [e for e in made.certificate.events if e.hides in ("range", "limit")]
            seen |= {(event.hides, event.epsilon) for event in searches}
    assert len(seen) >= 4


def test_a_limit_that_no_search_ends_with(table):
    made = release(table, centre="model")
    certificate = made.certificate
    forged(made, certificate).verify()
    wrong = with_limit(certificate, certificate.limit * 1.0123)
    with pytest.raises(CertificateError, match="no search ends with the limit"):
        forged(made, wrong).verify()
    with pytest.raises(CertificateError, match="no search"):
        forged(made, cheaper(certificate, "limit")).verify()
    twice = (*certificate.events, certificate.events[0])
    with pytest.raises(CertificateError, match="pays twice"):
        dataclasses.replace(certificate, events=twice).check_rows(N)


def test_looks_that_cannot_be_are_refused(table):
    with pytest.raises(BudgetError, match="picked labels cannot be centred"):
        release(table, label_kind="pick", centre="model")
    with pytest.raises(BudgetError, match="give an epsilon"):
        release(table, epsilon=None, not_private=True, tighten="range")
    with pytest.raises(BudgetError, match="tighten"):
        release(table, tighten="yes")
    classes = pa.table({"x": np.arange(100.0), "y": ["a", "b"] * 50})
    for asked, words in (
        ({"tighten": "range"}, "no range to tighten"),
        ({"centre": "model"}, "classes cannot be centred"),
    ):
        with pytest.raises(BudgetError, match=words):
            release(classes, classes=["a", "b"], bounds=None, bag_size=10, exclude=(), **asked)


def test_nothing_is_looked_for_where_nothing_can_be_gained(table):
    """Answers of 0 and 1, few rows."""
    rng = np.random.default_rng(0)
    yes = pa.table({"x": rng.normal(size=N), "y": rng.integers(0, 2, size=N)})
    made = bw.make_release(yes, label="y", bounds=(0, 1), bag_size=50, epsilon=1.0)
    assert [event.hides for event in made.certificate.events] == ["bag means"]
    made = release(make_table(n=100), bag_size=10)
    assert [event.hides for event in made.certificate.events] == ["bag means"]


def test_a_released_model_is_tightened_too(table, tmp_path):
    wide = {"label": "y", "bounds": BOUNDS, "epsilon": 1.0, "exclude": "who"}
    model = bw.release_model(table, **wide)
    assert model.certificate.events[0].hides == "range"
    found, _ = verify(model.save(tmp_path / "model.json"))
    assert found.epsilon == 1.0
    plain = bw.release_model(table, **wide, privacy=bw.Privacy(tighten="none"))
    assert plain.certificate.tightened is None

    def error(model):
        found = model.coefficients()
        return (found["x0"] - 3) ** 2 + (found["x1"] + 2) ** 2

    assert error(model) < error(plain) / 4


def test_shares_follow_rows_and_promise():
    """More rows need a smaller share of epsilon to see the same."""
    rule = ExactCalibration(1.0, 0.0, (0.0, 1.0))

    def cost(n_rows, unit_rows=1):
        event = queries.price_range(rule, n_rows=n_rows, unit_rows=unit_rows, asked="range")
        return event.epsilon

    assert cost(10_000) == 0.1
    assert cost(40_000) == pytest.approx(0.05)
    assert cost(10**6) == 0.02
    assert cost(10**6, 10) == pytest.approx(0.02)
    assert queries.price_range(rule, n_rows=500, unit_rows=1, asked="auto") is None
    assert noisy_choice("limit", 0.1, 2).widened(3).hides == "limit"


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.4, 2.0, 3.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("n", [300, 3_000, 30_000])
def test_unasked_looks_cost_the_bags_an_eighth_more_noise_at_most(n, epsilon):
    X = np.random.default_rng(0).normal(size=(n, 3))
    rule = ExactCalibration(epsilon, 0.0, (0.0, 10.0))

    def noise(**asked):
        found = settle_queries(rule, X, list("abc"), unit_rows=1, **asked)
        left = rule if found.range is None else rule.within(rule.bounds, found.range)
        return bag_means(left, spent=found.spent).number_sd / bag_means(rule).number_sd, found

    unasked, found = noise(tighten="auto", centre="auto")
    assert unasked <= 1.12
    spent = [*([] if found.range is None else [found.range]), *found.spent]
    assert sum(event.pure_epsilon for event in spent) <= min(0.1 * epsilon, 0.27) * (1 + 1e-6)
    if n * epsilon >= 10_000:  # a model of three columns is cheap then
        assert found.model is not None
    if n == 3_000:  # The twin: whoever asks for a model pays what it is worth.
        assert noise(tighten="auto", centre="model")[0] > 1.12


def test_a_range_gets_what_a_model_is_not_worth():
    """Few rows: all that looks may cost, or else a part of it."""
    rule = ExactCalibration(1.0, 0.0, (0.0, 10.0))

    def cost(n):
        X = np.random.default_rng(0).normal(size=(n, 3))
        found = settle_queries(rule, X, list("abc"), unit_rows=1, tighten="auto", centre="auto")
        return found.range.epsilon, found.model is not None

    assert cost(4_000) == (pytest.approx(0.1), False)
    assert cost(16_000) == (pytest.approx(0.035), True)


class InTwoPlaces(BlockedRows):
    """Rows and labels in two places."""

    def __init__(self, X, labels):
        self._shape, self.parts = X.shape, [(X[:700], labels[:700]), (X[700:], labels[700:])]

    @property
    def shape(self):
        return self._shape

    def over(self, work, merge, *, labelled=False):
        if not labelled:
            return [work(X) for X, _ in self.parts]
        return [merge(work(X, labels), work(X[:0], labels[:0])) for X, labels in self.parts]

    def sampled(self, count):
        return self.parts[0][0][:count]


def test_a_model_leaves_of_labels_what_it_leaves_wherever_they_are():
    rng = np.random.default_rng(3)
    X, bounds = rng.normal(size=(1000, 3)), (-2.0, 2.0)
    labels = X @ [1.0, -0.5, 0.0] + rng.normal(size=1000)  # some beyond the bounds
    model = LinearScores(0.1, np.array([0.9, -0.6, 0.1]), ())
    expected = np.clip(model.predict(X), *bounds)
    left = np.abs(np.clip(labels, *bounds) - expected)
    here = answers.Leftovers(X, labels, model, bounds)
    spread = answers.Leftovers(InTwoPlaces(X, labels), None, model, bounds)
    limits, distance = np.array([2.0, 1.0, 0.5, 0.1]), Distance(0.0, np.inf, 0.0)
    counts = count_beyond(left, distance, limits)
    assert counts[-1] > counts[0] > 0
    for one in (here, spread):
        assert isinstance(one, CountsItself)
        assert one.size == 1000
        assert np.isclose(one.signal, np.var(expected), rtol=1e-8)
        np.testing.assert_array_equal(one.count_beyond(distance, limits), counts)
    found = [
        limit_of(one, 2.0, event=noisy_choice("limit", 1.0), source=SimulatedNoise(4))
        for one in (left, here, spread)
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("asked", ["auto", "model"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("n", [300, 3_000])
def test_designs_that_are_not_made_would_not_have_been_taken(n, epsilon, delta, asked, monkeypatch):
    X = np.random.default_rng(0).normal(size=(n, 3))
    rule = ExactCalibration(epsilon, delta, (0.0, 10.0))
    names, drawn = list("abc"), []
    sketch = Designs.sketch
    counted = lambda self, norm: drawn.append(norm) or sketch(self, norm)  # noqa: E731
    monkeypatch.setattr(Designs, "sketch", counted)
    lazy = settle_queries(rule, X, names, unit_rows=1, tighten="none", centre=asked)
    few = len(drawn)
    monkeypatch.setattr(Designs, "least_trace", -np.inf)  # as if anything could be
    eager = settle_queries(rule, X, names, unit_rows=1, tighten="none", centre=asked)
    assert len(drawn) - few == len(rule.score_noises)
    assert lazy.spent == eager.spent
    if asked == "model":
        assert few > 0


def test_where_centring_cannot_pay_no_design_is_made(monkeypatch):
    monkeypatch.setattr(Designs, "sketch", lambda *_: 1 / 0)
    X = np.random.default_rng(0).normal(size=(300, 3))
    rule = ExactCalibration(0.1, 1e-6, (0.0, 10.0))
    asked = {"tighten": "none", "centre": "auto"}
    assert settle_queries(rule, X, list("abc"), unit_rows=1, **asked) == Queries()


# Bounds that nobody has stated.


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_bounds_are_the_first_query_and_part_of_epsilon(epsilon, tmp_path):
    table = make_table(n=40_000, d=2)
    made = release(table, bounds="auto", epsilon=epsilon, strategy="random")
    events = made.certificate.events
    assert [event.hides for event in events].count("bounds") == 1
    assert events[0].hides == "bounds"
    assert events[0].epsilon <= 0.1 * epsilon * (1 + 1e-9)
    assert total_delta(events, epsilon) == 0
    assert "The bounds were chosen privately" in made.certificate.text()
    found, _ = verify(made.save(tmp_path / "out"))
    assert found.epsilon <= epsilon
    model = bw.release_model(table, label="y", bounds="auto", epsilon=epsilon, exclude="who")
    assert model.certificate.events[0] == events[0]
    assert verify(model.save(tmp_path / "m.json"))[0].epsilon <= epsilon
    assert model.bounds is None


def test_a_family_brings_its_ends_and_true_and_false_need_none():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    counts = pa.table(
        {"x": x, "y": rng.poisson(np.exp(0.3 * x)), "yes": x + rng.normal(size=4000) > 0}
    )
    model = bw.release_model(
        counts, label="y", bounds="auto", epsilon=4.0, family="poisson", features="x"
    )
    assert model.certificate.bounds[0] == 0
    for bounds in (None, "auto"):
        made = bw.make_release(counts, label="yes", bounds=bounds, epsilon=1.0, features="x")
        assert [event.hides for event in made.certificate.events] == ["bag means"]
        assert made.certificate.bounds == (0, 1)
        model = bw.release_model(
            counts, label="yes", bounds=bounds, epsilon=1.0, family="bernoulli", features="x"
        )
        assert [event.hides for event in model.certificate.events] == ["model"]
        bw.evaluate_rows_privately(model, counts, bounds=bounds, epsilon=1.0)
    with pytest.raises(BoundsError, match="needs bounds"):
        bw.make_release(counts, label="y", epsilon=1.0, features="x")


def test_too_few_rows_for_bounds_are_refused_before_the_charge(tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=9.0)
    for ask in (bw.make_release, bw.release_model):
        with pytest.raises(BoundsError, match="too few to find bounds"):
            ask(
                make_table(n=500), label="y", bounds="auto", epsilon=1.0, exclude="who",
                ledger=ledger,
            )  # fmt: skip
    assert not ledger.charges()


@pytest.mark.parametrize("asked", [{"not_private": True, "bag_size": 10}, {"classes": ["1", "2"]}])
def test_bounds_are_found_with_an_epsilon_and_for_numbers(asked):
    with pytest.raises(BoundsError):
        bw.make_release(make_table(n=500), label="y", bounds="auto", **{"epsilon": None, **asked})


def test_bounds_that_no_search_ends_with_are_refused():
    made = bw.make_release(
        make_table(n=4000, d=2), label="y", bounds="auto", epsilon=4.0, exclude="who"
    )
    certificate = made.certificate
    dearer = noisy_choice("bounds", certificate.events[0].epsilon / 2)
    for changes in (
        {"bounds": (-3.7, 88.1), "tightened": None},
        {"events": (dearer, *certificate.events[1:])},
    ):
        with pytest.raises(CertificateError):
            dataclasses.replace(certificate, **changes).check_rows(4000)
