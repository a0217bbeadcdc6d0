"""JSON files of the package: writing them, and reading untrusted ones."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from bagwise.errors import BagwiseError, shielded
from bagwise.files.regular_files import open_regular, size_of

LARGEST = 64 * 2**20
"""Bytes of a file that describes a table of any number of columns."""

LARGEST_STATEMENT = 2**20
"""Bytes of a file whose length does not grow with a table: certificates, bounds, evaluations."""

DEEPEST = 20

# A value takes up to a hundred times the space in memory that it takes in a file.
_MOST_VALUES = 4_000_000

_LARGEST_INTEGER = 2**63

# Also matches a string that never ends, so that no part of the text is looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ENCODER = json.JSONEncoder(indent=2, allow_nan=False, ensure_ascii=True)


def canonical(values: Any) -> bytes:
    r"""Return the one spelling that a JSON file of this package has.

    >>> canonical({"bags": [1, 2.0]})
    b'{\n  "bags": [\n    1,\n    2.0\n  ]\n}\n'
    """
    return (_ENCODER.encode(values) + "\n").encode("ascii")


def write_json(values: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file in its one spelling."""
    path.write_bytes(canonical(values))


def read_json(
    path: Path, *, error: type[BagwiseError], what: str, limit: int = LARGEST
) -> dict[str, Any]:
    """Read a JSON object that `write_json` wrote, and refuse everything else.

    Parameters
    ----------
    path : Path
    error : type of BagwiseError
        What to raise.
    what : str
        What the file should be, for messages: "a model file".
    limit : int
        Bytes that such a file has at most.

    Guarantee: nothing but a regular file is opened, no more than `limit` bytes are read, and what
    comes back is all that the file says: its bytes are the ones that `canonical` gives for it. So
    there is no room for a key that is there twice, for blanks, or for another spelling of a number.
    """
    with open_regular(path, error=error) as handle:
        content = handle.read(limit + 1) if size_of(handle) <= limit else None
    if content is None or len(content) > limit:
        raise error(f"{path} is larger than {limit >> 20} MB, which {what} never is.")
    _check_outline(content, path, error=error, what=what)
    values = shielded(
        lambda: json.loads(
            content.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_small_integer
        ),
        error(f"{path} is not readable JSON: it is damaged, was edited, or is not {what}."),
    )
    if not isinstance(values, dict):
        raise error(f"{path} does not hold a JSON object, so it is not {what}.")
    if not shielded(lambda: _is_spelled(content, values), _respelled(path, error, what)):
        raise _respelled(path, error, what)
    return values


def _check_outline(content: bytes, path: Path, *, error: type[BagwiseError], what: str) -> None:
    """Refuse text that would exhaust a parser's stack or memory, before it is parsed."""
    outside = np.frombuffer(_STRING.sub(b"", content), dtype=np.uint8)
    opens = (outside == ord("[")) | (outside == ord("{"))
    closes = (outside == ord("]")) | (outside == ord("}"))
    brackets = opens | closes
    depth = np.cumsum(np.where(opens[brackets], 1, -1), dtype=np.int64)
    if depth.size and depth.max() > DEEPEST:
        raise error(f"{path} is nested more than {DEEPEST} levels deep, so it is not {what}.")
    if int(opens.sum()) + int((outside == ord(",")).sum()) > _MOST_VALUES:
        raise error(f"{path} holds more than {_MOST_VALUES} values, which {what} never does.")


def _is_spelled(content: bytes, values: Mapping[str, Any]) -> bool:
    if _SURROGATE.search(content):
        json.dumps(values, ensure_ascii=False).encode("utf-8")  # half a character raises
    # Piece by piece: of a large file that differs early, only the beginning is written.
    position = 0
    for piece in _ENCODER.iterencode(values):
        expected = piece.encode("ascii")
        if not content.startswith(expected, position):
            return False
        position += len(expected)
    return content[position:] == b"\n"


def _respelled(path: Path, error: type[BagwiseError], what: str) -> BagwiseError:
    return error(f"{path} is not spelled the way bagwise writes {what}: it was edited or damaged.")


def _small_integer(text: str) -> int:
    value = int(text)
    if not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise ValueError
    return value


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError
