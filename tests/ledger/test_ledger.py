"""Charged before noise is drawn, refused beyond the budget, and edited by nobody."""

import json
import math
import os
import sqlite3
import stat

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import BagwiseError, BudgetError, ColumnError, LedgerError
from bagwise.ledger.ledger import course_cells
from bagwise.ledger.store import key_path
from bagwise.rng import NoiseSource, SecureNoise, SimulatedNoise
from bagwise.verifier import find_certified, spent_at_worst, uncharged
from tools.settings import filed

LABELS = 3.0 + np.arange(200) % 7 + 0.1234


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    x, row = rng.normal(size=200), np.arange(200)
    return pa.table({"x": x, "person": row // 2, "row": row, "y": LABELS})


@pytest.fixture
def ledger(tmp_path):
    return bw.Ledger.create(
        tmp_path / "visits.ledger", epsilon_total=2.0, delta_total=1e-5, row_id="row"
    )


REQUEST = {"label": "y", "bounds": (0, 20), "features": "x", "bag_size": 10, "strategy": "random"}


def release(rows, ledger, **asked):
    return bw.make_release(rows, **filed(**{**REQUEST, "epsilon": 0.5, **asked}, ledger=ledger))


def file_away(made, ledger, path):
    """Do what the command line does after a release."""
    made.save(path)
    found, certificate = bw.verify(path)
    ledger.remember(path, id=certificate.mark.id, digest=found.digest)


# Charging.


def test_a_certificate_names_its_charge(rows, ledger):
    made = release(rows, ledger)
    (charge,) = ledger.charges()
    assert (made.certificate.mark.id, made.certificate.mark.dataset) == (charge.id, "visits")
    assert charge.mechanisms == made.certificate.events
    assert (charge.verb, charge.label, charge.chosen_by) == ("release", "y", "all")
    assert "visits" in made.certificate.text()


def test_without_a_ledger_a_certificate_has_a_date_and_an_id_and_no_data_set(rows):
    first, second = (release(rows, None).certificate.mark for _ in range(2))
    assert first.id != second.id
    assert first.dataset is None
    first.check()


def test_what_goes_beyond_the_budget_is_refused_and_what_fits_is_named(rows, ledger):
    release(rows, ledger, epsilon=1.5)
    with pytest.raises(BudgetError, match=r"1\.5 of that epsilon is spent.*epsilon 0\.5 without"):
        release(rows, ledger, epsilon=0.6)
    assert len(ledger.charges()) == 1  # a refusal costs nothing
    release(rows, ledger, epsilon=0.5)
    with pytest.raises(BudgetError, match="still fit: nothing"):
        release(rows, ledger, epsilon=0.1)
    assert ledger.totals().filtered == pytest.approx(2.0, rel=1e-3)


def test_what_is_said_to_fit_with_gaussian_noise_fits(rows, ledger):
    asked = {"delta": 1e-6, "noise": "gaussian", "label_kind": "mean"}
    with pytest.warns(bw.BagwiseWarning):
        release(rows, ledger, epsilon=1.0, **asked)
    fits = ledger.totals(delta=1e-6).fits_gaussian
    with pytest.raises(BudgetError), pytest.warns(bw.BagwiseWarning):
        release(rows, ledger, epsilon=1.05 * fits, **asked)
    with pytest.warns(bw.BagwiseWarning):
        release(rows, ledger, epsilon=fits, **asked)


def test_a_ledger_without_a_delta_takes_nothing_that_needs_one(rows, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "pure", epsilon_total=1.0)
    asked = {"epsilon": 0.5, "delta": 1e-6, "noise": "gaussian"}
    with (
        pytest.raises(BudgetError, match=r"more than can be told.*epsilon 1 without a delta\. No"),
        pytest.warns(bw.BagwiseWarning),
    ):
        release(rows, str(ledger.path), **asked)
    release(rows, str(ledger.path), epsilon=0.5)
    assert len(ledger.charges()) == 1


def test_totals_say_both_what_holds_anyhow_and_what_holds_in_advance(rows, ledger):
    for _ in range(3):
        release(rows, ledger.drawing_anew(), epsilon=0.3)
    found = ledger.totals()
    assert found.charges == 3
    assert 0 < found.fixed <= found.filtered <= 0.9 + 1e-9


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
@pytest.mark.parametrize(
    "asked",
    [
        {"label_kind": "mean"},
        {"label_kind": "mean", "noise": "gaussian", "delta": 1e-6},
        {"label_kind": "pick"},
        {"label_kind": "pick", "noise": "gaussian", "delta": 1e-6},
        {"strategy": "sorted", "scores": "model"},
        {"strategy": "sorted", "scores": "noisy-labels", "delta": 1e-6, "noise": "gaussian"},
        {"strategy": "sorted", "label_kind": "pick", "scores": "noisy-labels", "delta": 1e-6,
         "noise": "gaussian"},
        {"strategy": "sorted", "label_kind": "pick", "scores": "model"},
        {"tighten": "range", "centre": "none"},
        {"tighten": "range", "centre": "model", "strategy": "kmeans"},
        {"tighten": "range", "centre": "model", "delta": 1e-6, "noise": "gaussian"},
        {"tighten": "range", "centre": "model", "strategy": "auto", "bag_size": "auto"},
        {"tighten": "range", "centre": "model", "strategy": "sorted", "scores": "model"},
        {"tighten": "range", "strategy": "sorted", "scores": "noisy-labels"},
        {"tighten": "range", "label_kind": "pick"},
        {"tighten": "range", "label_kind": "pick", "strategy": "sorted", "scores": "model"},
        {"classes": ["3", "4"], "bounds": None},
        {"classes": ["3", "4"], "bounds": None, "label_kind": "pick"},
        "model",
        "bounds",
        "evaluate",
    ],
    ids=str,
)  # fmt: skip
def test_nothing_is_drawn_before_it_is_charged(rows, ledger, monkeypatch, asked):
    """But for the order of rows, which hides nothing of a label."""
    ordering, drawn = [0], []
    order, words = NoiseSource.permutation, SecureNoise.words

    def permutation(self, count):
        ordering[0] += 1
        try:
            return order(self, count)
        finally:
            ordering[0] -= 1

    def watched(self, count):
        if not ordering[0]:
            drawn.append(len(ledger.charges()))
        return words(self, count)

    model = bw.release_model(rows, label="y", bounds=(0, 20), features="x", epsilon=1.0)
    monkeypatch.setattr(NoiseSource, "permutation", permutation)
    monkeypatch.setattr(SecureNoise, "words", watched)
    if asked == "model":
        bw.release_model(rows, label="y", bounds=(0, 20), features="x", epsilon=0.5, ledger=ledger)
    elif asked == "bounds":
        many = pa.table({"y": np.tile(LABELS, 60), "x": np.arange(12_000) % 7})
        bw.release_model(many, label="y", bounds="auto", epsilon=0.5, ledger=ledger)
    elif asked == "evaluate":
        bw.evaluate_rows_privately(model, rows, bounds=(0, 20), epsilon=0.5, ledger=ledger)
    else:
        if "classes" in asked:
            named = pa.array(np.where(np.arange(200) % 3, "3", "4").tolist())
            rows = rows.set_column(rows.column_names.index("y"), "y", named)
        made = release(rows, ledger, **asked)
        assert ledger.act(made.certificate.mark.id, made.certificate.events)
    assert set(drawn) == {1}


def test_a_run_that_fails_afterwards_stays_charged(rows, ledger, monkeypatch):
    monkeypatch.setattr(SecureNoise, "index_below", None)  # picks are drawn by it
    with pytest.raises(BagwiseError), pytest.warns(bw.BagwiseWarning):
        release(rows, ledger, label_kind="pick")
    assert len(ledger.charges()) == 1


def test_what_has_no_price_cannot_be_charged(rows, ledger):
    for asked in (
        {"epsilon": None, "not_private": True},
        {"not_private": True, "noise_source": SimulatedNoise(0)},
    ):
        with pytest.raises(BudgetError, match="NOT PRIVATE request cannot be charged"):
            release(rows, ledger, **asked)
    assert not ledger.charges()


def test_a_charge_says_what_it_was_for_and_who_gets_it(rows, ledger):
    release(rows, ledger.noting(purpose="rent model", recipient="City lab"), epsilon=0.2)
    release(rows, ledger, epsilon=0.3)
    first, second = ledger.charges()
    assert (first.purpose, first.recipient) == ("rent model", "City lab")
    assert (second.purpose, second.recipient) == (None, None)
    assert "purpose" not in ledger.to_json()["charges"][1]  # as in ledgers that are older
    cells = course_cells(ledger.course(), ledger.totals())
    assert [cells[0][i] for i in (4, 5)] == ["epsilon", "total"]
    assert [row[4] for row in cells[1:]] == ["0.2", "0.3"]
    assert "rent model" in cells[1]
    with pytest.raises(LedgerError, match="printable"):
        ledger.noting(purpose="two\nlines")


def test_files_that_were_not_charged_are_counted_as_if_of_the_same_labels(rows, ledger, tmp_path):
    release(rows, ledger, epsilon=0.5)
    release(rows, None, epsilon=0.25).save(tmp_path / "other")
    strangers = uncharged(find_certified([tmp_path / "other"]), ledger)
    assert [file.path for file in strangers] == [tmp_path / "other"]
    assert spent_at_worst(strangers, ledger) == pytest.approx(0.75, rel=1e-3)
    assert spent_at_worst([], ledger) == ledger.totals().filtered
    release(rows, None, epsilon=None, not_private=True).save(tmp_path / "open")
    open_one = uncharged(find_certified([tmp_path / "open"]), ledger)
    assert math.isinf(spent_at_worst(open_one, ledger))


def test_bounds_that_are_found_are_charged_with_the_release(rows, ledger):
    many = pa.concat_tables([rows] * 60)
    made = release(many, ledger, bounds="auto", epsilon=1.0, bag_size=50)
    (charge,) = ledger.charges()
    assert charge.mechanisms[0] == made.certificate.events[0]
    assert charge.mechanisms[0].hides == "bounds"
    assert ledger.totals().filtered <= 1.0 + 1e-6
    assert ledger.act(charge.id, made.certificate.events)


# Units and parts.


def test_a_request_must_protect_the_unit_of_the_ledger(rows, tmp_path, ledger):
    people = bw.Ledger.create(tmp_path / "people", epsilon_total=1.0, unit="person")
    with pytest.raises(
        LedgerError, match=r"protects unit 'person', but the request protects each row"
    ):
        release(rows, people)
    with pytest.raises(LedgerError, match="protects each row by itself"):
        release(rows, ledger, unit="person")
    release(rows, people, unit="person", tighten="none", epsilon=0.4)
    # Noise depends on how people are spread over bags, and is settled before the look for a range.
    release(rows, people, unit="person", tighten="range", epsilon=0.6)
    with pytest.raises(ColumnError, match="not both"):
        bw.Ledger.create(tmp_path / "both", epsilon_total=1.0, unit="person", row_id="row")


def test_parts_that_share_nobody_are_charged_side_by_side(rows, ledger):
    public = ledger.part("public")
    release(rows.slice(0, 100), public, epsilon=1.5)
    release(rows.slice(100), public, epsilon=1.5)
    assert ledger.totals().filtered == pytest.approx(1.5, rel=1e-3)
    with pytest.raises(BudgetError):  # one row was in the first part
        release(rows.slice(99, 50), public, epsilon=1.5)
    with pytest.raises(BudgetError):
        release(rows, ledger, epsilon=1.0)
    release(rows, ledger, epsilon=0.5)
    with pytest.raises(BudgetError):  # everybody has paid for the last one
        release(rows.slice(0, 90), public, epsilon=0.2)


def test_parts_of_people_are_told_by_the_people(rows, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0, unit="person").part("public")
    release(rows.slice(0, 99), ledger, epsilon=1.0, unit="person")
    with pytest.raises(BudgetError):  # row 99 is of the person of row 98
        release(rows.slice(99), ledger, epsilon=1.0, unit="person")
    release(rows.slice(100), ledger, epsilon=1.0, unit="person")


def test_rows_are_charged_for_all_unless_somebody_says_that_they_were_chosen(rows, ledger):
    release(rows.slice(0, 100), ledger, epsilon=1.5)
    with pytest.raises(BudgetError):
        release(rows.slice(100), ledger, epsilon=1.5)


def test_rows_that_were_chosen_by_their_labels_are_refused(rows, ledger):
    with pytest.raises(BudgetError, match="chosen by their labels"):
        release(rows.slice(0, 100), ledger.part("label"))
    with pytest.raises(LedgerError, match="unknown way to choose rows"):
        ledger.part("luck")


def test_ids_that_prove_nothing_are_refused(rows, tmp_path, ledger):
    public, at = ledger.part("public"), rows.column_names.index("row")
    twice = rows.set_column(at, "row", pa.array(np.arange(200) // 2))
    with pytest.raises(ColumnError, match="repeated"):
        release(twice, public)
    real = rows.set_column(at, "row", pa.array(np.arange(200.0)))
    with pytest.raises(ColumnError, match="neither whole numbers nor text"):
        release(real, public)
    release(rows.slice(0, 100), public)
    text = rows.set_column(at, "row", rows["row"].cast(pa.string()))
    with pytest.raises(LedgerError, match="text in another"):
        release(text.slice(100), public)
    release(rows.set_column(at, "row", rows["row"].cast(pa.int32())).slice(100), public)
    nothing = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0).part("public")
    with pytest.raises(LedgerError, match="neither a unit nor a row id"):
        release(rows, nothing)


# The same request again.


def test_an_identical_request_is_answered_with_what_was_paid_for(rows, ledger, tmp_path):
    made = release(rows, ledger)
    file_away(made, ledger, tmp_path / "out")
    again = release(rows, ledger)
    assert again.certificate == made.certificate
    assert np.array_equal(again.labels, made.labels)
    assert len(ledger.charges()) == 1
    release(rows, ledger.drawing_anew())
    assert len(ledger.charges()) == 2


def test_another_request_table_or_file_is_drawn_and_charged(rows, ledger, tmp_path):
    file_away(release(rows, ledger, epsilon=0.1), ledger, tmp_path / "out")
    changed = LABELS.copy()
    changed[7] += 1e-9
    other = rows.set_column(rows.column_names.index("y"), "y", pa.array(changed))
    release(other, ledger, epsilon=0.1)
    release(rows, ledger, epsilon=0.1, bag_size=11)
    assert len(ledger.charges()) == 3
    release(rows, ledger, epsilon=0.1)
    assert len(ledger.charges()) == 3
    release(rows, ledger, epsilon=0.2).save(tmp_path / "out", force=True)
    release(rows, ledger, epsilon=0.1)  # its files were replaced
    assert len(ledger.charges()) == 5


def test_models_and_evaluations_are_answered_again_too(rows, ledger, tmp_path):
    many = pa.concat_tables([rows] * 60)

    def ask():
        model = bw.release_model(
            many, label="y", bounds=(0, 20), features="x", epsilon=0.4, ledger=ledger
        )
        scores = bw.evaluate_rows_privately(model, rows, bounds=(0, 20), epsilon=0.4, ledger=ledger)
        return {"model": model, "scores": scores}

    first = ask()
    for name, made in first.items():
        file_away(made, ledger, tmp_path / f"{name}.json")
    second = ask()
    assert len(ledger.charges()) == 2
    assert second["model"].digest == first["model"].digest
    assert second["scores"].mean_loss == first["scores"].mean_loss


def test_requests_are_known_by_all_of_their_parts():
    from bagwise.ledger.account import _plain

    plain = _plain({"a": [1, 2.5, None], "clip": math.inf, "strategy": bw.SuperBags(half=True)})
    assert plain == _plain(
        {"a": (1, 2.5, None), "clip": math.inf, "strategy": bw.SuperBags(half=True)}
    )
    assert plain != _plain({**plain, "strategy": bw.SuperBags()})
    assert json.dumps(plain, allow_nan=False)
    assert _plain(object()) != _plain(object())  # nobody knows what they are


def test_files_of_another_ledger_are_not_remembered(rows, ledger, tmp_path):
    made = release(rows, None)
    with pytest.raises(LedgerError, match="was not charged"):
        file_away(made, ledger, tmp_path / "out")


# The file.


def test_neither_ledger_nor_export_holds_a_label_or_an_id_or_the_key(rows, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "people", epsilon_total=1.0, unit="person")
    named = pa.array([f"somebody{i // 2}" for i in range(200)])
    rows = rows.set_column(rows.column_names.index("person"), "person", named)
    release(rows, ledger.part("public"), unit="person")
    (tmp_path / "out.json").write_text(json.dumps(ledger.to_json()))
    key = bytes.fromhex(key_path(ledger.path).read_text().strip())
    for path in (ledger.path, tmp_path / "out.json"):
        content = path.read_bytes()
        assert b"somebody" not in content
        assert key not in content
        assert key.hex().encode() not in content
        for label in set(LABELS.tolist()):
            assert repr(label).encode() not in content
            assert np.float64(label).tobytes() not in content
    for path in (ledger.path, key_path(ledger.path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_fingerprints_of_another_key_are_others(rows, tmp_path):
    first, second = (
        bw.Ledger.create(tmp_path / name, epsilon_total=1.0, row_id="row").part("public")
        for name in "ab"
    )
    for ledger in (first, second):
        release(rows, ledger)
    (one,), (other,) = first.charges(), second.charges()
    assert {one.table, one.request, one.subset}.isdisjoint(
        {other.table, other.request, other.subset}
    )


def test_a_key_that_others_may_read_is_refused(ledger):
    key = key_path(ledger.path)
    key.chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        bw.Ledger.open(ledger.path)
    key.chmod(0o600)
    key.write_text("ab\n")
    with pytest.raises(LedgerError, match="not the key"):
        bw.Ledger.open(ledger.path)
    key.unlink()
    with pytest.raises(LedgerError, match="ledger's key"):
        bw.Ledger.open(ledger.path)


def test_a_key_of_another_user_is_not_taken_for_a_new_ledger(ledger, tmp_path, monkeypatch):
    ledger.path.unlink()
    bw.Ledger.create(ledger.path, epsilon_total=1.0)  # with the key that was there: our own
    ledger.path.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: key_path(ledger.path).stat().st_uid + 1)
    with pytest.raises(LedgerError, match="belongs to another user"):
        bw.Ledger.create(ledger.path, epsilon_total=1.0)
    assert not ledger.path.exists()


def edit(path, *commands):
    """Edit a ledger as somebody would who leaves no other trace: its triggers are put back."""
    with sqlite3.connect(path) as file:
        triggers = file.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            file.execute(f"DROP TRIGGER {name}")
        for command in commands:
            file.execute(command)
        for _, command in triggers:
            file.execute(command)
    file.close()


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["DELETE FROM entries WHERE number = 2"], "entry 2 is missing"),
        (["DELETE FROM entries WHERE number = 3"], "last entries were removed"),
        (
            ["UPDATE entries SET body = replace(body, 'release', 'evaluate') WHERE number = 2"],
            "was changed",
        ),
        (["UPDATE entries SET seal = digest WHERE number = 1"], "was changed"),
        (
            [
                "DELETE FROM entries WHERE number = 3",
                "UPDATE head SET number = 2, digest = (SELECT digest FROM entries WHERE number=2)",
            ],
            "last entries were removed",
        ),
        (["UPDATE terms SET body = replace(body, '2.0', '9.0')"], "terms are not those"),
        (["UPDATE entries SET body = 'no' WHERE number = 1"], "not readable"),
        (["DELETE FROM terms"], "one set of terms"),
        (["DROP TABLE head"], "other tables"),
    ],
)
def test_an_edited_ledger_is_noticed_and_not_charged(rows, ledger, commands, said):
    for epsilon in (0.3, 0.4, 0.5):
        release(rows, ledger, epsilon=epsilon)
    edit(ledger.path, *commands)
    with pytest.raises(LedgerError, match=said):
        ledger.charges()
    with pytest.raises(LedgerError, match=said):
        release(rows, ledger, epsilon=0.1)


IGNORING = [
    "CREATE TRIGGER a BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER b BEFORE UPDATE ON head BEGIN SELECT RAISE(IGNORE); END",
]
VIEWS = [
    command
    for table, change in [("entries", "INSERT"), ("head", "UPDATE")]
    for command in (
        f"ALTER TABLE {table} RENAME TO old_{table}",
        f"CREATE VIEW {table} AS SELECT * FROM old_{table}",  # noqa: S608
        f"CREATE TRIGGER on_{table} INSTEAD OF {change} ON {table} BEGIN SELECT 1; END",
    )
]


def change_schema(path, commands):
    with sqlite3.connect(path) as file:
        if commands is VIEWS:  # whose tables would take their triggers along
            commands = ["DROP TRIGGER entries_stay", "DROP TRIGGER entries_keep", *commands]
        for command in commands:
            file.execute(command)
    file.close()


@pytest.mark.parametrize(
    "commands",
    [
        IGNORING,
        VIEWS,
        ["CREATE TABLE more (a)"],
        ["CREATE INDEX more ON entries (digest COLLATE NOCASE)"],
        ["ALTER TABLE entries ADD COLUMN more TEXT AS (body)"],
        ["DROP TRIGGER entries_stay"],
        ["DROP TABLE places", "CREATE TABLE places (id, path, digest, seal)"],
        [
            "PRAGMA writable_schema = 1",
            "UPDATE sqlite_master SET sql = sql || ' ' WHERE name='head'",
        ],
    ],
)
def test_a_ledger_with_another_schema_is_refused_before_anything_is_drawn(
    rows, tmp_path, monkeypatch, commands
):
    """Once, six releases of 0.9 passed a budget of 1, and the ledger said that 0 was spent."""
    ledger = bw.Ledger.create(tmp_path / "visits.ledger", epsilon_total=1.0)
    change_schema(ledger.path, commands)
    monkeypatch.setattr(SecureNoise, "words", None)  # whoever draws fails
    for _ in range(6):
        with pytest.raises(LedgerError, match="other tables, views or triggers"):
            release(rows, ledger, epsilon=0.9)
    with pytest.raises(LedgerError, match="other tables, views or triggers"):
        bw.Ledger.open(ledger.path)


@pytest.mark.parametrize("commands", [IGNORING, IGNORING[:1], IGNORING[1:], VIEWS])
def test_an_entry_that_is_not_kept_is_noticed_before_anything_is_drawn(
    rows, ledger, monkeypatch, commands
):
    """The second defence, with the first one out of the way."""
    change_schema(ledger.path, commands)
    monkeypatch.setattr("bagwise.ledger.store._schema", lambda _file: [])
    monkeypatch.setattr("bagwise.ledger.store._expected_schema", list)
    with pytest.raises(LedgerError, match="edited or damaged"):
        release(rows, ledger)


def test_entries_are_neither_removed_nor_changed_by_mistake(rows, ledger):
    release(rows, ledger)
    file = sqlite3.connect(ledger.path)
    for command in ("DELETE FROM entries", "UPDATE entries SET body = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            file.execute(command)
    file.close()


def test_a_part_that_was_edited_is_noticed(rows, ledger):
    public = ledger.part("public")
    release(rows.slice(0, 50), public)
    edit(ledger.path, "UPDATE subsets SET members = x'0000000000000000'")
    with pytest.raises(LedgerError, match="not the one that was charged"):
        release(rows.slice(50), public)
    edit_again = sqlite3.connect(ledger.path)
    with edit_again:
        edit_again.execute("DELETE FROM subsets")
    edit_again.close()
    with pytest.raises(LedgerError, match="missing"):
        ledger.totals()


def test_a_file_that_is_no_ledger_is_refused(tmp_path, ledger):
    with pytest.raises(LedgerError, match="bagwise ledger init"):
        bw.Ledger.open(tmp_path / "nowhere")
    ledger.path.write_bytes(os.urandom(5000))
    with pytest.raises(LedgerError, match="edited or damaged"):
        bw.Ledger.open(ledger.path)


def test_a_name_that_is_taken_and_a_budget_that_is_none_are_refused(tmp_path, ledger):
    before = ledger.path.read_bytes()
    with pytest.raises(BagwiseError, match="already exists, and a ledger is never replaced"):
        bw.Ledger.create(ledger.path, epsilon_total=1.0)
    assert ledger.path.read_bytes() == before
    (tmp_path / "interrupted").touch()
    with pytest.raises(LedgerError, match="interrupted"):
        bw.Ledger.open(tmp_path / "interrupted")
    for epsilon, delta in [(0.0, 0.0), (1.0, 1.0), (float("nan"), 0.0)]:
        with pytest.raises(BudgetError):
            bw.Ledger.create(tmp_path / "l", epsilon_total=epsilon, delta_total=delta)
    with pytest.raises(LedgerError, match="printable"):
        bw.Ledger.create(tmp_path / "l", epsilon_total=1.0, dataset="two\nlines")


def test_an_export_has_all_that_the_chain_is_made_of(rows, ledger, tmp_path):
    """Whoever has the export can recompute the digest; here without any code of ours."""
    import hashlib

    for epsilon in (0.1, 0.2):
        release(rows, ledger, epsilon=epsilon)
    content = ledger.to_json()

    def spelled(values):
        return (json.dumps(values, indent=2) + "\n").encode("ascii")

    digest = hashlib.sha256(spelled(content["terms"])).hexdigest()
    for charge in content["charges"]:
        digest = hashlib.sha256(digest.encode() + b"\n" + spelled(charge)).hexdigest()
    assert digest == content["digest"]


def test_bytes_that_were_changed_are_noticed_or_change_nothing(rows, ledger):
    for epsilon in (0.3, 0.4):
        release(rows, ledger, epsilon=epsilon)
    content, state = ledger.path.read_bytes(), ledger.store.read()
    rng, noticed = np.random.default_rng(2), 0
    for _ in range(150):
        changed = bytearray(content)
        for place in rng.integers(0, len(content), size=3):
            changed[place] ^= int(rng.integers(1, 256))
        ledger.path.write_bytes(bytes(changed))
        try:
            assert ledger.store.read() == state
        except LedgerError:
            noticed += 1
    assert noticed > 5
