"""What is promised, in words and in numbers that follow from the recorded events."""

import importlib.resources
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

from bagwise._printable import printable
from bagwise._version import SOFTWARE, SOFTWARE_PATTERN
from bagwise.data.labels import Bounds, check_bounds
from bagwise.errors import BoundsError, CertificateError, MissingExtraError, shielded
from bagwise.files.records import closed_schemas
from bagwise.privacy.accounting import (
    group_epsilon,
    privacy_curve,
    total_delta,
    total_epsilon,
)
from bagwise.privacy.circumstances import (
    Circumstance,
    circumstances_from_json,
    circumstances_to_json,
    exact,
)
from bagwise.privacy.curves import MEANINGLESS_EPSILON
from bagwise.privacy.mechanisms import (
    MECHANISMS,
    Mechanism,
    is_known,
    mechanism_to_json,
    mechanisms_from_json,
)
from bagwise.rng import SecureNoise, SimulatedNoise

SCHEMA = "bagwise-certificate/2"

NOT_PRIVATE = "NOT PRIVATE"
"""The headline of a certificate that promises nothing."""

_NUMBER = r"[0-9.e+-]{1,30}"
HEADLINE_PATTERN = rf"^(NOT PRIVATE|\({_NUMBER}, {_NUMBER}\)-label-DP)\Z"

GROUPS = (2, 5, 10)

_ROW_UNIT = "one row's label"


