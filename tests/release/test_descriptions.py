"""What a release says to the tools of others: Croissant."""

import datetime
import json
import logging

import mlcroissant
import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import ReleaseError
from tests.forging import rehash
from tests.golden.make import HERE

RELEASES = sorted(path.name for path in (HERE / "release-2").iterdir() if path.is_dir())


def read_croissant(path):
    logging.getLogger("absl").setLevel(logging.ERROR)  # it recommends a licence and a citation
    return mlcroissant.Dataset(str(path / "croissant.json"))


@pytest.mark.parametrize("name", RELEASES)
def test_croissant_readers_accept_every_kind_of_release(name):
    path = HERE / "release-2" / name
    assert not list(read_croissant(path).metadata.issues.errors)
    content = json.loads((path / "croissant.json").read_text())
    assert content["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    manifest = json.loads((path / "manifest.json").read_text())
    files = {file["name"]: file["sha256"] for file in content["distribution"]}
    assert files == {
        name: sha for name, sha in manifest["files"].items() if name != "croissant.json"
    }


HOSTILE = ["a b", 'quote "', "colon: yes", "é😀", "#", "</script>", "- x", "tab\t"]


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=60) for name in HOSTILE}
    days = [datetime.date(2020, 1, 1 + i % 28) for i in range(60)]
    kinds = {"old": pa.array(rng.random(60) < 0.5), "city": ["Bonn", "Pune"] * 30}
    table = pa.table({"key": days, **columns, **kinds, "y": rng.random(60)})
    table = table.set_column(0, "key", pa.array(range(60)))
    release = bw.make_release(
        table, label="y", id="key", bag_size=6, strategy="random", bounds=(0, 1), epsilon=1.0
    )
    release.save(tmp_path / "release")
    return tmp_path / "release", table


def test_strange_names_of_columns_are_read_back(saved):
    path, table = saved
    found = read_croissant(path)
    rows = list(found.records("instances"))
    assert len(rows) == 60
    content = json.loads((path / "croissant.json").read_text())
    fields = {field["name"]: field["@id"] for field in content["recordSet"][0]["field"]}
    assert list(fields) == [*table.column_names[:-1], "bag_id"]
    instances = bw.Release.load(path).instances
    assert [row[fields["é😀"]] for row in rows] == instances["é😀"].to_pylist()
    bags = list(found.records("bags"))
    assert [bag["bags/1"] for bag in bags] == [6] * 10


def test_no_description_holds_a_label(saved):
    path, table = saved
    text = (path / "croissant.json").read_text()
    assert not any(f"{label:.6f}" in text for label in table["y"].to_pylist())


def edit(path, change):
    content = json.loads((path / "croissant.json").read_text())
    change(content)
    (path / "croissant.json").write_text(json.dumps(content, indent=2) + "\n")


FORGERIES = {
    "another key": lambda path: edit(path, lambda c: c.update(label="3.14 2.71")),
    "another word": lambda path: edit(path, lambda c: c.update(name="3.14 2.71")),
    "no date": lambda path: edit(path, lambda c: c.update(datePublished="3.14 2.71")),
    "another date": lambda path: edit(path, lambda c: c.update(datePublished="2000-01-01")),
    "another promise": lambda path: (path / "croissant.json").write_text(
        (path / "croissant.json").read_text().replace("(1, 0)-label-DP", "(0.1, 0)-label-DP")
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_descriptions_carry_nothing_else(saved, forgery):
    path, _ = saved
    FORGERIES[forgery](path)
    rehash(path, describe_again=False)
    with pytest.raises(ReleaseError, match=r"does not describe|no date") as caught:
        bw.Release.load(path)
    assert "3.14" not in str(caught.value)


def test_without_its_description_a_release_is_not_complete(saved):
    path, _ = saved
    (path / "croissant.json").unlink()
    with pytest.raises(ReleaseError, match=r"croissant\.json is missing"):
        bw.Release.load(path)
