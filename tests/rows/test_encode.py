import datetime
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagwise.errors import ColumnError, ReleaseError, TextNumbersWarning, UnseenLevelWarning
from bagwise.rows.encode import Encoder


def encode(columns, **options):
    table = pa.table(columns)
    encoder = Encoder.for_table(table, list(columns), named=list(columns), **options)
    return encoder, encoder.transform(table)


def test_numbers_keep_their_units():
    encoder, X = encode({"a": [1, 2, 4], "b": [0.5, -1.0, 1e6]})
    assert encoder.feature_names == ["a", "b"]
    assert X.tolist() == [[1, 0.5], [2, -1], [4, 1e6]]


def test_the_most_frequent_level_is_dropped():
    encoder, X = encode({"c": ["u", "v", "v", "w"], "t": [True, False, True, True]})
    assert encoder.feature_names == ["c=u", "c=w", "t=false"]
    assert X.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]


def test_rare_levels_share_a_column():
    levels = ["a"] * 4 + ["b"] * 3 + ["c", "d"]
    encoder, X = encode({"c": levels}, max_levels=2)
    assert encoder.feature_names == ["c=b", "c=(other)"]
    assert X.sum(axis=0).tolist() == [3, 2]
    encoder, _ = encode({"c": levels}, max_levels=4)
    assert encoder.feature_names == ["c=b", "c=c", "c=d"]


def test_categories_of_numbers_are_levels():
    encoder, _ = encode({"c": pa.array([3, 1, 1]).dictionary_encode()})
    assert encoder.feature_names == ["c=3"]


def test_missing_values_are_marked():
    encoder, X = encode({"a": [1.0, None, 3.0], "c": ["u", None, "u"]})
    assert encoder.feature_names == ["a", "a=(missing)", "c=(missing)"]
    assert X.tolist() == [[1, 0, 0], [2, 1, 1], [3, 0, 0]]
    with_nan, _ = encode({"a": [1.0, float("nan"), 3.0]})
    assert with_nan.feature_names == ["a", "a=(missing)"]


def test_missing_values_can_be_refused():
    with pytest.raises(ColumnError, match="'a' has missing values"):
        encode({"a": [1.0, None]}, nulls="error")
    with pytest.raises(ColumnError, match="'a' has missing values"):
        encode({"a": [1.0, float("nan")]}, nulls="error")
    encoder, _ = encode({"a": [1.0, 2.0]}, nulls="error")
    with pytest.raises(ColumnError, match="'a' has missing values"):
        encoder.transform(pa.table({"a": [None, 1.0]}))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([datetime.date(2020, 1, 1)] * 2, "moment in time .* age in years"),
        ([datetime.timedelta(1)] * 2, "moment in time"),
        ([[1], [2]], "cannot be encoded"),
        ([b"1", b"2"], "cannot be encoded"),
        ([None, None], "no values"),
        ([float("nan")] * 2, "no values"),
        ([float("inf"), 1.0], "infinite"),
    ],
)
def test_columns_that_cannot_be_features(column, message):
    with pytest.raises(ColumnError, match=message):
        encode({"c": column})


@pytest.mark.parametrize("column", [[1, 2, 3], ["a", "b", "c"], ["a", "b", None]])
def test_columns_that_look_like_ids_need_naming(column):
    table = pa.table({"key": column})
    with pytest.raises(ColumnError, match=r"'key' is different in every row.*--exclude key"):
        Encoder.for_table(table, ["key"])
    Encoder.for_table(table, ["key"], named=["key"])


@pytest.mark.parametrize(
    "column", [[1, 2, 2], [0.1, 0.2, 0.3], [None, None, 3], [True, False, None]]
)
def test_columns_that_are_no_ids(column):
    Encoder.for_table(pa.table({"c": column}), ["c"])


def test_new_levels_fall_to_the_pooled_column_or_are_said():
    pooled, _ = encode({"c": ["a", "a", "a", "b", "b", "c", "d"]}, max_levels=2)
    assert pooled.transform(pa.table({"c": ["zzz"]})).tolist() == [[0, 1]]
    plain, _ = encode({"c": ["a", "a", "b"]})
    with pytest.warns(UnseenLevelWarning, match="1 row"):
        assert plain.transform(pa.table({"c": ["zzz"]})).tolist() == [[0]]


