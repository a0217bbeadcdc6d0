"""What is published is seen first: flags from features and names, confirmed before anything."""

import stat

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import ColumnError, LabelError, UnconfirmedColumnsError
from bagwise.release.preview import preview_columns
from bagwise.requests.columns import Columns
from bagwise.rows.encode import Encoder
from bagwise.rows.summary import ColumnSummary

pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.TextNumbersWarning")

N = 600
RNG = np.random.default_rng(5)
PERSON = RNG.integers(0, 200, size=N)
AGE = RNG.integers(20, 80, size=N)
LABEL = 30 + 0.2 * AGE + RNG.normal(scale=5, size=N)


def of(column, name="x"):
    """Return what is said of one column."""
    facts = {name: ColumnSummary.of(name, pa.chunked_array([column]))}
    encoder = Encoder.from_summaries(facts, named=[name])
    return preview_columns(facts, encoder, Columns.of("y")).columns[0]


FLAGGED = {
    "Kunde_Nr": (PERSON, "an id with repeated values"),
    "first_name": ([f"name {i}" for i in PERSON], "names of people"),
    "PatientName": ([f"name {i}" for i in PERSON], "names of people"),
    "contact": ([f"p{i}@example.org" for i in PERSON], "other contact details"),
    "Street": ([f"road {i}" for i in PERSON], "other contact details"),
    "what_happened": ([f"they said that {i} was it" for i in PERSON], "free text"),
    "who": ([f"w{i}" for i in PERSON], "few rows for each text"),
    "subject_id": (PERSON, "an id with repeated values"),
    "customerNumber": (PERSON.astype(float), "an id with repeated values"),
    "patient": (PERSON, "an id with repeated values"),
    "seen": ([f"{1 + i % 28}/{1 + i % 12}/2024" for i in PERSON], "dates"),
    "day": (20240101 + PERSON % 28, "dates"),
    "birth_year": (1940 + PERSON % 60, "dates"),
}


@pytest.mark.parametrize("name", FLAGGED)
def test_columns_that_need_a_second_look(name):
    column, words = FLAGGED[name]
    (flag,) = of(pa.array(column), name).flags
    assert words in flag


PLAIN = {
    "age": AGE,
    "income": LABEL,
    "customer_age": AGE,
    "city_name": np.array(["Bonn", "Pune", "Oslo"])[PERSON % 3],
    "name": np.array(["basic", "plus"])[PERSON % 2],
    "diagnosis": [f"code {i}" for i in PERSON % 50],
    "store_id": PERSON % 8,
    "share": [f"{i} %" for i in range(N)],
    "answer": np.array(["I do not agree at all", "I agree with all of it"])[PERSON % 2],
    "large": 100_000 + 1000 * PERSON,
}


@pytest.mark.parametrize("name", PLAIN)
def test_ordinary_columns_have_no_flag(name):
    assert of(pa.array(PLAIN[name]), name).flags == ()


def test_what_is_listed_of_a_column():
    one = of(pa.array(["a", "b", None, "a"]))
    assert (one.kind, one.distinct, one.missing, one.role) == ("text", 2, 0.25, "feature")
    assert one.encoding == "2 yes-or-no columns"
    gaps = of(pa.array([1.5, None, float("nan"), 2.5]))
    assert (gaps.distinct, gaps.missing) == (2, 0.5)
    assert gaps.encoding == "the number itself, and whether it is missing"


def test_facts_of_parts_are_those_of_the_whole():
    """Also where a part has more different values than are counted."""
    values = np.concatenate([np.arange(12_000.0), np.zeros(12_000)])
    for column in (values, values % 7):
        whole = ColumnSummary.of("x", pa.chunked_array([column]))
        parts = [ColumnSummary.of("x", pa.chunked_array([half])) for half in np.split(column, 2)]
        added = parts[0] + parts[1]
        assert (added.distinct, added.low, added.high) == (whole.distinct, whole.low, whole.high)
    assert whole.distinct == 7


