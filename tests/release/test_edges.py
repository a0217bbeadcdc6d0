"""Words and refusals that few releases come to."""

import json
import shutil

import pytest

import bagwise as bw
from bagwise.errors import BagwiseError, ReleaseError
from bagwise.files.json_files import canonical
from bagwise.requests.provenance import NothingToPlan


def test_a_release_without_a_plan_says_why():
    assert "too few rows" in NothingToPlan(cause="rows").text()
    assert "labels of this kind" in NothingToPlan(cause="labels").text()


@pytest.fixture
def saved(table, tmp_path):
    release = bw.make_release(table, label="y", bag_size=6, strategy="random", not_private=True)
    return release.save(tmp_path / "release")


def test_a_manifest_that_lists_other_files_is_refused(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    del manifest["files"]["bags.parquet"]
    (saved / "manifest.json").write_bytes(canonical(manifest))
    with pytest.raises(ReleaseError, match="does not list the files of a release"):
        bw.Release.load(saved)


def test_a_directory_whose_manifest_is_not_ours_is_never_replaced(saved, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(saved, other)
    (other / "manifest.json").write_text("notes, and no JSON")
    with pytest.raises(BagwiseError, match="not a bagwise release"):
        bw.Release.load(saved).save(other, force=True)
    assert (other / "manifest.json").read_text() == "notes, and no JSON"
