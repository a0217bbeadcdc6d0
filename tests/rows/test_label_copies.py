"""Columns that carry the label under another name are noticed, and honest predictors are not."""

import math
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import binom, rankdata

import bagwise as bw
from bagwise.errors import ColumnError
from bagwise.rows import labels as label_copies
from bagwise.rows.labels import (
    FEWEST_ROWS,
    label_vector,
    note_likely_copies,
    refuse_copies,
)
from bagwise.show.operator_notes import operator_notes_to
from tests.stats import ALPHA


def noticed(column, labels, *, classes=False):
    """Whether the operator is told of a column."""
    notes = []
    table = pa.table({"column": column})
    with operator_notes_to(notes.append), warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        note_likely_copies(table, ["column"], labels, label="y", classes=classes)
        # What is raised is held back, so that it is looked for here.
        list(label_copies._telling_columns(table, ["column"], labels, classes=classes))
    return any("predicts the label" in note for note in notes)


def incomes(n=1000, seed=0):
    return np.random.default_rng(seed).lognormal(10, 1, size=n)


def but_one(values):
    """The same, but for one row that is as wrong as can be."""
    changed = np.array(values, copy=True)
    changed[np.argmin(values)] = changed.max() + 1
    return changed


def with_gaps(values):
    return pa.array(values, mask=np.arange(len(values)) % 3 == 0)


COPIES = {
    "affine": lambda y: 3 * y - 7,
    "negated": lambda y: -y,
    "rounded": lambda y: np.round(y, -2),
    "log": np.log,
    "float32": lambda y: y.astype(np.float32),
    "rank": rankdata,
    "all but one row": but_one,
    "log of all but one row": lambda y: -np.log(but_one(y)),
    "with gaps": with_gaps,
    "text": lambda y: [f"{2 * value:.3f}" for value in y],
    "categories": lambda y: pa.array([f"{value:.2f}" for value in y]).dictionary_encode(),
    "decimals": lambda y: pa.array(np.round(y)).cast(pa.decimal128(20, 2)),
    "integers": lambda y: np.round(y).astype(np.int64),
}


