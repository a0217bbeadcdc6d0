"""Rows without a label: refused, or left out and counted where somebody says so."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import LabelError, ReleaseError, StrategyError
from bagwise.files.records import to_plain
from bagwise.privacy.circumstances import MissingLabels
from bagwise.rows.opening import Memory, SpilledRows, leave_out_missing, open_rows
from tools.settings import filed

N, MISSING = 400, 57
RNG = np.random.default_rng(0)
GONE = np.sort(RNG.permutation(N)[:MISSING])
KEPT = np.setdiff1d(np.arange(N), GONE)
Y = RNG.normal(size=N)
OPEN = {"label": "y", "bag_size": 10, "strategy": "random", "not_private": True, "id": "key"}
PRIVATE = {"label": "y", "bounds": (-5, 5), "epsilon": 1.0, "id": "key"}


def table(labels=Y, cell=None):
    held = list(labels)
    for row in GONE:
        held[row] = cell
    rng = np.random.default_rng(1)
    return pa.table({"key": np.arange(N), "x": rng.normal(size=N), "y": held})


def declared(release):
    return to_plain(release.provenance).get("missing_labels")


def check(release, tmp_path):
    """The rows with a label are there, all of them, and the certificate tells of the others."""
    release.save(tmp_path / "out")
    again = bw.load_release(tmp_path / "out")
    again.verify()
    assert sorted(again.instances["key"].to_pylist()) == KEPT.tolist()
    assert declared(again) == MISSING
    assert f"there were {MISSING}. That a label is missing is taken for public" in " ".join(
        again.certificate.remarks
    )
    bare = dataclasses.replace(again.certificate, circumstances=())
    dataclasses.replace(again, certificate=bare).verify()  # as the first versions wrote it
    other = dataclasses.replace(again.certificate, circumstances=(MissingLabels(MISSING + 1),))
    with pytest.raises(ReleaseError, match="does not mention what the manifest tells"):
        dataclasses.replace(again, certificate=other).verify()
    return again


@pytest.mark.parametrize("cell", [None, float("nan")])
@pytest.mark.parametrize("memory_limit", [None, "100KB"])
def test_rows_without_a_label_are_left_out_and_declared(cell, memory_limit, tmp_path):
    pq.write_table(table(cell=cell), tmp_path / "t.parquet", row_group_size=30)
    how = {"memory_limit": memory_limit, "spill": tmp_path, "drop_missing_labels": True}
    release = bw.make_release(tmp_path / "t.parquet", **filed(**OPEN, **how))
    again = check(release, tmp_path)
    # Each bag's label is the mean of the labels of its own rows: none has slipped.
    of_rows = Y[again.instances["key"].to_numpy()]
    means = np.bincount(again.bags.index, of_rows) / again.bags.sizes
    np.testing.assert_allclose(np.asarray(again.labels), means)


def test_a_private_release_may_leave_rows_out(tmp_path):
    check(bw.make_release(table(), **filed(**PRIVATE, drop_missing_labels=True)), tmp_path)


@pytest.mark.parametrize("memory_limit", [None, "100KB"])
def test_classes_may_be_missing_or_empty(memory_limit, tmp_path):
    names = np.where(Y > 0, "yes", "no").tolist()
    csv.write_csv(table(names, cell=""), tmp_path / "t.csv")
    options = {**OPEN, "classes": ["no", "yes"], "drop_missing_labels": True}
    how = {"memory_limit": memory_limit, "spill": tmp_path}
    check(bw.make_release(tmp_path / "t.csv", **filed(**options, **how)), tmp_path)


def test_an_empty_text_that_is_a_class_is_no_missing_label():
    names = np.where(Y > 0, "yes", "no").tolist()
    options = {**OPEN, "classes": ["no", "yes", ""], "drop_missing_labels": True}
    release = bw.make_release(table(names, cell=""), **filed(**options))
    assert (release.bags.n_rows, declared(release)) == (N, 0)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_labels_in_other_layouts_are_missing_too(kind):
    names = pa.chunked_array([pa.array(["yes", None, "", "no"]).cast(kind)])
    rows, missing = leave_out_missing(
        open_rows(pa.table({"x": range(4), "y": names})), "y", ["no", "yes"]
    )
    assert (rows.column("x").to_pylist(), missing) == ([0, 3], 2)


def test_rows_on_disk_are_left_out_without_another_file(tmp_path):
    pq.write_table(table(), tmp_path / "t.parquet")
    memory = Memory.of("100KB", tmp_path)
    rows = open_rows(tmp_path / "t.parquet", memory=memory, label="y")
    before = sorted(tmp_path.rglob("*"))
    left, missing = leave_out_missing(rows, "y", None)
    assert isinstance(left, SpilledRows)
    assert (left.num_rows, missing) == (N - MISSING, MISSING)
    assert [key for part in left.scan(["key"]) for key in part["key"].to_pylist()] == KEPT.tolist()
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_declared_where_nobody_asked_and_zero_where_none_is_missing():
    whole = pa.table({"key": np.arange(N), "x": Y, "y": Y[::-1].copy()})
    assert declared(bw.make_release(whole, **filed(**OPEN))) is None
    release = bw.make_release(whole, **filed(**OPEN, drop_missing_labels=True))
    assert declared(release) == 0


def test_missing_labels_are_refused_unless_asked_and_the_message_names_the_option(tmp_path):
    with pytest.raises(LabelError, match=r"missing in 57 row.*--drop-missing-labels"):
        bw.make_release(table(), **filed(**OPEN))
    nothing = table().set_column(2, "y", pa.nulls(N, pa.float64()))
    with pytest.raises(LabelError, match="missing in every row"):
        bw.make_release(nothing, **filed(**OPEN, drop_missing_labels=True))
    infinite = table(np.where(np.arange(N) == KEPT[0], np.inf, Y))
    with pytest.raises(LabelError, match="infinite in 1 row"):
        bw.make_release(infinite, **filed(**OPEN, drop_missing_labels=True))
    with pytest.raises(StrategyError, match="not on Spark: drop_missing_labels"):
        bw.make_release(tmp_path, **filed(**PRIVATE, drop_missing_labels=True, engine="spark"))


def test_a_declaration_cannot_be_edited(tmp_path):
    bw.make_release(table(), **filed(**OPEN, drop_missing_labels=True)).save(tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    for value in ("-1", '"57 of them"', "null"):
        held = path.read_text()
        path.write_text(held.replace(f'"missing_labels": {MISSING}', f'"missing_labels": {value}'))
        assert path.read_text() != held
        with pytest.raises(ReleaseError):
            bw.load_release(tmp_path / "out")
        path.write_text(held)


def test_a_ledger_tells_requests_with_and_without_the_option_apart(tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=9.0)
    whole = pa.table({"key": np.arange(N), "x": Y[::-1].copy(), "y": Y})
    for how in ({}, {"drop_missing_labels": True}):
        bw.make_release(whole, **filed(**PRIVATE, **how, ledger=ledger))
    plain, dropping = ledger.charges()
    assert plain.table == dropping.table
    assert plain.request != dropping.request


def test_the_command_line_drops_counts_and_verifies(tmp_path):
    csv.write_csv(table(), tmp_path / "t.csv")
    asked = ["release", tmp_path / "t.csv", "--label", "y", "--id", "key", "--bounds", -5, 5,
             "--epsilon", 1]  # fmt: skip

    def bagwise(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    refused = bagwise(*asked, "-o", tmp_path / "out")
    assert refused.exit_code == 2
    assert "--drop-missing-labels" in " ".join(refused.output.split())
    assert not (tmp_path / "out").exists()
    made = bagwise(*asked, "--drop-missing-labels", "-o", tmp_path / "out")
    assert made.exit_code == 0, made.output
    checked = bagwise("verify", tmp_path / "out")
    assert checked.exit_code == 0, checked.output
    assert f"there were {MISSING}" in " ".join(made.output.split())
    assert f"whether {MISSING} rows had no label" in " ".join(checked.output.split())
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["provenance"]["missing_labels"] == MISSING
