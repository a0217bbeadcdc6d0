"""Verify a release without its labels: check everything that can be checked from outside."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import UnsetType

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    PublishedBags,
    parameters_of,
)
from bagwise.bagging.assigning import rows_by_number
from bagwise.errors import ReleaseError, shielded
from bagwise.privacy.circumstances import (
    Circumstance,
    KeptOrder,
    MissingLabels,
    SimulatedNoise,
    SortedByLabels,
)
from bagwise.privacy.dispersion import (
    FALSE_ALARMS,
    ClaimedNoise,
    dispersion_p_value,
    frequencies_p_value,
    reach_p_value,
)
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_model import LinearScores
from bagwise.requests.answers import expected_labels
from bagwise.requests.columns import carried_columns, read_given
from bagwise.requests.provenance import Provenance
from bagwise.rng import SimulatedNoise as SimulatedSource
from bagwise.rows.columns import exposure_vector, number_groups, reads_like
from bagwise.show import html

if TYPE_CHECKING:
    from bagwise.release.release import Release

_ROWS_AT_ONCE = 65_536
_MOST_ROWS = 200_000  # that the look of bags is judged by

_STRATA = 64  # that the look of bags is judged by


@dataclass(frozen=True)
class Verification:
    """The checks that a release has passed, and what nobody can check from outside."""

    headline: str
    epsilon: float | None
    delta: float | None
    checks: tuple[str, ...]
    unchecked: tuple[str, ...]
    digest: str | None
    n_rows: int | None = None
    signed: bool = False

    @property
    def note(self) -> str:
        """What the checks do not show."""
        unseen = f"Nobody can check from outside {'; '.join(self.unchecked)}."
        if self.signed:
            return f"{unseen} The signature says whose release this is, not that it is private."
        return (
            f"{unseen} Hashes show damage, not authorship: whoever edits a release can recompute "
            "them. Compare the digest with the custodian's through another channel, or ask for a "
            "signed release."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values."""
        return {**asdict(self), "note": self.note}

    def __str__(self) -> str:
        return "\n".join([*(f"ok {check}" for check in self.checks), self.headline, self.note])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.text(self.headline, [*(f"ok {check}" for check in self.checks), self.note])


def verify_release(release: "Release", *, strict: bool = False) -> Verification:
    """Check everything that can be checked without the labels; raise at the first fault.

    Parameters
    ----------
    strict : bool
        Refuse bags of a strategy that is not one of ours, too: nobody can tell what they show.

    Returns
    -------
    Verification
        What was checked and what cannot be, with the digest to compare out of band when the release
        was read from its files.
    """
    certificate, made = release.certificate, release.provenance
    checks, unseen = [], ["whether a feature was computed from the label"]
    if release.digest is not None:
        checks.append("every file has the hash in the manifest, which describes this release")
    _check_columns(release)
    checks.append("no label column and no picked index among the instances")
    _check_bags(release)
    checks.append(
        f"every bag has at least {made.bag_size} rows, no row is in two, "
        f"{int((~release.bags.in_bag).sum())} are left out"
    )
    checks.extend(check_given(release))
    _check_certificate(release)
    checks.append("the certificate's totals and the noise of each bag follow from its events")
    if seen := _check_look(release, _find_strategy(release, strict=strict)):
        checks.append(seen)
    else:
        unseen.append("whether its strategy made these bags")
    if certificate.is_private:
        checks.extend(_check_noise(release))
        unseen += ["whether the noise was drawn as claimed", "whether the bounds were public"]
        if made.row_order != "kept":
            unseen.append("whether rows were published in a secret order")
        if release.model is not None:
            unseen.append("whether the private model that is published was made as claimed")
        if certificate.unit is not None:
            unseen.append("how many rows a unit has, and in which bags they are")
        if any(event.supposes_one_bag for event in certificate.events):
            unseen.append("whether all rows of a unit are in one bag, as its noise supposes")
    if not isinstance(made.missing_labels, UnsetType):
        unseen.append(
            f"whether {made.missing_labels} rows had no label, as is declared, and whether that is "
            "public"
        )
    return Verification(
        headline=certificate.headline,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        checks=tuple(checks),
        unchecked=tuple(unseen),
        digest=release.digest,
        n_rows=release.bags.n_rows,
    )


def circumstances_of(made: Provenance) -> tuple[Circumstance, ...]:
    """Return what a certificate must mention about how bags were made."""
    said: list[Circumstance] = [SortedByLabels()] if made.scores == "labels" else []
    said += [KeptOrder()] if made.row_order == "kept" else []
    if not isinstance(made.missing_labels, UnsetType):
        said.append(MissingLabels(made.missing_labels))
    return tuple(said)


