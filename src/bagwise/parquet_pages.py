"""The pages of a Parquet column: how large they really are, before anything unpacks them.

A footer may say that a column is small while a page in it unpacks to gigabytes, and the bytes
behind the last page of a column are looked at by nobody. So each page's header is read here. It is
a Thrift structure in its compact form, of which ours need whole numbers, truth values and
structures; anything else is refused.
"""

from dataclasses import dataclass
from io import BufferedReader

_LONGEST_HEADER = 128
_TRUE, _FALSE, _INT32, _STRUCT = 1, 2, 5, 12

# Numbers of the fields of a page header, and kinds of page.
_KIND, _UNPACKED, _PACKED, _DATA, _DICTIONARY = 1, 2, 3, 5, 7
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_VALUES = 1

Fields = dict[int, "int | Fields"]


@dataclass(frozen=True)
class Pages:
    """What the pages of one column hold together.

    Attributes
    ----------
    unpacked : int
        Bytes of all pages with their headers.
    largest : int
        Bytes of the largest page.
    values : int
        Values in all pages but the dictionary.
    """

    unpacked: int
    largest: int
    values: int


def read_pages(handle: BufferedReader, start: int, stop: int) -> Pages:
    """Add up the pages between two places of a file; they must fill it, or a ValueError says so."""
    unpacked = largest = values = 0
    position = start
    while position < stop:
        handle.seek(position)
        fields, length = _read_header(handle.read(_LONGEST_HEADER))
        size, packed = _number(fields, _UNPACKED), _number(fields, _PACKED)
        values += _values(fields, first=position == start)
        unpacked += length + size
        largest = max(largest, size)
        position += length + packed
    if position != stop:
        raise ValueError("the pages of a column do not end where it ends")
    return Pages(unpacked, largest, values)


def _values(fields: Fields, *, first: bool) -> int:
    """Return how many values a data page has; a dictionary, which may only come first, has none."""
    kind = _number(fields, _KIND)
    details = fields.get(_DATA if kind == _DATA_PAGE else _DICTIONARY)
    expected = {_KIND, _UNPACKED, _PACKED, _DATA if kind == _DATA_PAGE else _DICTIONARY}
    known = kind == _DATA_PAGE or (kind == _DICTIONARY_PAGE and first)
    if not known or not isinstance(details, dict) or set(fields) != expected:
        raise ValueError("a page of another kind")
    return _number(details, _VALUES) if kind == _DATA_PAGE else 0


def _number(fields: Fields, name: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or value < 0:
        raise ValueError("a page header without its numbers")
    return value


def _read_header(content: bytes) -> tuple[Fields, int]:
    """Return the fields of a structure and its length."""
    return _read_struct(content, 0, 0)


def _read_struct(content: bytes, position: int, depth: int) -> tuple[Fields, int]:
    fields: Fields = {}
    name = 0
    while (first := content[position]) != 0:
        position += 1
        step, kind = first >> 4, first & 15
        if not step or depth > 2:  # ours have few fields, all close together
            raise ValueError("a page header of another kind")
        name += step
        if kind == _INT32:
            fields[name], position = _read_number(content, position)
        elif kind == _STRUCT:
            fields[name], position = _read_struct(content, position, depth + 1)
        elif kind in (_TRUE, _FALSE):
            fields[name] = int(kind == _TRUE)
        else:
            raise ValueError("a page header of another kind")
    return fields, position + 1


def _read_number(content: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, whose sign is its last bit."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
