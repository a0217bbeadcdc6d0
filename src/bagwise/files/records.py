"""Records in files: exact keys and exact types, or a clear error.

Readers may not trust the sender of a file, and an unread key could carry any data out. So a record
has exactly the keys that it declares, with their declared types. msgspec checks this; this module
translates its errors.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bagwise.errors import BagwiseError
from bagwise.files.json_files import LARGEST, canonical, read_json

R = TypeVar("R")


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen record with exactly the fields it declares, for reading from and writing to JSON.

    >>> class Point(Record, frozen=True):
    ...     x: float
    >>> to_plain(Point(x=1.0)), read_record(Point, {"x": 1.0}, error=ValueError, what="a point")
    ({'x': 1.0}, Point(x=1.0))
    """


def to_plain(record: Any) -> dict[str, Any]:
    """Return a record as plain values: dicts, lists, text, numbers."""
    plain: dict[str, Any] = _listed(msgspec.to_builtins(record))
    return plain


def read_record(kind: type[R], values: Any, *, error: type[Exception], what: str) -> R:
    """Read plain values as a record; `error` reports where they differ, without quoting them.

    Guarantee: what comes back is written as these very values again: keys in the declared order,
    and ``1`` is not ``1.0``. Neither can carry a message.
    """
    try:
        record = msgspec.convert(values, kind, strict=True)
        if canonical(_listed(msgspec.to_builtins(record))) == canonical(values):
            return record
        failure = error(f"{what} is not written the way bagwise writes it: it was edited.")
    except msgspec.ValidationError as problem:
        where = str(problem).rpartition(" - at ")[2] if " - at " in str(problem) else "at its top"
        failure = error(
            f"{what} is damaged or from another version: a field is missing, unknown or of "
            f"another type ({where.strip('`')})."
        )
    raise failure


def read_file(
    kind: type[R],
    path: Path,
    *,
    schema: str,
    error: type[BagwiseError],
    what: str,
    limit: int = LARGEST,
) -> R:
    """Read a JSON file of ours as its record; refuse files of other kinds and versions."""
    content = read_json(path, error=error, what=what, limit=limit)
    if content.get("schema") != schema:
        raise error(f"{path} is not {what} that this version reads ({schema}).")
    return read_record(kind, content, error=error, what=str(path))


def closed_schemas(records: Iterable[type]) -> list[dict[str, Any]]:
    """Return the JSON Schema of each kind of record: all of its fields, and no others."""
    _, components = msgspec.json.schema_components(list(records), ref_template="#/$defs/{name}")
    return [
        {
            "type": "object",
            "additionalProperties": False,
            "required": list(component["properties"]),
            "properties": component["properties"],
        }
        for component in components.values()
    ]


def _listed(value: Any) -> Any:
    """Return tuples as lists, so that what was written equals what is read back."""
    if isinstance(value, dict):
        return {name: _listed(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_listed(entry) for entry in value]
    return value
