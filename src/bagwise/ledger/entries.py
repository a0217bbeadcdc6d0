"""The contents of a ledger: terms, parts of the data set, and charges, chained by digests.

A unit pays for the releases that contain its labels. Charges to disjoint parts do not add up: what
counts is the unit that was charged most. Keyed fingerprints of ids identify the units in a part.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from bagwise._types import IntArray
from bagwise.errors import LedgerError
from bagwise.files.json_files import canonical
from bagwise.files.records import Record, to_plain
from bagwise.privacy.mechanisms import Mechanism, mechanisms_from_json

SCHEMA: Final = "bagwise-ledger/1"

ChosenBy = Literal["all", "public"]
"""Which rows a request was about: all of the data set, or some, chosen by what is public."""

Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Terms(Record, frozen=True):
    """The subject and the limits of a ledger; they never change.

    Attributes
    ----------
    dataset : str
        The custodian's name for the data.
    unit : str or None
        The column whose values are protected together.
    row_id : str or None
        Without a unit: the column that identifies rows.
    epsilon, delta : float
        The limits on the cost of all charges together.
    """

    schema: Literal["bagwise-ledger/1"]
    software: str
    id: Id
    date: str
    dataset: str
    unit: str | None
    row_id: str | None
    epsilon: float
    delta: float


class Charge(Record, frozen=True, omit_defaults=True):
    """One request that was charged, whatever became of it.

    Attributes
    ----------
    id : str
        The same as in the certificate of the result.
    time : str
        In UTC, by the clock of the machine. The order of entries is by number, not by time.
    verb : {"release", "release-model", "evaluate"}
    label : str
        The column that was protected.
    events : list
        The mechanisms that are charged, as certificates have them.
    chosen_by : {"all", "public"}
    subset : str or None
        Digest of who is in the rows, where that is charged for; None: everybody.
    request, table : str
        Keyed fingerprints of what was asked for, and of the table.
    purpose, recipient : str or None
        Purpose and recipient as stated by the custodian; not written if unstated.
    """

    id: Id
    time: str
    software: str
    verb: Literal["release", "release-model", "evaluate"]
    label: str
    events: tuple[dict[str, Any], ...]
    chosen_by: ChosenBy
    subset: Digest | None
    request: Digest
    table: Digest
    purpose: str | None = None
    recipient: str | None = None

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanisms that are charged."""
        return mechanisms_from_json(list(self.events))

    @property
    def kinds(self) -> str:
        """The kinds of its mechanisms, in words."""
        return ", ".join(mechanism.kind for mechanism in self.mechanisms) or "paid before"


def digest_of(record: Terms | Charge, before: str | None = None) -> str:
    """Return the digest of an entry, including the digest of the entry before it."""
    chained = b"" if before is None else before.encode("ascii") + b"\n"
    return hashlib.sha256(chained + canonical(to_plain(record))).hexdigest()


@dataclass(frozen=True, eq=False)
class Subset:
    """The members of a part of the data set, sorted, and the kind of their ids."""

    kind: str
    members: NDArray[np.uint64]

    @property
    def digest(self) -> str:
        """The digest that names the part."""
        return hashlib.sha256(self.kind.encode("ascii") + b"\n" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the members as they are stored."""
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
    if len({subset.kind for subset in subsets.values()}) > 1:
        raise LedgerError(
            "ids are whole numbers in one part of the data set and text in another, so they "
            "cannot be compared. Convert the column."
        )
    # 1. For each kind of unit, the parts that it is in.
    members = [subset.members for subset in subsets.values()]
    everybody = np.unique(np.concatenate(members)) if members else np.empty(0, np.uint64)
    pattern: IntArray = np.zeros(everybody.size, dtype=np.int64)
    patterns: list[frozenset[str]] = [frozenset()]
    for name, subset in subsets.items():
        inside = np.isin(everybody, subset.members, assume_unique=True)
        codes, pattern = np.unique(2 * pattern + inside, return_inverse=True)
        patterns = [
            patterns[code // 2] | ({name} if code % 2 else set()) for code in codes.tolist()
        ]
    # 2. What each has paid. Some units may be in no part: nobody says that there are no others.
    paid = {
        frozenset(i for i, part in enumerate(charged) if part is None or part in one)
        for one in {frozenset[str](), *patterns}
        if asked is None or asked in one
    }
    return [sorted(one) for one in paid if not any(one < other for other in paid)]
