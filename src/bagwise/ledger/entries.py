"""What a ledger holds: its terms, and one entry for each charge, chained by digests."""

import hashlib
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from bagwise.files.json_files import canonical
from bagwise.files.records import Record, to_plain
from bagwise.privacy.mechanisms import Mechanism, mechanisms_from_json

SCHEMA: Final = "bagwise-ledger/1"

ChosenBy = Literal["all", "public"]
"""Which rows a request was about: all of the data set, or some, chosen by what is public."""

Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Terms(Record, frozen=True):
    """What a ledger is about; never changed.

    Attributes
    ----------
    dataset : str
        What the custodian calls the data.
    unit : str or None
        The column whose values are protected together.
    row_id : str or None
        Without a unit: the column that tells rows apart.
    epsilon, delta : float
        What all charges may cost together.
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
        Also in the certificate of what was made.
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
        What it was for and who gets it, as the custodian said; not written if nothing was said.
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
    """Return the digest of what is written, over the digest of the entry before it."""
    chained = b"" if before is None else before.encode("ascii") + b"\n"
    return hashlib.sha256(chained + canonical(to_plain(record))).hexdigest()
