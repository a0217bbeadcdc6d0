import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.cluster import state
from bagwise.cluster.state import OrderedRows, geometric
from tests.cluster import reference


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 1000), st.integers(1, 20))
def test_centres_sizes_and_spread_come_from_the_labels(n, clusters, seed, chunk):
    rng = np.random.default_rng(seed)
    Z, labels = rng.normal(size=(n, 3)), rng.integers(0, clusters, size=n).astype(np.int32)
    rows = OrderedRows.of(Z, np.arange(n, dtype=np.int32), labels, clusters)
    for _ in range(2):
        assert rows.sizes.tolist() == [np.sum(rows.labels == a) for a in range(clusters)]
        for a in np.unique(rows.labels):
            assert np.allclose(rows.centres[a], Z[rows.labels == a].mean(axis=0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state, "CHUNK", chunk)
            assert rows.inertia == pytest.approx(reference.spread(Z, rows.labels), abs=1e-9)
        rows.labels = rng.permutation(rows.labels)
        rows.settle()
    assert rows.centres.flags.c_contiguous


def test_an_empty_cluster_has_a_finite_centre():
    rows = OrderedRows.of(
        np.ones((4, 2), dtype=np.float32), np.arange(4), np.array([0, 0, 2, 2], dtype=np.int32), 3
    )
    assert rows.sizes.tolist() == [2, 0, 2]
    assert np.isfinite(rows.centres).all()
    assert rows.centres.dtype == np.float32


def test_geometric_numbers_have_a_constant_ratio():
    assert geometric(1.0, 8.0, 4).tolist() == pytest.approx([1, 2, 4, 8])
    assert geometric(0.5, 8.0, 1).tolist() == [0.5]
    assert geometric(0.5, 8.0, 0).size == 0
