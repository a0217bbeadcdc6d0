"""What is promised, in words and in numbers that follow from the recorded events."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from bagwise._version import __version__
from bagwise.errors import CertificateError, shielded
from bagwise.privacy.accounting import total_delta, total_epsilon
from bagwise.privacy.events import Event, event_from_json, event_to_json
from bagwise.table import Bounds

SCHEMA = "bagwise-certificate/1"

_NOT_PROTECTED = (
    "Not protected: features, ids, the number of rows, which rows share a bag, and several rows of "
    "one person together. The protected unit is one row's label."
)


@dataclass(frozen=True)
class Certificate:
    """The privacy statement of a release.

    Attributes
    ----------
    epsilon, delta : float or None
        What was asked for and is delivered; None when nothing is promised.
    bounds : (float, float) or None
        Public label range; labels outside were clipped to it.
    events : tuple of Event
        Everything that looked at a label on its way out.
    smallest_bag : int
        Rows in the smallest bag.
    noise_source : str
        Where the noise came from.
    remarks : tuple of str
        What else a reader should know.
    software : str
        What made the release.
    """

    epsilon: float | None
    delta: float | None
    bounds: Bounds | None
    events: tuple[Event, ...]
    smallest_bag: int
    noise_source: str
    remarks: tuple[str, ...] = ()
    software: str = f"bagwise {__version__}"

    @property
    def is_private(self) -> bool:
        """Whether anything is promised."""
        return self.epsilon is not None

    @property
    def headline(self) -> str:
        """The promise in one line."""
        if self.epsilon is None or self.delta is None:
            return "NOT PRIVATE"
        return f"({exact(self.epsilon)}, {exact(self.delta)})-label-DP"

    @property
    def statement(self) -> tuple[str, ...]:
        """The promise in plain words."""
        if self.epsilon is None or self.delta is None:
            promise: tuple[str, ...] = (
                "NOT PRIVATE. Bag labels carry no noise; together with what a reader knows or "
                "guesses about the other rows of a bag they can show a single row's label.",
            )
        else:
            promise = (
                f"Whatever a reader knows beforehand, changing one row's label to any other value "
                f"in the bounds changes the probability of any outcome by at most a factor of "
                f"exp({exact(self.epsilon)}) = {math.exp(min(self.epsilon, 700)):.4g} and an "
                f"addition of {exact(self.delta)}.",
                _NOT_PROTECTED,
            )
        return (*promise, *self.remarks)

    def check(self) -> None:
        """Recompute the totals from the events; raise CertificateError if they promise too much."""
        if self.epsilon is None or self.delta is None:
            if self.epsilon is not None or self.delta is not None or self.events:
                raise CertificateError("the certificate contradicts itself about being private.")
            return
        if not self.events or self.bounds is None:
            raise CertificateError("the certificate promises privacy without an event or bounds.")
        low, high = self.bounds
        for event in self.events:
            values = (event.sensitivity, event.noise_scale, event.grid_step)
            if not all(math.isfinite(value) and value > 0 for value in values):
                raise CertificateError(f"event {event.kind!r} has impossible parameters.")
            if not math.isclose(event.sensitivity, high - low, rel_tol=1e-9):
                raise CertificateError(f"event {event.kind!r} does not fit the bounds.")
        if not total_delta(self.events, self.epsilon) <= self.delta:
            true_epsilon = total_epsilon(self.events, self.delta)
            raise CertificateError(
                f"the certificate claims epsilon {exact(self.epsilon)} at delta "
                f"{exact(self.delta)}, but its events give {exact(true_epsilon)}."
            )

    def within(self, *, max_epsilon: float | None = None, max_delta: float | None = None) -> bool:
        """Tell whether the release spends no more than this; a limit that is not given is none.

        With both limits the question is asked of the whole curve: a release made for another pair
        (epsilon, delta) may still meet this one.
        """
        if max_epsilon is None and max_delta is None:
            return True
        if self.epsilon is None or self.delta is None:
            return False
        if max_epsilon is not None and max_delta is not None:
            return total_delta(self.events, max_epsilon) <= max_delta
        if max_epsilon is not None:
            return self.epsilon <= max_epsilon
        return max_delta is not None and self.delta <= max_delta

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values: words first, then numbers."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "statement": list(self.statement),
            "private": self.is_private,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbouring": "replace one row's label by any value within the bounds",
            "bounds": None if self.bounds is None else list(self.bounds),
            "smallest_bag": self.smallest_bag,
            "events": [event_to_json(event) for event in self.events],
            "noise_source": self.noise_source,
            "remarks": list(self.remarks),
            "software": self.software,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Self:
        """Read a certificate back; its words must be the ones its numbers produce."""
        if entry.get("schema") != SCHEMA:
            raise CertificateError(
                f"the certificate has schema {entry.get('schema')!r}; this version reads {SCHEMA}."
            )
        certificate = shielded(
            lambda: cls(
                epsilon=_optional_float(entry["epsilon"]),
                delta=_optional_float(entry["delta"]),
                bounds=_optional_pair(entry["bounds"]),
                events=tuple(event_from_json(event) for event in entry["events"]),
                smallest_bag=int(entry["smallest_bag"]),
                noise_source=str(entry["noise_source"]),
                remarks=tuple(str(remark) for remark in entry["remarks"]),
                software=str(entry["software"]),
            ),
            lambda _: CertificateError(
                "the certificate is damaged: a field is missing or malformed."
            ),
        )
        if certificate.to_json() != dict(entry):
            raise CertificateError("the certificate's words do not match its numbers.")
        return certificate

    def text(self) -> str:
        """Return the certificate for reading."""
        return "\n".join([self.headline, *self.statement])


def exact(value: float) -> str:
    """Write a number so that it reads back as the same one: rounding would promise too much.

    >>> exact(1.0), exact(1e-05), exact(1.0000004)
    ('1', '1e-05', '1.0000004')
    """
    return repr(float(value)).removesuffix(".0")


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)


def _optional_pair(values: Sequence[Any] | None) -> Bounds | None:
    if values is None:
        return None
    low, high = values
    return float(low), float(high)
