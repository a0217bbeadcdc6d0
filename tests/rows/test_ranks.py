import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from bagwise.rows.row_order import mid_ranks


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40))
def test_ranks_are_those_of_scipy(values):
    numbers = np.array(values, dtype=np.float64)
    assert np.array_equal(mid_ranks(numbers), rankdata(numbers))