def noise_per_bag(events: Sequence[Mechanism], sizes: IntArray) -> FloatArray:
    """Return the standard deviation of the privacy noise on each bag's label."""
    found = [event for event in events if event.query.labels_bags]
    return found[-1].noise_sd(sizes) if found else np.zeros(sizes.size)


def _check_columns(release: "Release") -> None:
    key, label = release.provenance.id, release.provenance.label
    made, features = release.provenance, release.encoder.inputs
    expected = [*([key] if key else []), *carried_columns(made, features), *features]
    if release.instances.column_names != expected:
        raise ReleaseError(
            "instances contain columns besides the encoder's features, the id and those of bags."
        )
    for name in expected:
        if reads_like(name, label):
            raise ReleaseError(f"instances: {name!r} has nearly the same name as the label.")
        if name == release.certificate.unit:
            raise ReleaseError(f"instances hold the column {name!r}, which names the units.")


def _check_bags(release: "Release") -> None:
    if release.instances.num_rows != release.bags.n_rows:
        raise ReleaseError("the number of instances differs from the number of bag entries.")
    smallest, promised = int(release.bags.sizes.min()), release.provenance.bag_size
    if smallest < promised:
        raise ReleaseError(f"a bag has {smallest} rows where {promised} are promised.")
    width = () if release.classes is None else (len(release.classes),)
    expected = (release.bags.n_bags, *width)
    if release.labels.shape != expected or not np.isfinite(release.labels).all():
        raise ReleaseError("bag labels are missing or not finite.")
    in_order = release.bags.take(np.arange(release.bags.n_rows))
    if not np.array_equal(in_order.index, release.bags.index):
        raise ReleaseError("bags are not numbered in the order of their first rows.")


def _check_certificate(release: "Release") -> None:
    release.certificate.check()
    if release.certificate.smallest_bag != int(release.bags.sizes.min()):
        raise ReleaseError("the certificate names another smallest bag than there is.")
    if release.certificate.covers is not None:
        raise ReleaseError("the certificate belongs to something else than a release.")
    described = noise_per_bag(release.certificate.events, release.bags.sizes)
    if not np.allclose(release.noise_sd, described, rtol=1e-9, atol=0.0):
        raise ReleaseError("the noise of the bags is not the one the certificate describes.")
    made = release.provenance
    if (release.model is not None) != ("model" in (made.scores, made.centre)):
        raise ReleaseError("scores.json and the model that the manifest names do not agree.")
    expected = circumstances_of(made)
    if release.certificate.noise_source == SimulatedSource.name:
        expected = (SimulatedNoise(), *expected)
    # Before certificates said so, only the manifest told of missing labels.
    before = tuple(c for c in expected if not isinstance(c, MissingLabels))
    if release.certificate.circumstances not in (expected, before):
        raise ReleaseError("the certificate does not mention what the manifest tells.")
    if release.certificate.is_private:
        _check_bag_event(release)
        _check_scores(release)
    release.certificate.check_rows(release.bags.n_rows)


def _check_bag_event(release: "Release") -> None:
    """Check that exactly one event has hidden the bag labels, and that it is of their kind."""
    found = [event for event in release.certificate.events if event.query.labels_bags]
    picks = release.label_kind == "pick"
    wanted = (
        ("bag picks", "class picks") if picks else ("bag means", "class shares", "single labels")
    )
    if len(found) != 1 or found[0].hides not in wanted:
        raise ReleaseError("the certificate does not account for these bag labels.")
    classes = None if release.classes is None else len(release.classes)
    unit_range = release.certificate.bounds == (0.0, 1.0)
    if not found[0].suits_classes(classes) or (classes is not None and not unit_range):
        raise ReleaseError("the certificate does not account for a label with these classes.")
    low = (release.certificate.clipped_to or (0.0, 0.0))[0]
    if fault := found[0].contradiction(release.labels, release.bags.sizes, low):
        raise ReleaseError(fault)


def _check_scores(release: "Release") -> None:
    """Check that bags follow from features, or from scores that the certificate paid for."""
    made = release.provenance
    paid = {"none": [], "noisy-labels": ["labels"], "model": ["model"]}[made.scores]
    if made.centre == "model":  # the model that rows are sorted by serves for both
        paid = [*paid, *([] if "model" in paid else ["model"]), "limit"]
    looks = ("labels", "model", "limit")
    found = [event.hides for event in release.certificate.events if event.hides in looks]
    if found != paid:
        raise ReleaseError(
            "the certificate does not pay for the scores that formed the bags, or for the model "
            "that labels were centred on."
        )


