"""Releases: bags, their labels, the features, and the guarantee about labels."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import FloatArray, IntArray
from bagwise._version import SOFTWARE
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.bagging.quality import BagQuality, measure_blocks
from bagwise.errors import ReleaseError, StrategyError, shielded
from bagwise.families import FAMILIES, find_family
from bagwise.files import signatures
from bagwise.files.atomic import check_target
from bagwise.files.records import Record, read_record, to_plain
from bagwise.files.stored import StoredTable
from bagwise.privacy import Certificate
from bagwise.privacy.laws import Law
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.noise_laws import LAWS
from bagwise.privacy.private_model import LinearScores
from bagwise.release import files
from bagwise.release.bags_in_parts import PartBags
from bagwise.release.explain import explain_release
from bagwise.release.files import ReleaseFiles
from bagwise.release.manifest import BAG_ID, SCHEMA, Manifest, TableColumns
from bagwise.release.verify import verify_release
from bagwise.requests.provenance import Provenance
from bagwise.rng import SimulatedNoise
from bagwise.rows.columns import exposure_vector
from bagwise.rows.encode import Encoder
from bagwise.show import charts, html

MEASURED = 2**18
"""Rows whose bags tell as much of a table as all of them, ..."""

BAGS_A_COLUMN = 100
"""... if there are so many bags for each column of X."""


def check_output(path: str | Path, *, force: bool = False) -> None:
    """Refuse an output directory that is taken, before any work is done for it."""
    check_target(Path(path), force=force, kind=files.RELEASE)


def bag_schema(classes: Sequence[str] | None) -> pa.Schema:
    """Return the columns of the table of bags: one label, or one share for each class."""
    labels = ["label"] if classes is None else [f"label={name}" for name in classes]
    numbers = dict.fromkeys([*labels, "noise_sd"], pa.float64())
    return pa.schema({BAG_ID: pa.int64(), "size": pa.int64(), **numbers})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Published:
    """The parts that every release has, wherever its rows are.

    Attributes
    ----------
    certificate : Certificate
    provenance : Provenance
        How the release was made, as the manifest records it.
    encoder : Encoder
        The recipe from feature columns to X.
    label_kind : {"mean", "pick"}
    model : LinearScores or None
        The private model that rows were sorted or measured by, or labels centred on, if they were.
    bags : Bags or PartBags
        Which rows share a bag.
    """

    certificate: Certificate
    provenance: Provenance
    encoder: Encoder
    label_kind: LabelKind
    model: LinearScores | None = None
    bags: Bags | PartBags

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.bags.n_rows)

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return int(self.bags.n_bags)

    @property
    def _left_out(self) -> int:
        sizes: Mapping[int, int] = self.bags.count_sizes()
        return self.n_rows - sum(size * times for size, times in sizes.items())

    @property
    def _row_schema(self) -> pa.Schema:
        raise NotImplementedError

    def _tables(self, _rows_per_file: int | None) -> tuple[Any, Any]:
        """Return the tables of rows and of bags, as `ReleaseFiles` takes them."""
        raise NotImplementedError

    def save(
        self,
        path: str | Path,
        *,
        force: bool = False,
        simulated_noise: bool = False,
        rows_per_file: int | None = None,
        sign: str | Path | None = None,
    ) -> Path:
        """Write the release as a directory, whole or not at all.

        The rows are in one file, or, with `rows_per_file`, in several of so many rows; on Spark
        there are 2^20 to a file where nobody says, and the private directory of the run, from which
        they are moved, is best in the file system of `path`.

        A release made with simulated noise is written only if `simulated_noise` is set: it looks
        like a private one and is not. `force` replaces an existing release. A private release
        spends its epsilon anew each time it is made: whoever saw the old one now has both. `sign`
        is the file of an Ed25519 key that signs the manifest (extra ``sign``).
        """
        key = None if sign is None else signatures.read_signing_key(Path(sign))
        if self.certificate.noise_source == SimulatedNoise.name and not simulated_noise:
            raise ReleaseError(
                "the noise of this release is simulated, so it is NOT PRIVATE. "
                "Save it with simulated_noise=True if that is what you want."
            )
        target = Path(path)
        files.check_rows_per_file(rows_per_file, self.n_rows)
        check_output(target, force=force)
        instances, bags = self._tables(rows_per_file)
        files.write_release(
            ReleaseFiles(
                instances=instances,
                bags=bags,
                certificate=self.certificate.to_json(),
                manifest=self.manifest(),
                scores=self._scores(),
            ),
            target,
            force=force,
            rows_per_file=rows_per_file,
            sign=None if key is None else lambda content: signatures.sign(content, key),
        )
        return target

    def _scores(self) -> dict[str, Any] | None:
        """Return the file of the model, or None without a model."""
        if (model := self.model) is None:
            return None
        return to_plain(
            ScoresFile(
                schema="bagwise-scores/2",
                label=self.provenance.label,
                family=model.family,
                link=model.link,
                intercept=float(model.intercept),
                coefficients=dict(
                    zip(self.encoder.feature_names, model.coef.tolist(), strict=True)
                ),
                dropped=tuple(model.dropped),
            )
        )

    def manifest(self) -> Manifest:
        """Return the contents of the manifest without the hashes of the files."""

        def described(schema: pa.Schema) -> tuple[str, ...]:
            return tuple(f"{field.name}: {field.type}" for field in schema)

        return Manifest(
            schema=SCHEMA,
            software=SOFTWARE,
            certificate=self.certificate.headline,
            provenance=self.provenance,
            label_kind=self.label_kind,
            n_rows=self.n_rows,
            n_bags=self.n_bags,
            n_left_out=self._left_out,
            columns=TableColumns(
                instances=described(self._row_schema.append(pa.field(BAG_ID, pa.int64()))),
                bags=described(bag_schema(self.provenance.classes)),
            ),
            encoder=self.encoder,
            files={},
        )

    def summary(self) -> dict[str, Any]:
        """Return the facts of a release that a reader wants first."""
        made, sizes = self.provenance, self.bags.count_sizes()
        followed = {"by": made.by, "within": made.within}
        return {
            "privacy": self.certificate.headline,
            "rows": self.n_rows,
            "left_out": self._left_out,
            "bags": self.n_bags,
            "smallest_bag": min(sizes),
            "largest_bag": max(sizes),
            "label": made.label,
            **({} if made.classes is None else {"classes": ", ".join(made.classes)}),
            "label_kind": self.label_kind,
            "strategy": made.strategy,
            **{role: ", ".join(names) for role, names in followed.items() if names},
            **({} if made.exposure is None else {"exposure": made.exposure}),
            "scores": made.scores,
            "features": len(self.encoder.feature_names),
        }

    @property
    def why_chosen(self) -> str | None:
        """The planner's reason for these bags and the error that it expects, in words."""
        reason, classes = self.provenance.chosen_because, self.provenance.classes or ()
        rows_each = self.n_rows / (len(self.encoder.feature_names) + 1)
        return None if reason is None else reason.text(len(classes) or 1, rows_each)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_rows} rows, {self.n_bags} bags of at least "
            f"{min(self.bags.count_sizes())}, {self.label_kind} labels, "
            f"{self.certificate.headline})"
        )

    def _repr_html_(self) -> str:
        return html.table("Release", list(self.summary().items()))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Release(Published):
    """A release, as it leaves the custodian; it never holds a row's label.

    It has the attributes of `Published`, and these.

    Attributes
    ----------
    labels : (m,) floats, or (m, classes) for a label with classes
        The aggregate label of each bag; for classes their shares, or estimates of them.
    noise_sd : (m,) floats
        The standard deviation of the privacy noise on each bag's label.
    instances : pyarrow.Table
        The feature columns, the id column if there is one, and the columns that bags follow.
    digest : str or None
        SHA-256 of the manifest, for a release that was read from its files.
    stored : StoredTable or None
        The instances once more, for tables that do not fit into memory: they are written from it.
    """

    bags: Bags
    labels: FloatArray
    noise_sd: FloatArray
    instances: pa.Table
    digest: str | None = None
    stored: StoredTable | None = None

    @property
    def features(self) -> pa.Table:
        """The feature columns alone."""
        return self.instances.select(self.encoder.inputs)

    @property
    def exposure(self) -> FloatArray | None:
        """The exposure of each row, (n,), if the release has exposure."""
        name = self.provenance.exposure
        return None if name is None else exposure_vector(self.instances, name)

    def rates(self) -> tuple[FloatArray, FloatArray]:
        """Return sums of labels over sums of exposure, by bag, and the noise on them.

        Exposure is public, so that this is the mean label with its noise in other units.

        >>> import pyarrow as pa
        >>> from bagwise import Reading, make_release
        >>> table = pa.table({"x": [1, 2, 2, 1], "years": [1.0, 3.0, 2.0, 2.0], "n": [1, 1, 0, 2]})
        >>> release = make_release(
        ...     table, label="n", bag_size=4, not_private=True, reading=Reading(exposure="years")
        ... )
        >>> release.labels, release.rates()[0]
        (array([1.]), array([0.5]))
        """
        if (exposure := self.exposure) is None:
            raise ReleaseError("this release has no exposure; release with exposure= (--exposure).")
        times = self.bags.mean(exposure)
        return self.labels / times, self.noise_sd / times

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the label, if it has classes."""
        return self.provenance.classes

    def labels_of(self, target: str | None = None) -> FloatArray:
        """Return one number per bag: the label, or with classes the share of `target`.

        With classes and no target, return the shares of all of them, (m, classes).
        """
        if target is None:
            return self.labels
        if self.classes is None:
            raise ReleaseError("target names a class, and this label has none.")
        if target not in self.classes:
            raise ReleaseError(
                f"target must be one of the classes {', '.join(self.classes)}, got {target!r}."
            )
        return self.labels[:, self.classes.index(target)]

    def training_data(
        self, target: str | None = None, *, as_frame: bool = False
    ) -> tuple[Any, FloatArray, IntArray]:
        """Return X, y, bag_ids: y repeats each bag's label; rows left out of bags are dropped.

        For a label with classes, `target` names the class whose shares to learn; without it y has
        one column for each class. With `as_frame`, X is a pandas frame with names.
        """
        kept = self.bags.in_bag
        features = self.features if kept.all() else self.features.filter(pa.array(kept))
        bag_ids = self.bags.index[kept]
        X: Any = self.encoder.transform(features)
        if as_frame:
            names = self.encoder.feature_names
            X = pa.table({name: X[:, i] for i, name in enumerate(names)}).to_pandas()
        return X, self.labels_of(target)[bag_ids], bag_ids

    def to_pandas(self) -> Any:
        """Return the published rows as a pandas frame, each with its bag and the bag's label.

        A row that is in no bag has the bag -1 and no label. With classes there is a column with
        the share of each.
        """
        bags = self.bags.index
        labels = np.where(
            bags[:, None] < 0, np.nan, self.labels.reshape(len(self.labels), -1)[bags]
        )
        names = [f"{self.provenance.label}={name}" for name in self.classes or ()]
        columns = dict(zip(names or [f"{self.provenance.label} (bag)"], labels.T, strict=True))
        return self.instances.to_pandas().assign(**{BAG_ID: bags, **columns})

    @property
    def noise_law(self) -> Law:
        """The distribution of the noise on bag labels, for a fit that knows it.

        For means; picks and class shares are treated as if their noise were normal.
        """
        means = ("bag means", "class shares")
        events = self.certificate.events
        laws = [event.law for event in events if event.hides in means]
        return laws[0] if laws else LAWS["gaussian"]

    def fit_params(self) -> dict[str, Any]:
        """Return the arguments of an estimator's ``fit`` besides X and y, such as exposure."""
        kept, exposure = self.bags.in_bag, self.exposure
        bag_ids = self.bags.index[kept]
        times = {} if exposure is None else {"exposure": exposure[kept]}
        return {"bags": bag_ids, "noise_sd": self.noise_sd[bag_ids], **times}

    def quality(self) -> BagQuality:
        """Measure what the bag means keep of the features.

        Only published data are used, so the figures reveal nothing more than the release does. X is
        encoded block by block and never exists as a whole. Of a large table some of the bags are
        measured, which tell as much as all.
        """
        features, bags, width = self.features, self.bags, len(self.encoder.feature_names)
        enough = max(MEASURED, BAGS_A_COLUMN * width * (bags.n_rows // bags.n_bags))
        if (step := bags.n_rows // enough) > 1:
            bags = Bags(np.where(bags.index % step == 0, bags.index // step, LEFT_OUT))
        return measure_blocks(
            bags, lambda rows: self.encoder.transform(features.take(pa.array(rows))), width
        )

    explain = explain_release

    verify = verify_release

    @classmethod
    def load(cls, path: str | Path, *, key: str | Path | None = None) -> Self:
        """Read a release; refuse one that is incomplete or edited.

        With `key`, the file of a public key (Ed25519), its owner must have signed the release
        (extra ``sign``).
        """
        contents = files.read_release(Path(path), key=None if key is None else Path(key))
        return shielded(
            lambda: cls._from_files(contents),
            ReleaseError(f"{path} is damaged: its tables do not fit its manifest."),
        )

    @property
    def _row_schema(self) -> pa.Schema:
        return self.instances.schema

    def _tables(self, _rows_per_file: int | None) -> tuple[Any, pa.Table]:
        index = self.bags.index
        rows = self.instances.append_column(BAG_ID, pa.array(index, mask=index == LEFT_OUT))
        labels = [self.labels] if self.classes is None else list(self.labels.T)
        bags = [np.arange(self.bags.n_bags), self.bags.sizes, *labels, self.noise_sd]
        table = pa.table(bags, schema=bag_schema(self.classes))
        return rows if self.stored is None else _streamed(self.stored, rows), table

    @classmethod
    def _from_files(cls, files: ReleaseFiles) -> Self:
        manifest, bags, certificate = files.manifest, files.bags, read_certificate(files)
        classes = manifest.provenance.classes
        shares = np.column_stack([column.to_numpy() for column in bags.columns[2:-1]])
        partition = Bags(_bag_of_each_row(files.instances, bags.num_rows))
        if not np.array_equal(bags["size"].to_numpy(), partition.sizes):
            raise ReleaseError("bag sizes do not match the number of instances in each bag.")
        release = cls(
            bags=partition,
            labels=shares[:, 0] if classes is None else shares,
            noise_sd=bags["noise_sd"].to_numpy(),
            label_kind=manifest.label_kind,
            certificate=certificate,
            encoder=manifest.encoder,
            instances=files.instances.drop_columns([BAG_ID]),
            provenance=manifest.provenance,
            model=None if files.scores is None else _read_scores(files.scores, manifest),
            digest=files.digest,
        )
        kept = {"software": manifest.software, "files": manifest.files}
        if msgspec.structs.replace(release.manifest(), **kept) != manifest:
            raise ReleaseError("the manifest does not describe this release.")
        return release

    def plot(self) -> charts.Chart:
        """Draw what the bags keep of each direction; needs the extra ``bagwise[plot]``.

        ``certificate.plot()`` draws what is promised, ``bags.plot()`` the sizes of bags.
        """
        return self.quality().plot()


def _streamed(stored: StoredTable, instances: pa.Table) -> pa.RecordBatchReader:
    """Return instances as batches read from the file, of which none stays in memory."""

    def batches() -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in stored.batches(instances.column_names[:-1]):
            ids = instances[BAG_ID].slice(start, batch.num_rows).combine_chunks()
            yield pa.record_batch([*batch.columns, ids], schema=instances.schema)
            start += batch.num_rows

    return pa.RecordBatchReader.from_batches(instances.schema, batches())


def check_release(release: object) -> None:
    """Refuse a path, or any other object, given instead of a release; say how to load one."""
    if not isinstance(release, Release):
        raise ReleaseError(
            f"release must be a Release, got a {type(release).__name__}. Release.load(path) reads "
            "one from its directory, and make_release makes one."
        )


def read_certificate(files: ReleaseFiles) -> Certificate:
    """Check the table of bags, and read the certificate, which must list the same sizes."""
    bags, made = files.bags, files.manifest.provenance
    schema = bag_schema(made.classes)
    if bags.column_names != schema.names:
        raise ReleaseError(f"bags hold other columns than {', '.join(schema.names)}.")
    for field, column in zip(schema, bags.columns, strict=True):
        if column.type != field.type or column.null_count:
            raise ReleaseError(f"the column {field.name!r} of the bags has another type, or gaps.")
    if not np.array_equal(bags[BAG_ID].to_numpy(), np.arange(bags.num_rows)):
        raise ReleaseError("bags are not numbered 0, 1, 2, …")
    sizes = pc.unique(bags["size"]).to_pylist()
    return Certificate.from_json(files.certificate, sizes=[*sizes, made.bag_size])


def _bag_of_each_row(instances: pa.Table, n_bags: int) -> IntArray:
    """Return the bag of each row; check the numbers first, as counting a huge one fills memory."""
    if BAG_ID not in instances.column_names or instances[BAG_ID].type != pa.int64():
        raise ReleaseError(f"instances have no column {BAG_ID!r} of whole numbers.")
    numbers: IntArray = pc.fill_null(instances[BAG_ID], LEFT_OUT).to_numpy()
    least = pc.min(instances[BAG_ID]).as_py()  # without those that are left out
    if least is None or least < 0 or numbers.max() >= n_bags:
        raise ReleaseError(f"instances name bags other than the {n_bags} that there are.")
    return numbers


class ScoresFile(Record, frozen=True):
    """The private model that rows were sorted or measured by, or labels centred on."""

    schema: Literal["bagwise-scores/2"]
    label: str
    family: str
    link: str
    intercept: float
    coefficients: dict[str, float]
    dropped: tuple[str, ...]


def _read_scores(values: Mapping[str, Any], manifest: Manifest) -> LinearScores:
    scores = read_record(ScoresFile, values, error=ReleaseError, what="the file of scores")
    names, known = manifest.encoder.feature_names, False
    with suppress(StrategyError):
        find_family(scores.family, scores.link)
        known = scores.family in FAMILIES
    fits = (
        known
        and scores.label == manifest.provenance.label
        and list(scores.coefficients) == names
        and set(scores.dropped) <= set(names)
        and len(set(scores.dropped)) == len(scores.dropped)
    )
    if not fits:
        raise ReleaseError("scores.json is about another label or family, or other features.")
    coef = np.array(list(scores.coefficients.values()), dtype=np.float64)
    return LinearScores(scores.intercept, coef, scores.dropped, scores.family, scores.link)
