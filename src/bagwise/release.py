"""From a table and a choice to a release, and the release itself: what leaves the custodian."""

import dataclasses
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise import _html, _release_files
from bagwise._release_files import SCHEMA, ReleaseFiles
from bagwise._types import FloatArray, IntArray
from bagwise._version import __version__
from bagwise.aggregate import AGGREGATES, LabelKind, check_label_kind
from bagwise.atomic import check_target
from bagwise.bagging import BaggingStrategy, assign_bags, check_bag_size
from bagwise.bags import LEFT_OUT, Bags
from bagwise.encode import Encoder, Nulls
from bagwise.errors import ClippingWarning, ColumnError, ReleaseError, shielded
from bagwise.privacy import Certificate
from bagwise.privacy.calibrate import calibrate_bag_means
from bagwise.privacy.noise import NOISE_SOURCE, private_bag_means
from bagwise.rng import SecretSource, Seed, make_generator
from bagwise.scores import ScoresKind, compute_scores
from bagwise.stages import OnStage, Stages, ignore_stage
from bagwise.table import (
    Bounds,
    find_column,
    label_vector,
    read_table,
    refuse_copies_of_label,
    select_features,
)

BAG_ID = "bag_id"
BAG_COLUMNS = (BAG_ID, "size", "label", "noise_sd")


def check_output(path: str | Path, *, force: bool = False) -> None:
    """Refuse an output directory that is taken, before any work is done for it."""
    check_target(Path(path), force=force, replaceable=_release_files.is_release)


@dataclass(frozen=True)
class Budget:
    """The privacy that was asked for, with the public bounds it needs."""

    epsilon: float
    delta: float
    bounds: Bounds


@dataclass(frozen=True)
class Choice:
    """Every decision about a release, resolved: nothing here is "auto"."""

    label: str
    bag_size: int
    strategy: BaggingStrategy
    scores: ScoresKind
    label_kind: LabelKind
    budget: Budget | None
    bounds: Bounds | None
    features: tuple[str, ...] | None
    exclude: tuple[str, ...]
    id: str | None
    keep_order: bool
    seed: Seed
    nulls: Nulls
    max_levels: int


def build(source: Any, choice: Choice, *, on_stage: OnStage = ignore_stage) -> "Release":
    """Carry out a choice: the steps in order, and nothing else."""
    run = Stages(on_stage)
    secret = SecretSource()
    named = [choice.label, *([choice.id] if choice.id else []), *(choice.features or ())]
    table = run("reading the table", read_table, source, index_names=named)
    check_bag_size(choice.bag_size, n_rows=table.num_rows)
    labels = run("checking the labels", label_vector, table, choice.label)  # (n,), secret
    names = run("checking the columns", _choose_columns, table, labels, choice)
    encoder, bags = run("forming bags", _form_bags, table, names, labels, choice)
    order = _leaving_order(table.num_rows, choice, secret)
    instances = run("ordering the rows", _take_rows, table, names, order, choice.id)
    bags, labels = bags.take(order), labels[order]
    values, certificate = run("aggregating labels", _bag_labels, labels, bags, choice, secret)
    return Release(
        bags=bags,
        labels=values,
        noise_sd=_noise_sd(certificate, bags.sizes),
        label_kind=choice.label_kind,
        certificate=certificate,
        encoder=encoder,
        instances=instances,
        provenance=_provenance(choice),
    )


def _choose_columns(table: pa.Table, labels: FloatArray, choice: Choice) -> list[str]:
    reserved = [choice.label, *([choice.id] if choice.id else [])]
    names = select_features(
        table, reserved=reserved, features=choice.features, exclude=choice.exclude
    )
    if choice.id is not None:
        _check_id(table, choice)
    leaving = [*names, *([choice.id] if choice.id else [])]
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    refuse_copies_of_label(table, leaving, labels, label=choice.label)
    return names


def _check_id(table: pa.Table, choice: Choice) -> None:
    if choice.id == choice.label:
        raise ColumnError("id and label name the same column.")
    column = find_column(table, str(choice.id), role="id")
    if column.null_count or pc.count_distinct(column).as_py() != len(column):
        raise ColumnError(
            f"id {choice.id!r} is missing or repeated in some rows; a key is neither."
        )


