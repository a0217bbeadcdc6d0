"""The name of one act of spending: what a certificate and a ledger call it."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from secrets import token_hex

from bagwise.errors import CertificateError

LONGEST_NAME = 100
"""Characters of the name of a data set."""


@dataclass(frozen=True)
class Mark:
    """Which, when, and of which data.

    Attributes
    ----------
    id : str
        32 hexadecimal digits, drawn at random; in a ledger the id of the charge.
    date : str
        The day, in UTC, as YYYY-MM-DD.
    dataset : str or None
        What the custodian calls the data; None without a ledger.
    """

    id: str
    date: str
    dataset: str | None = None

    @classmethod
    def new(cls, dataset: str | None = None) -> "Mark":
        """Return a mark of today with an id of its own.

        >>> Mark.new("rents").check()
        """
        return cls(token_hex(16), datetime.now(UTC).date().isoformat(), dataset)

    def check(self) -> None:
        """Refuse a mark with room for anything but an id, a day and a name."""
        if not re.fullmatch("[0-9a-f]{32}", self.id):
            raise CertificateError("the certificate's id is not 32 hexadecimal digits.")
        if not _is_day(self.date):
            raise CertificateError("the certificate's date is not a day.")
        if self.dataset is not None and not is_name(self.dataset):
            raise CertificateError("the certificate's data set has an impossible name.")


def is_name(name: object) -> bool:
    """Tell whether a data set may be called so: one line of printable characters, not too long."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_NAME
        and name.isprintable()
        and name == name.strip()
    )


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
