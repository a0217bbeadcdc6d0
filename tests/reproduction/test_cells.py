"""The cells of the paper's tables, what is printed in them, and how one is named."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.errors import StrategyError
from reproduction.cells import APPENDIX, Cell, printed_values, table_cells

POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


def test_every_printed_value_is_there_once():
    assert Counter(printed.table for printed in printed_values()) == {
        1: 18,
        2: 12,
        3: 56,
        4: 56,
        5: 44,
    }
    for table in range(1, 6):
        assert len(set(table_cells(table))) == len(table_cells(table))


@pytest.mark.parametrize(
    ("table", "cell", "mean", "sd"),
    [
        (1, "bag,iso,10,0.5,kmeans", 0.0082, 0.002),
        (1, "aggregate,iso,50,0.5,random", 0.0619, 0.012),
        (2, "instance,iso,10,0.5,kmeans,0.5", 0.0621, 0.009),
        (2, "instance,iso,50,0.5,sorted,1", 0.0480, 0.005),
        (3, "aggregate,iso,50,0.5,super", 0.058051, 0.00631),
        (3, "aggregate,ind,10,2,sorted", 0.048532, 0.01083),
        (4, "bag,dep,50,0.5,whitened", 0.049910, 0.00773),
        (5, "instance,dep,50,2,whitened", 0.048617, 0.00801),
    ],
)
def test_printed_values(table, cell, mean, sd):
    [found] = [
        printed
        for printed in printed_values()
        if (printed.table, printed.cell) == (table, Cell.parse(cell))
    ]
    assert (found.mean, found.sd) == (mean, sd)


def test_what_each_table_is_about():
    assert {cell.epsilon for cell in table_cells(2)} == {0.5, 1.0, 2.0}
    for table, loss in zip(APPENDIX, ("aggregate", "bag", "instance"), strict=True):
        cells = table_cells(table)
        assert {cell.loss for cell in cells} == {loss}
        assert {cell.data for cell in cells} == {"iso", "ind", "dep"}
        assert {cell.epsilon for cell in cells} == {None}


def test_the_first_table_is_a_part_of_the_appendix():
    appendix = {cell for table in APPENDIX for cell in table_cells(table)}
    assert set(table_cells(1)) < appendix
    assert not set(table_cells(2)) & appendix


PUBLIC = st.builds(
    Cell,
    st.sampled_from(["bag", "aggregate", "instance"]),
    st.sampled_from(["iso", "ind", "dep"]),
    st.integers(1, 10**9),
    POSITIVE,
    st.sampled_from(["random", "kmeans", "whitened", "sorted", "super"]),
)
PRIVATE = st.builds(
    lambda strategy, epsilon: Cell("instance", "iso", 10, 0.5, strategy, epsilon),
    st.sampled_from(["kmeans", "sorted"]),
    st.floats(1e-6, 20),
)


@given(st.one_of(PUBLIC, PRIVATE))
def test_any_cell_parses_from_its_own_text(cell):
    assert Cell.parse(str(cell)) == Cell.parse(f" {cell}".replace(",", " , ")) == cell


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "LOSS,DATA,BAG_SIZE"),
        ("bag,iso,10,0.5", "for example bag,iso,10,0.5,kmeans"),
        ("instance,iso,10,0.5,sorted,1,1", "LOSS,DATA,BAG_SIZE"),
        ("bags,iso,10,0.5,kmeans", "loss .* bag, aggregate or instance.* 'bags'"),
        ("bag,cor,10,0.5,kmeans", "data .* iso, ind or dep.* 'cor'"),
        ("bag,iso,0,0.5,kmeans", "bag size .* '0'"),
        ("bag,iso,10.5,0.5,kmeans", "bag size .* '10.5'"),
        ("bag,iso,10,0,kmeans", "label noise .* '0'"),
        ("bag,iso,10,nan,kmeans", "label noise .* 'nan'"),
        ("bag,iso,10,much,kmeans", "label noise .* 'much'"),
        ("bag,iso,10,0.5,k-means", "strategy .* random, kmeans, whitened.* 'k-means'"),
        ("instance,iso,10,0.5,sorted,0", "epsilon .* '0'"),
        ("instance,iso,10,0.5,sorted,all", "epsilon .* 'all'"),
        ("bag,iso,10,0.5,sorted,1", "with an epsilon .* instance loss"),
        ("instance,dep,10,0.5,sorted,1", "with an epsilon .* table 2"),
        ("instance,iso,10,0.5,random,1", "with an epsilon .* kmeans or sorted"),
    ],
)
def test_a_malformed_cell_says_what_is_wrong(text, said):
    with pytest.raises(StrategyError, match=said):
        Cell.parse(text)


def test_what_a_cell_is():
    assert Cell.parse("bag,iso,10,0.5,kmeans").label_kind == "mean"
    assert Cell.parse("aggregate,iso,10,0.5,kmeans").label_kind == "pick"
    assert Cell.parse("instance,iso,10,0.5,kmeans").label_kind == "pick"
    by_labels = {
        strategy
        for strategy in ("random", "kmeans", "whitened", "sorted", "super")
        if Cell("bag", "iso", 10, 0.5, strategy).by_labels
    }
    assert by_labels == {"sorted", "super"}
