"""Workers that are no cluster: this process does the work of all tasks, one after the other."""

from dataclasses import dataclass, field
from functools import partial
from secrets import token_bytes

import pyarrow as pa

from bagwise.files.atomic import create_private
from bagwise.files.spill import SpillDirectory
from bagwise.rows.keys import new_secret, under_stream
from bagwise.rows.spark.tasks import Refusal, guarded, pack, steps, unpack


@dataclass(frozen=True)
class ThisMachine:
    """The process itself, which holds one item or one target at a time."""

    scratch: SpillDirectory
    secret: bytes = field(default_factory=new_secret, repr=False)

    def each(self, items, work):
        """Return what work makes of each item, in their order."""
        return [_answered(guarded(partial(work, item, self.secret))) for item in items]

    def exchange(self, items, scatter, gather):
        """Send tables to targets by way of one file, which holds them under a stream."""
        path, key = create_private(self.scratch.new_file("dealt")), token_bytes(32)
        spans = {}
        try:
            with path.open("wb") as file:
                for item in items:
                    for target, table in steps(scatter, item, self.secret):
                        packed, nonce = pack(table), token_bytes(16)
                        span = file.tell(), len(packed), nonce
                        spans.setdefault(target, []).append(span)
                        file.write(under_stream(key, nonce, packed))
            with path.open("rb") as file:
                found = {}
                for target in sorted(spans):
                    tables = []
                    for start, length, nonce in spans[target]:
                        file.seek(start)
                        tables.append(unpack(under_stream(key, nonce, file.read(length))))
                    whole = pa.concat_tables(tables)
                    found[target] = _answered(guarded(partial(gather, target, whole, self.secret)))
                return found
        finally:
            path.unlink()


def _answered(found):
    if isinstance(found, Refusal):
        raise found.to_error()
    return found