@pytest.fixture
def table():
    """Names, repeated ids, dates, a renamed copy of the label and a near-perfect predictor."""
    return pa.table(
        {
            "first_name": FLAGGED["first_name"][0],
            "subject_id": PERSON,
            "seen": FLAGGED["seen"][0],
            "age": AGE,
            "renamed": np.round(-3.7 * LABEL, 2),
            "billed": LABEL + RNG.normal(size=N),
            "y": LABEL,
        }
    )


OPTIONS = {"label": "y", "bounds": (0, 100), "epsilon": 2.0, "bag_size": 20, "strategy": "random"}
TYPED = ["--label", "y", "--bounds", "0", "100", "--epsilon", "2", "--bag-size", "20"]
ASKED = ["first_name", "subject_id", "seen"]


def test_a_script_has_to_confirm(table):
    with pytest.raises(UnconfirmedColumnsError) as refused:
        bw.make_release(table, **OPTIONS)
    assert str(refused.value).startswith("3 columns need a second look")
    assert all(repr(name) in str(refused.value) for name in ASKED)
    assert not any(name in str(refused.value) for name in ("'age'", "renamed", "billed"))
    assert bw.make_release(table, **OPTIONS, confirmed=True).bags.n_rows == N
    assert bw.make_release(table, **OPTIONS, features=[*ASKED, "age"]).bags.n_rows == N
    assert bw.make_release(table, **OPTIONS, exclude=ASKED).bags.n_rows == N
    with pytest.raises(UnconfirmedColumnsError, match="1 column needs"):
        bw.make_release(table, **OPTIONS, exclude=ASKED[1:])


def test_a_model_has_to_be_confirmed_too(table):
    options = {"label": "y", "bounds": (0, 100), "epsilon": 2.0}
    with pytest.raises(UnconfirmedColumnsError):
        bw.release_model(table, **options)
    assert bw.release_model(table, **options, exclude=ASKED).coef.size == 3


