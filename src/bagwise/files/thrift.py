"""Structures of Thrift's compact protocol, as Parquet files hold them, read from untrusted bytes.

Only what our own files need is read: whole numbers, truth values, text, lists and structures. A
structure becomes a dictionary by the number of each field. Anything else raises a ValueError, and
bytes that end too soon an IndexError.
"""

from typing import Any

_STOP, _TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64 = 0, 1, 2, 3, 4, 5, 6
_BINARY, _LIST, _STRUCT = 8, 9, 12
_DEEPEST = 8

Struct = dict[int, Any]


def read_struct(content: bytes, position: int = 0, depth: int = 0) -> tuple[Struct, int]:
    """Return the fields of the structure at a place, and the place behind it.

    >>> read_struct(bytes([0x15, 0x0A, 0x18, 0x02, 0x68, 0x69, 0x00]))
    ({1: 5, 2: b'hi'}, 7)
    """
    if depth > _DEEPEST:
        raise ValueError("a structure within too many others")
    fields: Struct = {}
    name = 0
    while (first := content[position]) != _STOP:
        step, kind = first >> 4, first & 15
        if not step:  # only for fields far apart, which ours are not
            raise ValueError("a field with a number of its own")
        name += step
        position += 1
        if kind in (_TRUE, _FALSE):
            fields[name] = kind == _TRUE
        else:
            fields[name], position = _read_value(content, position, kind, depth)
    return fields, position + 1


def _read_value(content: bytes, position: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == _BYTE:
        return content[position], position + 1
    if kind in (_INT16, _INT32, _INT64):
        number, position = _read_varint(content, position)
        return (number >> 1) ^ -(number & 1), position  # the sign is the last bit
    if kind == _BINARY:
        length, position = _read_varint(content, position)
        if position + length > len(content):
            raise ValueError("text that ends behind the end")
        return content[position : position + length], position + length
    if kind == _LIST:
        return _read_list(content, position, depth)
    if kind == _STRUCT:
        return read_struct(content, position, depth + 1)
    raise ValueError("a value of another kind")


def _read_list(content: bytes, position: int, depth: int) -> tuple[list[Any], int]:
    first = content[position]
    position += 1
    length, kind = first >> 4, first & 15
    if length == 15:
        length, position = _read_varint(content, position)
    if length > len(content) - position:  # each value takes a byte at least
        raise ValueError("a list that ends behind the end")
    values = []
    for _ in range(length):
        value, position = _read_value(content, position, kind, depth)
        values.append(value)
    return values, position


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number of more than 64 bits")
