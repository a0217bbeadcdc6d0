"""Mechanisms: every way to look at a label, one file each, and one line in `MECHANISMS`.

Accountant, certificate and verification ask a mechanism by the names that `mechanism` says all of
them have. A kind that is not listed here is refused wherever it turns up.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from bagwise.errors import CertificateError
from bagwise.files.records import read_record, to_plain
from bagwise.privacy.mechanisms.bag_means import HidesBagMeans, MeansBudget
from bagwise.privacy.mechanisms.gaussian_bag_means import GaussianBagMeans
from bagwise.privacy.mechanisms.gaussian_labels import GaussianLabels
from bagwise.privacy.mechanisms.gaussian_model import GaussianModel
from bagwise.privacy.mechanisms.label_channel import LabelChannel
from bagwise.privacy.mechanisms.laplace_bag_means import LaplaceBagMeans
from bagwise.privacy.mechanisms.laplace_labels import LaplaceLabels
from bagwise.privacy.mechanisms.laplace_mean_loss import LaplaceMeanLoss
from bagwise.privacy.mechanisms.laplace_model import LaplaceModel
from bagwise.privacy.mechanisms.laplace_picks import LaplacePicks
from bagwise.privacy.mechanisms.mechanism import HidesBagLabels, Mechanism, kind_of
from bagwise.privacy.mechanisms.noisy_choice import NoisyChoice, NoisyLimit, NoisyRange
from bagwise.privacy.mechanisms.picked_labels import PickedLabels
from bagwise.privacy.mechanisms.picks import HidesPicks
from bagwise.privacy.mechanisms.randomised_picks import RandomisedPicks
from bagwise.privacy.mechanisms.staircase_bag_means import StaircaseBagMeans
from bagwise.privacy.mechanisms.unbiased_labels import UnbiasedLabels

MECHANISMS: dict[str, type[Mechanism]] = {
    kind_of(mechanism): mechanism
    for mechanism in (
        GaussianLabels,
        GaussianModel,
        LaplaceLabels,
        LaplaceModel,
        GaussianBagMeans,
        LaplaceBagMeans,
        StaircaseBagMeans,
        LaplaceMeanLoss,
        UnbiasedLabels,
        PickedLabels,
        LaplacePicks,
        RandomisedPicks,
        NoisyChoice,
        NoisyRange,
        NoisyLimit,
    )
}

MOST_MECHANISMS = 10
"""Mechanisms that a certificate may list. A release has six at most."""


BeforeDraw = Callable[[tuple[Mechanism, ...]], None]
"""Called with all mechanisms of a request when the next step is to draw: whoever charges, does."""


def nothing_first(_events: tuple[Mechanism, ...]) -> None:
    """Charge nobody."""


def bag_means_mechanisms() -> dict[str, type[HidesBagMeans]]:
    """Return the kinds of noise for bag means, by name; the plainer one first."""
    found = [kind for kind in MECHANISMS.values() if kind.hides == "bag means"]
    return {kind.noise: kind for kind in cast(list[type[HidesBagMeans]], found)}


def is_known(mechanism: object) -> bool:
    """Tell whether a mechanism is registered: of others nobody has worked out what they cost."""
    return MECHANISMS.get(getattr(mechanism, "kind", "")) is type(mechanism)


def mechanism_to_json(mechanism: Mechanism) -> dict[str, Any]:
    """Return a mechanism as plain values, its kind first."""
    if not is_known(mechanism):
        raise CertificateError(f"event {type(mechanism).__name__} is not registered.")
    return to_plain(mechanism)


def mechanisms_from_json(entries: Any) -> tuple[Mechanism, ...]:
    """Read mechanisms back, but no more than can be accounted for in no time."""
    if not isinstance(entries, list):
        raise CertificateError("the events of a certificate are a list.")
    if len(entries) > MOST_MECHANISMS:
        raise CertificateError(
            f"a certificate has at most {MOST_MECHANISMS} events, not {len(entries)}."
        )
    return tuple(mechanism_from_json(entry) for entry in entries)


def mechanism_from_json(entry: Mapping[str, Any]) -> Mechanism:
    """Read a mechanism back; refuse kinds and fields that this version does not know."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    known = MECHANISMS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise CertificateError(f"unknown event kind {kind!r}: made by another version.")
    return read_record(known, entry, error=CertificateError, what=f"event {kind!r}")


__all__ = [
    "MECHANISMS",
    "BeforeDraw",
    "GaussianBagMeans",
    "GaussianLabels",
    "GaussianModel",
    "HidesBagLabels",
    "HidesBagMeans",
    "HidesPicks",
    "LabelChannel",
    "LaplaceBagMeans",
    "LaplaceLabels",
    "LaplaceMeanLoss",
    "LaplaceModel",
    "LaplacePicks",
    "MeansBudget",
    "Mechanism",
    "NoisyChoice",
    "NoisyLimit",
    "NoisyRange",
    "PickedLabels",
    "RandomisedPicks",
    "StaircaseBagMeans",
    "UnbiasedLabels",
    "bag_means_mechanisms",
    "is_known",
    "mechanism_from_json",
    "mechanism_to_json",
    "mechanisms_from_json",
    "nothing_first",
]