def _form_bags(
    table: pa.Table, names: list[str], labels: FloatArray, choice: Choice
) -> tuple[Encoder, Bags]:
    encoder = Encoder.for_table(
        table,
        names,
        named=choice.features or (),
        max_levels=choice.max_levels,
        nulls=choice.nulls,
    )
    X = encoder.transform(table)  # (n, d), public
    scores = compute_scores(choice.scores, labels)
    rng = make_generator(choice.seed)
    return encoder, assign_bags(choice.strategy, X, scores, bag_size=choice.bag_size, rng=rng)


def _leaving_order(n_rows: int, choice: Choice, secret: SecretSource) -> IntArray:
    # The input may be sorted by label, so rows leave shuffled unless that is waived.
    return np.arange(n_rows) if choice.keep_order else secret.permutation(n_rows)


def _take_rows(table: pa.Table, names: list[str], order: IntArray, id: str | None) -> pa.Table:
    rows = pa.array(order)
    leaving = [*([id] if id else []), *names]
    return pa.table(
        {name: _without_unused_levels(table.column(name).take(rows)) for name in leaving}
    )


def _without_unused_levels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Rebuild a dictionary column, since its levels may name values that only other rows had."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pc.cast(column, column.type.value_type).dictionary_encode()


def _bag_labels(
    labels: FloatArray, bags: Bags, choice: Choice, secret: SecretSource
) -> tuple[FloatArray, Certificate]:
    smallest = int(bags.sizes.min())
    if choice.budget is not None:
        bounds = choice.budget.bounds
        event = calibrate_bag_means(
            bounds, epsilon=choice.budget.epsilon, delta=choice.budget.delta
        )
        noisy = private_bag_means(labels, bags, bounds=bounds, event=event)
        return noisy, Certificate(
            epsilon=choice.budget.epsilon,
            delta=choice.budget.delta,
            bounds=bounds,
            events=(event,),
            smallest_bag=smallest,
            noise_source=NOISE_SOURCE,
            remarks=_delta_remark(choice.budget.delta, bags.n_rows),
        )
    if choice.bounds is not None:
        labels = _clip_openly(labels, choice.bounds)
    return AGGREGATES[choice.label_kind](labels, bags, secret), Certificate(
        epsilon=None,
        delta=None,
        bounds=choice.bounds,
        events=(),
        smallest_bag=smallest,
        noise_source="none",
        remarks=_leak_remark(choice.scores),
    )


def _clip_openly(labels: FloatArray, bounds: Bounds) -> FloatArray:
    """Clip, and say how many: allowed here only because nothing is promised."""
    clipped = np.clip(labels, *bounds)
    if outside := int((clipped != labels).sum()):
        warnings.warn(
            f"{outside} label(s) lie outside the bounds and were clipped to them.",
            ClippingWarning,
            stacklevel=2,
        )
    return clipped


def _delta_remark(delta: float, n_rows: int) -> tuple[str, ...]:
    if delta <= 1 / n_rows:
        return ()
    return (
        f"delta = {delta:g} is above 1/n: on its own terms the promise would allow showing "
        "one of the n labels outright. Choose delta well below 1/n.",
    )


def _leak_remark(scores: ScoresKind) -> tuple[str, ...]:
    if scores == "none":
        return ()
    return ("Rows were put into bags by sorting their labels: membership alone tells the labels.",)


def _noise_sd(certificate: Certificate, sizes: IntArray) -> FloatArray:
    if not certificate.events:
        return np.zeros(sizes.size)
    variance: FloatArray = sum(event.noise_sd(sizes) ** 2 for event in certificate.events)
    return np.sqrt(variance)