def _find_strategy(release: "Release", *, strict: bool) -> BaggingStrategy | None:
    """Return the strategy that the manifest names; None if it is not one of ours."""
    made = release.provenance
    known = STRATEGIES.get(made.strategy)
    if known is None:
        if strict:
            raise ReleaseError(
                f"bags were made by the strategy {made.strategy!r}, which is not part of bagwise: "
                "nobody can check what the bags reveal. If you trust the author of the strategy, "
                "verify without strict (--strict)."
            )
        return None
    strategy = shielded(
        lambda: known(**made.strategy_parameters),
        ReleaseError("the strategy does not have the parameters in the manifest."),
    )
    if list(parameters_of(strategy).items()) != list(made.strategy_parameters.items()):
        raise ReleaseError("the strategy does not have the parameters in the manifest.")
    if strategy.keeps_groups != bool(made.by):
        raise ReleaseError("the strategy and the columns that bags are given by do not agree.")
    if strategy.uses_scores != (made.scores != "none"):
        raise ReleaseError("the strategy and the scores that it used do not agree.")
    return strategy


def _check_look(release: "Release", strategy: BaggingStrategy | None) -> str | None:
    """Compare bags with those that their strategy makes; return the finding, or None."""
    if strategy is None or not strategy.recognises_its_bags:
        return None  # most strategies cannot tell their bags from others
    scored, bags, model = release.provenance.scores, release.bags, release.model
    in_order, rounding, X, scores = False, 0.0, None, None
    if scored == "none":
        seen = "bags have nothing to do with the features, as their strategy has it"
        if strategy.compact:
            seen = "bags are as compact as their strategy makes them"
    elif model is None or scored != "model":
        return None
    else:
        in_order = not strategy.compact
        how = "follow the order" if in_order else "are compact in the metric"
        seen = f"bags {how} of the published model"
    if in_order and model is not None:
        rows = np.flatnonzero(bags.in_bag)
        scores, rounding = _scores_again(release, model)
        scores = scores[rows]
    else:
        # The rows of the first bags, whose numbers follow a secret order; all of a few.
        enough = int(np.searchsorted(np.cumsum(bags.sizes), _MOST_ROWS)) + 1
        rows = np.flatnonzero(bags.in_bag & (bags.index < enough))
        X = release.encoder.transform(release.features.take(pa.array(rows)))
        scores = None if model is None or scored == "none" else model.predict(X)
    for part in strata_of(release, rows):
        some = None if X is None else X[part], None if scores is None else scores[part]
        if fault := strategy.contradiction(PublishedBags(bags.index[rows[part]], *some, rounding)):
            raise ReleaseError(f"strategy {strategy.name!r} did not make these bags: {fault}.")
    return seen


def _scores_again(release: "Release", model: LinearScores) -> tuple[FloatArray, float]:
    """Return the model's scores of all rows, and how much another machine's may differ."""
    scores = np.empty(release.bags.n_rows)
    size = 0.0
    for rows, X in _blocks(release):
        scores[rows] = model.predict(X)
        size = max(size, float((np.abs(X) @ np.abs(model.coef)).max()) + abs(model.intercept))
    # A sum of d products is off by d roundings of its largest partial sum at most, twice over.
    return scores, 4 * (model.coef.size + 1) * float(np.finfo(float).eps) * size


def _check_noise(release: "Release") -> list[str]:
    """Refuse labels that are implausible for clipped labels with the noise that is claimed."""
    sizes, checks = release.bags.sizes, []
    columns = release.labels[:, None] if release.classes is None else release.labels
    hiding = [event for event in release.certificate.events if event.query.labels_bags]
    # 1. Noise: labels vary at least as much, and are no farther off than it can carry them.
    noises = [n for event in hiding if (n := event.claimed_noise(sizes)) is not None]
    if len(noises) == 1:  # others were replaced by chance instead
        features, off = bag_features(release), _farther_off(release, columns, noises[0])
        if _is_no_chance([dispersion_p_value(one, features, noises[0]) for one in columns.T]):
            raise ReleaseError(
                "bag labels vary less than the noise that the certificate claims. By chance, this "
                "happens less than once in a billion times: the noise is missing."
            )
        if _is_no_chance([reach_p_value(one, noises[0]) for one in off.T]):
            raise ReleaseError(
                "some bag labels are too far outside the bounds for clipped labels with the noise "
                "that the certificate claims. By chance, this happens less than once in a billion "
                "times: labels were not clipped."
            )
        checks += [
            "bag labels vary at least as much as the noise that is claimed",
            "no bag label is farther off than clipped labels with such noise can be",
        ]
    # 2. Chances: labels are reported about as often as these allow.
    low = (release.certificate.clipped_to or (0.0, 0.0))[0]
    found = [event.frequencies(release.labels, sizes, low) for event in hiding]
    reports = [report for report in found if report is not None]
    if any(_is_no_chance([frequencies_p_value(*report)]) for report in reports):
        raise ReleaseError(
            "some labels occur more or less often than the probabilities in the certificate "
            "allow, whatever the true labels are. By chance, this happens less than once in a "
            "billion times: labels were not randomised as stated."
        )
    if reports:
        checks.append("labels are reported about as often as their chances allow")
    return checks


