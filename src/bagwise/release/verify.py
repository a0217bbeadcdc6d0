"""Checking a release without its labels: everything that can be seen from outside."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from bagwise._types import FloatArray, IntArray
from bagwise.bagging import STRATEGIES, BaggingStrategy, RecognisesItsBags, parameters_of
from bagwise.data.columns import reads_like
from bagwise.errors import ReleaseError, shielded
from bagwise.privacy.circumstances import (
    Circumstance,
    KeptOrder,
    OtherRule,
    SimulatedNoise,
    SortedByLabels,
)
from bagwise.privacy.dispersion import FALSE_ALARMS, dispersion_p_value
from bagwise.privacy.mechanisms import HidesBagLabels, HidesBagMeans, Mechanism
from bagwise.privacy.private_model import LinearScores
from bagwise.rng import SimulatedNoise as SimulatedSource

if TYPE_CHECKING:
    from bagwise.release.release import Release

_ROWS_AT_ONCE = 65_536
_MOST_ROWS = 200_000  # that the look of bags is judged by


@dataclass(frozen=True)
class Verification:
    """What was looked at and found in order, and what nobody can see from outside."""

    headline: str
    epsilon: float | None
    delta: float | None
    checks: tuple[str, ...]
    unchecked: tuple[str, ...]
    digest: str | None
    n_rows: int | None = None

    @property
    def note(self) -> str:
        """What the checks do not show."""
        return (
            f"Nobody can check from outside {'; '.join(self.unchecked)}. Hashes show damage, not "
            "authorship: whoever edits a release can recompute them. Compare the digest with the "
            "custodian's through another channel."
        )

    def to_json(self) -> dict[str, Any]:
        """Return what was found as plain values."""
        return {**asdict(self), "note": self.note}


def verify_release(release: "Release", *, strict: bool = False) -> Verification:
    """Check everything in turn; raise at the first fault."""
    checks, unchecked = [], ["whether a feature was computed from the label"]
    if release.digest is not None:
        checks.append("every file has the hash in the manifest, which describes this release")
    _check_columns(release)
    checks.append("no label column and no picked index among the instances")
    _check_bags(release)
    checks.append(
        f"every bag has at least {release.provenance.bag_size} rows, no row is in two, "
        f"{int((~release.bags.in_bag).sum())} are left out"
    )
    _check_certificate(release)
    checks.append("the certificate's totals and the noise of each bag follow from its events")
    strategy = _find_strategy(release, strict=strict)
    seen = _check_look(release, strategy)
    checks.extend([seen] if seen else [])
    unchecked.extend([] if seen else ["whether its strategy made these bags"])
    if release.certificate.is_private:
        checks.extend(_check_dispersion(release))
        unchecked.extend(_unseen_privacy(release))
    return Verification(
        headline=release.certificate.headline,
        epsilon=release.certificate.epsilon,
        delta=release.certificate.delta,
        checks=tuple(checks),
        unchecked=tuple(unchecked),
        digest=release.digest,
        n_rows=release.bags.n_rows,
    )


def _unseen_privacy(release: "Release") -> list[str]:
    unseen = ["whether the noise was drawn as claimed", "whether the bounds were public"]
    if release.provenance.row_order != "kept":
        unseen.append("whether rows left in a secret order")
    if release.certificate.unit is not None:
        unseen.append("how many rows a unit has")
    return unseen


def circumstances_of(
    *, scores: Literal["none", "labels", "noisy-labels", "model"], kept_order: bool
) -> tuple[Circumstance, ...]:
    """Return what a certificate must mention of how bags were made."""
    by_labels: tuple[Circumstance, ...] = (SortedByLabels(),) if scores == "labels" else ()
    return (*by_labels, *((KeptOrder(),) if kept_order else ()))


def noise_per_bag(events: Sequence[Mechanism], sizes: IntArray) -> FloatArray:
    """Return the standard deviation of the privacy noise on each bag's label."""
    found = [event for event in events if isinstance(event, HidesBagLabels)]
    return found[-1].noise_sd(sizes) if found else np.zeros(sizes.size)


def _check_columns(release: "Release") -> None:
    key, label = release.provenance.id, release.provenance.label
    expected = [*([key] if key else []), *release.encoder.inputs]
    if release.instances.column_names != expected:
        raise ReleaseError("instances hold other columns than the encoder's features and the id.")
    for name in expected:
        if reads_like(name, label):
            raise ReleaseError(f"instances hold the column {name!r}, which reads like the label.")
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
    if (release.model is not None) != (release.provenance.scores == "model"):
        raise ReleaseError("scores.json and the scores that the manifest names do not agree.")
    _check_circumstances(release)
    if release.certificate.is_private:
        _check_bag_event(release)
        _check_scores(release)


def _check_circumstances(release: "Release") -> None:
    """Refuse a certificate that does not mention what the manifest tells, or something else."""
    certificate, made = release.certificate, release.provenance
    expected = circumstances_of(scores=made.scores, kept_order=made.row_order == "kept")
    if certificate.noise_source == SimulatedSource.name:
        expected = (SimulatedNoise(), *expected)
    rules = tuple(c for c in certificate.circumstances if isinstance(c, OtherRule))
    free = bool(rules) and not certificate.is_private and bool(certificate.events)
    if certificate.circumstances != ((*rules[:1], *expected) if free else expected):
        raise ReleaseError("the certificate does not mention what the manifest tells.")


