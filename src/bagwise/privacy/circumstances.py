"""Further statements of a certificate: the act of spending, and facts in fixed words.

Free text could carry labels out of a release that verifies. So a circumstance is a record with
numbers, its text is generated here, and readers of a certificate regenerate and compare it. And a
mark has no room for more than an id, a day and a name.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from secrets import token_hex
from typing import Annotated, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import asdict

from bagwise.errors import CertificateError
from bagwise.files.records import Record

LONGEST_NAME = 100
"""Characters of the name of a data set."""


def exact(value: float) -> str:
    """Write a number so that it reads back as the same one: rounding would promise too much.

    >>> exact(1.0), exact(1e-05), exact(1.0000004)
    ('1', '1e-05', '1.0000004')
    """
    return repr(float(value)).removesuffix(".0")


class Fact(Record, frozen=True, tag_field="kind"):
    """A fact about a release, stated in fixed words that name its fields."""

    words: ClassVar[str]

    @property
    def text(self) -> str:
        """The fact in words."""
        return self.words.format(**asdict(self))


class SimulatedNoise(Fact, frozen=True, tag="simulated-noise"):
    """The noise came from a seed."""

    words = "The noise is simulated from a seed: who knows it removes it."


class SortedByLabels(Fact, frozen=True, tag="sorted-by-labels"):
    """Bags were formed by sorting exact labels."""

    words = "Rows were put into bags by sorting their labels: membership alone tells the labels."


class KeptOrder(Fact, frozen=True, tag="kept-order"):
    """Rows were published in the order of the source."""

    words = (
        "Rows are in the order of the source table. If that order depends on the labels, it tells "
        "about them, and nothing here protects against that."
    )


class MissingLabels(Fact, frozen=True, tag="missing-labels"):
    """Rows without a label were left out."""

    words = (
        "Rows whose label is missing were left out; there were {n_rows}. That a label is missing "
        "is taken for public, and nothing here protects it."
    )

    n_rows: Annotated[int, Meta(ge=0, le=2**48)]


class MeanLoss(Fact, frozen=True, tag="mean-loss"):
    """The output is the mean loss of a model."""

    words = (
        "What is released is the mean {loss} error of a model on {n_rows} rows. Labels and "
        "predictions were clipped to the bounds, and one row counts {largest:g} at most."
    )

    loss: Literal["squared", "absolute"]
    n_rows: int
    largest: float


class EvaluatedModel(Fact, frozen=True, tag="evaluated-model"):
    """What the evaluated model itself had promised, if anything."""

    words = "Each evaluation of these labels spends its epsilon anew, and the epsilons add up."

    epsilon: float | None
    delta: float | None

    @property
    def text(self) -> str:
        """The fact in words."""
        if self.epsilon is None or self.delta is None:
            return (
                f"{self.words} What the model tells of labels that it was made from is not covered."
            )
        return (
            f"{self.words} If the model was made from these labels too, what it spent, epsilon "
            f"{exact(self.epsilon)} and delta {exact(self.delta)}, is added."
        )


Circumstance = (
    SimulatedNoise | SortedByLabels | KeptOrder | MissingLabels | MeanLoss | EvaluatedModel
)
"""What a certificate may state; kinds and fields unknown to this version are refused."""


@dataclass(frozen=True)
class Mark:
    """The mark of an act of spending: its id, its day and its data set.

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
        day = None
        if not re.fullmatch("[0-9a-f]{32}", self.id):
            raise CertificateError("the certificate's id is not 32 hexadecimal digits.")
        with suppress(ValueError):
            day = date.fromisoformat(self.date).isoformat()
        if day != self.date:
            raise CertificateError("the certificate's date is not a day.")
        if self.dataset is not None and not is_name(self.dataset):
            raise CertificateError("the certificate's data set has an impossible name.")


def is_name(name: object) -> bool:
    """Return whether a data set may have this name: one short line of printable characters."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_NAME
        and name.isprintable()
        and name == name.strip()
    )
