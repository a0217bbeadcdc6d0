"""The verbs about ledgers, and the options of those that spend."""

import dataclasses
import json
import math
import shutil
import sqlite3

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.verifier import add_up, find_certified


def run(*arguments, **environment):
    return CliRunner().invoke(app, [str(a) for a in arguments], env=environment)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with a table and a ledger."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    x = rng.normal(size=6000)
    y = np.clip(5 + x + rng.normal(size=x.size), 0, 10)
    csv.write_csv(pa.table({"x": x, "row": np.arange(x.size), "y": y}), "t.csv")
    done = run(
        "ledger", "init", "l", "--epsilon-total", 2, "--delta-total", 1e-6, "--row-id", "row"
    )
    assert done.exit_code == 0, done.output
    return tmp_path


RELEASE = ("release", "t.csv", "--label", "y", "--bounds", 0, 10, "--features", "x",
           "--bag-size", 30, "--strategy", "random")  # fmt: skip


def test_the_whole_way(work):
    spend = {"BAGWISE_LEDGER": "l"}
    asked = (*RELEASE, "--epsilon", 0.5)
    made = run(*asked, "-o", "out", **spend)
    assert "Charged to l" in made.output
    assert "What is left: bagwise ledger show l" in " ".join(made.output.split())
    again = run(*asked, "-o", "copy", **spend)
    assert "nothing was drawn" in again.output
    model = ("release-model", "t.csv", "--label", "y", "--bounds", 0, 10, "--features", "x")
    assert "Charged" in run(*model, "--epsilon", 0.4, "-o", "m.json", **spend).output
    scored = run("evaluate", "m.json", "t.csv", "--epsilon", 0.3, "--bounds", 0, 10, "-o", "e.json",
                 **spend)  # fmt: skip
    assert "Charged" in scored.output, scored.output
    shown = json.loads(run("ledger", "show", "l", "--json").output)
    verbs = [charge["verb"] for charge in shown["charges"]]
    assert verbs == ["release", "release-model", "evaluate"]
    assert shown["totals"]["filtered"] == pytest.approx(1.2, rel=1e-2)
    text = run("ledger", "show", "l").output
    assert "epsilon" in text
    assert "digest" in text
    checked = run("ledger", "check", ".", "--json", **spend)
    assert checked.exit_code == 0, checked.output
    (total,) = json.loads(checked.output)["totals"]
    assert total["filtered"] == pytest.approx(1.2, rel=1e-2)
    assert len(total["paths"]) == 3  # the copy counts once
    refused = run(*asked[:-1], 1.5, "-o", "more", **spend)
    assert refused.exit_code == 2
    assert "What would still fit: epsilon 0.8" in refused.output
    assert not (work / "more").exists()
    assert run("ledger", "check", "out", "--max-epsilon", 0.4, **spend).exit_code == 3


def test_what_is_not_charged_is_found(work):
    assert run(*RELEASE, "--epsilon", 0.5, "-o", "out").exit_code == 0
    found = run("ledger", "check", "out", "--ledger", "l")
    assert found.exit_code == 3
    assert "not charged to l" in found.output
    assert run("ledger", "check", "out").exit_code == 0


def test_a_ledger_that_drops_what_is_written_makes_no_release(work):
    with sqlite3.connect("l") as file:
        for table, change in [("entries", "INSERT"), ("head", "UPDATE")]:
            file.execute(
                f"CREATE TRIGGER on_{table} BEFORE {change} ON {table} "
                "BEGIN SELECT RAISE(IGNORE); END"
            )
    file.close()
    before = set(work.iterdir())
    refused = run(*RELEASE, "--epsilon", 0.9, "-o", "out", "--ledger", "l")
    assert refused.exit_code == 2
    assert "l was edited or damaged" in refused.output
    assert set(work.iterdir()) == before


def test_a_key_that_is_used_again_is_told(work):
    (work / "l").unlink()
    assert "is reused" in run("ledger", "init", "l", "--epsilon-total", 2).output
    made = run("ledger", "init", "new", "--epsilon-total", 2, "--json")
    assert json.loads(made.output)["key_reused"] is False


