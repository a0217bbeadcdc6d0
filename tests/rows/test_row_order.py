"""The attack that used the last bits of published numbers to find ranks of labels."""

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.rng import SecureNoise
from bagwise.rows.encode import Encoder
from bagwise.rows.row_order import feature_order

N, COLUMNS = 400, 12


@pytest.fixture(scope="module")
def sorted_by_label():
    """A table in the order of its labels, with missing values, so that fills are published."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(sigma=2, size=(N, COLUMNS))
    X[rng.random(size=X.shape) < 0.05] = np.nan
    return pa.table(
        {**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "y": np.sort(rng.normal(size=N))}
    )


def candidates_left(published, table, victim, describe):
    """Count the ranks that the victim's label could have, given what was published.

    The attacker knows all features and all other labels, and so the order of the other rows; what
    is missing is where the victim stood among them.
    """
    others = np.delete(np.arange(N), victim)
    orders = (np.insert(others, rank, victim) for rank in range(N))
    return sum(describe(table.take(pa.array(order))) == published for order in orders)


def by_the_encoder(table):
    return Encoder.for_table(table, [f"x{j}" for j in range(COLUMNS)]).to_json()


def by_numpy_in_order(table):
    """What was published before: means of doubles in the order of the table."""
    columns = [table[f"x{j}"].to_numpy() for j in range(COLUMNS)]
    return [float(np.mean(c[~np.isnan(c)])) for c in columns]


def test_published_numbers_leave_all_ranks_possible(sorted_by_label):
    release = bw.make_release(
        sorted_by_label, label="y", bag_size=20, strategy="random", bounds=(-4, 4),
        epsilon=0.1, delta=0.0,
    )  # fmt: skip
    published = release.encoder.to_json()
    assert all(column["fill"] is not None for column in published["columns"])
    for victim in (0, N // 3, N - 1):
        assert candidates_left(published, sorted_by_label, victim, by_the_encoder) == N


def test_the_attack_would_see_a_sum_in_the_order_of_the_table(sorted_by_label):
    published = by_numpy_in_order(sorted_by_label)
    left = candidates_left(published, sorted_by_label, N // 3, by_numpy_in_order)
    assert 1 <= left < N / 2


def test_no_fill_is_published_where_nothing_is_missing():
    table = pa.table({"x": [1.0, 2.0, 4.0], "z": [1.0, None, 3.0]})
    encoder = Encoder.for_table(table, ["x", "z"])
    assert [column.fill for column in encoder.columns] == [None, 2.0]
    with pytest.raises(bw.errors.ColumnError, match="'x' is missing in 1 row"):
        encoder.transform(pa.table({"x": [1.0, None], "z": [1.0, 2.0]}))


@pytest.mark.parametrize("kind", ["number", "text", "boolean", "decimal", "list"])
def test_features_decide_the_order_and_secrets_break_ties(kind):
    values = {
        "number": pa.array([2.0, None, 1.0, 2.0, float("nan")]),
        "text": pa.array(["b", None, "a", "b", "é"]),
        "boolean": pa.array([True, None, False, True, True]),
        "decimal": pa.array([2, None, 1, 2, 3], pa.decimal128(5, 2)),
        "list": pa.array([[2], None, [1], [2], [3]]),
    }[kind]
    table = pa.table({"x": values, "place": range(5)})
    seen = {tuple(feature_order(table, ["x"], SecureNoise()).tolist()) for _ in range(40)}
    if kind == "list":
        assert len(seen) > 10  # cannot be sorted: any order
    else:
        # The two equal rows come in both orders; the chance of missing one is 2 in 2**40.
        assert {order.index(0) < order.index(3) for order in seen} == {True, False}
        assert all(order.index(2) < order.index(0) for order in seen)