def test_nothing_is_drawn_or_charged_before(table, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", dataset="d", epsilon_total=9.0)
    with pytest.raises(UnconfirmedColumnsError):
        bw.make_release(table, **OPTIONS, ledger=ledger)
    assert ledger.totals().charges == 0


def typed(table, tmp_path, *words, to="out"):
    pa.csv.write_csv(table, tmp_path / "t.csv")
    words = ["release", tmp_path / "t.csv", *TYPED, "-o", tmp_path / to, *words]
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_pipe_has_to_confirm(table, tmp_path):
    stopped = typed(table, tmp_path)
    assert stopped.exit_code == 2
    assert not (tmp_path / "out").exists()
    assert all(repr(name) in stopped.stderr for name in ASKED)
    assert "Columns that will be published: 6" in stopped.stdout
    assert typed(table, tmp_path, "--yes").exit_code == 0
    assert typed(table, tmp_path, "--exclude", ",".join(ASKED), to="b").exit_code == 0
    assert typed(table, tmp_path, "--features", "first_name,age", to="c").exit_code == 0


def test_a_dry_run_lists_and_stops(table, tmp_path):
    run = typed(table, tmp_path, "--dry-run")
    assert (run.exit_code, (tmp_path / "out").exists()) == (0, False)
    assert all(f"Look twice: {name!r}" in run.stdout for name in ASKED)
    assert '"name": "first_name"' in typed(table, tmp_path, "--dry-run", "--json").stdout


def test_what_depends_on_labels_is_in_the_notes_and_nowhere_else(table, tmp_path):
    kept = ["--exclude", ",".join(ASKED)]
    without = typed(table, tmp_path, *kept)
    seen = without.stdout + without.stderr
    assert "add --notes FILE" in seen
    noted = typed(table, tmp_path, *kept, "--notes", tmp_path / "notes", to="b")
    assert (without.exit_code, noted.exit_code) == (0, 0)
    for text in (seen, noted.stdout + noted.stderr):
        assert "predicts the label" not in text
    notes = (tmp_path / "notes").read_text()
    assert "'renamed' alone predicts the label" in notes
    assert "'billed' alone predicts the label" in notes
    assert "'age'" not in notes
    assert stat.S_IMODE((tmp_path / "notes").stat().st_mode) == 0o600


def test_notes_are_not_written_into_what_is_published(table, tmp_path):
    run = typed(table, tmp_path, "--yes", "--notes", tmp_path / "out" / "notes")
    assert run.exit_code == 2
    assert "which will be published" in run.stderr


def test_all_that_is_wrong_is_said_at_once(table):
    wrong = table.drop_columns(ASKED).append_column("row", pa.array([f"r{i}" for i in range(N)]))
    wrong = wrong.append_column("when", pa.array(AGE, pa.timestamp("s")))
    labels = wrong["y"].to_pylist()
    labels[3] = None
    wrong = wrong.set_column(wrong.schema.get_field_index("y"), "y", pa.array(labels))
    with pytest.raises(LabelError) as refused:
        bw.make_release(wrong, **OPTIONS, id="age")
    said = str(refused.value)
    assert said.startswith("4 things are wrong with the table")
    for part in ("missing in 1 row", "id 'age' is", "'row' is different", "'when' is of type"):
        assert part in said


def test_copies_and_flagged_columns_are_said_with_what_is_wrong(table):
    labels = table["y"].to_pylist()
    labels[3] = None
    place = table.schema.get_field_index("y")
    wrong = table.append_column("renamed_y", table["y"]).set_column(place, "y", pa.array(labels))
    with pytest.raises(LabelError) as refused:
        bw.make_release(wrong, **OPTIONS)
    said = str(refused.value)
    for part in ("missing in 1 row", "'renamed_y' equals the label", *map(repr, ASKED)):
        assert part in said
    with pytest.raises(LabelError) as refused:
        bw.make_release(wrong.drop_columns(["renamed_y"]), **OPTIONS, features=[*ASKED, "age"])
    assert "second look" not in str(refused.value)
    with pytest.raises(LabelError) as refused:
        bw.make_release(wrong, **OPTIONS, confirmed=True)
    assert "second look" not in str(refused.value)


def test_a_few_labels_are_compared_with_nothing_while_others_are_missing(table):
    some = [one if row < 49 else None for row, one in enumerate(table["y"].to_pylist())]
    place = table.schema.get_field_index("y")
    wrong = table.append_column("renamed_y", table["y"]).set_column(place, "y", pa.array(some))
    with pytest.raises(LabelError) as refused:
        bw.make_release(wrong, **OPTIONS)
    assert "equals" not in str(refused.value)


def test_classes_that_differ_in_case_are_told_of():
    table = pa.table({"x": np.arange(40.0), "y": ["Yes ", "no"] * 20})
    with pytest.raises(LabelError, match="only in case or blanks") as refused:
        bw.make_release(table, label="y", classes=["yes", "no"], epsilon=1.0, bag_size=5)
    assert "Yes" not in str(refused.value)
    with pytest.raises(LabelError) as refused:
        bw.make_release(table, label="y", classes=["yes", "nope"], epsilon=1.0, bag_size=5)
    assert "in case" not in str(refused.value)


def test_errors_of_one_column_are_as_before():
    with pytest.raises(ColumnError, match=r"^column 'k' is different"):
        bw.make_release(
            pa.table({"k": np.arange(40), "x": np.arange(40.0) % 7, "y": np.arange(40.0) % 9}),
            **OPTIONS,
        )


def test_few_first_and_last_names_are_names(table):
    few = pa.array(["Ada", "Emmy", "Sofja"] * (len(table) // 3) + ["Ada"] * (len(table) % 3))
    named = pa.table({"First Name": few, "name": few, "age": table["age"], "y": table["y"]})
    with pytest.raises(UnconfirmedColumnsError, match="'First Name' looks like names") as refused:
        bw.make_release(named, **OPTIONS)
    assert "'name'" not in str(refused.value)
