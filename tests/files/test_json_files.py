import json
import os

import pytest

from bagwise.errors import ReleaseError
from bagwise.files.json_files import DEEPEST, canonical, read_json, write_json

VALUES = {"label": "rent", "bags": [1, 2.5, -0.0, 1e300, None, True], "more": {"é": []}}


def read(path, **options):
    return read_json(path, error=ReleaseError, what="a manifest", **options)


@pytest.fixture
def file(tmp_path):
    write_json(VALUES, tmp_path / "file.json")
    return tmp_path / "file.json"


def test_what_is_written_is_read(file):
    assert read(file) == VALUES
    assert file.read_bytes() == canonical(VALUES)
    assert file.read_bytes().isascii()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"label": float("nan")})


def deep(levels):
    values = {}
    for _ in range(levels - 1):
        values = {"a": values}
    return values


def test_nesting_has_a_limit(file):
    write_json(deep(DEEPEST), file)
    read(file)
    write_json(deep(DEEPEST + 1), file)
    with pytest.raises(ReleaseError, match="levels deep"):
        read(file)
    write_json({"text": "[" * 1000 + '"' + "{" * 1000 + "\\"}, file)  # in a string they are text
    read(file)


SPELLINGS = {
    "a key twice": (b'{\n  "a": 1,\n  "a": 2\n}\n', "not spelled"),
    "blank": (b'{\n  "a": 1\n} \n', "not spelled"),
    "no last line end": (b'{\n  "a": 1\n}', "not spelled"),
    "more lines": (b'{\n  "a": 1\n}\n\n', "not spelled"),
    "another number": (b'{\n  "a": 1e0\n}\n', "not spelled"),
    "a long number": (b'{\n  "a": 0.10000000000000000001\n}\n', "not spelled"),
    "unescaped": ('{\n  "a": "é"\n}\n'.encode(), "not spelled"),
    "infinite after all": (b'{\n  "a": 1e999\n}\n', "not spelled"),
    "half a character": (b'{\n  "a": "\\ud800"\n}\n', "not spelled"),
    "NaN": (b'{\n  "a": NaN\n}\n', "not readable JSON"),
    "Infinity": (b'{\n  "a": -Infinity\n}\n', "not readable JSON"),
    "too large": (b'{\n  "a": 9223372036854775808\n}\n', "not readable JSON"),
    "thousands of digits": (b'{\n  "a": ' + b"9" * 9999 + b"\n}\n", "not readable JSON"),
    "not UTF-8": (b'{\n  "a": "\xff"\n}\n', "not readable JSON"),
    "a mark": (b'\xef\xbb\xbf{\n  "a": 1\n}\n', "not readable JSON"),
    "empty": (b"", "not readable JSON"),
    "a list": (b"[]\n", "JSON object"),
    "deep": (b"[" * 10**6, "levels deep"),
    "deep objects": (b'{"a":' * 10**6, "levels deep"),
    "many values": (b"[" + b"0," * 5_000_000 + b"0]", "values"),
    "a string without end": (b'"\\' * 10**6, "not readable JSON"),
}


@pytest.mark.parametrize(("content", "message"), SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_is_refused(file, content, message):
    file.write_bytes(content)
    with pytest.raises(ReleaseError, match=message) as raised:
        read(file)
    assert str(file) in str(raised.value)


def test_only_regular_files_of_bearable_size_are_read(file, tmp_path):
    with pytest.raises(ReleaseError, match="larger than 0 MB"):
        read(file, limit=10)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    with pytest.raises(ReleaseError, match="symbolic link"):
        read(link)
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ReleaseError, match="not a regular file"):
            read(path)
    with pytest.raises(ReleaseError, match="does not exist"):
        read(tmp_path / "nowhere")


def test_a_sparse_giant_is_not_read(tmp_path):
    with (tmp_path / "giant").open("wb") as handle:
        handle.truncate(2**40)
    with pytest.raises(ReleaseError, match="larger than 64 MB"):
        read(tmp_path / "giant")


def test_every_json_value_comes_back(tmp_path):
    values = {"a": [0, -1, 2**63 - 1, -(2**63), 0.1, 5e-324, "\x1b\u2028\U0001f600", "", {}, [[]]]}
    write_json(values, tmp_path / "file")
    assert read(tmp_path / "file") == values
    assert json.loads((tmp_path / "file").read_text()) == values
