"""Whatever is piped into the process."""

import sys

import pyarrow as pa

from bagwise.errors import TableError


def read_standard_input() -> pa.Buffer:
    """Return everything that is piped in; it is there once."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise TableError(
            "- is standard input, and nothing is piped into it. Pipe a table: "
            "gunzip -c rents.csv.gz | bagwise release - …"
        )
    content = stream.read()
    if not content:
        raise TableError("standard input is empty. What writes into the pipe may have failed.")
    return pa.py_buffer(content)