@dataclass(frozen=True)
class Certificate:
    """The privacy statement of a release.

    Attributes
    ----------
    epsilon, delta : float or None
        What is delivered; None when nothing is promised.
    bounds : (float, float) or None
        Public label range; labels outside were clipped to it.
    events : tuple of Mechanism
        Everything that looked at a label on its way out.
    smallest_bag : int or None
        Rows in the smallest bag; None when there are no bags.
    noise_source : str
        Where the noise came from.
    unit : str or None
        The column whose values share protection; None protects each row on its own.
    unit_rows : int
        Rows of the unit that has the most; 1 without a unit.
    circumstances : tuple of Circumstance
        What else a reader should know; `remarks` has it in words.
    covers : str or None
        SHA-256 of what the certificate belongs to, where both are in one file.
    software : str
        What made the release.
    asked_epsilon, asked_delta : float or None
        What was asked for, where less is spent; None: what is delivered.
    """

    epsilon: float | None
    delta: float | None
    bounds: Bounds | None
    events: tuple[Mechanism, ...]
    smallest_bag: int | None
    noise_source: str
    unit: str | None = None
    unit_rows: int = 1
    circumstances: tuple[Circumstance, ...] = ()
    covers: str | None = None
    software: str = SOFTWARE
    asked_epsilon: float | None = None
    asked_delta: float | None = None

    def __post_init__(self) -> None:
        # One way to say that what was asked for is delivered, so that equal ones compare as equal.
        if self.asked_epsilon == self.epsilon:
            object.__setattr__(self, "asked_epsilon", None)
        if self.asked_delta == self.delta:
            object.__setattr__(self, "asked_delta", None)

    @property
    def asked(self) -> tuple[float, float] | None:
        """The epsilon and delta that were asked for; None when nothing is promised."""
        if self.epsilon is None or self.delta is None:
            return None
        return (
            self.epsilon if self.asked_epsilon is None else self.asked_epsilon,
            self.delta if self.asked_delta is None else self.asked_delta,
        )

    @property
    def spends_less(self) -> str | None:
        """In words what was asked for, where less is spent."""
        if self.asked is None or self.asked == (self.epsilon, self.delta):
            return None
        epsilon, delta = self.asked
        return (
            f"Asked for was epsilon {exact(epsilon)} with delta {exact(delta)}; what is promised "
            "is all that was spent of it."
        )

    @property
    def is_private(self) -> bool:
        """Whether anything is promised."""
        return self.epsilon is not None

    @property
    def headline(self) -> str:
        """The promise in one line."""
        if self.epsilon is None or self.delta is None:
            return NOT_PRIVATE
        return f"({exact(self.epsilon)}, {exact(self.delta)})-label-DP"

    @property
    def protected(self) -> str:
        """What is protected, in words."""
        if self.unit is None:
            return _ROW_UNIT
        most = "one row each" if self.unit_rows == 1 else f"at most {self.unit_rows} rows"
        return f"all labels of the rows that share a value of {self.unit!r} ({most})"

    @property
    def _where(self) -> str:
        return "" if self.bounds is None else " within the bounds"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else a reader should know, in words."""
        return tuple(circumstance.text(self.events) for circumstance in self.circumstances)

    @property
    def statement(self) -> tuple[str, ...]:
        """The promise in plain words."""
        if self.epsilon is None or self.delta is None:
            shown = (
                "about the other rows, this can show a single row's label."
                if self.smallest_bag is None
                else "about the other rows of a bag, bag labels can show a single row's label."
            )
            promise: tuple[str, ...] = (
                "NOT PRIVATE. Nothing is promised: together with what a reader knows or guesses "
                + shown,
            )
        else:
            promise = (
                f"Whatever a reader knows beforehand, replacing {self.protected} by anything else"
                f"{self._where} changes the probability of any outcome by at most a factor "
                f"of exp({exact(self.epsilon)}) = {math.exp(min(self.epsilon, 700)):.4g} and an "
                f"addition of {exact(self.delta)}.",
                "Not protected: features, ids, the number of rows"
                + ("." if self.smallest_bag is None else ", and which rows share a bag.")
                + ("" if self.unit else " Several rows of one person are protected one by one."),
                *((less,) if (less := self.spends_less) else ()),
            )
        return (*promise, *self.remarks)

    def curve(self) -> list[tuple[float, float]]:
        """Return (epsilon, delta) at a dozen points; empty when there is no noise."""
        return privacy_curve(self.events) if self.events else []

    def group(self) -> dict[int, float]:
        """Return the epsilon for the labels of 2, 5 and 10 units together, at the same delta."""
        if self.delta is None:
            return {}
        return {size: group_epsilon(self.events, self.delta, size) for size in GROUPS}

    def _check_numbers(self) -> None:
        """Refuse numbers that no mechanism has, before anything is computed with them."""
        if self.bounds is not None:
            try:
                check_bounds(self.bounds)
            except BoundsError as error:
                raise CertificateError(f"the certificate has impossible bounds: {error}") from None
        possible = self.epsilon is None or 0 < self.epsilon <= MEANINGLESS_EPSILON
        if not possible or not (self.delta is None or 0 <= self.delta < 1):
            raise CertificateError("the certificate names an impossible epsilon or delta.")
        if self.asked is None:
            if not self.asked_epsilon is self.asked_delta is None:
                raise CertificateError("the certificate was asked for privacy and promises none.")
            return
        epsilon, delta = self.asked
        if not (0 < epsilon <= MEANINGLESS_EPSILON and 0 <= delta < 1):
            raise CertificateError("the certificate was asked for an impossible epsilon or delta.")
        if (
            self.epsilon is None
            or self.delta is None
            or epsilon < self.epsilon
            or delta < self.delta
        ):
            raise CertificateError("the certificate promises less than what it was asked for.")

    def check(self) -> None:
        """Recompute the totals from the events; raise CertificateError if they promise too much."""
        self._check_numbers()
        self._check_facts()
        for event in self.events:
            if not is_known(event):  # also where nothing is promised, and nobody adds it up
                raise CertificateError(f"event {type(event).__name__} is not registered.")
            event.check(self.bounds)
        self._check_units()
        if (self.epsilon is None) != (self.delta is None):
            raise CertificateError("the certificate contradicts itself about being private.")
        if self.epsilon is None or self.delta is None:
            known = (SecureNoise.name, SimulatedNoise.name) if self.events else ("none",)
            if self.noise_source not in known:
                raise CertificateError("the certificate's noise comes from a source nobody knows.")
            return
        if not self.events:
            raise CertificateError("the certificate promises privacy without an event.")
        if self.noise_source != SecureNoise.name:
            raise CertificateError("the certificate promises privacy without secret noise.")
        if not total_delta(self.events, self.epsilon) <= self.delta:
            true_epsilon = total_epsilon(self.events, self.delta)
            raise CertificateError(
                f"the certificate claims epsilon {exact(self.epsilon)} at delta "
                f"{exact(self.delta)}, but its events give {exact(true_epsilon)}."
            )

    def _check_facts(self) -> None:
        """Refuse what no release of ours would say, whatever it promises."""
        if not re.fullmatch(SOFTWARE_PATTERN, self.software):
            raise CertificateError("the certificate names software that is not a version of ours.")
        if self.unit_rows < 1 or (self.unit is None and self.unit_rows != 1):
            raise CertificateError("the certificate contradicts itself about units.")
        if self.covers is not None and not re.fullmatch("[0-9a-f]{64}", self.covers):
            raise CertificateError("what the certificate covers is not named by a SHA-256.")

    def _check_units(self) -> None:
        """Refuse noise that was set for fewer rows than a unit has."""
        # Picks bring the bound for groups, which covers what was spent before them as well.
        grouped = any(event.hides == "bag picks" for event in self.events)
        for event in self.events:
            covered = grouped and event.hides in ("labels", "model")
            if not covered and not event.allows_units(self.unit_rows, self.bounds):
                raise CertificateError(
                    f"event {event.kind!r} does not allow for units of {self.unit_rows} rows."
                )

    def within(
        self,
        *,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
        n_rows: int | None = None,
    ) -> bool:
        """Tell whether the release spends no more than this; a limit that is not given is none.

        With both limits the question is asked of the whole curve: a release made for another pair
        (epsilon, delta) may still meet this one. With `max_epsilon` alone, delta must be at most
        one in `n_rows`, where that is given: a larger one may show a label whatever epsilon says.
        """
        if max_epsilon is None and max_delta is None:
            return True
        if self.epsilon is None or self.delta is None:
            return False
        if max_epsilon is not None and max_delta is not None:
            return total_delta(self.events, max_epsilon) <= max_delta
        if max_epsilon is not None:
            meaningful = n_rows is None or self.delta <= 1 / n_rows
            return meaningful and self.epsilon <= max_epsilon
        return max_delta is not None and self.delta <= max_delta

    def dp_events(self) -> list[Any]:
        """Return the events as those of Google's dp-accounting, for people who account with it.

        Its relation for the pick is add or remove, not replace: composed with scores, its total can
        fall short of the one here (see the theory page).
        """
        try:
            from dp_accounting import dp_event as google
        except ImportError:
            raise MissingExtraError("exporting events", "accounting") from None
        return [event for own in self.events for event in own.exported(google)]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values: words first, then numbers."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "statement": list(self.statement),
            "private": self.is_private,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "asked_epsilon": None if self.asked is None else self.asked[0],
            "asked_delta": None if self.asked is None else self.asked[1],
            "neighbouring": f"{self.protected} may be anything else{self._where}",
            "unit": self.unit,
            "unit_rows": self.unit_rows,
            "bounds": None if self.bounds is None else list(self.bounds),
            "smallest_bag": self.smallest_bag,
            "curve": [list(point) for point in self.curve()],
            "group_epsilon": {
                str(size): (epsilon if math.isfinite(epsilon) else None)
                for size, epsilon in self.group().items()
            },
            "events": [mechanism_to_json(event) for event in self.events],
            "noise_source": self.noise_source,
            "circumstances": circumstances_to_json(self.circumstances),
            "remarks": list(self.remarks),
            "covers": self.covers,
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
                events=mechanisms_from_json(entry["events"]),
                smallest_bag=None if (k := entry["smallest_bag"]) is None else int(k),
                noise_source=str(entry["noise_source"]),
                unit=_optional_text(entry["unit"]),
                unit_rows=int(entry["unit_rows"]),
                circumstances=circumstances_from_json(entry["circumstances"]),
                covers=_optional_text(entry["covers"]),
                software=str(entry["software"]),
                asked_epsilon=_optional_float(entry["asked_epsilon"]),
                asked_delta=_optional_float(entry["asked_delta"]),
            ),
            lambda _: CertificateError(
                "the certificate is damaged: a field is missing or malformed."
            ),
        )
        certificate.check()
        if not _same(certificate.to_json(), dict(entry)):
            raise CertificateError("the certificate's words do not match its numbers.")
        return certificate

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of a certificate file.

        The kinds of events and circumstances come from their records, so that none is forgotten.
        """
        text = importlib.resources.files("bagwise.privacy").joinpath("certificate.schema.json")
        schema: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
        kinds = {"events": MECHANISMS.values(), "circumstances": get_args(Circumstance)}
        for name, records in kinds.items():
            schema["properties"][name]["items"] = {"oneOf": closed_schemas(records)}
        return schema

    def text(self) -> str:
        """Return the certificate for reading."""
        lines = [self.headline, *self.statement]
        if self.is_private:
            what = "rows" if self.unit is None else "units"
            groups = (f"{epsilon:.3g} for {size}" for size, epsilon in self.group().items())
            lines.append(f"Epsilon for several {what} together: {', '.join(groups)}.")
        return "\n".join(printable(line) for line in lines)


def promised_in(headline: str) -> tuple[float, float] | None:
    """Return the epsilon and delta of a headline; None if it promises nothing.

    >>> promised_in("(0.5, 1e-06)-label-DP"), promised_in("NOT PRIVATE")
    ((0.5, 1e-06), None)
    """
    found = re.match(rf"\(({_NUMBER}), ({_NUMBER})\)", headline)
    return (float(found[1]), float(found[2])) if found else None


def _same(mine: Any, theirs: Any) -> bool:
    """Compare JSON values; recomputed floats may differ in the last digits on another machine."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, dict):
        return list(mine) == list(theirs) and all(_same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, float):
        return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-300)
    return bool(mine == theirs)


def _optional_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)


def _optional_pair(values: Sequence[Any] | None) -> Bounds | None:
    if values is None:
        return None
    low, high = values
    return float(low), float(high)
