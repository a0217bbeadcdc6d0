"""Small tables that most tests start from."""

import signal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings

# A shell that starts the tests in the background has Ctrl-C ignored; some tests are about it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling a kernel on first use takes longer than any sensible deadline.
settings.register_profile("bagwise", deadline=None)
settings.load_profile("bagwise")


@pytest.fixture
def table():
    """60 rows with numbers, text and a label that depends on them."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=60)
    city = np.where(rng.random(60) < 0.6, "Bonn", "Pune")
    y = 3 + 2 * x + (city == "Pune") + 0.1 * rng.normal(size=60)
    return pa.table({"x": x, "city": city, "y": y})
