"""The layout of a Parquet file, checked from its bytes before any library reads it.

A footer can hold notes that no table shows; it may call a column small whose page unpacks to
gigabytes; bytes behind the last page of a column are looked at by nobody; and some contradictions
in a footer end a process that asks pyarrow about them (in version 26, of 1,816 footers with one bit
turned, 30). So the footer and the header of each page are read here, and only files of our own
layout pass: columns of plain values, one after the other, each nothing but its pages.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from bagwise.files.regular_files import size_of

Struct = dict[int, Any]

MOST_COLUMNS = 10_000
ROWS_AT_ONCE = 2**20
"""Rows of a row group; only the last one has fewer."""

_STRANGE = "is not laid out the way bagwise writes it: it was edited or damaged."
_LONGEST_FOOTER = 64 * 2**20
_LONGEST_HEADER = 128
_MAGIC = b"PAR1"
_WRITER = re.compile(rb"parquet-cpp-arrow version \d+\.\d+\.\d+(-SNAPSHOT)?")
_ZSTD = 6
_ENCODINGS = {0, 3, 8}  # plain, run lengths, numbers into a dictionary
_OPTIONAL = 1
_BYTE_ARRAY = 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2

_TRUE, _FALSE, _BYTE, _INTEGERS, _BINARY, _LIST, _STRUCT = 1, 2, 3, (4, 5, 6), 8, 9, 12
_DEEPEST = 8  # structures of Thrift within each other


class LayoutError(ValueError):
    """A file has a different layout; the message is the predicate of a sentence about it."""


@dataclass(frozen=True)
class Layout:
    """The size of a file's table.

    Attributes
    ----------
    rows, columns : int
    largest_page : int
        Bytes of the largest page when it is unpacked.
    strings : int
        Bytes of all pages of columns whose values have lengths of their own, unpacked.
    """

    rows: int
    columns: int
    largest_page: int
    strings: int


def read_layout(handle: BinaryIO) -> Layout:
    """Read the layout of a file; raise LayoutError for anything that ours do not have."""
    try:
        return _read_layout(handle)
    except LayoutError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        failure = LayoutError(_STRANGE)
    raise failure


def _expect(usual: bool) -> None:
    if not usual:
        raise LayoutError(_STRANGE)


def _read_layout(handle: BinaryIO) -> Layout:
    footer, end = _read_footer(handle)
    kinds = _read_schema(footer[2])
    position, rows, largest, strings = len(_MAGIC), 0, 0, 0
    for group in footer[4]:
        _expect(set(group) <= {1, 2, 3, 5, 6, 7} and _is_bare({**group, 1: 0}))
        _expect(group[3] == min(ROWS_AT_ONCE, footer[3] - rows))
        rows += group[3]
        for chunk, (name, kind) in zip(group[1], kinds, strict=True):
            details = _check_chunk(chunk, name, kind, position, group[3])
            stop = position + details[7]
            _expect(stop <= end)
            pages = list(_read_pages(handle, position, stop)) or [(0, 0, 0)]
            unpacked, sizes, values = zip(*pages, strict=True)
            _expect((sum(unpacked), sum(values)) == (details[6], group[3]))
            largest = max(largest, *sizes)
            strings += sum(unpacked) if kind == _BYTE_ARRAY else 0
            position = stop
    _expect((position, rows) == (end, footer[3]))
    return Layout(rows, len(kinds), largest, strings)


def _read_footer(handle: BinaryIO) -> tuple[Struct, int]:
    """Return the footer, and the place where it begins."""
    size = size_of(handle)
    ending = _read_at(handle, max(0, size - 8), 8)
    length = int.from_bytes(ending[:4], "little")
    if ending[4:] != _MAGIC or length > size - 12 or _read_at(handle, 0, 4) != _MAGIC:
        raise LayoutError("is not a readable Parquet file.")
    if length > _LONGEST_FOOTER:
        raise LayoutError("has a footer larger than that of any release.")
    begin = size - 8 - length
    thrift = Thrift(_read_at(handle, begin, length))
    footer = thrift.struct()
    _expect(thrift.place == length)
    if 5 in footer:
        raise LayoutError("holds Parquet metadata beside its table, which no release has.")
    _expect(set(footer) <= {1, 2, 3, 4, 6, 7} and _is_bare(footer.get(7, [])))
    if not _WRITER.fullmatch(footer[6]):
        raise LayoutError("was not written by bagwise: the name of its writer is another.")
    if footer[3] < 1:
        raise LayoutError("has no rows.")
    return footer, begin


def _read_schema(elements: Sequence[Struct]) -> list[tuple[bytes, int]]:
    """Return the name and the physical type of each column."""
    root, *columns = elements
    if root != {3: 0, 4: b"schema", 5: len(columns)}:
        if any(5 in column for column in columns):
            raise LayoutError("has a column of lists or records; a release has plain values only.")
        raise LayoutError(_STRANGE)
    if len(columns) > MOST_COLUMNS:
        raise LayoutError(f"has {len(columns)} columns; at most {MOST_COLUMNS} are read.")
    for column in columns:
        if 9 in column:
            raise LayoutError("holds Parquet metadata in a column, which no release has.")
        _expect(column[3] == _OPTIONAL and set(column) <= {1, 2, 3, 4, 6, 7, 8, 10})
        _expect(_is_bare({**column, 4: 0}))
    names = [column[4] for column in columns]
    if len(set(names)) != len(names):
        raise LayoutError("has two columns of the same name.")
    return [(column[4], column[1]) for column in columns]


def _check_chunk(chunk: Struct, name: bytes, kind: int, position: int, rows: int) -> Struct:
    """Return what is said of a column; refuse one elsewhere, packed differently, or with notes."""
    details: Struct = chunk[3]
    start = min(details[9], details.get(11, details[9]))
    _expect(set(chunk) == {2, 3} and set(details) <= {1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 16})
    _expect((details[1], details[3], details[4]) == (kind, [name], _ZSTD))
    _expect((details[5], start) == (rows, position) and set(details[2]) <= _ENCODINGS)
    _expect(all(set(entry) == {1, 2, 3} for entry in details.get(13, [])))
    # Counts for another number of levels than the schema has would end the process in pyarrow.
    sizes = details.get(16, {})
    present = sizes.get(3, [0, rows])
    _expect(set(sizes) <= {1, 2, 3} and not sizes.get(2))
    _expect(len(present) == 2 and sum(present) == rows)
    _expect(_is_bare({**details, 3: 0}))
    return details


def _is_bare(value: Any) -> bool:
    """Return whether there are only numbers and truth values, and no text to carry anything."""
    if isinstance(value, dict):
        return all(map(_is_bare, value.values()))
    return all(map(_is_bare, value)) if isinstance(value, list) else isinstance(value, int)


def _read_pages(handle: BinaryIO, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield bytes with and without the header, unpacked, and values, of pages that fill a part."""
    position = start
    while position < stop:
        thrift = Thrift(_read_at(handle, position, _LONGEST_HEADER))
        header = thrift.struct()
        kind, unpacked, packed = header[1], header[2], header[3]
        if kind == _DICTIONARY_PAGE and position == start and set(header) == {1, 2, 3, 7}:
            values = 0
        elif kind == _DATA_PAGE and set(header) == {1, 2, 3, 5}:
            values = header[5][1]
        else:
            raise LayoutError(_STRANGE)
        _expect(min(unpacked, packed, values) >= 0 and _is_bare(header))
        yield thrift.place + unpacked, unpacked, values
        position += thrift.place + packed
    _expect(position == stop)


