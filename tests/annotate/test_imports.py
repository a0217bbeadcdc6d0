"""A list with a mistake is refused as a whole, by line, and without a word of what it holds."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import AnnotationProject
from bagwise.annotate import files
from bagwise.annotate.labels import LabelKind, read_number
from bagwise.errors import BagwiseError, ColumnError, LabelError, StrategyError, TableError
from bagwise.rows.sources.dialect import Told
from tests.annotate.conftest import answered

SECRET = "918273.125"


@pytest.fixture
def ids(started):
    return [task.id for task in started.store.tasks()]


def write(path, *lines, header="row_id,rent", encoding="utf-8"):
    path.write_text("\n".join([header, *lines]) + "\n", encoding=encoding)
    return path


def refused(project, path, error=LabelError):
    with pytest.raises(error) as caught:
        project.import_labels(path)
    assert SECRET not in str(caught.value)
    assert project.labels().num_rows == 0
    return str(caught.value)


def test_parts_in_any_order_and_lists_with_other_columns(started, ids, tmp_path):
    first = write(tmp_path / "a.csv", f"{ids[5]},700", f"{ids[2]},650.5", f"{ids[0]},")
    found = started.import_labels(first)
    assert (found.new, found.known, found.open) == (2, 0, 1)
    second = write(
        tmp_path / "b.csv", f'"a, b",{ids[0]}, 640 ', f",{ids[5]},7e2", header="note,row_id,rent"
    )
    found = started.import_labels(second)
    assert (found.new, found.known, found.open) == (1, 1, 0)
    kept = dict(zip(*started.labels().to_pydict().values(), strict=True))
    assert kept == {ids[5]: 700.0, ids[2]: 650.5, ids[0]: 640.0}


def test_every_mistake_is_named_by_its_line(started, ids, flats, tmp_path):
    unasked = next(key for key in started.places if key not in ids)
    text = refused(
        started,
        write(
            tmp_path / "bad.csv",
            f"{ids[0]},500",
            f"nobody,{SECRET}",
            f"{ids[1]},much{SECRET}",
            f"{ids[2]},{SECRET}",
            "",
            f"{ids[0]},501",
            f"{unasked},500",
            ",500",
            f"{ids[3]},1e999",
            f'{ids[4]},"1,200"',
            f"{ids[5]},x",
        ),
    )
    for line, words in {
        3: "no row of the project has this id",
        5: "the label is not between 0 and 3000",
        7: "the row has another label in line 2",
        8: "this row was not asked for",
        9: "there is a label and no id",
        10: "the label is not a finite number",
        11: "the label is a thousand or a fraction",
    }.items():
        assert f"line {line}: {words}" in text
    assert text.count("the label is not a number") == 1
    assert "lines 4, 12: the label is not a number" in text


def test_lines_are_counted_where_a_cell_has_several(started, ids, tmp_path):
    path = write(
        tmp_path / "bad.csv",
        f'"two\nlines",{ids[0]},500',
        f"one,{ids[1]},x",
        header="note,row_id,rent",
    )
    assert "line 4: the label is not a number" in refused(started, path)


def test_another_label_than_before_needs_a_word(started, ids, tmp_path):
    started.import_labels(write(tmp_path / "a.csv", f"{ids[0]},500"))
    other = write(tmp_path / "b.csv", f"{ids[1]},600", f"{ids[0]},{SECRET}".replace(SECRET, "501"))
    with pytest.raises(LabelError, match="line 3: the row has another label from before"):
        started.import_labels(other)
    assert started.labels().num_rows == 1
    assert started.import_labels(other, correct=True).new == 2
    assert started.labels().to_pydict()["rent"] == [600.0, 501.0]


def test_files_from_spreadsheets_and_parquet(started, ids, tmp_path):
    excel = write(tmp_path / "e.csv", f"{ids[0]};500,5", header="row_id;rent", encoding="utf-8-sig")
    started.import_labels(excel)
    wide = write(tmp_path / "w.csv", f"{ids[1]}\t510", header="row_id\trent", encoding="utf-16")
    started.import_labels(wide)
    table = pa.table({"row_id": ids[2:4], "rent": [520.0, None]})
    pq.write_table(table, tmp_path / "p.parquet")
    assert started.import_labels(tmp_path / "p.parquet").open == 1
    assert started.import_labels(answered(started).to_pandas()).new == 37
    assert started.labels().to_pydict()["rent"][:3] == [500.5, 510.0, 520.0]


@pytest.mark.parametrize(
    ("header", "lines", "error"),
    [
        ("id,rent", ["a,1"], ColumnError),
        ("row_id,rents", ["a,1"], ColumnError),
        ("row_id,rent,rent", ["a,1,2"], ColumnError),
        ("row_id,rent", ["a,1,2"], TableError),
        ("row_id,rent", ["a"], TableError),
        ("row_id,rent", ['"a,1'], TableError),
    ],
)
def test_files_that_are_no_such_list(started, tmp_path, header, lines, error):
    refused(started, write(tmp_path / "x.csv", *lines, header=header), error)


def test_empty_missing_and_damaged_files(started, tmp_path):
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "bytes.csv").write_bytes(b"row_id,rent\n\xff\xfe,1\n")
    for name in ("empty.csv", "bytes.csv", "nothing.csv", "nothing.parquet"):
        refused(started, tmp_path / name, BagwiseError)


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({}, ["1", "-3.5", "1e3", " 7 "], ["", "x", "inf", "nan", "1,5", "1_000", "0x10"]),
        ({"bounds": (0, 5)}, ["0", "5"], ["-0.1", "5.1"]),
        ({"family": "poisson"}, ["0", "12"], ["-1", "1.5"]),
        ({"family": "bernoulli"}, ["0", "1"], ["2", "0.5", "yes"]),
        ({"family": "gamma"}, ["0.1"], ["0", "-1"]),
        ({"classes": ["cat", "dog"]}, ["cat", "Cat"], ["cow", "1"]),
        ({"classes": ["a", "A", "b"]}, ["a", "A"], ["c"]),
    ],
)
def test_what_a_label_can_be(options, good, bad):
    kind = LabelKind.of("y", **options)
    for text in good:
        kind.read(text.strip())
    for text in bad:
        with pytest.raises(LabelError):
            kind.read(text)


def test_kinds_of_labels_that_cannot_be():
    for options in (
        {"family": "poisson", "bounds": (-1, 5)},
        {"classes": ["a", "b"], "bounds": (0, 1)},
        {"classes": ["a", "b"], "family": "bernoulli"},
    ):
        with pytest.raises(StrategyError):
            LabelKind.of("y", **options)
    for classes in (["a"], ["a", "a"], ["a", " b"]):
        with pytest.raises(LabelError):
            LabelKind.of("y", classes=classes)


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("$1,234", ".", 1234.0),
        ("1 234", ".", 1234.0),
        ("1\u202f234,50 €", ",", 1234.5),
        ("-£1,234.5", ".", -1234.5),
        ("1'234'567", ".", 1234567.0),
        ("1.234.567", ",", 1234567.0),
        ("7e2", ".", 700.0),
    ],
)
def test_numbers_as_people_write_them(text, decimal, number):
    assert read_number(text, decimal) == number


@pytest.mark.parametrize(
    "text", ["1,200", "12 34", "1,23", "1,2345", "$", "1_000", "5 m", "", "--5"]
)
def test_numbers_that_nobody_should_guess(text):
    with pytest.raises(LabelError):
        read_number(text)


def test_a_thousand_where_the_decimal_mark_is_said(started, ids, tmp_path):
    path = write(tmp_path / "a.csv", f'{ids[0]},"1,200"')
    with pytest.raises(BagwiseError):
        started.import_labels(path)
    started.import_labels(path, told=Told(decimal="."))
    assert started.labels().to_pydict()["rent"] == [1200.0]


def test_label_studio_there_and_back(started, ids, tmp_path):
    tasks = json.loads(files.list_paths(started.directory, 1)[2].read_text())
    assert [task["data"]["row_id"] for task in tasks] == ids
    assert set(tasks[0]["data"]["row"]) == {"area", "note"}
    interface = (started.directory / files.INTERFACE).read_text()
    assert '<Number name="rent" toName="row"/>' in interface

    def answer(value, name="rent", **more):
        result = [{"from_name": name, "type": "number", "value": {"number": value}}]
        return {"result": result, **more}

    tasks[0]["annotations"] = [answer(500)]
    tasks[1]["annotations"] = [answer(600, was_cancelled=True)]
    tasks[2]["annotations"] = [answer(1, name="mood"), answer(700.5)]
    full = tmp_path / "export.json"
    full.write_text(json.dumps(tasks))
    imported = started.import_labels(full)
    assert (imported.new, imported.open) == (2, 38)
    short = tmp_path / "short.json"
    short.write_text(json.dumps([{"row_id": ids[3], "rent": 650, "annotator": 1}]))
    started.import_labels(short)
    assert started.labels().to_pydict()["rent"] == [500.0, 700.5, 650.0]
    tasks[4]["annotations"] = [answer(SECRET), answer(400)]
    full.write_text(json.dumps(tasks))
    with pytest.raises(LabelError, match="task 5: the label is not between 0 and 3000"):
        started.import_labels(full)
    for text in ("{", '{"a": 1}', "[1]", "[" * 10_000):
        full.write_text(text)
        with pytest.raises(TableError):
            started.import_labels(full)


def test_choices_of_label_studio(flats, tmp_path):
    project = AnnotationProject.start(
        flats, tmp_path / "p", label="kind", budget=9, classes=["a<b", 'c"'], exclude=["note"]
    )
    assert '<Choice value="a&lt;b"/>' in (project.directory / files.INTERFACE).read_text()
    key = project.to_label()["row_id"][0].as_py()
    result = [{"from_name": "kind", "type": "choices", "value": {"choices": ["a<b"]}}]
    path = tmp_path / "export.json"
    path.write_text(json.dumps([{"data": {"row_id": key}, "annotations": [{"result": result}]}]))
    project.import_labels(path)
    assert project.labels().to_pydict()["kind"] == ["a<b"]


def test_a_class_may_be_spelt_with_other_capitals_if_no_other_class_is():
    assert LabelKind.of("y", classes=["Yes", "No"]).read("yes") == "Yes"
    assert LabelKind.of("y", classes=["a", "A", "b"]).read("A") == "A"
    with pytest.raises(LabelError, match="none of"):
        LabelKind.of("y", classes=["ab", "AB"]).read("Ab")
