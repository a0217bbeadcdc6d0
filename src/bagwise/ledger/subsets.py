"""Parts of a data set: who is in which of them, by keyed fingerprints of ids.

A unit pays for the releases that its labels were in. Requests about parts that share nobody are
charged side by side, and what counts is the unit that paid most.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagwise._types import IntArray
from bagwise.errors import LedgerError

Members = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Subset:
    """The members of a part, sorted, and the kind of their ids."""

    kind: str
    members: Members

    @property
    def digest(self) -> str:
        """The name of the part."""
        return hashlib.sha256(self.kind.encode("ascii") + b"\n" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the members as they are kept."""
        return self.members.astype(">u8").tobytes()

    @classmethod
    def from_bytes(cls, kind: str, kept: bytes) -> "Subset":
        """Read members back."""
        if len(kept) % 8:
            raise LedgerError("a part of the data set is damaged in the ledger.")
        return cls(kind, np.frombuffer(kept, dtype=">u8").astype(np.uint64))


def histories(
    charged: Sequence[str | None], subsets: Mapping[str, Subset], asked: str | None
) -> list[list[int]]:
    """Return, for each kind of unit that a request concerns, the numbers of its charges.

    `charged` and `asked` name parts; None is everybody. Histories that another one contains cost
    no more, and are left out.

    >>> parts = {name: Subset("integer", np.array(ids, dtype=np.uint64))
    ...          for name, ids in {"a": [1, 2], "b": [2, 3], "c": [4]}.items()}
    >>> sorted(histories(["a", "b", "c", None], parts, asked=None))
    [[0, 1, 3], [2, 3]]
    """
    concerned = [one for one in _patterns(subsets) if asked is None or asked in one]
    paid = {
        frozenset(i for i, part in enumerate(charged) if part is None or part in pattern)
        for pattern in concerned
    }
    return [sorted(one) for one in paid if not any(one < other for other in paid)]


def _patterns(subsets: Mapping[str, Subset]) -> list[frozenset[str]]:
    """Return which parts have a unit in common: for each kind of unit the parts that it is in.

    The first one is of units that are in none: nobody says that there are no others.
    """
    if len({subset.kind for subset in subsets.values()}) > 1:
        raise LedgerError(
            "ids are whole numbers in one part of the data set and text in another, so that nobody "
            "can tell who is in both. Convert the column."
        )
    if not subsets:
        return [frozenset()]
    everybody = np.unique(np.concatenate([subset.members for subset in subsets.values()]))
    pattern: IntArray = np.zeros(everybody.size, dtype=np.int64)
    patterns: list[frozenset[str]] = [frozenset()]
    for name, subset in subsets.items():
        inside = np.isin(everybody, subset.members, assume_unique=True)
        codes, pattern = np.unique(2 * pattern + inside, return_inverse=True)
        patterns = [
            patterns[code // 2] | ({name} if code % 2 else set()) for code in codes.tolist()
        ]
    return [frozenset(), *(one for one in patterns if one)]