def _read_at(handle: BinaryIO, position: int, length: int) -> bytes:
    handle.seek(position)
    return handle.read(length)


class Thrift:
    """Structures of Thrift's compact protocol, read one after the other from untrusted bytes.

    Only what our own files need is read: whole numbers, truth values, text, lists and structures.
    Anything else raises a ValueError, and bytes that end too soon an IndexError.

    >>> Thrift(bytes([0x15, 0x0A, 0x18, 0x02, 0x68, 0x69, 0x00])).struct()
    {1: 5, 2: b'hi'}
    """

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def struct(self, depth: int = 0) -> Struct:
        """Return the fields of a structure, by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("a structure within too many others")
        fields: Struct = {}
        name = 0
        while first := self._byte():
            step, kind = first >> 4, first & 15
            if not step:  # only for fields far apart, which ours are not
                raise ValueError("a field with a number of its own")
            name += step
            fields[name] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return value | byte << shift

    def _length(self, length: int) -> int:
        if length > len(self.content) - self.place:  # each value takes a byte at least
            raise ValueError("a text or list that ends behind the end")
        return length

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            number = self._number()
            return (number >> 1) ^ -(number & 1)  # the sign is the last bit
        if kind == _BINARY:
            length = self._length(self._number())
            self.place += length
            return self.content[self.place - length : self.place]
        if kind == _LIST:
            length, kind = divmod(self._byte(), 16)
            length = self._length(self._number() if length == 15 else length)
            return [self._value(kind, depth) for _ in range(length)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError("a value of another kind")
