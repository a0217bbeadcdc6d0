"""What is promised, in words and in numbers that follow from the recorded events."""

import importlib.resources
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from bagwise._version import __version__
from bagwise.errors import CertificateError, MissingExtraError, shielded
from bagwise.labels import Bounds
from bagwise.privacy.accounting import (
    group_epsilon,
    privacy_curve,
    pure_epsilon,
    total_delta,
    total_epsilon,
)
from bagwise.privacy.events import (
    LABEL_STEPS,
    LOSS_STEPS,
    Event,
    GaussianBagMeans,
    GaussianLabels,
    GaussianModel,
    LaplaceBagMeans,
    LaplaceMeanLoss,
    NoisyChoice,
    PickedLabels,
    RandomisedPicks,
    event_from_json,
    event_to_json,
)
from bagwise.rng import SecureNoise

SCHEMA = "bagwise-certificate/1"

NOT_PRIVATE = "NOT PRIVATE"
"""The headline of a certificate that promises nothing."""

GROUPS = (2, 5, 10)

_ROW_UNIT = "one row's label"

_OnGrid = (
    GaussianLabels
    | GaussianModel
    | GaussianBagMeans
    | LaplaceBagMeans
    | LaplaceMeanLoss
    | PickedLabels
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
    smallest_bag : int or None
        Rows in the smallest bag; None when there are no bags.
    noise_source : str
        Where the noise came from.
    unit : str or None
        The column whose values share protection; None protects each row on its own.
    remarks : tuple of str
        What else a reader should know.
    software : str
        What made the release.
    """

    epsilon: float | None
    delta: float | None
    bounds: Bounds | None
    events: tuple[Event, ...]
    smallest_bag: int | None
    noise_source: str
    unit: str | None = None
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
            return NOT_PRIVATE
        return f"({exact(self.epsilon)}, {exact(self.delta)})-label-DP"

    @property
    def protected(self) -> str:
        """What is protected, in words."""
        if self.unit is None:
            return _ROW_UNIT
        return f"all labels of the rows that share a value of {self.unit!r}"

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
                f"Whatever a reader knows beforehand, replacing {self.protected} by anything else "
                f"within the bounds changes the probability of any outcome by at most a factor "
                f"of exp({exact(self.epsilon)}) = {math.exp(min(self.epsilon, 700)):.4g} and an "
                f"addition of {exact(self.delta)}.",
                "Not protected: features, ids, the number of rows"
                + ("." if self.smallest_bag is None else ", and which rows share a bag.")
                + ("" if self.unit else " Several rows of one person are protected one by one."),
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

    def check(self) -> None:
        """Recompute the totals from the events; raise CertificateError if they promise too much."""
        for event in self.events:
            self._check_event(event)
        if (self.epsilon is None) != (self.delta is None):
            raise CertificateError("the certificate contradicts itself about being private.")
        if self.epsilon is None or self.delta is None:
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

    def _check_event(self, event: Event) -> None:
        if isinstance(event, NoisyChoice | RandomisedPicks):
            if not _is_possible(event):
                raise CertificateError(f"event {event.kind!r} has impossible parameters.")
            return
        scales = (
            [scale for _, scale in event.scales]
            if isinstance(event, PickedLabels)
            else [event.noise_scale]
        )
        values = (event.sensitivity, event.grid_step, *scales)
        if not scales or not all(math.isfinite(value) and value > 0 for value in values):
            raise CertificateError(f"event {event.kind!r} has impossible parameters.")
        if isinstance(event, PickedLabels) and (event.rows < 1 or min(event.scales)[0] < 1):
            raise CertificateError(f"event {event.kind!r} has impossible parameters.")
        if self.bounds is None:
            raise CertificateError("the certificate has an event and no bounds.")
        width = self.bounds[1] - self.bounds[0]
        if not _fits_grid(event, width) or not all(
            _is_whole(value / event.grid_step) for value in (event.sensitivity, *scales)
        ):
            raise CertificateError(f"event {event.kind!r} is not on the grid of its bounds.")
        if not event.sensitivity >= _least_sensitivity(event, width) * (1 - 1e-12):
            raise CertificateError(f"event {event.kind!r} does not fit the bounds.")

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

    def dp_events(self) -> list[Any]:
        """Return the events as those of Google's dp-accounting, for people who account with it.

        Its relation for the pick is add or remove, not replace: composed with scores, its total can
        fall short of the one here (see the theory page).
        """
        try:
            from dp_accounting import dp_event as google
        except ImportError:
            raise MissingExtraError("exporting events", "accounting") from None
        return [event for own in self.events for event in _exported(own, google)]

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain values: words first, then numbers."""
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "statement": list(self.statement),
            "private": self.is_private,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbouring": f"{self.protected} may be anything else within the bounds",
            "unit": self.unit,
            "bounds": None if self.bounds is None else list(self.bounds),
            "smallest_bag": self.smallest_bag,
            "curve": [list(point) for point in self.curve()],
            "group_epsilon": {
                str(size): (epsilon if math.isfinite(epsilon) else None)
                for size, epsilon in self.group().items()
            },
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
                smallest_bag=None if (k := entry["smallest_bag"]) is None else int(k),
                noise_source=str(entry["noise_source"]),
                unit=None if entry["unit"] is None else str(entry["unit"]),
                remarks=tuple(str(remark) for remark in entry["remarks"]),
                software=str(entry["software"]),
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
        """Return the JSON Schema of a certificate file."""
        text = importlib.resources.files("bagwise.privacy").joinpath("certificate.schema.json")
        schema: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
        return schema

    def text(self) -> str:
        """Return the certificate for reading."""
        lines = [self.headline, *self.statement]
        if self.is_private:
            groups = (f"{size}: {epsilon:.3g}" for size, epsilon in self.group().items())
            lines.append(f"Epsilon for several units together: {', '.join(groups)}.")
        return "\n".join(lines)


def exact(value: float) -> str:
    """Write a number so that it reads back as the same one: rounding would promise too much.

    >>> exact(1.0), exact(1e-05), exact(1.0000004)
    ('1', '1e-05', '1.0000004')
    """
    return repr(float(value)).removesuffix(".0")


def _exported(event: Event, google: Any) -> list[Any]:
    if isinstance(event, PickedLabels):
        return [
            google.MixtureOfGaussiansDpEvent(
                scale / event.sensitivity, [0.0, 1.0], [1 - 1 / size, 1 / size]
            )
            for size, scale in event.scales
        ]
    if isinstance(event, NoisyChoice | RandomisedPicks):
        # Randomised response on one bit is the worst mechanism of a pure epsilon.
        return [google.RandomizedResponseDpEvent(2 / (1 + math.exp(pure_epsilon(event))), 2)]
    noise = event.noise_scale / event.sensitivity
    if isinstance(event, LaplaceBagMeans | LaplaceMeanLoss):
        return [google.LaplaceDpEvent(noise)]
    return [google.GaussianDpEvent(noise)]


def _fits_grid(event: _OnGrid, width: float) -> bool:
    if isinstance(event, LaplaceMeanLoss):
        # The largest loss may have been set anywhere below the one that the bounds allow.
        return event.grid_step * LOSS_STEPS <= max(width, width**2) * (1 + 1e-9)
    return math.isclose(event.grid_step, width / LABEL_STEPS, rel_tol=1e-9)


def _least_sensitivity(event: _OnGrid, width: float) -> float:
    """Return how far one label moves what is hidden at least; more rows, or rounding, move more."""
    if isinstance(event, LaplaceMeanLoss):
        # A prediction has a bound at least half the width away: a quarter of the largest square.
        return event.grid_step * LOSS_STEPS / 4
    return width


def _is_whole(steps: float) -> bool:
    return steps >= 0.5 and math.isclose(steps, round(steps), rel_tol=1e-9)


def _is_possible(event: NoisyChoice | RandomisedPicks) -> bool:
    if isinstance(event, NoisyChoice):
        return math.isfinite(event.epsilon) and event.epsilon > 0 and event.rows >= 1
    usual = event.classes >= 2 and event.rows >= 1 and bool(event.keeps)
    return usual and all(size >= 1 and 1 / event.classes <= p < 1 for size, p in event.keeps)


def _same(mine: Any, theirs: Any) -> bool:
    """Compare JSON values; recomputed floats may differ in the last digits on another machine."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(_same(mine[k], theirs[k]) for k in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, float) and isinstance(theirs, int | float):
        return math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-300)
    return bool(mine == theirs)


def _optional_float(value: Any) -> float | None:
    return None if value is None else float(value)


def _optional_pair(values: Sequence[Any] | None) -> Bounds | None:
    if values is None:
        return None
    low, high = values
    return float(low), float(high)
