"""Checking a release without its labels: everything that can be seen from outside."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise import _release_files
from bagwise._types import FloatArray, IntArray
from bagwise.bagging import STRATEGIES
from bagwise.errors import ReleaseError, shielded
from bagwise.privacy.events import (
    Event,
    GaussianBagMeans,
    GaussianLabels,
    GaussianModel,
    LaplaceBagMeans,
    PickedLabels,
    RandomisedPicks,
)
from bagwise.privacy.noise import keep_chances

if TYPE_CHECKING:
    from bagwise.release import Release


@dataclass(frozen=True)
class Verification:
    """What `Release.verify` looked at and found in order."""

    headline: str
    epsilon: float | None
    delta: float | None
    checks: tuple[str, ...]
    digest: str | None

    @property
    def note(self) -> str:
        """What the checks do not show."""
        return (
            "Hashes show damage, not authorship: whoever edits a release can recompute them. "
            "Compare the digest with the custodian's through another channel."
        )

    def to_json(self) -> dict[str, Any]:
        """Return what was found as plain values."""
        return {**asdict(self), "note": self.note}


def verify_release(release: "Release") -> Verification:
    """Check everything in turn; raise at the first fault."""
    checks = []
    digest = None
    if release.path is not None:
        _check_manifest(release, _release_files.read_release(release.path).manifest)
        digest = _release_files.release_digest(release.path)
        checks.append("every file has the hash in the manifest, which describes this release")
    _check_columns(release)
    checks.append("no label column and no picked index among the instances")
    _check_bags(release)
    checks.append(
        f"every bag has at least {release.provenance['bag_size']} rows, no row is in two, "
        f"{int((~release.bags.in_bag).sum())} are left out"
    )
    _check_certificate(release)
    checks.append("the certificate's totals and the noise of each bag follow from its events")
    return Verification(
        headline=release.certificate.headline,
        epsilon=release.certificate.epsilon,
        delta=release.certificate.delta,
        checks=tuple(checks),
        digest=digest,
    )


def noise_per_bag(events: Sequence[Event], sizes: IntArray) -> FloatArray:
    """Return the standard deviation of the privacy noise on each bag's label."""
    noise = np.zeros(sizes.size)
    for event in events:
        if isinstance(event, GaussianBagMeans):
            noise = event.noise_scale / sizes
        elif isinstance(event, LaplaceBagMeans):
            noise = math.sqrt(2) * event.noise_scale / sizes
        elif isinstance(event, PickedLabels):
            scales = dict(event.scales)
            noise = np.array([scales.get(size, np.nan) for size in sizes.tolist()])
        elif isinstance(event, RandomisedPicks):
            keep = keep_chances(event, sizes)
            other = (1 - keep) / (event.classes - 1)
            # The variance depends on the class; the larger of the two is the safe one to weigh by.
            variance = np.maximum(keep * (1 - keep), other * (1 - other))
            noise = np.sqrt(variance) / (keep - other)
    return noise


def _check_manifest(release: "Release", manifest: Mapping[str, Any]) -> None:
    expected = {**release.manifest(), "software": manifest.get("software")}
    for key in sorted({*expected, *manifest} - {"files"}):
        if key not in manifest or key not in expected or manifest[key] != expected[key]:
            raise ReleaseError(f"the manifest's entry {key!r} does not describe this release.")


def _check_columns(release: "Release") -> None:
    key = release.provenance["id"]
    expected = [*([key] if key else []), *release.encoder.inputs]
    if release.instances.column_names != expected:
        raise ReleaseError("instances hold other columns than the encoder's features and the id.")
    if release.provenance["label"] in expected:
        raise ReleaseError(f"instances hold the label column {release.provenance['label']!r}.")