def test_parts_and_drawing_anew_need_a_ledger(work):
    for option in (("--chosen-by", "public"), ("--anew",)):
        refused = run(*RELEASE, "--epsilon", 0.5, "-o", "out", *option)
        assert refused.exit_code == 2
        assert "--ledger" in refused.output


def test_parts_that_share_nobody_fit_side_by_side(work):
    rows = csv.read_csv("t.csv")
    csv.write_csv(rows.slice(0, 3000), "a.csv")
    csv.write_csv(rows.slice(3000), "b.csv")
    for name in "ab":
        part = ("release", f"{name}.csv", *RELEASE[2:], "--epsilon", 2, "-o", name)
        done = run(*part, "--ledger", "l", "--chosen-by", "public")
        assert done.exit_code == 0, done.output
    assert run(*RELEASE, "--epsilon", 0.1, "-o", "c", "--ledger", "l").exit_code == 2


def test_what_is_not_private_is_refused_where_a_ledger_is_set(work):
    refused = run(*RELEASE, "--not-private", "-o", "out", BAGWISE_LEDGER="l")
    assert refused.exit_code == 2
    assert "BAGWISE_LEDGER" in refused.output


def test_exact_scores_need_no_ledger(work):
    made = run("release-model", "t.csv", "--label", "y", "--features", "x", "--bounds", 0, 10,
               "--epsilon", 1, "-o", "m.json")  # fmt: skip
    assert made.exit_code == 0
    assert run("evaluate", "m.json", "t.csv", BAGWISE_LEDGER="l").exit_code == 0
    assert not bw.Ledger.open("l").charges()


def test_files_without_a_promise_have_no_total(work):
    run(*RELEASE, "--not-private", "-o", "open")
    run("fit", "open", "-o", "m.json")
    (work / "note.json").write_text('{"schema": "of somebody else"}')
    (total,) = add_up(find_certified([work]))
    assert math.isinf(total.filtered)
    assert [path.name for path in total.paths] == ["open"]  # a fitted model costs nothing
    assert "without limit" in run("ledger", "check", ".").output
    assert run("ledger", "check", ".", "--max-epsilon", 9).exit_code == 3
    assert "Nothing with a certificate" in run("ledger", "check", "m.json").output


@pytest.mark.parametrize("limit", ["nan", "-1", "inf", "-inf"])
def test_a_limit_that_nothing_can_be_held_to_is_refused(work, limit):
    """Not one of the comparisons with NaN is true, so that everything passed."""
    run(*RELEASE, "--epsilon", 1, "-o", "out")
    refused = run("ledger", "check", "out", f"--max-epsilon={limit}")
    assert refused.exit_code == 2
    assert f"finite number of at least 0, got {limit}" in refused.output.replace(".0", "")
    refused = run("ledger", "check", "out", f"--delta={limit}")
    assert (refused.exit_code, "delta" in refused.output) == (2, True)


def test_one_charge_pays_for_one_draw_and_its_copies(work):
    """Another draw that borrows the id of a charge is counted, and is not charged for."""
    run(*RELEASE, "--epsilon", 1, "-o", "out", "--ledger", "l")
    run(*RELEASE, "--epsilon", 1, "-o", "other")
    shutil.copytree("out", "copy")
    honest = ("ledger", "check", "out", "copy")
    assert run(*honest, "--ledger", "l").exit_code == 0
    assert run(*honest, "--max-epsilon", 1).exit_code == 0
    mine, theirs = bw.Release.load("out"), bw.Release.load("other")
    borrowed = dataclasses.replace(theirs.certificate, mark=mine.certificate.mark)
    dataclasses.replace(theirs, certificate=borrowed).save("forged")
    both = ("ledger", "check", "out", "forged")
    assert run(*both, "--max-epsilon", 1).exit_code == 3
    refused = run(*both, "--ledger", "l")
    assert refused.exit_code == 3
    assert "forged" in refused.output


def test_messages_about_ledgers_hold_no_label(work):
    run(*RELEASE, "--epsilon", 1.5, "-o", "out", "--ledger", "l")
    refused = run(*RELEASE, "--epsilon", 1.5, "-o", "out2", "--ledger", "l").output
    labels = csv.read_csv("t.csv")["y"].to_pylist()
    assert not any(repr(label) in refused for label in labels if 0 < label < 10)
