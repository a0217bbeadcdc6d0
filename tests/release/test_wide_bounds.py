import warnings

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import DominatedWarning
from bagwise.show.operator_notes import operator_notes_to

N = 400
WIDE = {"label": "y", "bounds": (0, 20_000), "epsilon": 1.0}


def table(labels):
    return pa.table({"x": np.random.default_rng(0).normal(size=N), "y": labels})


def release(labels, **options):
    asked = {**WIDE, "bag_size": 20, "strategy": "random", "delta": 0.0, **options}
    return bw.make_release(table(labels), **asked)


def marks(share=0.3):
    return np.random.default_rng(1).random(N) < share


def test_a_true_or_false_label_with_wide_bounds_is_warned_of():
    with pytest.warns(DominatedWarning, match=r"20000 times the necessary noise.*--bounds 0 1"):
        release(marks())
    release(marks(), bounds=(0, 1))


@pytest.mark.parametrize("labels", [marks().astype(float), marks().astype(int), np.full(N, 7.5)])
def test_numbers_in_wide_bounds_are_for_the_operators_eyes_only(labels):
    notes = []
    with operator_notes_to(notes.append), warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would tell about the labels
        release(labels)
    (note,) = notes
    assert "less than a hundredth of the width" in note
    assert "7.5" not in note


def test_labels_that_use_their_bounds_bring_no_note():
    notes = []
    with operator_notes_to(notes.append):
        release(np.linspace(0, 300, N))
        release(marks().astype(float), bounds=(0, 1))
    assert notes == []


def test_a_private_model_says_so_too():
    with pytest.warns(DominatedWarning, match="true or false"):
        bw.release_model(table(marks()), **WIDE, delta=1e-6)


def test_without_a_promise_there_is_no_noise_to_warn_of():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bw.errors.LeakWarning)
        warnings.simplefilter("error", DominatedWarning)
        bw.make_release(
            table(marks()), label="y", bounds=(0, 20_000), bag_size=20, not_private=True
        )


def test_the_warning_follows_from_the_type_and_from_no_label():
    said = []
    for labels in (marks(), np.zeros(N, dtype=bool), np.ones(N, dtype=bool)):
        with pytest.warns(DominatedWarning) as found:
            release(labels)
        said.append(str(found[0].message))
    assert len(set(said)) == 1