def _check_bags(release: "Release") -> None:
    if release.instances.num_rows != release.bags.n_rows:
        raise ReleaseError("the number of instances differs from the number of bag entries.")
    smallest, promised = int(release.bags.sizes.min()), release.provenance["bag_size"]
    if smallest < promised:
        raise ReleaseError(f"a bag has {smallest} rows where {promised} are promised.")
    width = () if release.classes is None else (len(release.classes),)
    expected = (release.bags.n_bags, *width)
    if release.labels.shape != expected or not np.isfinite(release.labels).all():
        raise ReleaseError("bag labels are missing or not finite.")


def _check_certificate(release: "Release") -> None:
    release.certificate.check()
    if release.certificate.smallest_bag != int(release.bags.sizes.min()):
        raise ReleaseError("the certificate names another smallest bag than there is.")
    described = noise_per_bag(release.certificate.events, release.bags.sizes)
    if not np.allclose(release.noise_sd, described, rtol=1e-9, atol=0.0):
        raise ReleaseError("the noise of the bags is not the one the certificate describes.")
    if (release.model is not None) != (release.provenance["scores"] == "model"):
        raise ReleaseError("scores.json and the scores that the manifest names do not agree.")
    if release.certificate.is_private:
        _check_bag_event(release)
        _check_scores(release)


def _check_bag_event(release: "Release") -> None:
    """Exactly one event must have hidden the bag labels, and be of their kind."""
    numeric = release.classes is None
    means: set[type] = {GaussianBagMeans, LaplaceBagMeans}
    fitting = (
        means if release.label_kind == "mean" else {PickedLabels if numeric else RandomisedPicks}
    )
    found = [
        e for e in release.certificate.events if type(e) in {*means, PickedLabels, RandomisedPicks}
    ]
    if len(found) != 1 or type(found[0]) not in fitting:
        raise ReleaseError("the certificate does not account for these bag labels.")
    if release.classes is not None:
        _check_class_event(release, found[0], len(release.classes))
    if isinstance(found[0], GaussianBagMeans | LaplaceBagMeans):
        _check_grid(release, found[0].grid_step)


def _check_class_event(release: "Release", event: Event, classes: int) -> None:
    """Refuse noise that does not allow for two shares, each between 0 and 1, that change."""
    fits = release.certificate.bounds == (0.0, 1.0)
    if isinstance(event, RandomisedPicks):
        fits = fits and event.classes == classes
    elif isinstance(event, GaussianBagMeans | LaplaceBagMeans):
        least = math.sqrt(2) if isinstance(event, GaussianBagMeans) else 2.0
        fits = fits and event.sensitivity >= least
    if not fits:
        raise ReleaseError("the certificate does not account for a label with these classes.")


def _check_grid(release: "Release", step: float) -> None:
    """Refuse labels whose sums are not whole numbers of steps, as far as doubles can tell."""
    low = release.certificate.bounds[0] if release.certificate.bounds else 0.0
    sizes = release.bags.sizes if release.classes is None else release.bags.sizes[:, None]
    steps = (release.labels - low) * sizes / step
    rounding = 8 * np.finfo(float).eps * (np.abs(release.labels) + abs(low)) * sizes / step
    sure = rounding < 0.01
    if np.any(np.abs(steps - np.rint(steps))[sure] > 0.02):
        raise ReleaseError("bag labels are not on the grid that their noise is drawn on.")


def _check_scores(release: "Release") -> None:
    """Bags must follow from features, or from scores that the certificate paid for."""
    known = STRATEGIES.get(release.provenance["strategy"])
    if known is not None:
        parameters = release.provenance["strategy_parameters"]
        strategy = shielded(
            lambda: known(**parameters),
            lambda _: ReleaseError("the strategy does not have the parameters in the manifest."),
        )
        if strategy.uses_scores != (release.provenance["scores"] != "none"):
            raise ReleaseError("the strategy and the scores that it used do not agree.")
    paid = {"none": set(), "noisy-labels": {GaussianLabels}, "model": {GaussianModel}}
    found = {type(event) for event in release.certificate.events} & {GaussianLabels, GaussianModel}
    if found != paid.get(release.provenance["scores"]):
        raise ReleaseError("the certificate does not pay for the scores that bags were formed by.")
