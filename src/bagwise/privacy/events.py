"""What was done to the labels, as frozen records. Nothing here knows what it costs.

The meaning of an event never changes once released: a certificate written today must be read the
same way in years. A different mechanism is a new record with a new `kind`.

All noise is on whole multiples of a public grid, so that `sensitivity` and `noise_scale` are whole
numbers of `grid_step`. `sensitivity` is how far the hidden value can move, in L2 for Gaussian and
in L1 for Laplace noise, when the labels of one protected unit are replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from bagwise.errors import CertificateError

LABEL_STEPS = 2**18
"""Whole steps between the bounds. Rounding a label moves it by 2e-6 of the range at most, far below
the noise of any meaningful epsilon, and sums of 2**44 labels still fit 64 bits."""

LOSS_STEPS = 2**24
"""Whole steps between no loss and the largest. Finer than labels, since the squared loss of a good
model is a small part of the largest, and sums of 2**38 losses still fit 64 bits."""


MOST_EVENTS = 100
"""Events that a certificate may list. A release has a handful."""

MOST_SIZES = 10_000
"""Sizes of bags that an event may list. So many different ones take fifty million rows."""

LARGEST_COUNT = 2**48
"""Rows, classes or bag sizes that an event may name."""

LARGEST_STEPS = 2**62
"""Grid steps that a sensitivity or a scale may have: noise is drawn on 64-bit integers."""


@dataclass(frozen=True)
class _OneScale:
    """Noise of one standard deviation, or one Laplace scale, on everything that is hidden."""

    sensitivity: float
    noise_scale: float
    grid_step: float


@dataclass(frozen=True)
class GaussianLabels(_OneScale):
    """Gaussian noise on every label; the noisy labels then decide which rows share a bag."""

    kind: ClassVar[str] = "gaussian-labels"


@dataclass(frozen=True)
class GaussianModel(_OneScale):
    """Gaussian noise on the statistics of a linear model; its coefficients are published."""

    kind: ClassVar[str] = "gaussian-model"


@dataclass(frozen=True)
class GaussianBagMeans(_OneScale):
    """Gaussian noise of one scale on the label sum of every bag, then divided by its size."""

    kind: ClassVar[str] = "gaussian-bag-means"


@dataclass(frozen=True)
class LaplaceBagMeans(_OneScale):
    """Laplace noise of one scale on the label sum of every bag, then divided by its size."""

    kind: ClassVar[str] = "laplace-bag-means"


@dataclass(frozen=True)
class LaplaceMeanLoss(_OneScale):
    """Laplace noise on the summed losses of a model on rows, then divided by their number.

    All three numbers are in units of the loss. `LOSS_STEPS` grid steps are the largest of a row.
    """

    kind: ClassVar[str] = "laplace-mean-loss"


@dataclass(frozen=True)
class PickedLabels:
    """One label of each bag, drawn in secret, plus Gaussian noise that depends on the bag's size.

    Attributes
    ----------
    scales : tuple of (size, noise_scale)
        The noise of a bag of each size that occurs.
    rows : int
        Rows of a protected unit; more than one is accounted for by the bound for groups.
    """

    kind: ClassVar[str] = "picked-labels"

    sensitivity: float
    scales: tuple[tuple[int, float], ...]
    grid_step: float
    rows: int = 1


@dataclass(frozen=True)
class RandomisedPicks:
    """The class of one row of each bag, drawn in secret, kept by chance or replaced by another.

    Attributes
    ----------
    classes : int
        Number of classes; a class that is not kept becomes each of the others alike.
    keeps : tuple of (size, probability)
        The chance of keeping the class, for each size of bag that occurs.
    rows : int
        Rows of a protected unit.
    """

    kind: ClassVar[str] = "randomised-picks"

    classes: int
    keeps: tuple[tuple[int, float], ...]
    rows: int = 1


@dataclass(frozen=True)
class NoisyChoice:
    """Candidates compared with noisy counts of labels, and only one of them told."""

    kind: ClassVar[str] = "noisy-choice"

    epsilon: float  # without a delta
    rows: int = 1  # of a protected unit


Event = (
    GaussianLabels
    | GaussianModel
    | GaussianBagMeans
    | LaplaceBagMeans
    | LaplaceMeanLoss
    | PickedLabels
    | RandomisedPicks
    | NoisyChoice
)

EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        GaussianLabels,
        GaussianModel,
        GaussianBagMeans,
        LaplaceBagMeans,
        LaplaceMeanLoss,
        PickedLabels,
        RandomisedPicks,
        NoisyChoice,
    )
}


def event_to_json(event: Event) -> dict[str, Any]:
    """Return an event as plain values."""
    values = {name: _plain(value) for name, value in asdict(event).items()}
    return {"kind": event.kind, **values}


def _plain(value: Any) -> Any:
    return [list(pair) for pair in value] if isinstance(value, tuple) else value


def events_from_json(entries: Sequence[Mapping[str, Any]]) -> tuple[Event, ...]:
    """Read events back, but no more than can be accounted for in no time."""
    if not isinstance(entries, list):
        raise CertificateError("the events of a certificate are a list.")
    if len(entries) > MOST_EVENTS:
        raise CertificateError(
            f"a certificate has at most {MOST_EVENTS} events, not {len(entries)}."
        )
    return tuple(event_from_json(entry) for entry in entries)


def event_from_json(entry: Mapping[str, Any]) -> Event:
    """Read an event back; refuse kinds and fields that this version does not know."""
    known = EVENTS.get(str(entry.get("kind")))
    if known is None:
        raise CertificateError(
            f"unknown event kind {entry.get('kind')!r}: made by another version."
        )
    values = {key: value for key, value in entry.items() if key != "kind"}
    names = {field.name for field in fields(known)}
    if set(values) != names:
        raise CertificateError(f"event {known.kind!r} needs exactly {sorted(names)}.")
    return known(**{name: _read(name, value) for name, value in values.items()})


def _read(name: str, value: Any) -> Any:
    if name in ("scales", "keeps"):
        if not isinstance(value, list) or not all(_is_pair(pair) for pair in value):
            raise CertificateError(f"the {name} of picked labels are pairs of size and number.")
        if len(value) > MOST_SIZES:
            raise CertificateError(f"an event lists {len(value)} sizes; {MOST_SIZES} are read.")
        return tuple((int(size), float(number)) for size, number in value)
    if not _is_number(value):
        raise CertificateError(f"{name} of an event must be a number.")
    return int(value) if name in ("rows", "classes") else float(value)


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(_is_number(value) for value in pair)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
