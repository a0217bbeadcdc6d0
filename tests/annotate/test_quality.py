"""What a fit is worth on rows without a label, against rows whose labels the tests know."""

import numpy as np
import pyarrow as pa
import pytest

from bagwise import AnnotationProject
from bagwise.annotate.rows import reason


def project(tmp_path, labels, n=4000, budget=150, width=8, **options):
    """Start a project whose labels are known, and label its first round."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, width))
    table = pa.table({f"x{j}": X[:, j] for j in range(width)} | {"key": np.arange(n)})
    made = AnnotationProject.start(
        table,
        tmp_path / "p",
        label="y",
        budget=budget,
        design="random",
        id="key",
        seed=3,
        **options,
    )
    y = labels(X, rng)
    chosen = np.array(made.to_label()["key"].to_pylist(), dtype=int)
    made.import_labels(pa.table({"key": chosen.astype(str), "y": y[chosen]}))
    return made, table, y


def test_the_typical_error_is_that_of_rows_nobody_labelled(tmp_path):
    made, table, y = project(tmp_path, lambda X, rng: X[:, 0] * 3 + rng.normal(size=len(X)))
    quality = made.quality()
    errors = y - made.fit().predict(table)
    true = np.sqrt(np.mean(errors**2))
    # Of 150 squared errors the mean has a relative standard error of sqrt(2/150), half in its root.
    assert quality.typical_error == pytest.approx(true, rel=4 * np.sqrt(2 / 150) / 2)
    assert quality.error_of_mean == pytest.approx(np.std(y), rel=0.25)
    assert quality.explained == pytest.approx(0.9, abs=0.04)
    assert "R² 0.9" in str(quality)


def test_more_labels_are_worth_something_where_coefficients_are_many(tmp_path):
    made, _, _ = project(
        tmp_path, lambda X, rng: X.sum(axis=1) + rng.normal(size=len(X)), budget=60, width=30
    )
    quality = made.quality()
    # A fit to 160 labels has an error of about sqrt(1 + 30/160), a third less than that to 60.
    assert quality.gain > 0.25
    assert "100 more labels should lower the typical error by 25% or more" in str(quality)


def test_and_nothing_where_there_is_nothing_to_learn(tmp_path):
    made, _, _ = project(tmp_path, lambda X, rng: rng.normal(size=len(X)), budget=300, width=1)
    quality = made.quality()
    assert quality.explained < 0.05
    assert "100 more labels would hardly change that" in str(quality)


def test_classes_have_an_accuracy(tmp_path):
    def labels(X, rng):
        return np.where(X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0.5, "yes", "no")

    made, table, y = project(tmp_path, labels, classes=["yes", "no"])
    quality = made.quality()
    right = np.array(["yes", "no"])[made.fit().predict(table).argmax(axis=1)] == y
    assert 1 - quality.typical_error == pytest.approx(right.mean(), abs=4 * np.sqrt(0.09 / 150))
    assert quality.error_of_mean == pytest.approx(0.31, abs=0.15)
    assert "Accuracy on rows it has not seen" in str(quality)


def test_too_few_labels_say_nothing(tmp_path):
    made, _, _ = project(tmp_path, lambda X, rng: X[:, 0] + rng.normal(size=len(X)), budget=20)
    assert made.quality() is None


@pytest.mark.parametrize(("design", "words"), [("kmeans", "12 groups"), ("random", "as likely")])
def test_every_design_has_a_reason(design, words):
    assert words in reason(design, n_rows=5000, budget=12)
