"""Small tables that most tests start from."""

import os
import signal

import numpy as np
import pyarrow as pa
import pytest

# A shell that starts the tests in the background has Ctrl-C ignored; some tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The first search on a machine would do without kernels, and others find other clusters.
os.environ.setdefault("BAGWISE_KERNELS", "wait")


@pytest.fixture
def table():
    """60 rows with numbers, text and a label that depends on them."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=60)
    city = np.where(rng.random(60) < 0.6, "Bonn", "Pune")
    y = 3 + 2 * x + (city == "Pune") + 0.1 * rng.normal(size=60)
    return pa.table({"x": x, "city": city, "y": y})
