"""Files that hold labels or a key: nobody but their owner may read them, wherever they are put."""

import os
import sqlite3
import stat
from contextlib import closing

import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.files.spill import SpillDirectory
from bagwise.ledger.store import key_path


@pytest.fixture(params=[0o022, 0o000], autouse=True)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


def modes(*paths):
    return {stat.S_IMODE(path.stat().st_mode) for path in paths}


def test_labels_of_an_annotation_project(tmp_path, umask):
    table = pa.table({"x": [float(i) for i in range(60)]})
    asked = {"label": "y", "budget": 20, "design": "random", "bounds": (0, 100), "seed": 1}
    for force in (False, True):  # moved in, and exchanged for another
        project = bw.AnnotationProject.start(table, tmp_path / "p", **asked, force=force)
        project.import_labels(project.to_label().drop_columns("y").append_column("y", [[1.0] * 20]))
        with closing(sqlite3.connect(project.directory / "labels.sqlite")) as file:
            file.execute("SELECT * FROM answers").fetchall()
            secret = sorted(project.directory.glob("labels.sqlite*"))
            assert [path.name[13:] for path in secret] == ["", "-shm", "-wal"]
            assert modes(*secret) == {0o600}
        assert modes(project.directory / "rows.parquet") == {0o666 & ~umask}


def test_a_ledger_and_its_key(tmp_path):
    ledger = bw.Ledger.create(tmp_path / "l", epsilon_total=1.0)
    assert modes(ledger.path, key_path(ledger.path)) == {0o600}
    with closing(sqlite3.connect(ledger.path)) as file:
        file.execute("DELETE FROM head")  # not committed, so that there is a journal
        assert modes(*tmp_path.glob("l-journal")) == {0o600}


def test_rows_that_do_not_fit_into_memory(tmp_path):
    spill = SpillDirectory(tmp_path)
    assert modes(spill.path) == {0o700}
