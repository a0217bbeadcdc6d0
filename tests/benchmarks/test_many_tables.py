"""Tables that nobody picked: which labels are taken, and what is measured of them."""

import numpy as np
import pandas as pd

from benchmarks import _many_tables as found


def frame(n=6000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return pd.DataFrame(
        {
            "rownames": np.arange(n),
            "a": X[:, 0],
            "b": X[:, 1],
            "c": X[:, 2],
            "total": X @ [3.0, 2.0, 1.0] + rng.normal(size=n) + 40.0,
            "kind": rng.choice(["x", "y"], n),
            "remark": [f"row {i}" for i in range(n)],
        }
    )


def test_names_and_remarks_are_no_columns():
    assert list(found.usable_columns(frame())) == ["a", "b", "c", "total", "kind"]


def test_the_label_is_one_that_can_be_learnt_and_the_same_every_time():
    labels = {found.with_label("some.table", found.usable_columns(frame())).label for _ in "ab"}
    assert len(labels) == 1
    noise = frame().assign(total=np.random.default_rng(1).normal(size=6000))
    assert found.with_label("some.table", found.usable_columns(noise)) is None