def _provenance(choice: Choice) -> dict[str, Any]:
    return {
        "label": choice.label,
        "bag_size": int(choice.bag_size),
        "strategy": choice.strategy.name,
        "strategy_parameters": dataclasses.asdict(choice.strategy),  # type: ignore[call-overload]
        "scores": choice.scores,
        "seed": choice.seed if isinstance(choice.seed, int) else None,
        "row_order": "kept" if choice.keep_order else "secret permutation",
        "id": choice.id,
    }


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
        return {**dataclasses.asdict(self), "note": self.note}


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """What leaves the custodian; it never holds a row's label.

    Attributes
    ----------
    bags : Bags
        Which rows share a bag.
    labels, noise_sd : (m,) floats
        The aggregate label of each bag, and the standard deviation of the privacy noise on it.
    label_kind : {"mean", "pick"}
    certificate : Certificate
    encoder : Encoder
        The recipe from feature columns to X.
    instances : pyarrow.Table
        The feature columns, and the id column if there is one.
    provenance : dict
        How the release was made, as the manifest records it.
    """

    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    label_kind: LabelKind
    certificate: Certificate
    encoder: Encoder
    instances: pa.Table
    provenance: dict[str, Any]
    path: Path | None = field(default=None)

    @property
    def features(self) -> pa.Table:
        """The feature columns alone."""
        return self.instances.select(self.encoder.inputs)

    def training_data(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return X, y, bag_ids: y repeats each bag's label; rows left out of bags are dropped."""
        kept = self.bags.in_bag
        features = self.features if kept.all() else self.features.filter(pa.array(kept))
        bag_ids = self.bags.index[kept]
        return self.encoder.transform(features), self.labels[bag_ids], bag_ids

    def fit_params(self) -> dict[str, Any]:
        """Return what an estimator's ``fit`` takes beside X and y."""
        bag_ids = self.bags.index[self.bags.in_bag]
        return {"bags": bag_ids, "noise_sd": self.noise_sd[bag_ids]}

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the release as a directory, whole or not at all.

        `force` replaces an existing release. A private release spends its epsilon anew each time it
        is made: whoever saw the old one now has both.
        """
        target = Path(path)
        _release_files.write_release(self._to_files(), target, force=force)
        return target

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a release, and refuse one that is incomplete or was edited."""
        files = _release_files.read_release(Path(path))
        release = shielded(
            lambda: cls._from_files(files),
            lambda _: ReleaseError(f"{path} is damaged: its tables do not fit its manifest."),
        )
        return dataclasses.replace(release, path=Path(path))

    def verify(self) -> Verification:
        """Check everything that can be checked without the labels; raise at the first fault.

        Returns
        -------
        Verification
            With the digest to compare out of band, when the release is on disk.
        """
        checks = []
        digest = None
        if self.path is not None:
            manifest = _release_files.read_release(self.path).manifest
            digest = _release_files.release_digest(self.path)
            if manifest["columns"] != self._columns():
                raise ReleaseError("the tables do not have the columns that the manifest lists.")
            checks.append(
                "every file has the hash that the manifest records, and no other is there"
            )
        self._check_columns()
        checks.append("no label column and no picked index among the instances")
        self._check_bags()
        checks.append(
            f"every bag has at least {self.provenance['bag_size']} rows, every row one bag"
        )
        self._check_certificate()
        checks.append("the certificate's totals and the noise of each bag follow from its events")
        return Verification(
            headline=self.certificate.headline,
            epsilon=self.certificate.epsilon,
            delta=self.certificate.delta,
            checks=tuple(checks),
            digest=digest,
        )

    def _check_columns(self) -> None:
        key = self.provenance["id"]
        expected = [*([key] if key else []), *self.encoder.inputs]
        if self.instances.column_names != expected:
            raise ReleaseError(
                "instances hold other columns than the encoder's features and the id."
            )
        if self.provenance["label"] in expected:
            raise ReleaseError(f"instances hold the label column {self.provenance['label']!r}.")

    def _check_bags(self) -> None:
        if self.instances.num_rows != self.bags.n_rows:
            raise ReleaseError("the number of instances differs from the number of bag entries.")
        smallest, promised = int(self.bags.sizes.min()), self.provenance["bag_size"]
        if smallest < promised:
            raise ReleaseError(f"a bag has {smallest} rows where {promised} are promised.")
        if not self.bags.in_bag.all() and not self.provenance["strategy_parameters"].get("half"):
            raise ReleaseError("rows are in no bag although the strategy leaves none out.")
        if self.labels.shape != self.bags.sizes.shape or not np.isfinite(self.labels).all():
            raise ReleaseError("bag labels are missing or not finite.")

    def _check_certificate(self) -> None:
        self.certificate.check()
        if self.certificate.smallest_bag != int(self.bags.sizes.min()):
            raise ReleaseError("the certificate names another smallest bag than there is.")
        if not np.allclose(self.noise_sd, _noise_sd(self.certificate, self.bags.sizes), rtol=1e-9):
            raise ReleaseError("the noise of the bags is not the one the certificate describes.")
        if self.certificate.is_private and self.provenance["scores"] != "none":
            raise ReleaseError("the certificate promises privacy, yet bags were sorted by labels.")

    def _columns(self) -> dict[str, list[str]]:
        files = self._tables()
        return {
            name: [f"{f.name}: {f.type}" for f in table.schema] for name, table in files.items()
        }

    def _tables(self) -> dict[str, pa.Table]:
        index = self.bags.index
        ids = pa.array(index, mask=index == LEFT_OUT)
        return {
            "instances": self.instances.append_column(BAG_ID, ids),
            "bags": pa.table(
                [np.arange(self.bags.n_bags), self.bags.sizes, self.labels, self.noise_sd],
                names=BAG_COLUMNS,
            ),
        }

    def _to_files(self) -> ReleaseFiles:
        tables = self._tables()
        manifest = {
            "schema": SCHEMA,
            "software": f"bagwise {__version__}",
            "certificate": self.certificate.headline,
            **self.provenance,
            "label_kind": self.label_kind,
            "n_rows": self.bags.n_rows,
            "n_bags": self.bags.n_bags,
            "columns": self._columns(),
            "encoder": self.encoder.to_json(),
        }
        return ReleaseFiles(
            instances=tables["instances"],
            bags=tables["bags"],
            certificate=self.certificate.to_json(),
            manifest=manifest,
        )

    @classmethod
    def _from_files(cls, files: ReleaseFiles) -> Self:
        manifest, bags = files.manifest, files.bags
        if bags.column_names != list(BAG_COLUMNS):
            raise ReleaseError(f"bags hold other columns than {', '.join(BAG_COLUMNS)}.")
        if bags[BAG_ID].to_pylist() != list(range(bags.num_rows)):
            raise ReleaseError("bags are not numbered 0, 1, 2, …")
        partition = Bags(pc.fill_null(files.instances[BAG_ID], LEFT_OUT).to_numpy())
        if not np.array_equal(bags["size"].to_numpy(), partition.sizes):
            raise ReleaseError("bag sizes do not match the number of instances in each bag.")
        keys = (
            "label",
            "bag_size",
            "strategy",
            "strategy_parameters",
            "scores",
            "seed",
            "row_order",
            "id",
        )
        return cls(
            bags=partition,
            labels=bags["label"].to_numpy(),
            noise_sd=bags["noise_sd"].to_numpy(),
            label_kind=check_label_kind(manifest["label_kind"]),
            certificate=Certificate.from_json(files.certificate),
            encoder=Encoder.from_json(manifest["encoder"]),
            instances=files.instances.drop_columns([BAG_ID]),
            provenance={key: manifest[key] for key in keys},
        )

    def summary(self) -> dict[str, Any]:
        """Return the facts of a release that a reader wants first."""
        return {
            "privacy": self.certificate.headline,
            "rows": self.bags.n_rows,
            "left_out": int((~self.bags.in_bag).sum()),
            "bags": self.bags.n_bags,
            "smallest_bag": int(self.bags.sizes.min()),
            "largest_bag": int(self.bags.sizes.max()),
            "label": self.provenance["label"],
            "label_kind": self.label_kind,
            "strategy": self.provenance["strategy"],
            "scores": self.provenance["scores"],
            "features": len(self.encoder.feature_names),
        }

    def __repr__(self) -> str:
        return (
            f"Release({self.bags.n_rows} rows, {self.bags.n_bags} bags of at least "
            f"{self.bags.sizes.min()}, {self.label_kind} labels, {self.certificate.headline})"
        )

    def _repr_html_(self) -> str:
        return _html.table("Release", list(self.summary().items()))
