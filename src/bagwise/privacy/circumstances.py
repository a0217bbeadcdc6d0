"""What else a reader of a certificate should know: facts with words of ours, never free text.

A text that anybody may write could carry labels out of a release that verifies. So a circumstance
is a record with numbers, its words are made here, and whoever reads a certificate makes them again
and compares.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from bagwise.errors import CertificateError
from bagwise.files.records import Record, read_record
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.mechanisms import Mechanism


def exact(value: float) -> str:
    """Write a number so that it reads back as the same one: rounding would promise too much.

    >>> exact(1.0), exact(1e-05), exact(1.0000004)
    ('1', '1e-05', '1.0000004')
    """
    return repr(float(value)).removesuffix(".0")


class SimulatedNoise(Record, tag="simulated-noise", tag_field="kind", frozen=True):
    """The noise came from a seed."""

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        return "The noise is simulated from a seed: who knows it removes it."


class OtherRule(Record, tag="other-rule", tag_field="kind", frozen=True):
    """The noise was not set by the accountant, but by a rule that an experiment brought."""

    epsilon: float
    delta: float

    def text(self, events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words, with what that noise is really worth."""
        return (
            f"The noise was set by another rule for epsilon {exact(self.epsilon)} and delta "
            f"{exact(self.delta)}. At that delta its true epsilon is "
            f"{total_epsilon(events, self.delta):.6g}."
        )


class SortedByLabels(Record, tag="sorted-by-labels", tag_field="kind", frozen=True):
    """Bags were formed by sorting exact labels."""

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        return "Rows were put into bags by sorting their labels: membership alone tells the labels."


class KeptOrder(Record, tag="kept-order", tag_field="kind", frozen=True):
    """Rows left in the order of the source."""

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        return (
            "Rows are in the order of the source table. If that order depends on the labels, it "
            "tells about them, and nothing here protects against that."
        )


class MissingLabels(Record, tag="missing-labels", tag_field="kind", frozen=True):
    """Rows without a label were left out."""

    n_rows: Annotated[int, Meta(ge=0, le=2**48)]

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        return (
            f"Rows whose label is missing were left out; there were {self.n_rows}. That a label is "
            "missing is taken for public, and nothing here protects it."
        )


class MeanLoss(Record, tag="mean-loss", tag_field="kind", frozen=True):
    """What was released is the mean loss of a model."""

    loss: Literal["squared", "absolute"]
    n_rows: int
    largest: float

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        return (
            f"What is released is the mean {self.loss} error of a model on {self.n_rows} rows. "
            "Labels and predictions were clipped to the bounds, and one row counts "
            f"{self.largest:g} at most."
        )


class EvaluatedModel(Record, tag="evaluated-model", tag_field="kind", frozen=True):
    """What the evaluated model itself had promised, if anything."""

    epsilon: float | None
    delta: float | None

    def text(self, _events: Sequence[Mechanism]) -> str:
        """Return the circumstance in words."""
        again = "Each evaluation of these labels spends its epsilon anew, and the epsilons add up."
        if self.epsilon is None or self.delta is None:
            return f"{again} What the model tells of labels that it was made from is not covered."
        return (
            f"{again} If the model was made from these labels too, what it spent, epsilon "
            f"{exact(self.epsilon)} and delta {exact(self.delta)}, is added."
        )


Circumstance = (
    SimulatedNoise
    | OtherRule
    | SortedByLabels
    | KeptOrder
    | MissingLabels
    | MeanLoss
    | EvaluatedModel
)


def circumstances_from_json(entries: Any) -> tuple[Circumstance, ...]:
    """Read circumstances back; refuse kinds and fields that this version does not know."""
    return read_record(
        tuple[Circumstance, ...],
        entries,
        error=CertificateError,
        what="what the certificate remarks",
    )
