import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bagwise.errors import BoundsError, ColumnError, LabelError, TableError
from bagwise.rows.columns import select_features
from bagwise.rows.labels import check_bounds, label_vector
from bagwise.rows.table import read_table, write_table

SECRET = "918273645"
DATA = {"a": [1, 2, 3], "b": ["x", None, "z"], "y": [0.5, 1.5, 2.5]}


def as_parquet(tmp_path):
    pq.write_table(pa.table(DATA), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def as_csv(tmp_path):
    pa.csv.write_csv(pa.table(DATA), tmp_path / "t.csv")
    return str(tmp_path / "t.csv")


def as_csv_gz(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress((tmp_path / as_csv(tmp_path)).read_bytes()))
    return path


def as_arrow_file(tmp_path):
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.table(DATA).schema) as writer:
        writer.write_table(pa.table(DATA))
    return tmp_path / "t.arrow"


def as_arrow_stream(tmp_path):
    with pa.ipc.new_stream(tmp_path / "s.arrow", pa.table(DATA).schema) as writer:
        writer.write_table(pa.table(DATA))
    return tmp_path / "s.arrow"


SOURCES = {
    "pandas": lambda _: pd.DataFrame(DATA),
    "polars": lambda _: pl.DataFrame(DATA),
    "lazy polars": lambda _: pl.LazyFrame(DATA),
    "pyarrow": lambda _: pa.table(DATA),
    "parquet": as_parquet,
    "csv": as_csv,
    "csv.gz": as_csv_gz,
    "arrow file": as_arrow_file,
    "arrow stream": as_arrow_stream,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_same_table(source, tmp_path):
    table = read_table(source(tmp_path))
    assert table.to_pydict() == DATA
    assert table.schema.metadata is None
    assert all(field.metadata is None for field in table.schema)


def test_a_pandas_index_is_dropped_unless_asked_for(tmp_path):
    frame = pd.DataFrame({**DATA, "a": [5, 1, 3]}).set_index("a")
    assert read_table(frame).column_names == ["b", "y"]
    assert read_table(frame, index_names=["a"]).column_names == ["b", "y", "a"]
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").column_names == ["b", "y"]
    assert read_table(tmp_path / "t.parquet", index_names=["a"]).column_names == ["b", "y", "a"]


def test_unreadable_files_are_named(tmp_path):
    cut = as_parquet(tmp_path)
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"t\.parquet cannot be read as Parquet"):
        read_table(cut)
    arrow = as_arrow_file(tmp_path)
    arrow.write_bytes(arrow.read_bytes()[:40])
    with pytest.raises(TableError, match="cannot be read as Arrow"):
        read_table(arrow)
    with pytest.raises(TableError, match="does not exist"):
        read_table(tmp_path / "nowhere.csv")
    (tmp_path / "t.xyz").write_text("x")
    with pytest.raises(TableError, match="no known ending"):
        read_table(tmp_path / "t.xyz")
    with pytest.raises(TableError, match="cannot read a int as a table"):
        read_table(3)