@pytest.mark.parametrize("n", [3 * FEWEST_ROWS // 2, 1000])  # a third may be missing
@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_disguised_copies_are_noticed(copy, n):
    labels = incomes(n)
    assert noticed(copy(labels), labels)


@pytest.mark.parametrize("n", [FEWEST_ROWS, 100, 10_000])
def test_an_honest_predictor_is_not_noticed(n):
    """Two neighbours leave one and a half of what a column misses: here 0.3, three times the bar.

    Of 50 rows, the mean of 48 squared errors has a standard error of a quarter of itself at most
    (each row has a share in three): below the bar it is by chance less than once in a hundred.
    """
    r = math.sqrt(0.8)
    rng = np.random.default_rng(7)
    runs = 500 if n <= 100 else 20
    alarms = 0
    for _ in range(runs):
        x = rng.normal(size=n)
        y = r * x + math.sqrt(1 - r**2) * rng.normal(size=n)
        alarms += label_copies._predicts(x, y, classes=False)
    assert alarms <= binom.isf(ALPHA, runs, 1e-2)


@pytest.mark.parametrize("n", [FEWEST_ROWS, 1000])
def test_a_copy_with_little_noise_is_noticed(n):
    """The twin: with R² = 0.99995 next to nothing is left."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=n)
    assert noticed(x, x + 0.007 * rng.normal(size=n))
    assert noticed(np.round(2 * x), x)  # about ten different values


def test_tables_of_a_few_rows_raise_no_alarm():
    labels = incomes(FEWEST_ROWS - 1)
    assert not noticed(2 * labels, labels)


CONSTANT = {
    "column": (np.full(100, 3.0), np.arange(100.0)),
    "label": (np.arange(100.0), np.full(100, 3.0)),
    "both": (np.full(100, 3.0), np.full(100, 3.0)),
    "missing": (np.full(100, np.nan), np.arange(100.0)),
    "infinite": (np.full(100, np.inf), np.arange(100.0)),
    "empty text": ([""] * 100, np.arange(100.0)),
    "null": (pa.nulls(100), np.arange(100.0)),
    "lists": ([[1.0]] * 100, np.arange(100.0)),
}


@pytest.mark.parametrize(("column", "labels"), CONSTANT.values(), ids=CONSTANT)
def test_what_does_not_vary_raises_no_alarm(column, labels):
    assert not noticed(column, labels)
    assert not noticed(column, (labels > 50).astype(np.int64), classes=True)


def ways(n=2000, seed=0, chances=(0.6, 0.3, 0.1)):
    return np.random.default_rng(seed).choice(len(chances), size=n, p=chances)


CLASS_COPIES = {
    "renamed": lambda c: np.array(["rouge", "vert", "bleu"])[c],
    "numbered": lambda c: np.array([7, 1, 3])[c],
    "all but one row": lambda c: np.where(np.arange(c.size) == 5, (c + 1) % 3, c),
    "categories": lambda c: pd.Categorical(np.array(["a", "b", "c"])[c]),
    "missing for one class": lambda c: pa.array(c, mask=c == 1),
    "days": lambda c: pa.array(c.astype(np.int32)).cast(pa.date32()),
}


@pytest.mark.parametrize("copy", CLASS_COPIES.values(), ids=CLASS_COPIES)
def test_disguised_copies_of_a_class_are_noticed(copy):
    codes = ways()
    assert noticed(pa.array(copy(codes)), codes, classes=True)
    assert noticed(pa.array(copy(codes)), codes.astype(float))  # also if the label is a number


HONEST = {
    "unique": lambda c, rng: [f"row {i}" for i in range(c.size)],
    "nearly unique": lambda c, rng: rng.integers(0, 10**6, c.size),
    "coarser": lambda c, rng: c > 0,
    "90 percent right": lambda c, rng: np.where(rng.random(c.size) < 0.1, (c + 1) % 3, c),
    "unrelated": lambda c, rng: rng.permutation(c),
}


@pytest.mark.parametrize("honest", HONEST.values(), ids=HONEST)
def test_honest_columns_are_no_copies_of_a_class(honest):
    """At 90 percent, 200 of 2000 rows differ, where 80 would be too few to be noticed."""
    assert binom.cdf(80, 2000, 0.1) < ALPHA
    codes = ways()
    assert not noticed(pa.array(honest(codes, np.random.default_rng(1))), codes, classes=True)


@pytest.mark.parametrize("n", [FEWEST_ROWS, 60, 100, 101, 500])
def test_columns_without_equal_cells_are_not_one_to_one_by_that(n):
    rng = np.random.default_rng(n)
    labels = rng.normal(size=n)
    assert not noticed(rng.normal(size=n), labels)
    assert not noticed([f"row {i}" for i in range(n)], labels)
    few = rng.integers(0, n // 5, size=n)
    assert not noticed(rng.permutation(few), few.astype(float))


def test_rare_events_agree_by_chance_and_raise_no_alarm():
    rng = np.random.default_rng(4)
    for n in (100, 2000, 50_000):
        label, column = (rng.permutation(np.arange(n) < max(1, n // 5000)) for _ in range(2))
        assert not noticed(column, label.astype(float))
        assert not noticed(column, label.astype(np.int64), classes=True)
    rare = rng.permutation(np.arange(2000) < 10)
    assert noticed(rare, rare.astype(np.int64), classes=True)
    missed = rare.copy()
    missed[np.flatnonzero(rare)[0]] = False
    assert not noticed(missed, rare.astype(np.int64), classes=True)  # 1 of 9 that matter
    common = rng.permutation(np.arange(2000) < 30)
    missed = common.copy()
    missed[np.flatnonzero(common)[0]] = False
    assert noticed(missed, common.astype(np.int64), classes=True)
    assert noticed(missed, common.astype(float))


def test_large_tables_are_sampled(monkeypatch):
    monkeypatch.setattr(label_copies, "MOST_ROWS", 200)
    seen = []
    check = label_copies._predicts
    monkeypatch.setattr(
        label_copies, "_predicts", lambda v, y, **how: seen.append(v.size) or check(v, y, **how)
    )
    labels = incomes(5000)
    assert noticed(np.sqrt(labels), labels)
    assert set(seen) == {200}


def test_the_note_names_the_column_and_no_value():
    rng = np.random.default_rng(0)
    y = rng.normal(918273645.125, 1.0, size=100)
    table = pa.table({"x": rng.normal(size=100), "net": 0.5 * y, "y": y})
    notes = []
    with operator_notes_to(notes.append):
        bw.make_release(
            table,
            label="y",
            bag_size=10,
            epsilon=1.0,
            delta=1e-6,
            bounds=(918273600, 918273700),
            id="net",
        )
    (note,) = notes
    assert "column 'net' alone predicts the label 'y'" in note
    assert "exclude=['net'] (--exclude net)" in note
    assert not any(character.isdigit() for character in note)


@pytest.mark.parametrize(
    "copy", [[1.0, 2.0, 2.0], [1, 2, 2], ["1", "2", "2.0"], pd.Categorical(["1", "2", "2"])]
)
def test_a_copy_of_the_label_is_refused_whatever_its_type(copy):
    table = pa.table({"copy": pa.array(copy), "y": [1.0, 2.0, 2.0]})
    labels = label_vector(table, "y")
    with pytest.raises(ColumnError, match="column 'copy' equals the label 'y'"):
        refuse_copies(table, ["copy"], labels, label="y")
    refuse_copies(pa.table({"other": [1.0, 2.0, 3.0]}), ["other"], labels, label="y")


def test_a_copy_is_one_if_every_part_of_it_is(monkeypatch):
    monkeypatch.setattr(label_copies, "_AT_ONCE", 2)
    labels = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    for values, is_copy in (
        ([1.0, 2.0, 3.0, 4.0, 5.0], True),
        (["1", "2", "3", "4", "5"], True),
        ([1.0, 2.0, 3.0, 4.0, 6.0], False),
        (["1", "2", "3", "4", "x"], False),
        ([1.0, 2.0, None, 4.0, 5.0], False),
    ):
        assert label_copies.spells(pa.chunked_array([values]), labels) == is_copy
