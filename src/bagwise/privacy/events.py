"""What was done to the labels, as frozen records. Nothing here knows what it costs.

The meaning of an event never changes once released: a certificate written today must be read the
same way in years. A different mechanism is a new record with a new `kind`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from bagwise.errors import CertificateError


@dataclass(frozen=True)
class GaussianBagMeans:
    """Gaussian noise of one standard deviation on the label sum of every bag, then divided by size.

    Attributes
    ----------
    sensitivity : float
        How far one row's label can move its bag's sum: the width of the bounds, exactly, since
        every label is first rounded to a whole number of `grid_step`.
    noise_scale : float
        Standard deviation of the noise on a sum, in label units.
    grid_step : float
        Sums and noise are whole multiples of this: the noise is a discrete Gaussian.
    """

    kind: ClassVar[str] = "gaussian-bag-means"

    sensitivity: float
    noise_scale: float
    grid_step: float

    def noise_sd(self, size: Any) -> Any:
        """Return the standard deviation of the noise on the mean of `size` rows."""
        return self.noise_scale / size


Event = GaussianBagMeans

EVENTS: dict[str, type[Event]] = {event.kind: event for event in (GaussianBagMeans,)}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain values."""
    return {"kind": event.kind, **asdict(event)}


def event_from_json(entry: Mapping[str, Any]) -> Event:
    """Read an event back; refuse kinds and fields that this version does not know."""
    known = EVENTS.get(str(entry.get("kind")))
    if known is None:
        raise CertificateError(
            f"unknown event kind {entry.get('kind')!r}: made by another version."
        )
    values = {key: value for key, value in entry.items() if key != "kind"}
    names = {field.name for field in fields(known)}
    if set(values) != names or not all(_is_number(value) for value in values.values()):
        raise CertificateError(f"event {known.kind!r} needs exactly the numbers {sorted(names)}.")
    return known(**{name: float(value) for name, value in values.items()})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
