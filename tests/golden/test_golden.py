"""Files of every version of a format that was ever published are read, and read the same."""

import json
import shutil

import numpy as np
import pytest

import bagwise as bw
from bagwise.annotate.files import read_project, write_project
from bagwise.errors import BagwiseError
from tests.golden import make

# What no arithmetic touches on its way out of a file must be there to the last bit.
COMPUTED = {"predictions", "coefficients", "first_rows", "noise_sd", "interval"}

# Two of the rows to predict have a city that no model knows.
pytestmark = pytest.mark.filterwarnings("ignore::bagwise.errors.UnseenLevelWarning")

VERSIONS = sorted(path for path in make.HERE.glob("*-*") if path.is_dir())
FILES = [
    (version.name.partition("-")[0], version / name, expected)
    for version in VERSIONS
    for name, expected in json.loads((version / make.EXPECTED).read_text()).items()
]


def differences(found, expected):
    """Return the fields that differ."""
    wrong = {name for name in expected if name not in COMPUTED and found[name] != expected[name]}
    for name in COMPUTED & expected.keys():
        then, now = (np.asarray(_numbers(values[name])) for values in (expected, found))
        # Relative to the largest number of the field: a sum may cancel to next to nothing.
        if then.shape != now.shape or np.abs(then - now).max() > 1e-12 * np.abs(then).max():
            wrong.add(name)
        if isinstance(expected[name], dict) and list(found[name]) != list(expected[name]):
            wrong.add(name)
    return wrong


def _numbers(values):
    return list(values.values()) if isinstance(values, dict) else values


def newest(kind):
    """Return the newest version of a format, as a directory of golden files."""
    found = [path for path in VERSIONS if path.name.startswith(f"{kind}-")]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]))


@pytest.mark.parametrize(
    ("kind", "path", "expected"), FILES, ids=[f"{p.parent.name}-{p.stem}" for _, p, _ in FILES]
)
def test_a_golden_file_is_read_as_it_was_when_it_was_made(kind, path, expected):
    assert not differences(make.read(kind, path), expected)


def test_whoever_reads_something_else_is_noticed():
    kind, path, expected = next(file for file in FILES if file[1].name == "released.json")
    found = make.read(kind, path)
    slightly = [value * (1 + 1e-10) for value in found["predictions"]]
    assert differences({**found, "predictions": slightly}, expected) == {"predictions"}
    assert differences({**found, "epsilon": 2.0000001}, expected) == {"epsilon"}
    renamed = {name.upper(): value for name, value in found["coefficients"].items()}
    assert differences({**found, "coefficients": renamed}, expected) == {"coefficients"}


def test_a_golden_release_with_another_label_is_refused(tmp_path):
    copy = tmp_path / "release"
    shutil.copytree(newest("release") / "means", copy)
    content = bytearray((copy / "bags.parquet").read_bytes())
    content[len(content) // 3] ^= 1
    (copy / "bags.parquet").write_bytes(bytes(content))
    with pytest.raises(BagwiseError):
        bw.verify(copy)


@pytest.mark.parametrize("kind", make.MAKERS)
def test_what_is_written_today_has_golden_files(kind, tmp_path):
    """Whoever raises a version of a format, or of a part of it, makes golden files for it."""
    (tmp_path / kind).mkdir()
    for path in newest(kind).glob("*.json"):
        if path.name not in (make.EXPECTED, make.PREDICTED):
            _written_again(kind, path, tmp_path / kind / path.name)
    for path in newest(kind).iterdir():
        if path.is_dir():
            _written_again(kind, path, tmp_path / kind / path.name)
    assert make.schemas_in(tmp_path / kind) == make.schemas_in(newest(kind))


def _written_again(kind, path, target):
    if kind == "release":
        bw.Release.load(path).save(target, simulated_noise=True)
    elif kind == "model":
        bw.RowModel.load(path).save(target, force=True)  # one of them did not converge
    elif kind in ("trees", "tables"):
        bw.load_model(path).save(target)
    elif kind == "annotation":
        target.mkdir()
        write_project(read_project(path), target)
    else:
        bw.PrivateScores.load(path).save(target)


@pytest.mark.parametrize("part", ["events", "circumstances"])
def test_every_kind_of_event_and_circumstance_is_among_them(part):
    described = _under(bw.Certificate.json_schema()["properties"][part], "kind")
    known = {kind for one in described for kind in one.get("enum", [one.get("const")])}
    held = {
        text
        for version in VERSIONS
        for path in version.rglob("*.json")
        for found in _under(json.loads(path.read_text()), part)
        for text in _under(found, "kind")
    }
    assert known
    assert held == known


def _under(node, key):
    """Yield everything that stands under this key, at any depth."""
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from _under(inner, key)


def test_they_stay_small():
    assert sum(path.stat().st_size for path in make.HERE.rglob("*") if path.is_file()) < 650_000


def test_a_version_that_is_there_is_never_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(make, "HERE", tmp_path)
    monkeypatch.setattr(make, "MAKERS", {"evaluation": make.make_evaluations})
    assert make.main() == 0
    (made,) = tmp_path.iterdir()
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    assert make.main() == 1
    assert "stays as it is" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [made]
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
