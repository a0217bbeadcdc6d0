"""What is told of text files, and what is refused because it can be read in two ways."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagwise.errors import TableError
from bagwise.rows.sources.csv_files import Csv
from bagwise.rows.sources.dialect import Dialect, Told, find_dialect
from bagwise.rows.table import read_table

SECRET = "918273645"


def found(text, *, whole=True, **told):
    content = text if isinstance(text, bytes) else text.encode()
    return find_dialect(content, Told(**told), name="t.csv", whole=whole)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2.5\n", ",."),
        ("a;b\n1;2,5\n", ";,"),
        ("a;b\n1;2.5\n", ";."),
        ("a\tb\n1,5\t2\n", "\t,"),
        ("a|b\n1|2\n", "|."),
        ("only\n1\n2\n", ",."),
        ('a,b\n"1,5","2,25"\n', ",,"),
        ('a,b\n"x;y;z",2\n"u;v;w",3\n', ",."),
        ("a;b\nx,y;2\nz;3\n", ";."),  # commas in text, and not in every row
        ("a;b\n1,5;x\n0,25;y\n,5;z\n", ";,"),
        ("a;b\n1,2e3;x\n", ";,"),
        ("a,b\n1,2,3\n", ",."),  # ragged: the reader tells the line
    ],
)
def test_delimiter_and_decimal_mark(text, expected):
    dialect = found(text)
    assert dialect.delimiter + dialect.decimal == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_that_are_told(encoding):
    assert found("größe;b\n1,5;ü\n".encode(encoding)).delimiter == ";"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a,b;c,d\n{SECRET},2;3,4\n", "can be a comma or a semicolon"),
        (f"a;b,c\n{SECRET};2,1,1\n1,3\n", "can be a comma or a semicolon"),
        (f"a;b\n1,5;{SECRET}.5\n", "may be a decimal mark or a thousands separator"),
        (f"a;b\n1,234;{SECRET}\n", "may be a decimal mark or a thousands separator"),
        (f"a;b\n1.234,56;{SECRET}\n", "column 1 has numbers with thousands separators"),
        (f"a;b\né;{SECRET}\n".encode("latin-1"), "not text in UTF-8.*encoding=latin-1"),
        (b"a,b\n1,\x00\x00\x00" + SECRET.encode(), "holds zero bytes"),
        (b"PAR1" + SECRET.encode(), "is a Parquet file"),
        (b"PK\x03\x04" + SECRET.encode(), "a zip archive or a spreadsheet"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(text, message):
    with pytest.raises(TableError, match=message) as caught:
        found(text)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_what_is_said_is_taken():
    assert found("a,b;c,d\n1,2;3,4\n", delimiter=";").delimiter == ";"
    assert found("a;b\n1,234;5\n", decimal=",").decimal == ","
    assert found("a;b\n1,5;2.5\n", decimal=".").decimal == "."
    assert found("a;b\né;1\n".encode("cp1252"), encoding="cp1252").encoding == "cp1252"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"delimiter": "::"}, "one character"),
        ({"decimal": "'"}, "must be '.' or ','"),
        ({"encoding": "latin1000"}, "unknown encoding 'latin1000'.*Did you mean 'latin-1'"),
    ],
)
def test_what_is_said_is_checked(told, message):
    with pytest.raises(TableError, match=message):
        Told(**told)


def test_the_cut_end_of_the_beginning_is_left_out():
    assert found("a;b\n1,5;2\n1", whole=False) == Dialect("utf-8", ";", ",")
    assert found("a;b\n1,5;ü\n".encode()[:-2], whole=False).delimiter == ";"  # half a letter


def test_cells_over_several_lines(tmp_path):
    rows = "".join(f'"a\nb{i}",{i}\n' for i in range(1000))
    (tmp_path / "t.csv").write_text(f"x,y\n{rows}")
    assert found(f"x,y\n{rows}").quoted_lines
    assert read_table(tmp_path / "t.csv")["x"].to_pylist()[7] == "a\nb7"


def test_a_decimal_mark_that_comes_late(tmp_path):
    whole = "".join(f"{i};{i}\n" for i in range(60_000))
    (tmp_path / "t.csv").write_text(f"x;y\n{whole}1,5;{SECRET}\n")
    with pytest.raises(TableError, match="column 1 has numbers with another decimal") as caught:
        read_table(tmp_path / "t.csv")
    assert SECRET not in str(caught.value)
    assert read_table(Csv(tmp_path / "t.csv", decimal=","))["x"][-1].as_py() == 1.5
    assert read_table(Csv(tmp_path / "t.csv", decimal="."))["x"][-1].as_py() == "1,5"


def test_letters_that_come_late(tmp_path):
    plain = "".join(f"{i},x\n" for i in range(80_000))
    (tmp_path / "t.csv").write_bytes(f"y,x\n{plain}{SECRET},é\n".encode("latin-1"))
    with pytest.raises(TableError, match="not text in UTF-8") as caught:
        read_table(tmp_path / "t.csv")
    assert SECRET not in str(caught.value)
    assert read_table(Csv(tmp_path / "t.csv", encoding="latin-1"))["x"][-1].as_py() == "é"
    with pytest.raises(TableError, match="not text in ASCII") as caught:
        read_table(Csv(tmp_path / "t.csv", encoding="ascii"))
    assert caught.value.__context__ is None


def test_details_belong_to_text(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match="is Parquet, which has no delimiter"):
        Csv(tmp_path / "t.parquet", delimiter=";")
    (tmp_path / "t.csv").write_bytes(b" \n")
    with pytest.raises(TableError, match="is empty"):
        read_table(tmp_path / "t.csv")


CELLS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.decimals(-1000, 1000, places=2, allow_nan=False).map(str),
    st.text("abc xyz", min_size=1, max_size=5).filter(str.strip),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=30),
    st.sampled_from([(",", "."), (";", "."), (";", ","), ("\t", ","), ("|", ".")]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_a_dialect_is_found_or_refused_and_never_another(rows, marks, encoding):
    delimiter, decimal = marks
    spelled = [[cell.replace(".", decimal) for cell in row] for row in rows]
    text = f"a{delimiter}b\n" + "".join(delimiter.join(row) + "\n" for row in spelled)
    try:
        dialect = found(text.encode(encoding))
    except TableError:
        return
    assert dialect.delimiter == delimiter
    columns = zip(*spelled, strict=True)
    marked = any(
        all(re.fullmatch(r"-?\d+([.,]\d+)?", cell) for cell in column)
        and any(decimal in cell for cell in column)
        for column in columns
    )
    assert dialect.decimal == decimal or not marked
