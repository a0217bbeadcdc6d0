"""Tables that a strategy must cope with, whatever it looks for in them."""

import numpy as np
from hypothesis import strategies as st

KINDS = ("normal", "duplicates", "equal", "constant", "rank", "units", "int", "far")


@st.composite
def tables(draw, rows, *, most):
    """Draw up to `most` rows made by ``rows(n, d, seed)`` and then spoilt, and a bag size."""
    n, d = draw(st.integers(1, most)), draw(st.integers(0, 4))
    X = rows(n, d, draw(st.integers(0, 10**6)))
    kind = draw(st.sampled_from(KINDS))
    if kind == "duplicates":
        X = np.round(X)
    if kind == "equal":
        X[:] = 0.1
    if kind == "constant":
        X[:, : d // 2] = 1 / 3
    if kind == "rank" and d:
        X = X[:, :1] * np.arange(1.0, d + 1)
    if kind == "units":
        X *= np.array([1e-9, 1e9, 1.0, 1e3])[:d]
    if kind == "int":
        X = np.round(3 * X).astype(int)
    if kind == "far" and d:
        X[0] = 1e6
    return X, draw(st.integers(1, n))
