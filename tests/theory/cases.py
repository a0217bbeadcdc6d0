"""Rows, bags and coefficients that several of these tests share."""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from bagwise.bagging.bags import Bags


def chunked(order, size):
    """Return bags of `size` consecutive places of an order."""
    index = np.empty(len(order), dtype=int)
    index[order] = np.arange(len(order)) // size
    return Bags(index)


def three_baggings(X, theta, size, rng):
    """Return random bags, bags sorted by X theta, and these with the first two merged."""
    ranked = chunked(np.argsort(X @ theta, kind="stable"), size)
    return {
        "random": chunked(rng.permutation(len(X)), size),
        "sorted": ranked,
        "unequal": Bags(np.maximum(ranked.index - 1, 0)),
    }


def well_conditioned(rng, n, d, scale):
    """Return X whose singular values lie within a factor of ten."""
    left, _ = np.linalg.qr(rng.standard_normal((n, d)))
    right, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return scale * np.sqrt(n) * (left * rng.uniform(0.3, 3.0, size=d)) @ right


@st.composite
def problems(draw, equal=False):
    """Draw rows on any scale, bags of any sizes and of any kind, and coefficients."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.integers(1, 4))
    m = draw(st.integers(2 * d + 1, 14))
    size = draw(st.integers(1, 6))
    X = well_conditioned(rng, m * size, d, 10.0 ** draw(st.floats(-3, 3)))
    X += draw(st.sampled_from([0.0, 1.0])) * X.std() * rng.standard_normal(d)
    theta = rng.standard_normal(d) * 10.0 ** draw(st.floats(-2, 2))
    order = np.argsort(X @ theta) if draw(st.booleans()) else rng.permutation(m * size)
    index = chunked(order, size).index.copy()
    if not equal:  # move some rows elsewhere, and leave some out, as long as no bag is empty
        moved = rng.random(len(index)) < draw(st.sampled_from([0.0, 0.3]))
        moved[np.unique(index, return_index=True)[1]] = False
        index[moved] = rng.integers(-1, m, size=int(moved.sum()))
    bags = Bags(index)
    centroids, rows = bags.mean(X), X[bags.in_bag]
    assume(np.linalg.cond(centroids) < 1e4)
    assume(np.linalg.cond(rows) < 1e4)
    return X, bags, theta


scales = st.floats(0.01, 10.0)