def _is_no_chance(p_values: Sequence[float]) -> bool:
    return min(p_values) * len(p_values) < FALSE_ALARMS


def _farther_off(release: "Release", columns: FloatArray, noise: ClaimedNoise) -> FloatArray:
    """Return how far labels exceed the reach of clipped labels without noise."""
    certificate = release.certificate
    low, high = certificate.clipped_to or (0.0, 0.0)
    middle, reach = np.full(release.bags.n_bags, (low + high) / 2), (high - low) / 2
    if certificate.limit is not None and release.model is not None:
        middle = release.bags.mean(predictions_of(release, release.model))
        reach = certificate.limit
    # Predictions of rows were rounded to steps, and doubles round more if bounds are far from 0.
    rounding = 8 * np.finfo(float).eps * (np.abs(columns) + abs(low) + abs(high))
    slack = rounding + ((1 + release.bags.sizes) / noise.steps_per_unit)[:, None]
    return np.asarray(np.abs(columns - middle[:, None]) - reach - slack)


def predictions_of(release: "Release", model: LinearScores) -> FloatArray:
    """Return what a published model expects of each row, within the bounds, (n,)."""
    found = np.empty(release.bags.n_rows)
    for rows, X in _blocks(release):
        found[rows] = expected_labels(model, X, release.certificate.bounds or (-np.inf, np.inf))
    return found


def bag_features(release: "Release") -> FloatArray:
    """Return the mean of each feature in each bag, (m, d)."""
    total = np.zeros((release.bags.n_bags, len(release.encoder.feature_names)))
    for rows, X in _blocks(release):
        bags = release.bags.index[rows]
        here = bags >= 0
        order = np.argsort(bags[here], kind="stable")
        groups, starts = np.unique(bags[here][order], return_index=True)
        if groups.size:
            total[groups] += np.add.reduceat(X[here][order], starts, axis=0)
    means: FloatArray = total / release.bags.sizes[:, None]
    return means


def _blocks(release: "Release") -> Iterator[tuple[slice, FloatArray]]:
    """Yield the encoded features, some rows at a time."""
    features = release.features
    for start in range(0, features.num_rows, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, features.num_rows))
        yield rows, release.encoder.transform(features.slice(start, _ROWS_AT_ONCE))


def check_given(release: "Release") -> list[str]:
    """Refuse bags that do not follow the columns named in the manifest; return the finding."""
    made = release.provenance
    given = read_given(release.instances, by=made.by, within=made.within)
    seen, index = [], release.bags.index
    if given.strata is not None:
        if _meets_several(index, given.strata):
            raise ReleaseError(f"a bag crosses a stratum of {_listed(made.within)}.")
        seen.append(f"no bag crosses a stratum of {_listed(made.within)}")
    if given.groups is not None:
        groups = given.groups
        if given.strata is not None:
            pairs = groups * (given.strata.max() + 1) + given.strata
            groups = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
        _check_groups(index, groups, made.bag_size, by=_listed(made.by))
        seen.append(f"every group of {_listed(made.by)} is in one bag, merged only if it is small")
    if made.exposure is not None:
        exposure_vector(release.instances, made.exposure)
        seen.append(f"every row has a positive exposure {made.exposure!r}")
    return seen


def strata_of(release: "Release", rows: IntArray) -> list[IntArray]:
    """Return places among these rows by stratum, the largest strata first; all without strata.

    A strategy makes its bags within each stratum. A few strata are enough for a verdict, and the
    chances of a false alarm add up over them.
    """
    within = release.provenance.within
    if not within:
        return [np.arange(rows.size)]
    strata = number_groups(release.instances, within, role="within")[rows]
    return sorted(rows_by_number(strata), key=len, reverse=True)[:_STRATA]


def _check_groups(index: IntArray, groups: IntArray, bag_size: int, *, by: str) -> None:
    if _meets_several(groups, index):
        raise ReleaseError(f"a group of {by} is in several bags.")
    _, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    large = index[first[sizes >= bag_size]]
    if np.unique(large).size != large.size:
        raise ReleaseError(f"a bag holds two groups of {by} that are large enough by themselves.")


def _meets_several(these: IntArray, others: IntArray) -> bool:
    """Return whether one of `these`, unused rows aside, has rows of several of `others`."""
    kept = these >= 0
    met = np.unique(np.column_stack([these[kept], others[kept]]), axis=0)
    return bool(np.unique(met[:, 0]).size < len(met))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
