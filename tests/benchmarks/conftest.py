import numpy as np
import pyarrow as pa
import pytest

from benchmarks import _real_tables as tables


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = 5 + X @ [1.0, -0.5] + 0.3 * rng.normal(size=500)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    return tables.RealTable(
        name="made up",
        train=table[:400],
        test=table[400:],
        label="y",
        family="gaussian",
        bounds=(0.0, 10.0),
    )