@pytest.mark.parametrize(
    "spelling", ["{:.1f}%", "{:.1f} %", "€{:,.2f}", "{:,.2f}", "{:.0f}/12/2020", "2020-12-{:02.0f}"]
)
def test_numbers_with_marks_that_become_levels_are_said_without_a_cell(spelling):
    cells = [spelling.format(700 * i if "," in spelling else i) for i in range(1, 41)]
    with pytest.warns(TextNumbersWarning, match="column 'c' is text") as said:
        encode({"c": [*cells, *cells, None]})
    assert len(said) == 1
    assert not any(cell in str(said[0].message) for cell in cells)


@pytest.mark.parametrize("spelling", ["7501{:d}", "F{:d}", "{:d}-2b", "10.0.0.{:d}"])
def test_names_and_codes_of_digits_are_levels_without_a_word(spelling):
    cells = [spelling.format(i) for i in range(1, 41)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode({"c": [*cells, *cells]})


def test_a_table_to_predict_on_must_fit():
    encoder, _ = encode({"a": [1.0, 2.0], "c": ["u", "v"]})
    with pytest.raises(ColumnError, match="'c' is not a column"):
        encoder.transform(pa.table({"a": [1.0]}))
    with pytest.raises(ColumnError, match="'a' was numeric in the release"):
        encoder.transform(pa.table({"a": ["1"], "c": ["u"]}))


@pytest.mark.parametrize(
    "columns",
    [
        {"c": ["(missing)", None, "u", "u", "u"]},
        {"a": ["b", "c", "c"], "a=b": [1.0, 2.0, 3.0]},
    ],
)
def test_names_of_features_must_not_collide(columns):
    with pytest.raises(ColumnError, match="would both be called"):
        encode(columns)


def test_options_are_checked():
    with pytest.raises(ColumnError, match="unknown nulls 'whatever'; known are indicator, error"):
        encode({"a": [1.0]}, nulls="whatever")
    with pytest.raises(ColumnError, match="max_levels"):
        encode({"a": [1.0]}, max_levels=0)


def test_a_damaged_recipe_is_refused():
    encoder, _ = encode({"a": [1.0, 2.0]})
    spec = encoder.to_json()
    for broken in (
        {},
        {**spec, "columns": [{"kind": "numeric"}]},
        {**spec, "columns": [{"kind": "?"}]},
    ):
        with pytest.raises(ReleaseError):
            Encoder.from_json(broken)


cells = st.one_of(st.none(), st.sampled_from(["a", "b", "(oth", "missing", "", "é"]))


@given(st.lists(st.tuples(st.floats(-1e9, 1e9) | st.none(), cells), min_size=1, max_size=30))
def test_the_recipe_survives_json_and_every_row_has_one_level(rows):
    numbers, texts = zip(*rows, strict=True)
    columns = {"a": pa.array(numbers, pa.float64()), "c": pa.array(texts, pa.string())}
    if all(value is None for value in numbers) or all(value is None for value in texts):
        return
    encoder, X = encode(columns, max_levels=3)
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert np.array_equal(again.transform(pa.table(columns)), X)
    assert len(set(encoder.feature_names)) == len(encoder.feature_names)
    levels = X[:, [name.startswith("c=") for name in encoder.feature_names]]
    assert np.isin(levels.sum(axis=1), [0, 1]).all()
    assert np.isfinite(X).all()


def test_pandas_categories_and_strings_agree():
    values = ["a", "b", "b", None]
    as_text = encode({"c": pa.array(values)})[1]
    as_category = encode({"c": pa.array(pd.Categorical(values))})[1]
    assert np.array_equal(as_text, as_category)


def test_sparse_and_dense_are_the_same():
    columns = {
        "a": [1.0, None, 0.0, 4.0, 2.0, 2.0],
        "c": ["u", "v", None, "u", "w", "x"],
        "b": [True, False, True, True, False, True],
    }
    table = pa.table(columns)
    encoder = Encoder.for_table(table, ["a", "c", "b"], max_levels=3)
    assert np.array_equal(encoder.transform_sparse(table).toarray(), encoder.transform(table))
    none = Encoder.for_table(table, [])
    assert none.transform_sparse(table).shape == (6, 0)


def test_many_levels_are_mostly_zeros():
    codes = [f"level {i % 400}" for i in range(1000)]
    table = pa.table({"c": codes, "a": np.arange(1000.0)})
    assert Encoder.for_table(table, ["c"], max_levels=1000).is_mostly_zeros
    assert not Encoder.for_table(table, ["c", "a"]).is_mostly_zeros