def test_csv_errors_name_the_place_and_not_the_value(tmp_path):
    ragged = tmp_path / "ragged.csv"
    ragged.write_text(f"a,y\n1,2\n1,2,{SECRET}\n")
    with pytest.raises(TableError, match="line 3 has 3 cells where the header has 2") as caught:
        read_table(ragged)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    late = tmp_path / "late.csv"
    numbers = "\n".join(f"{i},1.5e3" for i in range(400_000))
    late.write_text(f"a,y\n{numbers}\n1,no{SECRET}\n")
    with pytest.raises(LabelError, match="first text is in row 400001") as caught:
        label_vector(read_table(late), "y")
    assert SECRET not in str(caught.value)
    garbage = tmp_path / "garbage.csv"
    garbage.write_bytes(b"a,y\n1,\xff\xfe" + SECRET.encode() + b"\n")
    with pytest.raises((TableError, LabelError)) as caught:
        label_vector(read_table(garbage), "y")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_empty_cells_are_missing_and_namibia_is_not(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('country,size,y\nNA,1,1\n,NA,2\n"",,3\nDE,4,4\n')
    read = read_table(path).to_pydict()
    assert read["country"] == ["NA", None, None, "DE"]
    assert read["size"] == [1, None, None, 4]


def test_mixed_objects_are_refused_without_quoting_them():
    frame = pd.DataFrame({"a": [1, 2], "y": pd.Series([1.0, f"no{SECRET}"], dtype=object)})
    with pytest.raises(TableError, match="column 'y' mixes types") as caught:
        read_table(frame)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_empty_and_doubled_columns(tmp_path):
    with pytest.raises(TableError, match="empty"):
        read_table(pa.table({"a": pa.array([], pa.int64())}))
    with pytest.raises(TableError, match="empty"):
        read_table(pd.DataFrame())
    doubled = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(ColumnError, match="a column more than once"):
        read_table(doubled)
    with pytest.raises(ColumnError, match="a column more than once"):
        read_table(pa.Table.from_arrays([[1], [2]], names=["a", "a"]))
    (tmp_path / "d.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ColumnError, match="'a' more than once"):
        read_table(tmp_path / "d.csv")


WIDE = [
    ["city", "2019", "2020", "2021"],
    ["a", "b", "y", "2019", "1999"],
    ["400.5", "401", "401.5", "402", "402.75"],
    ["0", "1"],
    ["y", "inf", "nan"],
]
ROWS = [
    ["3.1", "918273645"],
    ["a", "b", "c", "d", "3.5"],
    ["12.5", "red", "918273645"],
    ["7", "3", "red"],
    ["2019", "2020", "2022"],
    ["nan", "-3,5"],
]


@pytest.mark.parametrize("names", WIDE)
def test_wide_tables_have_numbers_for_names(names, tmp_path):
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert read_table(tmp_path / "t.csv").column_names == names


@pytest.mark.parametrize("names", ROWS)
def test_a_row_of_data_is_no_header(names, tmp_path):
    content = ",".join(f'"{name}"' for name in names) + "\n" + ",".join("1" for _ in names) + "\n"
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match="first line of the file seems to be data") as caught:
        read_table(tmp_path / "t.csv")
    assert not any(f"'{name}'" in str(caught.value) for name in names)
    with pytest.raises(TableError, match="seem to be data"):
        read_table(pd.DataFrame([[1] * len(names)], columns=names))


def test_a_header_that_has_the_name_asked_for_is_one(tmp_path):
    (tmp_path / "t.csv").write_text("7.5,3.2,y\n1,2,3\n")
    assert read_table(tmp_path / "t.csv", index_names=["y"]).column_names == ["7.5", "3.2", "y"]
    with pytest.raises(TableError, match="seems to be data"):
        read_table(tmp_path / "t.csv", index_names=["z", "3.2"])


def test_frames_without_names_of_columns_are_numbered():
    assert read_table(pd.DataFrame([[1.5, 2.5]])).column_names == ["0", "1"]
    with pytest.raises(ColumnError, match=r"'y' is not a column .* not listed") as caught:
        label_vector(read_table(pd.DataFrame([[1.5, 2.5]])), "y")
    assert "'0'" not in str(caught.value)
    with pytest.raises(ColumnError, match="a column more than once"):
        read_table(pd.DataFrame([[1, 2, 3]], columns=["a", 1, "1"]), index_names=["a"])


def test_names_that_are_cells_are_not_listed():
    for names in (["2019", "city"], ["12 EUR", "red"], ["2024-01-05", "red"]):
        table = pa.table({name: ["a"] for name in names})
        with pytest.raises(ColumnError, match="not listed here") as caught:
            select_features(table, reserved=[], features=["redd"])
        assert "'red'" not in str(caught.value)
    with pytest.raises(ColumnError, match="Did you mean 'red'"):
        select_features(pa.table({"red": ["a"]}), reserved=[], features=["redd"])
    with pytest.raises(ColumnError, match="not listed here"):
        select_features(pa.table({"red": ["a", "red"]}), reserved=[], features=["redd"])


def test_selecting_features():
    table = pa.table({"id": [1], "a": [1], "b": [1], "y": [1]})
    assert select_features(table, reserved=["y", "id"]) == ["a", "b"]
    assert select_features(table, reserved=["y"], exclude=["a"]) == ["id", "b"]
    assert select_features(table, reserved=["y"], features=["b", "a"]) == ["a", "b"]
    with pytest.raises(ColumnError, match="Did you mean 'a'"):
        select_features(table, reserved=["y"], features=["aa"])
    with pytest.raises(ColumnError, match="'q' is not a column"):
        select_features(table, reserved=["y"], exclude=["q"])
    with pytest.raises(ColumnError, match="cannot be a feature"):
        select_features(table, reserved=["y"], features=["a", "y"])
    with pytest.raises(ColumnError, match="both in features and in exclude"):
        select_features(table, reserved=["y"], features=["a"], exclude=["a"])
    with pytest.raises(ColumnError, match="features names 'a' more than once"):
        select_features(table, reserved=["y"], features=["a", "a"])
    with pytest.raises(ColumnError, match="there are no feature columns"):
        select_features(table, reserved=["y"], exclude=["a", "b", "id"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, None, 2.0], "missing in 1 row.* first being row 2"),
        ([1.0, 2.0, float("nan")], "NaN or infinite in 1 row.* row 3"),
        ([float("inf"), 2.0, 1.0], "NaN or infinite in 1 row.* row 1"),
        (["1", "2", SECRET], r"is of type string, not a number.*\(--classes\)"),
    ],
)
def test_bad_labels_are_located(values, message):
    with pytest.raises(LabelError, match=message) as caught:
        label_vector(pa.table({"y": values}), "y")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "values", [[True, False], pa.array([1, 0], pa.int8()), pa.array([1, 0], pa.decimal128(5, 2))]
)
def test_numbers_of_every_kind_are_labels(values):
    assert label_vector(pa.table({"y": values}), "y").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, 1), "lo < hi"),
        ((2, 1), "lo < hi"),
        ((0, float("inf")), "finite"),
        ((float("nan"), 1), "finite"),
        ((-1.7e308, 1.7e308), "finite"),
        ((1, 2, 3), "two numbers"),
        (("a", "b"), "two numbers"),
    ],
)
def test_impossible_bounds(bounds, message):
    with pytest.raises(BoundsError, match=message):
        check_bounds(bounds)


def test_possible_bounds():
    assert check_bounds(None) is None
    assert check_bounds([0, np.int64(5)]) == (0.0, 5.0)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_tables_are_written_by_their_ending(tmp_path, ending):
    write_table(pa.table({"p": [1.5, 2.5]}), tmp_path / f"p.{ending}")
    assert read_table(tmp_path / f"p.{ending}").to_pydict() == {"p": [1.5, 2.5]}
    with pytest.raises(TableError, match=r"\.parquet or \.csv"):
        write_table(pa.table({"p": [1.5]}), tmp_path / "p.txt")
