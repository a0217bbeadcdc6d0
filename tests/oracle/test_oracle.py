"""Fits, releases and errata are today what they were when they were kept."""

import pytest

from tests.oracle.cases import all_cases
from tests.oracle.compare import differences, load, run

KEPT, CASES = load(), all_cases()


def test_the_same_cases_are_kept():
    assert list(KEPT) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_nothing_has_changed(name):
    changed = list(differences(KEPT[name], run(CASES[name])))
    assert not changed, "\n".join(["python -m tests.oracle.make, if this is meant:", *changed])


def test_a_change_would_be_told():
    assert list(differences({"coef": [1.0, 2.0]}, {"coef": [1.0, 2.0 + 1e-9]})) == []
    assert list(differences({"coef": [1.0, 2.0]}, {"coef": [1.0, 2.0 + 1e-7]})) == [
        "coef[1]: was 2.0, is 2.0000001"
    ]
    assert list(differences({"a": 1}, {"b": 1})) == ["a: was 1, is None", "b: was None, is 1"]
