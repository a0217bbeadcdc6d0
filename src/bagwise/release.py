"""What leaves the custodian: bags, their labels, the features, and what is promised about them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
from bagwise.aggregate import LabelKind, check_label_kind
from bagwise.atomic import check_target
from bagwise.bagging import STRATEGIES
from bagwise.bags import LEFT_OUT, Bags
from bagwise.encode import Encoder
from bagwise.errors import ReleaseError, shielded
from bagwise.privacy import Certificate
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
from bagwise.privacy.private_model import LinearScores
from bagwise.rng import SimulatedNoise

BAG_ID = "bag_id"


def bag_columns(classes: Sequence[str] | None) -> list[str]:
    """Return the columns of the bag table: one label, or one share for each class."""
    labels = ["label"] if classes is None else [f"label={name}" for name in classes]
    return [BAG_ID, "size", *labels, "noise_sd"]


def check_output(path: str | Path, *, force: bool = False) -> None:
    """Refuse an output directory that is taken, before any work is done for it."""
    check_target(Path(path), force=force, replaceable=_release_files.is_release)


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
    labels : (m,) floats, or (m, classes) for a label with classes
        The aggregate label of each bag; for classes their shares, or estimates of them.
    noise_sd : (m,) floats
        The standard deviation of the privacy noise on each bag's label.
    label_kind : {"mean", "pick"}
    certificate : Certificate
    encoder : Encoder
        The recipe from feature columns to X.
    instances : pyarrow.Table
        The feature columns, and the id column if there is one.
    provenance : dict
        How the release was made, as the manifest records it.
    model : LinearScores or None
        The private model that rows were sorted by, if they were.
    """

    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    label_kind: LabelKind
    certificate: Certificate
    encoder: Encoder
    instances: pa.Table
    provenance: dict[str, Any]
    model: LinearScores | None = None
    path: Path | None = field(default=None)

    @property
    def features(self) -> pa.Table:
        """The feature columns alone."""
        return self.instances.select(self.encoder.inputs)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the label, if it has classes."""
        names = self.provenance["classes"]
        return None if names is None else tuple(names)

    def labels_of(self, target: str | None = None) -> FloatArray:
        """Return one number per bag: the label, or with classes the share of `target`."""
        if self.classes is None:
            if target is not None:
                raise ReleaseError("target names a class, and this label has none.")
            return self.labels
        if target not in self.classes:
            raise ReleaseError(
                f"target must be one of the classes {', '.join(self.classes)}, got {target!r}."
            )
        return self.labels[:, self.classes.index(target)]

    def training_data(self, target: str | None = None) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return X, y, bag_ids: y repeats each bag's label; rows left out of bags are dropped.

        For a label with classes, `target` names the class whose shares to learn.
        """
        kept = self.bags.in_bag
        features = self.features if kept.all() else self.features.filter(pa.array(kept))
        bag_ids = self.bags.index[kept]
        return self.encoder.transform(features), self.labels_of(target)[bag_ids], bag_ids

    def fit_params(self) -> dict[str, Any]:
        """Return what an estimator's ``fit`` takes beside X and y."""
        bag_ids = self.bags.index[self.bags.in_bag]
        return {"bags": bag_ids, "noise_sd": self.noise_sd[bag_ids]}

    def save(self, path: str | Path, *, force: bool = False, simulated_noise: bool = False) -> Path:
        """Write the release as a directory, whole or not at all.

        A release made with simulated noise is written only if `simulated_noise` is set: it looks
        like a private one and is not. `force` replaces an existing release. A private release
        spends its epsilon anew each time it is made: whoever saw the old one now has both.
        """
        if self.certificate.noise_source == SimulatedNoise.name and not simulated_noise:
            raise ReleaseError(
                "the noise of this release is simulated, so it is NOT PRIVATE. "
                "Save it with simulated_noise=True if that is what you want."
            )
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
            self._check_manifest(_release_files.read_release(self.path).manifest)
            digest = _release_files.release_digest(self.path)
            checks.append("every file has the hash in the manifest, which describes this release")
        self._check_columns()
        checks.append("no label column and no picked index among the instances")
        self._check_bags()
        checks.append(
            f"every bag has at least {self.provenance['bag_size']} rows, no row is in two, "
            f"{int((~self.bags.in_bag).sum())} are left out"
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

    def _check_manifest(self, manifest: Mapping[str, Any]) -> None:
        expected = {**self._to_files().manifest, "software": manifest.get("software")}
        for key in sorted({*expected, *manifest} - {"files"}):
            if key not in manifest or key not in expected or manifest[key] != expected[key]:
                raise ReleaseError(f"the manifest's entry {key!r} does not describe this release.")

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
        width = () if self.classes is None else (len(self.classes),)
        expected = (self.bags.n_bags, *width)
        if self.labels.shape != expected or not np.isfinite(self.labels).all():
            raise ReleaseError("bag labels are missing or not finite.")

    def _check_certificate(self) -> None:
        self.certificate.check()
        if self.certificate.smallest_bag != int(self.bags.sizes.min()):
            raise ReleaseError("the certificate names another smallest bag than there is.")
        if not np.allclose(
            self.noise_sd, noise_per_bag(self.certificate.events, self.bags.sizes), rtol=1e-9
        ):
            raise ReleaseError("the noise of the bags is not the one the certificate describes.")
        if (self.model is not None) != (self.provenance["scores"] == "model"):
            raise ReleaseError("scores.json and the scores that the manifest names do not agree.")
        if self.certificate.is_private:
            self._check_bag_event()
            self._check_scores()

    def _check_bag_event(self) -> None:
        """Exactly one event must have hidden the bag labels, and be of their kind."""
        numeric = self.classes is None
        means: set[type] = {GaussianBagMeans, LaplaceBagMeans}
        fitting = (
            means if self.label_kind == "mean" else {PickedLabels if numeric else RandomisedPicks}
        )
        found = [
            e for e in self.certificate.events if type(e) in {*means, PickedLabels, RandomisedPicks}
        ]
        if len(found) != 1 or type(found[0]) not in fitting:
            raise ReleaseError("the certificate does not account for these bag labels.")
        if isinstance(found[0], GaussianBagMeans | LaplaceBagMeans):
            self._check_grid(found[0].grid_step)

    def _check_grid(self, step: float) -> None:
        """Refuse labels whose sums are not whole numbers of steps, as far as doubles can tell."""
        low = self.certificate.bounds[0] if self.certificate.bounds else 0.0
        sizes = self.bags.sizes if self.classes is None else self.bags.sizes[:, None]
        steps = (self.labels - low) * sizes / step
        rounding = 8 * np.finfo(float).eps * (np.abs(self.labels) + abs(low)) * sizes / step
        sure = rounding < 0.01
        if np.any(np.abs(steps - np.rint(steps))[sure] > 0.02):
            raise ReleaseError("bag labels are not on the grid that their noise is drawn on.")

    def _check_scores(self) -> None:
        """Bags must follow from features, or from scores that the certificate paid for."""
        known = STRATEGIES.get(self.provenance["strategy"])
        if known is not None:
            strategy = known(**self.provenance["strategy_parameters"])
            if strategy.uses_scores != (self.provenance["scores"] != "none"):
                raise ReleaseError("the strategy and the scores that it used do not agree.")
        paid = {"none": set(), "noisy-labels": {GaussianLabels}, "model": {GaussianModel}}
        found = {type(event) for event in self.certificate.events} & {GaussianLabels, GaussianModel}
        if found != paid.get(self.provenance["scores"]):
            raise ReleaseError(
                "the certificate does not pay for the scores that bags were formed by."
            )

    def _columns(self) -> dict[str, list[str]]:
        files = self._tables()
        return {
            name: [f"{f.name}: {f.type}" for f in table.schema] for name, table in files.items()
        }

    def _tables(self) -> dict[str, pa.Table]:
        index = self.bags.index
        ids = pa.array(index, mask=index == LEFT_OUT)
        labels = [self.labels] if self.classes is None else list(self.labels.T)
        return {
            "instances": self.instances.append_column(BAG_ID, ids),
            "bags": pa.table(
                [np.arange(self.bags.n_bags), self.bags.sizes, *labels, self.noise_sd],
                names=bag_columns(self.classes),
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
            scores=None if self.model is None else self._scores_to_json(self.model),
        )

    def _scores_to_json(self, model: LinearScores) -> dict[str, Any]:
        names = self.encoder.feature_names
        return {
            "schema": "bagwise-scores/1",
            "kind": "model",
            "label": self.provenance["label"],
            "intercept": model.intercept,
            "coefficients": dict(zip(names, model.coef.tolist(), strict=True)),
            "dropped": list(model.dropped),
        }

    @classmethod
    def _from_files(cls, files: ReleaseFiles) -> Self:
        manifest, bags = files.manifest, files.bags
        classes = manifest["classes"]
        if bags.column_names != (names := bag_columns(classes)):
            raise ReleaseError(f"bags hold other columns than {', '.join(names)}.")
        shares = np.column_stack([bags[name].to_numpy() for name in names[2:-1]])
        if bags[BAG_ID].to_pylist() != list(range(bags.num_rows)):
            raise ReleaseError("bags are not numbered 0, 1, 2, …")
        partition = Bags(pc.fill_null(files.instances[BAG_ID], LEFT_OUT).to_numpy())
        if not np.array_equal(bags["size"].to_numpy(), partition.sizes):
            raise ReleaseError("bag sizes do not match the number of instances in each bag.")
        keys = (
            "label",
            "classes",
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
            labels=shares[:, 0] if classes is None else shares,
            noise_sd=bags["noise_sd"].to_numpy(),
            label_kind=check_label_kind(manifest["label_kind"]),
            certificate=Certificate.from_json(files.certificate),
            encoder=Encoder.from_json(manifest["encoder"]),
            instances=files.instances.drop_columns([BAG_ID]),
            provenance={key: manifest[key] for key in keys},
            model=None if files.scores is None else _scores_from_json(files.scores),
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
            **({} if self.classes is None else {"classes": ", ".join(self.classes)}),
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


def _scores_from_json(scores: Mapping[str, Any]) -> LinearScores:
    return LinearScores(
        float(scores["intercept"]),
        np.array(list(scores["coefficients"].values()), dtype=np.float64),
        tuple(scores["dropped"]),
    )
