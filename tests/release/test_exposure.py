"""What a release without noise gives away: against brute force, and against theory."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.errors import LeakWarning
from bagwise.release.label_bags import Exposure, report_exposure
from bagwise.show.operator_notes import operator_notes_to
from tests.stats import ALPHA

PLAIN = {"bag_size": 10, "strategy": "random", "not_private": True}


@st.composite
def bagged(draw, values):
    """Labels and bags; some rows may be in none."""
    n = draw(st.integers(1, 30))
    labels = draw(st.lists(values, min_size=n, max_size=n))
    index = draw(st.lists(st.integers(-1, 4), min_size=n, max_size=n))
    index[0] = max(index[0], 0)
    kept = np.array(index) >= 0
    numbers = np.full(n, -1)
    numbers[kept] = np.unique(np.array(index)[kept], return_inverse=True)[1]
    return np.array(labels), Bags(numbers)


def groups(labels, bags):
    return [[int(y) for y in labels[bags.index == bag]] for bag in range(bags.n_bags)]


def close_share(found, values, everything):
    reach = Fraction(max(everything) - min(everything), 100)
    return sum(
        abs(y - Fraction(value)) <= reach
        for group, value in zip(found, values, strict=True)
        for y in group
    ) / len(everything)


def guess_share(everything):
    width = Fraction(2 * (max(everything) - min(everything)), 100)
    return max(sum(low <= y <= low + width for y in everything) for low in everything) / len(
        everything
    )


def fails_the_p_rule(group, least):
    amounts = sorted((y - least for y in group), reverse=True)
    return sum(amounts[2:]) * 10 < amounts[0]


INTEGERS = st.one_of(st.integers(-3, 3), st.integers(0, 1), st.integers(0, 300))


@given(bagged(INTEGERS))
def test_means_are_measured_as_by_hand(drawn):
    labels, bags = drawn
    found = groups(labels, bags)
    everything = [y for group in found for y in group]
    least, most, n = min(everything), max(everything), len(everything)
    exposure = Exposure.of(labels.astype(float), bags, bags.mean(labels))
    fixed = [g for g in found if len(g) == 1 or sum(g) in (least * len(g), most * len(g))]
    assert exposure.fixed == pytest.approx(sum(map(len, fixed)) / n)
    assert exposure.homogeneous == sum(len(g) for g in found if len(set(g)) == 1) / n
    means = [Fraction(sum(g), len(g)) for g in found]
    assert exposure.close == pytest.approx(close_share(found, means, everything))
    assert exposure.guessed == pytest.approx(guess_share(everything))
    two_valued = set(everything) <= {least, most}
    failing = 0 if two_valued else np.mean([fails_the_p_rule(g, least) for g in found])
    assert exposure.dominated == pytest.approx(failing)


@given(bagged(INTEGERS), st.data())
def test_picks_are_measured_as_by_hand(drawn, data):
    labels, bags = drawn
    found = groups(labels, bags)
    everything = [y for group in found for y in group]
    picks = [data.draw(st.sampled_from(group)) for group in found]
    exposure = Exposure.of(labels.astype(float), bags, np.array(picks, dtype=float), picked=True)
    assert exposure.fixed == sum(len(g) == 1 for g in found) / len(everything)
    assert exposure.close == pytest.approx(close_share(found, picks, everything))
    assert exposure.dominated == 0.0


@given(bagged(st.integers(0, 3)))
def test_classes_are_measured_as_by_hand(drawn):
    codes, bags = drawn
    found = groups(codes, bags)
    everything = [y for group in found for y in group]
    shares = bags.mean(np.eye(4)[codes])
    exposure = Exposure.of(codes, bags, shares, picked=False)
    pure = sum(len(g) for g in found if len(set(g)) == 1) / len(everything)
    assert exposure.fixed == exposure.homogeneous == exposure.close == pytest.approx(pure)
    assert exposure.guessed == max(Counter(everything).values()) / len(everything)
    picked = Exposure.of(codes, bags, np.eye(4)[[g[0] for g in found]], picked=True)
    assert picked.fixed == sum(len(g) == 1 for g in found) / len(everything)
    told = sum(g.count(g[0]) for g in found) / len(everything)
    assert picked.close == pytest.approx(told)


@pytest.mark.parametrize("prevalence", [0.01, 0.05, 0.2])
def test_rare_labels_are_fixed_as_often_as_theory_says(prevalence):
    """A bag of k independent labels is all 0 or all 1 with probability (1-p)^k + p^k."""
    k, m = 10, 40_000
    rng = np.random.default_rng(3)
    labels = (rng.random(m * k) < prevalence).astype(float)
    bags = Bags(rng.permutation(np.repeat(np.arange(m), k)))
    fixed = Exposure.of(labels, bags, bags.mean(labels)).fixed

    def is_plausible(p):
        low, high = binom.ppf([ALPHA / 2, 1 - ALPHA / 2], m, (1 - p) ** k + p**k)
        return low <= fixed * m <= high

    assert is_plausible(prevalence)
    assert not is_plausible(1.2 * prevalence)
    assert not is_plausible(prevalence / 1.2)
    codes = labels.astype(np.int64)
    by_class = Exposure.of(codes, bags, bags.mean(np.eye(2)[codes]), picked=False)
    assert by_class.fixed == fixed


def test_constant_labels_are_all_told_without_a_numeric_warning():
    bags = Bags(np.array([0, 0, 0, 1, 1, 1]))
    with np.errstate(all="raise"):
        found = Exposure.of(np.full(6, 0.1), bags, bags.mean(np.full(6, 0.1)))
    assert (found.fixed, found.homogeneous, found.close, found.guessed) == (1, 1, 1, 1)
    assert found.dominated == 0


def heights(n=2000):
    rng = np.random.default_rng(0)
    return pa.table({"x": rng.normal(size=n), "y": rng.normal(170, 10, size=n)})


def rare(n=2000, prevalence=0.05):
    rng = np.random.default_rng(0)
    return pa.table({"x": rng.normal(size=n), "y": rng.random(n) < prevalence})


def test_ordinary_means_raise_no_alarm():
    bw.make_release(heights(), label="y", **PLAIN)
    bw.make_release(heights(), label="y", **PLAIN, bagging=bw.Bagging(label_kind="pick"))
    heavy = pa.table({"x": heights()["x"], "y": np.exp(np.array(heights()["y"]) / 10)})
    bw.make_release(heavy, label="y", **PLAIN, bagging=bw.Bagging(label_kind="pick"))


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (rare(), {}),
        (rare(), {"bag_size": 1}),
        (heights(), {"bag_size": 1}),
        (heights(), {"bag_size": 2}),
        (heights(), {"bounds": (0, 100)}),
    ],
)
@pytest.mark.filterwarnings("ignore::bagwise.errors.ClippingWarning")
def test_exposed_labels_are_warned_of_without_figures(table, options):
    with pytest.warns(LeakWarning, match="--epsilon") as caught:
        bw.make_release(table, label="y", **{**PLAIN, **options})
    (warning,) = [w for w in caught if w.category is LeakWarning]
    assert not any(character.isdigit() for character in str(warning.message))


def test_rare_classes_are_warned_of():
    table = pa.table({"x": rare()["x"], "y": np.where(np.array(rare()["y"]), "yes", "no")})
    with pytest.warns(LeakWarning, match="reveals labels of single rows"):
        bw.make_release(table, label="y", classes=["yes", "no"], **PLAIN)
    bw.make_release(
        table, label="y", classes=["yes", "no"], bagging=bw.Bagging(label_kind="pick"), **PLAIN
    )


def test_sorted_bags_warn_once_and_are_measured_all_the_same():
    notes = []
    with operator_notes_to(notes.append), pytest.warns(LeakWarning) as caught:
        bw.make_release(heights(), label="y", **{**PLAIN, "strategy": "sorted"})
    assert len([w for w in caught if w.category is LeakWarning]) == 1
    assert "sorting the labels" in str(caught[0].message)
    assert "no noise" in notes[0]


def test_a_private_release_is_not_measured():
    notes = []
    with operator_notes_to(notes.append):
        private = {"bounds": (0, 1), "epsilon": 1.0, "delta": 1e-6, "bag_size": 10}
        bw.make_release(rare(), label="y", strategy="random", **private)
    assert notes == []


def test_the_note_says_it_in_words():
    notes = []
    bags = Bags(np.array([0, 0, 1, 1]))
    labels = np.array([0.0, 0.0, 0.0, 1.0])
    with operator_notes_to(notes.append), pytest.warns(LeakWarning):
        report_exposure(labels, bags, bags.mean(labels), label_kind="mean")
    assert "certain of the labels of 50.0% of its rows" in notes[0]
    assert "one guess for all rows would do so for 75.0%" in notes[0]