def _check_bag_event(release: "Release") -> None:
    """Exactly one event must have hidden the bag labels, and be of their kind."""
    found = [event for event in release.certificate.events if isinstance(event, HidesBagLabels)]
    picks = "class picks" if release.classes else "bag picks"
    wanted = "bag means" if release.label_kind == "mean" else picks
    if len(found) != 1 or found[0].hides != wanted:
        raise ReleaseError("the certificate does not account for these bag labels.")
    classes = None if release.classes is None else len(release.classes)
    unit_range = release.certificate.bounds == (0.0, 1.0)
    if not found[0].suits_classes(classes) or (classes is not None and not unit_range):
        raise ReleaseError("the certificate does not account for a label with these classes.")
    for event in release.certificate.events:
        if isinstance(event, HidesBagMeans):
            _check_grid(release, event.grid_step)


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
    paid = {"none": [], "noisy-labels": ["labels"], "model": ["model"]}
    found = [e.hides for e in release.certificate.events if e.hides in ("labels", "model")]
    if found != paid.get(release.provenance.scores):
        raise ReleaseError("the certificate does not pay for the scores that bags were formed by.")


def _find_strategy(release: "Release", *, strict: bool) -> BaggingStrategy | None:
    """Return the strategy that the manifest names; None for one that is not ours."""
    made = release.provenance
    known = STRATEGIES.get(made.strategy)
    if known is None:
        if strict:
            raise ReleaseError(
                f"bags were made by the strategy {made.strategy!r}, which is not one of bagwise: "
                "nobody can tell from outside what they show. Verify without strict (--strict) "
                "if you trust whoever wrote it."
            )
        return None
    strategy = shielded(
        lambda: known(**made.strategy_parameters),
        lambda _: ReleaseError("the strategy does not have the parameters in the manifest."),
    )
    if list(parameters_of(strategy).items()) != list(made.strategy_parameters.items()):
        raise ReleaseError("the strategy does not have the parameters in the manifest.")
    if strategy.uses_scores != (made.scores != "none"):
        raise ReleaseError("the strategy and the scores that it used do not agree.")
    return strategy


def _check_look(release: "Release", strategy: BaggingStrategy | None) -> str | None:
    """Compare bags with what their strategy makes; return what was seen, None where nothing can."""
    judge: object = strategy  # most strategies cannot tell their bags from others
    if not isinstance(judge, RecognisesItsBags):
        return None
    if release.provenance.scores == "none":
        rows = _rows_of_some_bags(release)
        X = release.encoder.transform(release.features.take(pa.array(rows)))
        found = judge.contradiction(release.bags.index[rows], X=X)
        seen = "bags have nothing to do with the features, as their strategy has it"
    elif release.model is not None:
        scores, rounding = _scores_again(release, release.model)
        found = judge.contradiction(release.bags.index, scores=scores, rounding=rounding)
        seen = "bags follow the order of the published model"
    else:
        return None
    if found:
        raise ReleaseError(f"strategy {judge.name!r} did not make these bags: {found}.")
    return seen


def _rows_of_some_bags(release: "Release") -> IntArray:
    """Return the rows of the first bags, whose numbers follow a secret order; all of a few."""
    enough = int(np.searchsorted(np.cumsum(release.bags.sizes), _MOST_ROWS)) + 1
    rows: IntArray = np.flatnonzero(release.bags.in_bag & (release.bags.index < enough))
    return rows


def _scores_again(release: "Release", model: LinearScores) -> tuple[FloatArray, float]:
    """Return the model's scores of all rows, and how far another machine's may be from them."""
    scores = np.empty(release.bags.n_rows)
    size = 0.0
    for rows, X in _blocks(release):
        scores[rows] = model.predict(X)
        size = max(size, float((np.abs(X) @ np.abs(model.coef)).max()) + abs(model.intercept))
    # A sum of d products is off by d roundings of its largest partial sum at most, twice over.
    return scores, 4 * (model.coef.size + 1) * float(np.finfo(float).eps) * size


def _check_dispersion(release: "Release") -> list[str]:
    """Refuse labels that vary less than the noise which they are said to carry."""
    sizes = release.bags.sizes
    hiding = [event for event in release.certificate.events if isinstance(event, HidesBagLabels)]
    noises = [event.claimed_noise(sizes) for event in hiding]
    found = [noise for noise in noises if noise is not None]
    if len(found) != 1:
        return []
    features = _bag_features(release)
    columns = release.labels[:, None] if release.classes is None else release.labels
    p_values = [dispersion_p_value(label, features, found[0]) for label in columns.T]
    if min(p_values) * len(p_values) < FALSE_ALARMS:
        raise ReleaseError(
            "bag labels vary less than the noise that the certificate claims: such labels come by "
            "chance less than once in a billion times. The noise was left out."
        )
    return ["bag labels vary at least as much as the noise that is claimed"]


def _bag_features(release: "Release") -> FloatArray:
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
    features = release.features
    for start in range(0, features.num_rows, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, features.num_rows))
        yield rows, release.encoder.transform(features.slice(start, _ROWS_AT_ONCE))
