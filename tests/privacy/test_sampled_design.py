"""Weights found on a sample of the rows: hardly worse, and the promise rests on all rows."""

import numpy as np
import pytest

from bagwise.privacy import private_model
from bagwise.privacy.private_model import Designs, design_model

NAMES = ["a", "b", "c"]


@pytest.fixture
def rows():
    """Rows of skewed features, sorted by one of them: the first thousand are like no others."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.lognormal(size=20_000), rng.random(20_000) < 0.1, rng.normal(size=20_000)]
    )
    return X[np.argsort(X[:, 0])]


def error_of(X, design):
    """The privacy error that a design's columns leave on all rows, computed here again."""
    Z, columns = private_model.unit_columns(X, design)
    J = columns.T @ Z
    return float(np.trace(np.linalg.inv(J.T @ J)))


@pytest.mark.parametrize(("norm", "even"), [("L2", 0.0), ("L1", 0.0), ("L1", 0.5)])
def test_a_sample_finds_nearly_the_best_weights(rows, norm, even, monkeypatch):
    best = design_model(rows, NAMES, norm=norm, even=even)
    monkeypatch.setattr(private_model, "SAMPLED_ROWS", 4096)
    monkeypatch.setattr(private_model, "SAMPLED_BLOCK", 8)  # as many blocks as of many rows
    sampled = design_model(rows, NAMES, norm=norm, even=even)
    assert sampled.privacy_trace == pytest.approx(error_of(rows, sampled), rel=1e-9)
    assert sampled.privacy_trace < 1.01 * best.privacy_trace


def test_the_first_rows_alone_would_not(rows, monkeypatch):
    best = design_model(rows, NAMES)
    monkeypatch.setattr(private_model, "_sampled", lambda X: X[:4096].copy())
    assert design_model(rows, NAMES).privacy_trace > 1.01 * best.privacy_trace


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_the_sensitivity_is_that_of_all_rows(rows, norm, monkeypatch):
    monkeypatch.setattr(private_model, "SAMPLED_ROWS", 4096)
    design = design_model(rows, NAMES, norm=norm)
    assert design.sensitivity_steps == private_model._sensitivity_steps(rows, design)
    _, columns = private_model.unit_columns(rows, design)
    assert np.linalg.norm(columns, ord=1 if norm == "L1" else 2, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_a_sketch_tells_about_what_the_design_of_all_rows_will_be(rows, norm, monkeypatch):
    monkeypatch.setattr(private_model, "SAMPLED_ROWS", 4096)
    monkeypatch.setattr(private_model, "SAMPLED_BLOCK", 8)
    designs = Designs(rows, NAMES)
    sketch = designs.sketch(norm)
    finished = designs.finished(sketch)
    assert np.array_equal(sketch.mix, finished.mix)
    assert sketch.privacy_trace == pytest.approx(finished.privacy_trace, rel=0.05)


def test_of_few_rows_a_sketch_is_the_design(rows):
    designs = Designs(rows, NAMES)
    sketch = designs.sketch("L2")
    assert designs.finished(sketch) is sketch


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_a_sample_that_holds_all_rows_is_searched_as_far_as_the_rows_are(rows, norm, monkeypatch):
    few = rows[::20]
    monkeypatch.setattr(private_model, "_sampled", lambda X: X.copy())  # as if they were elsewhere
    copied = Designs(few, NAMES).sketch(norm)
    monkeypatch.undo()
    assert copied.privacy_trace == Designs(few, NAMES).sketch(norm).privacy_trace


def test_a_search_of_a_sample_does_without_a_start_that_misses_a_level(rows, monkeypatch):
    rare = np.zeros(20_000)
    rare[1::400] = 1.0  # in no row of every eighth
    rows = np.column_stack([rows, rare])
    best = design_model(rows, [*NAMES, "d"])
    monkeypatch.setattr(private_model, "_sampled", lambda X: X[:-8])  # nearly all
    monkeypatch.setattr(private_model, "_white", white := Counting(private_model._white))
    sampled = design_model(rows, [*NAMES, "d"])
    assert sampled.privacy_trace == pytest.approx(best.privacy_trace, rel=1e-4)
    assert white.sizes.count(2_499) == 1  # looked at, and not searched


class Counting:
    def __init__(self, function):
        self.function, self.sizes = function, []

    def __call__(self, block, design):
        self.sizes.append(len(block))
        return self.function(block, design)


def test_coordinates_that_are_too_many_to_keep_are_computed_again(rows, monkeypatch):
    kept = design_model(rows, NAMES, norm="L1")
    monkeypatch.setattr(private_model, "_KEPT", 0)
    again = design_model(rows, NAMES, norm="L1")
    assert np.array_equal(kept.jacobian, again.jacobian)


@pytest.mark.parametrize("norm", ["L1", "L2"])
@pytest.mark.parametrize("even", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["normal", "skewed", "levels", "signs"])
def test_no_design_is_better_than_the_best_that_is_conceivable(kind, norm, even):
    rng = np.random.default_rng(3)
    X = {
        "normal": lambda: rng.normal(size=(500, 5)),
        "skewed": lambda: rng.lognormal(sigma=2, size=(500, 3)),
        "levels": lambda: np.eye(9)[rng.integers(0, 9, 500)][:, 1:],
        "signs": lambda: rng.choice([-1.0, 1.0], size=(500, 1)),
    }[kind]()
    designs = Designs(X, [str(j) for j in range(X.shape[1])], even=even)
    assert designs.least_trace <= designs.sketch(norm).privacy_trace
    if kind == "signs" and norm == "L2" and not even:  # rows of equal length come up to it
        assert designs.sketch(norm).privacy_trace == pytest.approx(designs.least_trace, rel=0.05)
